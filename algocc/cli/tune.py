"""`algocc tune`: measure which schedule is fastest on this machine, for `schedule="auto"`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import click

from algocc.bounds import canonical
from algocc.cli import options
from algocc.cli.bench import mpi_rank
from algocc.cli.output import progress, say_json
from algocc.errors import UsageError
from algocc.runtime import Communicator, spawn
from algocc.runtime.choice import table_file, tuned
from algocc.runtime.sweep import check_swept, tuned_rows

TUNED = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")
SIZES = (1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20)


@click.command("tune", help="Measure which schedule is fastest on this machine, by size, for schedule=auto.")
@click.argument("collectives", nargs=-1)
@options.several_n
@click.option("--quick", is_flag=True, help="Fewer sizes.")
@options.as_json
def tune_command(collectives: tuple[str, ...], ns: list[int] | None, quick: bool, as_json: bool) -> int:
    if mpi_rank() is not None:
        raise UsageError("tune starts processes of its own: run it without mpiexec, once on each kind of machine")
    names = [canonical(name) for name in collectives] or list(TUNED)
    for name in names:
        check_swept(name)
    path = table_file()
    table: dict[str, dict[str, Any]] = {n: dict(rows) for n, rows in tuned().items()}
    for n in ns or [2, 4]:
        for name in names:
            with progress(f"measuring the schedules of {name} on {n} processes"):
                sizes = SIZES[::2] if quick else SIZES
                table.setdefault(str(n), {})[name] = spawn(_measure, n, name, sizes)[0]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps({"cores": os.cpu_count(), "ranks": table}, indent=1) + "\n")
        fresh.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}; set ALGOCC_TUNING to another file") from error
    if as_json:
        say_json({"file": str(path), "ranks": table})
        return 0
    for n in ns or [2, 4]:
        for name in names:
            low = 0
            for most, chosen in table[str(n)][name]:
                upto = f"up to {most} B" if most else f"above {low} B" if low else "any size"
                click.echo(f"{name:<16} n={n:<3} {upto:<22} {chosen}")
                low = most
    click.echo(f"written to {path}")
    return 0


def _measure(comm: Communicator, name: str, sizes: Sequence[int]) -> list[tuple[int, str]]:
    return tuned_rows(comm, name, sizes)
