"""`algocc certify` and `check`: write down why a schedule is right, and confirm it without trusting algocc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from algocc.certificate import certify, dumps
from algocc.cli import options, source
from algocc.cli.output import progress
from algocc.cli.subject import subject
from algocc.errors import ScheduleError, UsageError, counted
from algocc.exchange import SLOTS
from algocc.proofs import check


@click.command("certify", help="Write a certificate of a correct schedule, for `algocc check` or proofs/check.py.")
@options.schedule
@options.one_n
@options.params
@options.in_place
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Write to this file.")
def certify_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], in_place: bool, output: Path
) -> None:
    what = subject(schedule, n, dict(params), mode=None, in_place=in_place, slots=SLOTS, lanes=1)
    with progress(f"certifying {what.name} (the first time, compiling)"), source.bounded_memory():
        if what.file and not (report := what.judge(None)[0]).correct:
            raise ScheduleError(f"{what.name} is wrong, so there is nothing to certify: {report.failures[0]}")
        s = what.schedule()
        certificate = certify(s, in_place=what.in_place)
        text = dumps(certificate)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error
    claims = certificate["claims"]
    optimal = [name for name in ("bandwidth_optimal", "step_optimal") if claims[name]]
    facts = ["correct", f"{claims['steps']} steps", f"sends {claims['sent_max']}", *optimal]
    click.echo(f"{output}: {s.name} on {counted(s.n, 'rank')}, {claims['mode']}: {', '.join(facts).replace('_', ' ')}")


@click.command("check", help="Check a certificate by the independent checker, proofs/check.py.")
@click.argument("certificate", type=click.Path())
def check_command(certificate: str) -> int:
    return check.main([certificate])
