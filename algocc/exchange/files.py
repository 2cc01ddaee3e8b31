"""A file of another tool, whatever its format: read, then asked for its verdict or its Program in a mode."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from algocc.collective import Collective
from algocc.errors import UsageError
from algocc.exchange.assemble import assemble
from algocc.exchange.fifo import SLOTS, least_slots, work_of
from algocc.exchange.judge import Verdict, judge
from algocc.exchange.meaning import claim
from algocc.exchange.memory import settle
from algocc.exchange.msccl import Algo, read_xml
from algocc.exchange.place import Notes
from algocc.exchange.tasks import Work, topological
from algocc.exchange.values import Values, play
from algocc.program import Program

MOST_BYTES = 64 << 20
MODES = {"in-place": True, "out-of-place": False}


@dataclass(frozen=True)
class Imported:
    """A file that was read.

    name: of the algorithm. file: its own name. modes: those it declares, True for in place.
    collective: what it claims to do. notes: what was assumed.
    """

    name: str
    file: str
    modes: tuple[bool, ...]
    collective: Collective
    algo: Algo
    notes: Notes = field(default_factory=Notes)

    def work(self, slots: int) -> Work:
        """Its tasks, for connections of that many slots."""
        return work_of(self.algo, slots=slots, notes=self.notes)

    def mode(self, in_place: bool | None) -> bool:
        """The mode asked for, or the first that it declares; undeclared ones are noted."""
        return self.modes[0] if in_place is None else in_place


def load(path: str | Path) -> Imported:
    """Read an MSCCL XML file or an MSCCL++ plan.

    Raises UsageError naming file and line for whatever it can't be, or can't mean.
    """
    path = Path(path)
    try:
        with path.open("rb") as f:
            data = f.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    return read(data, path.name)


def read(data: bytes, file: str) -> Imported:
    """As `load`, of the bytes of a file."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{file}: more than {MOST_BYTES >> 20} MiB, wanted a schedule, which is smaller")
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not start:
        raise UsageError(f"{file}:1: column 1: the file is empty, wanted MSCCL XML or an MSCCL++ JSON plan")
    notes = Notes()
    if start == b"<":
        algo = read_xml(data, file, notes)
        return Imported(algo.name, file, algo.modes, claim(algo, notes), algo, notes)
    raise UsageError(f"{file}: not yet")


def program(f: Imported, *, in_place: bool | None = None, slots: int = SLOTS) -> tuple[Work, Values, Program | None]:
    """The tasks of a file in a mode, their values, and the Program; None if a fault keeps it from being one."""
    mode = f.mode(in_place)
    work, memory = settle(f.work(slots), f.collective, mode)
    order = topological(work)
    values = play(work, order, f.collective, memory)
    p = None if work.faults else assemble(work, values, f.collective, name=f.name, in_place=mode)
    return work, values, p


def verdict(
    f: Imported, *, in_place: bool | None = None, slots: int = SLOTS, idempotent: bool = False, most: int = 20
) -> Verdict:
    """What holds of a file in a mode: the one it declares, if none is asked for."""
    mode = f.mode(in_place)
    work, values, p = program(f, in_place=mode, slots=slots)
    report, unequal = judge(
        work, values, p, f.collective, name=f.name, in_place=mode, idempotent=idempotent, most=most
    )
    notes = f.notes.lines()
    if mode not in f.modes:
        notes.append(f"{f.file}: {'in place' if mode else 'out of place'} is not a mode that the header declares")
    return Verdict(replace(report), slots, least_slots(f.algo), unequal, tuple(notes))
