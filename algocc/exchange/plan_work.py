"""A plan as tasks: operations write peers' memory; channels, semaphores, barriers and packet flags order them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from algocc.collective import Buffer
from algocc.exchange.meaning import Traffic
from algocc.exchange.plan import Channel, Op, Operand, Plan
from algocc.exchange.tasks import Cell, Edge, Message, Task, Work
from algocc.place import Notes, Place

SWITCH = -1
"""In place of a rank, in a message to or from a switch."""
Event = tuple[int, int, Place]
"""(lane, task, where it says so)."""


class _Builder:
    """The work in the making, and the events that are matched when all tasks are there."""

    def __init__(self, plan: Plan, notes: Notes) -> None:
        self.plan, self.notes, self.work = plan, notes, Work()
        self.signals: dict[Channel, list[Event]] = defaultdict(list)
        self.waits: dict[Channel, list[Event]] = defaultdict(list)
        self.acquires: dict[tuple[int, int], list[Event]] = defaultdict(list)
        self.releases: dict[tuple[int, int], list[Event]] = defaultdict(list)
        self.barriers: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.sent: dict[Cell, list[int]] = defaultdict(list)  # packets written to a place
        self.taken: list[tuple[int, list[Cell], Place]] = []  # packets read
        self.last_of: dict[tuple[int, int, int], int] = {}  # (rank, threadblock, operation)

    def fault(self, rank: int, found: str, wanted: str, place: Place) -> None:
        """Something that no run could mend."""
        self.work.faults.append((rank, found, wanted, place))

    def op(self, rank: int, lane_index: int, lane: list[int], op: Op) -> int:
        """Add the tasks of an operation; the last of them."""
        t = -1
        for srcs, dsts, count, messages in _moves(rank, op):
            t = self.work.add(lane, Task(srcs[:: -1 if op.swapped else 1], dsts, count, len(lane), op.place, messages))
            taken = srcs if op.type.takes == "all" else srcs[1:] if op.type.takes else []
            given = [cell for cell in dsts if op.type.gives == "all" or (op.type.gives and cell[0] != rank)]
            self.taken.append((t, [(r, b, c + i) for r, b, c in taken for i in range(count)], op.place))
            for r, b, chunk in given:
                for i in range(count):
                    self.sent[r, b, chunk + i].append(t)
        if not op.type.moves or op.channels:
            t = self.work.add(lane, Task([], [], 1, len(lane), op.place))
        event = lane_index, t, op.place
        for channel in op.channels:
            (self.signals if op.type.signals else self.waits)[channel if op.type.signals else channel.other].append(
                event
            )
        for s in op.semaphores:
            (self.acquires if op.name == "sem_acquire" else self.releases)[rank, s].append(event)
        if op.barrier >= 0:
            left = self.work.add(lane, Task([], [], 1, len(lane), op.place))
            self.barriers[rank, op.barrier].append((lane_index, t, left))
            t = left
        return t


def plan_work(plan: Plan, notes: Notes | None = None) -> Work:
    """The tasks of a plan."""
    b = _Builder(plan, notes or Notes())
    b.work.scratch = max(g.chunks[Buffer.SCRATCH] for g in plan.gpus)
    for rank, gpu in enumerate(plan.gpus):
        for i, ops in enumerate(gpu.blocks):
            lane_index, lane = len(b.work.lanes), b.work.lane(rank)
            for j, op in enumerate(ops):
                b.last_of[rank, i, j] = b.op(rank, lane_index, lane, op)
            _check_threads(b, rank, ops)
    _match_channels(b)
    _match_semaphores(b)
    _match_barriers(b)
    _match_packets(b)
    _match_dependencies(b)
    return b.work


def _moves(rank: int, op: Op) -> Iterable[tuple[list[Cell], list[Cell], int, tuple[Message, ...]]]:
    """What an operation moves, as (sources, destinations, chunks, messages)."""
    if op.type.reduces:
        pairs = [(op.srcs, op.dsts)]
    elif op.type.copies:
        sources = op.srcs if len(op.srcs) == len(op.dsts) else op.srcs * len(op.dsts)
        pairs = [((src,), (dst,)) for src, dst in zip(sources, op.dsts, strict=True)]
    else:
        pairs = []
    for srcs, dsts in pairs:
        count = srcs[0].size
        messages = [m for x in srcs for m in _messages(rank, x, op, False)]
        messages += [m for x in dsts for m in _messages(rank, x, op, True)]
        yield _cells(srcs), _cells(dsts), count, tuple(messages)


def _cells(operands: Iterable[Operand]) -> list[Cell]:
    return [(r, x.buffer, x.first) for x in operands for r in x.ranks]


def _messages(rank: int, x: Operand, op: Op, out: bool) -> list[Message]:
    """What an operand sends between ranks: nothing if it is the rank's own."""
    if len(x.ranks) > 1:
        ends = [(rank, SWITCH)] + [(SWITCH, r) for r in x.ranks]
    elif x.ranks[0] != rank:
        ends = [(rank, x.ranks[0])]
    else:
        ends = []
    return [Message(*(end if out else end[::-1]), x.size, op.round) for end in ends]


