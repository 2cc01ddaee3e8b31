"""Ring algorithms: every rank talks to its neighbours only, and every link is busy in every step.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from typing import Any

from algocc.collective import all_gather, all_reduce, reduce_scatter
from algocc.decorator import schedule
from algocc.invariant import ANYTHING, FINISHED, Claim, Holds, only, up_to
from algocc.steps import Steps, Transfer


def collect(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """Reduce-scatter: block b starts at rank b + 1, takes up one contribution a hop, and ends at rank b."""
    return (rank + 1) % n, (rank - step - 1) % n


def collected(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """After s steps a block has made s hops; where it has been it holds all ranks of its way, elsewhere the rank's own."""
    hops = (rank - chunk - 1) % n
    return Holds(up_to(rank, hops + 1 if hops <= step else 1, n))


def spread(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """All-gather: block b starts at rank b and travels once around the ring."""
    return (rank + 1) % n, (rank - step) % n


def spread_so_far(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """After s steps block b is finished on rank b and on the s ranks behind it."""
    hops = (rank - chunk) % n
    return FINISHED if hops <= step else ANYTHING


def both_ways(rule: Any) -> Any:
    """A ring rule on the first n chunks, and its mirror image, run against the ring, on the other n."""

    def mirrored(rank: Any, step: Any, n: int) -> list[Transfer]:
        peer, chunk = rule(rank, step, n)
        mirror_peer, mirror_chunk = rule(n - 1 - rank, step, n)
        return [Transfer(peer, chunk), Transfer(n - 1 - mirror_peer, 2 * n - 1 - mirror_chunk)]

    return mirrored


def both_ways_hold(invariant: Any) -> Any:
    """What holds of a ring rule on the first n chunks, and of its mirror image on the other n."""

    def mirrored(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
        if chunk < n:
            return invariant(rank, chunk, step, n)
        seen = invariant(n - 1 - rank, 2 * n - 1 - chunk, step, n)
        return Holds(lambda p: seen.ranks(n - 1 - p)) if isinstance(seen, Holds) else seen

    return mirrored


def set_out(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """Every rank sends its own vector to the next."""
    return (rank + 1) % n, 0


def set_out_to(rank: Any, slot: Any, step: Any, n: Any) -> Claim:
    """The vector of the rank before is in slot 0."""
    return Holds(only((rank - 1) % n), of=0) if slot == 0 else ANYTHING


def pass_on(rank: Any, step: Any, n: int) -> list[Transfer]:
    """What arrived in one slot is added to the output, and goes on to the other slot of the next rank, unless it is back."""
    arrived, free = (step - 1) % 2, step % 2
    return [
        Transfer(rank, arrived, to=0, action="reduce"),
        Transfer((rank + 1) % n, arrived, to=free, to_buffer="scratch", when=step < n - 1),
    ]


def added_up(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """After s steps a rank has the sum of itself and the s ranks before it."""
    return Holds(up_to(rank, step + 1, n))


def in_transit(rank: Any, slot: Any, step: Any, n: Any) -> Claim:
    """After s steps the vector of the rank s + 1 places back has arrived, in the slots in turn."""
    arrived = (slot == step % 2) & (step < n - 1)
    return Holds(only((rank - step - 1) % n), of=0) if arrived else ANYTHING


@schedule(collective="all_reduce", steps="2*(n - 1)", sent="2*(n - 1)/n")
def ring(n: int) -> Steps:
    """Ring AllReduce: reduce-scatter around the ring, then all-gather around the ring.

    The vector is cut into n chunks. In the first n-1 steps each chunk travels around the ring and takes up the
    contribution of every rank on its way; in the other n-1 steps the finished chunks travel around once more.
    Bandwidth optimal.
    """
    s = Steps(all_reduce(n, chunks=n))
    s.rule(collect, steps=n - 1, action="reduce", invariant=collected)
    s.rule(spread, steps=n - 1, invariant=spread_so_far)
    return s


@schedule(collective="reduce_scatter", steps="n - 1", sent="(n - 1)/n")
def ring_reduce_scatter(n: int) -> Steps:
    """Ring ReduceScatter: each block travels around the ring and takes up a contribution at every rank.

    Block b starts at rank b + 1 and arrives, complete, at rank b after n-1 steps. Bandwidth optimal.
    """
    s = Steps(reduce_scatter(n))
    s.rule(collect, steps=n - 1, action="reduce", invariant=collected)
    return s


@schedule(collective="all_gather", steps="n - 1", sent="(n - 1)/n")
def ring_all_gather(n: int) -> Steps:
    """Ring AllGather: in each step every rank passes on the block it received in the step before.

    Each block has seen every rank after n-1 steps. Bandwidth optimal.
    """
    s = Steps(all_gather(n))
    s.rule(spread, steps=n - 1, invariant=spread_so_far)
    return s


@schedule(collective="all_reduce", steps="2*(n - 1)", sent="2*(n - 1)/n")
def bidirectional_ring(n: int) -> Steps:
    """Ring AllReduce in both directions at once: half of the vector travels each way.

    As `ring` with 2n chunks, n of them clockwise and n counter-clockwise, so that both directions of every link
    carry half of the volume. Bandwidth optimal.
    """
    s = Steps(all_reduce(n, chunks=2 * n))
    s.rule(both_ways(collect), steps=n - 1, action="reduce", invariant=both_ways_hold(collected))
    s.rule(both_ways(spread), steps=n - 1, invariant=both_ways_hold(spread_so_far))
    return s


@schedule(collective="all_reduce", steps="n - 1", sent="n - 1")
def unchunked_ring(n: int) -> Steps:
    """Ring AllReduce without chunks: every whole vector travels around the ring and is added at every rank.

    What arrives in a step is passed on in the next and reduced into the output at the same time, so it is kept
    in one of two slots in turn. Half of the steps of `ring`, n/2 times its volume: for vectors of a few bytes.
    """
    s = Steps(all_reduce(n))
    s.rule(set_out, steps=1, to_buffer="scratch", invariant=set_out_to)
    s.rule(pass_on, steps=n - 1, first=1, buffer="scratch", invariant={"out": added_up, "scratch": in_transit})
    return s
