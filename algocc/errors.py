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


def legible(text: str, most: int = 300) -> str:
    """What somebody else wrote, fit to be shown: what does not print is escaped, the middle of long text left out.

    >>> legible("a\\0b"), legible("0123456789", most=5)
    ('a\\\\x00b', '012…89')
    """
    if len(text) > most:
        text = f"{text[: most - most // 2]}…{text[-(most // 2) :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "rank"), counted(0, "step"), counted(2, "switch")
    ('1 rank', '0 steps', '2 switches')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{number} {noun}{ending}"
