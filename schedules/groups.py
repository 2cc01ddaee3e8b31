"""Rules among some of the ranks: those that differ in one coordinate of a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from algocc.schedules.arithmetic import listed
from algocc.steps import Rule, Transfer

Place = Callable[[Any, Any, Any], list[tuple[Any, Any]]]
"""A function of (rank, chunk, count): the runs of chunks, as (first, count), that a rule's chunks stand for."""


def along(rank: Any, step: Any, n: int, rule: Rule, size: int, stride: int, place: Place) -> list[Transfer]:
    """Every set of `size` ranks `stride` apart does what `rule` says for n = size, all sets at once."""
    coordinate = rank // stride % size
    origin = rank - coordinate * stride
    return [
        t._replace(peer=origin + t.peer * stride, chunk=first, count=count)
        for t in listed(rule(coordinate, step, size))
        for first, count in place(rank, t.chunk, t.count)
    ]
