"""Write a schedule: step by step, or as rules that give every rank's part at once.

    >>> from algocc.collective import all_reduce
    >>> s = Steps(all_reduce(2), name="exchange")
    >>> with s.step():
    ...     s.reduce(src=0, dst=1, chunk=0)
    ...     s.reduce(src=1, dst=0, chunk=0)
    >>> s.build()
    <Schedule exchange: all_reduce n=2 chunks=1, 2 steps, 4 rows>

The first of the two steps is the *load*: each rank copies its own input where the schedule works on it. The
run elides it, and it counts as no step since no message is sent.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from algocc.collective import Buffer, Collective
from algocc.errors import UsageError, counted, near
from algocc.table import COLUMNS, Action, Schedule

BUFFERS = {"in": Buffer.INPUT, "out": Buffer.OUTPUT, "scratch": Buffer.SCRATCH}
ACTIONS = {"copy": Action.COPY, "reduce": Action.REDUCE, "prereduce": Action.PREREDUCE}
BLOCK = 1 << 22
"""Transfers that a rule is evaluated for at once."""
LIMIT = 2**31
"""Ranks, chunks and counts are less than this."""
MOST_CHUNKS = 1 << 20
"""Most chunks that a block is cut into; more are a slip, or a schedule that nothing could go through."""
MOST_CELLS = 1 << 29
"""Most chunks of memory, through all ranks and buffers."""
MOST_STEPS = 1 << 24
"""Most steps of a schedule, with or without rows."""
MOST_TRANSFERS = 1 << 30
"""Most transfers that a rule may write."""
MANY_RANKS = 1 << 12
"""From so many ranks on, a rule is first asked for one how often it sends."""


class Transfer(NamedTuple):
    """What a rule returns where `(peer, chunk)` does not say enough: each an int or one value a rank.

    peer: the rank that each rank sends to.
    chunk: the chunk it sends.
    to: the chunk it lands in, the same if None.
    count: chunks sent.
    when: False where a rank sends nothing.
    action: what it does, if not what the rule does: "copy", "reduce" or "prereduce".
    buffer, to_buffer: where it reads and writes, if not where the rule does: "in", "out" or "scratch".
    """

    peer: Any
    chunk: Any
    to: Any = None
    count: Any = 1
    when: Any = True
    action: str | None = None
    buffer: str | None = None
    to_buffer: str | None = None


Rule = Callable[..., "Transfer | tuple[Any, Any] | list[Transfer]"]
"""A function of (rank, step, n) that returns the peer to send to and the chunk, for ints, arrays and symbols alike;
a list where a rank sends several times in a step, in the order in which a receiver reduces them."""


class Steps:
    """A schedule being written.

    collective: what it will do; buffers that a transfer does not name are the collective's `source` and `sink`.
    name: what the schedule is called; the decorator gives the name of the function.
    load: write the rows of the collective's `load` first and `store` last.

    Raises UsageError for a collective of more than MOST_CHUNKS chunks a block, or MOST_CELLS in all.
    """

    def __init__(self, collective: Collective, *, name: str = "", load: bool = True) -> None:
        if not isinstance(collective, Collective):
            raise UsageError(f"{caller()}: Steps({collective!r:.40}): wanted a collective, as in Steps(all_reduce(n))")
        _check_size(collective)
        self.collective = collective
        self.name = name
        self._load = load
        self._work = collective.work * collective.chunks if load else 0
        self._blocks: list[tuple[NDArray[Any], ...]] = []
        self._pending: list[tuple[int, ...]] = []
        self._step = -1
        self._open = False
        self._origins: dict[str, int] = {}
        if load:
            self._local(collective.load, Buffer.INPUT, collective.sink, "load")

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self.collective.n

    @contextmanager
    def step(self) -> Iterator[None]:
        """The transfers written inside are one step: all read the state before it."""
        if self._open:
            raise UsageError(f"{caller()}: a step inside a step: close the first one")
        self._step += 1
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def copy(self, *, src: ArrayLike, dst: ArrayLike, chunk: ArrayLike, **where: Any) -> None:
        """Rank `dst` ends the step with chunk `chunk` of rank `src`. Both may be arrays, one entry a transfer.

        to: the chunk it lands in, the same if not given.
        buffer, to_buffer: "in", "out" or "scratch".
        count: this many chunks in a row.

        Raises UsageError outside a step, or for anything but whole numbers.
        """
        self._transfer(Action.COPY, src, dst, chunk, **where)

    def reduce(self, *, src: ArrayLike, dst: ArrayLike, chunk: ArrayLike, **where: Any) -> None:
        """Rank `dst` reduces chunk `chunk` of rank `src` into its own; parameters as in `copy`."""
        self._transfer(Action.REDUCE, src, dst, chunk, **where)

    def prereduce(self, *, src: ArrayLike, dst: ArrayLike, chunk: ArrayLike, **where: Any) -> None:
        """As `reduce`, the incoming operand on the left: for operators that do not commute."""
        self._transfer(Action.PREREDUCE, src, dst, chunk, **where)

    def send(
        self, *, rank: int, to: int, chunk: int, buffer: str | None = None, count: int = 1
    ) -> None:
        """One side of a transfer: `rank` sends; `recv` on rank `to` in the same step says where it lands."""
        source = self._buffer(buffer, self.collective.source)
        self._emit(Action.SEND, rank, to, source, chunk, -1, -1, count)

    def recv(
        self, *, rank: int, source: int, chunk: int, buffer: str | None = None, count: int = 1,
        action: str = "copy",
    ) -> None:  # fmt: skip
        """The other side: `rank` receives from rank `source`; action is "copy", "reduce" or "prereduce"."""
        sink = self._buffer(buffer, self.collective.sink)
        self._emit(Action(Action.RECV + self._action(action)), rank, source, sink, chunk, -1, -1, count)

    def rule(
        self, rule: Rule, *, steps: int, action: str = "copy", first: int = 0,
        buffer: str | None = None, to_buffer: str | None = None, invariant: Any = None,
    ) -> None:  # fmt: skip
        """Write `steps` steps, step t of them being what `rule(rank, first + t, n)` says every rank sends.

        invariant: what holds after each of them, as in `algocc.invariant`; the rows do not depend on it.

        Raises UsageError if the rule does not return (peer, chunk), a `Transfer` of whole numbers, or a list of them; and
        at once if that would be more than MOST_STEPS or MOST_TRANSFERS.
        """
        if self._open:
            raise UsageError(f"{caller()}: a rule writes whole steps: call it outside `with s.step()`")
        code = getattr(getattr(rule, "func", rule), "__code__", None)
        origin = self._origin(f"{_file(code.co_filename)}:{code.co_firstlineno}" if code else caller())
        kind = self._action(action)
        source = self._buffer(buffer, self.collective.source)
        sink = self._buffer(to_buffer, self.collective.sink)
        self._flush()
        rank = np.arange(self.n, dtype=np.int32)[None, :]
        self._check_length(rule, steps, first)
        block = max(1, BLOCK // self.n)
        for start in range(0, steps, block):
            step = np.arange(start, min(start + block, steps), dtype=np.int32)[:, None]
            try:
                said = rule(rank, step + first, self.n)
            except ValueError as error:
                if "ambiguous" not in str(error):
                    raise
                raise UsageError(
                    f"{self._origin_name(origin)}: a rule gets arrays, all ranks and steps at once, so `if` can't decide "
                    "on them: use np.where(condition, a, b), or Transfer(…, when=condition)"
                ) from error
            shape = (len(step), self.n)
            if start == 0 < block < steps:
                self._reserve(steps * self.n * sum(getattr(t, "when", True) is True for t in _listed(said)))
            parts: list[tuple[tuple[int, int, int], list[Any]]] = []
            try:
                for t in _listed(said):
                    t = t if isinstance(t, Transfer) else Transfer(*t)
                    act = kind if t.action is None else self._action(t.action)
                    where = self._buffer(t.buffer, source), self._buffer(t.to_buffer, sink)
                    peer, chunk = _whole(t.peer), _whole(t.chunk)
                    to, count = chunk if t.to is None else _whole(t.to), _whole(t.count)
                    columns = (step + (self._step + 1), rank, peer, chunk, to, count, np.asarray(t.when, bool))
                    parts.append(((act, *where), [np.broadcast_to(a, shape) for a in columns]))
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"{self._origin_name(origin)}: a rule returns (peer, chunk), a Transfer of whole numbers or a "
                    f"list of them, found {said!r:.80}"
                ) from error
            self._append_parts(parts, origin)
        self._step += steps

    def build(self) -> Schedule:
        """The finished schedule; built again it is the same."""
        if self._load:
            self._local(self.collective.store, self.collective.source, Buffer.OUTPUT, "store")
            self._load = False
        self._flush()
        blocks, self._blocks = self._blocks, []
        columns = {
            name: np.concatenate([b[i] for b in blocks]) if blocks else np.zeros(0, dtype)
            for i, (name, dtype) in enumerate(COLUMNS.items())
        }
        self._blocks = [tuple(columns.values())]
        used = max(
            (
                int((columns[chunk] + columns["count"])[columns[buffer] == Buffer.SCRATCH].max(initial=0))
                for buffer, chunk in (("buffer", "chunk"), ("peer_buffer", "peer_chunk"))
            )
        )
        return Schedule(self.name, self.collective, max(used, self._work), **columns, origins=tuple(self._origins))

    def _local(self, rows: NDArray[np.int64], source: Buffer, sink: Buffer, what: str) -> None:
        """One step of copies within each rank; a run of blocks is one row."""
        if not len(rows):
            return
        self._flush()
        self._step += 1
        rank, a, b = rows[np.lexsort(rows.T[[1, 0]])].T
        starts = np.ones(len(rank), bool)
        starts[1:] = (np.diff(rank) != 0) | (np.diff(a) != 1) | (np.diff(b) != 1)
        first = np.flatnonzero(starts)
        count = np.diff(np.concatenate([first, [len(rank)]])) * self.collective.chunks
        k = self.collective.chunks
        self._append(
            Action.COPY, source, sink, self._origin(what),
            np.full(len(first), self._step), rank[first], rank[first], a[first] * k, b[first] * k, count,
        )  # fmt: skip

    def _transfer(
        self, action: Action, src: ArrayLike, dst: ArrayLike, chunk: ArrayLike, to: ArrayLike | None = None,
        buffer: str | None = None, to_buffer: str | None = None, count: ArrayLike = 1,
    ) -> None:  # fmt: skip
        source = self._buffer(buffer, self.collective.source)
        sink = self._buffer(to_buffer, self.collective.sink)
        self._emit(action, src, dst, source, chunk, sink, chunk if to is None else to, count)

    def _emit(self, action: Action, rank: Any, peer: Any, buffer: int, chunk: Any, to_buffer: int, to: Any, count: Any) -> None:
        line = caller()
        if not self._open:
            raise UsageError(f"{line}: a transfer outside a step: write it inside `with s.step():`")
        origin = self._origin(line)
        if type(rank) is type(peer) is type(chunk) is type(to) is type(count) is int and (
            max(rank, peer, chunk, to, count) < LIMIT and min(rank, peer, chunk, to, count) >= -LIMIT
        ):
            self._pending.append((self._step, action, rank, peer, buffer, chunk, to_buffer, to, count, origin))
            return
        try:
            parts = [_whole(a) for a in (rank, peer, chunk, to, count)]
            rank, peer, chunk, to, count = (a.ravel() for a in np.broadcast_arrays(*parts))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{line}: ranks, chunks and counts are whole numbers or arrays of one shape: {error}") from error
        self._flush()
        self._append(action, buffer, to_buffer, origin, np.full(len(rank), self._step), rank, peer, chunk, to, count)

    def _append(
        self, action: Any, buffer: Any, to_buffer: Any, origin: int,
        step: Any, rank: Any, peer: Any, chunk: Any, to: Any, count: Any,
    ) -> None:  # fmt: skip
        rows = len(step)
        parts = (step, action, rank, peer, buffer, chunk, to_buffer, to, count, origin)
        self._blocks.append(
            tuple(
                a.astype(dtype) if isinstance(a, np.ndarray) else np.full(rows, a, dtype)
                for a, dtype in zip(parts, COLUMNS.values(), strict=True)
            )
        )

    def _append_parts(self, parts: list[tuple[tuple[int, int, int], list[Any]]], origin: int) -> None:
        """The transfers of one evaluation of a rule, each with (action, buffer, to_buffer); those of a step one
        after another."""
        flat = []
        for kind, (*columns, when) in parts:
            flat.append((kind, [a.ravel() if when.all() else a[when] for a in columns]))
        if len(flat) < 2:
            for (act, source, sink), arrays in flat:
                self._append(act, source, sink, origin, *arrays)
            return
        joined = [np.concatenate(column) for column in zip(*(arrays for _, arrays in flat), strict=True)]
        kinds: Any = np.repeat(np.array([kind for kind, _ in flat], np.int8), [len(a[0]) for _, a in flat], axis=0)
        if len(parts[0][1][0]) > 1:
            order = np.argsort(joined[0], kind="stable")
            joined, kinds = [column[order] for column in joined], kinds[order]
        self._append(kinds[:, 0], kinds[:, 1], kinds[:, 2], origin, *joined)

    def _check_length(self, rule: Rule, steps: int, first: int) -> None:
        """Raise UsageError at once for a rule that would write for hours."""
        places = steps * self.n
        if steps and self.n >= MANY_RANKS and places <= MOST_TRANSFERS:
            with contextlib.suppress(Exception):  # what is wrong with a rule is said where it is asked in earnest
                one = np.zeros((1, 1), np.int32)
                places *= len(_listed(rule(one, one + first, self.n)))
        if places > MOST_TRANSFERS or self._step + steps >= MOST_STEPS:
            raise UsageError(
                f"{self.collective}: a rule for {counted(steps, 'step')} and {places} transfers, wanted at most {MOST_STEPS} and "
                f"{MOST_TRANSFERS}: take fewer ranks or chunks"
            )

    def _reserve(self, rows: int) -> None:
        """Raise MemoryError at once if the rows that a rule will write do not fit, not when memory is full."""
        try:
            np.empty(rows * sum(np.dtype(t).itemsize for t in COLUMNS.values()), np.uint8)
        except (MemoryError, ValueError) as error:
            raise MemoryError(f"{rows:.2g} transfers of n={self.n} do not fit") from error

    def _flush(self) -> None:
        if self._pending:
            table = np.array(self._pending, np.int64).T
            self._blocks.append(tuple(a.astype(t) for a, t in zip(table, COLUMNS.values(), strict=True)))
            self._pending = []

    def _origin(self, line: str) -> int:
        return self._origins.setdefault(line, len(self._origins))

    def _origin_name(self, origin: int) -> str:
        return list(self._origins)[origin]

    def _buffer(self, name: str | None, default: Buffer) -> Buffer:
        if name is None:
            return default
        if name not in BUFFERS:
            raise UsageError(f"{caller()}: buffer {name!r}{near(str(name), BUFFERS)}; one of {', '.join(BUFFERS)}")
        return BUFFERS[name]

    def _action(self, name: str) -> Action:
        if name not in ACTIONS:
            raise UsageError(f"{caller()}: action {name!r}{near(str(name), ACTIONS)}; one of {', '.join(ACTIONS)}")
        return ACTIONS[name]


def _check_size(c: Collective) -> None:
    """Raise UsageError for a collective that no schedule of a size that can be worked with is for."""
    if c.chunks > MOST_CHUNKS:
        raise UsageError(f"{c.name}: chunks={c.chunks}: wanted at most {MOST_CHUNKS} chunks a block: take fewer")
    cells = (int(c.inputs.sum()) + int(c.outputs.sum())) * c.chunks
    if cells > MOST_CELLS:
        raise UsageError(
            f"{c.name}: {c.n} ranks, {c.chunks} chunks a block: {cells} chunks in all, wanted at most {MOST_CELLS}: "
            "take fewer ranks or chunks"
        )


def _listed(said: Any) -> list[Any]:
    """What a rule returned, as a list."""
    return said if isinstance(said, list) else [said]


def _whole(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"found {array.dtype} {value!r:.40}")
    if array.size and not -LIMIT <= int(array.min()) <= int(array.max()) < LIMIT:
        raise TypeError(f"found {value!r:.40}, which does not fit in 32 bits")
    return array


def _file(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def caller() -> str:
    """File and line of the nearest frame outside this module and `with`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, contextlib.__file__):
        frame = frame.f_back
    return f"{_file(frame.f_code.co_filename)}:{frame.f_lineno}"