def _check_threads(b: _Builder, rank: int, ops: tuple[Op, ...]) -> None:
    """The threads of a block meet only at a nop: one is needed between data and the signal that says it is there."""
    moved = waited = False
    for op in ops:
        if op.name in ("nop", "barrier"):
            moved = waited = False
            continue
        plain = op.type.moves and not op.type.packets
        tells = (op.type.signals and not op.type.moves) or op.name == "sem_release"
        if moved and tells:
            b.fault(
                rank,
                f"{op.name} right after moving data: other threads may not have finished",
                "a nop before it",
                op.place,
            )
        if waited and plain:
            b.fault(rank, f"{op.name} right after a wait that only one thread does", "a nop between the two", op.place)
        moved |= plain and not op.type.signals
        waited |= op.type.waits or op.name == "sem_acquire"


def _one_lane(b: _Builder, rank: int, events: list[Event], what: str) -> bool:
    """Whether all events are of one lane, so that their order is certain; else a fault."""
    lanes = {lane for lane, _, _ in events}
    if len(lanes) > 1:
        place = next(p for lane, _, p in events if lane != events[0][0])
        b.fault(
            rank, f"{what} by {len(lanes)} threadblocks, in any order", "one threadblock, or a channel for each", place
        )
    return len(lanes) <= 1


def _match_channels(b: _Builder) -> None:
    """The k-th wait at one end is for the k-th signal of the other; `waits` are kept by the end that signals."""
    for channel in sorted(b.signals.keys() | b.waits.keys()):
        given, awaited = b.signals[channel], b.waits[channel]
        one = _one_lane(b, channel.rank, given, f"{channel} is signalled")
        if not (_one_lane(b, channel.peer, awaited, f"{channel.other} is waited on") and one):
            continue
        b.work.edges += [Edge(s, w) for (_, s, _), (_, w, _) in zip(given, awaited, strict=False)]
        if len(awaited) > len(given):
            found = f"deadlock: wait number {len(given) + 1} on {channel.other}, which is signalled {len(given)} times"
            b.fault(channel.peer, found, "a signal for each wait, on the same channel", awaited[len(given)][2])
        elif len(given) > len(awaited):
            found = f"signal number {len(awaited) + 1} on {channel}, which is waited on {len(awaited)} times: "
            found += "the next run takes it for its own"
            b.fault(channel.rank, found, "a wait for each signal, on the same channel", given[len(awaited)][2])


def _match_semaphores(b: _Builder) -> None:
    """The k-th acquire beyond the first value is for the k-th release."""
    for rank, s in sorted(b.acquires.keys() | b.releases.keys()):
        first, given, taken = b.plan.gpus[rank].semaphores[s], b.releases[rank, s], b.acquires[rank, s]
        if len(given) != len(taken):
            found = f"semaphore {s} is acquired {len(taken)} times and released {len(given)} times"
            b.fault(
                rank, found, "as many releases as acquires, or the next run finds another value", (given + taken)[0][2]
            )
        elif len(taken) > first and _one_lane(b, rank, given, f"semaphore {s} is released"):
            _one_lane(b, rank, taken, f"semaphore {s} is acquired")
            b.work.edges += [Edge(r, a) for (_, r, _), (_, a, _) in zip(given, taken[first:], strict=False)]


def _match_barriers(b: _Builder) -> None:
    """The k-th time that a threadblock comes to a barrier, all others that use it have come k times."""
    for visits in b.barriers.values():
        by_lane: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for lane, arrived, left in visits:
            by_lane[lane].append((arrived, left))
        for round in zip(*by_lane.values(), strict=False):
            b.work.edges += [Edge(arrived, left) for arrived, _ in round for _, left in round if left != arrived + 1]


def _match_packets(b: _Builder) -> None:
    """Who reads a packet waits until it is there."""
    for t, cells, place in b.taken:
        writers = set()
        for cell in cells:
            sent = b.sent.get(cell, [])
            if len(sent) != 1:
                found = f"scratch[{cell[2]}] is read as a packet, and {len(sent)} packets are sent there"
                found = f"deadlock: {found}" if not sent else found
                b.fault(cell[0], found, "exactly one packet for each place", place)
            writers.update(sent[:1])
        b.work.edges += [Edge(w, t) for w in sorted(writers)]


def _match_dependencies(b: _Builder) -> None:
    """The `deps` of plans of 2024: after operations of other threadblocks of the rank."""
    for rank, gpu in enumerate(b.plan.gpus):
        for i, ops in enumerate(gpu.blocks):
            for j, op in enumerate(ops):
                for block, step in op.depends:
                    before = b.last_of.get((rank, block, step))
                    if before is None:
                        op.place.refuse(
                            f"depends on tb {block} step {step}, which does not exist",
                            wanted="an operation of this gpu",
                        )
                    elif (block, step) != (i, j) and before != b.last_of[rank, i, j]:
                        b.work.edges.append(Edge(before, b.last_of[rank, i, j]))


def traffic(plan: Plan) -> Traffic:
    """Which ranks send, which receive, who sends to whom."""
    out = Traffic(set(), set(), [])
    for rank, gpu in enumerate(plan.gpus):
        for op in (op for ops in gpu.blocks for op in ops):
            for _, _, _, messages in _moves(rank, op):
                for m in messages:
                    out.senders.add(m.src)
                    out.receivers.add(m.dst)
                    out.pairs.append((m.src, m.dst))
    return out
