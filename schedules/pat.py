"""PAT, parallel aggregated trees: logarithmic steps for small blocks, bounded messages and buffers for large ones.

The block of each rank takes the same binomial tree, turned so that the rank is its root: the node at offset x
from the root has as its parent the offset with the lowest set bit of x cleared. All n trees advance together,
so a step serves one bit of the offset, and a message aggregates the nodes that differ in the bits above.

NCCL 2.23; Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv:2506.20252.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from algocc.collective import all_gather, reduce_scatter
from algocc.decorator import require, schedule
from algocc.schedules.arithmetic import ceil_div, ceil_log
from algocc.steps import Steps


def subtree_bits(n: int, aggregate: int) -> int:
    """e, so that `aggregate` subtrees of 2^e offsets cover all n."""
    return ceil_log(ceil_div(n, aggregate))


def visits(n: int, aggregate: int) -> Iterator[list[int]]:
    """The offsets that each step visits, every parent before its children, at most `aggregate` in a step.

    First the roots of the subtrees, farthest bit first, twice as many in each step; then all subtrees at once,
    depth first, which is the order of counting.

    >>> list(visits(8, 2))
    [[4], [1, 5], [2, 6], [3, 7]]
    """
    size = 2 ** subtree_bits(n, aggregate)
    for bit in reversed(range(subtree_bits(n, aggregate), ceil_log(n))):
        yield list(range(2**bit, n, 2 ** (bit + 1)))
    for offset in range(1, min(size, n)):
        yield list(range(offset, n, size))


@schedule(
    collective="all_gather",
    steps="d - subtree_bits(n, aggregate) + min(2**subtree_bits(n, aggregate), n) - 1",
    sent="(n - 1)/n",
)
def pat_all_gather(n: int, aggregate: int = 8) -> Steps:
    """PAT AllGather: all blocks go down binomial trees, at most `aggregate` of them in a message.

    With aggregate ≥ n/2 it takes ceil(log2 n) steps, with aggregate 1 it takes n-1; bandwidth optimal with any.
    """
    require(aggregate >= 1, "aggregate of 1 or more")
    s = Steps(all_gather(n))
    r = np.arange(n)
    for offsets in visits(n, aggregate):
        with s.step():
            for x in offsets:
                hop = x & -x
                s.copy(src=r, dst=(r + hop) % n, chunk=(r + hop - x) % n)
    return s


@schedule(
    collective="reduce_scatter",
    steps="d - subtree_bits(n, aggregate) + min(2**subtree_bits(n, aggregate), n) - 1",
    sent="(n - 1)/n",
)
def pat_reduce_scatter(n: int, aggregate: int = 8) -> Steps:
    """PAT ReduceScatter: the AllGather backwards, in a scratch of `aggregate` blocks a level of the subtrees.

    A node adds up what its children send, in a slot of its own, before it sends to its parent. Depth first, only
    the nodes on the way to the one that sends are at work, one a level, so the next at that level reuses the slot.
    """
    require(aggregate >= 1, "aggregate of 1 or more")
    s = Steps(reduce_scatter(n), load=False)
    r = np.arange(n)
    bits = subtree_bits(n, aggregate)

    def slot(x: int) -> int:
        """Where the node at offset x adds up: by its subtree and its level there."""
        subtree, place = divmod(x, 1 << bits)
        return subtree * max(1, bits) + place.bit_count()

    at_work: set[int] = set()
    for offsets in reversed([[0], *visits(n, aggregate)]):
        starting = {x - (x & -x) for x in offsets} - at_work
        at_work |= starting
        with s.step():
            for x in starting:
                s.copy(src=r, dst=r, chunk=(r - x) % n, to=slot(x), buffer="in")
        if offsets == [0]:
            break
        with s.step():
            for x in offsets:
                block = {"chunk": slot(x)} if x in at_work else {"chunk": (r - x) % n, "buffer": "in"}
                s.reduce(src=r, dst=(r - (x & -x)) % n, to=slot(x - (x & -x)), **block)
    with s.step():
        s.copy(src=r, dst=r, chunk=slot(0), to=0, to_buffer="out")
    return s
