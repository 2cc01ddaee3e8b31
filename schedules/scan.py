"""Scan, inclusive and exclusive, in logarithmic steps; operands stay in rank order."""

from __future__ import annotations

from functools import partial
from typing import Any

from algocc.collective import exscan, scan
from algocc.decorator import schedule
from algocc.schedules.arithmetic import ceil_log
from algocc.steps import Steps, Transfer


def to_the_right(rank: Any, step: Any, n: int, first: int = 0) -> Transfer:
    """The ranks from `first` on send the sum of the 2^step ranks up to themselves to the rank 2^step further."""
    return Transfer(rank + 2**step, 0, when=(rank >= first) & (rank + 2**step < n))


@schedule(collective="scan", steps="d", sent="d")
def log_step_scan(n: int) -> Steps:
    """Log-step Scan: every rank sends its sum to the rank 1, 2, 4, … further, which puts it before its own.

    After step t a rank has the sum of the 2^(t+1) ranks up to itself.
    Hillis and Steele, "Data parallel algorithms", CACM 1986.
    """
    s = Steps(scan(n))
    s.rule(to_the_right, steps=ceil_log(n), action="prereduce")
    return s


@schedule(collective="exscan", steps="1 + ceil_log(n - 1)", sent="1 + ceil_log(n - 1)")
def log_step_exscan(n: int) -> Steps:
    """Log-step Exscan: every vector moves to the next rank, then the ranks from 1 on do a Scan."""
    s = Steps(exscan(n))
    s.rule(to_the_right, steps=int(n > 1))
    s.rule(partial(to_the_right, first=1), steps=ceil_log(n - 1), action="prereduce", buffer="out")
    return s
