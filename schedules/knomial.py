"""k-nomial trees: Broadcast and Reduce in ceil(log_k n) steps, for ranks that send to k - 1 others at once.

Places are counted from the root. The parent of a place clears its lowest nonzero digit to the base k, so k = 2
is the binomial tree.

Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from algocc.collective import broadcast, reduce
from algocc.decorator import require, schedule
from algocc.schedules.arithmetic import ceil_log
from algocc.steps import Steps, Transfer


def to_children(rank: Any, step: Any, n: int, root: int, radix: int) -> list[Transfer]:
    """From the highest digit down: places whose digits from this one on are zero send to all that differ in it."""
    place, reach = (rank - root) % n, radix ** (ceil_log(n, radix) - 1 - step)
    sends = place % (radix * reach) == 0
    return [
        Transfer((rank + hop) % n, 0, when=sends & (place + hop < n))
        for hop in (digit * reach for digit in range(1, radix))
    ]


def to_parent(rank: Any, step: Any, n: int, root: int, radix: int) -> list[Transfer]:
    """From the lowest digit up: places whose lowest nonzero digit this is send to the place without it."""
    place, reach = (rank - root) % n, radix**step
    return [
        Transfer((rank - hop) % n, 0, when=place % (radix * reach) == hop)
        for hop in (digit * reach for digit in range(1, radix))
    ]


def children_of_root(n: int, radix: int) -> int:
    """How many ranks the root sends to: radix - 1 for each digit, as far as n goes for the highest.

    >>> children_of_root(9, 3), children_of_root(5, 4)
    (4, 4)
    """
    return sum(digit * radix**e < n for e in range(ceil_log(n, radix)) for digit in range(1, min(radix, n)))


@schedule(collective="broadcast", steps="ceil_log(n, radix)", sent="children_of_root(n, radix)")
def knomial_broadcast(n: int, root: int = 0, radix: int = 4) -> Steps:
    """k-nomial Broadcast: every rank that has the vector sends it to radix - 1 that have not, in each step."""
    require(radix >= 2, "a radix of 2 or more")
    radix = min(radix, max(n, 2))  # beyond n it is the same: the root sends to all
    s = Steps(broadcast(n, root=root))
    s.rule(partial(to_children, root=root, radix=radix), steps=ceil_log(n, radix))
    return s


@schedule(collective="reduce", steps="ceil_log(n, radix)", sent="1")
def knomial_reduce(n: int, root: int = 0, radix: int = 4) -> Steps:
    """k-nomial Reduce: the Broadcast backwards; a parent adds runs of neighbours, in rank order with root 0."""
    require(radix >= 2, "a radix of 2 or more")
    radix = min(radix, max(n, 2))
    s = Steps(reduce(n, root=root))
    s.rule(partial(to_parent, root=root, radix=radix), steps=ceil_log(n, radix), action="reduce")
    return s
