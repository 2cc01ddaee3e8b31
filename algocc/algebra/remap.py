"""The one remapping behind every operation: chunks of rows go to places, steps and actions of a new table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from algocc import table
from algocc.collective import Collective
from algocc.errors import UsageError
from algocc.table import Action, Array, Schedule


class Places(NamedTuple):
    """Where each of some chunks is."""

    rank: Array
    buffer: Array
    chunk: Array


class Part(NamedTuple):
    """A schedule that goes into a new one: the new place of each of its chunks, in the order of its `layout`,
    and the new number of each of its steps.
    """

    schedule: Schedule
    places: Places
    steps: Array


def starts(c: Collective, scratch: int, name: str) -> Array:
    """Location of chunk 0 of each buffer of each rank, as in `layout`; shape (n, 3)."""
    sizes = c.buffer_sizes(scratch)
    if sizes.max() >= 2**31:
        raise UsageError(f"{name}: {sizes.max()} chunks in a buffer of one rank, wanted less than 2147483648")
    return table.starts(sizes)[0]


def places_of(s: Schedule) -> Places:
    """The places of a schedule in the order of their locations."""
    c = s.collective
    sizes = c.buffer_sizes(s.scratch).ravel()
    owner = np.repeat(np.arange(3 * c.n), sizes)
    chunk = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Places(owner // 3, owner % 3, chunk)


def units(s: Schedule) -> tuple[Array, Array, Array]:
    """For each single chunk that a row moves: the row, and the locations it reads and writes."""
    start = starts(s.collective, s.scratch, s.name)
    ends = np.cumsum(s.count, dtype=np.int64)
    row = np.repeat(np.arange(len(s)), s.count)
    offset = np.arange(len(row)) - (ends - s.count)[row]
    read = (start[s.rank, s.buffer] + s.chunk)[row] + offset
    write = (start[s.peer, s.peer_buffer] + s.peer_chunk)[row] + offset
    return row, read, write


def tabulate(
    name: str, c: Collective, scratch: int, origins: tuple[str, ...],
    *, step: Array, action: Array, read: Array, write: Array, origin: Array, row: Array,
) -> Schedule:  # fmt: skip
    """The schedule that moves these single chunks between locations; those that were one row and still can
    be, are, and so are copies within a rank from one source line. Copies of a place onto itself are left out.
    """
    order = np.argsort(step, kind="stable")
    order = order[(action[order] != Action.COPY) | (read[order] != write[order])]
    step, action, read, write, origin, row = (a[order] for a in (step, action, read, write, origin, row))
    flat = starts(c, scratch, name).ravel()
    reader, writer = (np.searchsorted(flat, at, side="right") - 1 for at in (read, write))
    first = np.ones(len(step), bool)
    if len(step):
        row = np.where((action == Action.COPY) & (reader // 3 == writer // 3), -2 - origin, row)
        same = (step, action, row, reader, writer, read - np.arange(len(read)), write - np.arange(len(write)))
        first[1:] = np.any([a[1:] != a[:-1] for a in same], axis=0)
    at = np.flatnonzero(first)
    reader, writer, read, write = (a[at] for a in (reader, writer, read, write))
    return Schedule(
        name, c, scratch, step[at], action[at], reader // 3, writer // 3, reader % 3, read - flat[reader],
        writer % 3, write - flat[writer], np.diff(np.append(at, len(first))), origin[at], origins,
    )  # fmt: skip


def assemble(name: str, c: Collective, scratch: int, parts: Sequence[Part]) -> Schedule:
    """The one schedule in which each part does what it did, at its new places and steps."""
    start = starts(c, scratch, name)
    lines: dict[str, int] = {}
    columns: dict[str, list[Array]] = {key: [] for key in ("step", "action", "read", "write", "origin", "row")}
    rows = 0
    for s, places, steps in parts:
        row, read, write = units(s)
        location = start[places.rank, places.buffer] + places.chunk
        renumbered = np.array([*(lines.setdefault(line, len(lines)) for line in s.origins), -1], np.int64)
        known = (s.origin >= 0) & (s.origin < len(s.origins))
        origin = renumbered[np.where(known, s.origin, -1)]
        new = (steps[s.step[row]], s.action[row], location[read], location[write], origin[row], row + rows)
        for column, values in zip(columns.values(), new, strict=True):
            column.append(values)
        rows += len(s)
    return tabulate(name, c, scratch, tuple(lines), **{key: np.concatenate(column) for key, column in columns.items()})


def step_count(s: Schedule) -> int:
    return len(s.step_start) - 1


def phases(s: Schedule) -> tuple[int, int, int]:
    """Steps before the first message, from the first to the last, and after the last."""
    step, total = s.step[s.rank != s.peer], step_count(s)
    if not len(step):
        return total, 0, 0
    return int(step[0]), int(step[-1] - step[0]) + 1, total - int(step[-1]) - 1


def check_count(name: str, what: str, value: Any, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UsageError(f"{name}: {what}={value!r}, wanted a whole number of {least} or more")


def few(values: Any) -> str:
    """The first of some values, in one line."""
    head = ", ".join(str(v) for v in list(values)[:6])
    return f"{head}, …" if len(values) > 6 else head
