"""`algocc draw`: a picture of a schedule, or a page to step through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from algocc import draw
from algocc.cli import foreign, options, source
from algocc.cli.output import progress
from algocc.cli.subject import subject
from algocc.draw.picture import check_name
from algocc.errors import UsageError
from algocc.exchange import SLOTS


def step_range(_: Any, __: Any, text: str | None) -> tuple[int, int] | None:
    """The steps that --step gives.

    >>> step_range(None, None, "3"), step_range(None, None, "2..5")
    ((3, 3), (2, 5))
    """
    if text is None:
        return None
    first, dots, last = text.strip().partition("..")
    ends = (first, last if dots else first)
    if not all(end.isdecimal() and len(end) < 10 for end in ends):
        raise UsageError(f"--step {text}: wanted a step or a range, as in 3 or 2..5")
    return int(ends[0]), int(ends[1])


@click.command(
    "draw",
    help="Draw a schedule, right or wrong: who sends what to whom in each step, who holds how much of the result, and "
    "what goes over each link. A .html file is a page that steps through it, shows what a transfer carries, and follows "
    "the contributions to a chunk; it needs no network.",
)
@options.schedule
@options.one_n
@options.params
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True,
    help=f"The file to write; its name ends in {', '.join(draw.FORMS)}.",
)
@click.option("--step", "steps", callback=step_range, metavar="K", help="Only this step, or these, as in 2..5.")
@click.option(
    "--chunk", "chunks", type=click.IntRange(min=0), multiple=True, metavar="C",
    help="Only transfers into chunks of this number; repeatable.",
)
@click.option("--op", default=None, help="The operator it is meant for; without one, nothing may be added twice.")
@options.in_place
@foreign.mode
def draw_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], output: Path, steps: tuple[int, int] | None,
    chunks: tuple[int, ...], op: str | None, in_place: bool, mode: str | None,
) -> None:  # fmt: skip
    check_name(output, where="-o")
    what = subject(schedule, n, dict(params), mode=mode, in_place=in_place, slots=SLOTS, lanes=1)
    with progress(f"drawing {output}"):
        with source.bounded_memory():
            s = what.schedule()
            scene = draw.scene(s, in_place=what.in_place, op=op, view=draw.View(steps, chunks))
        data = draw.picture(scene, output.suffix)
    try:
        output.write_bytes(data)
    except OSError as error:
        raise UsageError(f"-o {output}: {error.strerror or error}") from error
    for note in ([f"wrong: {scene.failure}"] if scene.failure else []) + list(scene.left_out):
        click.echo(f"algocc: {output}: {note}", err=True)
