"""One schedule after another."""

from __future__ import annotations

from math import lcm

import numpy as np

from algocc.algebra.demand import chunkwise, compose, known
from algocc.algebra.remap import Part, Places, assemble, few, places_of, step_count
from algocc.algebra.sharing import refine
from algocc.algebra.tidying import tidy
from algocc.collective import Buffer, Collective
from algocc.errors import UsageError, counted
from algocc.table import Schedule


def then(a: Schedule, b: Schedule, *, as_: Collective | None = None) -> Schedule:
    """`a`, and when it is done `b` on what `a` left → one schedule, whose collective is the composition.

    What `a` puts out stays in scratch, in place of the input of `b`; local copies that only rename are then
    dropped (`tidy`). The collective is the built-in one that demands the same, `as_` if given, or one
    composed of the two.

    Valid when every rank ends `a` with as much as it begins `b` with: the same blocks, cut into any chunks,
    or blocks of one size that fill the same vector. Both are refined until their chunks agree.
    """
    name = f"then({a.name}, {b.name})"
    return tidy(known(joined(a, b, name), as_))


def joined(a: Schedule, b: Schedule, name: str) -> Schedule:
    """`then`, as it stands: the inputs are read before the first output is written, so it is correct in place
    however inputs and outputs share memory.
    """
    a, b, blockwise = _aligned(a, b, name)
    c, d = a.collective, b.collective
    composed = compose(c, d) if blockwise else compose(chunkwise(c), chunkwise(d))
    middle = int(c.outputs.max()) * c.chunks
    parts, steps = [], 0
    for s, buffers, offsets in (
        (a, (Buffer.INPUT, Buffer.SCRATCH, Buffer.SCRATCH), (0, 0, middle)),
        (b, (Buffer.SCRATCH, Buffer.OUTPUT, Buffer.SCRATCH), (0, 0, middle + a.scratch)),
    ):
        p = places_of(s)
        moved = Places(p.rank, np.array(buffers)[p.buffer], p.chunk + np.array(offsets)[p.buffer])
        parts.append(Part(s, moved, np.arange(step_count(s)) + steps))
        steps += step_count(s)
    return assemble(name, composed, middle + a.scratch + b.scratch, parts)


def _aligned(a: Schedule, b: Schedule, name: str) -> tuple[Schedule, Schedule, bool]:
    """Both refined so that the output chunks of `a` are the inputs of `b`; whether their blocks agree too."""
    c, d = a.collective, b.collective
    if c.n != d.n:
        raise UsageError(f"{name}: {a.name} has {counted(c.n, 'rank')}, {b.name} has {d.n}: wanted as many")
    if np.array_equal(c.outputs, d.inputs):
        found, wanted = (sizes // max(1, int(np.gcd.reduce(sizes))) for sizes in (c.output_sizes, d.sizes))
        if not np.array_equal(found, wanted):
            raise UsageError(f"{name}: {a.name} ends with blocks of sizes {few(found)}, {b.name} takes {few(wanted)}")
        k = lcm(c.chunks, d.chunks)
        return refine(a, k // c.chunks), refine(b, k // d.chunks), True
    ends, begins = c.outputs * c.chunks, d.inputs * d.chunks
    differs = (ends == 0) != (begins == 0)
    if differs.any():
        rank = int(np.argmax(differs))
        raise UsageError(
            f"{name}: rank {rank} ends {a.name} with {counted(ends[rank], 'chunk')} and begins {b.name} with {begins[rank]}"
        )
    for s, sizes in ((a, c.output_sizes), (b, d.sizes)):
        if (sizes != sizes[0]).any():
            raise UsageError(f"{name}: blocks of {s.name} have sizes {few(sizes)}, wanted one size to regroup them")
    rank = int(np.argmax(ends))
    common = lcm(int(ends[rank]), int(begins[rank]))
    times, its_times = common // int(ends[rank]), common // int(begins[rank])
    differs = ends * times != begins * its_times
    if differs.any():
        other = int(np.argmax(differs))
        raise UsageError(
            f"{name}: rank {rank} ends {a.name} with {counted(ends[rank], 'chunk')} and begins {b.name} with "
            f"{begins[rank]}, rank {other} with {ends[other]} and {begins[other]}: wanted one ratio for all"
        )
    return refine(a, times), refine(b, its_times), False
