"""AllToAllV by edge colouring: blocks of any sizes in as many steps as the busiest rank has units to send or receive.

Draw an edge from sender i to receiver j for every unit of block j of rank i. A step in which each rank sends at
most one unit and receives at most one is a set of edges that share no end: a colour. König's theorem (1916) colours
the edges of a bipartite graph with no more colours than the largest degree, here the heaviest row or column of counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np
from numpy.typing import NDArray

from algocc.collective import all_to_all_v
from algocc.decorator import require, schedule
from algocc.steps import Steps

Counts = Sequence[Sequence[int]]
MOST_CHUNKS = 1 << 16


def given(n: int, counts: Counts | None) -> NDArray[np.int64]:
    """The counts, or an uneven example: (i + j) mod 3 + (i mod 2) units from i to j."""
    i, j = np.indices((n, n))
    if counts is None:
        return np.asarray((i + j) % 3 + i % 2, np.int64)
    require(len(counts) == n and all(len(row) == n for row in counts), f"{n} rows of {n} counts")
    return np.asarray(counts, np.int64)


def to_others(n: int, counts: Counts | None) -> NDArray[np.int64]:
    """The counts without what a rank has for itself."""
    return given(n, counts) * (1 - np.eye(n, dtype=np.int64))


def heaviest(n: int, counts: Counts | None) -> int:
    """The most units that a rank sends to others or receives from others: no schedule takes fewer steps.

    >>> heaviest(3, [[9, 1, 2], [4, 0, 0], [1, 1, 1]])
    5
    """
    units = to_others(n, counts)
    return int(max(units.sum(0).max(), units.sum(1).max()))


def busiest_sender(n: int, counts: Counts | None) -> int:
    """The most units that a rank sends to others."""
    return int(to_others(n, counts).sum(1).max())


def vector(n: int, counts: Counts | None) -> int:
    """m in units: the largest input or output of any rank."""
    units = given(n, counts)
    return int(max(units.sum(0).max(), units.sum(1).max()))


def colouring(units: NDArray[np.int64]) -> list[list[tuple[int, int]]]:
    """The edges (sender, receiver) of each colour, no two with one end in common; as many colours as the largest degree.

    König's proof: give an edge a colour free at its sender; if it is not free at the receiver, take one that is
    and swap the two along the path of edges in those two colours that starts there. The path never
    gets to the sender, since it would arrive there by a colour that is free.
    """
    n = len(units)
    colours = int(max(units.sum(0).max(), units.sum(1).max()))
    at = np.full((2, n, colours), -1)  # by side, rank and colour, the other end of the edge
    for sender, receiver in zip(*np.nonzero(units), strict=True):
        for _ in range(units[sender, receiver]):
            a = int(np.argmax(at[0, sender] < 0))
            b = int(np.argmax(at[1, receiver] < 0))
            path, side, end, colour = [], 1, receiver, a
            while (next_end := at[side, end, colour]) >= 0:
                path.append((side, end, next_end, colour))
                side, end, colour = 1 - side, next_end, a + b - colour
            for side, end, other, colour in path:
                at[side, end, colour] = at[1 - side, other, colour] = -1
            for side, end, other, colour in path:
                at[side, end, a + b - colour], at[1 - side, other, a + b - colour] = other, end
            at[0, sender, a], at[1, receiver, a] = receiver, sender
    return [[(i, j) for i, j in enumerate(at[0, :, colour].tolist()) if j >= 0] for colour in range(colours)]


@schedule(
    collective="all_to_all_v",
    takes="n rows of n counts, whose least common multiple is small",
    steps="heaviest(n, counts)",
    sent="busiest_sender(n, counts)/vector(n, counts)",
)
def colored_all_to_all_v(n: int, counts: Counts | None = None) -> Steps:
    """Edge-coloured AllToAllV: each step is one colour, in which every rank sends at most one unit and receives one.

    counts: counts[i][j] units go from rank i to rank j; an uneven example if not given. A unit is what a step
    moves, so choose it as coarse as will do.
    Blocks are cut into as many chunks as the least common multiple of the counts, which makes a unit of any block
    a run of whole chunks; empty blocks need no message. Everything arrives in scratch, for in place the room that it
    goes to may hold units yet to be sent.
    """
    units, between = given(n, counts), to_others(n, counts)
    k = lcm(*np.unique(units[units > 0]).tolist())
    require(k <= MOST_CHUNKS, f"counts with a least common multiple up to {MOST_CHUNKS}; use a coarser unit")
    s = Steps(all_to_all_v(n, counts=units.tolist(), chunks=k))
    sent = np.zeros_like(units)
    for colour in colouring(between):
        with s.step():
            for i, j in colour:
                unit = k // int(units[i, j])
                part = int(sent[i, j]) * unit
                s.copy(src=i, dst=j, chunk=j * k + part, to=i * k + part, count=unit, to_buffer="scratch")
                sent[i, j] += 1
    rank, block = np.nonzero(between.T)
    with s.step():
        s.copy(src=rank, dst=rank, chunk=block * k, count=k, buffer="scratch")
    return s
