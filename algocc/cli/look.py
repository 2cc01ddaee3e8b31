"""`algocc list`, `show` and `doctor`: look, and change nothing."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import click

import algocc
from algocc import doctor, render, text
from algocc.catalog import algorithms
from algocc.cli import options, source
from algocc.cli.output import aligned, say_json
from algocc.collective import COLLECTIVES, canonical
from algocc.decorator import Algorithm
from algocc.errors import UsageError


@click.command("list", help="The schedules that ship with algocc, by collective, with what they cost.")
@click.option("--collective", default=None, help="Only those of one collective, in any spelling.")
@options.as_json
def list_command(collective: str | None, as_json: bool) -> None:
    only = canonical(collective) if collective else None
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


@click.command("show", help="What a schedule does step by step; or its Program, or a file that algocc reads back.")
@options.schedule
@options.one_n
@options.params
@click.option("--diagram", is_flag=True, help="A picture of ranks and steps.")
@click.option("--program", is_flag=True, help="The lanes of Moves that run.")
@options.in_place
@options.lanes
@click.option("--format", "form", type=click.Choice(["text", "json"]), help="The schedule as a table to keep.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def show_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], diagram: bool, program: bool, in_place: bool,
    lanes: int, form: str | None, output: Path | None,
) -> None:  # fmt: skip
    if sum((diagram, program, form is not None)) > 1:
        raise UsageError("show: choose one of --diagram, --program and --format")
    algorithm = source.load(schedule)
    with source.bounded_memory():
        s = source.build(algorithm, source.ranks(algorithm, n), dict(params))
        if program:
            shown = algocc.listing(algocc.lower(s, in_place=in_place, lanes=lanes))
        elif form:
            shown = text.format(s) if form == "text" else text.dumps(s)
        else:
            shown = render.diagram(s) if diagram else render.step_table(s)
    shown = shown.rstrip("\n") + "\n"
    if output is None:
        click.echo(shown, nl=False)
        return
    try:
        output.write_text(shown, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


@click.command("doctor", help="What this machine has, and for each extra what is missing and the command that adds it.")
@options.as_json
def doctor_command(as_json: bool) -> None:
    facts = doctor.examine()
    if as_json:
        say_json(facts)
    else:
        click.echo(doctor.describe(facts))
