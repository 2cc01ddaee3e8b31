"""A schedule as an MSCCL++ plan, for an executor whose limits it keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from algocc.collective import Buffer
from algocc.errors import UsageError, near
from algocc.exchange.from_schedule import schedule_ops
from algocc.exchange.meaning import check_meaning
from algocc.exchange.plan_packets import packed
from algocc.exchange.plan_pulls import pulled
from algocc.exchange.targets import MANY, refuse
from algocc.table import Schedule

NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "all_to_all": "alltoall",
    "gather": "gather",
    "scatter": "scatter",
    "send_recv": "sendrecv",
}
PROTOCOLS = {"Simple": pulled, "LL": packed}
"""What makes the threadblocks in each protocol."""
Json = dict[str, Any]


class PlanTarget(NamedTuple):
    """An executor of plans: what it takes of a threadblock, of an operation and of a rank."""

    ops: int = 64
    block_channels: int = 16
    op_channels: int = 8
    op_buffers: int = 10
    barriers: int = 16
    semaphores: int = 16
    offset: int = 2**32 - 1


PLAN_TARGETS = {"mscclpp": PlanTarget(), "none": PlanTarget(*[MANY] * 7)}
"""Executors by name; `none` has no limits, for files that only algocc will read."""


def to_mscclpp_json(
    s: Schedule, *, to: str = "mscclpp", in_place: bool = False, protocol: str = "Simple", channels: int = 1,
    window: tuple[int, int] = (0, 0),
) -> str:  # fmt: skip
    """A schedule as an MSCCL++ plan.

    to: the executor whose limits it must keep, as in `PLAN_TARGETS`. channels: of Simple, connections of each pair.
    window: bytes that it is for, least and most; 0 for no most.

    Raises UsageError naming every limit that is exceeded, where, and what would help.
    """
    from algocc.exchange.files import read

    if protocol not in PROTOCOLS:
        raise UsageError(f"protocol {protocol!r} of a plan{near(protocol, PROTOCOLS)}; known: {', '.join(PROTOCOLS)}")
    if not 1 <= channels <= (1 if protocol == "LL" else 32):
        wanted = "1, a packet needs no channel" if protocol == "LL" else "1 to 32"
        raise UsageError(f"channels={channels}: a plan in {protocol} has {wanted}")
    c = s.collective
    work = schedule_ops(s, in_place=in_place, channels=channels, most_count=MANY, known=NAMES)
    gpus = [
        {"id": rank, "input_chunks": c.size(Buffer.INPUT, rank), "output_chunks": c.size(Buffer.OUTPUT, rank)} | gpu
        for rank, gpu in enumerate(PROTOCOLS[protocol](work))
    ]
    plan = {
        "name": s.name, "collective": NAMES[c.name], "protocol": protocol, "inplace": in_place, "reuse_resources": False,
        "gpus": gpus, "num_threads_per_block": 1024, "use_double_scratch_buffer": protocol == "LL",
        "buffer_alignment": 16, "min_message_size": window[0], "max_message_size": window[1] or 2**64 - 1,
    }  # fmt: skip
    refuse(s.name, to, list(_exceeded(plan, PLAN_TARGETS[to])))
    text = _text(plan)
    check_meaning(s, lambda: read(text.encode(), s.name).collective)
    return text


def _exceeded(plan: Json, t: PlanTarget) -> Iterator[str]:
    """Each limit of the target that the plan exceeds: where, how much, and what would help."""
    other = "--protocol LL" if plan["protocol"] == "Simple" else "--protocol Simple"
    fewer = f"use fewer chunks or ranks, more channels, {other} or an algorithm of fewer steps"

    def over(where: str, found: int, most: int, what: str, mend: str) -> Iterator[str]:
        if found > most:
            yield f"{where}: {found} {what}, the target takes {most}; {mend}"

    for g in plan["gpus"]:
        rank = f"rank {g['id']}"
        yield from over(rank, len(g["semaphores"]), t.semaphores, "semaphores", "use fewer peers a rank or channels")
        for size in ("input_chunks", "output_chunks", "scratch_chunks"):
            yield from over(rank, g[size], t.offset, size.replace("_", " "), "use fewer chunks")
        for block in g["threadblocks"]:
            where = f"{rank} threadblock {block['id']}"
            yield from over(where, len(block["ops"]), t.ops, "operations", fewer)
            ends = sum(len(c["channel_ids"]) for c in block["channels"])
            yield from over(where, ends, t.block_channels, "channels", "use fewer peers a rank")
            for j, op in enumerate(block["ops"]):
                at = f"{where} operation {j}"
                yield from over(at, len(op.get("channel_ids", [])), t.op_channels, "channels", "use fewer peers a rank")
                buffers = len(op.get("src_buff", [])) + len(op.get("dst_buff", []))
                yield from over(at, buffers, t.op_buffers, "buffers", "reduce fewer at once")
                yield from over(at, op.get("barrier_id", -1) + 1, t.barriers, "barriers", "use fewer threadblocks")


def _text(plan: Json) -> str:
    """JSON with a line for each operation."""
    marks: list[str] = []

    def mark(value: Any) -> Any:
        if isinstance(value, dict) and "name" in value and "gpus" not in value:
            marks.append(json.dumps(value))
            return f"@{len(marks) - 1}@"
        if isinstance(value, dict):
            return {k: mark(v) for k, v in value.items()}
        return [mark(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(mark(plan), indent=1)
    return re.sub(r'"@(\d+)@"', lambda match: marks[int(match[1])], text) + "\n"
