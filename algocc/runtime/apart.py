"""Lowering for ranks that can't reach each other's arrays: peers touch only scratch, and across nodes not even that.

before: `out[0] = in[0] + r1.in[0]` on rank 0
after:  `scratch[0] = in[0]` on rank 1, then `out[0] = in[0] + r1.scratch[0]` on rank 0
and across nodes: `scratch[0], r0.scratch[0] = in[0]` on rank 1, then `out[0] = in[0] + scratch[0]` on rank 0

What a rank makes itself goes into its scratch by the Move that makes it; what it was given, by Moves before all others, so
that ranks that exchange their inputs wait for each other once. Each such copy has a slot of its own, so nothing new depends
on it but its readers. Valid for Moves whose destinations are all on one rank, as `fuse` gives them.

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
    rank, is_scratch = place // 3, place % 3 == Buffer.SCRATCH
    given = _given(m.src_start, m.src, m.dst_start, m.dst, rank, is_scratch)
    old, src, src_start, dst, dst_start, slot_rank = _separate(
        m.src_start, m.src, given, m.dst_start, m.dst, rank, is_scratch, node
    )
    # Room for the new slots at the end of each rank's scratch.
    n = len(node)
    turn = np.zeros(len(slot_rank), np.int64)
    for r in range(n):
        mine = slot_rank == r
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
def _given(src_start, src, dst_start, dst, rank, is_scratch):  # type: ignore[no-untyped-def]
    """For each source the location of its rank that held the same before the first Move, if any did; else -1."""
    found = np.empty(len(src), np.int64)
    held = np.arange(len(rank))
    for m in range(len(src_start) - 1):
        for i in range(src_start[m], src_start[m + 1]):
            found[i] = held[src[i]]
        a = src[src_start[m]]
        for i in range(dst_start[m], dst_start[m + 1]):
            is_copy = src_start[m + 1] - src_start[m] == 1 and rank[dst[i]] == rank[a] and not is_scratch[dst[i]]
            held[dst[i]] = found[src_start[m]] if is_copy else -1
    return found


@njit(cache=True, nogil=True)
def _separate(src_start, src, given, dst_start, dst, rank, is_scratch, node):  # type: ignore[no-untyped-def]
    """For each new Move twice the old one it comes from, plus 1 for a copy; twice its sources; its destinations, new
    slots numbered after the locations; and the rank of each slot.

    In here, value `a` is what location a holds now, and value `locations + a` what it held before the first Move.
    """
    moves, locations = len(src_start) - 1, len(rank)
    most = moves + len(src)
    slots = np.empty(2 * len(src), np.int64)
    old = np.empty(most, np.int64)
    new_src = np.empty(2 * len(src), np.int64)
    new_start = np.zeros(most + 1, np.int64)
    head = np.full(most, -1, np.int64)  # destinations of each new Move, as cells of `cell`
    tail = np.full(most, -1, np.int64)
    cell = np.empty((len(dst) + 2 * len(src), 2), np.int64)
    maker = np.full(2 * locations, -1, np.int64)  # new Move that made a value
    mirror = np.full(2 * locations, -1, np.int64)  # slot of its copy on its own rank
    copies = np.full(2 * locations, -1, np.int64)  # its copies on other nodes, as cells of `copy`
    copy = np.empty((len(src) + 1, 2), np.int64)
    made, cells, slot, copied, at = 0, 0, 0, 0, 0
    read = np.empty(len(src), np.int64)  # the value that each source of an old Move is, -1 where it is read as it is
    for m in range(moves):
        me = rank[dst[dst_start[m]]]
        for i in range(src_start[m], src_start[m + 1]):
            a = src[i]
            if rank[a] == me or (node[rank[a]] == node[me] and is_scratch[a]):
                read[i] = -1
            elif given[i] < 0:
                read[i] = a
            else:
                read[i] = locations + given[i]
                if maker[read[i]] < 0:
                    maker[read[i]] = made
                    old[made] = 2 * m + 1
                    new_src[at] = 2 * given[i]
                    at += 1
                    made += 1
                    new_start[made] = at
    for m in range(moves):
        me = rank[dst[dst_start[m]]]
        for i in range(src_start[m], src_start[m + 1]):
            a = read[i]
            if a < 0:
                continue
            owner = rank[a % locations]
            near = node[owner] == node[me]
            if mirror[a] < 0:
                mirror[a] = locations + slot
                slots[slot] = owner
                slot += 1
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
            a = read[i]
            if a < 0:
                new_src[at] = 2 * src[i]
            elif node[rank[a % locations]] == node[me]:
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
            maker[dst[i]] = made
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

    Valid when each rank's inputs and outputs are touched by one lane of its own only, which reads
    - no chunk of its input once the output chunk in the same place is written, nor as another chunk is written there, and
    - no chunk of its output before it is written: out of place nothing is there, in place the input;
    tiles of different iterations are different memory.
    """
    same = {
        (rank, i * p.collective.chunks + j): o * p.collective.chunks + j
        for rank, i, o in p.collective.alias.tolist()
        for j in range(p.collective.chunks)
    }
    lane_of: dict[int, int] = {}
    written: set[tuple[int, int]] = set()

    def cells(side: str, m: int) -> list[tuple[int, int, int]]:
        start = getattr(p, f"{side}_start")
        columns = (getattr(p, f"{side}_{name}")[start[m] : start[m + 1]].tolist() for name in ("rank", "buffer", "chunk"))
        return [cell for cell in zip(*columns, strict=True) if cell[1] != Buffer.SCRATCH]

    for lane in range(p.lanes):
        for m in range(p.lane_start[lane], p.lane_start[lane + 1]):
            srcs, dsts, count = cells("src", m), cells("dst", m), int(p.count[m])
            if any(rank != p.lane_rank[lane] or lane_of.setdefault(rank, lane) != lane for rank, _, _ in srcs + dsts):
                return False
            for rank, buffer, chunk in srcs:
                for j in range(count):
                    if buffer == Buffer.OUTPUT:
                        if (rank, chunk + j) not in written:
                            return False
                        continue
                    place = same.get((rank, chunk + j))
                    if place is None:
                        continue
                    if (rank, place) in written or any(0 <= place - at < count and place - at != j for _, _, at in dsts):
                        return False
            written |= {(rank, at + j) for rank, _, at in dsts for j in range(count)}
    return True
