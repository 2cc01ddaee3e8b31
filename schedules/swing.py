"""Swing: AllReduce whose peers swing from one side to the other, always close by on a torus.

In step t rank r talks to r ± (1 - (-2)^(t+1))/3, that is 1, -1, 3, -5, 11, … to the right of even ranks and to the
left of odd ones. Distances on a ring are a third shorter than the 1, 2, 4, … of recursive doubling.

De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algocc.collective import all_reduce
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_log
from algocc.steps import Steps


def reach(step: int) -> int:
    """How far to the right of an even rank its peer is.

    >>> [reach(step) for step in range(6)]
    [1, -1, 3, -5, 11, -21]
    """
    return int(1 - (-2) ** (step + 1)) // 3


def spread_from_zero(n: int) -> list[list[tuple[int, int]]]:
    """How a block of rank 0 reaches all others of an even n, (sender, receiver) in each step: the farthest peers first.

    A rank that has the block sends it to its peer of the step, unless the peer has it already.

    >>> spread_from_zero(4)
    [[(0, 3)], [(0, 1), (3, 2)]]
    """
    have = [0]
    steps = []
    for step in reversed(range(ceil_log(n))):
        pairs = [(r, (r + reach(step) * (-1) ** r) % n) for r in have]
        pairs = [(r, peer) for r, peer in pairs if peer not in have]
        have += [peer for _, peer in pairs]
        steps.append(pairs)
    return steps


def with_the_odd_one(step: int, even: int) -> NDArray[np.int64]:
    """If one rank is left over, those of the others that it exchanges with in a step: half, then half of the rest.

    >>> [with_the_odd_one(step, 10).tolist() for step in range(4)]
    [[5, 6, 7, 8, 9], [2, 3, 4], [1], [0]]
    """
    last = step == ceil_log(even) - 1
    return np.arange(0 if last else even >> step + 1, even >> step)


@schedule(collective="all_reduce", steps="2*ceil_log(n - n % 2)", sent="2*(n - 1)/n")
def swing(n: int) -> Steps:
    """Swing AllReduce: ReduceScatter between swinging peers, then the same backwards as AllGather.

    Chunk b is gathered at rank b, up the tree by which it spreads afterwards. The trees of even ranks are the
    tree of rank 0 turned, those of odd ranks its mirror image. For odd n the last rank stays outside: it exchanges
    one chunk each way with every other, with half of them in the first step, where they are busiest too.
    Bandwidth optimal in 2 ceil(log2 n) steps or fewer.
    """
    even = n - n % 2
    s = Steps(all_reduce(n, chunks=n))
    chunk = np.arange(even)
    mirror = 1 - 2 * (chunk % 2)
    steps = list(enumerate(reversed(spread_from_zero(even))))
    for step, pairs in steps:
        with s.step():
            for parent, child in pairs:
                s.reduce(src=(chunk + mirror * child) % even, dst=(chunk + mirror * parent) % even, chunk=chunk)
            if n > even:
                others = with_the_odd_one(step, even)
                s.reduce(src=even, dst=others, chunk=others)
                s.reduce(src=others, dst=even, chunk=even)
    for step, pairs in reversed(steps):
        with s.step():
            for parent, child in pairs:
                s.copy(src=(chunk + mirror * parent) % even, dst=(chunk + mirror * child) % even, chunk=chunk)
            if n > even:
                others = with_the_odd_one(step, even)
                s.copy(src=others, dst=even, chunk=others)
                s.copy(src=even, dst=others, chunk=even)
    return s
