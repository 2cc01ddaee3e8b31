"""Torus: AllReduce by rings along each dimension of a grid of ranks.

Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from algocc.collective import all_reduce
from algocc.decorator import require, schedule
from algocc.schedules.arithmetic import square
from algocc.schedules.groups import along
from algocc.schedules.ring import collect, spread
from algocc.steps import Steps


def run_of_chunks(rank: Any, chunk: Any, count: Any, size: int, stride: int) -> list[tuple[Any, Any]]:
    """Within what a rank kept of the dimensions before, chunk i of a ring is a run of `stride` chunks."""
    kept = rank // (stride * size) * (stride * size)
    return [(kept + chunk * stride, count * stride)]


@schedule(
    collective="all_reduce",
    takes="n the product of dims",
    steps="2*sum(side - 1 for side in dims or square(n))",
    sent="2*(n - 1)/n",
)
def torus(n: int, dims: Sequence[int] | None = None) -> Steps:
    """Torus AllReduce, in dimension order: ReduceScatter along rings of each dimension, then AllGather back.

    dims: sides of the torus, the last one of neighbouring ranks; as square as can be if not given.
    Along the first dimension a chunk is a run of n / dims[0] chunks, of which a rank keeps its own run; the next
    dimension splits that, until one chunk is left. Bandwidth optimal.
    """
    dims = list(dims or square(n))
    require(prod(dims) == n and min(dims) >= 1, f"n the product of dims={dims}")
    s = Steps(all_reduce(n, chunks=n))
    rings = []
    for i, size in enumerate(dims):
        stride = prod(dims[i + 1 :])
        runs = partial(run_of_chunks, size=size, stride=stride)
        rings.append((size, partial(along, size=size, stride=stride, place=runs)))
    for size, ring in rings:
        s.rule(partial(ring, rule=collect), steps=size - 1, action="reduce")
    for size, ring in reversed(rings):
        s.rule(partial(ring, rule=spread), steps=size - 1)
    return s
