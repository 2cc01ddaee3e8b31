"""Break a schedule or a Program in one place, in every way that a slip of the pen might."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from algocc.program import Program
from algocc.table import Action, Schedule

Columns = dict[str, Any]


def mutated(rng: random.Random, s: Schedule) -> Schedule:
    """The schedule with one random slip; its form may be broken, and its meaning may by luck be the same.

    A row or a step is dropped, written twice or moved; steps trade places; a rank, peer, buffer, chunk, count or
    action is changed.
    """
    if not len(s):
        return s
    columns = {name: column.copy() for name, column in s.columns.items()}
    row = rng.randrange(len(s))
    step = int(s.step[row])
    slips: list[Callable[[], Columns]] = [
        lambda: _take(columns, [i for i in range(len(s)) if i != row]),
        lambda: _take(columns, sorted([*range(len(s)), row])),
        lambda: _take(columns, [i for i in range(len(s)) if s.step[i] != step]),
        lambda: _set(columns, row, "step", max(0, step + rng.choice([-2, -1, 1, 2]))),
        lambda: _set(columns, row, "rank", rng.randrange(s.n)),
        lambda: _set(columns, row, "peer", rng.randrange(s.n)),
        lambda: _set(columns, row, "action", rng.choice(list(Action))),
        lambda: _set(columns, row, "action", rng.choice([0, 1, 2])),
        lambda: _set(columns, row, "buffer", rng.randrange(3)),
        lambda: _set(columns, row, "peer_buffer", rng.randrange(3)),
        lambda: _set(columns, row, "chunk", int(s.chunk[row]) + rng.choice([-1, 1])),
        lambda: _set(columns, row, "peer_chunk", int(s.peer_chunk[row]) + rng.choice([-1, 1])),
        lambda: _set(columns, row, "count", int(s.count[row]) + rng.choice([-1, 1])),
        lambda: _swap(columns, s.step == step, s.step == step + 1, step),
        lambda: _take(columns, rng.sample(range(len(s)), len(s))),
        lambda: _cross(columns, row, rng.randrange(len(s))),
    ]
    broken = rng.choice(slips)()
    order = np.argsort(broken["step"], kind="stable")
    return replace(s, **{name: column[order] for name, column in broken.items()})


def _take(columns: Columns, rows: list[int]) -> Columns:
    return {name: column[np.array(rows, np.int64)] for name, column in columns.items()}


def _set(columns: Columns, row: int, name: str, value: int) -> Columns:
    columns[name][row] = value
    return columns


def _swap(columns: Columns, first: Any, second: Any, step: int) -> Columns:
    """Two steps in a row trade places."""
    columns["step"][first], columns["step"][second] = step + 1, step
    return columns


def _cross(columns: Columns, a: int, b: int) -> Columns:
    """Two rows trade their destinations."""
    for name in ("peer", "peer_buffer", "peer_chunk"):
        columns[name][[a, b]] = columns[name][[b, a]]
    return columns


def mutated_program(rng: random.Random, p: Program) -> Program:
    """The Program with one random slip, of good form but for waits that can never end.

    A wait is dropped, or changes its value, lag or counter; a signal is dropped; an operand changes its rank or
    chunk; two sources of one Move or two Moves of one lane trade places.
    """
    slips: list[Callable[[], Program | None]] = [
        lambda: _drop(rng, p, "wait"),
        lambda: _drop(rng, p, "signal"),
        lambda: _change(rng, p, "wait_value", lambda v: max(1, v + rng.choice([-1, 1]))),
        lambda: _change(rng, p, "wait_lag", lambda v: p.sets - v),
        lambda: _change(rng, p, "src_chunk", lambda v: max(0, v + rng.choice([-1, 1]))),
        lambda: _change(rng, p, "dst_chunk", lambda v: max(0, v + rng.choice([-1, 1]))),
        lambda: _change(rng, p, "src_rank", lambda v: rng.randrange(p.n)),
        lambda: _change(rng, p, "dst_rank", lambda v: rng.randrange(p.n)),
        lambda: _change(rng, p, "src_buffer", lambda v: rng.randrange(3)),
        lambda: _drop(rng, p, "src"),
        lambda: _drop(rng, p, "dst"),
    ]
    rng.shuffle(slips)
    return next((made for slip in slips if (made := slip()) is not None), p)


RAGGED = {
    "wait": ("wait_counter", "wait_value", "wait_lag"),
    "signal": ("signal_counter",),
    "src": ("src_rank", "src_buffer", "src_chunk", "src_first"),
    "dst": ("dst_rank", "dst_buffer", "dst_chunk"),
}


def _drop(rng: random.Random, p: Program, what: str) -> Program | None:
    """Without one wait, signal, source or destination; the last source or destination of a Move stays."""
    start = getattr(p, f"{what}_start")
    least = 2 if what in ("src", "dst") else 1
    moves = np.flatnonzero(np.diff(start) >= least).tolist()
    if not moves:
        return None
    move = rng.choice(moves)
    item = rng.randrange(start[move], start[move + 1])
    changed: Columns = {name: np.delete(getattr(p, name), item) for name in RAGGED[what]}
    changed[f"{what}_start"] = start - (np.arange(len(start)) > move)
    if what == "signal":
        changed["counter_total"] = np.bincount(changed["signal_counter"], minlength=len(p.counter_total))
    return replace(p, **changed)


def _change(rng: random.Random, p: Program, name: str, new: Callable[[int], int]) -> Program | None:
    """One entry of a column changed."""
    column = getattr(p, name).copy()
    if not len(column):
        return None
    i = rng.randrange(len(column))
    column[i] = new(int(column[i]))
    return replace(p, **{name: column})
