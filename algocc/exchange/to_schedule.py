"""Tasks → Schedule: messages become transfers of a step, what is done with them local rows of the steps after.

A message lands in scratch of its own, and what its receiver does with it is a row of its own; where nothing else
happens to the destination in between, the two are joined to one transfer. Steps are in the order of the messages'
rounds, and every row comes in the first step that leaves each value what it is in the file.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from algocc.collective import Buffer, Collective
from algocc.errors import UsageError
from algocc.exchange.judge import circles, fault_failures, is_fetched, rounds_of
from algocc.exchange.tasks import Cell, Task, Work, topological
from algocc.table import COLUMNS, Action, Schedule

Key = tuple[int, int]
"""(round, place within it): place 0 is for messages, the others for local work after them."""
FIRST: Key = (-1, 1)


@dataclass(frozen=True, slots=True)
class _Row:
    action: Action
    src: Cell
    dst: Cell
    count: int
    place: str
    round: int = -1
    key: Key = FIRST

    @property
    def is_message(self) -> bool:
        return self.src[0] != self.dst[0]


class _Table:
    """Rows in an order in which they could run one after the other, each with its key."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.written: dict[Cell, Key] = {}
        self.reduced: dict[Cell, Key] = {}
        self.read: dict[Cell, Key] = {}

    def add(self, row: _Row) -> None:
        """Put a row as early as what was before allows; in a step several may reduce into one place, in their order."""
        key: Key = (row.round, 0) if row.is_message else FIRST
        reduces = row.action != Action.COPY
        for i in range(row.count):
            src, dst = _at(row.src, i), _at(row.dst, i)
            for cell in (src, dst):
                if cell in self.written:
                    beside = cell == dst and reduces and self.reduced.get(cell) == self.written[cell]
                    key = max(key, (_not_before if beside else _after)(self.written[cell], row.is_message))
            if dst in self.read:
                key = max(key, _not_before(self.read[dst], row.is_message))
        for i in range(row.count):
            src, dst = _at(row.src, i), _at(row.dst, i)
            self.read[src] = max(self.read.get(src, key), key)
            if reduces:
                self.read[dst] = max(self.read.get(dst, key), key)
            self.written[dst] = key
            if reduces:
                self.reduced[dst] = key
        self.rows.append(replace(row, key=key))


def _at(cell: Cell, i: int) -> Cell:
    return cell[0], cell[1], cell[2] + i


def _after(key: Key, message: bool) -> Key:
    return (key[0] + 1, 0) if message else (key[0], key[1] + 1)


def _not_before(key: Key, message: bool) -> Key:
    return key if not message or not key[1] else (key[0] + 1, 0)


def to_schedule(work: Work, c: Collective, name: str) -> Schedule:
    """The schedule of settled tasks, whose connections have a slot for every message.

    Raises UsageError for tasks that wait in a circle, do not fit together, or go through a switch.
    """
    order = topological(work)
    faults = fault_failures(work.faults + work.ambiguous)
    if faults or len(order) < len(work.tasks):
        raise UsageError(f"{name}: no schedule: its steps do not fit together: {(faults or circles(work))[0]}")
    rounds = {id(m): r for m, r in rounds_of(work)}
    rank = {t: r for r, lane in zip(work.lane_rank, work.lanes, strict=True) for t in lane}
    scratch = work.scratch
    rows: list[_Row] = []
    for t in order:
        task = work.tasks[t]
        if any(min(m.src, m.dst) < 0 for m in task.messages):
            raise UsageError(
                f"{name}: no schedule: {task.place} goes through a switch, which a schedule has no word for"
            )
        of = _rows_of(task, rank[t], scratch, {m[:2] + (is_fetched(m, rank[t]),): rounds[id(m)] for m in task.messages})
        if any(scratch in (row.dst[2], row.src[2]) for row in of):
            scratch += task.count
        rows += of
    for joined in (_joined(rows), _joined(rows, careful=True), rows):
        table = _Table()
        for row in joined:
            table.add(row)
        if all(row.key[0] == row.round for row in table.rows if row.is_message):
            break  # no message had to wait for another round
    return _schedule(table.rows, c, name)


