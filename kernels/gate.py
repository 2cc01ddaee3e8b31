"""A call by one rank of several, each of which runs its own lane: in through a gate, and out when none needs it.

In: a rank shows a record at the gate, its number of the call written last (release), and goes on when every record
shows that number (acquire). So whoever touches another rank's memory knows that it has entered the same call and where
that memory lies. Records are used in turns: a rank that shows call e + 2 has seen all others enter call e + 1, and so
done with the records of call e.

A program of one round reads of others only what they copy into scratch before they show their record. Its scratch is double
as well and used in the same turns, so the gate alone orders it and it has no counters; if it is small it lies in the record,
so that data and signature come in one piece.

Out: a rank whose input or output is touched by others waits until each of them has finished the call. Scratch needs no
such wait, since the program's own counters guard it.

Numbers of calls only grow, and are compared by the sign of their difference, which survives the wrap at 2^64.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numba.extending import register_jitable

from algocc.kernels import layout as at


def build(P: ModuleType, *, stamp: str) -> Callable[..., Any]:
    """The call for the target whose primitives are P; `stamp` is the source it is built from."""

    @register_jitable
    def come(block, word, want, closed):
        """Wait until `word` has reached `want`; false if it did not in time, all give up, or its rank has gone."""
        polls = 0
        deadline = 0
        while np.int64(P.load_acquire(word) - want) < 0:
            polls += 1
            if polls > P.word(block, at.POLLS):
                if deadline == 0:
                    deadline = P.clock() + P.word(block, at.TIMEOUT)
                gone = P.load_acquire(P.word(block, at.LINES) + at.ABORT * at.LINE) | P.load_acquire(closed)
                if gone != 0 or P.clock() > deadline:
                    return np.int64(P.load_acquire(word) - want) >= 0
                P.give_way(polls)
        return True

    def rank_call(block):
        """Run this rank's lane once; 0, or why it stopped early as in `layout`."""
        P.built_from(stamp)
        state, gate, record = P.word(block, at.STATE), P.word(block, at.GATE), P.word(block, at.RECORD)
        me, members = P.word(block, at.MEMBER), P.word(block, at.MEMBERS)
        done = gate + at.LINE * 2 * members
        closed = done + at.LINE * members
        call = np.uint64(P.word(state, at.CALL)) + np.uint64(1)
        turn = np.int64(call & np.uint64(1))

        mine = gate + at.LINE * (2 * me + turn)
        bases, maps, globals_ = P.word(block, at.BASES), P.word(block, at.MAPS), P.word(block, at.GLOBALS)
        second = P.word(block, at.SECOND)
        if second != 0:
            scratch = P.word(maps, me) + P.word(record, at.SCRATCH_AT - 1) + turn * second
            if second == at.IN_RECORD:
                scratch = mine + 8 * at.RECORD_WORDS
            P.set_word(bases, 3 * P.word(globals_, me) + 2, scratch)

        early = P.word(block, at.PRELUDE)
        P.set_word(block, at.BEGIN_TILE, 0)
        P.set_word(block, at.BEGIN_MOVE, 0)
        if P.word(block, at.COUNTERS) == 0:  # not known before the first call
            early = 0
        if early != 0:
            P.set_word(block, at.ITERATIONS, 0)
            P.set_word(block, at.END_MOVE, early)
            stuck = P.run_lane(P.word(block, at.LANE), block, P.word(block, at.INDEX))
            if stuck != 0:
                return stuck

        for k in range(at.RECORD_WORDS - 1):
            P.set_word(mine, at.SIGNATURE + k, P.word(record, k))
        if second > 0:
            P.set_word(mine, at.SCRATCH_AT, P.word(record, at.SCRATCH_AT - 1) + turn * second)
        P.store_release(mine, call)
        P.set_word(state, at.CALL, np.int64(call))
        same, same_program = True, True
        for k in range(1, members):
            m = (me + k) % members
            theirs = gate + at.LINE * (2 * m + turn)
            if not come(block, theirs, call, closed + at.LINE * m):
                P.set_word(state, at.WAITED_FOR, m)
                return at.NOT_ENTERED
            signature = P.word(theirs, at.SIGNATURE) ^ P.word(record, 0)
            same = same and signature >> 1 == 0
            same_program = same_program and signature == 0
            base, rank = P.word(maps, m), P.word(globals_, m)
            P.set_word(bases, 3 * rank, base + P.word(theirs, at.INPUT_AT))
            P.set_word(bases, 3 * rank + 1, base + P.word(theirs, at.OUTPUT_AT))
            scratch = base + P.word(theirs, at.SCRATCH_AT)
            if second == at.IN_RECORD:
                scratch = theirs + 8 * at.RECORD_WORDS
            P.set_word(bases, 3 * rank + 2, scratch)
        if not same and P.word(block, at.CHECKED) != 0:
            return at.DISAGREES
        if same and not same_program:
            return at.OTHER_PROGRAM
        P.set_word(block, at.COUNTERS, P.word(maps, 0) + P.word(gate + at.LINE * turn, at.COUNTERS_AT))

        P.set_word(block, at.BEGIN_MOVE, early)
        P.set_word(block, at.ITERATIONS, P.word(block, at.TILES))
        P.set_word(block, at.END_MOVE, 0)
        if P.word(block, at.TILES) != 0:
            stuck = P.run_lane(P.word(block, at.LANE), block, P.word(block, at.INDEX))
            if stuck != 0:
                return stuck
        P.set_word(block, at.FIRST, P.word(block, at.FIRST) + P.word(block, at.TILES))

        P.store_release(done + at.LINE * me, call)
        leavers = P.word(block, at.LEAVERS)
        for k in range(P.word(block, at.LEAVER_COUNT)):
            m = P.word(leavers, k)
            if not come(block, done + at.LINE * m, call, closed + at.LINE * m):
                P.set_word(state, at.WAITED_FOR, m)
                return at.NOT_LEFT
        return at.FINE

    rank_call.__qualname__ = "rank_call"
    return rank_call


def build_part(P: ModuleType, *, stamp: str) -> Callable[..., Any]:
    """A part of a call, from and up to where the block says; `stamp` is the source it is built from."""

    def rank_part(block):
        """Run this rank's lane; 0, or why it stopped early as in `layout`."""
        P.built_from(stamp)
        return P.run_lane(P.word(block, at.LANE), block, P.word(block, at.INDEX))

    rank_part.__qualname__ = "rank_part"
    return rank_part
