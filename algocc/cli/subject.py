"""What `show`, `run` and `certify` are about: a schedule, or a file of another tool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from algocc import exchange
from algocc.cli import foreign, source
from algocc.collective import Collective
from algocc.lowering import lower
from algocc.program import Program
from algocc.table import Schedule
from algocc.verifier import Report, summary, verify
from algocc.verifier.report import is_idempotent


@dataclass(frozen=True)
class Subject:
    """A schedule in a mode.

    schedule, program: make them. judge: for an operator, the report and its text.
    file: where it comes from, if that is a file of another tool.
    """

    name: str
    collective: Collective
    in_place: bool
    schedule: Callable[[], Schedule]
    program: Callable[[], Program]
    judge: Callable[[str | None], tuple[Report, str]]
    file: exchange.Imported | None = None


def subject(
    name: str, n: int | None, params: dict[str, Any], *, mode: str | None, in_place: bool, slots: int, lanes: int
) -> Subject:
    """What a name on the command line stands for."""
    if foreign.is_foreign(name):
        f = foreign.load(name, [n], params=params, lanes=lanes, slots=slots)
        return _file(f, foreign.modes(f, mode, in_place)[0], slots)
    foreign.own_only(name, slots)
    algorithm = source.load(name)
    with source.bounded_memory():
        s = source.build(algorithm, source.ranks(algorithm, n), params)
    return _schedule(s, bool(foreign.one_mode(mode, in_place)), lanes)


def _file(f: exchange.Imported, in_place: bool, slots: int) -> Subject:
    def judge(op: str | None) -> tuple[Report, str]:
        v = exchange.verdict(f, in_place=in_place, slots=slots, idempotent=is_idempotent(op))
        return v.report, exchange.verdict_text(v)

    return Subject(
        f.name, f.collective, in_place,
        lambda: exchange.schedule(f, in_place=in_place),
        lambda: exchange.program(f, in_place=in_place, slots=slots),
        judge,
        f,
    )  # fmt: skip


def _schedule(s: Schedule, in_place: bool, lanes: int) -> Subject:
    def judge(op: str | None) -> tuple[Report, str]:
        report = verify(s, in_place=in_place, lanes=lanes, op=op)
        return report, summary(report)

    return Subject(s.name, s.collective, in_place, lambda: s, lambda: lower(s, in_place=in_place, lanes=lanes), judge)
