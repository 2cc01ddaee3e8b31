"""AllGather by dissemination and by neighbour exchange, and the ReduceScatters they are backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from algocc.algebra import reversed
from algocc.collective import all_gather, reduce_scatter
from algocc.decorator import require, schedule
from algocc.schedules.arithmetic import ceil_log, cyclic
from algocc.steps import Steps, Transfer
from algocc.table import Schedule


def double(rank: Any, step: Any, n: int) -> list[Transfer]:
    """A rank has the blocks of the next 2^step ranks, itself first; it sends the rank 2^step back what that lacks."""
    have = 2**step
    return cyclic(Transfer((rank - have) % n, 0), rank, np.minimum(have, n - have), n)


def swap_with_neighbour(rank: Any, step: Any, n: int) -> Transfer:
    """Pairs (0 1)(2 3)… in even steps, (1 2)(3 4)… in odd ones, swap what they received in the step before.

    In step 0 that is their own block, then always the blocks of a whole pair, step // 2 pairs away.
    """
    way = (1 - 2 * (rank % 2)) * (1 - 2 * (step % 2))
    start = step == 0
    pair = rank // 2 - way * (step // 2)
    return Transfer((rank + way) % n, (2 * pair + start * (rank % 2)) % n, count=2 - start)


@schedule(collective="all_gather", steps="d", sent="(n - 1)/n")
def bruck_all_gather(n: int) -> Steps:
    """Bruck AllGather: every rank sends all it has to the rank 1, 2, 4, … back, so what it has doubles.

    The last step sends only what is missing. Optimal in steps and volume at once, for any n.
    Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
    """
    s = Steps(all_gather(n))
    s.rule(double, steps=ceil_log(n))
    return s


@schedule(collective="all_gather", takes="n even, or 1", steps="n/2", sent="(n - 1)/n")
def neighbor_exchange_all_gather(n: int) -> Steps:
    """Neighbour-exchange AllGather: pairs of neighbours swap two blocks a step, left and right in turn.

    Half of the steps of the ring, on the same links. Bandwidth optimal.
    Chen et al., "Performance evaluation of allgather algorithms on terascale Linux cluster", 2005.
    """
    require(n % 2 == 0 or n == 1, "n even, or 1")
    s = Steps(all_gather(n))
    s.rule(swap_with_neighbour, steps=n // 2)
    return s


@schedule(collective="reduce_scatter", steps="d", sent="(n - 1)/n")
def bruck_reduce_scatter(n: int) -> Schedule:
    """Bruck ReduceScatter: the AllGather backwards, so what a rank still has to do with halves in every step.

    Optimal in steps and volume at once, for any n and operators that commute.
    """
    return reversed(bruck_all_gather(n), as_=reduce_scatter(n))


@schedule(collective="reduce_scatter", takes="n even, or 1", steps="n/2", sent="(n - 1)/n")
def neighbor_exchange_reduce_scatter(n: int) -> Schedule:
    """Neighbour-exchange ReduceScatter: the AllGather backwards, two partial sums a step, left and right in turn."""
    return reversed(neighbor_exchange_all_gather(n), as_=reduce_scatter(n))
