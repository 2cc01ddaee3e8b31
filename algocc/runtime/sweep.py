"""Time a collective on every size, out of place and in place, and check every element, as nccl-tests does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.catalog import algorithms, build
from algocc.collective import COLLECTIVES, Buffer, Collective
from algocc.errors import UsageError, near
from algocc.kernels.operators import element
from algocc.runtime.choice import parse
from algocc.runtime.communicator import ROOTED, Communicator
from algocc.runtime.geometry import block_offsets, buffer_elements
from algocc.runtime.measure import bandwidths
from algocc.runtime.oracle import expected, make_inputs

Array = NDArray[Any]

SWEPT = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan")
PATTERN = 4099
"""Elements after which a block's values come again: what is expected is known without working through all."""

MOST_SECONDS = 1.0
"""Seconds that the calls of one size and mode may take; there are fewer of them then, but never less than 3."""


@dataclass(frozen=True)
class Row:
    """A line of the table. Times in µs, of a call on average and the fastest; None in place where there is no such thing.

    size: bytes of the larger buffer of a rank; count: elements of a unit block.
    wrong: elements of all ranks that are not what the collective demands.
    """

    size: int
    count: int
    schedule: str
    out_of_place_us: float
    out_of_place_fastest_us: float
    out_of_place_wrong: int
    in_place_us: float | None
    in_place_fastest_us: float | None
    in_place_wrong: int | None

    def json(self, c: Collective) -> dict[str, Any]:
        """The row with its bandwidths, in GB/s."""
        found = asdict(self)
        for mode in ("out_of_place", "in_place"):
            us = found[f"{mode}_us"]
            alg, bus = (None, None) if us is None else bandwidths(c, self.size, us)
            found |= {f"{mode}_algbw_gbps": alg, f"{mode}_busbw_gbps": bus}
        return found


def check_swept(name: str) -> None:
    """Raise UsageError for a collective that is not timed."""
    if name not in SWEPT:
        raise UsageError(f"bench: {name!r} is not timed{near(name, SWEPT)}; these are: {', '.join(SWEPT)}")


def collective_of(name: str, n: int, root: int) -> Collective:
    """The collective that a call of that name does."""
    return COLLECTIVES[name](n, root=root) if name in ROOTED else COLLECTIVES[name](n)


def sweep(
    comm: Communicator, name: str, sizes: Sequence[int], *, schedule: Any = "auto", dtype: str = "float32",
    op: str = "sum", root: int = 0, iters: int = 20, warmup: int = 2, shared: bool = True, in_place: bool = True,
) -> list[Row]:  # fmt: skip
    """A row for each size that holds an element a block; called on all ranks, and the same on all but for the times.

    shared: use arrays of `comm.empty`.
    """
    check_swept(name)
    c = collective_of(name, comm.size, root)
    kind = element(dtype)
    rows = []
    for size in sizes:
        count = size // (c.vector * kind.size)
        if count == 0:
            continue
        few = min(count, PATTERN)
        data = make_inputs(c, few, dtype, op)
        wanted = _spread(c, Buffer.OUTPUT, comm.rank, expected(c, data, op)[comm.rank], few, count)
        filled = _spread(c, Buffer.INPUT, comm.rank, data[comm.rank], few, count)
        found: list[Any] = []
        chosen = ""
        for mode in (False, True):
            if mode and (not in_place or name not in IN_PLACE):
                found += [None, None, None]
                continue
            x, out = _arrays(comm, c, name, count, kind.numpy, shared, mode)
            call = _call(comm, name, x, out, schedule, op, root)
            if x is not None and len(filled):
                _put(x, filled)
            call()
            chosen = chosen or _chosen(comm)
            wrong = int(np.count_nonzero(_got(out)[: len(wanted)] != wanted)) if out is not None else 0
            if x is not None:
                _put(x, np.zeros(len(x), kind.numpy))
            found += _timed(comm, call, wrong, iters, warmup)
        rows.append(Row(c.vector * count * kind.size, count, chosen, *found))
    return rows


IN_PLACE = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "scan")


