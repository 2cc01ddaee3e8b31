"""Circulant Broadcast and Reduce: a vector in k blocks in k - 1 + ceil(log2 n) steps, the least there is.

Step t sends skip[t mod d] ranks on, the same for all ranks; skip[0] = 1, …, skip[d-1] = ceil(n/2), skip[d] = n as in
the circulant AllGather. The root sends a new block in each step. Every d steps each other rank gets d blocks, one
of them (its *base block*) of the d that the root sent last, the others of the d before: which, in which step, is the
whole algorithm.

Träff, "Optimal broadcast schedules in logarithmic time with applications to broadcast, all-broadcast, reduction
and all-reduction", arXiv:2407.18004; the number of steps: Bar-Noy, Kipnis and Schieber 2000.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import broadcast, reduce
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_div, ceil_log
from algocc.steps import Steps


def skips(n: int) -> list[int]:
    """The distances, shortest first, then n itself.

    >>> skips(9)
    [1, 2, 3, 5, 9]
    """
    d = ceil_log(n)
    return [ceil_div(n, 2 ** (d - k)) for k in range(d + 1)]


def base_block(rank: int, skip: list[int]) -> int:
    """The smallest index on the path of the rank: the largest skip that fits, over and over, from the root on."""
    for k in reversed(range(len(skip) - 1)):
        if skip[k] == rank:
            return k
        if skip[k] < rank:
            rank -= skip[k]
    return len(skip) - 1


def received(rank: int, skip: list[int]) -> list[int]:
    """The block that the rank gets at distance skip[k], for each k: its base block, or what is new less d.

    In step k it gets the base block of a rank between skip[k] and skip[k+1] behind it, another one in each step.
    These ranks are found by a search over paths from the root, largest skips first, no skip used twice.

    >>> [received(rank, skips(5)) for rank in range(1, 5)]
    [[0, -1, -2], [-3, 1, -1], [-2, -3, 2], [-1, -2, 0]]
    """
    d = len(skip) - 1
    base = base_block(rank, skip)
    target = rank + skip[d]
    bounds = [target - distance for distance in skip] + [-1]
    unused = set(range(d + 1)) - {base}
    found: list[int] = []

    def search(at: int, end: int, top: int) -> None:
        for e in range(top, -1, -1):
            there = at + skip[e]
            if e not in unused or there >= end or there > bounds[len(found)]:
                continue
            if there <= bounds[len(found) + 1]:
                search(there, end, e)
            if at > bounds[len(found) + 1] or len(found) == d:
                return
            end = there
            found.append(e)
            unused.remove(e)

    search(0, 2 * skip[d], d)
    return [base if e == d else e - d for e in found]


def deliveries(n: int, chunks: int) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    """For each step the distance, the ranks that get a block from that far behind, and which; rank 0 is the root."""
    skip, d = skips(n), ceil_log(n)
    steps = chunks - 1 + d if n > 1 else 0
    table = np.array([[0] * d] + [received(rank, skip) for rank in range(1, n)])
    idle = -steps % max(d, 1)  # the steps that make up whole rounds of d come first, with nothing to send yet
    had_last = np.zeros(n, bool)
    for step in range(idle, idle + steps):
        phase, k = divmod(step, d)
        block = np.minimum(table[:, k] + phase * d - idle, chunks - 1)
        last = block == chunks - 1  # the last block stands for those beyond it as well: once is enough
        gets = np.flatnonzero((block >= 0) & ~(last & had_last) & (np.arange(n) > 0))
        had_last |= last
        yield skip[k], gets, block[gets]


@schedule(collective="broadcast", steps="chunks - 1 + d", sent="(chunks - 1 + d)/chunks")
def circulant_broadcast(n: int, root: int = 0, chunks: int = 8) -> Steps:
    """Circulant Broadcast: blocks in a pipeline on a circulant graph, where all ranks send and receive all the time.

    Optimal in steps for any n and number of blocks; with one block it is a tree of ceil(log2 n) levels.
    """
    s = Steps(broadcast(n, root=root, chunks=chunks))
    for distance, place, block in deliveries(n, chunks):
        with s.step():
            s.copy(src=(root + place - distance) % n, dst=(root + place) % n, chunk=block)
    return s


@schedule(collective="reduce", steps="chunks - 1 + d", sent="1")
def circulant_reduce(n: int, root: int = 0, chunks: int = 8) -> Steps:
    """Circulant Reduce: the Broadcast backwards; every block is added up along the tree by which it would spread.

    Optimal in steps for any n and number of blocks; the operator must commute.
    """
    s = Steps(reduce(n, root=root, chunks=chunks))
    for distance, place, block in reversed(list(deliveries(n, chunks))):
        with s.step():
            s.reduce(src=(root + place) % n, dst=(root + place - distance) % n, chunk=block)
    return s
