"""Circulant graphs: ReduceScatter, AllGather and AllReduce in the fewest steps, for any number of ranks.

The distances ceil(n/2), ceil(n/4), …, 1 take the place of the powers of two of recursive halving. Blocks are
sent in runs that wrap around from the last block to the first.

Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234.
"""

from __future__ import annotations

from typing import Any

from algocc.collective import all_gather, all_reduce, reduce_scatter
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_div, ceil_log, cyclic
from algocc.steps import Steps, Transfer


def gather_in(rank: Any, step: Any, n: int) -> list[Transfer]:
    """A rank works on the blocks of the next `whole` ranks; it sends all but the nearest half, `half` ranks on.

    What it sends is what the receiver works on too, so the receiver adds it in; both go on with half as many.
    """
    whole, half = ceil_div(n, 2**step), ceil_div(n, 2 ** (step + 1))
    return cyclic(Transfer((rank + half) % n, 0), rank + half, whole - half, n)


def hand_out(rank: Any, step: Any, n: int) -> list[Transfer]:
    """The time reversal of `gather_in`: a rank has `half` blocks and sends enough for the receiver to have `whole`."""
    back = ceil_log(n) - 1 - step
    whole, half = ceil_div(n, 2**back), ceil_div(n, 2 ** (back + 1))
    return cyclic(Transfer((rank - half) % n, 0), rank, whole - half, n)


@schedule(collective="all_reduce", steps="2*d", sent="2*(n - 1)/n")
def circulant(n: int) -> Steps:
    """Circulant AllReduce: ReduceScatter, then AllGather, each in ceil(log2 n) steps on a circulant graph.

    Bandwidth optimal for any n; the operator must commute.
    """
    s = Steps(all_reduce(n, chunks=n))
    s.rule(gather_in, steps=ceil_log(n), action="reduce")
    s.rule(hand_out, steps=ceil_log(n))
    return s


@schedule(collective="reduce_scatter", steps="d", sent="(n - 1)/n")
def circulant_reduce_scatter(n: int) -> Steps:
    """Circulant ReduceScatter: what a rank works on halves in every step, rounded up, until its own block is left.

    Optimal in steps, volume and additions at once, for any n; the operator must commute.
    """
    s = Steps(reduce_scatter(n))
    s.rule(gather_in, steps=ceil_log(n), action="reduce")
    return s


@schedule(collective="all_gather", steps="d", sent="(n - 1)/n")
def circulant_all_gather(n: int) -> Steps:
    """Circulant AllGather: the ReduceScatter backwards; what a rank has doubles in every step.

    Optimal in steps and volume at once, for any n.
    """
    s = Steps(all_gather(n))
    s.rule(hand_out, steps=ceil_log(n))
    return s
