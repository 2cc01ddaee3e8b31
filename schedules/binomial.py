"""Binomial trees: Broadcast, Reduce, Gather and Scatter in ceil(log2 n) steps, the least there is, for any n and root.

Places are counted from the root. The parent of a place clears its lowest set bit, so the subtree of a place
that is an odd multiple of 2^t is the 2^t places from itself on: a run of neighbours. Going up, step t takes the
odd multiples of 2^t; going down, the same in the opposite order.

Johnsson and Ho, "Optimum broadcasting and personalized communication in hypercubes", IEEE Transactions on Computers
1989.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from algocc.collective import broadcast, gather, reduce, scatter
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_log, cyclic
from algocc.steps import Steps, Transfer


def to_parent(rank: Any, step: Any, n: int, root: int) -> Transfer:
    """Places that are an odd multiple of 2^step send to the even multiple below."""
    place, reach = (rank - root) % n, 2**step
    return Transfer((rank - reach) % n, 0, when=place % (2 * reach) == reach)


def to_child(rank: Any, step: Any, n: int, root: int) -> Transfer:
    """The time reversal of `to_parent`: even multiples of 2^t send to the odd multiple above, t from d-1 down to 0."""
    place, reach = (rank - root) % n, 2 ** (ceil_log(n) - 1 - step)
    return Transfer((rank + reach) % n, 0, when=(place % (2 * reach) == 0) & (place + reach < n))


def subtree_to_parent(rank: Any, step: Any, n: int, root: int) -> list[Transfer]:
    """As `to_parent`, with the blocks of the subtree of the sender."""
    subtree = np.minimum(2**step, n - (rank - root) % n)
    return cyclic(to_parent(rank, step, n, root), rank, subtree, n)


def subtree_to_child(rank: Any, step: Any, n: int, root: int) -> list[Transfer]:
    """As `to_child`, with the blocks of the subtree of the receiver."""
    reach = 2 ** (ceil_log(n) - 1 - step)
    subtree = np.minimum(reach, n - reach - (rank - root) % n)
    return cyclic(to_child(rank, step, n, root), rank + reach, subtree, n)


@schedule(collective="broadcast", steps="d", sent="d")
def binomial_broadcast(n: int, root: int = 0) -> Steps:
    """Binomial-tree Broadcast: every rank that has the vector sends it to one that has not, in each step."""
    s = Steps(broadcast(n, root=root))
    s.rule(partial(to_child, root=root), steps=ceil_log(n))
    return s


@schedule(collective="reduce", steps="d", sent="1")
def binomial_reduce(n: int, root: int = 0) -> Steps:
    """Binomial-tree Reduce: the Broadcast backwards; in each step half of the ranks send their sum and are done.

    A parent adds runs of neighbours in order, so with root 0 the operator need not commute.
    """
    s = Steps(reduce(n, root=root))
    s.rule(partial(to_parent, root=root), steps=ceil_log(n), action="reduce")
    return s


@schedule(collective="gather", steps="d", sent="max(n - 2**d//2, 2**d//4)/n")
def binomial_gather(n: int, root: int = 0) -> Steps:
    """Binomial-tree Gather: as the Reduce, but a rank sends the blocks of its subtree side by side.

    The root receives (n-1)m/n, the least there is. The last child sends n - 2^(d-1) blocks, the one before it
    2^(d-2), and every other fewer.
    """
    s = Steps(gather(n, root=root))
    s.rule(partial(subtree_to_parent, root=root), steps=ceil_log(n))
    return s


@schedule(collective="scatter", steps="d", sent="(n - 1)/n")
def binomial_scatter(n: int, root: int = 0) -> Steps:
    """Binomial-tree Scatter: the Gather backwards; a rank sends each child the blocks of the child's subtree."""
    s = Steps(scatter(n, root=root))
    s.rule(partial(subtree_to_child, root=root), steps=ceil_log(n))
    return s
