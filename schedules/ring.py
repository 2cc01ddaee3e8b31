"""Ring algorithms: every rank talks to its neighbours only, and every link is busy in every step.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from algocc.collective import all_gather, all_reduce, reduce_scatter
from algocc.decorator import schedule
from algocc.steps import Steps, Transfer


def collect(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """Reduce-scatter: block b starts at rank b + 1, takes up one contribution a hop, and ends at rank b."""
    return (rank + 1) % n, (rank - step - 1) % n


def spread(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """All-gather: block b starts at rank b and travels once around the ring."""
    return (rank + 1) % n, (rank - step) % n


def both_ways(rule: Any) -> Any:
    """A ring rule on the first n chunks, and its mirror image, run against the ring, on the other n."""

    def mirrored(rank: Any, step: Any, n: int) -> list[Transfer]:
        peer, chunk = rule(rank, step, n)
        mirror_peer, mirror_chunk = rule(n - 1 - rank, step, n)
        return [Transfer(peer, chunk), Transfer(n - 1 - mirror_peer, 2 * n - 1 - mirror_chunk)]

    return mirrored


@schedule(collective="all_reduce", steps="2*(n - 1)", sent="2*(n - 1)/n")
def ring(n: int) -> Steps:
    """Ring AllReduce: reduce-scatter around the ring, then all-gather around the ring.

    The vector is cut into n chunks. In the first n-1 steps each chunk travels around the ring and takes up the
    contribution of every rank on its way; in the other n-1 steps the finished chunks travel around once more.
    Bandwidth optimal.
    """
    s = Steps(all_reduce(n, chunks=n))
    s.rule(collect, steps=n - 1, action="reduce")
    s.rule(spread, steps=n - 1)
    return s


@schedule(collective="reduce_scatter", steps="n - 1", sent="(n - 1)/n")
def ring_reduce_scatter(n: int) -> Steps:
    """Ring ReduceScatter: each block travels around the ring and takes up a contribution at every rank.

    Block b starts at rank b + 1 and arrives, complete, at rank b after n-1 steps. Bandwidth optimal.
    """
    s = Steps(reduce_scatter(n))
    s.rule(collect, steps=n - 1, action="reduce")
    return s


@schedule(collective="all_gather", steps="n - 1", sent="(n - 1)/n")
def ring_all_gather(n: int) -> Steps:
    """Ring AllGather: in each step every rank passes on the block it received in the step before.

    Each block has seen every rank after n-1 steps. Bandwidth optimal.
    """
    s = Steps(all_gather(n))
    s.rule(spread, steps=n - 1)
    return s


@schedule(collective="all_reduce", steps="2*(n - 1)", sent="2*(n - 1)/n")
def bidirectional_ring(n: int) -> Steps:
    """Ring AllReduce in both directions at once: half of the vector travels each way.

    As `ring` with 2n chunks, n of them clockwise and n counter-clockwise, so that both directions of every link
    carry half of the volume. Bandwidth optimal.
    """
    s = Steps(all_reduce(n, chunks=2 * n))
    s.rule(both_ways(collect), steps=n - 1, action="reduce")
    s.rule(both_ways(spread), steps=n - 1)
    return s


@schedule(collective="all_reduce", steps="n - 1", sent="n - 1")
def unchunked_ring(n: int) -> Steps:
    """Ring AllReduce without chunks: every whole vector travels around the ring and is added at every rank.

    What arrives in a step is passed on in the next and reduced into the output at the same time, so it is kept
    in one of two slots in turn. Half of the steps of `ring`, n/2 times its volume: for vectors of a few bytes.
    """
    s = Steps(all_reduce(n))
    r = np.arange(n)
    for step in range(n):
        with s.step():
            arrived, free = (step - 1) % 2, step % 2
            if step == 0:
                s.copy(src=r, dst=(r + 1) % n, chunk=0, to=free, to_buffer="scratch")
                continue
            s.reduce(src=r, dst=r, chunk=arrived, to=0, buffer="scratch")
            if step < n - 1:
                s.copy(src=r, dst=(r + 1) % n, chunk=arrived, to=free, buffer="scratch", to_buffer="scratch")
    return s
