"""The life of a lane in one call: tile after tile, Move after Move: wait, reduce, signal."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numba.extending import register_jitable

from algocc.kernels import layout as at


def build_wait(P: ModuleType) -> Callable[..., Any]:
    """The wait of the leader of a lane, for the target whose primitives are P."""

    @register_jitable(forceinline=True)
    def wait_for(block, local, counter, want, m, w, t):
        """Return 0 when the counter at an address has reached `want`; or why not, and report wait w of Move m in tile t."""
        have = P.load_acquire(counter)
        polls = 0
        deadline = 0
        while np.int64(have - want) < 0:
            polls += 1
            if polls > P.word(block, at.POLLS):
                abort = P.word(block, at.LINES) + at.ABORT * at.LINE
                if deadline == 0:
                    deadline = P.clock() + P.word(block, at.TIMEOUT)
                stuck = 0
                if P.load_acquire(abort) != 0:
                    stuck = at.GAVE_UP
                elif P.clock() > deadline:
                    stuck = at.TIMED_OUT
                if stuck != 0:
                    P.set_word(local, at.AT_MOVE, m)
                    P.set_word(local, at.AT_WAIT, w)
                    P.set_word(local, at.HAVE, np.int64(have))
                    P.set_word(local, at.WANT, np.int64(want))
                    P.set_word(local, at.AT_ITERATION, t)
                    P.set_word(local, at.STATUS, stuck)
                    P.store_release(abort, np.uint64(1))
                    return stuck
                P.give_way(polls)
            have = P.load_acquire(counter)
        return 0

    made: Callable[..., Any] = wait_for
    return made


def build(P: ModuleType, *, stamp: str) -> Callable[..., Any]:
    """The lane for the target whose primitives are P; `stamp` is the source it is built from."""
    wait_for = build_wait(P)

    def lane(block, index):
        """Run lane `index` of the program at `block`; 0, or why it stopped early as in `layout`.

        From Move BEGIN_MOVE of tile BEGIN_TILE to Move END_MOVE of tile ITERATIONS, or the end of the tile before.
        """
        P.built_from(stamp)
        tile, size = P.word(block, at.TILE), P.word(block, at.SIZE)
        starts = P.word(block, at.LANE_START)
        begin, end = P.word(starts, index), P.word(starts, index + 1)
        local = P.word(block, at.LOCAL) + index * P.word(block, at.LOCAL_SIZE)
        held = local + P.word(block, at.LOCAL_SIZE) - P.WINDOW
        addresses = local + 8 * at.ADDRESSES
        bases, counters = P.word(block, at.BASES), P.word(block, at.COUNTERS)
        begin_tile, last_tile = P.word(block, at.BEGIN_TILE), P.word(block, at.ITERATIONS)
        for t in range(begin_tile, last_tile + 1):
            g = np.uint64(P.word(block, at.FIRST)) + np.uint64(t)
            turn = np.int64(g & np.uint64(P.word(block, at.SETS))) * P.word(block, at.SET_BYTES)
            first = begin + P.word(block, at.BEGIN_MOVE) if t == begin_tile else begin
            stop = begin + P.word(block, at.END_MOVE) if t == last_tile else end
            for m in range(first, stop):
                move = P.word(block, at.MOVES) + 8 * at.MOVE_WORDS * m

                stuck = 0
                if P.is_leader():
                    wait = P.word(block, at.WAITS) + 8 * P.word(move, at.WAIT_START)
                    for w in range(P.word(move, at.WAIT_COUNT)):
                        before = g - np.uint64(P.word(wait, at.LAG))
                        want = before * np.uint64(P.word(wait, at.TOTAL)) + np.uint64(P.word(wait, at.VALUE))
                        counter = counters + at.LINE * P.word(wait, at.COUNTER)
                        stuck = wait_for(block, local, counter, want, m, w, t)
                        if stuck != 0:
                            break
                        wait += 8 * at.WAIT_WORDS
                stuck = P.join(stuck)
                if stuck != 0:
                    return stuck

                destinations, sources = P.word(move, at.DESTINATIONS), P.word(move, at.SOURCES)
                operands = P.word(block, at.OPERANDS) + 8 * P.word(move, at.OPERAND_START)
                part = P.word(block, at.PARTS) + 8 * P.word(move, at.PART_START)
                for _ in range(P.word(move, at.PARTS_OF)):
                    length = min(tile, P.word(part, 0) - t * tile)
                    if length > 0:
                        i = P.thread()
                        while i < destinations + sources:
                            operand = operands + 8 * at.OPERAND_WORDS * i
                            place = P.word(bases, P.word(operand, at.BASE)) + P.word(part, 1 + i) * size
                            advances = P.word(operand, at.ADVANCES)
                            P.set_word(addresses, i, place + t * tile * size * advances + turn * (1 - advances))
                            i += P.threads()
                        P.join(0)
                        if sources == 1:
                            P.spread(addresses, destinations, length * size)
                        else:
                            P.reduce(
                                P.word(block, at.REDUCTION), addresses, destinations, sources, length,
                                operands + 8 * at.OPERAND_WORDS * destinations, P.word(block, at.RANKS),
                                P.word(move, at.FINAL), held,
                            )  # fmt: skip
                        P.join(0)
                    part += 8 * (1 + destinations + sources)

                if P.is_leader():
                    signal = P.word(block, at.SIGNALS) + 8 * P.word(move, at.SIGNAL_START)
                    for _ in range(P.word(move, at.SIGNAL_COUNT)):
                        total = g * np.uint64(P.word(signal, at.SIGNAL_TOTAL))
                        P.store_release(
                            counters + at.LINE * P.word(signal, at.COUNTER),
                            total + np.uint64(P.word(signal, at.ORDINAL)),
                        )
                        signal += 8 * at.SIGNAL_WORDS
        return at.FINE

    lane.__qualname__ = "lane"
    return lane
