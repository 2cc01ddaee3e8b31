"""Threadblocks of a plan in the LL protocol: each message has a place of its own, and carries the flag that it is there.

A rank has one threadblock. It puts what it sends as packets into scratch of the receiver, whose next operation on them
waits until they have come; nothing else is needed but a `nop` where one operation needs what another has written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from algocc.collective import Buffer
from algocc.exchange.from_schedule import ScheduleOps, cells_of
from algocc.exchange.msccl import BUFFERS
from algocc.exchange.tasks import Cell

Json = dict[str, Any]


def packed(work: ScheduleOps) -> list[Json]:
    """What each gpu holds, but for its buffers."""
    peers: list[list[int]] = [sorted({op.peer for op in ops if op.peer >= 0}) for ops in work.ops]
    for rank, of in enumerate(peers):  # a channel has two ends
        for peer in of:
            if rank not in peers[peer]:
                peers[peer] = sorted([*peers[peer], rank])
    slot = _Slots(work)
    gpus = []
    for rank, ops in enumerate(work.ops):
        reached = sorted({op.peer for op in ops if op.kind == "s"})
        ids = list(range(len(peers[rank])))
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": list(range(len(reached)))}] if reached else []
        gpus.append({
            "scratch_chunks": slot.size[rank],
            "threadblocks": [{
                "id": 0,
                "ops": _Block(rank, work, slot, reached).ops,
                "channels": [{"channel_type": "memory", "channel_ids": ids}] if ids else [],
                "remote_buffer_refs": refs,
            }],
            "channels": [{"channel_type": "memory", "connected_to": peers[rank]}] if ids else [],
            "remote_buffers": [{"rank": p, "type": "s", "access_channel_types": ["memory"]} for p in reached],
            "semaphores": [],
        })  # fmt: skip
    return gpus


class _Slots:
    """Where the k-th message from one rank to another lands in the scratch of the receiver, and scratch in all."""

    def __init__(self, work: ScheduleOps) -> None:
        self.size = [work.scratch] * len(work.ops)
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

    def __init__(self, rank: int, work: ScheduleOps, slot: _Slots, reached: list[int]) -> None:
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
        reads = {cell for first in srcs for cell in cells_of(first, count)}
        writes = {cell for first in dsts for cell in cells_of(first, count)}
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
