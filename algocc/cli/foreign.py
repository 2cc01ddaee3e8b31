"""What commands do with a file of another tool."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path

import click

from algocc import exchange
from algocc.cli import source
from algocc.cli.options import Wrapper
from algocc.cli.output import progress, say_json, say_verdict
from algocc.errors import UsageError, counted
from algocc.exchange import MODES, SLOTS, Imported
from algocc.exchange.msccl import Algo
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


def load(
    name: str, ns: Sequence[int | None] = (), *, params: Sized = (), lanes: int = 1, slots: int = SLOTS
) -> Imported:
    """Read a file of another tool, which has its own number of ranks, its lanes, and no parameters."""
    f = exchange.load(name)
    for n in ns:
        if n is not None and n != f.collective.n:
            raise UsageError(f"{f.file}: -n {n}: the file is for {counted(f.collective.n, 'rank')}")
    if params:
        raise UsageError(f"{f.file}: -p: a file of another tool takes no parameters; a schedule does")
    if lanes != 1:
        raise UsageError(f"{f.file}: --lanes {lanes}: the file has lanes of its own, its threadblocks")
    if slots != SLOTS and not isinstance(f.source, Algo):
        raise UsageError(f"{f.file}: --slots {slots}: an MSCCL++ plan has no connections with slots; MSCCL XML has")
    return f


def one_mode(mode: str | None, in_place: bool) -> bool | None:
    """The mode asked for, True for in place; None if none is."""
    if mode is not None and in_place and not MODES[mode]:
        raise UsageError(f"--in-place with --mode {mode}: choose one")
    return MODES[mode] if mode is not None else in_place or None


def modes(f: Imported, mode: str | None, in_place: bool) -> list[bool]:
    """The modes asked for, True for in place, or else those that the file declares."""
    asked = one_mode(mode, in_place)
    return list(f.modes) if asked is None else [asked]


def own_only(name: str, slots: int) -> None:
    """Refuse for a schedule of our own what only a file of another tool has."""
    if slots != SLOTS:
        raise UsageError(f"{name}: --slots {slots}: only an MSCCL file has connections with slots")


def verify_file(
    f: Imported, *, mode: str | None, in_place: bool, slots: int, op: str | None, reduction_order: bool, as_json: bool
) -> int:
    """Say what holds of a file, in each mode that it declares; the exit code."""
    idempotent = is_idempotent(op)
    with progress(f"verifying {f.file} (the first time, compiling)"), source.bounded_memory():
        found = [
            exchange.verdict(f, in_place=m, slots=slots, idempotent=idempotent, reduction_order=reduction_order)
            for m in modes(f, mode, in_place)
        ]
    correct = all(v.correct for v in found)
    if as_json and len(found) == 1:
        say_json(found[0].to_json())
    elif as_json:
        say_json({"schedule": f.name, "correct": correct, "results": [v.to_json() for v in found]})
    else:
        say_verdict("\n".join(map(exchange.verdict_text, found)))
    return 0 if correct else 1
