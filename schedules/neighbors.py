"""SendRecv: messages between given pairs of ranks, and halo exchange on periodic grids; all in one step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from algocc.collective import send_recv as messages
from algocc.decorator import require, schedule
from algocc.schedules.arithmetic import square
from algocc.steps import Steps

Pairs = Sequence[tuple[int, int]]


def given(n: int, pairs: Pairs | None) -> list[tuple[int, int]]:
    """The pairs, or every rank and the next around the ring."""
    pairs = [(r, (r + 1) % n) for r in range(n)] if pairs is None else list(pairs)
    require(all(len(pair) == 2 for pair in pairs), "pairs of two ranks, the source and the destination")
    return [(int(a), int(b)) for a, b in pairs]


def grid_pairs(dims: Sequence[int]) -> list[tuple[int, int]]:
    """(rank, neighbour) on a periodic grid, for each dimension first one on, then one back."""
    rank = np.arange(prod(dims)).reshape(dims)
    pairs: list[tuple[int, int]] = []
    for axis in range(len(dims)):
        for way in (1, -1):
            pairs += zip(rank.ravel().tolist(), np.roll(rank, -way, axis).ravel().tolist(), strict=True)
    return pairs


def write(n: int, pairs: Pairs) -> Steps:
    """The k-th block that a rank sends is its input block k; the k-th that it receives, its output block k."""
    s = Steps(messages(n, pairs=pairs))
    inputs, outputs = [0] * n, [0] * n
    with s.step():
        for src, dst in pairs:
            s.copy(src=src, dst=dst, chunk=inputs[src], to=outputs[dst])
            inputs[src] += 1
            outputs[dst] += 1
    return s


def busiest(n: int, pairs: Pairs | None) -> Any:
    """Blocks that leave the busiest sender, and blocks of the largest input or output."""
    src, dst = np.array(given(n, pairs), np.int64).reshape(-1, 2).T
    sent, inputs, outputs = (np.bincount(a, minlength=n).max() for a in (src[src != dst], src, dst))
    return int(sent), int(max(inputs, outputs))


@schedule(collective="send_recv", steps="1", sent="busiest(n, pairs)[0]/busiest(n, pairs)[1]")
def send_recv(n: int, pairs: Pairs | None = None) -> Steps:
    """SendRecv: every message straight from its source to its destination, all in one step.

    pairs: (src, dst) of each message; if not given, every rank sends to the next around the ring.
    """
    return write(n, given(n, pairs))


@schedule(collective="send_recv", steps="1", sent="1")
def halo_1d(n: int) -> Steps:
    """Halo exchange on a ring: every rank sends input block 0 one rank on and input block 1 one rank back.

    Output block 0 comes from the rank before, output block 1 from the rank after.
    """
    return write(n, grid_pairs([n]))


@schedule(
    collective="send_recv",
    takes="n the product of dims",
    steps="1",
    sent="sum(side > 1 for side in dims or square(n))/2",
)
def halo_2d(n: int, dims: tuple[int, int] | None = None) -> Steps:
    """Halo exchange on a periodic grid: every rank sends a block to each of its four neighbours.

    dims: rows and columns, rank = row * columns + column; as square as can be if not given.
    Blocks are in the order: a row on, a row back, a column on, a column back; an output block comes from the
    neighbour that sent it that way.
    """
    sides = tuple(dims or square(n))
    require(len(sides) == 2 and min(sides) >= 1 and prod(sides) == n, f"n the product of dims={sides}, rows and columns")
    return write(n, grid_pairs(sides))
