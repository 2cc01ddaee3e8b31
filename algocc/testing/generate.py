"""Random schedules: correct ones for any collective, and arbitrary ones that are mostly wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from algocc.collective import Buffer, Collective
from algocc.reference import Place, wanted
from algocc.table import COLUMNS, Action, Schedule

Row = tuple[int, int, int, int, int, int, int, int, int]
"""step, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count."""
WHOLE = [Action.COPY, Action.REDUCE, Action.PREREDUCE]


def table(name: str, c: Collective, scratch: int, rows: list[Row]) -> Schedule:
    """A schedule of these rows, put in order of their steps."""
    rows = sorted(rows, key=lambda row: row[0])
    columns = np.array([(*row, -1) for row in rows], np.int64).reshape(-1, len(COLUMNS)).T
    return Schedule(name, c, scratch, **dict(zip(COLUMNS, columns, strict=True)))  # type: ignore[arg-type]


@dataclass
class _Clock:
    """When each place was last read and written, so that a new transfer gets a step that keeps their order.

    A read comes after the last write; a write comes after the last write and not before the last read, since all
    reads of a step come first. Reductions into one place may share a step.
    """

    rng: random.Random
    delay: int
    rows: list[Row] = field(default_factory=list)
    read: dict[Place, int] = field(default_factory=dict)
    written: dict[Place, int] = field(default_factory=dict)
    reduced: set[Place] = field(default_factory=set)

    def transfer(self, action: Action, src: Place, dst: Place, count: int) -> None:
        together = action != Action.COPY and dst in self.reduced
        after = self.written.get(dst, -1) + (0 if together else 1)
        step = max(self.written.get(src, -1) + 1, after, self.read.get(dst, 0)) + self.rng.randint(
            0, self.delay
        )
        self.read[src] = max(self.read.get(src, 0), step)
        self.written[dst] = step
        self.reduced.discard(dst) if action == Action.COPY else self.reduced.add(dst)
        self.rows.append((step, action, src[0], dst[0], *src[1:], *dst[1:], count))


def random_correct(
    rng: random.Random, c: Collective, *, in_place: bool = False, delay: int = 1, two_sided: bool = False
) -> Schedule:
    """A correct schedule for any collective: each distinct set that an output wants is reduced along a random
    tree, over scratch and outputs of random ranks, and spread from its root along another, with detours over
    scratch and outputs that are not done yet, whatever part of a block these are for.

    in_place: keep it correct where inputs share memory with outputs.
    delay: most steps that a transfer is put off without need.
    two_sided: write messages as a send and a receive.
    """
    clock = _Clock(rng, delay)
    free: dict[int, list[int]] = {rank: [] for rank in range(c.n)}
    used = [0] * c.n

    def slot(count: int) -> Place:
        """Scratch for `count` chunks on some rank, used before or new."""
        rank = rng.randrange(c.n)
        if count == 1 and free[rank] and rng.random() < 0.5:
            return rank, Buffer.SCRATCH, free[rank].pop(rng.randrange(len(free[rank])))
        used[rank] += count
        return rank, Buffer.SCRATCH, used[rank] - count

    late: list[tuple[Place, Place, int]] = []
    tasks = _tasks(rng, c)
    while tasks:
        outputs, count = tasks.pop()
        rng.shuffle(outputs)
        rank, _, chunk = outputs[0]
        # `values` are the places that hold what is still to be reduced, and whether we may write there
        values = [((r, int(Buffer.INPUT), i), False) for r, i in wanted(c, rank, chunk).elements()]
        rng.shuffle(values)

        def mine(place: Place, count: int = count, outputs: list[Place] = outputs) -> Place:
            """A copy of a place that nothing else uses; it may be an output that is still free."""
            target = outputs.pop() if outputs and not in_place and rng.random() < 0.5 else slot(count)
            clock.transfer(Action.COPY, place, target, count)
            return target

        while len(values) > 1:
            into, writable = values.pop()
            operand, spent = values.pop(rng.randrange(len(values)))
            into = into if writable else mine(into)
            clock.transfer(rng.choice([Action.REDUCE, Action.PREREDUCE]), operand, into, count)
            if spent and operand[1] == Buffer.SCRATCH and count == 1:
                free[operand[0]].append(operand[2])
            elif spent and operand[1] == Buffer.OUTPUT:
                outputs.append(operand)
            values.insert(rng.randrange(len(values) + 1), (into, True))
        root = values[0][0]
        if in_place and root[1] == Buffer.INPUT or rng.random() < 0.1:
            root = mine(root)
        holders = [root]
        rng.shuffle(outputs)
        for output in outputs:
            if in_place:
                late.append((root, output, count))
                continue
            holder = rng.choice(holders)
            if rng.random() < 0.2:
                later = [
                    place for places, room in tasks for place in places if room >= count and not in_place
                ]
                detour = rng.choice(later) if later and rng.random() < 0.3 else slot(count)
                clock.transfer(Action.COPY, holder, detour, count)
                holder = detour
            clock.transfer(Action.COPY, holder, output, count)
            holders += [holder, output]
    for holder, output, count in late:
        clock.transfer(Action.COPY, holder, output, count)
    rows = _in_place_order(clock.rows, c) if in_place else clock.rows
    rng.shuffle(rows)
    s = table("random", c, max(used, default=0), rows)
    return two_sided_form(rng, s) if two_sided else s


def _in_place_order(rows: list[Row], c: Collective) -> list[Row]:
    """Put the writes to outputs after every read of an input."""
    last = max((row[0] for row in rows if row[4] == Buffer.INPUT), default=0)
    return [(row[0] + last, *row[1:]) if row[6] == Buffer.OUTPUT else row for row in rows]


def _tasks(rng: random.Random, c: Collective) -> list[tuple[list[Place], int]]:
    """The outputs that want the same, and how many chunks in a row of each to handle at once; in random order."""
    of_set: dict[tuple[tuple[int, int], ...], list[tuple[int, int]]] = {}
    for rank in range(c.n):
        for block in range(int(c.outputs[rank])):
            of_set.setdefault(tuple(c.wanted(rank, block)), []).append((rank, block))
    tasks = []
    for places in of_set.values():
        part = 0
        while part < c.chunks:
            count = rng.randint(1, c.chunks - part)
            tasks.append(([(r, int(Buffer.OUTPUT), b * c.chunks + part) for r, b in places], count))
            part += count
    rng.shuffle(tasks)
    return tasks


def two_sided_form(rng: random.Random, s: Schedule) -> Schedule:
    """The same schedule with each message, or only some, written as a send and its receive; all sends of a step
    first, in an order that matches the receives.
    """
    some = rng.choice([0.5, 1.0])
    rows: list[Row] = []
    for row in zip(*(s.columns[name].tolist() for name in list(COLUMNS)[:-1]), strict=True):
        step, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count = row
        if rank == peer or rng.random() > some:
            rows.append(row)
            continue
        named = rng.random() < 0.5
        there, here = ((peer_buffer, peer_chunk), (buffer, chunk)) if named else ((-1, -1), (-1, -1))
        send = (step, Action.SEND, rank, peer, buffer, chunk, *there, count)
        recv = (step, Action.RECV + action, peer, rank, peer_buffer, peer_chunk, *here, count)
        rows += [send, recv]
    if rng.random() < 0.5:
        rows.sort(key=lambda row: (row[0], row[1] != Action.SEND))
    return table(s.name, s.collective, s.scratch, rows)


def random_arbitrary(rng: random.Random, c: Collective, *, rows: int = 12, scratch: int = 2) -> Schedule:
    """Random transfers of good form; most often the schedule is wrong."""
    sizes = {
        (rank, int(buffer)): c.size(buffer, rank) if buffer != Buffer.SCRATCH else scratch
        for rank in range(c.n)
        for buffer in Buffer
    }
    readable = [place for place, size in sizes.items() if size]
    writable = [(rank, buffer) for rank, buffer in readable if buffer != Buffer.INPUT]
    made: list[Row] = []
    if rng.random() < 0.7:
        for rank, i, o in c.load.tolist():
            made.append((0, Action.COPY, rank, rank, 0, i * c.chunks, c.sink, o * c.chunks, c.chunks))
    steps = rng.randint(1, 4)
    for _ in range(rng.randint(0, rows) if writable and readable else 0):
        src, dst = rng.choice(readable), rng.choice(writable)
        if rng.random() < 0.5:
            src = rng.choice([place for place in readable if place[1] == Buffer.INPUT] or readable)
        count = rng.randint(1, min(sizes[src], sizes[dst])) if rng.random() < 0.3 else 1
        at, to = rng.randint(0, sizes[src] - count), rng.randint(0, sizes[dst] - count)
        if rng.random() < 0.7 and to + at % c.chunks - to % c.chunks + count <= sizes[dst]:
            to += at % c.chunks - to % c.chunks  # the same part of a block, as most schedules have it
        step = rng.randint(1, steps)
        made.append((step, rng.choice(WHOLE), src[0], dst[0], src[1], at, dst[1], to, count))
    return table("arbitrary", c, max(scratch, c.work * c.chunks), made)
