"""The data path of a Move of which operands lie in lines with a flag beside the data: nobody waits but for what it reads.

A *packet* is the elements that fill 8 bytes, or one element of 16. A thread takes packets in turns: it loads that of every
source, waits for those whose flag is not that of the iteration, folds them from the left in the order of the Move, and
stores the result to every destination. Bits and order are those of `wide`. Packets at the end that are not full hold anything
after the last element.

LL: 8 bytes of a line of 16 are loaded and stored at once, half of them data and half the flag, so each vouches for itself.
LL128: a *team* of threads loads and stores a line at once, the last of them the flag, and what that one sees is true for all.

The flag of iteration g is 2 g + 1: never the 0 of memory that has not been written, and what a line held before is one of few
iterations before, as every line that is read is written in every second call at the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numba.extending import register_jitable

from algocc.kernels import elements, wide
from algocc.kernels import layout as at
from algocc.kernels.operators import ELEMENTS

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def build(P: ModuleType, move: Any, *, op: str | None, dtype: str | None, size: int) -> Callable[..., Any]:
    """What a Move (`straight.MoveForm`) with flagged operands does with its data, for the target whose primitives are P.

    (addresses of destinations, then sources; elements; ranks; iteration; block; memory of the lane; number of the Move; number
    of its first source among waits; tile) → 0, or why this thread stopped early as in `layout`.
    """
    reduces = op is not None and dtype is not None and move.sources > 1
    name = str(dtype) if reduces else "complex128" if size == 16 else f"uint{8 * size}"
    each = max(1, at.PACKET // size)
    words = max(1, size // at.PACKET)  # of a packet: each has a line of its own
    teams = at.LL128 in move.kinds
    lanes = P.TEAM if teams else 1
    carrying = lanes - 1 if teams else 1  # threads of a team that have data
    line = at.PACKET * lanes if teams else at.LL_LINE

    if teams:

        @register_jitable(forceinline=True)
        def load_word(address, last):
            word = P.load_share(address, last)
            return word, word

        @register_jitable(forceinline=True)
        def store_word(address, word, flag, last):
            P.store_share(address, flag if last else word, last)

        @register_jitable(forceinline=True)
        def agree(state):
            return P.say(state)

        @register_jitable(forceinline=True)
        def shown(flag):
            return flag

    else:

        @register_jitable(forceinline=True)
        def load_word(address, last):
            a, b = P.load_line(address)
            low, high = a >> HALF, b >> HALF
            have = (low if low == high else np.uint64(0)) & LOW
            return have, (a & LOW) | (b << HALF)

        @register_jitable(forceinline=True)
        def store_word(address, word, flag, last):
            beside = flag << HALF
            P.store_line(address, (word & LOW) | beside, (word >> HALF) | beside)

        @register_jitable(forceinline=True)
        def agree(state):
            return state

        @register_jitable(forceinline=True)
        def shown(flag):
            return flag & LOW

    if words == 1:

        @register_jitable(forceinline=True)
        def load(address, last):
            have, word = load_word(address, last)
            return have, elements.from_words(name, each, (word,))

        @register_jitable(forceinline=True)
        def store(address, value, flag, last):
            store_word(address, elements.to_words(name, each, value)[0], flag, last)

    else:

        @register_jitable(forceinline=True)
        def load(address, last):
            have, word = load_word(address, last)
            too, more = load_word(address + line, last)
            return (have if have == too else np.uint64(0)), elements.from_words(name, each, (word, more))

        @register_jitable(forceinline=True)
        def store(address, value, flag, last):
            both = elements.to_words(name, each, value)
            store_word(address, both[0], flag, last)
            store_word(address + line, both[1], flag, last)

    impatience = build_impatience(P)

    @register_jitable(forceinline=True)
    def settle(loaded, address, flag, last, block, local, m, w, t):
        """(0, the value), once its flag has come; or why it has not."""
        have, value = loaded
        state = agree(1 if have == flag else 0)
        polls = 0
        deadline = 0
        while state == 0:
            polls += 1
            stuck = 0
            if polls > P.word(block, at.POLLS) and last:
                if deadline == 0:
                    deadline = P.clock() + P.word(block, at.TIMEOUT)
                stuck = impatience(block, local, deadline, polls, have, flag, m, w, t)
            have, value = load(address, last)
            state = agree(1 if have == flag else stuck << 1)
        return state >> 1, value

    gather, fold = _sources(P, move, name, op if reduces else None, each, load, settle)
    scatter = _destinations(P, move, name, each, store)
    truncates = reduces and op == "avg" and ELEMENTS[name].kind not in ("float", "complex") and move.final != 0

    @register_jitable(forceinline=True)
    def data(addresses, length, ranks, g, block, local, m, w, t):
        flag = np.uint64(2) * g + np.uint64(1)
        thread, team = P.thread(), P.thread() // lanes
        share = thread - team * lanes
        last = share == lanes - 1  # of a team of one, the thread itself
        mine = share < carrying
        step = P.threads() // lanes
        packets = (max(0, length) + (each - 1)) // each if team < step else 0  # a team that is not full has none
        stuck = 0
        while team * carrying < packets and stuck == 0:
            where = team * (line * words) + at.PACKET * share if teams else team * (line * words)
            index = (team * carrying + share) * each
            loaded = gather(addresses, where, index, length, last)
            stuck, value = fold(loaded, addresses, where, ranks, shown(flag), last, block, local, m, w, t)
            if stuck == 0:
                if truncates:
                    value = wide.truncate_each(value, ranks)
                scatter(addresses, where, index, length if mine else 0, value, flag, last)
            team += step
        return stuck

    made: Callable[..., Any] = data
    return made


def build_impatience(P: ModuleType) -> Callable[..., Any]:
    """What a thread does whose line has not come for long, for the target whose primitives are P."""

    @register_jitable
    def impatience(block, local, deadline, polls, have, want, m, w, t):
        """0 to look again, or why not: then what is missing is in the memory of the lane. Any thread of it may say so."""
        abort = P.word(block, at.LINES) + at.ABORT * at.LINE
        stuck = 0
        if P.load_relaxed(abort) != 0:
            stuck = at.GAVE_UP
        elif P.clock() > deadline:
            stuck = at.TIMED_OUT
        if stuck == 0:
            P.give_way(polls)
            return 0
        P.set_word(local, at.AT_MOVE, m)
        P.set_word(local, at.AT_WAIT, w)
        P.set_word(local, at.HAVE, np.int64(have))
        P.set_word(local, at.WANT, np.int64(want))
        P.set_word(local, at.AT_ITERATION, t)
        P.store_relaxed(abort, np.uint64(1))
        return stuck

    made: Callable[..., Any] = impatience
    return made


def _sources(P: ModuleType, move: Any, name: str, op: str | None, each: int, load: Any, settle: Any) -> Any:
    """Two functions: all sources on the way at once, and what they come to, once all are there."""
    scales = op == "avg" and ELEMENTS[name].kind in ("float", "complex")

    def one(k: int) -> tuple[Any, Any]:
        place, divided = move.destinations + k, bool(op is not None and move.firsts[k])

        @register_jitable(forceinline=True)
        def scaled(value, ranks):
            return wide.divide_each(value, ranks if divided else 1) if scales else value

        if move.kinds[place]:

            @register_jitable(forceinline=True)
            def fetch(addresses, where, index, length, last):
                return load(addresses[place] + where, last)

            @register_jitable(forceinline=True)
            def take(loaded, addresses, where, ranks, flag, last, block, local, m, w, t):
                stuck, value = settle(loaded, addresses[place] + where, flag, last, block, local, m, w + k, t)
                return stuck, scaled(value, ranks)

        else:

            @register_jitable(forceinline=True)
            def fetch(addresses, where, index, length, last):
                return P.get_some(name, each, addresses[place], index, length)

            @register_jitable(forceinline=True)
            def take(loaded, addresses, where, ranks, flag, last, block, local, m, w, t):
                return 0, scaled(loaded, ranks)

        return fetch, take

    def with_another(so_far: tuple[Any, Any], another: tuple[Any, Any]) -> tuple[Any, Any]:
        fetch_before, take_before = so_far
        fetch_next, take_next = another

        @register_jitable(forceinline=True)
        def fetch(addresses, where, index, length, last):
            before = fetch_before(addresses, where, index, length, last)
            return before, fetch_next(addresses, where, index, length, last)

        @register_jitable(forceinline=True)
        def take(loaded, addresses, where, ranks, flag, last, block, local, m, w, t):
            stuck, x = take_before(loaded[0], addresses, where, ranks, flag, last, block, local, m, w, t)
            late, y = take_next(loaded[1], addresses, where, ranks, flag, last, block, local, m, w, t)
            return (stuck if stuck != 0 else late), wide.fold(op, x, y)

        return fetch, take

    found = one(0)
    for k in range(1, move.sources):
        found = with_another(found, one(k))
    return found


def _destinations(P: ModuleType, move: Any, name: str, each: int, store: Any) -> Any:
    """The stores of a packet to all destinations."""

    def with_another(before: Any, d: int) -> Any:
        if move.kinds[d]:

            @register_jitable(forceinline=True)
            def put(addresses, where, index, length, value, flag, last):
                before(addresses, where, index, length, value, flag, last)
                store(addresses[d] + where, value, flag, last)

        else:

            @register_jitable(forceinline=True)
            def put(addresses, where, index, length, value, flag, last):
                before(addresses, where, index, length, value, flag, last)
                P.put_some(name, each, addresses[d], index, length, value)

        return put

    @register_jitable(forceinline=True)
    def nothing(addresses, where, index, length, value, flag, last):
        return None

    found = nothing
    for d in range(move.destinations):
        found = with_another(found, d)
    return found
