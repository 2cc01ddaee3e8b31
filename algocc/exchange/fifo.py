"""MSCCL's connections: queues of a few slots from a threadblock of one rank to one of another.

The k-th message waits until the receiver has taken the (k - slots)-th; the step that takes it waits for it. With no
slots at all a send waits until its receiver is there.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from algocc.collective import Buffer
from algocc.errors import counted
from algocc.exchange.msccl import Algo, Block, Step
from algocc.exchange.tasks import Cell, Edge, Message, Task, Work, topological
from algocc.place import Notes

SLOTS = 8
"""Slots of a connection in the public runtimes."""


class Key(NamedTuple):
    """A connection as a file names it."""

    src: int
    dst: int
    channel: int

    def __str__(self) -> str:
        return f"connection {self.src} -> {self.dst} channel {self.channel}"


class End(NamedTuple):
    """A step at one end of a connection, by its lane and its place there."""

    lane: int
    at: int


class _Lane(NamedTuple):
    rank: int
    number: int
    block: Block

    @property
    def out(self) -> Key:
        return Key(self.rank, self.block.send, self.block.channel)

    @property
    def into(self) -> Key:
        return Key(self.block.recv, self.rank, self.block.channel)


Ends = dict[Key, list[End]]
Pairs = dict[Key, list[tuple[End, End]]]


def work_of(algo: Algo, *, slots: int = SLOTS, notes: Notes | None = None) -> Work:
    """The tasks of an algorithm whose connections have `slots` slots."""
    work = Work()
    lanes = [_Lane(rank, i, block) for rank, gpu in enumerate(algo.gpus) for i, block in enumerate(gpu.blocks)]
    pairs = _pairs(lanes, work)
    slot, work.scratch = _slots(algo, lanes, pairs, slots)
    pushes = {a: (key, k) for key, ends in pairs.items() for k, (a, _) in enumerate(ends)}
    pops = {b: (key, k) for key, ends in pairs.items() for k, (_, b) in enumerate(ends)}
    task: dict[End, int] = {}
    ready: dict[End, int] = {}
    for i, (rank, _, block) in enumerate(lanes):
        lane = work.lane(rank)
        for j, step in enumerate(block.steps):
            here = End(i, j)
            if not slots and here in pops:
                ready[here] = work.add(lane, Task([], [], 1, j, step.place))
            task[here] = work.add(lane, _task(rank, j, step, slot, pops.get(here), pushes.get(here)))
    for ends in pairs.values():
        work.queues.append([(task[a], task[b]) for a, b in ends])
        work.edges += [Edge(task[a], task[b]) for a, b in ends]
        if not slots:
            work.edges += [Edge(ready[b], task[a], credit=True) for a, b in ends]
        work.edges += [Edge(b, a, credit=True) for b, a in _room(work.queues[-1], slots)]
    lane_of = {(lane.rank, lane.number): i for i, lane in enumerate(lanes)}
    for i, (rank, _, block) in enumerate(lanes):
        for j, step in enumerate(block.steps):
            if step.depends:
                other = lane_of[rank, step.depends[0]]
                at = _announced(rank, step, lanes[other].block.steps, work, notes or Notes())
                if at is not None:
                    work.edges.append(Edge(task[End(other, at)], task[End(i, j)]))
    return work


def _room(queue: list[tuple[int, int]], slots: int) -> list[tuple[int, int]]:
    """Who makes room for whom in a queue: the task that takes a message out, the one that puts in the slots-th after."""
    return [(taken, put) for (_, taken), (put, _) in zip(queue, queue[slots:], strict=False)] if slots else []


def least_slots(algo: Algo, work: Work | None = None) -> int | None:
    """The fewest slots with which it does not deadlock, None if no number will do or its steps do not fit together.

    work: its tasks for any number of slots but none, if they are known.
    """
    most = max((len(b.steps) for g in algo.gpus for b in g.blocks), default=0)
    work = replace(work or work_of(algo, slots=max(1, most)))
    edges = [e for e in work.edges if not e.credit]
    before = {b: a for lane in work.lanes for a, b in pairwise(lane)}

    def runs(slots: int) -> bool:
        room = [pair for queue in work.queues for pair in _room(queue, slots)]
        if not slots:  # a receiver is there when it has done what comes before
            room = [(before[taken], put) for queue in work.queues for put, taken in queue if taken in before]
        work.edges = edges + [Edge(a, b, credit=True) for a, b in room]
        return len(topological(work)) == len(work.tasks)

    if work.faults or not runs(most):
        return None
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    return high


def _task(
    rank: int, j: int, step: Step, slot: dict[tuple[Key, int], Cell], pop: tuple[Key, int] | None,
    push: tuple[Key, int] | None,
) -> Task:  # fmt: skip
    """A step as a task: operands in the order destination (of `re`), source, message."""
    srcs: list[Cell] = [(rank, *step.dst)] if step.type.adds and step.dst else []
    srcs += [(rank, *step.src)] if step.src else []
    srcs += [slot[pop]] if pop else []
    srcs = srcs[::-1] if step.swapped else srcs
    dsts: list[Cell] = [(rank, *step.dst)] if step.dst else []
    dsts += [slot[push]] if push else []
    messages = (Message(push[0].src, push[0].dst, step.count, step.round),) if push else ()
    return Task(srcs, dsts if srcs else [], max(1, step.count), j, step.place, messages)


def _pairs(lanes: list[_Lane], work: Work) -> Pairs:
    """The k-th send of each connection with its k-th receive; what does not pair is a fault of the work."""
    sends, takes = _ends(lanes)
    shared = _shared(lanes, sends, work) | _shared(lanes, takes, work)
    if shared:
        sends, takes = _one_order(lanes)
    pairs: Pairs = {}
    for key in sorted(sends.keys() | takes.keys()):
        a, b = sends.get(key, []), takes.get(key, [])
        pairs[key] = list(zip(a, b, strict=False))
        for s, t in pairs[key]:
            send, take = _step(lanes, s), _step(lanes, t)
            if send.count != take.count:
                found = f"{key}: a receive of {counted(take.count, 'chunk')} meets a send of {send.count} ({send.place})"
                work.faults.append((key.dst, found, "both to be of the same count", take.place))
        if len(a) != len(b):
            spare = _step(lanes, (a if len(a) > len(b) else b)[min(len(a), len(b))]).place
            rank, what = (key.src, "is sent and never received") if len(a) > len(b) else (key.dst, "waits for ever")
            found = f"{key}: {len(a)} sends meet {len(b)} receives: this one {what}"
            work.faults.append((rank, found, "as many receives as sends, on one channel", spare))
    return pairs


def _step(lanes: list[_Lane], end: End) -> Step:
    return lanes[end.lane].block.steps[end.at]


def _ends(lanes: list[_Lane]) -> tuple[Ends, Ends]:
    """The sending and the receiving steps of each connection, threadblock by threadblock."""
    sends: Ends = {}
    takes: Ends = {}
    for i, lane in enumerate(lanes):
        for j, step in enumerate(lane.block.steps):
            if step.type.pushes:
                sends.setdefault(lane.out, []).append(End(i, j))
            if step.type.pops:
                takes.setdefault(lane.into, []).append(End(i, j))
    return sends, takes


def _shared(lanes: list[_Lane], ends: Ends, work: Work) -> set[Key]:
    """The connections of which several threadblocks hold one end, each such threadblock but the first a fault."""
    shared = set()
    for key, steps in ends.items():
        users = list(dict.fromkeys(e.lane for e in steps))
        for other in users[1:]:
            first, lane = lanes[users[0]], lanes[other]
            side = "send" if lane.rank == key.src else "receive"
            found = f"{key}: tb {first.number} and tb {lane.number} both {side} on it, so messages match in any order"
            work.ambiguous.append(
                (lane.rank, found, "one threadblock at each end; use another channel", lane.block.place)
            )
            shared.add(key)
    return shared


def _one_order(lanes: list[_Lane]) -> tuple[Ends, Ends]:
    """The sends and receives of each connection in the order they come when each lane in turn goes as far as it can."""
    sends: Ends = {}
    takes: Ends = {}
    done = [0] * len(lanes)
    lane_of = {(lane.rank, lane.number): i for i, lane in enumerate(lanes)}

    def blocked(lane: _Lane, step: Step) -> bool:
        if step.depends and done[lane_of[lane.rank, step.depends[0]]] <= step.depends[1]:
            return True
        return step.type.pops and len(takes.get(lane.into, [])) >= len(sends.get(lane.into, []))

    def act(i: int) -> None:
        lane = lanes[i]
        step = lane.block.steps[done[i]]
        if step.type.pops:
            takes.setdefault(lane.into, []).append(End(i, done[i]))
        if step.type.pushes:
            sends.setdefault(lane.out, []).append(End(i, done[i]))
        done[i] += 1

    moved = True
    while moved:
        moved = False
        for i, lane in enumerate(lanes):
            while done[i] < len(lane.block.steps) and not blocked(lane, lane.block.steps[done[i]]):
                act(i)
                moved = True
    for i, lane in enumerate(lanes):
        while done[i] < len(lane.block.steps):
            act(i)
    return sends, takes


def _slots(algo: Algo, lanes: list[_Lane], pairs: Pairs, slots: int) -> tuple[dict[tuple[Key, int], Cell], int]:
    """The slot of each message, in the scratch of its receiver after that of the file; and scratch in all."""
    used = [g.chunks[Buffer.SCRATCH] for g in algo.gpus]
    cell = {}
    for key, ends in pairs.items():
        width = max((_step(lanes, a).count for a, _ in ends), default=0)
        depth = min(max(1, slots), len(ends))
        for k in range(len(ends)):
            cell[key, k] = (key.dst, int(Buffer.SCRATCH), used[key.dst] + k % depth * width)
        used[key.dst] += depth * width
    return cell, max(used)


def _announced(rank: int, step: Step, steps: tuple[Step, ...], work: Work, notes: Notes) -> int | None:
    """The step of the other threadblock whose flag lets `step` go: the one it names, or a later one with a flag."""
    assert step.depends is not None
    block, wanted = step.depends
    at = next((j for j in range(wanted, len(steps)) if steps[j].announces), None)
    what = f'tb {block} step {wanted}, which has hasdep="0" and never says that it is done'
    if at is None:
        work.faults.append(
            (rank, f"deadlock: waits for {what}", f'hasdep="1" there ({steps[wanted].place})', step.place)
        )
    elif at > wanted:
        notes.add(step.place, f'waits for {what}: taken as its next step with hasdep="1", step {at}')
    return at