def _spread(c: Collective, buffer: Buffer, rank: int, values: Array, few: int, count: int) -> Array:
    """Every block of `few` elements as one of `count`, its values coming again."""
    start = (c.input_start if buffer == Buffer.INPUT else c.output_start)[rank : rank + 2]
    offset, size = (a[start[0] : start[1]] for a in block_offsets(c, buffer, few))
    blocks = [np.resize(values[o : o + s], s // few * count) for o, s in zip(offset, size, strict=True)]
    return np.concatenate(blocks) if blocks else values[:0]


def _arrays(
    comm: Communicator, c: Collective, name: str, count: int, kind: Any, shared: bool, in_place: bool
) -> tuple[Any, Any]:
    ins, outs = (sizes[comm.rank] for sizes in buffer_elements(c, count))
    make = comm.empty if shared or comm.kind == "cuda" else np.empty
    if not in_place:
        x = make(ins, kind) if ins or name not in ROOTED else None
        return x, make(outs, kind) if outs else None
    memory: Any = make(max(ins, outs), kind)
    if name not in ("all_gather", "reduce_scatter"):
        return memory, memory
    begin = comm.rank * count
    part = memory[begin : begin + count] if isinstance(memory, np.ndarray) else memory.part(begin, count)
    return (part, memory) if name == "all_gather" else (memory, part)


def _put(x: Any, values: Array) -> None:
    """Fill an array, of the host or of a device."""
    if isinstance(x, np.ndarray):
        x[:] = values
    else:
        x.set(values)


def _got(x: Any) -> Array:
    """The array on the host."""
    return x if isinstance(x, np.ndarray) else x.get()


def _call(
    comm: Communicator, name: str, x: Any, out: Any, schedule: Any, op: str, root: int
) -> Callable[[], object]:
    kwargs: dict[str, Any] = {"schedule": schedule, "out": out}
    if name in ("all_reduce", "reduce_scatter", "reduce", "scan"):
        kwargs["op"] = op
    if name in ROOTED:
        kwargs["root"] = root
    if name == "broadcast" and out is x:
        kwargs["out"] = None
    method = getattr(comm, name)
    return lambda: method(x, **kwargs)


def _timed(comm: Communicator, call: Callable[[], object], wrong: int, iters: int, warmup: int) -> list[float]:
    """µs of a call on average and the fastest, of the slowest rank, and the wrong elements of all."""
    begin = time.perf_counter()
    for _ in range(warmup):
        call()
    once = (time.perf_counter() - begin) / max(warmup, 1)
    facts = np.array([wrong, int(once * 1e9)], np.int64)
    host = comm.control
    total, slowest = host.all_reduce(facts)[0], host.all_reduce(facts, "max")[1]
    iters = int(min(iters, max(3, MOST_SECONDS * 1e9 / max(slowest, 1))))
    times = np.empty(iters)
    comm.barrier()
    for i in range(iters):
        begin = time.perf_counter()
        call()
        times[i] = time.perf_counter() - begin
    comm.barrier()
    slow = host.all_reduce(np.array([times.mean(), times.min()]) * 1e6, "max")
    return [float(slow[0]), float(slow[1]), int(total)]


def _chosen(comm: Communicator) -> str:
    """The schedule of the last call."""
    return comm.last_schedule


def candidates(name: str, n: int) -> list[str]:
    """The schedules of a collective that take n ranks as they are, in the words of `choice.parse`."""
    found = []
    for a in algorithms().values():
        if a.collective != name:
            continue
        try:
            a(n)
        except UsageError:
            continue
        found.append(a.name)
        if "radix" in a.parameters and n > 2:
            found.append(f"{a.name} radix=n")
    return found


def tuned_rows(comm: Communicator, name: str, sizes: Sequence[int]) -> list[tuple[int, str]]:
    """The fastest schedule by size, as rows of `choice`: each bound is the geometric mean of the sizes on its two sides."""
    names = candidates(name, comm.size)
    made = {}
    for word in names:
        base, params = parse(word, comm.size)
        made[word] = build(base, comm.size, **params)
    winners: list[tuple[int, str]] = []
    alive = list(names)
    for size in sizes:
        best: dict[str, float] = {}
        for word in alive:
            rows = sweep(comm, name, [size], schedule=made[word], iters=200 if size < 1 << 16 else 10, in_place=False)
            if rows and not rows[0].out_of_place_wrong:
                best[word] = rows[0].out_of_place_us
        if best:
            winner = min(best, key=best.__getitem__)
            winners.append((size, winner))
            alive = [w for w in alive if best.get(w, np.inf) < 4 * best[winner]]
    rows_found: list[tuple[int, str]] = []
    for i, (size, word) in enumerate(winners):
        if i + 1 < len(winners) and winners[i + 1][1] == word:
            continue
        last = i + 1 == len(winners)
        rows_found.append((0 if last else int((size * winners[i + 1][0]) ** 0.5), word))
    return rows_found
