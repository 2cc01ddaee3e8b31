"""Schedules made of schedules: one after another, side by side, backwards, on other ranks, in segments.

Every operation takes correct schedules to a correct schedule, and raises UsageError, saying why, where they
don't fit. All are one remapping (`remap`): each chunk of each row goes to a place, a step and an action of
the new table, and keeps its source line. The rows of one step keep their order, so a receiver still reduces
in the order it did.

    >>> from algocc.schedules.ring import ring_reduce_scatter
    >>> there = ring_reduce_scatter(4)
    >>> print(there.then(there.reversed()).collective)
    all_reduce n=4 chunks=4
"""

from algocc.algebra.demand import recast
from algocc.algebra.ranks import hierarchical, relabel, within
from algocc.algebra.reversal import reversed
from algocc.algebra.sequence import then
from algocc.algebra.sharing import beside, instances, pipelined, refine, striped
from algocc.algebra.tidying import tidy

__all__ = [
    "beside",
    "hierarchical",
    "instances",
    "pipelined",
    "recast",
    "refine",
    "relabel",
    "reversed",
    "striped",
    "then",
    "tidy",
    "within",
]
