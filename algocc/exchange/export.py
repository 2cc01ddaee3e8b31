"""What `algocc export` can write, as a table: the format, its targets, and what writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from algocc.errors import ScheduleError, UsageError, near
from algocc.exchange.chakra import to_chakra
from algocc.exchange.goal import to_goal
from algocc.exchange.pictures import to_graphviz, to_perfetto
from algocc.exchange.targets import TARGETS
from algocc.exchange.write_plan import to_mscclpp_json
from algocc.exchange.write_xml import to_msccl_xml
from algocc.model import Machine
from algocc.table import Schedule
from algocc.verifier import verify

Files = dict[str, bytes]
"""Contents by name; `""` is the only file there is."""


class Options(NamedTuple):
    """What a format may want to know.

    target: the runtime. in_place: the mode. size: bytes of the vector. channels, protocol, window: of MSCCL.
    machine: that a timeline is for.
    """

    target: str
    in_place: bool = False
    size: int = 64 << 20
    channels: int = 1
    protocol: str = "Simple"
    window: tuple[int, int] = (0, 0)
    machine: Machine | None = None


class Format(NamedTuple):
    """A format.

    targets: the runtimes that read it, the default first. suffix: of its files. write: does it.
    """

    targets: tuple[str, ...]
    suffix: str
    help: str
    write: Callable[[Schedule, Options], Files]


def _perfetto(s: Schedule, o: Options) -> Files:
    return {"": to_perfetto(s, size=o.size, machine=o.machine).encode()}


def _xml(s: Schedule, o: Options) -> Files:
    text = to_msccl_xml(
        s, to=o.target, in_place=o.in_place, protocol=o.protocol, channels=o.channels, window=o.window
    )  # fmt: skip
    return {"": text.encode()}


def _plan(s: Schedule, o: Options) -> Files:
    text = to_mscclpp_json(
        s, to=o.target, in_place=o.in_place, protocol=o.protocol, channels=o.channels, window=o.window
    )  # fmt: skip
    return {"": text.encode()}


def _chakra(s: Schedule, o: Options) -> Files:
    traces = to_chakra(s, size=o.size, in_place=o.in_place)
    return {f".{rank}.et": trace for rank, trace in enumerate(traces)}


def _goal(s: Schedule, o: Options) -> Files:
    return {"": to_goal(s, size=o.size, in_place=o.in_place).encode()}


FORMATS = {
    "msccl-xml": Format(
        ("msccl-executor", *(t for t in TARGETS if t != "msccl-executor")), ".xml", "MSCCL, RCCL", _xml
    ),
    "mscclpp-json": Format(("mscclpp", "none"), ".json", "an MSCCL++ plan", _plan),
    "chakra": Format(("astra-sim",), "", "execution traces for ASTRA-sim, a file a rank", _chakra),
    "goal": Format(("loggopsim",), ".goal", "LogGOPSim", _goal),
    "perfetto": Format(("perfetto",), ".json", "a timeline, simulated", _perfetto),
    "graphviz": Format(("dot",), ".dot", "a graph", lambda s, o: {"": to_graphviz(s).encode()}),
}


def export(
    s: Schedule, to: str, *, target: str | None = None, in_place: bool = False, size: int = 64 << 20, channels: int = 1,
    protocol: str = "Simple", window: tuple[int, int] = (0, 0), machine: Machine | None = None,
) -> Files:  # fmt: skip
    """A schedule in a format, checked against the limits of a target.

    Raises UsageError for what the format can't say, and for every limit that is exceeded; ScheduleError for a schedule
    that races or is malformed. Whether it does what its collective demands is not looked at.

    >>> from algocc.schedules.ring import ring
    >>> export(ring(2), "msccl-xml", in_place=True)[""].decode().splitlines()[0][:40]
    '<algo name="ring" proto="Simple" nchanne'
    """
    if to not in FORMATS:
        raise UsageError(f"unknown format {to!r}{near(to, FORMATS)}; known: {', '.join(FORMATS)}")
    f = FORMATS[to]
    target = target or f.targets[0]
    if target not in f.targets:
        raise UsageError(f"{to} is not for {target!r}{near(target, f.targets)}; its targets: {', '.join(f.targets)}")
    races = [failure for failure in verify(s, in_place=in_place, program=False).failures if failure.level == "race"]
    if races:
        raise ScheduleError(f"{s.name}: it races, so no order of its steps is the right one: {races[0]}")
    return f.write(s, Options(target, in_place, size, channels, protocol, window, machine))
