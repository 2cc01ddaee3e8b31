"""Threadblocks of a plan in the Simple protocol: a rank says that data is there, its peer reads it, and says that it has.

A receiver waits for the signal, reads the sender's buffer itself (`get`, or `rre` to add it up on the way) and signals
back; the sender waits for that before it overwrites what was read, and for all of it before it ends, so nothing is left
over for the next run. What a step overwrites though a peer has still to read it is fetched into scratch first.

There is one order of all operations in which every wait comes after its signal, that of the schedule's steps: each rank
tells, then reads, then waits for its readers, then overwrites. Every threadblock keeps to it, so none waits for ever.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import Any

from algocc.collective import Buffer
from algocc.exchange.from_schedule import HalfOp, Lane, ScheduleOps, cells_of, lanes_of
from algocc.exchange.msccl import BUFFERS
from algocc.exchange.tasks import Cell

Json = dict[str, Any]
Connection = tuple[int, int, int]
"""(sender of data, receiver, channel of the pair)."""
KINDS = {"r": "get", "rrc": "rre", "cpy": "copy", "re": "re"}
"""What the halves of transfers become; `s` signals and `ack` waits."""


def pulled(work: ScheduleOps) -> list[Json]:
    """What each gpu holds, but for its buffers."""
    sources = _sources(work)
    staged = [_staged(rank, ops, work.scratch) for rank, ops in enumerate(work.ops)]
    lanes = [lanes_of(ops, forward=True, fuse=False) for ops, _ in staged]
    pairs = sorted({c for rank, of in enumerate(lanes) for lane in of for c in _connections(rank, lane)})
    gpus = []
    for rank, of in enumerate(lanes):
        mine = sorted((a if b == rank else b, (a, b, k)) for a, b, k in pairs if rank in (a, b))
        at = {c: i for i, (_, c) in enumerate(mine)}
        remote = sorted({src[:2] for src in sources[rank] if src})
        semaphores: dict[tuple[int, int], int] = {}
        fetched: dict[Connection, list[Cell]] = defaultdict(list)
        for op, src in zip((op for op in work.ops[rank] if op.kind in ("r", "rrc")), sources[rank], strict=True):
            fetched[op.peer, rank, op.channel].append(src)
        blocks = [_Block(rank, i, of, at, remote, fetched, semaphores).json() for i in range(len(of))]
        gpus.append({
            "scratch_chunks": staged[rank][1],
            "threadblocks": blocks,
            "channels": [{"channel_type": "memory", "connected_to": [peer for peer, _ in mine]}] if mine else [],
            "remote_buffers": [
                {"rank": peer, "type": BUFFERS[buffer], "access_channel_types": ["memory"]} for peer, buffer in remote
            ],
            "semaphores": [{"init_value": 0} for _ in semaphores],
        })  # fmt: skip
    return gpus


def _sources(work: ScheduleOps) -> list[list[Cell]]:
    """Of each rank, where what it receives lies at the sender, in the order in which it receives."""
    sent: dict[Connection, list[Cell]] = defaultdict(list)
    for rank, ops in enumerate(work.ops):
        for op in ops:
            if op.kind == "s" and op.src:
                sent[rank, op.peer, op.channel].append(op.src)
    takes = {connection: iter(cells) for connection, cells in sent.items()}
    return [
        [next(takes[op.peer, rank, op.channel]) for op in ops if op.kind in ("r", "rrc")]
        for rank, ops in enumerate(work.ops)
    ]


def _connections(rank: int, lane: Lane) -> set[Connection]:
    return {_connection(rank, op) for op in lane.ops if op.peer >= 0}


def _connection(rank: int, op: HalfOp) -> Connection:
    return (rank, op.peer, op.channel) if op.kind in ("s", "ack") else (op.peer, rank, op.channel)


def _staged(rank: int, ops: list[HalfOp], scratch: int) -> tuple[list[HalfOp], int]:
    """The operations of a rank with those that wait for its readers; and its chunks of scratch."""
    out: list[HalfOp] = []
    unread: dict[tuple[int, int], list[HalfOp]] = defaultdict(list)
    most = scratch
    for round, together in groupby(ops, key=lambda op: op.round):
        spare = scratch
        late: list[HalfOp] = []
        now: set[Cell] = set()  # what is overwritten only when all is read
        for op in together:
            if op.kind == "s":
                unread[op.peer, op.channel].append(op)
                out.append(op)
                continue
            assert op.dst is not None
            writes = set(cells_of(op.dst, op.size))
            held = {c for sends in unread.values() for s in sends if s.round == round for c in cells_of(s.src, s.size)}
            if not writes & (held | now):
                _acknowledged(writes, unread, out)
                out.append(op)
                continue
            now |= writes
            if op.peer < 0:
                late.append(op)
                continue
            cell = (rank, int(Buffer.SCRATCH), spare)
            spare += op.size
            out.append(op._replace(kind="r", src=None, dst=cell, swapped=False))
            kind = "cpy" if op.kind == "r" else "re"
            late.append(op._replace(kind=kind, peer=-1, src=cell, channel=0))
        _acknowledged(now, unread, out)
        out += late
        most = max(most, spare)
    for sends in unread.values():
        out += [op._replace(kind="ack") for op in sends]
    return out, most


def _acknowledged(cells: set[Cell], unread: dict[tuple[int, int], list[HalfOp]], out: list[HalfOp]) -> None:
    """Wait until these are read: a channel's signals come in order, so for all earlier ones of it too."""
    for sends in unread.values():
        last = max((i for i, op in enumerate(sends) if cells & set(cells_of(op.src, op.size))), default=-1)
        out += [op._replace(kind="ack") for op in sends[: last + 1]]
        del sends[: last + 1]