def _rows_of(task: Task, rank: int, spare: int, rounds: dict[tuple[int, int, bool], int]) -> list[_Row]:
    """A task as rows: one destination of its own rank is reduced into, then copied to the others."""
    if not task.srcs or not task.dsts:
        return []
    place = str(task.place)

    def row(action: Action, src: Cell, dst: Cell) -> _Row:
        way = (src[0], dst[0], dst[0] == rank)
        return _Row(action, src, dst, task.count, place, rounds.get(way, -1))

    if len(task.srcs) == 1:
        return [row(Action.COPY, task.srcs[0], dst) for dst in task.dsts if dst != task.srcs[0]]
    own = [dst for dst in task.dsts if dst[0] == rank]
    first = next((d for d in own if d in task.srcs[:2]), None) or next((d for d in own if d not in task.srcs), None)
    into = first or (rank, int(Buffer.SCRATCH), spare)
    rest = list(task.srcs)
    out = []
    if into == rest[0]:
        rest.pop(0)
        out += [row(Action.REDUCE, src, into) for src in rest]
    elif into == rest[1]:
        out += [row(Action.PREREDUCE, rest[0], into)] + [row(Action.REDUCE, src, into) for src in rest[2:]]
    else:
        out += [row(Action.COPY, rest[0], into)] + [row(Action.REDUCE, src, into) for src in rest[1:]]
    return out + [row(Action.COPY, into, dst) for dst in task.dsts if dst != into]


def _joined(rows: list[_Row], *, careful: bool = False) -> list[_Row]:
    """Rows with each message put straight where its receiver puts it.

    before: a → scratch of b; later: scratch of b → d. after: a → d, where the second was.

    Valid if a does not change in between. A message may have to wait for what reads d in between; careful, it is left
    as it was then.
    """
    uses: dict[Cell, list[int]] = defaultdict(list)
    for i, r in enumerate(rows):
        for k in range(r.count):
            uses[_at(r.src, k)].append(i)
            uses[_at(r.dst, k)].append(i)
    out: list[_Row | None] = list(rows)
    for i, r in enumerate(rows):
        if not r.is_message or r.action != Action.COPY or r.dst[1] != Buffer.SCRATCH:
            continue
        users = {j for k in range(r.count) for j in uses[_at(r.dst, k)]}
        if len(users) != 2 or min(users) != i:
            continue
        j = max(users)
        user = rows[j]
        if user.src != r.dst or user.count != r.count or user.is_message or user.dst == user.src:
            continue
        # what is sent must not change before the receiver takes it: the message moves to where that is
        if any(i < k < j and _writes(rows[k], r.src, r.count) for n in range(r.count) for k in uses[_at(r.src, n)]):
            continue
        if careful and any(i < k < j for n in range(r.count) for k in uses[_at(user.dst, n)]):
            continue
        out[i] = None
        out[j] = replace(user, src=r.src, round=r.round)
    return [r for r in out if r is not None]


def _writes(row: _Row, cell: Cell, count: int) -> bool:
    return row.dst[:2] == cell[:2] and row.dst[2] < cell[2] + count and cell[2] < row.dst[2] + row.count


def _schedule(rows: list[_Row], c: Collective, name: str) -> Schedule:
    """The table, steps numbered from 0, the scratch that is used numbered from 0 on each rank."""
    rows = sorted(rows, key=lambda r: r.key)
    slots: dict[int, dict[int, int]] = defaultdict(dict)
    for r in rows:
        for cell in (r.src, r.dst):
            if cell[1] == Buffer.SCRATCH:
                for i in range(r.count):
                    slots[cell[0]].setdefault(cell[2] + i, 0)
    for of in slots.values():
        for new, old in enumerate(sorted(of)):
            of[old] = new
    origins = tuple(dict.fromkeys(r.place for r in rows))
    number = {text: i for i, text in enumerate(origins)}
    columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
    for step, (_, of_step) in enumerate(groupby(rows, key=lambda r: r.key)):
        for r in of_step:
            src, dst = (slots[cell[0]][cell[2]] if cell[1] == Buffer.SCRATCH else cell[2] for cell in (r.src, r.dst))
            values = (step, r.action, r.src[0], r.dst[0], r.src[1], src, r.dst[1], dst, r.count, number[r.place])
            for column, value in zip(COLUMNS, values, strict=True):
                columns[column].append(int(value))
    scratch = max(map(len, slots.values()), default=0)
    arrays = {k: np.array(v, COLUMNS[k]) for k, v in columns.items()}
    return Schedule(name, c, scratch, **arrays, origins=origins)
