"""Schedule → the steps of MSCCL: each transfer a send and a receive, threadblocks for connections, dependencies.

In a step of a schedule all transfers read the state before it: sends come first, then what is received. A rank has
a threadblock for each connection, and one for its local work; a connection in and one out share a threadblock where
what comes in goes out again, and then receive and send become one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from algocc.collective import Buffer
from algocc.errors import ScheduleError, UsageError
from algocc.exchange.memory import Memory
from algocc.exchange.msccl import Algo, Block, Gpu, Step
from algocc.exchange.msccl_types import COLLECTIVES
from algocc.exchange.tasks import Cell
from algocc.place import Place
from algocc.table import Action, Schedule, form_failures

NAMES = {own: word for word, own in reversed(COLLECTIVES.items()) if word not in ("alltoallv", "send", "recv")}
"""The word of the format for each collective."""
FORWARDING = {"r": "rcs", "rrc": "rrcs"}
"""What a receive becomes when a send of what it made follows it."""


class HalfOp(NamedTuple):
    """One half of a transfer, or local work, of one rank; `kind` is a step type of MSCCL, or `ack`: until it is read."""

    kind: str
    peer: int
    src: Cell | None
    dst: Cell | None
    size: int
    round: int
    channel: int
    swapped: bool = False


@dataclass
class Lane:
    """A threadblock in the making; `knows` says how far it knows the others of its rank to be."""

    send: int = -1
    recv: int = -1
    channel: int = 0
    ops: list[HalfOp] = field(default_factory=list)
    depends: list[tuple[int, int] | None] = field(default_factory=list)
    knows: dict[int, int] = field(default_factory=dict)
    after: list[dict[int, int]] = field(default_factory=list)


def from_schedule(
    s: Schedule, *, in_place: bool = False, protocol: str = "Simple", channels: int = 1, forward: bool = True,
    most_count: int = 71, window: tuple[int, int] = (0, 0),
) -> Algo:  # fmt: skip
    """The MSCCL form of a schedule, in one mode.

    channels: the chunks of a connection are dealt to as many connections.
    forward: let a connection in and one out share a threadblock, so that a step can pass on what it gets.
    most_count: chunks of a step at most; longer transfers become several.

    Raises ScheduleError if the schedule is malformed, UsageError if MSCCL has no word for its collective.
    """
    c = s.collective
    if not 1 <= channels <= 32:
        raise UsageError(f"channels={channels}: wanted 1 to 32")
    work = schedule_ops(s, in_place=in_place, channels=channels, most_count=most_count, known=NAMES)
    gpus = []
    for rank in range(c.n):
        lanes = lanes_of(work.ops[rank], forward=forward)
        sizes = (c.size(Buffer.INPUT, rank), c.size(Buffer.OUTPUT, rank), work.scratch)
        gpus.append(Gpu(sizes, _blocks(lanes), Place(s.name)))
    return Algo(
        name=s.name,
        protocol=protocol,
        channels=channels,
        loop=c.vector * c.chunks,
        coll=NAMES[c.name],
        modes=(in_place,),
        window=window,
        gpus=tuple(gpus),
        place=Place(s.name),
    )


class ScheduleOps(NamedTuple):
    """What each rank does, in an order in which one worker could do it all; and chunks of scratch that it takes."""

    ops: list[list[HalfOp]]
    scratch: int


def schedule_ops(
    s: Schedule, *, in_place: bool, channels: int = 1, most_count: int, known: Mapping[str, str] | None
) -> ScheduleOps:
    """The operations of a schedule.

    known: the collectives that the format has a word for; None if it needs none.

    Raises ScheduleError if it is malformed, UsageError for a collective that the format can't say.
    """
    c = s.collective
    if known is not None and c.name not in known:
        raise UsageError(f"{s.name}: the format has no word for {c.name}; it has one for {', '.join(sorted(known))}")
    if len(set(c.sizes.tolist())) > 1:
        raise UsageError(f"{s.name}: the format has no way to say that blocks of {c.name} are of different sizes")
    failures = form_failures(s, most=1)
    if failures:
        raise ScheduleError(f"schedule {s.name}: {failures[0]}")
    return ScheduleOps(*_ops(s.matched(), Memory(c, s.scratch, in_place), channels, most_count))


def _ops(s: Schedule, memory: Memory, channels: int, most: int) -> tuple[list[list[HalfOp]], int]:
    out: list[list[HalfOp]] = [[] for _ in range(s.n)]
    scratch = s.scratch
    for step in range(len(s.step_start) - 1):
        writes: list[tuple[int, HalfOp]] = []
        rows = []
        for i in range(s.step_start[step], s.step_start[step + 1]):
            for at in range(0, int(s.count[i]), most):
                rows += _runs(s, memory, i, at, min(most, int(s.count[i]) - at))
        written = Counter(cell for _, _, _, dst, count, _ in rows for cell in cells_of(dst, count))
        staged = s.scratch
        for action, rank, src, dst, count, chunk in rows:
            peer = dst[0]
            if rank != peer:
                channel = chunk % channels
                out[rank].append(HalfOp("s", peer, src, None, count, step, channel))
                kind, add = ("r", None) if action == Action.COPY else ("rrc", dst)
                writes.append((peer, HalfOp(kind, rank, add, dst, count, step, channel, action == Action.PREREDUCE)))
                continue
            if action == Action.COPY and src == dst:
                continue
            if any(written[cell] for cell in cells_of(src, count)):  # it may be overwritten before its turn
                spare = (rank, int(Buffer.SCRATCH), staged)
                staged += count
                out[rank].append(HalfOp("cpy", -1, src, spare, count, step, 0))
                src = spare
            kind = "cpy" if action == Action.COPY else "re"
            writes.append((rank, HalfOp(kind, -1, src, dst, count, step, 0, action == Action.PREREDUCE)))
        scratch = max(scratch, staged)
        for rank, op in writes:
            out[rank].append(op)
    return out, scratch


def _runs(s: Schedule, memory: Memory, i: int, at: int, count: int) -> list[tuple[int, int, Cell, Cell, int, int]]:
    """Part of a row as (action, rank, source, destination, count, chunk) whose places are in a row in memory."""
    rank, peer, action = int(s.rank[i]), int(s.peer[i]), int(s.action[i])
    cells = [
        (
            memory.name(rank, int(s.buffer[i]), int(s.chunk[i]) + k),
            memory.name(peer, int(s.peer_buffer[i]), int(s.peer_chunk[i]) + k),
        )
        for k in range(at, at + count)
    ]
    begins = [0] + [
        k
        for k in range(1, count)
        if any(b != (a[0], a[1], a[2] + 1) for a, b in zip(cells[k - 1], cells[k], strict=True))
    ]
    return [
        (action, rank, *cells[a], b - a, int(s.peer_chunk[i]) + at + a)
        for a, b in zip(begins, [*begins[1:], count], strict=True)
    ]


def cells_of(first: Cell | None, count: int) -> list[Cell]:
    """Each of `count` chunks in a row."""
    return [(first[0], first[1], first[2] + i) for i in range(count)] if first else []


def lanes_of(ops: list[HalfOp], *, forward: bool, fuse: bool = True) -> list[Lane]:
    """The threadblocks of a rank: for each connection, or for one in and one out if what comes in goes out again.

    fuse: let a receive and the send after it be one step.
    """
    partner = _partners(ops) if forward else {}
    lanes: dict[tuple[str, int, int], Lane] = {}
    order: list[Lane] = []
    writer: dict[Cell, tuple[int, int]] = {}
    readers: dict[Cell, list[tuple[int, int]]] = {}
    for op in ops:
        lane = _lane_of(op, lanes, order, partner)
        me = order.index(lane)
        last = lane.ops[-1] if lane.ops else None
        if (
            fuse
            and op.kind == "s"
            and last is not None
            and last.kind in FORWARDING
            and (last.dst, last.size) == (op.src, op.size)
            and op.src is not None
            and all(writer.get(cell) == (me, len(lane.ops) - 1) for cell in cells_of(op.src, op.size))
        ):
            lane.ops[-1] = last._replace(kind=FORWARDING[last.kind], round=op.round)
            continue
        needs: dict[int, int] = {}

        def need(at: tuple[int, int] | None, needs: dict[int, int] = needs, lane: Lane = lane, me: int = me) -> None:
            if at is not None and at[0] != me and at[1] > lane.knows.get(at[0], -1):
                needs[at[0]] = max(needs.get(at[0], -1), at[1])

        reads = cells_of(op.src, op.size)
        reads += cells_of(op.dst, op.size) if op.kind == "re" else []
        writes = cells_of(op.dst, op.size)
        for cell in reads + writes:
            need(writer.get(cell))
        for cell in writes:
            for reader in readers.get(cell, []):
                need(reader)
        _wait(lane, order, needs)
        lane.ops.append(op)
        lane.depends.append(lane.depends.pop() if len(lane.depends) == len(lane.ops) else None)
        at = me, len(lane.ops) - 1
        lane.after.append(dict(lane.knows))
        for cell in reads:
            readers.setdefault(cell, []).append(at)
        for cell in writes:
            writer[cell], readers[cell] = at, []
    return order


def _wait(lane: Lane, order: list[Lane], needs: dict[int, int]) -> None:
    """Let the next step of a lane wait for others of its rank: all but one wait in a `nop` of their own."""
    pending: list[tuple[int, int]] = []
    for other, at in sorted(needs.items(), key=lambda need: -sum(order[need[0]].after[need[1]].values())):
        if lane.knows.get(other, -1) >= at:
            continue  # an earlier one of these waits implies it
        pending.append((other, at))
        for k, v in order[other].after[at].items():
            lane.knows[k] = max(lane.knows.get(k, -1), v)
        lane.knows[other] = max(lane.knows.get(other, -1), at)
    for wait in pending[:-1]:
        lane.ops.append(HalfOp("nop", -1, None, None, 0, -1, 0))
        lane.depends.append(wait)
        lane.after.append(dict(lane.knows))
    if pending:
        lane.depends.append(pending[-1])


def _partners(ops: list[HalfOp]) -> dict[tuple[int, int], int]:
    """For a (peer received from, channel) the peer sent to that most of what comes in goes out to."""
    came: dict[Cell, tuple[int, int]] = {}
    score: Counter[tuple[int, int, int]] = Counter()
    for op in ops:
        if op.kind == "s" and op.src in came:
            source, channel = came[op.src]
            if channel == op.channel:
                score[source, op.peer, channel] += 1
        elif op.dst is not None:
            came.pop(op.dst, None)
            if op.peer >= 0:
                came[op.dst] = op.peer, op.channel
    out: dict[tuple[int, int], int] = {}
    taken = set()
    for (source, sink, channel), _ in sorted(score.items(), key=lambda item: (-item[1], item[0])):
        if (source, channel) not in out and (sink, channel) not in taken:
            out[source, channel] = sink
            taken.add((sink, channel))
    return out


def _lane_of(
    op: HalfOp, lanes: dict[tuple[str, int, int], Lane], order: list[Lane], partner: dict[tuple[int, int], int]
) -> Lane:
    """The threadblock that does this: its connection's, or the local one."""
    key = ("send" if op.kind in ("s", "ack") else "recv" if op.peer >= 0 else "local", op.peer, op.channel)
    if key in lanes:
        return lanes[key]
    lane = Lane(channel=op.channel)
    order.append(lane)
    lanes[key] = lane
    if key[0] == "send":
        lane.send = op.peer
        sources = [source for (source, channel), sink in partner.items() if (sink, channel) == (op.peer, op.channel)]
        if sources:
            lane.recv = sources[0]
            lanes["recv", sources[0], op.channel] = lane
    elif key[0] == "recv":
        lane.recv = op.peer
        sink = partner.get((op.peer, op.channel))
        if sink is not None:
            lane.send = sink
            lanes["send", sink, op.channel] = lane
    return lane


def _blocks(lanes: list[Lane]) -> tuple[Block, ...]:
    awaited = {wait for lane in lanes for wait in lane.depends if wait}
    blocks = []
    for i, lane in enumerate(lanes):
        steps = []
        for j, (op, wait) in enumerate(zip(lane.ops, lane.depends, strict=True)):
            src, dst = (cell[1:] if cell else None for cell in (op.src, op.dst))
            pushes = op.kind in ("s", *FORWARDING.values())
            round = op.round if pushes else -1
            steps.append(Step(op.kind, src, dst, op.size, wait, (i, j) in awaited, round, Place(""), op.swapped))
        blocks.append(Block(lane.send, lane.recv, lane.channel, tuple(steps), Place("")))
    return tuple(blocks)
