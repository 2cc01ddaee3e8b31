"""`algocc show`: what a schedule does, for people, or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from algocc import render, text
from algocc.cli import options, source
from algocc.errors import UsageError
from algocc.lowering import lower
from algocc.program import listing


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
            shown = listing(lower(s, in_place=in_place, lanes=lanes))
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
