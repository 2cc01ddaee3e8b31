"""Tasks → Program: a Move a task, a counter for each pair of lanes, waits that keep scratch from early reuse."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.exchange.tasks import Cell, Task, Work
from algocc.exchange.values import NOTHING, Values
from algocc.program import Program

Wait = tuple[int, int, int]
"""(the Move that is waited for, the Move that waits, iterations between them)."""


class _Moves:
    """The Moves of all lanes in order, and which are those of each task."""

    def __init__(self, work: Work, values: Values, c: Collective) -> None:
        self.tasks: list[tuple[int, int, int]] = []  # (task, first chunk of it, chunks)
        self.lane: list[int] = []
        self.lane_start = [0]
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        full = int(np.diff(c.set_start).max(initial=0))
        self._full = full if c.reduces else -1
        self.values = values
        for i, lane in enumerate(work.lanes):
            for t in lane:
                self.first[t] = len(self.tasks)
                for at, count in self._runs(t, work.tasks[t]):
                    self.tasks.append((t, at, count))
                    self.lane.append(i)
                self.last[t] = len(self.tasks) - 1
            self.lane_start.append(len(self.tasks))

    def facts(self, t: int, i: int) -> tuple[int, bool, tuple[bool, ...]]:
        """Of chunk i of a task: the input chunk of its length, whether it is final, which sources came in so."""
        read = self.values.read[t][i] if i < len(self.values.read[t]) else ()
        made = self.values.made[t][i] if read else NOTHING
        v = next((v for v in read if v != NOTHING), NOTHING)
        like = self.values.like[v] if v != NOTHING else min(i, self.values.inputs - 1)
        final = len(read) > 1 and made != NOTHING and self.values.weight[made] == self._full
        return like, final, tuple(v != NOTHING and self.values.weight[v] == 1 for v in read)

    def _runs(self, t: int, task: Task) -> list[tuple[int, int]]:
        """Chunks in a row that one Move can handle: of the same facts, their lengths in a row too."""
        begins = [0]
        facts = [self.facts(t, i) for i in range(task.count if task.srcs else 1)]
        for i, (a, b) in enumerate(pairwise(facts), 1):
            if (a[0] + 1, *a[1:]) != b:
                begins.append(i)
        return [(i, j - i) for i, j in zip(begins, [*begins[1:], len(facts)], strict=True)]


def assemble(work: Work, values: Values, c: Collective, *, name: str, in_place: bool) -> Program:
    """The Program of settled tasks."""
    moves = _Moves(work, values, c)
    waits = [(moves.last[e.before], moves.first[e.after], 0) for e in work.edges] + _reuse(work, moves)
    waits = _needed(waits, moves.lane)
    lanes = len(work.lanes)
    signal = sorted({(moves.lane[before], moves.lane[after], before) for before, after, _ in waits})
    pairs = sorted({(a, b) for a, b, _ in signal})
    counter_of = {pair: i for i, pair in enumerate(pairs)}
    value: dict[tuple[int, int], int] = {}
    total = np.zeros(len(pairs), np.int64)
    for a, b, before in signal:
        counter = counter_of[a, b]
        total[counter] += 1
        value[before, b] = int(total[counter])
    waiting = sorted(
        (after, counter_of[moves.lane[before], moves.lane[after]], before, lag) for before, after, lag in waits
    )
    giving = sorted((before, counter_of[a, b]) for a, b, before in signal)
    m = len(moves.tasks)
    facts = [moves.facts(t, at) if work.tasks[t].srcs else (0, False, ()) for t, at, _ in moves.tasks]
    src = [(r, b, chunk + at) for t, at, _ in moves.tasks for r, b, chunk in work.tasks[t].srcs]
    dst = [(r, b, chunk + at) for t, at, _ in moves.tasks for r, b, chunk in work.tasks[t].dsts]
    firsts = [f for (t, _, _), (_, _, of) in zip(moves.tasks, facts, strict=True) for f in _filled(of, work.tasks[t])]
    places = [str(work.tasks[t].place) for t, _, _ in moves.tasks]
    origins = tuple(dict.fromkeys(places))
    where = {text: i for i, text in enumerate(origins)}
    return (
        Program(
            name=name,
            collective=c,
            in_place=in_place,
            scratch=work.scratch,
            lane_rank=np.array(work.lane_rank, np.int32),
            lane_start=np.array(moves.lane_start),
            step=np.array([work.tasks[t].step for t, _, _ in moves.tasks], np.int32),
            origin=np.array([where[p] for p in places], np.int32),
            origins=origins,
            count=np.array([k for _, _, k in moves.tasks], np.int64),
            like=np.array([f[0] for f in facts], np.int64),
            final=np.array([f[1] for f in facts], np.bool_),
            src_start=_starts([len(work.tasks[t].srcs) for t, _, _ in moves.tasks]),
            **_cells("src", src),
            src_first=np.array(firsts, np.bool_),
            dst_start=_starts([len(work.tasks[t].dsts) for t, _, _ in moves.tasks]),
            **_cells("dst", dst),
            wait_start=np.searchsorted([w[0] for w in waiting], np.arange(m + 1)),
            wait_counter=np.array([w[1] for w in waiting], np.int32),
            wait_value=np.array([value[w[2], moves.lane[w[0]]] for w in waiting], np.int64),
            wait_lag=np.array([w[3] for w in waiting], np.int8),
            signal_start=np.searchsorted([s[0] for s in giving], np.arange(m + 1)),
            signal_counter=np.array([s[1] for s in giving], np.int32),
            counter_writer=np.array([a for a, _ in pairs], np.int32),
            counter_waiter=np.array([b for _, b in pairs], np.int32),
            counter_total=total,
        )
        if lanes
        else _empty(name, c, in_place)
    )


def _filled(first: tuple[bool, ...], task: Task) -> tuple[bool, ...]:
    return first if len(first) == len(task.srcs) else (False,) * len(task.srcs)


def _starts(lengths: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _cells(side: str, cells: list[Cell]) -> dict[str, Any]:
    table = np.array(cells, np.int64).reshape(-1, 3)
    return {
        f"{side}_rank": table[:, 0].astype(np.int32),
        f"{side}_buffer": table[:, 1].astype(np.int8),
        f"{side}_chunk": table[:, 2].copy(),
    }


def _reuse(work: Work, moves: _Moves) -> list[Wait]:
    """The waits that let an iteration write scratch only when the one before has done with it.

    Files have scratch for every tile, so they need none of these; a Program has scratch for one.
    """
    last: dict[Cell, dict[int, int]] = {}
    first: dict[Cell, dict[int, int]] = {}
    for m, (t, at, count) in enumerate(moves.tasks):
        task, lane = work.tasks[t], moves.lane[m]
        for cells, writes in ((task.srcs, False), (task.dsts, True)):
            for r, b, chunk in cells:
                for i in range(at, at + count) if b == Buffer.SCRATCH else ():
                    last.setdefault((r, b, chunk + i), {})[lane] = m
                    if writes:
                        first.setdefault((r, b, chunk + i), {}).setdefault(lane, m)
    return [
        (before, after, 1)
        for cell, writers in first.items()
        for lane, after in writers.items()
        for other, before in last[cell].items()
        if other != lane
    ]


def _needed(waits: list[Wait], lane: list[int]) -> list[Wait]:
    """Without what its lane's own order says, or an earlier wait of its lane for the same lane."""
    out = []
    best: dict[tuple[int, int, int], int] = {}
    for before, after, lag in sorted(set(waits), key=lambda w: (w[1], -w[0])):
        if lane[before] == lane[after] and before < after:
            continue
        key = (lane[before], lane[after], lag)
        if before > best.get(key, -1):
            best[key] = before
            out.append((before, after, lag))
    return out


def _empty(name: str, c: Collective, in_place: bool) -> Program:
    """The Program of a file without a single lane."""
    none = np.zeros(0, np.int64)
    start = np.zeros(1, np.int64)
    ragged = {"lane", "src", "dst", "wait", "signal"}
    fields: dict[str, Any] = {
        k: none
        for k in Program.__dataclass_fields__
        if k not in ("name", "collective", "in_place", "scratch", "origins", "sets")
    }
    fields |= {f"{k}_start": start for k in ragged}
    return Program(name=name, collective=c, in_place=in_place, scratch=0, origins=(), **fields)
