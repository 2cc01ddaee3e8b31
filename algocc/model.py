"""How long a schedule takes in the α-β-γ model, exactly, and which of several is fastest for which sizes.

A step is a synchronous round. A rank pays, for a full vector of m bytes,

    α     for each message that a port handles after another: ⌈peers / ports⌉ times, of those it sends to or those it
          receives from, whichever are more; with `startup="step"` once, if it sends or receives anything
    β·x   x: what its busiest port sends or receives in the step, as a fraction of m; the two directions overlap
    γ·y   y: what it reduces in the step, as a fraction of m

and the step takes the most α that a rank pays in it, and the most β·x + γ·y. So the time of a schedule is a line in m,

    time(m) = α·startups + m · Σ over steps, max over ranks (β·x + γ·y),

with the startups and volumes that `algocc.bounds` bounds; and with exact α, β and γ every time, and every size at which
two schedules take equally long, is a Fraction. A step in which no message is sent costs no α; copies within a rank are
free. A message is taken to be divisible without end: elements that do not divide evenly are left out.

Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing 1994 (α and β);
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005 (γ, and
the closed forms of most algorithms here).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError
from algocc.schedules.all_to_all_v import colouring
from algocc.table import Schedule, layout

Array = NDArray[Any]

BLOCK = 1 << 22
"""Entries (step, rank) that are looked at together."""

STARTUPS = ("message", "step")
"""What α is paid for, the default first; see `Machine`."""


@dataclass(frozen=True)
class Machine:
    """What a message and a reduction cost, all exact.

    alpha: seconds to start.
    beta: seconds for a byte that a port sends or receives.
    gamma: seconds for a byte reduced.
    ports: messages to distinct peers that a rank sends, and receives, at the same time.
    startup: "message" counts α for every message that a port handles after another, so ports is a limit on startups as
        well; "step" counts it once for each step, however many peers a rank has there. The two are the same for
        schedules in which a rank has at most `ports` peers a step.

    Raises UsageError for a value out of range.
    """

    alpha: Fraction = Fraction(5, 10**6)
    beta: Fraction = Fraction(1, 25 * 10**9)
    gamma: Fraction = Fraction(1, 100 * 10**9)
    ports: int = 1
    startup: str = "message"

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma"):
            if getattr(self, name) < 0:
                raise UsageError(f"machine: {name}={getattr(self, name)}, wanted 0 or more seconds")
        if self.ports < 1:
            raise UsageError(f"machine: ports={self.ports}, wanted 1 or more")
        if self.startup not in STARTUPS:
            raise UsageError(f"machine: startup={self.startup!r}, wanted {' or '.join(STARTUPS)}")


PRESETS: Mapping[str, Machine] = {
    "nvlink": Machine(Fraction(34, 10**7), Fraction(1, 450 * 10**9), Fraction(3, 3350 * 10**9)),
    "ib": Machine(Fraction(14, 10**6), Fraction(1, 50 * 10**9), Fraction(3, 3350 * 10**9)),
    "ethernet": Machine(Fraction(30, 10**6), Fraction(8, 25 * 10**9), Fraction(1, 10 * 10**9)),
    "shm": Machine(Fraction(1, 10**6), Fraction(1, 10 * 10**9), Fraction(1, 10 * 10**9)),
}
"""Round numbers to begin with; docs/compare.md says where each is from. Measured ones are better."""


class Line(NamedTuple):
    """A time in seconds as a function of m in bytes: fixed + slope · m.

    >>> Line(Fraction(2), Fraction(1, 2)).at(6)
    Fraction(5, 1)
    """

    fixed: Fraction
    slope: Fraction

    def at(self, m: Fraction | int) -> Fraction:
        """Seconds for m bytes."""
        return self.fixed + self.slope * m


class Round(NamedTuple):
    """Steps that cost the same: how many, and the (x, y) of the ranks that may be the busiest, x falling, y rising."""

    times: int
    loads: tuple[tuple[Fraction, Fraction], ...]


@dataclass(frozen=True)
class Cost:
    """What a schedule costs on so many ports, before α, β and γ are known.

    startups: times that α is paid.
    rounds: its steps, those of equal loads together, the most frequent first.

    >>> from algocc.schedules.ring import ring
    >>> c = cost(ring(4))
    >>> print(c)
    6 α + m (3/2 β + 3/4 γ)
    >>> c.line(Machine(Fraction(1), Fraction(2), Fraction(4))).at(10)
    Fraction(66, 1)
    """

    startups: int
    rounds: tuple[Round, ...]
    ports: int
    startup: str

    @property
    def coefficients(self) -> tuple[Fraction, Fraction] | None:
        """The factors of m β and m γ, or None if which rank is the busiest depends on β and γ.

        >>> from algocc.schedules.trees import binary_tree
        >>> cost(binary_tree(8)).coefficients is None
        True
        """
        if any(len(r.loads) > 1 for r in self.rounds):
            return None
        x = sum((r.times * r.loads[0][0] for r in self.rounds), Fraction(0))
        return x, sum((r.times * r.loads[0][1] for r in self.rounds), Fraction(0))

    def line(self, machine: Machine) -> Line:
        """The time on a machine; raises UsageError if its ports or startup are not those that were counted."""
        if (machine.ports, machine.startup) != (self.ports, self.startup):
            raise UsageError(
                f"this cost is for ports={self.ports}, startup={self.startup!r}, the machine has "
                f"ports={machine.ports}, startup={machine.startup!r}: count again with cost(s, ports=…, startup=…)"
            )
        slope = Fraction(0)
        for times, loads in self.rounds:
            slope += times * max(machine.beta * x + machine.gamma * y for x, y in loads)
        return Line(self.startups * machine.alpha, slope)

    def __str__(self) -> str:
        x, y = Fraction(0), Fraction(0)
        busiest = []
        for times, loads in self.rounds:
            if len(loads) == 1:
                x, y = x + times * loads[0][0], y + times * loads[0][1]
            else:
                busiest.append(f"{times} max({', '.join(_sum(*load) for load in loads)})")
        volume = " + ".join(([_sum(x, y)] if x or y else []) + busiest)
        return f"{self.startups} α" + (f" + m ({volume})" if volume else "")


def _sum(x: Fraction, y: Fraction) -> str:
    return " + ".join(f"{share} {name}" for share, name in ((x, "β"), (y, "γ")) if share) or "0"


def cost(s: Schedule, *, ports: int = 1, startup: str = "message") -> Cost:
    """Count what a schedule of good form costs.

    ports: all that one rank sends another in a step is one message; a rank with more peers than ports gives the longest
        message to the port with least to do, and so on.
    startup: what α is paid for, as in `Machine`.

    Raises UsageError for ports below 1 or an unknown startup, ScheduleError for a send without its receive.

    >>> from algocc.schedules.all_pairs import two_shot
    >>> print(cost(two_shot(4)), "|", cost(two_shot(4), ports=3), "|", cost(two_shot(4), startup="step"))
    6 α + m (3/2 β + 3/4 γ) | 2 α + m (1/2 β + 3/4 γ) | 2 α + m (3/2 β + 3/4 γ)
    """
    Machine(ports=ports, startup=startup)
    s = s.matched()
    volume = _volumes(s)
    whole = max(1, s.collective.vector * s.collective.chunks)
    steps = len(s.step_start) - 1
    at_once = max(1, BLOCK // s.n)
    startups = 0
    counted: dict[tuple[tuple[int, int], ...], int] = {}
    for first in range(0, steps, at_once):
        last = min(steps, first + at_once)
        startups_here, moved, reduced = _loads(s, volume, first, last, ports, startup)
        startups += startups_here
        for loads, times in _busiest(moved, reduced):
            counted[loads] = counted.get(loads, 0) + times
    rounds = [
        Round(times, tuple((Fraction(x, whole), Fraction(y, whole)) for x, y in loads))
        for loads, times in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        if loads != ((0, 0),)
    ]
    return Cost(startups, tuple(rounds), ports, startup)


class Timed(NamedTuple):
    """When everything happens on a machine with one port, in seconds.

    step: when each step begins, and when the last one ends.
    begin, end: of each row of the matched schedule, at its sender and, if that is another rank, at its receiver; (rows, 2).
        The two are the same but in steps whose messages differ in length and do not fit so into the time of the step.
    """

    step: list[Fraction]
    begin: list[tuple[Fraction, Fraction]]
    end: list[tuple[Fraction, Fraction]]


def timed(s: Schedule, machine: Machine, m: Fraction | int) -> Timed:
    """Simulate a schedule of good form step by step, for m bytes: each step begins when the one before it has ended.

    Messages of a rank in one direction follow each other, all to one peer as one; what is reduced is added up once all has
    arrived. Where ranks have several peers in a step, an edge colouring says whose turn it is, so that a message keeps both
    of its ends busy at the same time. All ends when `cost` says.

    Raises UsageError for a machine of several ports, or one α for a whole step.

    >>> from algocc.schedules.ring import ring
    >>> machine = Machine(Fraction(1), Fraction(2), Fraction(4))
    >>> timed(ring(4), machine, 10).step[-1] == cost(ring(4)).line(machine).at(10)
    True
    """
    if (machine.ports, machine.startup) != (1, "message"):
        raise UsageError(f"simulation of ports={machine.ports}, startup={machine.startup!r}: wanted one port and α a message")
    s = s.matched()
    unit = Fraction(m) / max(1, s.collective.vector * s.collective.chunks)
    volume = _volumes(s).tolist()
    ranks = list(zip(s.rank.tolist(), s.peer.tolist(), s.action.tolist(), strict=True))
    step, begin, end = [Fraction(0)], [], []
    for first, last in pairwise(s.step_start.tolist()):
        messages: dict[tuple[int, int], list[int]] = {}
        work: dict[int, Fraction] = {}
        for row in range(first, last):
            rank, peer, action = ranks[row]
            if action:
                work[peer] = work.get(peer, Fraction(0)) + machine.gamma * volume[row] * unit
            if rank != peer:
                messages.setdefault((rank, peer), []).append(row)
        length = {pair: machine.beta * unit * sum(volume[row] for row in rows) for pair, rows in messages.items()}
        starts, startups, busy = _turns(length, machine.alpha, s.n)
        begin += [(step[-1],) * 2] * (last - first)
        end += begin[first:]
        for pair, rows in messages.items():
            at = [step[-1] + start for start in starts[pair]]
            after = machine.alpha  # all that one rank sends another is one message
            for row in rows:
                begin[row], after = (at[0], at[1]), after + machine.beta * unit * volume[row]
                at = [step[-1] + start + after for start in starts[pair]]
                end[row] = (at[0], at[1])
        busiest = max((busy.get(rank, Fraction(0)) + work.get(rank, 0) for rank in {*busy, *work}), default=Fraction(0))
        step.append(step[-1] + startups * machine.alpha + busiest)
    return Timed(step, begin, end)


Pair = tuple[int, int]
"""The sender and the receiver of a message."""


def _turns(length: dict[Pair, Fraction], alpha: Fraction, n: int) -> tuple[dict[Pair, tuple[Fraction, Fraction]], int, dict[int, Fraction]]:
    """The messages of a step, each α + its length: when each begins at both of its ends, the most that a rank has in one
    direction, and how long each rank is busy besides α."""
    peers: Counter[tuple[int, int]] = Counter()
    port: dict[tuple[int, int], Fraction] = {}
    for pair, long in length.items():
        for end in enumerate(pair):
            peers[end] += 1
            port[end] = port.get(end, Fraction(0)) + long
    startups = max(peers.values(), default=0)
    busy: dict[int, Fraction] = {}
    for (_, rank), long in port.items():
        busy[rank] = max(busy.get(rank, Fraction(0)), long)
    order = list(length)
    if startups > 1:
        edges = np.zeros((n, n), np.int64)
        edges[tuple(np.array(order).T)] = 1
        order = [pair for colour in colouring(edges) for pair in colour]
    over = startups * alpha + max(busy.values(), default=Fraction(0))
    for together in (True, False):  # by turns of both ends; if that takes longer, by those of each end alone
        free: dict[tuple[int, int], Fraction] = {}
        starts = {}
        for pair in order:
            ends = [free.get(end, Fraction(0)) for end in enumerate(pair)]
            ends = [max(ends)] * 2 if together else ends
            starts[pair] = ends[0], ends[1]
            free |= {end: at + alpha + length[pair] for end, at in zip(enumerate(pair), ends, strict=True)}
        if max(free.values(), default=over) <= over:
            break
    return starts, startups, busy


def _volumes(s: Schedule) -> Array:
    """What each row moves, in units of 1/chunks of a block of size 1."""
    c = s.collective
    if (c.sizes == c.sizes[:1]).all():
        return s.count * np.int64(c.sizes[0] if len(c.sizes) else 1)
    places = layout(s)
    held = np.zeros(places.total, np.int64)  # the size of what is in each location now
    for rank in range(s.n):
        sizes = np.repeat(c.sizes[c.input_start[rank] : c.input_start[rank + 1]], c.chunks)
        held[places.start[rank, 0] :][: len(sizes)] = sizes
    source = places.start[s.rank, s.buffer] + s.chunk
    target = places.start[s.peer, s.peer_buffer] + s.peer_chunk
    volume = np.zeros(len(s), np.int64)
    for first, last in zip(s.step_start[:-1].tolist(), s.step_start[1:].tolist(), strict=True):
        if first == last:
            continue
        count = s.count[first:last].astype(np.int64)
        begin = np.cumsum(count) - count
        nth = np.arange(int(count.sum())) - np.repeat(begin, count)
        sizes = held[np.repeat(source[first:last], count) + nth]
        volume[first:last] = np.add.reduceat(sizes, begin)
        held[np.repeat(target[first:last], count) + nth] = sizes
    return volume


def _loads(s: Schedule, volume: Array, first: int, last: int, ports: int, startup: str) -> tuple[int, Array, Array]:
    """Startups of some steps, and what the busiest port moves and a rank reduces; both of shape (last - first, n)."""
    rows = slice(int(s.step_start[first]), int(s.step_start[last]))
    shape = (last - first, s.n)
    step, src, dst, volume = s.step[rows].astype(np.int64) - first, s.rank[rows], s.peer[rows], volume[rows]
    away, reduces = src != dst, s.action[rows] != 0
    reduced = _totals(step[reduces] * s.n + dst[reduces], volume[reduces], shape)
    step, src, dst, volume = step[away], src[away], dst[away], volume[away]
    moved = np.zeros(shape, np.int64)
    turns = np.zeros(last - first, np.int64)
    turns[step] = 1
    for rank, peer in ((src, dst), (dst, src)):
        if ports == 1 and startup == "step":
            busiest = _totals(step * s.n + rank, volume, shape)
        else:
            busiest, most = _on_ports(step * s.n + rank, peer, volume, s.n, shape, ports)
            if startup == "message":
                turns = np.maximum(turns, -(-most // ports))
        moved = np.maximum(moved, busiest)
    return int(turns.sum()), moved, reduced


def _totals(key: Array, volume: Array, shape: tuple[int, int]) -> Array:
    """The sum of the volumes of each key; float64 holds them exactly up to 2^53."""
    return np.bincount(key, volume, minlength=shape[0] * shape[1]).astype(np.int64).reshape(shape)


def _on_ports(
    key: Array, peer: Array, volume: Array, n: int, shape: tuple[int, int], ports: int
) -> tuple[Array, Array]:
    """What the busiest port of each (step, rank) moves one way, and the most peers that a rank has in each step."""
    pairs, which = np.unique(key * n + peer, return_inverse=True)
    message = np.bincount(which, volume, minlength=len(pairs)).astype(np.int64)
    busiest, most = np.zeros(shape[0] * shape[1], np.int64), np.zeros(shape[0], np.int64)
    if not len(pairs):
        return busiest.reshape(shape), most
    owner, begin, peers = np.unique(pairs // n, return_index=True, return_counts=True)
    largest, total = np.maximum.reduceat(message, begin), np.add.reduceat(message, begin)
    level = largest * peers == total
    busiest[owner] = np.where(peers <= ports, largest, -(-peers // ports) * largest)
    for i in np.flatnonzero(~level & (peers > ports)).tolist():
        busiest[owner[i]] = _longest_first(message[begin[i] : begin[i] + peers[i]].tolist(), ports)
    np.maximum.at(most, owner // n, peers)
    return busiest.reshape(shape), most


def _longest_first(messages: list[int], ports: int) -> int:
    """What the busiest port gets if the longest message always goes to the port with least to do.

    >>> _longest_first([5, 4, 3, 3, 3], 2)
    10
    """
    load = [0] * ports
    heapify(load)
    for message in sorted(messages, reverse=True):
        heapreplace(load, load[0] + message)
    return max(load)


def _busiest(moved: Array, reduced: Array) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
    """Per step, the loads (x, y) that no other rank exceeds in both; equal ones counted together where that is fast."""
    top = moved.max(axis=1)
    with_it = np.where(moved == top[:, None], reduced, -1).max(axis=1)
    one = with_it == reduced.max(axis=1)
    pairs, times = np.unique(np.stack([top[one], with_it[one]], axis=1), axis=0, return_counts=True)
    for (x, y), k in zip(pairs.tolist(), times.tolist(), strict=True):
        yield ((x, y),), k
    for step in np.flatnonzero(~one).tolist():
        order = np.lexsort((reduced[step], moved[step]))[::-1]
        x, y = moved[step][order], reduced[step][order]
        keep = np.append(True, y[1:] > np.maximum.accumulate(y)[:-1])
        yield tuple(zip(x[keep].tolist(), y[keep].tolist(), strict=True)), 1


class Segment(NamedTuple):
    """Sizes from `first` to `last` bytes, None for no end, for which these are fastest, all equally."""

    first: Fraction
    last: Fraction | None
    names: tuple[str, ...]


def envelope(lines: Mapping[str, Line]) -> list[Segment]:
    """Which of the lines is lowest from which size to which, for every m ≥ 0, exactly.

    >>> def line(fixed, slope): return Line(Fraction(fixed), Fraction(slope))
    >>> for s in envelope({"tree": line(3, 3), "ring": line(14, 2), "slow": line(15, 2), "flat": line(14, 2)}):
    ...     print(s.first, s.last, *s.names)
    0 11 tree
    11 None ring flat
    """
    found: list[Segment] = []
    at, now = Fraction(0), min(lines.values(), default=None)
    while now is not None:
        # Those of smaller slope overtake from here on: none is lower yet, or it would be `now`.
        meets = [(crossover(now, line), line.slope, line) for line in lines.values() if line.slope < now.slope]
        after, _, ahead = min(meets, default=(None, None, None))
        found.append(Segment(at, after, tuple(name for name, line in lines.items() if line == now)))
        at, now = after or at, ahead
    return found


def crossover(a: Line, b: Line) -> Fraction | None:
    """The size m ≥ 0 at which two lines meet; None if they do not, or are the same.

    >>> crossover(Line(Fraction(6), Fraction(1)), Line(Fraction(2), Fraction(3)))
    Fraction(2, 1)
    """
    if a.slope == b.slope:
        return None
    meet = (b.fixed - a.fixed) / (a.slope - b.slope)
    return meet if meet >= 0 else None
