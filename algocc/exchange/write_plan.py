"""A schedule as an MSCCL++ plan of packets: each message has a place of its own, and carries the flag that it is there.

A rank has one threadblock. It puts what it sends as packets into scratch of the receiver, whose next operation on them
waits until they have come; nothing else is needed but a `nop` where one operation needs what another has written.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import Any

from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.exchange.from_schedule import ScheduleOps, schedule_ops
from algocc.exchange.meaning import check_meaning
from algocc.exchange.msccl import BUFFERS
from algocc.exchange.tasks import Cell
from algocc.table import Schedule

MOST_OPS = 64
MOST_CHANNELS = 16
MOST_OFFSET = 2**32 - 1
MANY = 1 << 60

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
Json = dict[str, Any]


def to_mscclpp_json(s: Schedule, *, to: str = "mscclpp", in_place: bool = False) -> str:
    """A schedule as an MSCCL++ plan, for the executor's limits, or with `to="none"` for none.

    Raises UsageError naming every limit that is exceeded, where, and what would help.
    """
    from algocc.exchange.files import read

    if to not in ("mscclpp", "none"):
        raise UsageError(f"unknown target {to!r} of a plan; known: mscclpp, none")
    plan = _plan(s, schedule_ops(s, in_place=in_place, most_count=MANY, known=NAMES), in_place)
    problems = _exceeded(plan) if to == "mscclpp" else []
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise UsageError(f"{s.name}: beyond the limits of {to}: " + "; ".join(problems[:5]) + more)
    text = _text(plan)
    check_meaning(s, lambda: read(text.encode(), s.name).collective)
    return text


def _exceeded(plan: Json) -> list[str]:
    out = []
    for g in plan["gpus"]:
        for t in g["threadblocks"]:
            where = f"rank {g['id']} threadblock {t['id']}"
            if len(t["ops"]) > MOST_OPS:
                mend = "use fewer chunks or ranks, or an algorithm of fewer steps"
                out.append(f"{where}: {len(t['ops'])} operations, the executor takes {MOST_OPS}; {mend}")
            peers = sum(len(c["channel_ids"]) for c in t["channels"])
            if peers > MOST_CHANNELS:
                out.append(f"{where}: {peers} channels, the executor takes {MOST_CHANNELS}; use fewer peers a rank")
        if g["scratch_chunks"] > MOST_OFFSET:
            out.append(f"rank {g['id']}: {g['scratch_chunks']} chunks of scratch; use fewer chunks")
    return out


def _plan(s: Schedule, work: ScheduleOps, in_place: bool) -> Json:
    c = s.collective
    peers: list[list[int]] = [sorted({op.peer for op in ops if op.peer >= 0}) for ops in work.ops]
    for rank, of in enumerate(peers):  # a channel has two ends
        for peer in of:
            if rank not in peers[peer]:
                peers[peer] = sorted([*peers[peer], rank])
    slot = _slots(s, work)
    gpus = []
    for rank in range(c.n):
        reached = sorted({op.peer for op in work.ops[rank] if op.kind == "s"})
        ids = list(range(len(peers[rank])))
        gpus.append({
            "id": rank,
            "input_chunks": c.size(Buffer.INPUT, rank),
            "output_chunks": c.size(Buffer.OUTPUT, rank),
            "scratch_chunks": slot.size[rank],
            "threadblocks": [{
                "id": 0,
                "ops": _Block(rank, work, slot, reached).ops,
                "channels": [{"channel_type": "memory", "channel_ids": ids}] if ids else [],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": list(range(len(reached)))}]
                if reached else [],
            }],
            "channels": [{"channel_type": "memory", "connected_to": peers[rank]}] if ids else [],
            "remote_buffers": [{"rank": p, "type": "s", "access_channel_types": ["memory"]} for p in reached],
            "semaphores": [],
        })  # fmt: skip
    return {
        "name": s.name, "collective": NAMES[c.name], "protocol": "LL", "inplace": in_place, "reuse_resources": False,
        "gpus": gpus, "num_threads_per_block": 1024, "use_double_scratch_buffer": True, "buffer_alignment": 16,
        "min_message_size": 0, "max_message_size": 2**64 - 1,
    }  # fmt: skip


class _slots:
    """Where the k-th message from one rank to another lands in the scratch of the receiver, and scratch in all."""

    def __init__(self, s: Schedule, work: ScheduleOps) -> None:
        self.size = [work.scratch] * s.n
        self.first: dict[tuple[int, int, int], int] = {}
        sent: Counter[tuple[int, int]] = Counter()
        for rank, ops in enumerate(work.ops):
            for op in ops:
                if op.kind == "s":
                    self.first[rank, op.peer, sent[rank, op.peer]] = self.size[op.peer]
                    self.size[op.peer] += op.size
                    sent[rank, op.peer] += 1


class _Block:
    """The operations of a rank."""

    def __init__(self, rank: int, work: ScheduleOps, slot: _slots, reached: list[int]) -> None:
        self.ops: list[Json] = []
        self.written: set[Cell] = set()
        self.read: set[Cell] = set()
        times: dict[str, Counter[int]] = defaultdict(Counter)
        todo = list(work.ops[rank])
        i = 0
        while i < len(todo):
            op = todo[i]
            if op.kind == "s":
                at = slot.first[rank, op.peer, times["s"][op.peer]]
                times["s"][op.peer] += 1
                assert op.src is not None
                self.add("ppkt", [op.src], [], op.size, remote=(reached.index(op.peer), at), round=op.round)
            elif op.peer < 0:
                srcs = [cell for cell in ((op.dst if op.kind == "re" else None), op.src) if cell]
                name = "re" if op.kind == "re" else "copy"
                self.add(name, srcs, [op.dst] if op.dst else [], op.size, swapped=op.swapped)
            else:
                packet = (rank, int(Buffer.SCRATCH), slot.first[op.peer, rank, times["r"][op.peer]])
                times["r"][op.peer] += 1
                following = todo[i + 1] if i + 1 < len(todo) else None
                forwards = following is not None and following.kind == "s" and following.src == op.dst
                remote = None
                if forwards and following is not None and following.size == op.size and (op.src or op.kind == "r"):
                    at = slot.first[rank, following.peer, times["s"][following.peer]]
                    times["s"][following.peer] += 1
                    remote = reached.index(following.peer), at
                    i += 1
                assert op.dst is not None
                round = following.round if remote and following else -1
                if op.kind == "r":
                    if remote:
                        self.add("rppkt", [], [], op.size, packet=packet, remote=remote, round=round)
                    self.add("upkt", [], [op.dst], op.size, packet=packet)
                else:
                    assert op.src is not None
                    name = "respkt" if remote else "repkt"
                    self.add(
                        name, [op.src], [op.dst], op.size, packet=packet, remote=remote, round=round, swapped=op.swapped
                    )
            i += 1

    def add(
        self, name: str, srcs: list[Cell], dsts: list[Cell], count: int, *, packet: Cell | None = None,
        remote: tuple[int, int] | None = None, round: int = -1, swapped: bool = False,
    ) -> None:  # fmt: skip
        """One operation, after a `nop` if it needs what others since the last one have written, or have to read."""
        reads = {(r, b, chunk + i) for r, b, chunk in srcs for i in range(count)}
        writes = {(r, b, chunk + i) for r, b, chunk in dsts for i in range(count)}
        if self.written & (reads | writes) or self.read & writes:
            self.ops.append({"name": "nop"})
            self.written, self.read = set(), set()
        self.written |= writes
        self.read |= reads
        op: Json = {
            "name": name,
            "src_buff": [_local(cell, count) for cell in [*srcs, *([packet] if packet else [])]],
            "dst_buff": [_local(cell, count) for cell in dsts],
        }
        if remote:
            op["dst_buff"].append({"buffer_id": remote[0], "index": remote[1], "size": count})
            op["channel_type"] = "memory"
        if len(op["src_buff"]) > 1:
            op["reduce_op"] = "sum"
        if round >= 0:
            op["round"] = round
        if swapped:
            op["order"] = "pop"
        self.ops.append(op)


def _local(cell: Cell, count: int) -> Json:
    return {"type": BUFFERS[cell[1]], "index": cell[2], "size": count}


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
