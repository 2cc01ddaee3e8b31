"""`algocc import` and `export`: from a file of another tool to a schedule, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from algocc import exchange, text
from algocc.cli import foreign, options, source
from algocc.cli.output import progress, say_json, say_verdict
from algocc.cli.subject import subject
from algocc.errors import UsageError, counted
from algocc.exchange import SLOTS
from algocc.model import PRESETS
from algocc.verifier import verify


@click.command("import", help="Read an MSCCL XML file or an MSCCL++ plan, and keep it as a schedule of algocc.")
@click.argument("file")
@foreign.mode
@options.in_place
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the schedule here, as JSON or, in .txt, text."
)
@click.option("--unverified", is_flag=True, help="Write it even if it is wrong.")
@options.as_json
def import_command(
    file: str, mode: str | None, in_place: bool, output: Path | None, unverified: bool, as_json: bool
) -> int:  # fmt: skip
    f = foreign.load(file)
    chosen = foreign.modes(f, mode, in_place)[0]
    if output is not None and output.suffix not in (".json", ".txt"):
        raise UsageError(f"-o {output}: a schedule is kept as JSON or text: its name ends in .json or .txt")
    check_other(file, output)
    with progress(f"importing {f.file}"), source.bounded_memory():
        v = exchange.verdict(f, in_place=chosen)
    if not as_json:
        say_verdict(f"{f.file}: {f.collective}, for {' and '.join(map(_word, f.modes))}\n" + exchange.verdict_text(v))
    with progress(f"importing {f.file}"), source.bounded_memory():
        s = exchange.schedule(f, in_place=chosen) if output and (v.correct or unverified) else None
    if as_json:
        say_json(v.to_json() | {"file": f.file, "modes": [_word(m) for m in f.modes], "written": s and str(output)})
    if s is not None and output is not None:
        text.dump(s, output)
        how = ", for in place: `algocc verify` and the like need --in-place" if chosen else ""
        click.echo(f"algocc: wrote {output}: {counted(len(s), 'row')}{how}", err=True)
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
@foreign.mode
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
    mode: str | None, channels: int, protocol: str, min_bytes: int, max_bytes: int, size: int, preset: str | None, output: Path | None,
    unverified: bool,
) -> int:  # fmt: skip
    check_other(schedule, output)
    with source.bounded_memory():
        what = subject(schedule, n, dict(params), mode=mode, in_place=in_place, slots=SLOTS, lanes=1)
        report = what.judge(None)[0] if what.file else verify(what.schedule(), in_place=what.in_place, program=False)
        if not report.correct and not unverified:
            click.echo(f"algocc: {what.name} is wrong, so it is not written: {report.failures[0]}", err=True)
            return 1
        files = exchange.export(
            what.schedule(), to, target=target, in_place=what.in_place, size=size, channels=channels, protocol=protocol,
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


def check_other(name: str, output: Path | None) -> None:
    """Refuse to write over the file that is read."""
    if output is not None and output.exists() and Path(name).exists() and output.samefile(name):
        raise UsageError(f"-o {output}: is the file that is read; choose another name")


def _word(in_place: bool) -> str:
    return "in place" if in_place else "out of place"
