"""First pass of lowering: which Moves there are, what each reads and where it writes.

Every location holds a *node*: an input, a copy, or a reduction of other nodes. A node stays *pending*, held by no
memory, until another rank reads it, something it reads is about to be overwritten, or the schedule ends. So a
copy within a rank costs nothing, reductions into one place become one Move that reads each source once, and
what nobody needs is never done. Ranks that exchange in place would each have to go first; there one result is
put in a slot of scratch, a *temporary*.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.table import Layout, Schedule, lengths, starts

Array = NDArray[Any]


class Moves(NamedTuple):
    """Moves of one chunk each, in an order that respects what they depend on.

    row: the row of the schedule that a Move comes from.
    like: the input chunk whose length it has.
    final: it reduces the last contribution of an output.
    src_start, src, src_first: locations read, and whether each is a contribution as it came in.
    dst_start, dst: locations written.
    start: location of chunk 0 of each buffer of each rank, with the temporaries after the schedule's scratch.
    scratch: slots of each rank.
    """

    row: Array
    like: Array
    final: Array
    src_start: Array
    src: Array
    src_first: Array
    dst_start: Array
    dst: Array
    start: Array
    scratch: int


class _State(NamedTuple):
    """What `_fuse` knows so far; the linked lists have a head per node and cells of (item, next)."""

    content: Array  # node of each location
    resident: Array  # node whose home a location, or temporary, is
    home: Array  # location that holds each node, -1 while pending
    refs: Array  # locations whose content a node is, and readers of the current step
    rank: Array  # rank of each node
    like: Array  # input chunk whose length a node has
    raw: Array  # a single contribution as it came in
    row: Array  # row that made the node
    busy: Array  # on the stack of `_settle`
    src_head: Array
    src_tail: Array
    src: Array
    reader_head: Array
    reader: Array
    holder_head: Array
    holder: Array
    is_output: Array
    last_write: Array
    length: Array  # of each input chunk, and what each location has room for, as `lengths` numbers them
    room: Array
    temporary: Array  # rank of each temporary
    move_row: Array
    move_node: Array
    src_start: Array
    src_loc: Array
    src_raw: Array
    dst_start: Array
    dst_loc: Array
    used: Array  # nodes, source cells, reader cells, holder cells, temporaries, moves


NODES, SRCS, READERS, HOLDERS, TEMPS, MOVES = range(6)
DEAD, GONE = 1, 2


def fuse(s: Schedule, places: Layout) -> Moves:
    """The Moves of a matched schedule of good form."""
    c = s.collective
    of_input = places.alias[places.chunks_of(Buffer.INPUT)].astype(np.int64)
    # Of an empty output nothing is asked; it may even hold something longer, which has no room there.
    is_output = np.zeros(places.total, np.bool_)
    is_output[places.chunks_of(Buffer.OUTPUT)] = np.repeat(c.output_sizes > 0, c.chunks)
    rows = (s.action, s.rank, s.peer, s.buffer, s.chunk, s.peer_buffer, s.peer_chunk, s.count)
    total = int(s.count.sum())
    fate, last_write = _liveness(s.step_start, *rows, places.start, places.alias, is_output, total)
    length, room, _ = lengths(c, places)
    st = _fuse(
        s.step_start, *rows, places.start, places.alias, is_output, of_input, fate, last_write, length, room, total, s.n
    )
    moves, temporaries = st.used[MOVES], st.temporary[: st.used[TEMPS]]
    node = st.move_node[:moves]
    src_start, dst_start = st.src_start[: moves + 1].copy(), st.dst_start[: moves + 1].copy()

    src, dst = st.src_loc[: src_start[-1]], st.dst_loc[: dst_start[-1]]
    start, scratch, where = _compact(s, places, temporaries, np.concatenate([src, dst]))

    is_final = np.zeros(len(st.home), np.bool_)
    outputs = st.content[is_output]
    is_final[outputs[outputs >= 0]] = True
    _finish(is_final, st.src_head, st.src_tail, st.src, st.used[NODES])
    return Moves(
        st.move_row[:moves].copy(), st.like[node], is_final[node] & (np.diff(src_start) > 1),
        src_start, where[src], st.src_raw[: src_start[-1]].copy(), dst_start, where[dst], start, scratch,
    )  # fmt: skip


def _compact(s: Schedule, places: Layout, temporaries: Array, used: Array) -> tuple[Array, int, Array]:
    """Scratch without slots that no Move uses: the new start, slots a rank, and place of each old location.

    On each rank the schedule's slots that are used come first, in their order, then its temporaries.
    """
    slot = np.zeros(places.total + len(temporaries), bool)
    slot[used] = True
    sizes = s.collective.buffer_sizes(s.scratch)
    is_scratch = np.repeat(np.arange(3 * s.n) % 3 == 2, sizes.ravel())
    rank = np.concatenate([np.repeat(np.arange(s.n), sizes.sum(axis=1)), temporaries])
    kept = np.flatnonzero(slot & np.concatenate([is_scratch, np.ones(len(temporaries), bool)]))
    kept = kept[np.argsort(rank[kept], kind="stable")]
    turn = np.arange(len(kept)) - np.searchsorted(rank[kept], rank[kept])
    scratch = int(turn.max(initial=-1)) + 1
    sizes[:, 2] = scratch
    start, _ = starts(sizes)
    shift = np.repeat((start - places.start).ravel(), np.diff(np.append(places.start.ravel(), places.total)))
    where = np.concatenate([np.arange(places.total) + shift, np.zeros(len(temporaries), np.int64)])
    where[kept] = start[rank[kept], 2] + turn
    return start, scratch, where


@njit(cache=True, nogil=True)
def _liveness(
    step_start, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count, start, alias, is_output, total
):  # fmt: skip
    """For each transferred chunk whether its source location is read no more (then GONE), or what it held is read no
    more (then DEAD); for each location its last write."""
    fate = np.zeros(total, np.int8)
    live = is_output.copy()
    last_write = np.full(len(alias), -1, np.int32)
    copied = np.full(len(alias), -1, np.int32)
    reduced = np.full(len(alias), -1, np.int32)
    end = total
    for step in range(len(step_start) - 2, -1, -1):
        first, last = step_start[step], step_start[step + 1]
        for row in range(first, last):
            end -= count[row]
            for i in range(count[row]):
                place = alias[start[peer[row], peer_buffer[row]] + peer_chunk[row] + i]
                last_write[place] = max(last_write[place], step)
                (copied if action[row] == 0 else reduced)[place] = step
        at = end
        for row in range(first, last):
            for i in range(count[row]):
                place = alias[start[rank[row], buffer[row]] + chunk[row] + i]
                if reduced[place] != step:
                    fate[at] = DEAD if copied[place] == step else 0 if live[place] else GONE
                at += 1
        for row in range(first, last):
            for i in range(count[row]):
                live[alias[start[peer[row], peer_buffer[row]] + peer_chunk[row] + i]] = action[row] != 0
        for row in range(first, last):
            for i in range(count[row]):
                live[alias[start[rank[row], buffer[row]] + chunk[row] + i]] = True
    return fate, last_write


@njit(cache=True, nogil=True)
def _fuse(
    step_start, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count,
    start, alias, is_output, of_input, fate, last_write, length, room, total, n,
):  # fmt: skip
    locations, inputs = len(alias), len(of_input)
    nodes = inputs + total
    outputs = 0
    for place in range(locations):
        outputs += is_output[place]
    # Each node settles once, each output is copied to at most once more, and each such Move makes at most one
    # other node move away: a bound on Moves, and on temporaries.
    moves = 2 * (total + outputs)
    st = _State(
        np.full(locations, -1, np.int32), np.full(locations + moves, -1, np.int32), np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int64), np.zeros(nodes, np.bool_),
        np.full(nodes, -1, np.int32), np.zeros(nodes, np.bool_), np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32), np.empty((2 * total, 2), np.int32), np.full(nodes, -1, np.int32),
        np.empty((2 * total, 2), np.int32), np.full(nodes, -1, np.int32), np.empty((nodes, 2), np.int32),
        is_output, last_write, length, room, np.empty(moves, np.int32), np.empty(moves, np.int32), np.empty(moves, np.int32),
        np.zeros(moves + 1, np.int64), np.empty(2 * total + moves, np.int32), np.empty(2 * total + moves, np.bool_),
        np.zeros(moves + 1, np.int64), np.empty(moves + outputs, np.int32), np.zeros(6, np.int64),
    )  # fmt: skip
    for r in range(n):
        stop = start[r + 1, 0] if r + 1 < n else locations
        st.content[start[r, 0] : stop] = -2 - r  # the rank of a location, until the inputs are in place
    for i in range(inputs):
        st.rank[i] = -2 - st.content[of_input[i]]
    st.content[:] = -1
    st.used[NODES] = inputs
    for i in range(inputs):
        st.like[i], st.raw[i] = i, True
        st.home[i] = of_input[i]
        st.resident[of_input[i]] = i
        _hold(st, of_input[i], i)
    read = np.empty(16, np.int32)
    at = 0
    for step in range(len(step_start) - 1):
        first, last = step_start[step], step_start[step + 1]
        need = 0
        for row in range(first, last):
            need += count[row]
        if need > len(read):
            read = np.empty(2 * need, np.int32)
        # What the step reads, kept until it has taken effect.
        item = 0
        for row in range(first, last):
            for i in range(count[row]):
                node = st.content[alias[start[rank[row], buffer[row]] + chunk[row] + i]]
                read[item] = node
                if node >= 0:
                    st.refs[node] += 1
                item += 1
        # What must be in memory for it: all that another rank reads, and a pending operand that more than this
        # reduction needs, on either side of it.
        item = 0
        for row in range(first, last):
            local = rank[row] == peer[row]
            for i in range(count[row]):
                node = read[item]
                if node >= 0 and st.home[node] < 0:
                    alone = st.src_head[node] == st.src_tail[node] and st.refs[node] == 2 and fate[at + item] > 0
                    if not local or (action[row] != 0 and not alone):
                        _settle(st, node, alias[start[rank[row], buffer[row]] + chunk[row] + i], step)
                if action[row] != 0:
                    place = alias[start[peer[row], peer_buffer[row]] + peer_chunk[row] + i]
                    old = st.content[place]
                    if old >= 0 and st.home[old] < 0 and st.refs[old] > 1:
                        _settle(st, old, place, step)
                item += 1
        # The step takes effect.
        item = 0
        for row in range(first, last):
            for i in range(count[row]):
                place = alias[start[peer[row], peer_buffer[row]] + peer_chunk[row] + i]
                node = read[item]
                item += 1
                if node < 0 or (action[row] != 0 and st.content[place] < 0):
                    continue
                if action[row] == 0:
                    if rank[row] != peer[row]:
                        node = _node(st, peer[row], node, row)
                        _append(st, node, read[item - 1])
                        st.raw[node] = st.raw[read[item - 1]]
                else:
                    operand = node if st.home[node] >= 0 else st.src[st.src_head[node], 0]
                    old = st.content[place]
                    node = old
                    if st.home[old] >= 0 or st.refs[old] > 1:
                        node = _node(st, peer[row], old, row)
                        _append(st, node, old)
                    _append(st, node, operand)
                    st.raw[node] = False
                    st.row[node] = row
                if st.content[place] != node:
                    _hold(st, place, node)
        item = 0
        for row in range(first, last):
            for i in range(count[row]):
                if read[item] >= 0:
                    st.refs[read[item]] -= 1
                place = alias[start[rank[row], buffer[row]] + chunk[row] + i]
                if fate[at + item] == GONE and st.content[place] >= 0:
                    st.refs[st.content[place]] -= 1
                    st.content[place] = -1
                item += 1
        at += need
    for place in range(locations):
        if not is_output[place] and st.content[place] >= 0:
            st.refs[st.content[place]] -= 1
            st.content[place] = -1
    # First what a rank copies for itself: others then read the copy, so that `push` may let the same Move write theirs,
    # and each rank writes as much as the next.
    for own in (True, False):
        for place in range(locations):
            node = st.content[place]
            if own and (node < 0 or st.home[node] < 0):
                continue
            # It may settle elsewhere first, at an output that is free; then it is copied here.
            while node >= 0 and st.home[node] != place and st.resident[place] != node:
                _settle(st, node, place, len(step_start))
    return st


@njit(cache=True, nogil=True)
def _finish(is_final, src_head, src_tail, src, nodes):
    """What an output is a copy of, through other ranks and scratch, was complete before."""
    for node in range(nodes - 1, -1, -1):
        if is_final[node] and src_head[node] >= 0 and src_head[node] == src_tail[node]:
            is_final[src[src_head[node], 0]] = True


@njit(cache=True, nogil=True)
def _node(st, rank, like, row):
    """A new pending node, of the length of node `like`."""
    node = st.used[NODES]
    st.used[NODES] += 1
    st.rank[node], st.like[node], st.row[node] = rank, st.like[like], row
    return node


@njit(cache=True, nogil=True)
def _append(st, node, source):
    """Let a pending node read one source more."""
    cell = st.used[SRCS]
    st.used[SRCS] += 1
    st.src[cell, 0], st.src[cell, 1] = source, -1
    if st.src_head[node] < 0:
        st.src_head[node] = cell
    else:
        st.src[st.src_tail[node], 1] = cell
    st.src_tail[node] = cell
    cell = st.used[READERS]
    st.used[READERS] += 1
    st.reader[cell, 0], st.reader[cell, 1] = node, st.reader_head[source]
    st.reader_head[source] = cell


@njit(cache=True, nogil=True)
def _hold(st, place, node):
    """Make a node the content of a location."""
    if st.content[place] >= 0:
        st.refs[st.content[place]] -= 1
    st.content[place] = node
    st.refs[node] += 1
    cell = st.used[HOLDERS]
    st.used[HOLDERS] += 1
    st.holder[cell, 0], st.holder[cell, 1] = place, st.holder_head[node]
    st.holder_head[node] = cell


@njit(cache=True, nogil=True)
def _is_free(st, place):
    """Whether no node lives at a location."""
    return st.resident[place] < 0 or st.home[st.resident[place]] != place


@njit(cache=True, nogil=True)
def _fits(st, node, place):
    """Whether a location has room for a node whatever the count: parts of a block may differ by one element."""
    return not len(st.length) or st.room[place] < 0 or st.room[place] == st.length[st.like[node]]


@njit(cache=True, nogil=True)
def _spot(st, node, place, step):
    """Where a pending node settles best: an output that holds it for good and is free, else `place`, else any
    location that holds it; a temporary if none has room."""
    if place >= 0 and not _fits(st, node, place):
        place = -1
    cell = st.holder_head[node]
    while cell >= 0:
        held = st.holder[cell, 0]
        if st.content[held] == node and _fits(st, node, held):
            if st.is_output[held] and st.last_write[held] < step and _is_free(st, held):
                return held
            if place < 0 or (not _is_free(st, place) and _is_free(st, held)):
                place = held
        cell = st.holder[cell, 1]
    return place if place >= 0 else _temporary(st, node)


@njit(cache=True, nogil=True)
def _temporary(st, node):
    """A new slot of scratch on the rank of a node."""
    turn = st.used[TEMPS]
    st.used[TEMPS] += 1
    st.temporary[turn] = st.rank[node]
    return len(st.content) + turn


@njit(cache=True, nogil=True)
def _emit(st, node, row, place):
    """The Move that writes a node to `place`: from its home if it has one, else from its sources."""
    move = st.used[MOVES]
    st.used[MOVES] += 1
    st.move_row[move], st.move_node[move] = row, node
    a, b = st.src_start[move], st.dst_start[move]
    if st.home[node] >= 0:
        st.src_loc[a], st.src_raw[a] = st.home[node], st.raw[node]
        a += 1
    else:
        cell = st.src_head[node]
        while cell >= 0:
            source = st.src[cell, 0]
            st.src_loc[a], st.src_raw[a] = st.home[source], st.raw[source]
            a += 1
            cell = st.src[cell, 1]
    st.dst_loc[b] = place
    st.src_start[move + 1], st.dst_start[move + 1] = a, b + 1
    st.home[node] = place
    st.resident[place] = node


@njit(cache=True, nogil=True)
def _settle(st, node, place, step):
    """Give a node memory at `place`, or copy it there, after all Moves that still read what lives there.

    A stack of (node, place, next reader to see to); a node that would overwrite what one below it on the stack
    has yet to read goes to a temporary.
    """
    stack = np.empty((16, 3), np.int64)
    depth = 0
    target = place if st.home[node] >= 0 else _spot(st, node, place, step)
    stack[0, 0], stack[0, 1], stack[0, 2] = node, target, -2
    while depth >= 0:
        top, target, cursor = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if cursor == -2:
            st.busy[top] = True
            cursor = -1
            if not _is_free(st, target):
                cursor = st.reader_head[st.resident[target]]
                while cursor >= 0:
                    reader = st.reader[cursor, 0]
                    if st.busy[reader] and reader != top and st.home[reader] < 0:
                        target = _temporary(st, top)
                        stack[depth, 1] = target
                        break
                    cursor = st.reader[cursor, 1]
                cursor = -1 if _is_free(st, target) else st.reader_head[st.resident[target]]
        waiting = -1
        while cursor >= 0 and waiting < 0:
            reader = st.reader[cursor, 0]
            cursor = st.reader[cursor, 1]
            if st.home[reader] < 0 and st.refs[reader] > 0 and not st.busy[reader]:
                waiting = reader
        if waiting >= 0:
            stack[depth, 2] = cursor
            depth += 1
            if depth == len(stack):
                taller = np.empty((2 * depth, 3), np.int64)
                taller[:depth] = stack
                stack = taller
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = waiting, _spot(st, waiting, -1, step), -2
            continue
        row = st.row[top]
        if not _is_free(st, target):
            old = st.resident[target]
            if old != top and st.refs[old] > 0:
                _emit(st, old, row, _temporary(st, old))
        _emit(st, top, row, target)
        move = st.used[MOVES] - 1
        cell = st.holder_head[top]
        while cell >= 0:  # other outputs that hold the same for good
            spot = st.holder[cell, 0]
            if spot != target and st.is_output[spot] and st.content[spot] == top:
                if st.last_write[spot] < step and _is_free(st, spot):
                    st.dst_loc[st.dst_start[move + 1]] = spot
                    st.dst_start[move + 1] += 1
                    st.resident[spot] = top
            cell = st.holder[cell, 1]
        st.busy[top] = False
        depth -= 1
