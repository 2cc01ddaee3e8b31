"""Barrier: no rank leaves before all have entered."""

from __future__ import annotations

from typing import Any

from algocc.collective import barrier
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_log
from algocc.steps import Steps


def signal(rank: Any, step: Any, n: int) -> tuple[Any, Any]:
    """Tell the rank 2^step further; it then knows of the 2^(step+1) ranks up to itself."""
    return (rank + 2**step) % n, 0


@schedule(collective="barrier", steps="d", sent="d")
def dissemination_barrier(n: int) -> Steps:
    """Dissemination Barrier: every rank signals the rank 1, 2, 4, … further, and waits for the one as far back.

    ceil(log2 n) steps for any n, the least there is. A rank may hear of another twice, which does no harm.
    Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.
    """
    s = Steps(barrier(n))
    s.rule(signal, steps=ceil_log(n), action="reduce")
    return s
