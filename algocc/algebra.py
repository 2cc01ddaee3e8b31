"""Schedules made of schedules: one after another, side by side, backwards, on other ranks, in segments.

Every operation takes correct schedules to a correct schedule, and raises UsageError, saying why, where they don't fit.
All are one remapping: each chunk of each row goes to a place, a step and an action of the new table (`_table`), and
keeps its source line. The rows of one step keep their order, so a receiver still reduces in the order it did.

    >>> from algocc.schedules.ring import ring_reduce_scatter
    >>> there_and_back = then(ring_reduce_scatter(4), reversed(ring_reduce_scatter(4)))
    >>> there_and_back.collective.name, there_and_back.collective.chunks
    ('all_reduce', 4)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from algocc.collective import COLLECTIVES, Buffer, Collective, collective
from algocc.errors import UsageError
from algocc.table import Action, Array, Schedule, layout

MOST_CONTRIBUTIONS = 1 << 28
"""Most contributions that the outputs of a composed collective may want in all."""


# Places


class Places(NamedTuple):
    """Where each of some chunks is."""

    rank: Array
    buffer: Array
    chunk: Array


class Part(NamedTuple):
    """A schedule that goes into a new one: the new place of each of its chunks, in the order of its `layout`, and the
    new number of each of its steps.
    """

    schedule: Schedule
    places: Places
    steps: Array


def _starts(c: Collective, scratch: int, name: str) -> Array:
    """Location of chunk 0 of each buffer of each rank, as in `layout`; shape (n, 3)."""
    sizes = np.stack([c.inputs * c.chunks, c.outputs * c.chunks, np.full(c.n, scratch)], axis=1)
    if sizes.max() >= 2**31:
        raise UsageError(f"{name}: {sizes.max()} chunks in a buffer of one rank, wanted less than 2147483648")
    ends = np.cumsum(sizes.ravel())
    return np.concatenate([[0], ends[:-1]]).reshape(c.n, 3).astype(np.int64)


def _places(s: Schedule) -> Places:
    """The places of a schedule in the order of their locations."""
    c = s.collective
    sizes = np.stack([c.inputs * c.chunks, c.outputs * c.chunks, np.full(c.n, s.scratch)], axis=1).ravel()
    owner = np.repeat(np.arange(3 * c.n), sizes)
    chunk = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Places(owner // 3, owner % 3, chunk)


def _units(s: Schedule) -> tuple[Array, Array, Array]:
    """For each single chunk that a row moves: the row, and the locations it reads and writes."""
    start = _starts(s.collective, s.scratch, s.name)
    ends = np.cumsum(s.count, dtype=np.int64)
    row = np.repeat(np.arange(len(s)), s.count)
    offset = np.arange(len(row)) - (ends - s.count)[row]
    read = (start[s.rank, s.buffer] + s.chunk)[row] + offset
    write = (start[s.peer, s.peer_buffer] + s.peer_chunk)[row] + offset
    return row, read, write


def _table(
    name: str, c: Collective, scratch: int, origins: tuple[str, ...],
    *, step: Array, action: Array, read: Array, write: Array, origin: Array, row: Array,
) -> Schedule:  # fmt: skip
    """The schedule that moves these single chunks between locations; those that were one row and still can be, are, and
    so are copies within a rank from one source line. Copies of a place onto itself are left out.
    """
    order = np.argsort(step, kind="stable")
    order = order[(action[order] != Action.COPY) | (read[order] != write[order])]
    step, action, read, write, origin, row = (a[order] for a in (step, action, read, write, origin, row))
    flat = _starts(c, scratch, name).ravel()
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


def _assemble(name: str, c: Collective, scratch: int, parts: Sequence[Part]) -> Schedule:
    """The one schedule in which each part does what it did, at its new places and steps."""
    start = _starts(c, scratch, name)
    lines: dict[str, int] = {}
    columns: dict[str, list[Array]] = {key: [] for key in ("step", "action", "read", "write", "origin", "row")}
    rows = 0
    for s, places, steps in parts:
        row, read, write = _units(s)
        location = start[places.rank, places.buffer] + places.chunk
        renumbered = np.array([*(lines.setdefault(line, len(lines)) for line in s.origins), -1], np.int64)
        known = (s.origin >= 0) & (s.origin < len(s.origins))
        origin = renumbered[np.where(known, s.origin, -1)]
        new = (steps[s.step[row]], s.action[row], location[read], location[write], origin[row], row + rows)
        for column, values in zip(columns.values(), new, strict=True):
            column.append(values)
        rows += len(s)
    return _table(name, c, scratch, tuple(lines), **{key: np.concatenate(column) for key, column in columns.items()})


# Collectives


def _chunkwise(c: Collective) -> Collective:
    """The same demand with a block for every chunk, and sizes in the least whole units."""
    part = np.arange(c.chunks)
    sets = np.repeat(np.arange(len(c.set_start) - 1), c.chunks)
    lengths, items = c.sets(sets)
    sizes = np.repeat(c.sizes // max(1, int(np.gcd.reduce(c.sizes))), c.chunks)
    parts = np.tile(part, len(c.set_start) - 1)
    return Collective(
        c.name, c.n, c.inputs * c.chunks, c.outputs * c.chunks, want=(c.want[:, None] * c.chunks + part).ravel(),
        set_start=np.concatenate([[0], np.cumsum(lengths)]), set_items=items * c.chunks + np.repeat(parts, lengths),
        alias=_alias_of_chunks(c), sizes=sizes, idempotent=c.idempotent,
    )  # fmt: skip


def _alias_of_chunks(c: Collective) -> Array:
    rank, i, o = (np.repeat(column, c.chunks) for column in c.alias.T)
    part = np.tile(np.arange(c.chunks), len(c.alias))
    return np.stack([rank, i * c.chunks + part, o * c.chunks + part], axis=1)


def _candidates(c: Collective) -> Iterator[tuple[str, dict[str, Any]]]:
    """The built-in collectives that have as many chunks in and out on every rank, with their parameters."""
    i, o, n = c.inputs * c.chunks, c.outputs * c.chunks, c.n
    giving, taking = np.flatnonzero(i), np.flatnonzero(o)
    if not len(giving) or not len(taking):
        return
    chunks_in, chunks_out = int(i[giving[0]]), int(o[taking[0]])
    if c.idempotent:
        yield "barrier", {"chunks": chunks_in}
    elif n > 1 and len(giving) == 1:
        yield from ((name, {"chunks": chunks_out, "root": int(giving[0])}) for name in ("broadcast", "scatter"))
    elif n > 1 and len(taking) == 1:
        yield from ((name, {"chunks": chunks_in, "root": int(taking[0])}) for name in ("reduce", "gather"))
    elif chunks_in == n * chunks_out and n > 1:
        yield "reduce_scatter", {"chunks": chunks_out}
    elif chunks_out == n * chunks_in and n > 1:
        yield "all_gather", {"chunks": chunks_in}
    elif c.reduces or n == 1:
        yield from ((name, {"chunks": chunks_in}) for name in ("all_reduce", "scan"))
    elif chunks_in % n == 0:
        yield "all_to_all", {"chunks": chunks_in // n}
        if (c.inputs == n).all():
            yield "all_to_all_v", {"chunks": c.chunks, "counts": c.sizes.reshape(n, n).tolist()}


def _known(s: Schedule, as_: Collective | None) -> Schedule:
    """`recast` to `as_` if it is given, else to the built-in collective that demands the same, else as it is.

    What the result may do in place can be more than before, so this is for schedules that read all inputs first.
    """
    if as_ is not None:
        return recast(s, as_)
    c = s.collective
    demand = _chunkwise(c)
    for name, params in _candidates(c):
        d = collective(name, c.n, **params)
        if d.idempotent == c.idempotent and demand.same_task(_chunkwise(d)):
            return replace(s, collective=d)
    return s


def recast(s: Schedule, as_: Collective) -> Schedule:
    """A schedule for one collective → the same rows for another, which may group the chunks into other blocks.

    ReduceScatter has n blocks of k parts, AllReduce one of n·k: who reduces all vectors block by block has reduced
    all vectors. An element count that n·k does not divide is then cut by the one block, not block by block.

    Valid when both demand the same of every chunk. What shares memory in place is as `as_` says: a schedule that is
    correct in place for the one need not be for the other.
    """
    c, d = _chunkwise(s.collective), _chunkwise(as_)
    if c.idempotent == d.idempotent and c.same_task(d):
        return replace(s, collective=as_)
    wrong = f"{s.name} does {s.collective}, not {as_}"
    if c.n != d.n:
        raise UsageError(f"{wrong}: found {c.n} ranks, wanted {d.n}")
    for what in ("inputs", "outputs"):
        found, wanted = getattr(c, what), getattr(d, what)
        if not np.array_equal(found, wanted):
            raise UsageError(f"{wrong}: found {what} of {_few(found)} chunks on the ranks, wanted {_few(wanted)}")
    for rank, chunk in ((r, i) for r in range(c.n) for i in range(int(c.outputs[r]))):
        mine, other = c.wanted(rank, chunk), d.wanted(rank, chunk)
        if mine != other:
            what = f"out[{chunk}] of rank {rank} reduces {_few(mine)}, wanted {_few(other)}"
            raise UsageError(f"{wrong}: {what} (rank, chunk of its input)")
    raise UsageError(f"{wrong}: the sizes of the blocks differ, or one wants sets and the other multisets")


def _few(values: Any) -> str:
    """The first of some values, in one line."""
    head = ", ".join(str(v) for v in list(values)[:6])
    return f"{head}, …" if len(values) > 6 else head


def _composed(a: Collective, b: Collective) -> Collective:
    """What is demanded of `b` after `a`, whose outputs are the inputs of `b` block for block."""
    sets = a.want[b.set_items]
    lengths = np.diff(a.set_start)[sets]
    if lengths.sum() > MOST_CONTRIBUTIONS:
        raise UsageError(f"{a.name} then {b.name}: {lengths.sum()} contributions, wanted at most {MOST_CONTRIBUTIONS}")
    items = a.sets(sets)[1]
    set_start = np.concatenate([[0], np.cumsum(lengths)])[b.set_start]
    idempotent = a.idempotent or b.idempotent
    if idempotent:
        owner = np.repeat(np.arange(len(set_start) - 1), np.diff(set_start))
        owner, items = np.unique(np.stack([owner, items]), axis=1)
        set_start = np.searchsorted(owner, np.arange(len(set_start)))
    most = max(1, int(a.outputs.max()))
    keys = a.alias[:, 0] * most + a.alias[:, 2], b.alias[:, 0] * most + b.alias[:, 1]
    _, mine, its = np.intersect1d(*keys, return_indices=True)
    alias = np.stack([a.alias[mine, 0], a.alias[mine, 1], b.alias[its, 2]], axis=1)
    return Collective(
        f"{a.name} then {b.name}", a.n, a.inputs, b.outputs, b.want, set_start, items, alias,
        sizes=a.sizes, idempotent=idempotent, chunks=a.chunks,
    )  # fmt: skip


def _transposed(c: Collective, name: str) -> Collective:
    """Output block o wants input block i as often as input block o of the result is wanted by its output block i."""
    lengths, items = c.sets(c.want)
    owner = np.repeat(np.arange(len(c.want)), lengths)
    times = np.bincount(items, minlength=int(c.inputs.sum()))
    if not times.all():
        block = int(np.argmin(times))
        rank = int(np.searchsorted(c.input_start, block, side="right")) - 1
        raise UsageError(
            f"reversed({name}): block {block - c.input_start[rank]} of the input of rank {rank} goes nowhere, "
            "so in reverse nothing would arrive there: every input must be wanted by some output"
        )
    return Collective(
        f"{c.name} reversed", c.n, c.outputs, c.inputs, np.arange(len(times)), np.concatenate([[0], np.cumsum(times)]),
        owner[np.argsort(items, kind="stable")], c.alias[:, [0, 2, 1]], sizes=c.output_sizes,
        idempotent=c.idempotent, chunks=c.chunks,
    )  # fmt: skip


def _spread(c: Collective, groups: Array, n: int, name: str) -> Collective:
    """The collective in every group at once: rank i of group g is rank `groups[g, i]` of n."""
    inputs, outputs = np.zeros(n, np.int64), np.zeros(n, np.int64)
    inputs[groups], outputs[groups] = c.inputs, c.outputs
    first_in, first_out = (np.concatenate([[0], np.cumsum(a)]) for a in (inputs, outputs))
    ranks_in, ranks_out = (np.repeat(np.arange(c.n), a) for a in (c.inputs, c.outputs))
    block_in = first_in[groups[:, ranks_in]] + np.arange(len(ranks_in)) - c.input_start[ranks_in]
    block_out = first_out[groups[:, ranks_out]] + np.arange(len(ranks_out)) - c.output_start[ranks_out]
    g = np.arange(len(groups))[:, None]
    want, sizes = np.zeros(block_out.size, np.int64), np.zeros(block_in.size, np.int64)
    want[block_out] = c.want + g * (len(c.set_start) - 1)
    sizes[block_in] = c.sizes
    lengths = np.tile(np.diff(c.set_start), len(groups))

    def rows(old: Array) -> Array:
        return np.concatenate([np.stack([group[old[:, 0]], old[:, 1], old[:, 2]], axis=1) for group in groups])

    return Collective(
        name, n, inputs, outputs, want, np.concatenate([[0], np.cumsum(lengths)]), block_in[:, c.set_items].ravel(),
        rows(c.alias), rows(c.load), rows(c.store), c.source, c.sink, c.work, sizes, c.idempotent, c.chunks,
    )  # fmt: skip


# Operations


def refine(s: Schedule, k: int) -> Schedule:
    """Chunks → each of them as k chunks, which still travel together.

    Valid when k is at least 1.
    """
    _check_count("refine", "k", k)
    s = s.matched()
    c = s.collective.cut(s.collective.chunks * k)
    _starts(c, s.scratch * k, f"refine({s.name}, {k})")
    longer = {key: getattr(s, key).astype(np.int64) * k for key in ("chunk", "peer_chunk", "count")}
    return replace(s, collective=c, scratch=s.scratch * k, **longer)


def then(a: Schedule, b: Schedule, *, as_: Collective | None = None) -> Schedule:
    """`a`, and when it is done `b` on what `a` left → one schedule, whose collective is the composition.

    What `a` puts out stays in scratch, in place of the input of `b`; local copies that only rename are then dropped
    (`tidy`). The collective is the built-in one that demands the same, `as_` if given, or one composed of the two.

    Valid when every rank ends `a` with as much as it begins `b` with: the same blocks, cut into any chunks, or blocks
    of one size that fill the same vector. Both are refined until their chunks agree.
    """
    name = f"then({a.name}, {b.name})"
    return tidy(_known(_joined(a, b, name), as_))


def _joined(a: Schedule, b: Schedule, name: str) -> Schedule:
    """`then`, as it stands: the inputs are read before the first output is written, so it is correct in place however
    inputs and outputs share memory.
    """
    a, b, blockwise = _aligned(a, b, name)
    c, d = a.collective, b.collective
    composed = _composed(c, d) if blockwise else _composed(_chunkwise(c), _chunkwise(d))
    middle = int(c.outputs.max()) * c.chunks
    parts, steps = [], 0
    for s, buffers, offsets in (
        (a, (Buffer.INPUT, Buffer.SCRATCH, Buffer.SCRATCH), (0, 0, middle)),
        (b, (Buffer.SCRATCH, Buffer.OUTPUT, Buffer.SCRATCH), (0, 0, middle + a.scratch)),
    ):
        p = _places(s)
        moved = Places(p.rank, np.array(buffers)[p.buffer], p.chunk + np.array(offsets)[p.buffer])
        parts.append(Part(s, moved, np.arange(_steps(s)) + steps))
        steps += _steps(s)
    return _assemble(name, composed, middle + a.scratch + b.scratch, parts)


def _aligned(a: Schedule, b: Schedule, name: str) -> tuple[Schedule, Schedule, bool]:
    """Both refined so that the output chunks of `a` are the input chunks of `b`; whether their blocks agree too."""
    c, d = a.collective, b.collective
    if c.n != d.n:
        raise UsageError(f"{name}: {a.name} has {c.n} ranks, {b.name} has {d.n}: wanted as many")
    if np.array_equal(c.outputs, d.inputs):
        found, wanted = (sizes // max(1, int(np.gcd.reduce(sizes))) for sizes in (c.output_sizes, d.sizes))
        if not np.array_equal(found, wanted):
            raise UsageError(f"{name}: {a.name} ends with blocks of sizes {_few(found)}, {b.name} takes {_few(wanted)}")
        k = lcm(c.chunks, d.chunks)
        return refine(a, k // c.chunks), refine(b, k // d.chunks), True
    ends, begins = c.outputs * c.chunks, d.inputs * d.chunks
    differs = (ends == 0) != (begins == 0)
    if differs.any():
        rank = int(np.argmax(differs))
        raise UsageError(
            f"{name}: rank {rank} ends {a.name} with {ends[rank]} chunks and begins {b.name} with {begins[rank]}"
        )
    for s, sizes in ((a, c.output_sizes), (b, d.sizes)):
        if (sizes != sizes[0]).any():
            raise UsageError(f"{name}: blocks of {s.name} have sizes {_few(sizes)}, wanted one size to regroup them")
    rank = int(np.argmax(ends))
    common = lcm(int(ends[rank]), int(begins[rank]))
    times, its_times = common // int(ends[rank]), common // int(begins[rank])
    differs = ends * times != begins * its_times
    if differs.any():
        other = int(np.argmax(differs))
        raise UsageError(
            f"{name}: rank {rank} ends {a.name} with {ends[rank]} chunks and begins {b.name} with {begins[rank]}, "
            f"rank {other} with {ends[other]} and {begins[other]}: no cut of the chunks makes both agree"
        )
    return refine(a, times), refine(b, its_times), False


def reversed(s: Schedule, *, as_: Collective | None = None) -> Schedule:
    """A schedule → the same backwards: a copy from x to y reduces y into x, and steps run from last to first.

    AllGather ↔ ReduceScatter, Broadcast ↔ Reduce, Scatter ↔ Gather; AllToAll and AllReduce are their own reverses. As
    a linear map from inputs to outputs, a schedule becomes its transpose: every path of a contribution is walked the
    other way. What was overwritten becomes empty, and what arrives first in an empty place is a copy. Reductions come
    in another order: for commutative operators.

    Valid when every input is wanted by some output, and no step overwrites a place that two transfers read in it, with
    what a third wants from the place it is read into. An AllReduce that is only right for idempotent operators has a
    reverse that is too.
    """
    s = s.matched()
    name = f"reversed({s.name})"
    c = _transposed(s.collective, s.name)
    old, steps = _places(s), _steps(s)
    row, read, write = _units(s)
    work = (s.action[row] != Action.COPY) | (read != write)
    row, read, write = row[work], read[work], write[work]
    step, copies = s.step[row], s.action[row] == Action.COPY
    bounds = np.searchsorted(step, np.arange(steps + 1))
    full = old.buffer == Buffer.OUTPUT
    action = np.full(len(row), -1)
    early = np.zeros(len(row), bool)
    for t in range(steps - 1, -1, -1):
        at = np.arange(bounds[t], bounds[t + 1])
        live = at[full[write[at]]]
        full[write[at[copies[at]]]] = False
        filled = live[~full[read[live]]]
        # The first to arrive in an empty place is a copy: one within the rank if there is one, then no message waits.
        filled = filled[np.argsort(old.rank[read[filled]] != old.rank[write[filled]], kind="stable")]
        targets, first, times = np.unique(read[filled], return_index=True, return_counts=True)
        action[live] = Action.REDUCE
        action[filled[first]] = Action.COPY
        early[filled[first[times > 1]]] = True
        lost = targets[times > 1][np.isin(targets[times > 1], write[live])]
        if len(lost):
            r, chunk = layout(s).name(int(lost[0]))
            source = s.source(int(row[live[write[live] == lost[0]][0]]))
            raise UsageError(
                f"{name}: step {t}: {chunk} of rank {r} is read by several transfers of the step that overwrites it "
                f"({source}): in reverse they would arrive while it is still being sent; split the step"
            )
        full[read[live]] = True
    keep = action >= 0
    when = np.where(early, 2 * (steps - 1 - step), 2 * (steps - 1 - step) + 1) + 1
    # Inputs become outputs; outputs become scratch, which is written to, loaded with the inputs of the result.
    kept = int(s.collective.outputs.max(initial=0)) * c.chunks
    buffer = np.array([Buffer.OUTPUT, Buffer.SCRATCH, Buffer.SCRATCH])[old.buffer]
    start = _starts(c, kept + s.scratch, name)
    place = start[old.rank, buffer] + old.chunk + np.array([0, 0, kept])[old.buffer]
    was_output = np.flatnonzero(old.buffer == Buffer.OUTPUT)
    source = start[old.rank, Buffer.INPUT][was_output] + old.chunk[was_output]
    loads = np.full(len(was_output), len(s.origins))
    table = _table(
        name, c, kept + s.scratch, (*s.origins, "load"),
        step=np.concatenate([0 * loads, when[keep]]), action=np.concatenate([0 * loads, action[keep]]),
        read=np.concatenate([source, place[write[keep]]]), write=np.concatenate([place[was_output], place[read[keep]]]),
        origin=np.concatenate([loads, s.origin[row[keep]]]), row=np.concatenate([0 * loads - 1, row[keep]]),
    )  # fmt: skip
    return tidy(_known(table, as_))


def tidy(s: Schedule) -> Schedule:
    """Local copies that only rename → none; scratch and steps without use → none. On each rank, in this order,

    - a scratch chunk whose last use is a copy to a place that nothing touched before *is* that place;
    - a scratch chunk that begins as a copy of an input, and ends before something else overwrites the output that
      shares memory with that input, *is* that output;
    - a scratch chunk that only ever holds a copy of an input *is* that input.

    What is correct in place stays so.

    Valid when no step has a race.
    """
    s = s.matched()
    places = layout(s, in_place=True)
    buffer = _places(s).buffer
    for rule in (_renamed, _reused, _unchanged):
        while True:
            chunk, place = rule(_Use.of(s, places.total), buffer, places.alias)
            if not len(chunk):
                break
            location = np.arange(places.total)
            location[chunk] = place
            p = _places(s)
            moved = Places(p.rank[location], p.buffer[location], p.chunk[location])
            s = _assemble(s.name, s.collective, s.scratch, [Part(s, moved, np.arange(_steps(s)))])
    return _compact(s)


class _Use(NamedTuple):
    """Who reads and writes when. Per single chunk moved: read, write, step, and whether it is a copy within a rank. Per
    location: first and last step of reading and of writing, -1 if none; the number of writes, and whether the first
    step that writes does so with one copy.
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
        row, read, write = _units(s)
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
    """Scratch chunks loaded from an input, and the outputs that share memory with it and come to life after them."""
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
    p = _places(s)
    _, read, write = _units(s)
    used = np.zeros(len(p.rank), bool)
    used[read] = used[write] = True
    used &= p.buffer == Buffer.SCRATCH
    before = np.concatenate([[0], np.cumsum(used)])
    start = _starts(s.collective, s.scratch, s.name)[:, Buffer.SCRATCH]
    rank_first = before[start]
    scratch = int(np.bincount(p.rank[used]).max(initial=0))
    chunk = np.where(p.buffer == Buffer.SCRATCH, np.where(used, before[:-1] - rank_first[p.rank], 0), p.chunk)
    busy = np.zeros(_steps(s), bool)
    busy[s.step] = True
    part = Part(s, Places(p.rank, p.buffer, chunk), np.cumsum(busy) - 1)
    return _assemble(s.name, s.collective, scratch, [part])


