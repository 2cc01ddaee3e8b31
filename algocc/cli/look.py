"""`algocc list` and `doctor`: what there is."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from algocc import doctor
from algocc.bounds import canonical
from algocc.catalog import algorithms
from algocc.cli import options
from algocc.cli.output import aligned, say_json
from algocc.collective import COLLECTIVES
from algocc.decorator import Algorithm
from algocc.errors import UsageError


@click.command("list", help="The schedules that ship with algocc, by collective, with what they cost.")
@click.argument("collective", required=False)
@click.option("--collective", "named", default=None, help="Only those of one collective, in any spelling.")
@options.as_json
def list_command(collective: str | None, named: str | None, as_json: bool) -> None:
    if collective and named:
        raise UsageError(f"list {collective} --collective {named}: name one collective")
    only = canonical(asked) if (asked := collective or named) else None
    found = [a for a in algorithms().values() if only in (None, a.collective)]
    found.sort(key=lambda a: (list(COLLECTIVES).index(a.collective), a.name))
    if as_json:
        say_json({"schedules": [_facts(a) for a in found]})
        return
    for name, group in groupby(found, key=lambda a: a.collective):
        click.echo(f"{click.style(name, bold=True)}: {(COLLECTIVES[name].__doc__ or '').splitlines()[0]}")
        click.echo(aligned([row for a in group for row in ((a.name, a.doc), ("", _cost(a)))]))
    click.echo("\nn ranks, d = ceil(log2 n); sends: what the busiest rank sends, of the full vector")


def _facts(a: Algorithm) -> dict[str, Any]:
    return {
        "name": a.name,
        "collective": a.collective,
        "doc": a.doc,
        "takes": a.takes,
        "steps": a.steps,
        "sent": a.sent,
        "parameters": list(a.parameters),
    }


def _cost(a: Algorithm) -> str:
    parts = [f"steps {a.steps}" if a.steps else "", f"sends {a.sent}" if a.sent else ""]
    parts += [f"takes {a.takes}" if a.takes else "", *(f"-p {key}=…" for key in a.parameters)]
    return "; ".join(filter(None, parts))


@click.command("doctor", help="What this machine has, and for each extra what is missing and the command that adds it.")
@options.as_json
def doctor_command(as_json: bool) -> None:
    facts = doctor.examine()
    if as_json:
        say_json(facts)
    else:
        click.echo(doctor.describe(facts))
