"""A file of another tool, whatever its format: read, then asked for its verdict or its Program in a mode."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from algocc.collective import Collective
from algocc.errors import ScheduleError, UsageError
from algocc.exchange.assemble import assemble
from algocc.exchange.fifo import SLOTS, least_slots, work_of
from algocc.exchange.judge import Verdict, equal_chunks, fault_failures, judge, misfits, wrong_outputs
from algocc.exchange.meaning import claim, meaning
from algocc.exchange.memory import settle
from algocc.exchange.msccl import Algo, read_xml
from algocc.exchange.plan import Plan, read_plan
from algocc.exchange.plan_work import plan_work, traffic
from algocc.exchange.tasks import Work, topological
from algocc.exchange.to_schedule import to_schedule
from algocc.exchange.values import Values, play
from algocc.place import Notes
from algocc.program import Program
from algocc.table import Failure, Schedule
from algocc.verifier import verify, verify_program

MOST_BYTES = 64 << 20
MOST_LANES = 1 << 14
MOST_CHUNKS_MOVED = 1 << 24
MANY_SLOTS = 1 << 30
MODES = {"in-place": True, "out-of-place": False}


@dataclass(frozen=True)
class Imported:
    """A file that was read.

    name: of the algorithm. file: its own name. modes: those it declares, True for in place.
    collective: what it claims to do. source: what it says. notes: what was assumed.
    """

    name: str
    file: str
    modes: tuple[bool, ...]
    collective: Collective
    source: Algo | Plan
    notes: Notes = field(default_factory=Notes)

    def work(self, slots: int = SLOTS) -> Work:
        """Its tasks; an XML file's connections have that many slots."""
        if isinstance(self.source, Algo):
            return work_of(self.source, slots=slots, notes=self.notes)
        return plan_work(self.source, self.notes)

    @property
    def channels(self) -> int:
        """Channels that it needs: connections in parallel of XML, ends of a threadblock of a plan."""
        if isinstance(self.source, Algo):
            used = (b.channel + 1 for g in self.source.gpus for b in g.blocks)
            return max(self.source.channels, *used, 0)
        return max((k for g in self.source.gpus for k in g.channels), default=0)

    def declines(self, size: int, *, most_channels: int | None = None) -> str | None:
        """Why a runtime would not choose the file for a vector of `size` bytes; None if it would.

        Bounds are inclusive; an upper one of 0 is none. most_channels: that it may use.
        """
        if most_channels is not None and self.channels > most_channels:
            return f"{self.file}: needs {self.channels} channels, allowed are {most_channels}"
        least, most = self.source.window
        if size < least or (most and size > most):
            return f"{self.file}: meant for {least} to {most or 'any number of'} bytes, not for {size}"
        return None

    def __repr__(self) -> str:
        return f"<Imported {self.file}: {self.name}, {self.collective}>"


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
    """As `load`, of the bytes of a file called `file`."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{file}: more than {MOST_BYTES >> 20} MiB, wanted a schedule, which is smaller")
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not start:
        raise UsageError(f"{file}:1: column 1: the file is empty, wanted MSCCL XML or an MSCCL++ JSON plan")
    notes = Notes()
    if start == b"<":
        algo = read_xml(data, file, notes)
        return Imported(algo.name, file, algo.modes, claim(algo, notes), algo, notes)
    plan = read_plan(data, file, notes)
    c = meaning(plan.coll, [g.chunks[:2] for g in plan.gpus], traffic(plan), plan.place, notes)
    return Imported(plan.name, file, (plan.in_place,), c, plan, notes)


@contextmanager
def unswept() -> Iterator[None]:
    """No garbage collection while the body makes a great many objects that stay: it would find nothing."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def tasks_of(f: Imported, *, in_place: bool | None = None, slots: int = SLOTS) -> tuple[Work, Values, Program | None]:
    """The tasks of a file in a mode, their values, and the Program; None if a fault keeps it from being one."""
    mode = _mode(f, in_place)
    work = f.work(slots)
    _check_size(f, work)
    work, memory = settle(work, f.collective, mode)
    values = play(work, topological(work), f.collective, memory)
    p = None if work.faults else assemble(work, values, f.collective, name=f.name, in_place=mode)
    return work, values, p


def _mode(f: Imported, in_place: bool | None) -> bool:
    """The mode asked for, or the first that the file declares."""
    mode = f.modes[0] if in_place is None else in_place
    if mode and not len(f.collective.alias):
        raise UsageError(
            f"{f.file}: {f.collective.name} has no in-place form: no input shares memory with an output; it is for out of place"
        )
    return mode


