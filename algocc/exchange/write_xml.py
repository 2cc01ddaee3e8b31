"""An algorithm as MSCCL XML, for a target whose limits it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from xml.sax.saxutils import quoteattr

from algocc.exchange.fifo import least_slots
from algocc.exchange.from_schedule import from_schedule
from algocc.exchange.meaning import check_meaning, claim
from algocc.exchange.msccl import BUFFERS, Algo, Step
from algocc.exchange.targets import exceeded, refuse, target
from algocc.place import Notes
from algocc.table import Schedule


def to_msccl_xml(
    s: Schedule, *, to: str = "msccl-executor", in_place: bool = False, protocol: str = "Simple", channels: int = 1,
    window: tuple[int, int] = (0, 0),
) -> str:  # fmt: skip
    """A schedule as MSCCL XML.

    to: the runtime whose limits and spelling it must keep, as in `targets.TARGETS`.

    Raises UsageError naming every limit that is exceeded, where, and what would help.
    """
    t = target(to)
    problems: list[str] = []
    for forward in (True, False):
        algo = from_schedule(
            s, in_place=in_place, protocol=protocol, channels=channels, forward=forward, most_count=t.chunks,
            window=window,
        )  # fmt: skip
        problems = exceeded(algo, t)
        least = least_slots(algo)
        if least is None or least > t.slots:
            need = "a deadlock at any depth" if least is None else f"{least} slots a connection"
            problems.append(f"algo: {need}, the target has {t.slots}; use fewer chunks or more channels")
        if not problems:
            check_meaning(s, partial(claim, algo, Notes()))
            return format_xml(algo, scatter=t.scatter)
    refuse(s.name, to, problems)
    raise AssertionError("what exceeds no limit was returned")


def format_xml(algo: Algo, *, scatter: str = "reducescatter") -> str:
    """The text of an algorithm."""
    coll = scatter if algo.coll in ("reducescatter", "reduce_scatter") else algo.coll
    head = {
        "name": algo.name,
        "proto": algo.protocol,
        "nchannels": algo.channels,
        "nchunksperloop": algo.loop,
        "ngpus": len(algo.gpus),
        "coll": coll,
        "inplace": int(True in algo.modes),
        "outofplace": int(False in algo.modes),
        "minBytes": algo.window[0],
        "maxBytes": algo.window[1],
    }
    lines = [f"<algo{_attributes(head)}>"]
    for rank, gpu in enumerate(algo.gpus):
        sizes = {f"{letter}_chunks": size for letter, size in zip(BUFFERS, gpu.chunks, strict=True)}
        lines.append(f"  <gpu{_attributes({'id': rank} | sizes)}>")
        for i, block in enumerate(gpu.blocks):
            ends = {"id": i, "send": block.send, "recv": block.recv, "chan": block.channel}
            lines.append(f"    <tb{_attributes(ends)}>")
            lines += [f"      <step{_attributes(_step(j, step))}/>" for j, step in enumerate(block.steps)]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _step(j: int, step: Step) -> dict[str, object]:
    src, dst = step.src or step.dst or (0, 0), step.dst or step.src or (0, 0)
    block, index = step.depends or (-1, -1)
    values: dict[str, object] = {
        "s": j,
        "type": step.kind,
        "srcbuf": BUFFERS[src[0]],
        "srcoff": src[1],
        "dstbuf": BUFFERS[dst[0]],
        "dstoff": dst[1],
        "cnt": step.count,
        "depid": block,
        "deps": index,
        "hasdep": int(step.announces),
    }
    values |= {"round": step.round} if step.round >= 0 else {}
    return values | ({"order": "pop"} if step.swapped else {})


def _attributes(values: Mapping[str, object]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())