def relabel(s: Schedule, perm: Sequence[int] | Array) -> Schedule:
    """A schedule → the same in which rank r plays the part of rank perm[r].

    The collective stays what it is: blocks that are numbered by rank move with the ranks, and roots get their new
    numbers. Scan, which orders the ranks, becomes a collective of its own, as does one of yours.

    Valid when perm is a permutation of the ranks.
    """
    role = np.asarray(perm)
    if role.shape != (s.n,) or not np.array_equal(np.sort(role), np.arange(s.n)):
        raise UsageError(f"relabel({s.name}): perm is {_few(np.ravel(role))}, wanted each of 0..{s.n - 1} once")
    s = s.matched()
    plays = np.argsort(role)  # the new number of each old rank
    c = s.collective
    target, by_rank = _renumbered(c, plays, role)
    p = _places(s)
    chunk = p.chunk.copy()
    for buffer in by_rank:
        at = p.buffer == buffer
        chunk[at] = plays[p.chunk[at] // c.chunks] * c.chunks + p.chunk[at] % c.chunks
    part = Part(s, Places(plays[p.rank], p.buffer, chunk), np.arange(_steps(s)))
    return _assemble(s.name, target, s.scratch, [part])


_BLOCKS_BY_RANK: dict[str, tuple[Buffer, ...]] = {
    "all_reduce": (), "barrier": (), "broadcast": (), "reduce": (), "send_recv": (),
    "reduce_scatter": (Buffer.INPUT,), "scatter": (Buffer.INPUT,),
    "all_gather": (Buffer.OUTPUT,), "gather": (Buffer.OUTPUT,),
    "all_to_all": (Buffer.INPUT, Buffer.OUTPUT), "all_to_all_v": (Buffer.INPUT, Buffer.OUTPUT),
}  # fmt: skip
"""The collectives that any order of the ranks leaves what they are, and their buffers with a block for each rank."""


def _renumbered(c: Collective, plays: Array, role: Array) -> tuple[Collective, tuple[Buffer, ...]]:
    """The collective after a renumbering of the ranks, and the buffers whose blocks move too."""
    if c.name in _BLOCKS_BY_RANK and c == collective(c.name, c.n, chunks=c.chunks, **c.params):
        params = dict(c.params)
        if "root" in params:
            params["root"] = int(plays[params["root"]])
        if "pairs" in params:
            params["pairs"] = [(int(plays[a]), int(plays[b])) for a, b in params["pairs"]]
        if "counts" in params:
            params["counts"] = np.array(params["counts"])[np.ix_(role, role)].tolist()
        return collective(c.name, c.n, chunks=c.chunks, **params), _BLOCKS_BY_RANK[c.name]
    name = f"{c.name} relabelled" if c.name in COLLECTIVES else c.name
    return _spread(c, plays[None, :], c.n, name), ()


def within(s: Schedule, groups: Sequence[Sequence[int]] | Array, *, n: int | None = None) -> Schedule:
    """A schedule for a few ranks → the same in every group of ranks at once, rank i of a group playing rank i.

    There are n ranks, or as many as the highest in a group says; a rank in no group has no input and no output.

    Valid when every group has as many ranks as the schedule, and no rank is in two.
    """
    name = f"within({s.name})"
    sizes = {len(group) for group in groups}
    if sizes != {s.n}:
        raise UsageError(f"{name}: groups of {_few(sorted(sizes)) or 'no'} ranks, wanted {s.n}, as many as {s.name} has")
    table = np.array([list(group) for group in groups])
    if table.dtype.kind not in "iu":
        raise UsageError(f"{name}: a group holds {_few(table.ravel())}, wanted whole numbers")
    n = int(table.max()) + 1 if n is None else n
    if table.min() < 0 or table.max() >= n:
        raise UsageError(f"{name}: a group has rank {table.min() if table.min() < 0 else table.max()}, wanted one of 0..{n - 1}")
    ranks, times = np.unique(table, return_counts=True)
    if times.max() > 1:
        raise UsageError(f"{name}: rank {ranks[np.argmax(times)]} comes twice, wanted each rank at most once")
    if len(table) == 1 and np.array_equal(table[0], np.arange(n)):
        return s
    if len(table) == 1 and len(ranks) == n:
        return relabel(s, np.argsort(table[0]))
    s = s.matched()
    c = _spread(s.collective, table, n, f"{s.collective.name} in {len(table)} group{'s' * (len(table) > 1)}")
    p, steps = _places(s), np.arange(_steps(s))
    parts = [Part(s, Places(group[p.rank], p.buffer, p.chunk), steps) for group in table]
    return _assemble(name, c, s.scratch, parts)


def beside(*schedules: Schedule) -> Schedule:
    """Schedules for one collective → all of them side by side, each on its own parts of every block.

    A block is cut into as many parts as all of them cut it into together, and each takes as many as it has chunks, the
    first ones first. So the share of each is its number of chunks: see `striped` for shares of your choice.

    Valid when all do the same.
    """
    return _overlay(f"beside({', '.join(s.name for s in schedules)})", schedules, [0] * len(schedules))


def striped(schedules: Sequence[Schedule], weights: Sequence[int]) -> Schedule:
    """Schedules for one collective → `beside`, with shares of every block in proportion to the weights.

    Valid when all do the same, and there is a weight of 1 or more for each.
    """
    name = f"striped({', '.join(s.name for s in schedules)})"
    if len(weights) != len(schedules):
        raise UsageError(f"{name}: {len(weights)} weights for {len(schedules)} schedules, wanted one each")
    for weight in weights:
        _check_count(name, "weight", weight)
    cuts = [s.collective.chunks for s in schedules]
    unit = lcm(*(k // gcd(k, w) for k, w in zip(cuts, weights, strict=True)))
    parts = [refine(s, unit * w // k) for s, k, w in zip(schedules, cuts, weights, strict=True)]
    return replace(beside(*parts), name=name)


def instances(s: Schedule, k: int) -> Schedule:
    """A schedule → k copies of it side by side, each on a k-th of every block: `beside(s, …, s)`.

    Valid when k is at least 1.
    """
    _check_count("instances", "k", k)
    return _overlay(f"instances({s.name}, {k})", [s] * k, [0] * k)


def pipelined(s: Schedule, k: int, *, every: int | None = 1) -> Schedule:
    """A schedule → the same on k segments of every block one after another, each starting `every` steps later.

    `every=None` takes the shortest interval at which no rank sends or receives more messages in a step than it does
    in the busiest step of the schedule. Local copies at the beginning and the end are done for all segments at once.

    Valid for any schedule, k at least 1 and every at least 0, since segments have nothing in common.
    """
    _check_count("pipelined", "k", k)
    s = s.matched()
    if every is None:
        every = _interval(s, k)
    _check_count("pipelined", "every", every, least=0)
    return _overlay(f"pipelined({s.name}, {k})", [s] * k, [i * every for i in range(k)])


def _interval(s: Schedule, k: int) -> int:
    sent = np.flatnonzero(s.rank != s.peer)
    head, body, _ = _phases(s)
    busy = np.zeros((body, 2 * s.n), np.int64)
    np.add.at(busy, (s.step[sent] - head, s.rank[sent]), 1)
    np.add.at(busy, (s.step[sent] - head, s.peer[sent] + s.n), 1)
    for every in range(1, body):
        together = np.zeros((body + (k - 1) * every, 2 * s.n), np.int64)
        for i in range(k):
            together[i * every : i * every + body] += busy
        if together.max() <= busy.max():
            return every
    return max(body, 1)


def _steps(s: Schedule) -> int:
    return len(s.step_start) - 1


def _phases(s: Schedule) -> tuple[int, int, int]:
    """Steps before the first message, from the first to the last, and after the last."""
    step, total = s.step[s.rank != s.peer], _steps(s)
    if not len(step):
        return total, 0, 0
    return int(step[0]), int(step[-1] - step[0]) + 1, total - int(step[-1]) - 1


def _overlay(name: str, schedules: Sequence[Schedule], delays: Sequence[int]) -> Schedule:
    """Each schedule on its own parts of every block, its messages starting so many steps after the first may."""
    if not schedules:
        raise UsageError(f"{name}: no schedule, wanted at least one")
    schedules = [s.matched() for s in schedules]
    c = schedules[0].collective
    for s in schedules[1:]:
        if not s.collective.same_task(c) or s.collective.idempotent != c.idempotent:
            raise UsageError(f"{name}: {s.name} does {s.collective}, {schedules[0].name} does {c}: wanted the same of all")
    chunks = sum(s.collective.chunks for s in schedules)
    phases = [_phases(s) for s in schedules]
    opening = max(head for head, _, _ in phases)
    closing = opening + max(delay + body for delay, (_, body, _) in zip(delays, phases, strict=True))
    parts, first, scratch = [], 0, 0
    for s, delay, (head, body, tail) in zip(schedules, delays, phases, strict=True):
        k, p = s.collective.chunks, _places(s)
        split = p.chunk // k * chunks + first + p.chunk % k
        chunk = np.where(p.buffer == Buffer.SCRATCH, p.chunk + scratch, split)
        steps = [np.arange(head), opening + delay + np.arange(body), closing + np.arange(tail)]
        parts.append(Part(s, Places(p.rank, p.buffer, chunk), np.concatenate(steps)))
        first += k
        scratch += s.scratch
    return _assemble(name, c.cut(chunks), scratch, parts)


def hierarchical(intra: Schedule, inter: Schedule, last: Schedule | None = None) -> Schedule:
    """A schedule in every node and one across nodes → one for all ranks; rank l of node m is rank m·g + l.

    - ReduceScatter or Reduce of g ranks, AllReduce of the nodes, then `last`, the reverse of the first if not given:
      AllReduce. Across nodes, as many copies of `inter` run as ranks of a node hold a result.
    - The same collective twice, of AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Scatter, Gather and AllToAll:
      that collective, over ranks of a node first where data become fewer, over nodes first where they become more.

    Valid when the two are among these.
    """
    g, nodes = intra.n, inter.n
    kind, kind_across = intra.collective.name, inter.collective.name
    name = f"hierarchical({intra.name}, {inter.name})"
    ranks = np.arange(g * nodes).reshape(nodes, g)
    inside = within(intra, ranks)
    if kind in ("reduce_scatter", "reduce") and kind_across == "all_reduce":
        last = reversed(intra) if last is None else last
        if last.n != g:
            raise UsageError(f"{name}: {last.name} has {last.n} ranks, {intra.name} has {g}: wanted as many")
        across = within(inter, ranks.T[intra.collective.outputs > 0], n=g * nodes)
        return replace(then(then(inside, across), within(last, ranks)), name=name)
    if kind != kind_across or kind not in _UP + _DOWN or last is not None:
        then_last = "" if last is None else f", then {last.name}"
        raise UsageError(
            f"{name}: found {kind} in nodes and {kind_across} across{then_last}: wanted reduce_scatter or reduce in "
            f"nodes and all_reduce across, or for both one of {', '.join(_UP + _DOWN)}"
        )
    root, node = (s.collective.params.get("root") for s in (intra, inter))
    across = within(inter, ranks.T if root is None else ranks.T[root : root + 1], n=g * nodes)
    first, second = (inside, across) if kind in _UP else (across, inside)
    # What is cut by rank of a node first is in order of these ranks, and for each in order of the nodes.
    by_node = ranks.T.ravel()
    if kind in ("reduce_scatter", "all_to_all"):
        first = _reordered(first, Buffer.INPUT, by_node)
    if kind == "all_to_all":
        first = _reordered(first, Buffer.OUTPUT, by_node)
    if kind == "all_gather":
        second = _reordered(second, Buffer.OUTPUT, by_node)
    made = _joined(first, second, name)
    whole = collective(kind, g * nodes, **({} if root is None or node is None else {"root": node * g + root}))
    chunks = int(made.collective.inputs.max()) * made.collective.chunks // int(whole.inputs.max())
    return tidy(recast(made, whole.cut(chunks)))


_UP = ("all_reduce", "reduce_scatter", "reduce", "gather", "all_to_all")
_DOWN = ("all_gather", "broadcast", "scatter")


def _reordered(s: Schedule, buffer: Buffer, order: Array) -> Schedule:
    """The inputs or outputs of every rank, as many on each, as len(order) blocks, block i becoming block order[i]."""
    c = s.collective
    held = int((c.inputs if buffer == Buffer.INPUT else c.outputs)[0]) * c.chunks
    s = refine(s, len(order) // gcd(len(order), held))
    c, p = _chunkwise(s.collective), _places(s)
    counts, starts = (c.inputs, c.input_start) if buffer == Buffer.INPUT else (c.outputs, c.output_start)
    size = int(counts[0]) // len(order)
    at = p.buffer == buffer
    chunk = p.chunk.copy()
    chunk[at] = order[chunk[at] // size] * size + chunk[at] % size
    moved = starts[p.rank[at]] + chunk[at]
    if buffer == Buffer.INPUT:
        c = replace(c, set_items=moved[c.set_items], alias=c.alias[:0])
    else:
        c = replace(c, want=c.want[np.argsort(moved)], alias=c.alias[:0])
    return _assemble(s.name, c, s.scratch, [Part(s, Places(p.rank, p.buffer, chunk), np.arange(_steps(s)))])


def _check_count(name: str, what: str, value: Any, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UsageError(f"{name}: {what}={value!r}, wanted a whole number of {least} or more")
