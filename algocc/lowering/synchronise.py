"""Last pass of lowering: a signal and a wait for every dependency between lanes that nothing else implies.

Going through the Moves by level, each lane's clock says how far it knows every other lane to be, from the Moves
whose results it has read and what their lanes knew in turn. A dependency the clock covers needs no wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.lowering.order import Ordered, distinct
from algocc.program import Program
from algocc.table import Schedule

Array = NDArray[Any]


def synchronise(s: Schedule, o: Ordered, *, lanes: int, in_place: bool) -> Program:
    """The finished Program of ordered Moves."""
    moves, m = o.moves, len(o.first)
    lane_start = np.searchsorted(o.lane, np.arange(s.n * lanes + 1))
    position = np.arange(m) - lane_start[o.lane]
    cross = o.lane[o.before] != o.lane[o.after]
    before, after, reads = o.before[cross], o.after[cross], o.reads[cross]
    # By waiter, reads first and of them the latest: they may imply the others.
    by_waiter = np.lexsort((before, -o.level[before], ~reads, after))
    before, after, reads = before[by_waiter], after[by_waiter], reads[by_waiter]
    dep_start = np.searchsorted(after, np.arange(m + 1))
    by_level = np.lexsort((o.lane, o.level))
    clock, heard, needed = _reduce(by_level, o.lane, position, dep_start, before, reads, s.n * lanes)
    wait_on, waiter = before[needed], after[needed]

    cross = o.lane[o.again_before] != o.lane[o.again_after]
    before, after = o.again_before[cross], o.again_after[cross]
    # Implied by what the waiter knew at the end of that iteration, or has heard of the lane in this one.
    waiting, signalling = o.lane[after], o.lane[before]
    late = (position[before] >= clock[waiting, signalling]) & (position[after] < heard[waiting, signalling])
    before, after = before[late], after[late]
    # Per waiting lane and signalling lane, a wait only if it asks for more than those before it.
    by_lane = np.lexsort((-position[before], after, o.lane[before], o.lane[after]))
    before, after = before[by_lane], after[by_lane]
    keep = _records(o.lane[after] * np.int64(s.n * lanes) + o.lane[before], position[before])
    lag = np.concatenate([np.zeros(len(wait_on), np.int8), np.ones(int(keep.sum()), np.int8)])
    wait_on = np.concatenate([wait_on, before[keep]])
    waiter = np.concatenate([waiter, after[keep]])

    # One counter for each pair of lanes; one signal for each Move and lane that waits for it.
    signal = distinct(wait_on * np.int64(s.n * lanes) + o.lane[waiter])
    sender, target = signal // (s.n * lanes), signal % (s.n * lanes)
    pair = o.lane[sender] * np.int64(s.n * lanes) + target
    pairs = distinct(pair)
    counter = np.searchsorted(pairs, pair)
    order = np.lexsort((sender, counter))
    value = np.empty(len(signal), np.int64)
    first = np.searchsorted(counter[order], np.arange(len(pairs)))
    value[order] = np.arange(len(signal)) - first[counter[order]] + 1
    which = np.searchsorted(signal, wait_on * np.int64(s.n * lanes) + o.lane[waiter])
    by_waiter = np.lexsort((counter[which], waiter))

    sources, src = _ragged(moves.src_start, o.first)
    destinations, dst = _ragged(moves.dst_start, o.first)
    flat = moves.start.ravel()
    src_at = np.searchsorted(flat, moves.src[src], side="right") - 1
    dst_at = np.searchsorted(flat, moves.dst[dst], side="right") - 1
    row = moves.row[o.first]
    known = row >= 0
    return Program(
        name=s.name,
        collective=s.collective,
        in_place=in_place,
        scratch=moves.scratch,
        lane_rank=np.repeat(np.arange(s.n, dtype=np.int32), lanes),
        lane_start=lane_start,
        step=np.where(known, s.step[row] if len(s) else 0, 0).astype(np.int32),
        origin=np.where(known, s.origin[row] if len(s) else -1, -1).astype(np.int32),
        origins=s.origins,
        count=o.width,
        like=moves.like[o.first],
        final=moves.final[o.first],
        src_start=sources,
        src_rank=(src_at // 3).astype(np.int32),
        src_buffer=(src_at % 3).astype(np.int8),
        src_chunk=moves.src[src] - flat[src_at],
        src_first=moves.src_first[src],
        dst_start=destinations,
        dst_rank=(dst_at // 3).astype(np.int32),
        dst_buffer=(dst_at % 3).astype(np.int8),
        dst_chunk=moves.dst[dst] - flat[dst_at],
        wait_start=np.searchsorted(waiter[by_waiter], np.arange(m + 1)),
        wait_counter=counter[which][by_waiter].astype(np.int32),
        wait_value=value[which][by_waiter],
        wait_lag=lag[by_waiter],
        signal_start=np.searchsorted(sender, np.arange(m + 1)),
        signal_counter=counter.astype(np.int32),
        counter_writer=(pairs // (s.n * lanes)).astype(np.int32),
        counter_waiter=(pairs % (s.n * lanes)).astype(np.int32),
        counter_total=np.bincount(counter, minlength=len(pairs)),
    )


def _ragged(start: Array, picked: Array) -> tuple[Array, Array]:
    """The lists that `picked` picks of a ragged array: their starts, and the index of each of their items."""
    size = start[picked + 1] - start[picked]
    new = np.concatenate([[0], np.cumsum(size)])
    return new, np.arange(new[-1]) + np.repeat(start[picked] - new[:-1], size)


@njit(cache=True, nogil=True)
def _records(key, value):
    """Within each run of one key, the entries whose value exceeds all before it."""
    keep = np.zeros(len(key), np.bool_)
    best = -1
    for i in range(len(key)):
        if i == 0 or key[i] != key[i - 1]:
            best = -1
        if value[i] > best:
            keep[i], best = True, value[i]
    return keep


COLUMNS = 64
"""Lanes whose progress is followed at once, few enough for the clocks of all lanes to stay in cache."""
NEVER = 2**31 - 1


@njit(cache=True, nogil=True)
def _reduce(order, lane, position, dep_start, before, reads, lanes):
    """What each lane knows of each other at the end, which of its Moves first knows anything, and which
    dependencies need a wait."""
    final_clock = np.zeros((lanes, lanes), np.int32)
    heard = np.full((lanes, lanes), NEVER, np.int32)
    needed = np.zeros(len(before), np.bool_)
    users_of = np.zeros(len(lane), np.int32)  # Moves that will ask what a Move's lane knew after it
    for d in range(len(before)):
        users_of[before[d]] += reads[d]
    slot_of = np.full(len(lane), -1, np.int32)
    free = np.empty(len(lane) + 1, np.int32)
    pool = np.empty((16, COLUMNS), np.int32)
    for begin in range(0, lanes, COLUMNS):
        clock = np.zeros((lanes, COLUMNS), np.int32)
        users = users_of.copy()
        slots = 0
        available = 0
        for m in order:
            mine = clock[lane[m]]
            for d in range(dep_start[m], dep_start[m + 1]):
                b = before[d]
                column = lane[b] - begin
                if 0 <= column < COLUMNS and mine[column] <= position[b]:
                    needed[d] = True
                    mine[column] = position[b] + 1
                if reads[d]:
                    theirs = pool[slot_of[b]]
                    for k in range(COLUMNS):
                        mine[k] = max(mine[k], theirs[k])
                    users[b] -= 1
                    if users[b] == 0:
                        free[available] = slot_of[b]
                        available += 1
            for k in range(min(COLUMNS, lanes - begin)):
                if mine[k] > 0 and heard[lane[m], begin + k] == NEVER:
                    heard[lane[m], begin + k] = position[m]
            if 0 <= lane[m] - begin < COLUMNS:
                mine[lane[m] - begin] = position[m] + 1
            if users[m]:
                if available:
                    available -= 1
                    slot_of[m] = free[available]
                else:
                    slot_of[m] = slots
                    slots += 1
                    if slots > len(pool):
                        wider = np.empty((2 * len(pool), COLUMNS), np.int32)
                        wider[: len(pool)] = pool
                        pool = wider
                pool[slot_of[m]] = mine
        width = min(COLUMNS, lanes - begin)
        final_clock[:, begin : begin + width] = clock[:, :width]
    return final_clock, heard, needed
