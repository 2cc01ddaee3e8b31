"""AllToAll: block j of rank i ends as block i of rank j.

Few messages or little volume: direct, pairwise and shifted send every block once, to its end; Bruck sends
blocks together and on, in logarithmic steps; the two-level one sends one message for a whole group of ranks.

Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005 (in pairs);
Cowan et al., "MSCCLang: Microsoft Collective Communication Language", ASPLOS 2023 (two levels).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from algocc.collective import all_to_all
from algocc.decorator import require, schedule
from algocc.invariant import ANYTHING, FINISHED, Claim, Holds, only
from algocc.schedules.arithmetic import ceil_log
from algocc.schedules.hierarchical import group_size
from algocc.steps import Steps, Transfer


def shift(rank: Any, step: Any, n: int) -> Transfer:
    """Every rank sends the rank step + 1 further its block."""
    peer = (rank + step + 1) % n
    return Transfer(peer, peer, to=rank)


def all_shifts(rank: Any, step: Any, n: int) -> list[Transfer]:
    """All shifts at once."""
    return [shift(rank, hop, n) for hop in range(n - 1)]


def all_finished(rank: Any, block: Any, step: Any, n: Any) -> Claim:
    """Every block has arrived."""
    return FINISHED


def shifted(rank: Any, slot: Any, step: Any, n: Any) -> Claim:
    """After s steps the blocks of the s ranks before have arrived in scratch."""
    back = (rank - slot) % n
    return Holds(only(slot), of=rank) if (0 < back) & (back <= step) & (slot < n) else ANYTHING


def settle(rank: Any, step: Any, n: int) -> list[Transfer]:
    """The blocks of others move from scratch to the output."""
    return [Transfer(rank, block, when=block != rank) for block in range(n)]


def swap_in_pairs(rank: Any, step: Any, n: int) -> Transfer:
    """A round of a tournament: ranks whose sum is `step` modulo the odd number m swap blocks.

    m is n or n-1. The one rank that is its own partner pairs with rank m, or sits out if there is none.
    """
    m = n - 1 + n % 2
    opposite = (step - rank) % m
    peer = np.where(opposite == rank, m, opposite)
    peer = np.where(rank == m, step * ((m + 1) // 2) % m, peer)
    return Transfer(peer, peer, to=rank, when=peer < n)


def nonzero_digits(n: int, radix: int) -> int:
    """How many digits of the numbers below n are not zero.

    >>> nonzero_digits(8, 2), nonzero_digits(9, 3)
    (12, 12)
    """
    return sum(i // radix**e % radix > 0 for i in range(n) for e in range(ceil_log(n, radix)))


@schedule(collective="all_to_all", steps="1", sent="(n - 1)/n")
def direct_all_to_all(n: int) -> Steps:
    """Direct AllToAll: every rank sends every other its block, all in one step."""
    s = Steps(all_to_all(n))
    s.rule(all_shifts, steps=1, invariant=all_finished)
    return s


@schedule(collective="all_to_all", steps="n - 1 + n % 2", sent="(n - 1)/n")
def pairwise_all_to_all(n: int) -> Steps:
    """Pairwise-exchange AllToAll: in each step the ranks pair up and swap blocks, as in a tournament.

    Every pair meets once. For odd n one rank sits out each step, so it takes one step more. Swapping needs no
    scratch even in place.
    """
    s = Steps(all_to_all(n))
    s.rule(swap_in_pairs, steps=n - 1 + n % 2)
    return s


@schedule(collective="all_to_all", steps="n - 1", sent="(n - 1)/n")
def shifted_all_to_all(n: int) -> Steps:
    """Shifted AllToAll: in step t every rank sends to the rank t + 1 further and receives from the one as far back.

    One step fewer than in pairs if n is odd. Blocks arrive in scratch, for in place the room that they go to may
    hold a block yet to be sent.
    """
    s = Steps(all_to_all(n))
    s.rule(shift, steps=n - 1, to_buffer="scratch", invariant=shifted)
    s.rule(settle, steps=1, buffer="scratch", invariant=all_finished)
    return s


@schedule(collective="all_to_all", steps="n - 1", sent="(n - 1)/2")
def ring_all_to_all(n: int) -> Steps:
    """Ring AllToAll: every rank passes to its neighbour all it holds for ranks further on.

    A block with h hops to go lies in slot h - 1, so each step moves a rank's slots one down on the next rank,
    from one of two banks of scratch to the other; what leaves slot 0 has arrived. Neighbours only, for n/2 times
    the optimal volume.
    """
    s = Steps(all_to_all(n))
    rank, slot = (a.ravel() for a in np.indices((n, n - 1)))
    r = np.arange(n)
    with s.step():
        s.copy(src=rank, dst=rank, chunk=(rank + slot + 1) % n, to=slot, buffer="in", to_buffer="scratch")
    for step in range(n - 1):
        bank, other = step % 2 * n, (step + 1) % 2 * n
        with s.step():
            s.copy(src=r, dst=(r + 1) % n, chunk=bank, to=(r - step) % n, buffer="scratch")
            if step < n - 2:
                ahead = {"chunk": bank + 1, "to": other, "count": n - 2 - step}
                s.copy(src=r, dst=(r + 1) % n, buffer="scratch", to_buffer="scratch", **ahead)
    return s


@schedule(collective="all_to_all", steps="ceil_log(n, radix)", sent="nonzero_digits(n, radix)/n")
def bruck_all_to_all(n: int, radix: int = 2) -> Steps:
    """Bruck AllToAll: blocks hop by the digits of their distance, all that share a digit in one message.

    Slot i of a rank holds a block with i ranks to go. In step t the blocks whose digit t is j jump j * radix^t
    ranks, to the same slot there; after the last digit the block in slot i has come from i ranks back.
    ceil(log_radix n) steps of radix - 1 messages a rank; with radix 2 about half of m in each.
    Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
    """
    require(radix >= 2, "a radix of 2 or more")
    s = Steps(all_to_all(n))
    rank, slot = (a.ravel() for a in np.indices((n, n)))
    r = np.arange(n)
    with s.step():
        s.copy(src=rank, dst=rank, chunk=(rank + slot) % n, to=slot, buffer="in", to_buffer="scratch")
    for e in range(ceil_log(n, radix)):
        run = radix**e
        with s.step():
            for digit in range(1, min(radix, -(-n // run))):
                for first in range(digit * run, n, radix * run):
                    there, slots = (r + digit * run) % n, {"chunk": first, "count": min(run, n - first)}
                    s.copy(src=r, dst=there, buffer="scratch", to_buffer="scratch", **slots)
    with s.step():
        s.copy(src=rank, dst=rank, chunk=slot, to=(rank - slot) % n, buffer="scratch")
    return s


@schedule(
    collective="all_to_all",
    takes="n a multiple of group",
    steps="(group_size(n, group) > 1) + (group_size(n, group) < n)",
    sent="2 - 1/group_size(n, group) - group_size(n, group)/n",
)
def two_level_all_to_all(n: int, group: int | None = None) -> Steps:
    """Two-level AllToAll: exchange within groups by place of the receiver, then one message a group and rail.

    group: ranks of a group; if not given, the largest divisor of n up to its square root.
    First every rank hands the member at place j of its group all its blocks for place j of any group. Then that
    member holds what its whole group has for the ranks on its rail, side by side, and sends each its part.
    n/group - 1 messages of group blocks between groups, in place of n - group of one block.
    """
    size = group_size(n, group)
    s = Steps(all_to_all(n))
    rank, block = (a.ravel() for a in np.indices((n, n)))
    with s.step():
        member = rank // size * size + block % size
        s.copy(src=rank, dst=member, chunk=block, to=block // size * size + rank % size, to_buffer="scratch")
    rank, first = (a.ravel() for a in np.mgrid[0:n, 0:n:size])
    with s.step():
        peer = first + rank % size
        s.copy(src=rank, dst=peer, chunk=first, to=rank // size * size, count=size, buffer="scratch")
    return s
