"""Assertions about schedules that say where, what was found and what was wanted."""

from __future__ import annotations

import difflib
from collections import Counter

from algocc.errors import ScheduleError
from algocc.reference import State, interpret, wanted, wrong_outputs
from algocc.render import diagram
from algocc.table import Schedule


def assert_correct(schedule: Schedule, *, in_place: bool = False, idempotent: bool = False) -> None:
    """The schedule does what its collective wants, by the reference interpreter.

    >>> from algocc.collective import all_reduce
    >>> from algocc.steps import Steps
    >>> s = Steps(all_reduce(2), name="half")
    >>> with s.step():
    ...     s.reduce(src=0, dst=1, chunk=0)
    >>> assert_correct(s.build())
    Traceback (most recent call last):
    AssertionError: half: rank 0: out[0] holds {0.0}, wanted {0.0, 1.0}
    """
    state = _state(schedule, in_place)
    wrong = [
        f"{schedule.name}: rank {rank}: out[{chunk}] holds {_text(state.outputs()[rank, chunk])}, "
        f"wanted {_text(wanted(schedule.collective, rank, chunk))}"
        for rank, chunk in wrong_outputs(state, idempotent=idempotent)
    ]
    _require(not wrong, "\n".join(wrong[:20]))


def assert_equivalent(a: Schedule, b: Schedule, *, in_place: bool = False) -> None:
    """Both schedules have the same task and leave the same contributions in every output chunk."""
    same = a.collective.same_task(b.collective)
    _require(same, f"{a.name} does {a.collective}, {b.name} does {b.collective}")
    cut = f"{a.name} cuts a block into {a.collective.chunks} chunks, {b.name} into {b.collective.chunks}"
    _require(a.collective.chunks == b.collective.chunks, cut)
    left, right = _state(a, in_place).outputs(), _state(b, in_place).outputs()
    differing = [
        f"rank {rank}: out[{chunk}] holds {_text(left[rank, chunk])} after {a.name}, "
        f"{_text(right[rank, chunk])} after {b.name}"
        for rank, chunk in left
        if left[rank, chunk] != right[rank, chunk]
    ]
    _require(not differing, "\n".join(differing[:20]))


def assert_has_diagram(schedule: Schedule, text: str) -> None:
    """The schedule's diagram is `text`, whatever the blank lines and common indent around it.

    >>> from algocc.collective import all_reduce
    >>> from algocc.steps import Steps
    >>> assert_has_diagram(Steps(all_reduce(2)).build(), '''
    ...     rank  step 0
    ...     0     out[0]=in[0]
    ...     1     out[0]=in[0]
    ... ''')
    """
    actual, desired = diagram(schedule).splitlines(), _dedented(text)
    if actual != desired:
        lines = difflib.unified_diff(desired, actual, "desired", "actual", lineterm="")
        raise AssertionError("\n".join([f"{schedule.name} has another diagram:", *actual, "", *lines]))


def _require(condition: bool, message: str) -> None:
    """As `assert`, but also where Python runs without them."""
    if not condition:
        raise AssertionError(message)


def _dedented(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return [line[indent:] for line in lines]


def _state(schedule: Schedule, in_place: bool) -> State[Counter[tuple[int, int]]]:
    try:
        return interpret(schedule, in_place=in_place)
    except ScheduleError as error:
        raise AssertionError(f"{schedule.name}: {error}") from error


def _text(held: Counter[tuple[int, int]] | None) -> str:
    """A multiset of (rank, input chunk) as in {0.1, 2.1}."""
    if held is None:
        return "nothing"
    return "{" + ", ".join(f"{rank}.{chunk}" for rank, chunk in sorted(held.elements())) + "}"
