"""`algocc import` and `export`, and what verify, show and run do with a file of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from algocc import exchange, text
from algocc.cli import options, source
from algocc.cli.options import Wrapper
from algocc.cli.output import progress, say_json, say_verdict
from algocc.errors import UsageError, counted
from algocc.exchange import MODES, SLOTS, Imported
from algocc.model import PRESETS
from algocc.table import Schedule
from algocc.verifier import verify
from algocc.verifier.report import is_idempotent

LOOKED_AT = 1 << 16
"""Bytes of a file from which its format is told."""

mode: Wrapper = click.option(
    "--mode", type=click.Choice(list(MODES)), default=None,
    help="Of a file of another tool; the modes that it declares, if not given.",
)  # fmt: skip
slots: Wrapper = click.option(
    "--slots", type=click.IntRange(0, 1 << 20), default=SLOTS, show_default=True,
    help="Messages that a connection of an MSCCL file holds before the sender must wait.",
)  # fmt: skip


def is_foreign(name: str) -> bool:
    """Whether a name is that of an MSCCL file or an MSCCL++ plan."""
    path = Path(name)
    if path.suffix == ".xml":
        return True
    if path.suffix != ".json":
        return False
    try:
        with path.open("rb") as f:
            start = f.read(LOOKED_AT)
    except OSError:
        return False
    return b'"gpus"' in start or start.lstrip()[:1] == b"<"


def load(name: str, n: int | None) -> Imported:
    """Read a file of another tool, which has its own number of ranks."""
    f = exchange.load(name)
    if n is not None and n != f.collective.n:
        raise UsageError(f"{f.file}: -n {n}: the file is for {counted(f.collective.n, 'rank')}")
    return f


def modes(f: Imported, mode: str | None, in_place: bool) -> list[bool]:
    """The modes asked for, True for in place, or else those that the file declares."""
    if mode is not None:
        return [MODES[mode]]
    return [True] if in_place else list(f.modes)


def verify_file(
    name: str, *, n: int | None, mode: str | None, in_place: bool, slots: int, op: str | None, as_json: bool
) -> int:
    """Say what holds of a file, in each mode that it declares; the exit code."""
    f = load(name, n)
    idempotent = is_idempotent(op)
    with progress(f"verifying {f.file} (the first time, compiling)"), source.bounded_memory():
        found = [exchange.verdict(f, in_place=m, slots=slots, idempotent=idempotent) for m in modes(f, mode, in_place)]
    correct = all(v.correct for v in found)
    if as_json and len(found) == 1:
        say_json(found[0].to_json())
    elif as_json:
        say_json({"schedule": f.name, "correct": correct, "results": [v.to_json() for v in found]})
    else:
        say_verdict("\n".join(map(exchange.verdict_text, found)))
    return 0 if correct else 1


@click.command("import", help="Read an MSCCL XML file or an MSCCL++ plan, and keep it as a schedule of algocc.")
@click.argument("file")
@mode
@options.in_place
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the schedule here, as JSON or, in .txt, text."
)
@click.option("--unverified", is_flag=True, help="Write it even if it is wrong.")
@options.as_json
def import_command(
    file: str, mode: str | None, in_place: bool, output: Path | None, unverified: bool, as_json: bool
) -> int:  # fmt: skip
    f = load(file, None)
    chosen = modes(f, mode, in_place)[0]
    with progress(f"importing {f.file}"), source.bounded_memory():
        v = exchange.verdict(f, in_place=chosen)
        s = exchange.schedule(f, in_place=chosen) if output and (v.correct or unverified) else None
    if as_json:
        say_json(v.to_json() | {"file": f.file, "modes": [_word(m) for m in f.modes], "written": s and str(output)})
    else:
        say_verdict(f"{f.file}: {f.collective}, for {' and '.join(map(_word, f.modes))}\n" + exchange.verdict_text(v))
    if s is not None and output is not None:
        text.dump(s, output)
        click.echo(f"algocc: wrote {output}: {counted(len(s), 'row')}", err=True)
    elif output is not None:
        click.echo(f"algocc: {f.file} is wrong, so nothing is written; --unverified writes it all the same", err=True)
    return 0 if v.correct else 1


@click.command("export", help="Write a schedule for another tool, within the limits of what is to read it.")
@options.schedule
@options.one_n
@options.params
@click.option(
    "--to", required=True, metavar="FORMAT", help="; ".join(f"{name}: {f.help}" for name, f in exchange.FORMATS.items())
)
@click.option("--target", default=None, help="The runtime whose limits it must keep; none for no limits.")
@options.in_place
@click.option(
    "--channels", type=int, default=1, show_default=True, help="Of MSCCL: connections for each pair of ranks."
)
@click.option("--protocol", default="Simple", show_default=True, help="Of MSCCL: Simple, LL or LL128; of plans Simple or LL.")
@click.option("--min-bytes", type=options.byte_count, default="0", help="Of MSCCL: the least size it is for.")
@click.option("--max-bytes", type=options.byte_count, default="0", help="Of MSCCL: the largest; 0 for no limit.")
@click.option(
    "--size", type=options.byte_count, default="64M", show_default=True, help="Of simulators and timelines: bytes of the vector."
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Of a timeline: α, β and γ of a kind of machine.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file; of several, their beginning."
)
@click.option("--unverified", is_flag=True, help="Write it even if it is wrong.")
def export_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], to: str, target: str | None, in_place: bool,
    channels: int, protocol: str, min_bytes: int, max_bytes: int, size: int, preset: str | None, output: Path | None,
    unverified: bool,
) -> int:  # fmt: skip
    with source.bounded_memory():
        s = _schedule(schedule, n, dict(params), in_place)
        report = verify(s, in_place=in_place, program=False)
        if not report.correct and not unverified:
            click.echo(f"algocc: {s.name} is wrong, so it is not written: {report.failures[0]}", err=True)
            return 1
        files = exchange.export(
            s, to, target=target, in_place=in_place, size=size, channels=channels, protocol=protocol,
            window=(min_bytes, max_bytes), machine=PRESETS[preset] if preset else None,
        )  # fmt: skip
    if output is None:
        if list(files) != [""]:
            raise UsageError(f"export --to {to}: {len(files)} files: say where with -o PREFIX")
        click.echo(files[""].decode(), nl=False)
        return 0
    for suffix, data in files.items():
        path = Path(f"{output}{suffix}")
        try:
            path.write_bytes(data)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
    return 0


def _schedule(name: str, n: int | None, params: dict[str, Any], in_place: bool) -> Schedule:
    if is_foreign(name):
        return exchange.schedule(load(name, n), in_place=in_place)
    algorithm = source.load(name)
    return source.build(algorithm, source.ranks(algorithm, n), params)


def _word(in_place: bool) -> str:
    return "in place" if in_place else "out of place"
