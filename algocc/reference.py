"""What a Schedule and a Program mean, said slowly and plainly; everything fast is tested against this.

A value is the exact multiset of the contributions reduced into it, memory is a dictionary and time is a loop.
Nothing here is shared with the verifier, the runtime or the matching of `table`.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from algocc.collective import Buffer, Collective
from algocc.errors import ScheduleError, UsageError
from algocc.program import Program, check
from algocc.table import COLUMNS, Action, Failure, Schedule, chunk_name

V = TypeVar("V")
Place = tuple[int, int, int]
"""(rank, buffer, chunk)."""
Length = tuple[int, int]
"""(units of a block, part of it): what fixes the number of elements of a chunk, whatever the count of a call."""
EMPTY: Length = (0, 0)
Tree = tuple[Any, Any]
"""An input chunk, (rank, chunk), or a reduction, (left, right), of two trees."""


class State(Generic[V]):
    """What every chunk of every rank holds: `state[rank, buffer, chunk]`, None where nothing was written."""

    def __init__(self, c: Collective, scratch: int, in_place: bool, leaf: Callable[[int, int], V]) -> None:
        self.collective = c
        self._memory: dict[Place, V | None] = {}
        self._lengths: dict[Place, Length] = {}
        self._same: dict[Place, Place] = {}
        for rank in range(c.n):
            for buffer, size in (
                (Buffer.INPUT, int(c.inputs[rank]) * c.chunks),
                (Buffer.OUTPUT, int(c.outputs[rank]) * c.chunks),
                (Buffer.SCRATCH, scratch),
            ):
                self._memory |= {(rank, int(buffer), chunk): None for chunk in range(size)}
        for rank, i, o in c.alias.tolist() if in_place else ():
            for part in range(c.chunks):
                mine = (rank, int(Buffer.INPUT), i * c.chunks + part)
                self._same[mine] = (rank, int(Buffer.OUTPUT), o * c.chunks + part)
        for at, kind, chunk in self.places():
            if kind == Buffer.INPUT:
                self.put((at, kind, chunk), leaf(at, chunk), self._length(at, chunk))

    def memory(self, place: Place) -> Place:
        """The place that stands for the memory of `place`: its own, or in place that of the output it is."""
        return self._same.get(place, place)

    def places(self) -> list[Place]:
        """Every place of every rank."""
        return list(self._memory)

    def outputs(self) -> dict[tuple[int, int], V | None]:
        """What each (rank, output chunk) holds."""
        return {(r, chunk): self[r, b, chunk] for r, b, chunk in self._memory if b == Buffer.OUTPUT}

    def __contains__(self, place: Place) -> bool:
        return place in self._memory

    def __getitem__(self, place: Place) -> V | None:
        return self._memory[self.memory(place)]

    def put(self, place: Place, value: V, length: Length = EMPTY) -> None:
        """Write a value of some length."""
        self._memory[self.memory(place)] = value
        self._lengths[self.memory(place)] = length

    def length(self, place: Place) -> Length:
        """The length of what a place holds."""
        return self._lengths[self.memory(place)]

    def _length(self, rank: int, chunk: int) -> Length:
        """The length of an input chunk."""
        block, part = divmod(chunk, self.collective.chunks)
        units = int(self.collective.sizes[self.collective.input_start[rank] + block])
        return (units, part) if units else EMPTY


def wanted(c: Collective, rank: int, chunk: int) -> Counter[tuple[int, int]]:
    """The multiset of (rank, input chunk) that an output chunk must reduce: part j of the blocks wanted there."""
    block, part = divmod(chunk, c.chunks)
    return Counter((r, b * c.chunks + part) for r, b in c.wanted(rank, block))


def is_empty(c: Collective, rank: int, chunk: int) -> bool:
    """Whether an output chunk is part of a block of size 0."""
    r, block = c.wanted(rank, chunk // c.chunks)[0]
    return int(c.sizes[c.input_start[r] + block]) == 0


def interpret(s: Schedule, *, in_place: bool = False) -> State[Counter[tuple[int, int]]]:
    """What a schedule leaves behind: the multiset of (rank, input chunk) that each place holds.

    Raises ScheduleError, naming step, rank and chunk, for a row that is not of good form or has no partner, a
    chunk read or reduced into before it is written, a chunk with two writers in a step unless all reduce, and a
    reduction of chunks whose lengths differ for some count: other parts of a block, or blocks of other sizes.

    >>> from algocc.collective import all_reduce
    >>> from algocc.steps import Steps
    >>> s = Steps(all_reduce(2))
    >>> with s.step():
    ...     s.reduce(src=0, dst=1, chunk=0)
    >>> interpret(s.build()).outputs()
    {(0, 0): Counter({(0, 0): 1}), (1, 0): Counter({(1, 0): 1, (0, 0): 1})}
    """
    return execute(
        s, in_place=in_place, leaf=lambda rank, chunk: Counter([(rank, chunk)]), combine=lambda a, b: a + b
    )


def expressions(s: Schedule, *, in_place: bool = False) -> State[Tree]:
    """As `interpret`, keeping the order of the reductions: each place holds a tree of pairs.

    >>> from algocc.collective import all_reduce
    >>> from algocc.steps import Steps
    >>> s = Steps(all_reduce(2))
    >>> with s.step():
    ...     s.reduce(src=0, dst=1, chunk=0)
    ...     s.prereduce(src=1, dst=0, chunk=0)
    >>> expressions(s.build()).outputs()
    {(0, 0): ((1, 0), (0, 0)), (1, 0): ((1, 0), (0, 0))}
    """
    return execute(s, in_place=in_place, leaf=lambda rank, chunk: (rank, chunk), combine=lambda a, b: (a, b))


def wrong_outputs(
    state: State[Counter[tuple[int, int]]], *, idempotent: bool = False
) -> Iterator[tuple[int, int]]:
    """The (rank, output chunk) that do not hold what the collective wants; as sets, if idempotent.

    Of a block of size 0 nothing is asked, not even to be written.
    """
    as_sets = idempotent or state.collective.idempotent
    for (rank, chunk), held in state.outputs().items():
        if is_empty(state.collective, rank, chunk):
            continue
        want = wanted(state.collective, rank, chunk)
        if held is None or (set(held) != set(want) if as_sets else held != want):
            yield rank, chunk


def is_correct(s: Schedule, *, in_place: bool = False, idempotent: bool = False) -> bool:
    """Whether a schedule does what its collective wants, for operators that are commutative and associative."""
    try:
        state = interpret(s, in_place=in_place)
    except ScheduleError:
        return False
    return not any(wrong_outputs(state, idempotent=idempotent))


@dataclass(frozen=True)
class _Row:
    """A row of the table, in the order of its columns, after the line that wrote it."""

    source: str | None
    step: int
    action: int
    rank: int
    peer: int
    buffer: int
    chunk: int
    peer_buffer: int
    peer_chunk: int
    count: int

    def fail(self, level: str, rank: int, chunk: str | None, found: str, want: str) -> NoReturn:
        raise ScheduleError(str(Failure(level, self.step, rank, chunk, found, want, self.source)))


def execute(
    s: Schedule, *, in_place: bool, leaf: Callable[[int, int], V], combine: Callable[[V, V], V]
) -> State[V]:
    """Run a schedule on values of any kind: `leaf(rank, input chunk)` makes them, `combine` reduces two.

    Raises as `interpret` does.
    """
    state = State(s.collective, s.scratch, in_place, leaf)
    table = zip(*(s.columns[name].tolist() for name in COLUMNS if name != "origin"), strict=True)
    rows = [_Row(s.source(i), *values) for i, values in enumerate(table)]
    for _, of_step in groupby(rows, key=lambda row: row.step):
        transfers = _transfers(list(of_step), state)
        read = [[_read(state, t, i) for i in range(t.count)] for t in transfers]
        copied: dict[Place, bool] = {}
        for t, values in zip(transfers, read, strict=True):
            for i, (value, length) in enumerate(values):
                there = (t.peer, t.peer_buffer, t.peer_chunk + i)
                name = chunk_name(t.peer_buffer, t.peer_chunk + i)
                if there in copied and (t.action == Action.COPY or copied[there]):
                    t.fail("race", t.peer, name, "is written twice", "one writer in a step unless all reduce")
                copied[there] = t.action == Action.COPY
                old = state[there]
                if t.action == Action.COPY:
                    state.put(there, value, length)
                    continue
                if old is None:
                    t.fail("data", t.peer, name, "is reduced into", "a chunk written before")
                if state.length(there) != length:
                    t.fail(
                        "data",
                        t.peer,
                        name,
                        "is reduced with data of another length",
                        "the same part of as large a block",
                    )
                state.put(
                    there, combine(old, value) if t.action == Action.REDUCE else combine(value, old), length
                )
    return state


def _read(state: State[V], t: _Row, i: int) -> tuple[V, Length]:
    place = (t.rank, t.buffer, t.chunk + i)
    value = state[place]
    if value is None:
        t.fail("data", t.rank, chunk_name(t.buffer, t.chunk + i), "is read", "a chunk written before")
    return value, state.length(place)


def _transfers(rows: list[_Row], state: State[V]) -> list[_Row]:
    """The rows of a step as whole transfers: the k-th send from a to b meets the k-th receive at b from a."""
    n = state.collective.n
    sent: dict[tuple[int, int], deque[_Row]] = {}
    for row in rows:
        if not 0 <= row.action <= max(Action):
            row.fail("form", row.rank, None, f"action {row.action}", "an action")
        if not (0 <= row.rank < n and 0 <= row.peer < n):
            row.fail("form", row.rank, None, f"ranks {row.rank} and {row.peer}", f"ranks of 0..{n - 1}")
        if row.count < 1:
            row.fail("form", row.rank, None, f"a transfer of {row.count} chunks", "1 or more")
        if row.action >= Action.SEND and row.rank == row.peer:
            row.fail("form", row.rank, None, "a message to the rank itself", "a local copy or reduce")
        if row.action == Action.SEND:
            sent.setdefault((row.rank, row.peer), deque()).append(row)
    transfers = []
    for row in rows:
        if row.action == Action.SEND:
            continue
        if row.action > Action.SEND:
            waiting = sent.get((row.peer, row.rank))
            if not waiting:
                row.fail("form", row.rank, None, "a receive without its send", "one send for each receive")
            row = _joined(waiting.popleft(), row)
        for rank, buffer, chunk in (
            (row.rank, row.buffer, row.chunk),
            (row.peer, row.peer_buffer, row.peer_chunk),
        ):
            for i in range(row.count):
                if (rank, buffer, chunk + i) not in state:
                    row.fail(
                        "form", rank, chunk_name(buffer, chunk + i), "does not exist", "a chunk that does"
                    )
        if row.peer_buffer == Buffer.INPUT:
            name = chunk_name(row.peer_buffer, row.peer_chunk, row.count)
            row.fail("form", row.peer, name, "is written", "inputs left as they are")
        transfers.append(row)
    for left in sent.values():
        for row in left:
            row.fail("form", row.rank, None, "a send without its receive", "one receive for each send")
    return transfers


def _joined(send: _Row, recv: _Row) -> _Row:
    """The transfer that a send and its receive are; what either says of the other's place must be so."""
    for one, other in ((send, recv), (recv, send)):
        said, found = (one.peer_buffer, one.peer_chunk), (other.buffer, other.chunk)
        if one.count != other.count or (one.peer_chunk >= 0 and said != found):
            one.fail(
                "form", one.rank, None, "a send that disagrees with its receive", "one place and one count"
            )
    return replace(
        recv,
        action=recv.action - Action.RECV,
        rank=send.rank, buffer=send.buffer, chunk=send.chunk,
        peer=recv.rank, peer_buffer=recv.buffer, peer_chunk=recv.chunk,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------- programs

Multiset = tuple[tuple[int, int, int], ...]
"""Contributions (iteration, rank, input chunk), sorted."""
Outputs = dict[tuple[int, int, int], Multiset | None]
"""What each (iteration, rank, output chunk) holds."""
Choose = Callable[[Sequence[int]], int]
"""Picks the lane that acts next from the lanes that can."""


class _Act(NamedTuple):
    """One atomic action of a lane, in one iteration."""

    kind: str  # wait, read, write or signal
    move: int
    place: Place = (0, 0, 0)
    fresh: bool = False  # a read that begins a new reduction
    counter: int = 0
    value: int = 0
    lag: int = 0


class Machine:
    """A Program in the middle of a run of some iterations; lanes act one atomic action at a time.

    A lane waits, reads the sources of its Move one by one, writes the destinations one by one, and gives its
    signals one by one. Inputs and outputs are other memory in each iteration, scratch is the same every `sets` iterations.

    p: the program.
    at: for each lane, the number of actions it has done.
    counters: signals of each counter so far.

    Raises ScheduleError if the Program is not of good form.
    """

    def __init__(self, p: Program, iterations: int = 1) -> None:
        check(p)
        self.p = p
        self.iterations = iterations
        self.at = [0] * p.lanes
        self.counters = [0] * len(p.counter_total)
        self._acts = [list(_acts(p, lane)) for lane in range(p.lanes)]
        self._reduced: list[Multiset] = [()] * p.lanes
        self._tiles: list[State[Multiset]] = [
            State(p.collective, 0, p.in_place, lambda rank, chunk, g=g: ((g, rank, chunk),))  # type: ignore[misc]
            for g in range(iterations)
        ]
        self._scratch: dict[tuple[int, int, int, int], Multiset] = {}

    def copy(self) -> Machine:
        """The same moment again, to go on from differently."""
        twin = object.__new__(Machine)
        twin.__dict__.update(self.__dict__)
        twin.at, twin.counters, twin._reduced = list(self.at), list(self.counters), list(self._reduced)
        twin._scratch = dict(self._scratch)
        twin._tiles = []
        for tile in self._tiles:
            new: State[Multiset] = object.__new__(State)
            new.__dict__.update(tile.__dict__)
            new._memory = dict(tile._memory)
            twin._tiles.append(new)
        return twin

    def key(self) -> tuple[object, ...]:
        """What tells this moment from others of the same run."""
        memory = tuple(tuple(tile._memory.values()) for tile in self._tiles)
        return (*self.at, *self._reduced, memory, tuple(sorted(self._scratch.items())))

    def outputs(self) -> Outputs:
        """What each output of each iteration holds."""
        return {
            (g, r, o): held for g, tile in enumerate(self._tiles) for (r, o), held in tile.outputs().items()
        }

    def _next(self, lane: int) -> tuple[int, _Act] | None:
        acts = self._acts[lane]
        if self.at[lane] >= len(acts) * self.iterations:
            return None
        iteration, i = divmod(self.at[lane], len(acts))
        return iteration, acts[i]

    def _threshold(self, iteration: int, act: _Act) -> int:
        return (iteration - act.lag) * int(self.p.counter_total[act.counter]) + act.value

    def ready(self) -> list[int]:
        """The lanes that can act: those that are neither done nor waiting.

        Raises ScheduleError, naming every lane that waits and for what, if none can and not all are done.
        """
        able, stuck = [], []
        for lane in range(self.p.lanes):
            found = self._next(lane)
            if found is None:
                continue
            iteration, act = found
            if act.kind != "wait" or self.counters[act.counter] >= self._threshold(iteration, act):
                able.append(lane)
                continue
            stuck.append(
                f"{self._where(lane, iteration, act)} waits for c{act.counter}>={self._threshold(iteration, act)}, "
                f"found {self.counters[act.counter]}"
            )
        if stuck and not able:
            raise ScheduleError(f"program {self.p.name}: deadlock: {'; '.join(stuck)}")
        return able

    def _where(self, lane: int, iteration: int, act: _Act) -> str:
        move = act.move - int(self.p.lane_start[lane])
        again = f" in iteration {iteration}" if iteration else ""
        return f"rank {self.p.lane_rank[lane]} lane {lane} move {move}{again}"

    def act(self, lane: int) -> None:
        """Do the next atomic action of a lane that is ready.

        Raises ScheduleError if it reads what no one has written.
        """
        found = self._next(lane)
        assert found is not None, "a lane that is done can't act"
        iteration, act = found
        self.at[lane] += 1
        if act.kind == "read":
            value = (
                self._scratch.get((iteration % self.p.sets, *act.place))
                if act.place[1] == Buffer.SCRATCH
                else self._tiles[iteration][act.place]
            )
            if value is None:
                rank, buffer, chunk = act.place
                raise ScheduleError(
                    f"program {self.p.name}: {self._where(lane, iteration, act)} reads "
                    f"r{rank}.{chunk_name(buffer, chunk)} before anyone writes it"
                )
            self._reduced[lane] = value if act.fresh else tuple(sorted(self._reduced[lane] + value))
        elif act.kind == "write" and act.place[1] == Buffer.SCRATCH:
            self._scratch[iteration % self.p.sets, *act.place] = self._reduced[lane]
        elif act.kind == "write":
            self._tiles[iteration].put(act.place, self._reduced[lane])
        elif act.kind == "signal":
            self.counters[act.counter] += 1


def _acts(p: Program, lane: int) -> Iterator[_Act]:
    """The atomic actions of one lane in one iteration, in order."""
    for move in range(p.lane_start[lane], p.lane_start[lane + 1]):
        for w in range(p.wait_start[move], p.wait_start[move + 1]):
            yield _Act(
                "wait",
                move,
                counter=int(p.wait_counter[w]),
                value=int(p.wait_value[w]),
                lag=int(p.wait_lag[w]),
            )
        sources = range(p.src_start[move], p.src_start[move + 1])
        for i in range(p.count[move]):
            for x in sources:
                place = (int(p.src_rank[x]), int(p.src_buffer[x]), int(p.src_chunk[x]) + i)
                yield _Act("read", move, place, fresh=x == sources[0])
            for x in range(p.dst_start[move], p.dst_start[move + 1]):
                yield _Act("write", move, (int(p.dst_rank[x]), int(p.dst_buffer[x]), int(p.dst_chunk[x]) + i))
        for x in range(p.signal_start[move], p.signal_start[move + 1]):
            yield _Act("signal", move, counter=int(p.signal_counter[x]))


def run_program(p: Program, *, iterations: int = 1, choose: Choose | random.Random | None = None) -> Outputs:
    """Run a Program in one interleaving of its lanes; what each output of each iteration holds.

    choose: picks the next lane from those that can act, or a source of random picks; the first, if None.

    Raises ScheduleError for a deadlock, naming the lanes, and for a read of what no one has written.
    """
    pick = choose.choice if isinstance(choose, random.Random) else choose or (lambda lanes: lanes[0])
    machine = Machine(p, iterations)
    while lanes := machine.ready():
        machine.act(pick(lanes))
    return machine.outputs()


def all_interleavings(p: Program, limit: int = 100_000, *, iterations: int = 1) -> list[Outputs]:
    """Every different result that the interleavings of a Program can have; for tiny programs.

    limit: moments looked at, at most.

    Raises ScheduleError for an interleaving that does not finish, or reads what no one has written; UsageError
    if there are more moments than the limit.
    """
    results: list[Outputs] = []
    start = Machine(p, iterations)
    seen = {start.key()}
    stack = [start]
    while stack:
        machine = stack.pop()
        lanes = machine.ready()
        if not lanes and machine.outputs() not in results:
            results.append(machine.outputs())
        for lane in lanes:
            after = machine.copy()
            after.act(lane)
            if after.key() not in seen:
                seen.add(after.key())
                stack.append(after)
        if len(seen) > limit:
            raise UsageError(f"program {p.name}: more than {limit} moments to look at: raise the limit")
    return results


def is_right(p: Program, outputs: Outputs, *, idempotent: bool = False) -> bool:
    """Whether the outputs of a run are what the collective wants, in each iteration of that iteration's inputs.

    Of a block of size 0 nothing is asked, not even to be written.
    """
    as_sets = idempotent or p.collective.idempotent
    for (iteration, rank, chunk), held in outputs.items():
        if is_empty(p.collective, rank, chunk):
            continue
        want = [(iteration, r, i) for r, i in wanted(p.collective, rank, chunk).elements()]
        if held is None or (set(held) != set(want) if as_sets else list(held) != sorted(want)):
            return False
    return True
