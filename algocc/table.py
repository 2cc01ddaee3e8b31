"""A schedule: a table of steps, held as columns, and the checks of its form.

All transfers of a step read the state before the step and take effect together after it. A row is either
two-sided (a send, or the receive that matches it) or, once matched, one transfer from `rank` to `peer`;
a transfer whose peer is its own rank is local work and costs no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from algocc.collective import BUFFER_NAMES, Buffer, Collective
from algocc.errors import ScheduleError, UsageError, counted

Array = NDArray[Any]


class Action(IntEnum):
    """What a row does. The first three are whole transfers, `rank` to `peer`; the others are one side of one.

    REDUCE: destination ← destination ⊕ source. PREREDUCE: destination ← source ⊕ destination, for operators
    that do not commute. SEND names the receiver as peer; the RECV… rows name the sender as peer.
    """

    COPY = 0
    REDUCE = 1
    PREREDUCE = 2
    SEND = 3
    RECV = 4
    RECV_REDUCE = 5
    RECV_PREREDUCE = 6


COLUMNS = {
    "step": np.int32,
    "action": np.int8,
    "rank": np.int32,
    "peer": np.int32,
    "buffer": np.int8,
    "chunk": np.int32,
    "peer_buffer": np.int8,
    "peer_chunk": np.int32,
    "count": np.int32,
    "origin": np.int32,
}
"""The columns of the table and their types; -1 in peer_buffer and peer_chunk leaves the place to the other side."""


@dataclass(frozen=True)
class Failure:
    """One reason why a schedule or program is wrong: where, what was found, what was wanted.

    level: the verifier level of the design: form, data, race, program.
    step, rank, chunk: where, None where it does not apply; chunk as in `out[3]`.
    source: the file and line that wrote the row.
    """

    level: str
    step: int | None
    rank: int | None
    chunk: str | None
    found: str
    wanted: str
    source: str | None = None

    def __str__(self) -> str:
        where = []
        if self.step is not None:
            where.append(f"step {self.step}")
        if self.rank is not None:
            where.append(f"rank {self.rank}")
        place = ", ".join(where) or self.level
        chunk = f"{self.chunk} " if self.chunk else ""
        source = f" ({self.source})" if self.source else ""
        return f"{place}: {chunk}{self.found}, wanted {self.wanted}{source}"


@dataclass(frozen=True, eq=False)
class Schedule:
    """A table of steps for one collective.

    name: what the schedule is called.
    collective: what it must do; its `chunks` says how many parts each block is cut into.
    scratch: chunks of scratch memory on each rank.
    step … origin: the columns, as in `COLUMNS`, one entry a row, steps in order.
    origins: the source lines that `origin` counts.

    Raises UsageError if the columns differ in length or the steps are out of order.
    """

    name: str
    collective: Collective
    scratch: int
    step: Array
    action: Array
    rank: Array
    peer: Array
    buffer: Array
    chunk: Array
    peer_buffer: Array
    peer_chunk: Array
    count: Array
    origin: Array
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, dtype in COLUMNS.items():
            column = np.ascontiguousarray(getattr(self, name), dtype)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
            if column.shape != (len(self),):
                raise UsageError(f"schedule {self.name}: column {name} has shape {column.shape}, wanted ({len(self)},)")
        if len(self) and (self.step[0] < 0 or (self.step[1:] < self.step[:-1]).any()):
            raise UsageError(f"schedule {self.name}: the steps are not in order from 0")

    def __len__(self) -> int:
        return len(self.step)

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self.collective.n

    @property
    def columns(self) -> dict[str, Any]:
        """The columns by name, in the order of `COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMNS}

    @cached_property
    def step_start(self) -> Array:
        """First row of each step, and the number of rows; shape (number of steps + 1,)."""
        steps = int(self.step[-1]) + 1 if len(self) else 0
        return np.searchsorted(self.step, np.arange(steps + 1)).astype(np.int64)

    @cached_property
    def is_matched(self) -> bool:
        """Whether every row is a whole transfer."""
        return not len(self) or int(self.action.max()) <= Action.PREREDUCE

    @cached_property
    def scratch_sizes(self) -> Array:
        """Units that each scratch chunk must hold: the largest block of the collective."""
        return np.full(self.scratch, int(self.collective.sizes.max(initial=0)), np.int64)

    def source(self, row: int) -> str | None:
        """The source line that wrote a row, where it is known."""
        origin = int(self.origin[row])
        return self.origins[origin] if 0 <= origin < len(self.origins) else None

    def rows(self, keep: Array) -> Schedule:
        """The rows that a mask or an index picks, in that order."""
        return replace(self, **{name: column[keep] for name, column in self.columns.items()})

    def canonical(self) -> Schedule:
        """Matched, and the transfers of each step by receiving rank: before → after, valid for any schedule
        of good form; the meaning is unchanged since a receiver's own order is kept.
        """
        s = self.matched()
        order = np.lexsort((s.peer, s.step))
        return s.rows(order)

    def matched(self) -> Schedule:
        """Every send joined with its receive into one transfer, rows in the order of the receives.

        The k-th send of a step from a to b meets the k-th receive of that step at b from a.

        Raises ScheduleError, naming the first step and rank, if one has no partner or they disagree.
        """
        if self.is_matched:
            return self
        matched, failures = match(self)
        if failures:
            raise ScheduleError(f"schedule {self.name}: {failures[0]}")
        return matched

    def then(self, other: Schedule, *, as_: Collective | None = None) -> Schedule:
        """`algocc.algebra.then`: this schedule, and the other on what it leaves."""
        return _algebra("then", self, other, as_=as_)

    def beside(self, *others: Schedule) -> Schedule:
        """`algocc.algebra.beside`: all of them side by side, each on its own parts of every block."""
        return _algebra("beside", self, *others)

    def reversed(self, *, as_: Collective | None = None) -> Schedule:
        """`algocc.algebra.reversed`: the same backwards, copies becoming reductions."""
        return _algebra("reversed", self, as_=as_)

    def relabel(self, perm: Sequence[int] | Array) -> Schedule:
        """`algocc.algebra.relabel`: rank r plays the part of rank perm[r]."""
        return _algebra("relabel", self, perm)

    def refine(self, k: int) -> Schedule:
        """`algocc.algebra.refine`: each chunk as k chunks."""
        return _algebra("refine", self, k)

    def pipelined(self, k: int, *, every: int | None = 1) -> Schedule:
        """`algocc.algebra.pipelined`: k segments, each starting `every` steps after the one before."""
        return _algebra("pipelined", self, k, every=every)

    def instances(self, k: int) -> Schedule:
        """`algocc.algebra.instances`: k copies side by side."""
        return _algebra("instances", self, k)

    def within(self, groups: Sequence[Sequence[int]] | Array, *, n: int | None = None) -> Schedule:
        """`algocc.algebra.within`: the same in every group of ranks at once."""
        return _algebra("within", self, groups, n=n)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (
            (self.name, self.collective, self.scratch) == (other.name, other.collective, other.scratch)
            and all(np.array_equal(c, other.columns[k]) for k, c in self.columns.items() if k != "origin")
            and [self.source(i) for i in np.unique(self.origin, return_index=True)[1].tolist()]
            == [other.source(i) for i in np.unique(other.origin, return_index=True)[1].tolist()]
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        steps, rows = counted(len(self.step_start) - 1, "step"), counted(len(self), "row")
        return f"<Schedule {self.name}: {self.collective}, {steps}, {rows}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a picture. The drawing is built on this module, so it is loaded by name."""
        shown: str = import_module("algocc.draw.notebook").schedule_html(self)
        return shown


def _algebra(operation: str, *args: Any, **options: Any) -> Schedule:
    """An operation of `algocc.algebra`. That module is built on this one, so it is loaded by name when asked for."""
    made: Schedule = getattr(import_module("algocc.algebra"), operation)(*args, **options)
    return made


def match(s: Schedule) -> tuple[Schedule, list[Failure]]:
    """Join sends with receives; the failures name those without a partner or that disagree."""
    side = s.action >= Action.SEND
    whole = np.flatnonzero(~side)
    send = np.flatnonzero(s.action == Action.SEND)
    recv = np.flatnonzero(s.action > Action.SEND)
    key_of_send, key_of_recv = _pair_keys(s, send, recv)
    failures = []
    only_send = send[~np.isin(key_of_send, key_of_recv)]
    only_recv = recv[~np.isin(key_of_recv, key_of_send)]
    for rows, verb, other in ((only_send, "is sent to", "receive"), (only_recv, "is received from", "send")):
        for row in rows.tolist():
            failures.append(
                Failure(
                    "form", int(s.step[row]), int(s.rank[row]), place(s, row, "own"),
                    f"{verb} rank {s.peer[row]} without the matching {other}",
                    f"one {other} on rank {s.peer[row]} in the same step", s.source(row),
                )
            )  # fmt: skip
    if failures:
        return s, sorted(failures, key=lambda f: f.step or 0)
    send = send[np.argsort(key_of_send)]
    send = send[np.argsort(np.argsort(key_of_recv))]  # partner of each receive, in the order of the receives
    for a, b in ((send, recv), (recv, send)):
        wrong = (s.count[a] != s.count[b]) | (
            (s.peer_chunk[a] >= 0) & ((s.peer_chunk[a] != s.chunk[b]) | (s.peer_buffer[a] != s.buffer[b]))
        )
        for i in np.flatnonzero(wrong).tolist():
            failures.append(
                Failure(
                    "form", int(s.step[a[i]]), int(s.rank[a[i]]), place(s, int(a[i]), "own"),
                    f"of {counted(s.count[a[i]], 'chunk')} meets {place(s, int(b[i]), 'own')} of {counted(s.count[b[i]], 'chunk')} "
                    f"on rank {s.peer[a[i]]}",
                    f"both sides to name the same place and count ({s.source(int(b[i]))})", s.source(int(a[i])),
                )
            )  # fmt: skip
        if failures:
            return s, failures
    columns = {name: column.copy() for name, column in s.rows(recv).columns.items()}
    columns["action"] -= Action.RECV
    columns |= {"rank": s.rank[send], "buffer": s.buffer[send], "chunk": s.chunk[send]}
    columns |= {"peer": s.rank[recv], "peer_buffer": s.buffer[recv], "peer_chunk": s.chunk[recv]}
    joined: dict[str, Any] = {name: np.concatenate([column[whole], columns[name]]) for name, column in s.columns.items()}
    order = np.lexsort((np.concatenate([whole, recv]), joined["step"]))
    return replace(s, **{name: column[order] for name, column in joined.items()}), []


def _pair_keys(s: Schedule, send: Array, recv: Array) -> tuple[Array, Array]:
    """A number for each row that only the k-th send and the k-th receive of one step and pair share."""
    rows = np.concatenate([send, recv])
    sends = np.arange(len(rows)) < len(send)
    src = np.where(sends, s.rank[rows], s.peer[rows]).astype(np.int64)
    dst = np.where(sends, s.peer[rows], s.rank[rows])
    pair = np.unique((s.step[rows] * np.int64(s.n) + src) * s.n + dst, return_inverse=True)[1]
    order = np.lexsort((sends, pair))  # stable: the rows of a side keep their order
    group = pair[order] * 2 + sends[order]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    key = pair * (len(rows) + 1) + nth
    return key[: len(send)], key[len(send) :]


def place(s: Schedule, row: int, side: str) -> str:
    """The chunk that one side of a row names, as in `out[3]` or `in[0:4]`; side is own or peer."""
    own = side == "own"
    buffer, chunk = (s.buffer[row], s.chunk[row]) if own else (s.peer_buffer[row], s.peer_chunk[row])
    return chunk_name(int(buffer), int(chunk), int(s.count[row]))


def chunk_name(buffer: int, chunk: int, count: int = 1) -> str:
    """A chunk or range of chunks as people write it.

    >>> chunk_name(Buffer.OUTPUT, 3), chunk_name(Buffer.INPUT, 0, 4)
    ('out[3]', 'in[0:4]')
    """
    name = BUFFER_NAMES.get(Buffer(buffer), "?") if buffer in (0, 1, 2) else "?"
    return f"{name}[{chunk}]" if count == 1 else f"{name}[{chunk}:{chunk + count}]"


def form_failures(s: Schedule, *, most: int = 20) -> list[Failure]:
    """Level 1: what is wrong with the form of a matched or unmatched schedule, at most `most` of each kind.

    Actions, buffers, ranks and chunks in range, nothing written to an input, every send matched.
    """
    n, c = s.n, s.collective
    two_sided = s.action >= Action.SEND
    sizes = c.buffer_sizes(s.scratch)
    failures: list[Failure] = []

    def report(bad: Array, say: Any) -> None:
        for row in np.flatnonzero(bad)[:most].tolist():
            chunk, found, wanted = say(row)
            rank = int(s.rank[row])
            failures.append(Failure("form", int(s.step[row]), rank, chunk, found, wanted, s.source(row)))

    report(
        (s.action < 0) | (s.action > max(Action)),
        lambda i: (None, f"action {s.action[i]}", f"one of {', '.join(a.name for a in Action)}"),
    )
    for column, name in ((s.rank, "rank"), (s.peer, "peer")):
        report(
            (column < 0) | (column >= n),
            lambda i, column=column, name=name: (None, f"{name} {column[i]}", f"one of 0..{n - 1}"),
        )
    report(s.count < 1, lambda i: (None, f"a transfer of {s.count[i]} chunks", "1 or more"))
    if failures:
        return failures
    for rank, buffer, chunk, side in (
        (s.rank, s.buffer, s.chunk, "own"),
        (s.peer, s.peer_buffer, s.peer_chunk, "peer"),
    ):
        named = np.ones(len(s), bool) if side == "own" else ~(two_sided & (chunk < 0))
        known = (buffer >= 0) & (buffer <= 2)
        report(
            named & ~known,
            lambda i, buffer=buffer: (None, f"buffer {buffer[i]}", "0 (in), 1 (out) or 2 (scratch)"),
        )
        size = sizes[rank, np.where(known, buffer, 0)]
        beyond = named & known & ((chunk < 0) | (chunk.astype(np.int64) + s.count > size))
        report(
            beyond,
            lambda i, size=size, rank=rank, side=side: (
                place(s, i, side),
                "names a chunk that does not exist",
                f"chunks within 0..{size[i] - 1} of that buffer on rank {rank[i]}"
                if size[i]
                else f"another buffer: that one is empty on rank {rank[i]}",
            ),
        )
    written = np.where(two_sided, np.where(s.action == Action.SEND, -1, s.buffer), s.peer_buffer)
    report(
        written == Buffer.INPUT,
        lambda i: (place(s, i, "own" if two_sided[i] else "peer"), "is written", "only out and scratch written to"),
    )
    report(
        two_sided & (s.rank == s.peer),
        lambda i: (place(s, i, "own"), "is sent to the rank itself", "a local copy or reduce"),
    )
    if not failures and two_sided.any():
        failures = match(s)[1][:most]
    return failures


class Layout(NamedTuple):
    """Every chunk of every rank as one number, its location.

    start: location of chunk 0 of each buffer of each rank; shape (n, 3).
    total: number of locations.
    alias: for each location the one that stands for its memory: its own, or in place that of the output.
    """

    start: Array
    total: int
    alias: Array

    def chunks_of(self, buffer: Buffer) -> Array:
        """Location of every chunk of a buffer, those of rank 0 first."""
        first = self.start[:, buffer]
        size = np.diff(np.append(self.start.ravel(), self.total))[buffer::3]
        ends = np.cumsum(size)
        chunks: Array = np.arange(int(size.sum())) + np.repeat(first - ends + size, size)
        return chunks

    def name(self, location: int) -> tuple[int, str]:
        """The rank and chunk of a location, as in (2, 'out[3]')."""
        flat = self.start.ravel()
        at = int(np.searchsorted(flat, location, side="right")) - 1
        return at // 3, chunk_name(at % 3, location - int(flat[at]))


def starts(sizes: Array) -> tuple[Array, int]:
    """Location of chunk 0 of each buffer of each rank, shape (n, 3), from their sizes; and the number of locations."""
    ends = np.cumsum(sizes.ravel())
    return (ends - sizes.ravel()).reshape(sizes.shape).astype(np.int64), int(ends[-1])


class HasBuffers(Protocol):
    """A Schedule or a Program."""

    @property
    def collective(self) -> Collective: ...
    @property
    def scratch(self) -> int: ...


def layout(of: HasBuffers, *, in_place: bool = False) -> Layout:
    """The locations of a schedule or program; `in_place` lets the aliased inputs and outputs be one."""
    c = of.collective
    start, total = starts(c.buffer_sizes(of.scratch))
    alias = np.arange(total, dtype=np.int32 if total < 2**31 else np.int64)
    if in_place:
        rank, i, o = c.alias.T
        part = np.arange(c.chunks)
        source = (start[rank, 0] + i * c.chunks)[:, None] + part
        alias[source.ravel()] = ((start[rank, 1] + o * c.chunks)[:, None] + part).ravel()
    return Layout(start, total, alias)


def lengths(c: Collective, places: Layout) -> tuple[Array, Array, Array]:
    """Which chunks are of one length whatever the count: those of one part of blocks of one size.

    Numbers for the lengths of the input chunks, 0 where they are empty; the lengths that locations have room for,
    -1 for scratch that takes any; and the units of each length. All empty if there is only one length.
    """
    if c.chunks == 1 and (c.sizes == c.sizes[:1]).all():
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64)
    part = np.arange(c.chunks)

    def code(sizes: Array) -> Any:
        return np.where(sizes[:, None] > 0, sizes[:, None] * c.chunks + part + 1, 0).ravel()

    inputs, outputs = code(c.sizes), code(c.output_sizes)
    codes = np.unique(np.append(inputs, 0))
    room = np.full(places.total, -1, np.int32)
    room[places.chunks_of(Buffer.OUTPUT)] = np.searchsorted(codes, outputs)
    return np.searchsorted(codes, inputs).astype(np.int32), room, np.maximum(codes - 1, 0) // c.chunks


def steps_of(s: Schedule) -> Iterator[tuple[int, range]]:
    """Each step that has rows, with the range of its rows."""
    for step, (first, last) in enumerate(zip(s.step_start[:-1].tolist(), s.step_start[1:].tolist(), strict=True)):
        if last > first:
            yield step, range(first, last)
