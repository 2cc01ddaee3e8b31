"""Level 4: a Program, for all interleavings of its lanes.

Counters have one writer and only grow, so if one order of execution runs to its end all do, and if one gets
stuck all do. So one order is played, until the last iteration uses the scratch of the first again (the second does, unless
there are several sets of it), with a vector clock for each lane: what it knows other lanes to have done, through program
order and through signal → wait. If every two accesses to one location, one of them a write, are ordered by that, every
interleaving reads and writes the same values, and what the played one leaves in the outputs is compared with what the
collective wants.

So many iterations are enough: a wait looks back no further than to the last that had the same scratch, so what orders or
blocks an iteration is the same in every later one; and scratch that is written at all is written in every iteration that
has it, so what is ordered from each of these to the next is ordered for good.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.errors import ScheduleError
from algocc.program import Program, check
from algocc.table import Failure, chunk_name, layout, lengths
from algocc.verifier.dataflow import Outcome, judge_values

Array = NDArray[Any]

UNWRITTEN, READ_RACE, WRITE_RACE, MISFIT, UNDIVIDED = range(5)


class ProgramReport(NamedTuple):
    """What holds of a Program in every interleaving.

    lanes, moves, counters, scratch: its size; scratch in slots a rank.
    well_formed: its validator passed; nothing else is looked at if not.
    race_free: every two conflicting accesses are ordered.
    deadlock_free: every wait is reached and satisfied.
    correct: all of the above, and every output holds what the collective wants.
    outcome: the verdict on the outputs, None if it did not run to its end.
    failures: reasons, at most as many as asked for.
    """

    lanes: int
    moves: int
    counters: int
    scratch: int
    well_formed: bool
    race_free: bool
    deadlock_free: bool
    correct: bool
    outcome: Outcome | None
    failures: list[Failure]


def verify_program(p: Program, *, idempotent: bool = False, most: int = 20) -> ProgramReport:
    """Check a Program for all interleavings; `idempotent` accepts a contribution added twice."""
    size = (p.lanes, p.moves, len(p.counter_total), p.scratch)
    try:
        check(p)
    except ScheduleError as error:
        failure = Failure("program", None, None, None, str(error), "a well-formed program")
        return ProgramReport(*size, False, False, False, False, None, [failure])
    c = p.collective
    places = layout(p, in_place=p.in_place)
    start, total, alias = places
    is_scratch = np.zeros(total, np.bool_)
    is_scratch[places.chunks_of(Buffer.SCRATCH)] = True
    inputs = int(c.inputs.sum()) * c.chunks
    of_input, of_output = places.chunks_of(Buffer.INPUT), places.chunks_of(Buffer.OUTPUT)
    src = alias[start[p.src_rank, p.src_buffer] + p.src_chunk]
    dst = start[p.dst_rank, p.dst_buffer] + p.dst_chunk
    length, room, _ = lengths(c, places)
    iterations = p.sets + 1
    value, left, right, done, trouble, raced, divided = _play(
        p.lane_start, p.move_lane, p.count, p.src_start, src, p.dst_start, dst, p.wait_start, p.wait_counter,
        p.wait_value, p.wait_lag, p.signal_start, p.signal_counter, p.counter_waiter, p.counter_total,
        is_scratch, alias[of_input], inputs, p.like, length, room, p.final, p.src_first, iterations, p.sets, most,
    )  # fmt: skip
    failures = []
    deadlock_free = bool((done == iterations * np.diff(p.lane_start)).all())
    if not deadlock_free:
        failures += _stuck(p, done, most)
    race = (trouble[:, 0] == READ_RACE) | (trouble[:, 0] == WRITE_RACE)
    races = trouble[race]
    failures += [_race(p, *t) for t in races.tolist()]
    failures += [_slip(p, *t[:3]) for t in trouble[~race].tolist()]
    outcome = None
    if deadlock_free:
        held = np.concatenate([value[alias[of_output] + g * total] for g in range(iterations)])
        blocks, sets = int(c.inputs.sum()), len(c.set_start) - 1
        outcome = judge_values(
            held, left, right, iterations * inputs,
            np.concatenate([c.want + g * sets for g in range(iterations)]),
            np.concatenate([c.set_start[:-1] + g * len(c.set_items) for g in range(iterations)]
                           + [np.array([iterations * len(c.set_items)])]),
            np.concatenate([c.set_items + g * blocks for g in range(iterations)]),
            c.chunks, np.tile(c.output_sizes == 0, iterations), idempotent=idempotent or c.idempotent,
        )  # fmt: skip
        first = outcome.wrong[:most] % max(1, len(of_output))
        for o in dict.fromkeys(first.tolist()):
            rank = int(np.searchsorted(c.output_start * c.chunks, o, side="right")) - 1
            name = chunk_name(Buffer.OUTPUT, o - int(c.output_start[rank]) * c.chunks)
            failures.append(
                Failure("program", None, rank, name, "does not hold what the collective wants", "the exact multiset")
            )
        if averages(c) and not idempotent and not c.idempotent:
            made = held[held >= iterations * inputs] - iterations * inputs
            at = np.flatnonzero(held >= iterations * inputs)[~divided[made]][:most] % max(1, len(of_output))
            failures += [_slip(p, UNDIVIDED, -1, int(of_output[o])) for o in dict.fromkeys(at.tolist())]
    correct = deadlock_free and not failures
    return ProgramReport(*size, True, not raced, deadlock_free, correct, outcome, failures[:most])


def averages(c: Collective) -> bool:
    """Whether an average can be taken: every output wants one contribution of each rank."""
    sets = np.unique(c.want)
    if not c.reduces or not (np.diff(c.set_start)[sets] == c.n).all():
        return False
    rank = np.searchsorted(c.input_start, c.sets(sets)[1], side="right") - 1
    return bool((rank.reshape(-1, c.n) == np.arange(c.n)).all())


@njit(cache=True, nogil=True)
def _play(
    lane_start, move_lane, count, src_start, src, dst_start, dst, wait_start, wait_counter, wait_value, wait_lag,
    signal_start, signal_counter, counter_waiter, counter_total, is_scratch, of_input, inputs,
    like, span, room, final, src_first, iterations, sets, most,
):  # fmt: skip
    lanes = len(lane_start) - 1
    total = len(is_scratch)
    value = np.full(iterations * total, -1, np.int64)
    for g in range(iterations):
        for i in range(inputs):
            value[of_input[i] + g * total] = g * inputs + i
    made = 0
    most_made = 0
    accesses = 0
    for m in range(len(count)):
        most_made += iterations * count[m] * max(0, src_start[m + 1] - src_start[m] - 1)
        accesses += iterations * count[m] * (src_start[m + 1] - src_start[m])
    left = np.empty(most_made, np.int64)
    right = np.empty(most_made, np.int64)
    measured = len(span) > 0
    length_of = np.empty(iterations * inputs + most_made if measured else 0, np.int32)
    if measured:
        for g in range(iterations):
            length_of[g * inputs : (g + 1) * inputs] = span
    # How often an average divides each reduction: of integers where a Move is final, of floats the contributions that
    # a Move takes as first; -1 if not all of it equally often.
    final_of = np.zeros(most_made, np.int8)
    first_of = np.zeros(most_made, np.int8)
    raced = False
    # Accesses: the last write of each location, and the reads since, as (move, place in its lane) pairs.
    write_move = np.full(iterations * total, -1, np.int64)
    write_at = np.zeros(iterations * total, np.int32)
    read_head = np.full(iterations * total, -1, np.int64)
    read_move = np.empty(accesses, np.int32)
    read_at = np.empty(accesses, np.int32)
    read_next = np.empty(accesses, np.int64)
    reads = 0
    clock = np.zeros((lanes, lanes), np.int32)
    # Signals given: the snapshot of each that may still be waited for.
    given = np.zeros(len(counter_total), np.int64)
    begin = np.zeros(len(counter_total) + 1, np.int64)
    for c in range(len(counter_total)):
        begin[c + 1] = begin[c] + iterations * counter_total[c]
    taken = np.zeros(len(counter_total), np.int64)
    slot_of = np.full(begin[-1], -1, np.int64)
    pool = np.empty((16, lanes), np.int32)
    free = np.arange(16)
    available = 16
    trouble = np.empty((most, 4), np.int64)
    troubles = 0
    done = np.zeros(lanes, np.int64)
    todo = np.arange(lanes)[::-1].copy()
    listed = np.ones(lanes, np.bool_)
    listing = lanes
    while listing:
        listing -= 1
        lane = todo[listing]
        listed[lane] = False
        length = lane_start[lane + 1] - lane_start[lane]
        mine = clock[lane]
        while done[lane] < iterations * length:
            g = done[lane] // length
            m = lane_start[lane] + done[lane] % length
            blocked = False
            for w in range(wait_start[m], wait_start[m + 1]):
                c = wait_counter[w]
                blocked |= given[c] < (g - wait_lag[w]) * counter_total[c] + wait_value[w]
            if blocked:
                break
            for w in range(wait_start[m], wait_start[m + 1]):
                c = wait_counter[w]
                target = (g - wait_lag[w]) * counter_total[c] + wait_value[w]
                if target <= taken[c]:
                    continue
                theirs = pool[slot_of[begin[c] + target - 1]]
                for k in range(lanes):
                    mine[k] = max(mine[k], theirs[k])
                for v in range(taken[c], target):
                    free[available] = slot_of[begin[c] + v]
                    available += 1
                taken[c] = target
            at = done[lane] + 1
            mine[lane] = at
            for i in range(count[m]):
                result = -1
                for j in range(src_start[m], src_start[m + 1]):
                    place = src[j] + i
                    place += (g % sets if is_scratch[place] else g) * total
                    v = value[place]
                    if v < 0:
                        troubles = _note(trouble, troubles, UNWRITTEN, m, place % total, 0)
                    w = write_move[place]
                    if w >= 0 and mine[move_lane[w]] < write_at[place]:
                        raced = True
                        troubles = _note(trouble, troubles, READ_RACE, m, place % total, w)
                    read_move[reads], read_at[reads], read_next[reads] = m, at, read_head[place]
                    read_head[place] = reads
                    reads += 1
                    if measured and v >= 0 and length_of[v] != span[like[m] + i]:
                        troubles = _note(trouble, troubles, MISFIT, m, place % total, 0)
                    if j == src_start[m]:
                        result = v
                    elif v >= 0 and result >= 0:
                        left[made], right[made] = result, v
                        a, b = result - iterations * inputs, v - iterations * inputs
                        times = first_of[b] if b >= 0 else 0
                        if times >= 0 and src_first[j]:
                            times = min(times + 1, 2)
                        if j == src_start[m] + 1:
                            before = first_of[a] if a >= 0 else 0
                            if before >= 0 and src_first[j - 1]:
                                before = min(before + 1, 2)
                        else:
                            before = first_of[a]
                        first_of[made] = times if times == before else -1
                        if (a >= 0 and final_of[a] != 0) or (b >= 0 and final_of[b] != 0):
                            final_of[made] = -1
                        if measured:
                            length_of[iterations * inputs + made] = span[like[m] + i]
                        result = iterations * inputs + made
                        made += 1
                    else:
                        result = -1
                if final[m] and result >= iterations * inputs and src_start[m + 1] - src_start[m] > 1:
                    k = result - iterations * inputs
                    if final_of[k] == 0:
                        final_of[k] = 1
                for j in range(dst_start[m], dst_start[m + 1]):
                    place = dst[j] + i
                    if measured and room[place] >= 0 and room[place] != span[like[m] + i]:
                        troubles = _note(trouble, troubles, MISFIT, m, place, 0)
                    place += (g % sets if is_scratch[place] else g) * total
                    w = write_move[place]
                    if w >= 0 and mine[move_lane[w]] < write_at[place]:
                        raced = True
                        troubles = _note(trouble, troubles, WRITE_RACE, m, place % total, w)
                    cell = read_head[place]
                    while cell >= 0:
                        if mine[move_lane[read_move[cell]]] < read_at[cell]:
                            raced = True
                            troubles = _note(trouble, troubles, WRITE_RACE, m, place % total, read_move[cell])
                        cell = read_next[cell]
                    read_head[place] = -1
                    write_move[place], write_at[place] = m, at
                    value[place] = result
            for s in range(signal_start[m], signal_start[m + 1]):
                c = signal_counter[s]
                if available == 0:
                    rows = len(pool)
                    wider = np.empty((2 * rows, lanes), np.int32)
                    wider[:rows] = pool
                    pool = wider
                    free = np.empty(2 * rows, np.int64)
                    free[:rows] = np.arange(rows, 2 * rows)
                    available = rows
                available -= 1
                slot_of[begin[c] + given[c]] = free[available]
                pool[free[available]] = mine
                given[c] += 1
                if not listed[counter_waiter[c]]:
                    todo[listing] = counter_waiter[c]
                    listed[counter_waiter[c]] = True
                    listing += 1
            done[lane] += 1
    divided = (final_of[:made] == 1) & (first_of[:made] == 1)
    return value, left[:made], right[:made], done, trouble[:troubles], raced, divided


@njit(cache=True, nogil=True)
def _note(trouble, troubles, kind, move, place, other):
    """Add a row to `trouble` if there is room; the new number of rows."""
    if troubles == len(trouble):
        return troubles
    trouble[troubles, 0], trouble[troubles, 1] = kind, move
    trouble[troubles, 2], trouble[troubles, 3] = place, other
    return troubles + 1


def _where(p: Program, move: int) -> str:
    lane = int(p.move_lane[move])
    source = p.source(move)
    at = f"rank {p.lane_rank[lane]} lane {lane} move {move - p.lane_start[lane]} (step {p.step[move]}"
    return at + (f", {source})" if source else ")")


def _place(p: Program, place: int) -> tuple[int, str]:
    return layout(p).name(place)


def _race(p: Program, kind: int, move: int, place: int, other: int) -> Failure:
    rank, name = _place(p, place)
    verb = "is read" if kind == READ_RACE else "is written"
    return Failure(
        "race", int(p.step[move]), rank, name,
        f"{verb} by {_where(p, move)} with nothing to order it after {_where(p, other)}",
        "a signal and a wait between the two", p.source(move),
    )  # fmt: skip


def _slip(p: Program, kind: int, move: int, place: int) -> Failure:
    """What else can be wrong with a Move and a place that it reads or writes."""
    rank, name = _place(p, place)
    if kind == UNDIVIDED:
        return Failure(
            "program", None, rank, name, "is not divided exactly once by an average",
            "each contribution marked first where it is first reduced, and the last Move final",
        )  # fmt: skip
    found, wanted = {
        UNWRITTEN: ("is read by {} before anything was written there", "a write before it"),
        MISFIT: ("has another length than what {} moves", "operands of one length"),
    }[kind]
    step, source = int(p.step[move]), p.source(move)
    return Failure("program", step, rank, name, found.format(_where(p, move)), wanted, source)


def _stuck(p: Program, done: Array, most: int) -> list[Failure]:
    """One failure for each circle of lanes that wait for each other, or for a lane that has ended."""
    length = np.diff(p.lane_start)
    waits_for = np.full(p.lanes, -1)
    text = {}
    given = np.zeros(len(p.counter_total), np.int64)
    for lane in range(p.lanes):
        for at in range(int(done[lane])):
            m = p.lane_start[lane] + at % length[lane]
            np.add.at(given, p.signal_counter[p.signal_start[m] : p.signal_start[m + 1]], 1)
    for lane in np.flatnonzero(done < (p.sets + 1) * length).tolist():
        g, m = done[lane] // length[lane], int(p.lane_start[lane] + done[lane] % length[lane])
        for w in range(p.wait_start[m], p.wait_start[m + 1]):
            c = int(p.wait_counter[w])
            if given[c] < (g - p.wait_lag[w]) * p.counter_total[c] + p.wait_value[w]:
                waits_for[lane] = p.counter_writer[c]
                text[lane] = m, f"c{c}>={p.wait_value[w]}"
                break
    failures = []
    seen: set[int] = set()
    for lane in text:
        path = []
        while lane in text and lane not in seen:
            seen.add(lane)
            path.append(lane)
            lane = int(waits_for[lane])
        if lane in path:
            circle = path[path.index(lane) :]
            move = text[circle[0]][0]
            chain = " for ".join(f"{_where(p, text[k][0])} waits ({text[k][1]})" for k in circle)
            failures.append(
                Failure(
                    "program", int(p.step[move]), int(p.lane_rank[circle[0]]), None,
                    f"deadlock: {chain} for the first again", "no circle of waits", p.source(move),
                )
            )  # fmt: skip
    if not failures:
        lane = next(iter(text))
        move = text[lane][0]
        failures.append(
            Failure(
                "program", int(p.step[move]), int(p.lane_rank[lane]), None,
                f"deadlock: {_where(p, move)} waits for {text[lane][1]}, which is never given",
                "every wait to be reached by its signal", p.source(move),
            )
        )  # fmt: skip
    return failures[:most]