class _Block:
    """A threadblock in the making: a `nop` wherever its threads must meet."""

    def __init__(
        self, rank: int, number: int, lanes: list[Lane], at: dict[Connection, int], remote: list[tuple[int, int]],
        fetched: dict[Connection, list[Cell]], semaphores: dict[tuple[int, int], int],
    ) -> None:  # fmt: skip
        self.rank, self.number, self.remote, self.semaphores = rank, number, remote, semaphores
        lane = lanes[number]
        self.channels = sorted(at[c] for c in _connections(rank, lane))
        self.buffers: list[int] = []
        self.ops: list[Json] = []
        self.waited = False  # one thread has, the others may not know
        self.touched: tuple[set[Cell], set[Cell]] = set(), set()
        awaited: dict[int, list[int]] = defaultdict(list)
        for other, of in enumerate(lanes):
            for wait in of.depends:
                if wait and wait[0] == number:
                    awaited[wait[1]].append(other)
        for i, (op, depends) in enumerate(zip(lane.ops, lane.depends, strict=True)):
            if depends:
                self.alone("sem_acquire", semaphore_ids=[self.semaphore(depends[0], number)])
            channel = self.channels.index(at[_connection(rank, op)]) if op.peer >= 0 else -1
            if op.kind == "s":
                self.alone("signal", channel_type="memory", channel_ids=[channel])
            elif op.kind == "ack":
                self.alone("wait", channel_type="memory", channel_ids=[channel])
            elif op.kind != "nop":
                if channel >= 0:
                    self.alone("wait", channel_type="memory", channel_ids=[channel])
                self.move(op, fetched[_connection(rank, op)].pop(0) if channel >= 0 else None)
                if channel >= 0:
                    self.alone("signal", channel_type="memory", channel_ids=[channel])
            for other in awaited[i]:
                self.alone("sem_release", semaphore_ids=[self.semaphore(number, other)])

    def semaphore(self, before: int, after: int) -> int:
        """That with which one threadblock lets another go on."""
        return self.semaphores.setdefault((before, after), len(self.semaphores))

    def meet(self) -> None:
        """Let the threads meet."""
        self.ops.append({"name": "nop"})
        self.waited, self.touched = False, (set(), set())

    def alone(self, name: str, **keys: Any) -> None:
        """What one thread does: to wait it needs nobody, but to say that something is done, all must be done."""
        waits = name in ("wait", "sem_acquire")
        if not waits and (self.waited or any(self.touched)):
            self.meet()
        self.ops.append({"name": name, **keys})
        self.waited |= waits

    def move(self, op: HalfOp, source: Cell | None) -> None:
        """Data: after a meeting, unless the operations since have nothing to do with it."""
        assert op.dst is not None
        local = [op.dst] if op.kind == "re" else []
        local += [op.src] if op.src else []
        reads = {cell for first in local for cell in cells_of(first, op.size)}
        writes = set(cells_of(op.dst, op.size))
        written, read = self.touched
        if self.waited or written & (reads | writes) or read & writes:
            self.meet()
        written, read = self.touched
        self.touched = written | writes, read | reads
        json: Json = {"name": KINDS[op.kind], "src_buff": [_place(cell, op.size) for cell in local]}
        if source is not None:
            buffer = self.remote.index(source[:2])
            if buffer not in self.buffers:
                self.buffers.append(buffer)
            json["src_buff"].append({"buffer_id": self.buffers.index(buffer), "index": source[2], "size": op.size})
            json["channel_type"] = "memory"
        json["dst_buff"] = [_place(op.dst, op.size)]
        if len(json["src_buff"]) > 1:
            json["reduce_op"] = "sum"
        if source is not None:
            json["round"] = op.round
        if op.swapped:
            json["order"] = "pop"
        self.ops.append(json)

    def json(self) -> Json:
        """As it stands in the plan."""
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": self.buffers}] if self.buffers else []
        channels = [{"channel_type": "memory", "channel_ids": self.channels}] if self.channels else []
        return {"id": self.number, "ops": self.ops, "channels": channels, "remote_buffer_refs": refs}


def _place(cell: Cell, count: int) -> Json:
    return {"type": BUFFERS[cell[1]], "index": cell[2], "size": count}
