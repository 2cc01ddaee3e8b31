"""One collective out of two others."""

from __future__ import annotations

from functools import partial

from algocc.algebra import reversed
from algocc.collective import all_reduce, broadcast, reduce
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_log
from algocc.schedules.binomial import subtree_to_child, to_child, to_parent
from algocc.schedules.ring import spread
from algocc.steps import Steps
from algocc.table import Schedule


@schedule(collective="all_reduce", steps="2*d", sent="d")
def reduce_broadcast(n: int) -> Steps:
    """AllReduce as a binomial-tree Reduce to rank 0, then a binomial-tree Broadcast from it.

    Twice the steps of recursive doubling, but most ranks send little. Operands stay in rank order.
    """
    s = Steps(all_reduce(n))
    s.rule(partial(to_parent, root=0), steps=ceil_log(n), action="reduce")
    s.rule(partial(to_child, root=0), steps=ceil_log(n))
    return s


@schedule(collective="broadcast", steps="d + n - 1", sent="2*(n - 1)/n")
def scatter_all_gather(n: int, root: int = 0) -> Steps:
    """Van de Geijn's Broadcast: a binomial Scatter of the vector in n chunks, then a ring AllGather of them.

    The root sends 2m instead of m log2 n. Barnett, Shuler, van de Geijn et al., "Interprocessor collective
    communication library (InterCom)", 1994.
    """
    s = Steps(broadcast(n, root=root, chunks=n))
    s.rule(partial(subtree_to_child, root=root), steps=ceil_log(n))
    s.rule(spread, steps=n - 1)
    return s


@schedule(collective="reduce", steps="d + n - 1", sent="(n - 1 + max(n - 2**(d - 1), 2**d//4))/n")
def reduce_scatter_gather(n: int, root: int = 0) -> Schedule:
    """Reduce as a ring ReduceScatter, then a binomial Gather to the root: van de Geijn's Broadcast backwards.

    The root receives 2m instead of m log2 n, and no rank sends more than 3m/2.
    """
    return reversed(scatter_all_gather(n, root=root), as_=reduce(n, root=root, chunks=n))
