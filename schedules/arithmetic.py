"""Whole-number functions that the algorithms and their formulae share.

The formulae `steps` and `sent` of an algorithm are Python expressions in n, the number of ranks, d = ceil(log2 n),
the parameters of the algorithm by name, and the functions of this module and of the algorithm's own file. They hold
for n ≥ 2; a single rank takes no step and sends nothing. `sent` is the most that one rank sends, as a fraction of
the full vector m; `/` is exact division.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from algocc.steps import Transfer


def floor_log(n: int, base: int = 2) -> int:
    """The largest e with base^e ≤ n.

    >>> [floor_log(n) for n in (1, 2, 3, 4, 9)]
    [0, 1, 1, 2, 3]
    """
    e = 0
    while base ** (e + 1) <= n:
        e += 1
    return e


def ceil_log(n: int, base: int = 2) -> int:
    """The smallest e with base^e ≥ n.

    >>> [ceil_log(n) for n in (1, 2, 3, 4, 9)]
    [0, 1, 2, 2, 4]
    """
    e = 0
    while base**e < n:
        e += 1
    return e


def floor_power(n: int, base: int = 2) -> int:
    """The largest power of `base` that is at most n.

    >>> [floor_power(n) for n in (1, 2, 3, 4, 9)]
    [1, 2, 2, 4, 8]
    """
    power: int = base ** floor_log(n, base)
    return power


def ceil_div(a: Any, b: Any) -> Any:
    """a / b rounded up.

    >>> ceil_div(7, 2)
    4
    """
    return -(-a // b)


def square(n: int) -> tuple[int, int]:
    """The factors a ≤ b of n that are nearest to each other.

    >>> square(12), square(7)
    ((3, 4), (1, 7))
    """
    n = int(n)
    a = max(a for a in range(1, isqrt(n) + 1) if n % a == 0)
    return a, n // a


def listed(said: Any) -> list[Transfer]:
    """What a rule returned, as a list of transfers."""
    several = said if isinstance(said, list) else [said]
    return [t if isinstance(t, Transfer) else Transfer(*t) for t in several]


def cyclic(transfer: Transfer, first: Any, count: Any, n: int) -> list[Transfer]:
    """The transfer, of the `count` blocks from `first` on, counted modulo n: a run, and what wraps around the end.

    >>> [(int(t.chunk), int(t.count)) for t in cyclic(Transfer(0, 0), 6, 4, 8)]
    [(6, 2), (0, 2)]
    """
    first = first % n
    run = np.minimum(count, n - first)
    return [
        transfer._replace(chunk=first, count=run, when=transfer.when & (count > 0)),
        transfer._replace(chunk=0 * first, count=count - run, when=transfer.when & (count > run)),
    ]


def in_rank_order(rank: Any, transfer: Transfer) -> list[Transfer]:
    """The transfer as a reduction that puts the lower rank's operand on the left, for operators that don't commute."""
    return [
        transfer._replace(when=transfer.when & (rank < transfer.peer), action="prereduce"),
        transfer._replace(when=transfer.when & (rank > transfer.peer), action="reduce"),
    ]
