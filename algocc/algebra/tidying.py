"""Local copies that only rename, dropped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algocc.algebra.remap import Part, Places, assemble, places_of, starts, step_count, units
from algocc.collective import Buffer
from algocc.table import Action, Array, Schedule, layout


def tidy(s: Schedule) -> Schedule:
    """Local copies that only rename → none; scratch and steps without use → none. On each rank,

    - a scratch chunk whose last use is a copy to a place that nothing touched before *is* that place;
    - a scratch chunk that begins as a copy of an input, and ends before something else overwrites the output
      that shares memory with that input, *is* that output;
    - a scratch chunk that only ever holds a copy of an input *is* that input.

    What is correct in place stays so, and no message is split for it.

    Valid when no step has a race.
    """
    s = s.matched()
    places = layout(s, in_place=True)
    buffer = places_of(s).buffer
    for rule in (_renamed, _reused, _unchanged):
        while True:
            chunk, place = rule(_Use.of(s, places.total), buffer, places.alias)
            location = np.arange(places.total)
            location[chunk] = place
            location = _unbroken(s, location)
            if (location == np.arange(places.total)).all():
                break
            p = places_of(s)
            moved = Places(p.rank[location], p.buffer[location], p.chunk[location])
            s = assemble(s.name, s.collective, s.scratch, [Part(s, moved, np.arange(step_count(s)))])
    return _compact(s)


def _unbroken(s: Schedule, location: Array) -> Array:
    """The new places without those for which a message of several chunks would fall apart."""
    row, read, write = units(s)
    message = np.flatnonzero((row[1:] == row[:-1]) & (s.rank != s.peer)[row[1:]])
    buffer, own = places_of(s).buffer, np.arange(len(location))
    while True:
        broken = np.zeros(len(s), bool)
        for at in (read, write):
            a, b = location[at[message]], location[at[message + 1]]
            broken[row[message[(b != a + 1) | (buffer[a] != buffer[b])]]] = True
        if not broken.any():
            return location
        for at in (read, write):
            kept = at[broken[row]]
            location[kept] = own[kept]


class _Use(NamedTuple):
    """Who reads and writes when. Per single chunk moved: read, write, step, and whether it is a copy within a
    rank. Per location: first and last step of reading and of writing, -1 if none; the number of writes, and
    whether the first step that writes does so with one copy.
    """

    read: Array
    write: Array
    step: Array
    local: Array
    first_read: Array
    last_read: Array
    first_write: Array
    last_write: Array
    writes: Array
    overwritten: Array

    @staticmethod
    def of(s: Schedule, total: int) -> _Use:
        row, read, write = units(s)
        step = s.step[row].astype(np.int64)
        times = np.full((4, total), -1, np.int64)
        for i, at in enumerate((read, write)):  # steps rise, and the last assignment to a place stands
            times[2 * i, at[::-1]] = step[::-1]
            times[2 * i + 1, at] = step
        copy = s.action[row] == Action.COPY
        first = step == times[2, write]
        overwritten: Array = np.bincount(write[first], minlength=total) == 1
        overwritten[write[first & ~copy]] = False
        local = copy & (s.rank[row] == s.peer[row])
        writes = np.bincount(write, minlength=total)
        return _Use(read, write, step, local, times[0], times[1], times[2], times[3], writes, overwritten)

    def begins(self, place: Array, step: Array) -> Array:
        """Whether nothing touches a place before one copy to it in this step."""
        unread: Array = (self.first_read[place] < 0) | (self.first_read[place] > step)
        begun: Array = self.overwritten[place] & (self.first_write[place] == step) & unread
        return begun


def _renamed(use: _Use, buffer: Array, alias: Array) -> tuple[Array, Array]:
    """Scratch chunks that end with a copy to an untouched place, and the places."""
    a, b, t = use.read, use.write, use.step
    ends = (buffer[a] == Buffer.SCRATCH) & (use.last_read[a] == t) & (use.last_write[a] < t) & (use.writes[a] > 0)
    own = np.arange(len(alias))
    partner = own.copy()  # of an output: the input that shares memory with it
    partner[alias[alias != own]] = own[alias != own]
    shared = partner[b]
    in_time = (shared == b) | (use.last_read[shared] <= use.first_write[a])
    at = np.flatnonzero(use.local & ends & (buffer[b] != Buffer.INPUT) & use.begins(b, t) & in_time)
    at = at[np.unique(a[at], return_index=True)[1]]
    at = at[~np.isin(b[at], a[at])]  # of a chain of copies the end first
    return a[at], b[at]


def _reused(use: _Use, buffer: Array, alias: Array) -> tuple[Array, Array]:
    """Scratch chunks loaded from an input, and the outputs in its memory that come to life after them."""
    x, a, t = use.read, use.write, use.step
    output = alias[x]
    loads = use.local & (buffer[a] == Buffer.SCRATCH) & (buffer[x] == Buffer.INPUT) & (output != x)
    loads &= use.begins(a, t) & (use.last_read[x] <= t)
    start = use.first_write[output]
    at = np.flatnonzero(loads & use.begins(output, start) & (use.last_read[a] <= start) & (use.last_write[a] < start))
    at = at[np.unique(output[at], return_index=True)[1]]
    return a[at], output[at]


def _unchanged(use: _Use, buffer: Array, alias: Array) -> tuple[Array, Array]:
    """Scratch chunks that only hold a copy of an input, and the inputs."""
    x, b, t = use.read, use.write, use.step
    single = use.local & (buffer[b] == Buffer.SCRATCH) & (buffer[x] == Buffer.INPUT) & (use.writes[b] == 1)
    output = alias[x]
    kept = (output == x) | (use.first_write[output] < 0) | (use.first_write[output] >= use.last_read[b])
    at = np.flatnonzero(single & use.begins(b, t) & kept)
    return b[at], x[at]


def _compact(s: Schedule) -> Schedule:
    """Without empty steps and unused scratch."""
    p = places_of(s)
    _, read, write = units(s)
    used = np.zeros(len(p.rank), bool)
    used[read] = used[write] = True
    used &= p.buffer == Buffer.SCRATCH
    before = np.concatenate([[0], np.cumsum(used)])
    start = starts(s.collective, s.scratch, s.name)[:, Buffer.SCRATCH]
    rank_first = before[start]
    scratch = int(np.bincount(p.rank[used]).max(initial=0))
    chunk = np.where(p.buffer == Buffer.SCRATCH, np.where(used, before[:-1] - rank_first[p.rank], 0), p.chunk)
    busy = np.zeros(step_count(s), bool)
    busy[s.step] = True
    part = Part(s, Places(p.rank, p.buffer, chunk), np.cumsum(busy) - 1)
    return assemble(s.name, s.collective, scratch, [part])
