"""`algocc show`: what a schedule does, for people, or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from algocc import render, text
from algocc.cli import foreign, options, source
from algocc.cli.subject import subject
from algocc.errors import UsageError
from algocc.program import listing


@click.command("show", help="What a schedule does step by step; or its Program, or a file that algocc reads back.")
@options.schedule
@options.one_n
@options.params
@click.option("--diagram", is_flag=True, help="A picture of ranks and steps.")
@click.option("--program", is_flag=True, help="The lanes of Moves that run.")
@options.in_place
@foreign.mode
@foreign.slots
@options.lanes
@click.option("--format", "form", type=click.Choice(["text", "json"]), help="The schedule as a table to keep.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def show_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], diagram: bool, program: bool, in_place: bool,
    mode: str | None, slots: int, lanes: int, form: str | None, output: Path | None,
) -> None:  # fmt: skip
    if sum((diagram, program, form is not None)) > 1:
        raise UsageError("show: choose one of --diagram, --program and --format")
    what = subject(schedule, n, dict(params), mode=mode, in_place=in_place, slots=slots, lanes=lanes)
    with source.bounded_memory():
        if program:
            shown = listing(what.program())
        elif form:
            shown = text.format(what.schedule()) if form == "text" else text.dumps(what.schedule())
        else:
            shown = render.diagram(what.schedule()) if diagram else render.step_table(what.schedule())
    shown = shown.rstrip("\n") + "\n"
    if output is None:
        click.echo(shown, nl=False)
        return
    try:
        output.write_text(shown, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error
