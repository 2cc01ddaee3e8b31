"""Schedules on other ranks: renumbered, in groups, in the two levels of nodes and their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from algocc.algebra.demand import chunkwise, recast, spread
from algocc.algebra.remap import Part, Places, assemble, few, places_of, step_count
from algocc.algebra.reversal import reversed
from algocc.algebra.sequence import joined, then
from algocc.algebra.sharing import refine
from algocc.algebra.tidying import tidy
from algocc.collective import COLLECTIVES, Buffer, Collective, collective
from algocc.errors import UsageError, counted
from algocc.table import Array, Schedule


def relabel(s: Schedule, perm: Sequence[int] | Array) -> Schedule:
    """A schedule → the same in which rank r plays the part of rank perm[r].

    The collective stays what it is: blocks that are numbered by rank move with the ranks, and roots get their
    new numbers. Scan, which orders the ranks, becomes a collective of its own, as does one of yours.

    Valid when perm is a permutation of the ranks.
    """
    role = np.asarray(perm)
    if role.shape != (s.n,) or not np.array_equal(np.sort(role), np.arange(s.n)):
        raise UsageError(f"relabel({s.name}): perm is {few(np.ravel(role))}, wanted each of 0..{s.n - 1} once")
    s = s.matched()
    plays = np.argsort(role)  # the new number of each old rank
    c = s.collective
    target, by_rank = _renumbered(c, plays, role)
    p = places_of(s)
    chunk = p.chunk.copy()
    for buffer in by_rank:
        at = p.buffer == buffer
        chunk[at] = plays[p.chunk[at] // c.chunks] * c.chunks + p.chunk[at] % c.chunks
    part = Part(s, Places(plays[p.rank], p.buffer, chunk), np.arange(step_count(s)))
    return assemble(s.name, target, s.scratch, [part])


_BLOCKS_BY_RANK: dict[str, tuple[Buffer, ...]] = {
    "all_reduce": (), "barrier": (), "broadcast": (), "reduce": (), "send_recv": (),
    "reduce_scatter": (Buffer.INPUT,), "scatter": (Buffer.INPUT,),
    "all_gather": (Buffer.OUTPUT,), "gather": (Buffer.OUTPUT,),
    "all_to_all": (Buffer.INPUT, Buffer.OUTPUT), "all_to_all_v": (Buffer.INPUT, Buffer.OUTPUT),
}  # fmt: skip
"""The collectives that a renumbering leaves what they are, and their buffers with a block for each rank."""


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
    return spread(c, plays[None, :], c.n, name), ()


def within(s: Schedule, groups: Sequence[Sequence[int]] | Array, *, n: int | None = None) -> Schedule:
    """A schedule for a few ranks → the same in every group at once, rank i of a group playing rank i.

    There are n ranks, or as many as the highest in a group says; a rank in no group holds nothing.

    Valid when every group has as many ranks as the schedule, and no rank is in two.
    """
    name = f"within({s.name})"
    sizes = {len(group) for group in groups}
    if sizes != {s.n}:
        raise UsageError(f"{name}: groups of {few(sorted(sizes)) or 'no'} ranks, wanted {s.n}, as many as {s.name} has")
    table = np.array([list(group) for group in groups])
    if table.dtype.kind not in "iu":
        raise UsageError(f"{name}: a group holds {few(table.ravel())}, wanted whole numbers")
    n = int(table.max()) + 1 if n is None else n
    if table.min() < 0 or table.max() >= n:
        wrong = table.min() if table.min() < 0 else table.max()
        raise UsageError(f"{name}: a group has rank {wrong}, wanted one of 0..{n - 1}")
    ranks, times = np.unique(table, return_counts=True)
    if times.max() > 1:
        raise UsageError(f"{name}: rank {ranks[np.argmax(times)]} comes twice, wanted each rank at most once")
    if len(table) == 1 and np.array_equal(table[0], np.arange(n)):
        return s
    if len(table) == 1 and len(ranks) == n:
        return relabel(s, np.argsort(table[0]))
    s = s.matched()
    c = spread(s.collective, table, n, f"{s.collective.name} in {counted(len(table), 'group')}")
    p, steps = places_of(s), np.arange(step_count(s))
    parts = [Part(s, Places(group[p.rank], p.buffer, p.chunk), steps) for group in table]
    return assemble(name, c, s.scratch, parts)


def hierarchical(intra: Schedule, inter: Schedule, last: Schedule | None = None) -> Schedule:
    """A schedule in every node and one across nodes → one for all ranks; rank l of node m is rank m·g + l.

    - ReduceScatter or Reduce of g ranks, AllReduce of the nodes, then `last`, the reverse of the first if not
      given: AllReduce. Across nodes, as many copies of `inter` run as ranks of a node hold a result.
    - The same collective twice, of AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Scatter, Gather
      and AllToAll: that collective, over ranks of a node first where data become fewer, over nodes first
      where they become more.

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
            raise UsageError(f"{name}: {last.name} has {counted(last.n, 'rank')}, {intra.name} has {g}: wanted as many")
        across = within(inter, ranks.T[intra.collective.outputs > 0], n=g * nodes)
        return replace(then(then(inside, across), within(last, ranks)), name=name)
    if kind != kind_across or kind not in _UP + _DOWN or last is not None:
        then_last = "" if last is None else f", then {last.name}"
        raise UsageError(
            f"{name}: found {kind} in nodes and {kind_across} across{then_last}: wanted reduce_scatter or "
            f"reduce in nodes and all_reduce across, or for both one of {', '.join(_UP + _DOWN)}"
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
    made = joined(first, second, name)
    whole = collective(kind, g * nodes, **({} if root is None or node is None else {"root": node * g + root}))
    chunks = int(made.collective.inputs.max()) * made.collective.chunks // int(whole.inputs.max())
    return tidy(recast(made, whole.cut(chunks)))


_UP = ("all_reduce", "reduce_scatter", "reduce", "gather", "all_to_all")


_DOWN = ("all_gather", "broadcast", "scatter")


def _reordered(s: Schedule, buffer: Buffer, order: Array) -> Schedule:
    """The inputs or outputs of every rank, as many on each, in len(order) blocks: i becomes order[i]."""
    c = s.collective
    held = int((c.inputs if buffer == Buffer.INPUT else c.outputs)[0]) * c.chunks
    s = refine(s, len(order) // gcd(len(order), held))
    c, p = chunkwise(s.collective), places_of(s)
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
    return assemble(s.name, c, s.scratch, [Part(s, Places(p.rank, p.buffer, chunk), np.arange(step_count(s)))])
