"""Levels 2 and 3: where every contribution goes, exactly, and who races whom in a step.

Values are numbered: one for every input chunk, one for every reduction. A copy gives its destination the
number of its source, so only reductions make new values, and the values fall into components that no
reduction connects (for AllReduce usually one a chunk). Per component, the set of contributions of every
value is a bitset; two operands that share a contribution make the component a multiset one, and its
contributions are then counted with integers. Nothing is hashed and nothing is sampled.

Memory beyond a few words a location and a reduction: one component's bitsets, N²/8 bytes for a ring.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.table import Layout, Schedule, lengths

Array = NDArray[Any]

COUNT_CAP = 1 << 40
"""Counted contributions saturate here; no collective asks for so many."""

UNWRITTEN_SOURCE, UNWRITTEN_TARGET, RACE, MISFIT = 0, 1, 2, 3
"""Kinds of trouble that `trace` notes."""


class Trace(NamedTuple):
    """What a schedule leaves behind.

    value: the number of the value in each location at the end, -1 where nothing was written.
    writer: the row that wrote it last, -1 if none did.
    left, right: operands of each reduction; value number `inputs + i` is reduction i.
    row: the row of each reduction.
    sent, received, reduced: volume of each rank in chunks times the size of their block.
    rounds: steps in which some message is sent.
    messages: transfers between ranks.
    largest: most that one rank sends to one other in a step, measured as `sent` is.
    ports: most ranks that one rank sends to, or receives from, in one step.
    trouble: rows (kind, row, chunk of the row), in order, at most as many as asked for.
    """

    value: Array
    writer: Array
    left: Array
    right: Array
    row: Array
    sent: Array
    received: Array
    reduced: Array
    rounds: int
    messages: int
    largest: int
    ports: int
    trouble: Array


class Outcome(NamedTuple):
    """The verdict on every output chunk.

    wrong: outputs, counted through all ranks, that do not hold what is wanted.
    idempotent: some reduction that an output depends on added a contribution twice.
    sets_right: every output holds the right set, whatever its multiplicities.
    ordered: every output combines its contributions in rank order.
    depth: most reductions in a row behind an output.
    """

    wrong: Array
    idempotent: bool
    sets_right: bool
    ordered: bool
    depth: int


def trace(s: Schedule, places: Layout, *, most: int = 20) -> Trace:
    """Follow every chunk of a matched schedule of good form through its steps."""
    c = s.collective
    reductions = int(s.count[s.action != 0].sum())
    length, _, weight = lengths(c, places)
    value = np.full(places.total, -1, np.int32)
    inputs = int(c.inputs.sum()) * c.chunks
    value[places.alias[places.chunks_of(Buffer.INPUT)]] = np.arange(inputs)
    writer, left, right, row, volume, rounds, messages, largest, ports, trouble = _trace(
        s.step_start, s.action, s.rank, s.peer, s.buffer, s.chunk, s.peer_buffer, s.peer_chunk, s.count,
        places.start, places.alias, value, inputs, reductions, length, weight, s.n, most,
    )  # fmt: skip
    size = int(c.sizes[0]) if len(c.sizes) and not len(weight) else 1
    sent, received, reduced = volume * size
    return Trace(
        value, writer, left, right, row, sent, received, reduced,
        int(rounds), int(messages), int(largest) * size, int(ports), trouble,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _trace(
    step_start, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count,
    start, alias, value, inputs, reductions, length, weight, n, most,
):  # fmt: skip
    total = len(value)
    writer = np.full(total, -1, np.int32)
    left = np.empty(reductions, np.int32)
    right = np.empty(reductions, np.int32)
    row_of = np.empty(reductions, np.int32)
    volume = np.zeros((3, n), np.int64)
    trouble = np.empty((most, 3), np.int64)
    troubles = 0
    made = 0
    rounds = 0
    messages = 0
    largest = 0
    ports = 0
    measured = len(weight) > 0
    length_of = np.empty(inputs + reductions if measured else 0, np.int32)
    length_of[: len(length)] = length
    stamp = np.full(total, -1, np.int32)  # 2 · step + 1 where the step copied to it, 2 · step where it reduced
    out_peers = np.zeros(n, np.int32)
    in_peers = np.zeros(n, np.int32)
    read = np.empty(16, np.int32)
    size = np.empty(16, np.int64)  # of each row of the step
    for step in range(len(step_start) - 1):
        first, last = step_start[step], step_start[step + 1]
        need = 0
        for row in range(first, last):
            need += count[row]
        if need > len(read):
            read = np.empty(2 * need, np.int32)
        if last - first > len(size):
            size = np.empty(2 * (last - first), np.int64)
        at = 0
        several = False
        sending = 0
        for row in range(first, last):
            here = start[rank[row], buffer[row]] + chunk[row]
            for i in range(count[row]):
                v = value[alias[here + i]]
                if v < 0 and troubles < most:
                    trouble[troubles, 0], trouble[troubles, 1], trouble[troubles, 2] = UNWRITTEN_SOURCE, row, i
                    troubles += 1
                read[at] = v
                at += 1
            if rank[row] != peer[row]:
                sending += 1
                out_peers[rank[row]] += 1
                in_peers[peer[row]] += 1
                several |= out_peers[rank[row]] > 1 or in_peers[peer[row]] > 1
        if sending:
            rounds += 1
            messages += sending
            for row in range(first, last):
                out_peers[rank[row]] = 0
                in_peers[peer[row]] = 0
        at = 0
        for row in range(first, last):
            there = start[peer[row], peer_buffer[row]] + peer_chunk[row]
            copies = action[row] == 0
            mark = 2 * step + (1 if copies else 0)
            moved = 0
            for i in range(count[row]):
                place = alias[there + i]
                v = read[at]
                at += 1
                if v >= 0:
                    moved += weight[length_of[v]] if measured else 1
                if stamp[place] >= 2 * step and (copies or stamp[place] == 2 * step + 1) and troubles < most:
                    trouble[troubles, 0], trouble[troubles, 1], trouble[troubles, 2] = RACE, row, i
                    troubles += 1
                stamp[place] = max(stamp[place], mark)
                writer[place] = row
                if copies or v < 0:
                    value[place] = v
                    continue
                old = value[place]
                if old < 0:
                    if troubles < most:
                        trouble[troubles, 0], trouble[troubles, 1], trouble[troubles, 2] = UNWRITTEN_TARGET, row, i
                        troubles += 1
                    value[place] = v
                    continue
                if measured and length_of[v] != length_of[old] and troubles < most:
                    trouble[troubles, 0], trouble[troubles, 1], trouble[troubles, 2] = MISFIT, row, i
                    troubles += 1
                left[made] = old if action[row] == 1 else v
                right[made] = v if action[row] == 1 else old
                row_of[made] = row
                value[place] = inputs + made
                if measured:
                    length_of[inputs + made] = length_of[v]
                made += 1
            size[row - first] = moved
            if rank[row] != peer[row]:
                volume[0, rank[row]] += moved
                volume[1, peer[row]] += moved
                largest = max(largest, moved)
            if not copies:
                volume[2, peer[row]] += moved
        if several:
            peers, message = _messages(first, last, rank, peer, size, n)
            ports, largest = max(ports, peers), max(largest, message)
        elif sending:
            ports = max(ports, 1)
    return (
        writer, left[:made], right[:made], row_of[:made], volume, rounds, messages, largest, ports, trouble[:troubles]
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _messages(first, last, rank, peer, size, n):
    """Of one step: most distinct peers of one rank in one direction, and the most that goes from one rank to another."""
    ports = 0
    largest = 0
    key = np.empty(last - first, np.int64)
    for direction in range(2):
        for row in range(first, last):
            a, b = (rank[row], peer[row]) if direction == 0 else (peer[row], rank[row])
            key[row - first] = np.int64(a) * n + b
        order = np.argsort(key)
        before = np.int64(-1)
        peers = 0
        message = 0
        for i in order:
            if key[i] // n == key[i] % n:
                continue
            if before < 0 or key[i] // n != before // n:
                peers = 0
            if key[i] != before:
                peers += 1
                message = 0
            message += size[i]
            before = key[i]
            ports = max(ports, peers)
            largest = max(largest, message)
    return ports, largest


def held_values(places: Layout, t: Trace) -> Array:
    """The value number in each output chunk, counted through all ranks."""
    values: Array = t.value[places.alias[places.chunks_of(Buffer.OUTPUT)]]
    return values


def judge(s: Schedule, places: Layout, t: Trace) -> Outcome:
    """Compare what every output chunk holds with the exact multiset that the collective wants there."""
    c = s.collective
    inputs = int(c.inputs.sum()) * c.chunks
    held = held_values(places, t)
    return judge_values(
        held, t.left, t.right, inputs, c.want, c.set_start, c.set_items, c.chunks, c.output_sizes == 0,
        idempotent=c.idempotent,
    )  # fmt: skip


def judge_values(
    held: Array, left: Array, right: Array, inputs: int,
    want: Array, set_start: Array, set_items: Array, chunks: int, empty: Array, *, idempotent: bool,
) -> Outcome:  # fmt: skip
    """As `judge`, for outputs that hold the values `held`, however they came there.

    empty: output blocks of size 0, of which nothing is asked, not even to be written.
    """
    repeated = _has_repeats(set_start, set_items)
    wrong, twice, sets_right, ordered, depth = _judge(
        held, left, right, inputs, want, set_start, set_items, chunks, empty, idempotent, repeated
    )
    return Outcome(np.flatnonzero(wrong), bool(twice), bool(sets_right), bool(ordered), int(depth))


def _has_repeats(set_start: Array, set_items: Array) -> bool:
    """Whether some set wants a block more than once."""
    if not (np.diff(set_start) > 1).any():
        return False
    owner = np.repeat(np.arange(len(set_start) - 1), np.diff(set_start))
    order = np.lexsort((set_items, owner))
    return bool(((np.diff(set_items[order]) == 0) & (np.diff(owner[order]) == 0)).any())


@njit(cache=True, nogil=True)
def _root(parent, v):
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True, nogil=True)
def _judge(held, left, right, inputs, want, set_start, set_items, chunks, empty, idempotent, repeated):
    values = inputs + len(left)
    parent = np.arange(values).astype(np.int32)
    for i in range(len(left)):
        # The older root wins, so the root of a component is its smallest value, and members sort after it.
        a = _root(parent, left[i])
        b = _root(parent, right[i])
        if a > b:
            a, b = b, a
        parent[b] = a
        parent[inputs + i] = a
    for v in range(values):
        parent[v] = _root(parent, v)
    size = np.zeros(values, np.int32)
    for v in range(values):
        size[parent[v]] += 1
    begin = np.zeros(values + 1, np.int64)
    for v in range(values):
        begin[v + 1] = begin[v] + size[v]
    fill = begin[:-1].copy()
    member = np.empty(values, np.int32)
    local = size  # from here on the position of a value in its component
    for v in range(values):
        r = parent[v]
        local[v] = fill[r] - begin[r]
        member[fill[r]] = v
        fill[r] += 1

    # What each reduced value is first asked to be: (set, part) as one number. Outputs that ask otherwise queue up.
    asked = np.full(len(left), -1, np.int64)
    queue = np.full(len(left), -1, np.int64)
    behind = np.empty(0, np.int64)
    wrong = np.zeros(len(held), np.bool_)
    sets_right = True
    for o in range(len(held)):
        v = held[o]
        s = want[o // chunks]
        wish = s * chunks + o % chunks
        if empty[o // chunks]:
            continue
        if v < 0:
            wrong[o] = True
            sets_right = False
        elif v < inputs:
            items = set_items[set_start[s] : set_start[s + 1]]
            same = True
            for item in items:
                same &= item * chunks + o % chunks == v
            sets_right &= same
            wrong[o] = not same or (len(items) != 1 and not idempotent)
        elif asked[v - inputs] < 0:
            asked[v - inputs] = wish
        elif asked[v - inputs] != wish:
            if not len(behind):
                behind = np.full(len(held), -1, np.int64)
            behind[o] = queue[v - inputs]
            queue[v - inputs] = o

    good = np.zeros(len(left), np.bool_)
    twice = False
    ordered = True
    deepest = 0
    last_of = np.empty(0, np.int32)
    first_of = np.empty(0, np.int32)
    depth_of = np.empty(0, np.int32)
    in_order = np.empty(0, np.bool_)
    doubled = np.empty(0, np.bool_)
    bits = np.empty((0, 0), np.uint64)
    for r in range(inputs):
        if parent[r] != r or begin[r + 1] - begin[r] < 2:
            continue
        members = member[begin[r] : begin[r + 1]]
        sources = 0
        while sources < len(members) and members[sources] < inputs:
            sources += 1
        words = (sources + 63) // 64
        if len(last_of) < len(members):
            room = 2 * len(members)
            last_of, first_of = np.empty(room, np.int32), np.empty(room, np.int32)
            depth_of, in_order, doubled = np.empty(room, np.int32), np.empty(room, np.bool_), np.empty(room, np.bool_)
        if bits.shape[0] < len(members) or bits.shape[1] != words:
            bits = np.empty((len(members), words), np.uint64)
        for i in range(sources):
            first_of[i] = last_of[i] = i
            depth_of[i] = 0
            in_order[i] = True
            doubled[i] = False
            bits[i] = 0
            bits[i, i >> 6] = np.uint64(1) << np.uint64(i & 63)
        for i in range(sources, len(members)):
            a, b = local[left[members[i] - inputs]], local[right[members[i] - inputs]]
            shared = np.uint64(0)
            for w in range(words):
                shared |= bits[a, w] & bits[b, w]
                bits[i, w] = bits[a, w] | bits[b, w]
            doubled[i] = shared != 0 or doubled[a] or doubled[b]
            in_order[i] = in_order[a] and in_order[b] and last_of[a] < first_of[b]
            first_of[i], last_of[i] = first_of[a], last_of[b]
            depth_of[i] = max(depth_of[a], depth_of[b]) + 1
        counting = repeated
        for i in range(sources, len(members)):
            if asked[members[i] - inputs] >= 0:
                counting |= doubled[i]
        counts = np.empty((len(members) if counting else 0, sources), np.int64)
        if counting:
            _count(members, sources, left, right, inputs, local, counts)
        for i in range(sources, len(members)):
            wish = asked[members[i] - inputs]
            if wish < 0:
                continue
            twice |= doubled[i]
            ordered &= in_order[i]
            deepest = max(deepest, depth_of[i])
            items = set_items[set_start[wish // chunks] : set_start[wish // chunks + 1]]
            same, set_same = _compare(items, wish % chunks, chunks, parent, local, r, bits[i], counts, i)
            good[members[i] - inputs] = set_same if idempotent else same
            sets_right &= set_same
            o = queue[members[i] - inputs]
            while o >= 0:
                items = set_items[set_start[want[o // chunks]] : set_start[want[o // chunks] + 1]]
                same, set_same = _compare(items, o % chunks, chunks, parent, local, r, bits[i], counts, i)
                wrong[o] = not (set_same if idempotent else same)
                sets_right &= set_same
                o = behind[o]
    for o in range(len(held)):
        v = held[o]
        wish = want[o // chunks] * chunks + o % chunks
        if v >= inputs and asked[v - inputs] == wish and not empty[o // chunks]:
            wrong[o] = not good[v - inputs]
    return wrong, twice, sets_right, ordered, deepest


@njit(cache=True, nogil=True)
def _count(members, sources, left, right, inputs, local, counts):
    """How often each value of a component holds each of its inputs."""
    for i in range(sources):
        counts[i] = 0
        counts[i, i] = 1
    for i in range(sources, len(members)):
        a, b = local[left[members[i] - inputs]], local[right[members[i] - inputs]]
        for j in range(sources):
            counts[i, j] = min(counts[a, j] + counts[b, j], COUNT_CAP)


@njit(cache=True, nogil=True)
def _compare(items, part, chunks, parent, local, root, bits, counts, i):
    """Whether a value is the wanted multiset, and whether it is at least the wanted set."""
    held = 0
    for w in range(len(bits)):
        word = bits[w]
        while word:
            word &= word - np.uint64(1)
            held += 1
    seen = np.zeros(len(bits), np.uint64)
    distinct = 0
    for item in items:
        v = item * chunks + part
        if parent[v] != root:
            return False, False
        at = local[v]
        if not bits[at >> 6] >> np.uint64(at & 63) & np.uint64(1):
            return False, False
        if not seen[at >> 6] >> np.uint64(at & 63) & np.uint64(1):
            distinct += 1
            seen[at >> 6] |= np.uint64(1) << np.uint64(at & 63)
    if distinct != held:
        return False, False
    if not len(counts):
        return distinct == len(items), True
    total = 0
    for j in range(counts.shape[1]):
        total += counts[i, j]
    if total != len(items):
        return False, True
    wanted = np.zeros(counts.shape[1], np.int64)
    for item in items:
        wanted[local[item * chunks + part]] += 1
    return (wanted == counts[i]).all(), True