def _check_size(f: Imported, work: Work) -> None:
    """Raise UsageError for files that would take hours or gigabytes to judge."""
    chunks = sum(task.count * (len(task.srcs) + len(task.dsts)) for task in work.tasks)
    for found, most, what in (
        (len(work.lanes), MOST_LANES, "threadblocks"),
        (chunks, MOST_CHUNKS_MOVED, "chunks read and written"),
        (work.scratch * f.collective.n, MOST_CHUNKS_MOVED, "chunks of scratch"),
    ):
        if found > most:
            raise UsageError(f"{f.file}: {found} {what}, wanted at most {most}: it is too large to judge")


def program(f: Imported, *, in_place: bool | None = None, slots: int = SLOTS) -> Program:
    """The Program of a file, in the mode asked for or the first that it declares.

    Raises ScheduleError if its steps do not fit together.
    """
    work, _, p = tasks_of(f, in_place=in_place, slots=slots)
    if p is None:
        raise ScheduleError(f"{f.file}: {fault_failures(work.faults)[0]}")
    return p


def verdict(
    f: Imported, *, in_place: bool | None = None, slots: int = SLOTS, idempotent: bool = False,
    reduction_order: bool = False, most: int = 20,
) -> Verdict:  # fmt: skip
    """What holds of a file, in the mode asked for or the first that it declares.

    slots: of each connection of an XML file. idempotent: for operators that do not mind a contribution added twice.
    reduction_order: find out in what order contributions are combined, of a file that has a schedule; a note if it has none.
    most: failures reported.
    """
    mode = _mode(f, in_place)
    with unswept():
        v = _verdict(f, mode, slots, idempotent, most)
    return _ordered(f, v, idempotent) if reduction_order and v.correct else v


def _ordered(f: Imported, v: Verdict, idempotent: bool) -> Verdict:
    """The verdict with the order of reductions, which is that of the schedule that the file amounts to."""
    try:
        s = schedule(f, in_place=v.report.in_place)
    except UsageError as error:
        return replace(v, notes=(*v.notes, f"the order of reductions is not known: {error}"))
    r = verify(s, in_place=v.report.in_place, op="max" if idempotent else None, program=False, reduction_order=True)
    return replace(v, report=replace(v.report, order=r.order, order_text=r.order_text))


def _verdict(f: Imported, mode: bool, slots: int, idempotent: bool, most: int) -> Verdict:
    work, values, p = tasks_of(f, in_place=mode, slots=slots)
    report, unequal = judge(work, values, p, f.collective, name=f.name, in_place=mode, idempotent=idempotent, most=most)
    notes = f.notes.lines()
    odd = misfits(work, values, f.collective)
    if odd is not None:
        notes.append(
            f"{odd}: a chunk takes the place of another, or is added to it: it runs only for counts divisible by {f.collective.chunks}"
        )
    if mode not in f.modes:
        notes.append(f"{f.file}: {'in place' if mode else 'out of place'} is not a mode that the file declares")
    if isinstance(f.source, Plan):
        return Verdict(report, 0, None if work.faults else 0, unequal, tuple(notes))
    return Verdict(report, slots, least_slots(f.source, f.work(slots) if slots else None), unequal, tuple(notes))


def schedule(f: Imported, *, in_place: bool | None = None) -> Schedule:
    """The schedule that a file amounts to, for connections with room for every message.

    Raises UsageError if it is none: its steps do not fit together, it uses a switch, its counts are not in it, or it
    adds chunks of different lengths; ScheduleError if it races.
    """
    mode = _mode(f, in_place)
    if f.source.coll == "alltoallv":
        raise UsageError(
            f"{f.file}: no schedule: the counts of alltoallv are not in the file, and its blocks may be of other lengths; "
            'if they are all equal, say coll="alltoall"'
        )
    work, values, p = tasks_of(f, in_place=mode, slots=MANY_SLOTS)
    s = to_schedule(work, f.collective, f.name)
    race = _race(p, f.collective)
    if race and isinstance(f.source, Algo):  # it may be in order only as senders wait for room
        race = _race(tasks_of(f, in_place=mode)[2], f.collective)
    if race:
        raise ScheduleError(f"{f.file}: no schedule: it races, so no order of its steps is the right one: {race}")
    odd = misfits(work, values, f.collective, copies=False)
    if odd is not None and not wrong_outputs(values, f.collective):
        raise UsageError(
            f"{odd}: no schedule: it adds data of another length, which goes unnoticed as no output needs it and a file's "
            "chunks are all equal; those of a schedule may differ by an element: leave it out"
        )
    return s


def _race(p: Program | None, c: Collective) -> Failure | None:
    """The first two accesses of a Program that nothing orders; None if there are none."""
    if p is None:
        return None
    checked = verify_program(replace(p, collective=equal_chunks(c)), idempotent=True, most=1000)
    return next((x for x in checked.failures if x.level == "race"), None) if not checked.race_free else None
