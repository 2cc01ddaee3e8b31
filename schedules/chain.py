"""Chains: Broadcast and Reduce along a line of ranks, as a pipeline of chunks; best for long vectors.

Pješivac-Grbović et al., "Performance analysis of MPI collective operations", Cluster Computing 2007.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from algocc.collective import broadcast, reduce
from algocc.decorator import schedule
from algocc.invariant import ANYTHING, FINISHED, Claim, Holds, onward
from algocc.steps import Steps, Transfer


def down(rank: Any, step: Any, n: int, root: int, chunks: int) -> Transfer:
    """The rank at place p from the root passes chunk c to the next in step p + c."""
    place = (rank - root) % n
    chunk = step - place
    return Transfer((rank + 1) % n, chunk, when=(place < n - 1) & (0 <= chunk) & (chunk < chunks))


def passed_down(rank: Any, chunk: Any, step: Any, n: Any, root: Any) -> Claim:
    """After s steps chunk c has come to the places up to s - c."""
    place = (rank - root) % n
    return FINISHED if (place == 0) | (place + chunk <= step) else ANYTHING


def up(rank: Any, step: Any, n: int, root: int, chunks: int) -> Transfer:
    """The other way, from the far end: the rank p places before the end passes chunk c in step p + c."""
    place = (rank - root) % n
    chunk = step - (n - 1 - place)
    return Transfer((rank - 1) % n, chunk, when=(place > 0) & (0 <= chunk) & (chunk < chunks))


def passed_up(rank: Any, chunk: Any, step: Any, n: Any, root: Any) -> Claim:
    """After s steps chunk c has come s - c places from the far end; there it holds all ranks from the place on."""
    place = (rank - root) % n
    return Holds(onward(rank, n - place if n - 1 - place + chunk <= step else 1, n))


@schedule(collective="broadcast", steps="n - 2 + chunks", sent="1")
def chain_broadcast(n: int, root: int = 0, chunks: int = 8) -> Steps:
    """Chain Broadcast: every rank passes each chunk to the next as soon as it has it.

    n - 1 hops for the first chunk, and the others one step apart behind it. Every rank sends m once.
    """
    s = Steps(broadcast(n, root=root, chunks=chunks))
    rule, invariant = partial(down, root=root, chunks=chunks), partial(passed_down, root=root)
    s.rule(rule, steps=n - 2 + chunks if n > 1 else 0, invariant=invariant)
    return s


@schedule(collective="reduce", steps="n - 2 + chunks", sent="1")
def chain_reduce(n: int, root: int = 0, chunks: int = 8) -> Steps:
    """Chain Reduce: chunks travel towards the root and take up the contribution of every rank on the way.

    With root 0 operands stay in rank order.
    """
    s = Steps(reduce(n, root=root, chunks=chunks))
    rule, invariant = partial(up, root=root, chunks=chunks), partial(passed_up, root=root)
    s.rule(rule, steps=n - 2 + chunks if n > 1 else 0, action="reduce", invariant=invariant)
    return s
