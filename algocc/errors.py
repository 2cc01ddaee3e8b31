"""What algocc raises: one base class, few kinds, each message saying where, found, wanted and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AlgoccError(Exception):
    """Anything algocc raises on purpose."""

    exit_code = 2


class UsageError(AlgoccError):
    """The input can't be used: a wrong name, a rank out of range, a file that does not import (exit code 2)."""


class ScheduleError(AlgoccError):
    """A claim is false: the schedule or program does not do what its collective demands (exit code 1)."""

    exit_code = 1


class RunError(AlgoccError):
    """A run that could not finish: a rank that is stuck, or never arrived (exit code 1)."""

    exit_code = 1


def near(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?` with the known words nearest to `word`, or nothing.

    >>> near("rnig", ["ring", "tree"])
    '; did you mean ring?'
    """
    found = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else ""
