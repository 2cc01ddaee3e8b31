"""AllToAll: block j of rank i ends as block i of rank j."""

from __future__ import annotations

from typing import Any

from algocc.collective import all_to_all
from algocc.decorator import schedule
from algocc.steps import Steps, Transfer


def shift(rank: Any, step: Any, n: int) -> Transfer:
    """Every rank sends the rank step + 1 further its block."""
    peer = (rank + step + 1) % n
    return Transfer(peer, peer, to=rank)


def to_all(rank: Any, step: Any, n: int) -> list[Transfer]:
    """All shifts at once."""
    return [shift(rank, hop, n) for hop in range(n - 1)]


@schedule(collective="all_to_all", steps="1", sent="(n - 1)/n")
def direct_all_to_all(n: int) -> Steps:
    """Direct AllToAll: every rank sends every other its block, all in one step."""
    s = Steps(all_to_all(n))
    s.rule(to_all, steps=1)
    return s
