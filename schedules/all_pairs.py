"""All-pairs algorithms: every rank sends to every other at once, for fully connected ranks and small vectors.

Cowan et al., "MSCCLang: Microsoft Collective Communication Language", ASPLOS 2023.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from algocc.collective import all_gather, all_reduce, gather, reduce_scatter, scatter
from algocc.decorator import schedule
from algocc.invariant import ANYTHING, FINISHED, Claim, Holds, only
from algocc.steps import Steps, Transfer


def to_owners(rank: Any, step: Any, n: int) -> list[Transfer]:
    """Block b goes to rank b from every other; a receiver takes its neighbours first, so rank order is kept."""
    return [
        Transfer(peer, peer, when=(0 <= peer) & (peer < n), action=action)
        for hop in range(1, n)
        for peer, action in ((rank + hop, "prereduce"), (rank - hop, "reduce"))
    ]


def owned(rank: Any, block: Any, step: Any, n: Any) -> Claim:
    """Block b is finished on rank b."""
    return FINISHED if block == rank else ANYTHING


def from_owners(rank: Any, step: Any, n: int) -> list[Transfer]:
    """Block b goes from rank b to every other."""
    return [Transfer((rank + hop) % n, rank) for hop in range(1, n)]


def to_slots(rank: Any, step: Any, n: int) -> list[Transfer]:
    """The vector of rank b goes into slot b of every rank, its own included."""
    return [Transfer((rank + hop) % n, 0, to=rank) for hop in range(n)]


def slotted(rank: Any, slot: Any, step: Any, n: Any) -> Claim:
    """Slot b holds the vector of rank b."""
    return Holds(only(slot), of=0) if slot < n else ANYTHING


def first_slot(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """Slot 0 becomes the output, so that the others are added in rank order."""
    return rank, 0


def first_added(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """The output is the vector of rank 0."""
    return Holds(only(0))


def other_slots(rank: Any, step: Any, n: int) -> list[Transfer]:
    """The other slots are added to the output."""
    return [Transfer(rank, slot, to=0) for slot in range(1, n)]


def all_finished(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """Everything is finished."""
    return FINISHED


@schedule(collective="all_reduce", steps="1", sent="n - 1")
def one_shot(n: int) -> Steps:
    """One-shot AllReduce: every rank sends its whole vector to all others, and each adds up all n by itself.

    The vectors arrive in n slots of scratch and are added in rank order, so that all ranks get the same result
    to the last bit. One step, the least there is, for n/2 times the optimal volume.
    """
    s = Steps(all_reduce(n))
    s.rule(to_slots, steps=1, to_buffer="scratch", invariant=slotted)
    s.rule(first_slot, steps=1, buffer="scratch", invariant=first_added)
    s.rule(other_slots, steps=1, action="reduce", buffer="scratch", invariant=all_finished)
    return s


@schedule(collective="all_reduce", steps="2", sent="2*(n - 1)/n")
def two_shot(n: int) -> Steps:
    """Two-shot AllReduce: rank b adds up chunk b of all ranks in one step, and sends it to all in the next.

    An all-pairs ReduceScatter, then an all-pairs AllGather. Bandwidth optimal in two steps, for ranks with n-1 ports.
    """
    s = Steps(all_reduce(n, chunks=n))
    s.rule(to_owners, steps=1, invariant=owned)
    s.rule(from_owners, steps=1, invariant=all_finished)
    return s


@schedule(collective="reduce_scatter", steps="1", sent="(n - 1)/n")
def all_pairs_reduce_scatter(n: int) -> Steps:
    """All-pairs ReduceScatter: every rank sends each block straight to its owner, which adds them up."""
    s = Steps(reduce_scatter(n))
    s.rule(to_owners, steps=1, invariant=owned)
    return s


@schedule(collective="all_gather", steps="1", sent="(n - 1)/n")
def all_pairs_all_gather(n: int) -> Steps:
    """All-pairs AllGather: every rank sends its block to all others at once."""
    s = Steps(all_gather(n))
    s.rule(from_owners, steps=1, invariant=all_finished)
    return s


@schedule(collective="scatter", steps="1", sent="(n - 1)/n")
def direct_scatter(n: int, root: int = 0) -> Steps:
    """Direct Scatter: the root sends every other rank its block, all in one step."""
    s = Steps(scatter(n, root=root))
    others = np.delete(np.arange(n), root)
    with s.step():
        s.copy(src=root, dst=others, chunk=others)
    return s


@schedule(collective="gather", steps="1", sent="1/n")
def direct_gather(n: int, root: int = 0) -> Steps:
    """Direct Gather: every other rank sends the root its block, all in one step."""
    s = Steps(gather(n, root=root))
    others = np.delete(np.arange(n), root)
    with s.step():
        s.copy(src=others, dst=root, chunk=others)
    return s
