"""Second pass of lowering: dependencies, levels, lanes, and Moves of neighbouring chunks merged into one.

A Move's level is one more than the highest level of those it depends on. Lanes run their Moves by level and all
waits go from a lower level to a higher one, so no order of waits can close a circle; and Moves of one level
never depend on each other, so those of one lane on neighbouring chunks may become one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.lowering.fuse import Moves
from algocc.table import Schedule

Array = NDArray[Any]


class Ordered(NamedTuple):
    """Moves sorted by (lane, level), and what each depends on.

    lane, level, width: of each Move; its width is the number of its chunks.
    first: the chunk-sized Move that each begins with, an index into `moves`.
    moves: the chunk-sized Moves.
    before, after: pairs of Moves, `after` depending on `before`; each pair once, sorted.
    reads: whether a pair is, among others, a read of what was written.
    again_before, again_after: as above, but on the Move of the iteration before (scratch is used again).
    """

    lane: Array
    level: Array
    width: Array
    first: Array
    moves: Moves
    before: Array
    after: Array
    reads: Array
    again_before: Array
    again_after: Array


def order(s: Schedule, moves: Moves, lanes: int) -> Ordered:
    """Sort and merge; `lanes` of each rank share its chunks in contiguous runs of every rank's input."""
    c = s.collective
    total = len(moves.row)
    locations = int(moves.start[-1, 2]) + moves.scratch
    is_scratch = np.zeros(locations + 1, np.int32)
    np.add.at(is_scratch, moves.start[:, 2], 1)
    np.add.at(is_scratch, moves.start[:, 2] + moves.scratch, -1)
    in_scratch = np.cumsum(is_scratch)[:-1] > 0
    before, after, is_read, level, again_before, again_after = _depend(
        moves.src_start, moves.src, moves.dst_start, moves.dst, in_scratch
    )
    dst = moves.dst[moves.dst_start[:-1]]
    rank = np.searchsorted(moves.start[:, 0], dst, side="right") - 1
    begin = c.input_start * c.chunks
    owner = np.searchsorted(begin, moves.like, side="right") - 1
    share = (moves.like - begin[owner]) * lanes // np.maximum(1, c.inputs[owner] * c.chunks)
    lane = rank * lanes + share

    sources, destinations = np.diff(moves.src_start), np.diff(moves.dst_start)
    # Within a level first what is in scratch, since others wait for it.
    sequence = np.lexsort((dst, destinations, sources, ~in_scratch[dst], level, lane))
    ahead, here = sequence[:-1], sequence[1:]
    joins = np.ones(max(total - 1, 0), bool)
    for column in (lane, level, sources, destinations, moves.final):
        joins &= column[ahead] == column[here]
    # Neighbours: each operand one chunk further, in the same buffer of the same rank; the lengths too.
    buffer = np.searchsorted(moves.start.ravel(), np.arange(locations), side="right")
    joins &= (moves.like[here] == moves.like[ahead] + 1) & (owner[here] == owner[ahead])
    joins &= _neighbours(moves.src_start, moves.src, moves.src_first, buffer, ahead, here, joins)
    joins &= _neighbours(moves.dst_start, moves.dst, moves.dst >= 0, buffer, ahead, here, joins)
    starts = np.concatenate([[True], ~joins]) if total else np.zeros(0, bool)
    group = np.empty(total, np.int64)
    group[sequence] = np.cumsum(starts) - 1
    first = sequence[starts]
    count = np.bincount(group, minlength=len(first))

    size = np.int64(max(1, len(first)))
    pairs = distinct((group[before] * size + group[after]) * 2 + ~is_read)
    pairs = pairs[np.concatenate([[True], pairs[1:] >> 1 != pairs[:-1] >> 1])] if len(pairs) else pairs
    again = distinct(group[again_before] * size + group[again_after])
    return Ordered(
        lane[first], level[first], count, first, moves,
        (pairs >> 1) // size, (pairs >> 1) % size, pairs % 2 == 0, again // size, again % size,
    )  # fmt: skip


def distinct(x: Array) -> Array:
    """The distinct entries, sorted: `np.unique` by sorting, which here is many times faster than by hashing."""
    x = np.sort(x)
    return x[np.concatenate([[True], x[1:] != x[:-1]])] if len(x) else x


@njit(cache=True, nogil=True)
def _neighbours(start, place, flag, buffer, ahead, here, asked):
    """Whether every operand of Move `here[i]` is one chunk after that of Move `ahead[i]`, where asked."""
    out = np.zeros(len(ahead), np.bool_)
    for i in range(len(ahead)):
        if asked[i]:
            a, b = start[ahead[i]], start[here[i]]
            same = True
            for j in range(start[here[i] + 1] - b):
                p, q = place[a + j], place[b + j]
                same &= q == p + 1 and buffer[p] == buffer[q] and flag[a + j] == flag[b + j]
            out[i] = same
    return out


@njit(cache=True, nogil=True)
def _depend(src_start, src, dst_start, dst, is_scratch):
    """Pairs (before, after) by location, which of them are reads, levels, and the pairs from one iteration to the next through scratch."""
    moves = len(src_start) - 1
    before = np.empty(2 * len(src) + len(dst), np.int32)
    after = np.empty(2 * len(src) + len(dst), np.int32)
    is_read = np.zeros(2 * len(src) + len(dst), np.bool_)
    pairs = 0
    level = np.zeros(moves, np.int32)
    writer = np.full(len(is_scratch), -1, np.int32)
    first_writer = np.full(len(is_scratch), -1, np.int32)
    reader_head = np.full(len(is_scratch), -1, np.int32)  # readers since the last write, as cells of `src`
    reader_next = np.empty(len(src), np.int32)
    reader = np.empty(len(src), np.int32)
    for m in range(moves):
        begin = pairs
        for i in range(src_start[m], src_start[m + 1]):
            place = src[i]
            if writer[place] >= 0:
                before[pairs], after[pairs], is_read[pairs] = writer[place], m, True
                pairs += 1
            reader[i], reader_next[i] = m, reader_head[place]
            reader_head[place] = i
        for i in range(dst_start[m], dst_start[m + 1]):
            place = dst[i]
            cell = reader_head[place]
            if cell < 0 and writer[place] >= 0:
                before[pairs], after[pairs] = writer[place], m
                pairs += 1
            while cell >= 0:
                if reader[cell] != m:
                    before[pairs], after[pairs] = reader[cell], m
                    pairs += 1
                cell = reader_next[cell]
            reader_head[place] = -1
            writer[place] = m
            if first_writer[place] < 0:
                first_writer[place] = m
        for i in range(begin, pairs):
            level[m] = max(level[m], level[before[i]] + 1)
    again_before = np.empty(len(src) + len(dst), np.int32)
    again_after = np.empty(len(src) + len(dst), np.int32)
    again = 0
    for place in range(len(is_scratch)):
        if is_scratch[place] and first_writer[place] >= 0:
            cell = reader_head[place]
            if cell < 0:
                again_before[again], again_after[again] = writer[place], first_writer[place]
                again += 1
            while cell >= 0:
                again_before[again], again_after[again] = reader[cell], first_writer[place]
                again += 1
                cell = reader_next[cell]
    return before[:pairs], after[:pairs], is_read[:pairs], level, again_before[:again], again_after[:again]
