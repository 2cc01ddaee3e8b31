"""What schedules made of schedules must do: collectives regrouped, composed, transposed, in groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from algocc.algebra.remap import few
from algocc.collective import Collective, collective
from algocc.errors import UsageError, counted
from algocc.table import Array, Schedule

MOST_CONTRIBUTIONS = 1 << 28
"""Most contributions that the outputs of a composed collective may want in all."""


def chunkwise(c: Collective) -> Collective:
    """The same demand with a block for every chunk, and sizes in the least whole units."""
    part = np.arange(c.chunks)
    sets = np.repeat(np.arange(len(c.set_start) - 1), c.chunks)
    lengths, items = c.sets(sets)
    sizes = np.repeat(c.sizes // max(1, int(np.gcd.reduce(c.sizes))), c.chunks)
    parts = np.tile(part, len(c.set_start) - 1)
    return Collective(
        c.name, c.n, c.inputs * c.chunks, c.outputs * c.chunks,
        want=(c.want[:, None] * c.chunks + part).ravel(), set_start=np.concatenate([[0], np.cumsum(lengths)]),
        set_items=items * c.chunks + np.repeat(parts, lengths),
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


def known(s: Schedule, as_: Collective | None) -> Schedule:
    """`recast` to `as_` if it is given, else to the built-in collective that demands the same, else as it is.

    What the result may do in place can be more than before, so this is for schedules that read
    all inputs first.
    """
    if as_ is not None:
        return recast(s, as_)
    c = s.collective
    for name, params in _candidates(c):
        d = collective(name, c.n, **params)
        if d.idempotent == c.idempotent and _as_many(c, d) and chunkwise(c).same_task(chunkwise(d)):
            return replace(s, collective=d)
    return s


def _as_many(c: Collective, d: Collective) -> bool:
    """Whether every output chunk wants as many contributions in both: cheap to see, and rarely so by chance."""
    mine, its = (np.repeat(np.diff(x.set_start)[x.want], x.chunks) for x in (c, d))
    return np.array_equal(mine, its)


def recast(s: Schedule, as_: Collective) -> Schedule:
    """A schedule for one collective → the same rows for another, which may block the chunks otherwise.

    ReduceScatter has n blocks of k parts, AllReduce one of n·k: who reduces all vectors block by block has
    reduced all vectors. An element count that n·k does not divide is then cut by the one block, not block by
    block.

    Valid when both demand the same of every chunk. What shares memory in place is as `as_` says: a schedule
    that is correct in place for the one need not be for the other.
    """
    c, d = chunkwise(s.collective), chunkwise(as_)
    if c.idempotent == d.idempotent and c.same_task(d):
        return replace(s, collective=as_)
    wrong = f"{s.name} does {s.collective}, not {as_}"
    if c.n != d.n:
        raise UsageError(f"{wrong}: found {counted(c.n, 'rank')}, wanted {d.n}")
    for what in ("inputs", "outputs"):
        found, wanted = getattr(c, what), getattr(d, what)
        if not np.array_equal(found, wanted):
            raise UsageError(f"{wrong}: found {what} of {few(found)} chunks on the ranks, wanted {few(wanted)}")
    for rank, chunk in ((r, i) for r in range(c.n) for i in range(int(c.outputs[r]))):
        mine, other = c.wanted(rank, chunk), d.wanted(rank, chunk)
        if mine != other:
            what = f"out[{chunk}] of rank {rank} reduces {few(mine)}, wanted {few(other)}"
            raise UsageError(f"{wrong}: {what} (rank, chunk of its input)")
    raise UsageError(f"{wrong}: the sizes of the blocks differ, or one wants sets and the other multisets")


def compose(a: Collective, b: Collective) -> Collective:
    """What is demanded of `b` after `a`, whose outputs are the inputs of `b` block for block."""
    number, kinds = _distinct(b.set_start, a.want[b.set_items])
    lengths, items = b.sets(kinds)
    starts, sets = np.concatenate([[0], np.cumsum(lengths)]), a.want[items]
    lengths = np.diff(a.set_start)[sets]
    if lengths.sum() > MOST_CONTRIBUTIONS:
        raise UsageError(f"{a.name} then {b.name}: {lengths.sum()} contributions, wanted at most {MOST_CONTRIBUTIONS}")
    items = a.sets(sets)[1]
    set_start = np.concatenate([[0], np.cumsum(lengths)])[starts]
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
        f"{a.name} then {b.name}", a.n, a.inputs, b.outputs, number[b.want], set_start, items, alias,
        sizes=a.sizes, idempotent=idempotent, chunks=a.chunks,
    )  # fmt: skip


def _distinct(set_start: Array, items: Array) -> tuple[Array, Array]:
    """For multisets laid out as those of a collective: the number of each one's kind, and one of each kind.

    Many blocks may want the same, and what is wanted is spelled out once.
    """
    lengths = np.diff(set_start)
    ordered = items[np.lexsort((items, np.repeat(np.arange(len(lengths)), lengths)))]
    number, kinds, found = np.empty(len(lengths), np.int64), [np.zeros(0, np.int64)], 0
    for length in np.unique(lengths):
        which = np.flatnonzero(lengths == length)
        rows = ordered[set_start[which][:, None] + np.arange(length)]
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        number[which] = found + inverse.ravel()
        kinds.append(which[first])
        found += len(first)
    return number, np.concatenate(kinds)


def transpose(c: Collective, name: str) -> Collective:
    """Output block i wants input block o as often as output block o of `c` wants its input block i."""
    lengths, items = c.sets(c.want)
    owner = np.repeat(np.arange(len(c.want)), lengths)
    times = np.bincount(items, minlength=int(c.inputs.sum()))
    if not times.all():
        block = int(np.argmin(times))
        rank = int(np.searchsorted(c.input_start, block, side="right")) - 1
        raise UsageError(
            f"reversed({name}): block {block - c.input_start[rank]} of the input of rank {rank} goes nowhere"
            ", so in reverse nothing would arrive there: every input must be wanted by some output"
        )
    owner, set_start = owner[np.argsort(items, kind="stable")], np.concatenate([[0], np.cumsum(times)])
    number, kinds = _distinct(set_start, owner)
    made = Collective(
        f"{c.name} reversed", c.n, c.outputs, c.inputs, np.arange(len(times)), set_start, owner,
        c.alias[:, [0, 2, 1]], sizes=c.output_sizes, idempotent=c.idempotent, chunks=c.chunks,
    )  # fmt: skip
    lengths, items = made.sets(kinds)
    return replace(made, want=number, set_start=np.concatenate([[0], np.cumsum(lengths)]), set_items=items)


def spread(c: Collective, groups: Array, n: int, name: str) -> Collective:
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
        name, n, inputs, outputs, want, np.concatenate([[0], np.cumsum(lengths)]),
        block_in[:, c.set_items].ravel(),
        rows(c.alias), rows(c.load), rows(c.store), c.source, c.sink, c.work, sizes, c.idempotent, c.chunks,
    )  # fmt: skip
