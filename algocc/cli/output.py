"""How commands speak: JSON or text on stdout, progress on a terminal only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


def say_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value))


def say_verdict(text: str) -> None:
    """A report, its verdict in colour on a terminal."""
    for line in text.split("\n"):
        word = next((w for w in ("NO", "WRONG") if f" {w}" in line), "")
        if word:
            line = line.replace(word, click.style(word, fg="red", bold=True), 1)
        elif line.startswith("  correct "):
            line = line.replace("yes", click.style("yes", fg="green", bold=True), 1)
        click.echo(line.replace(": optimal", ": " + click.style("optimal", fg="green")))


def aligned(rows: list[tuple[str, ...]], *, indent: str = "  ") -> str:
    """Columns of equal width, two spaces between them; the last is as long as it likes."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return "\n".join(
        indent + "  ".join([*(w.ljust(k) for w, k in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    )


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar, or for an unknown total a spinner, while the body runs; call what it gives after each part.

    Nothing if stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}")]
    columns += [BarColumn(), MofNCompleteColumn()] if total is not None else []
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
