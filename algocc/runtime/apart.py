"""Lowering for ranks that can't reach each other's arrays: peers touch only scratch, and across nodes not even that.

before: `out[0] = in[0] + r1.in[0]` on rank 0
after:  `scratch[0] = in[0]` on rank 1, then `out[0] = in[0] + r1.scratch[0]` on rank 0
and across nodes: `scratch[0], r0.scratch[0] = in[0]` on rank 1, then `out[0] = in[0] + scratch[0]` on rank 0

What a rank makes itself goes into its scratch by the Move that makes it. Each such copy has a slot of its own, so nothing
new depends on it but its readers. Valid for Moves whose destinations are all on one rank, as `fuse` gives them.

A destination on another node is a message: it is always the copy of one in the sender's own scratch, only the rank that it
is for reads it, and the Program's order of a lane is the order in which its messages to one rank are sent and received.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import ScheduleError
from algocc.lowering.fuse import Moves, fuse
from algocc.lowering.order import order
from algocc.lowering.synchronise import synchronise
from algocc.program import Program
from algocc.table import Schedule, form_failures, layout

Array = NDArray[Any]


def lower_apart(s: Schedule, *, in_place: bool = False, nodes: Sequence[int] | None = None) -> Program:
    """Schedule → Program with one lane a rank, of which no lane touches the input or output of another rank.

    nodes: the node of each rank, all on one if not given.

    Raises ScheduleError if the schedule is malformed.

    >>> from algocc.program import listing
    >>> from algocc.schedules.all_pairs import one_shot
    >>> print(listing(lower_apart(one_shot(2))))
    program one_shot: all_reduce n=2 chunks=1, out of place; 2 lanes, 4 moves, 2 counters, 1 scratch slot a rank
    rank 0 lane 0
      0: wait c1>=2'; scratch[0] = in[0]; signal c0
      1: wait c1>=1; out[0] = in[0] + r1.scratch[0]; signal c0
    rank 1 lane 1
      0: wait c0>=2'; scratch[0] = in[0]; signal c1
      1: wait c0>=1; out[0] = r0.scratch[0] + in[0]; signal c1
    """
    failures = form_failures(s, most=1)
    if failures:
        raise ScheduleError(f"schedule {s.name}: {failures[0]}")
    s = s.matched()
    node = np.zeros(s.n, np.int64) if nodes is None else np.asarray(nodes, np.int64)
    moves = separate(fuse(s, layout(s, in_place=in_place)), node)
    return synchronise(s, order(s, moves, 1), lanes=1, in_place=in_place)


def lower_pushed(s: Schedule, *, in_place: bool = False) -> Program:
    """Schedule → Program with one lane a rank, which writes to its peers and never reads of them: into slots of their scratch
    that have one writer, and no reader but their own lane.

    before: `scratch[0] = in[0]` on rank 1, then `out[0] = in[0] + r1.scratch[0]` on rank 0
    after:  `r0.scratch[0] = in[0]` on rank 1, then `out[0] = in[0] + scratch[0]` on rank 0

    Raises ScheduleError if the schedule is malformed.

    >>> from algocc.program import listing
    >>> from algocc.schedules.all_pairs import one_shot
    >>> print(listing(lower_pushed(one_shot(2))))
    program one_shot: all_reduce n=2 chunks=1, out of place; 2 lanes, 4 moves, 2 counters, 1 scratch slot a rank
    rank 0 lane 0
      0: wait c1>=2'; r1.scratch[0] = in[0]; signal c0
      1: wait c1>=1; out[0] = in[0] + scratch[0]; signal c0
    rank 1 lane 1
      0: wait c0>=2'; r0.scratch[0] = in[0]; signal c1
      1: wait c0>=1; out[0] = scratch[0] + in[0]; signal c1
    """
    return _without_unread(lower_apart(s, in_place=in_place, nodes=range(s.n)))


def _without_unread(p: Program) -> Program:
    """The Program without destinations in scratch that no Move reads, and scratch without what they leave empty."""
    n, slots = p.n, p.scratch

    def cells(start: Array, rank: Array, buffer: Array, chunk: Array) -> tuple[Array, Array]:
        """The slots that operands in scratch are, as numbers, and the operand of each."""
        count = np.where(buffer == Buffer.SCRATCH, np.repeat(p.count, np.diff(start)), 0)
        operand = np.repeat(np.arange(len(rank)), count)
        within = np.arange(len(operand)) - np.repeat(np.cumsum(count) - count, count)
        return rank[operand].astype(np.int64) * slots + chunk[operand] + within, operand

    read, _ = cells(p.src_start, p.src_rank, p.src_buffer, p.src_chunk)
    written, operand = cells(p.dst_start, p.dst_rank, p.dst_buffer, p.dst_chunk)
    is_read = np.zeros(n * slots, bool)
    is_read[read] = True
    kept = p.dst_buffer != Buffer.SCRATCH
    np.logical_or.at(kept, operand, is_read[written])
    writer = np.repeat(np.arange(p.moves), np.diff(p.dst_start))
    kept |= np.bincount(writer[kept], minlength=p.moves)[writer] == 0  # a Move that nobody needs stays as it is
    used = is_read
    used[written[kept[operand]]] = True
    place = (np.cumsum(used.reshape(n, slots), axis=1) - 1).ravel() if slots else np.zeros(0, np.int64)

    def moved(rank: Array, buffer: Array, chunk: Array) -> Array:
        out = chunk.copy()
        at = np.flatnonzero(buffer == Buffer.SCRATCH)
        out[at] = place[rank[at].astype(np.int64) * slots + chunk[at]]
        return out

    before = np.concatenate([[0], np.cumsum(kept)])
    dst = [column[kept] for column in (p.dst_rank, p.dst_buffer, p.dst_chunk)]
    return replace(
        p, scratch=int(used.reshape(n, slots).sum(axis=1).max(initial=0)), src_chunk=moved(p.src_rank, p.src_buffer, p.src_chunk),
        dst_start=before[p.dst_start], dst_rank=dst[0], dst_buffer=dst[1], dst_chunk=moved(*dst),
    )  # fmt: skip


def separate(m: Moves, node: Array) -> Moves:
    """The Moves with copies in scratch for what other ranks read, and in theirs for what other nodes read."""
    locations = int(m.start[-1, 2]) + m.scratch
    place = np.searchsorted(m.start.ravel(), np.arange(locations), side="right") - 1
    old, src, src_start, dst, dst_start, slot_rank = _separate(
        m.src_start, m.src, m.dst_start, m.dst, place // 3, place % 3 == Buffer.SCRATCH, node
    )
    # Room for the new slots at the end of each rank's scratch.
    n = len(node)
    turn = np.zeros(len(slot_rank), np.int64)
    for rank in range(n):
        mine = slot_rank == rank
        turn[mine] = np.arange(int(mine.sum()))
    more = int(turn.max(initial=-1)) + 1
    start = m.start + more * np.arange(n)[:, None]
    where = np.concatenate(
        [np.arange(locations) + more * (place // 3), start[slot_rank, 2] + m.scratch + turn]
    )
    origin = old >> 1
    fresh = (old & 1) == 1
    return Moves(
        m.row[origin], m.like[origin], m.final[origin] & ~fresh,
        src_start, where[src >> 1], (src & 1) == 1, dst_start, where[dst], start, m.scratch + more,
    )._replace(src_first=_first(m, src, src_start, origin, fresh))  # fmt: skip


def _first(m: Moves, src: Array, src_start: Array, origin: Array, fresh: Array) -> Array:
    """Whether each source is a contribution as it came in: as it was, a copy being what it is a copy of."""
    out = np.zeros(len(src), bool)
    width = np.diff(src_start)
    kept = np.repeat(~fresh, width)
    at = np.repeat(m.src_start[origin] - src_start[:-1], width) + np.arange(len(src))
    out[kept] = m.src_first[at[kept]]
    return out


@njit(cache=True, nogil=True)
def _separate(src_start, src, dst_start, dst, rank, is_scratch, node):  # type: ignore[no-untyped-def]
    """For each new Move twice the old one it comes from, plus 1 for a copy; twice its sources; its destinations, new
    slots numbered after the locations; and the rank of each slot."""
    moves, locations = len(src_start) - 1, len(rank)
    most = moves + len(src)
    slots = np.empty(2 * len(src), np.int64)
    old = np.empty(most, np.int64)
    new_src = np.empty(2 * len(src), np.int64)
    new_start = np.zeros(most + 1, np.int64)
    head = np.full(most, -1, np.int64)  # destinations of each new Move, as cells of `cell`
    tail = np.full(most, -1, np.int64)
    cell = np.empty((len(dst) + 2 * len(src), 2), np.int64)
    writer = np.full(locations, -1, np.int64)  # new Move that wrote a location last
    mirror = np.full(locations, -1, np.int64)  # slot of its copy on its own rank
    maker = np.full(locations, -1, np.int64)  # new Move that writes that copy
    copies = np.full(locations, -1, np.int64)  # its copies on other nodes, as cells of `copy`
    copy = np.empty((len(src) + 1, 2), np.int64)
    made, cells, slot, copied, at = 0, 0, 0, 0, 0
    for m in range(moves):
        me = rank[dst[dst_start[m]]]
        for i in range(src_start[m], src_start[m + 1]):
            a = src[i]
            owner = rank[a]
            near = node[owner] == node[me]
            if owner == me or (near and is_scratch[a]):
                continue
            if mirror[a] < 0:
                mirror[a] = locations + slot
                slots[slot] = owner
                slot += 1
                if writer[a] >= 0:
                    maker[a] = writer[a]
                else:
                    maker[a] = made
                    old[made] = 2 * m + 1
                    new_src[at] = 2 * a
                    at += 1
                    made += 1
                    new_start[made] = at
                cell[cells, 0], cell[cells, 1] = mirror[a], -1
                if head[maker[a]] < 0:
                    head[maker[a]] = cells
                else:
                    cell[tail[maker[a]], 1] = cells
                tail[maker[a]] = cells
                cells += 1
            if not near:
                c = copies[a]
                while c >= 0 and slots[copy[c, 0] - locations] != me:
                    c = copy[c, 1]
                if c < 0:
                    copy[copied, 0], copy[copied, 1] = locations + slot, copies[a]
                    copies[a] = copied
                    copied += 1
                    cell[cells, 0], cell[cells, 1] = locations + slot, -1
                    cell[tail[maker[a]], 1] = cells
                    tail[maker[a]] = cells
                    cells += 1
                    slots[slot] = me
                    slot += 1
        old[made] = 2 * m
        for i in range(src_start[m], src_start[m + 1]):
            a = src[i]
            near = node[rank[a]] == node[me]
            if rank[a] == me or (near and is_scratch[a]):
                new_src[at] = 2 * a
            elif near:
                new_src[at] = 2 * mirror[a]
            else:
                c = copies[a]
                while slots[copy[c, 0] - locations] != me:
                    c = copy[c, 1]
                new_src[at] = 2 * copy[c, 0]
            at += 1
        for i in range(dst_start[m], dst_start[m + 1]):
            cell[cells, 0], cell[cells, 1] = dst[i], -1
            if head[made] < 0:
                head[made] = cells
            else:
                cell[tail[made], 1] = cells
            tail[made] = cells
            cells += 1
            writer[dst[i]] = made
            mirror[dst[i]] = copies[dst[i]] = -1
        made += 1
        new_start[made] = at
    new_dst = np.empty(cells, np.int64)
    new_dst_start = np.zeros(made + 1, np.int64)
    at = 0
    for k in range(made):
        c = head[k]
        while c >= 0:
            new_dst[at] = cell[c, 0]
            at += 1
            c = cell[c, 1]
        new_dst_start[k + 1] = at
    return old[:made], new_src[: new_start[made]], new_start[: made + 1], new_dst, new_dst_start, slots[:slot]


def replaces_in_place(p: Program) -> bool:
    """Whether a Program made for out of place and for ranks apart may be given the aliased inputs as its outputs.

    Valid when no lane reads a chunk of its input after it has written the output chunk in the same place: other ranks
    see neither, and tiles of different iterations are different memory.
    """
    c = p.collective
    k = c.chunks
    same = {}
    for rank, i, o in c.alias.tolist():
        for j in range(k):
            same[rank, i * k + j] = o * k + j
    for lane in range(p.lanes):
        rank = int(p.lane_rank[lane])
        written: set[int] = set()
        for m in range(p.lane_start[lane], p.lane_start[lane + 1]):
            count = int(p.count[m])
            targets: set[int] = set()
            for i in range(p.dst_start[m], p.dst_start[m + 1]):
                if p.dst_buffer[i] == Buffer.OUTPUT:
                    targets.update(range(int(p.dst_chunk[i]), int(p.dst_chunk[i]) + count))
            for i in range(p.src_start[m], p.src_start[m + 1]):
                if p.src_buffer[i] != Buffer.INPUT:
                    continue
                for j in range(count):
                    place = same.get((rank, int(p.src_chunk[i]) + j))
                    if place is None:
                        continue
                    if place in written or (place in targets and place != int(p.dst_chunk[p.dst_start[m]]) + j):
                        return False
            written |= targets
    return True
