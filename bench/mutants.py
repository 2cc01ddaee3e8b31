"""Mutation testing of the verifier: break verified schedules and Programs at random, and find out the truth apart.

    python bench/mutants.py --count 100000 --write bench/results/mutants.md
    python bench/mutants.py --replay 2000000017

A mutant of a schedule is interpreted step by step on big random integers, and once more on sets. A mutant of a
Program is played, three iterations long, in many random interleavings of single reads, writes, waits and signals, on
random 64-bit numbers; and all pairs of conflicting accesses are looked up in the transitive closure of happens-before.
What an output should be comes from the definition of its collective. None of this is code of the verifier.

Goal: no wrong mutant accepted, no right one rejected. A Program with a data race is wrong, also where every
interleaving tried ends well; those are counted as racy but lucky. Exit code 1 and the mutant if they disagree once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from algocc.catalog import algorithms
from algocc.collective import Collective
from algocc.errors import AlgoccError
from algocc.lowering import lower
from algocc.program import Program, listing
from algocc.table import COLUMNS, Action, Schedule
from algocc.testing.generate import two_sided_form
from algocc.text import dumps
from algocc.verifier import verify, verify_program

ITERATIONS = 3
PLAYS = 8
MOST_ROWS, MOST_MOVES = 250, 100
RIGHT, WRONG, RACY, MALFORMED = "right", "wrong", "racy but lucky", "malformed"
Block = tuple[int, int]


# What the collectives mean, by their textbook definitions.


def demand(c: Collective) -> list[list[list[Block]]]:
    """For each rank and output block the (rank, input block) pairs that it must reduce."""
    n, root = c.n, c.params.get("root", 0)
    ranks = range(n)
    match c.name:
        case "all_reduce" | "barrier":
            return [[[(i, 0) for i in ranks]] for _ in ranks]
        case "reduce_scatter":
            return [[[(i, r) for i in ranks]] for r in ranks]
        case "all_gather":
            return [[[(i, 0)] for i in ranks] for _ in ranks]
        case "broadcast":
            return [[[(root, 0)]] for _ in ranks]
        case "reduce":
            return [[[(i, 0) for i in ranks]] if r == root else [] for r in ranks]
        case "scatter":
            return [[[(root, r)]] for r in ranks]
        case "gather":
            return [[[(i, 0)] for i in ranks] if r == root else [] for r in ranks]
        case "all_to_all" | "all_to_all_v":
            return [[[(i, r)] for i in ranks] for r in ranks]
        case "scan":
            return [[[(i, 0) for i in range(r + 1)]] for r in ranks]
        case "exscan":
            return [[[(i, 0) for i in range(r)]] if r else [] for r in ranks]
        case "send_recv":
            out: list[list[list[Block]]] = [[] for _ in ranks]
            sent: Counter[int] = Counter()
            for src, dst in c.params.get("pairs", [(r, (r + 1) % n) for r in ranks]):
                out[dst].append([(src, sent[src])])
                sent[src] += 1
            return out
    raise AssertionError(f"no definition of {c.name}")


def length_of(c: Collective, block: Block, part: int) -> Any:
    """What fixes the elements of a part of an input block, for all counts."""
    units = c.params["counts"][block[0]][block[1]] if c.name == "all_to_all_v" else 1
    return (units, part) if units else None


# The truth about a schedule.


class Wrong(Exception):
    """Why a schedule is wrong."""


def schedule_truth(s: Schedule, rng: random.Random, *, in_place: bool) -> tuple[bool, bool, str]:
    """Whether a schedule is right, whether it is for idempotent operators, and why not."""
    c = s.collective
    sizes = {(r, b): k for r in range(c.n) for b, k in
             enumerate((int(c.inputs[r]) * c.chunks, int(c.outputs[r]) * c.chunks, s.scratch))}  # fmt: skip
    same = {}
    for r, i, o in c.alias.tolist() if in_place else ():
        same |= {(r, 0, i * c.chunks + j): (r, 1, o * c.chunks + j) for j in range(c.chunks)}
    memory: dict[Any, tuple[int, int, Any]] = {}
    fresh: dict[Any, tuple[int, int]] = {}
    for r in range(c.n):
        for i in range(sizes[r, 0]):
            number, bit = rng.getrandbits(256), 1 << len(fresh)
            fresh[r, i] = number, bit
            memory[same.get((r, 0, i), (r, 0, i))] = number, bit, length_of(c, (r, i // c.chunks), i % c.chunks)
    names = [name for name in COLUMNS if name != "origin"]
    rows = list(zip(*(s.columns[name].tolist() for name in names), strict=True))
    try:
        for step in sorted({row[0] for row in rows}):
            _step([row[1:] for row in rows if row[0] == step], memory, same, sizes, c.n)
    except Wrong as wrong:
        return False, False, str(wrong)
    exact, as_sets = True, True
    for r, blocks in enumerate(demand(c)):
        for o, block in enumerate(blocks):
            for j in range(c.chunks):
                if length_of(c, block[0], j) is None:
                    continue
                held = memory.get((r, 1, o * c.chunks + j), (-1, 0, None))
                wanted = [fresh[i, b * c.chunks + j] for i, b in block]
                exact &= held[0] == sum(number for number, _ in wanted)
                as_sets &= held[1] == sum(bit for _, bit in wanted)
    return (as_sets if c.name == "barrier" else exact), as_sets, "outputs"


def _step(rows: list[Any], memory: Any, same: Any, sizes: Any, n: int) -> None:
    """One step: match, read everything, then write."""

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise Wrong(what)

    def inside(rank: int, buffer: int, chunk: int, count: int) -> bool:
        return (rank, buffer) in sizes and 0 <= chunk and chunk + count <= sizes[rank, buffer]

    sends: dict[Block, list[Any]] = {}
    transfers = []
    for action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count in rows:
        require(0 <= action <= 6 and 0 <= rank < n and 0 <= peer < n and count >= 1, "form")
        require(inside(rank, buffer, chunk, count), "form")
        if action >= 3:
            require(rank != peer, "a message to itself")
            named = peer_chunk >= 0
            require(not named or inside(peer, peer_buffer, peer_chunk, count), "form")
        if action == Action.SEND:
            sends.setdefault((rank, peer), []).append((buffer, chunk, peer_buffer, peer_chunk, count))
    for action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count in rows:
        if action == Action.SEND:
            continue
        if action > 3:
            require(bool(sends.get((peer, rank))), "no send")
            b, k, to_b, to_k, other = sends[peer, rank].pop(0)
            require(other == count and (to_k < 0 or (to_b, to_k) == (buffer, chunk)), "sides differ")
            require(peer_chunk < 0 or (peer_buffer, peer_chunk) == (b, k), "sides differ")
            transfers.append((action - 4, (peer, b, k), (rank, buffer, chunk), count))
        else:
            require(inside(peer, peer_buffer, peer_chunk, count), "form")
            transfers.append((action, (rank, buffer, chunk), (peer, peer_buffer, peer_chunk), count))
    require(not any(sends.values()), "no receive")
    work = []
    for action, (r, b, k), (to_r, to_b, to_k), count in transfers:
        require(to_b != 0, "writes an input")
        for i in range(count):
            src, dst = (r, b, k + i), (to_r, to_b, to_k + i)
            src, dst = same.get(src, src), same.get(dst, dst)
            require(src in memory, "unwritten")
            work.append((action, memory[src], dst))
    written: dict[Any, set[bool]] = {}
    for action, (number, bits, length), dst in work:
        kinds = written.setdefault(dst, set())
        require(not kinds or (action != 0 and kinds == {True}), "race")
        kinds.add(action != 0)
        if action == 0:
            memory[dst] = number, bits, length
        else:
            require(dst in memory, "reduces into nothing")
            require(memory[dst][2] == length, "lengths differ")
            memory[dst] = memory[dst][0] + number, memory[dst][1] | bits, length


# The truth about a Program.


def program_truth(p: Program, rng: random.Random, *, plays: int = PLAYS) -> tuple[str, bool, bool]:
    """RIGHT, RACY or WRONG; whether some two accesses race; whether every play tried comes to its end."""
    c = p.collective
    sizes = [(int(c.inputs[r]) * c.chunks, int(c.outputs[r]) * c.chunks, p.scratch) for r in range(c.n)]
    base, total = {}, 0
    for r, of_rank in enumerate(sizes):
        for b, k in enumerate(of_rank):
            base[r, b] = total
            total += k
    home = np.arange(total)
    for r, i, o in c.alias.tolist() if p.in_place else ():
        for j in range(c.chunks):
            home[base[r, 0] + i * c.chunks + j] = base[r, 1] + o * c.chunks + j
    is_scratch = np.zeros(total, np.bool_)
    room = np.full(total, -1)
    codes: dict[Any, int] = {}

    def code(block: Block, part: int) -> int:
        return codes.setdefault(length_of(c, block, part), len(codes))

    inputs = [(r, i) for r in range(c.n) for i in range(sizes[r][0])]
    length = np.array([code((r, i // c.chunks), i % c.chunks) for r, i in inputs], np.int64)
    outputs = demand(c)
    for r in range(c.n):
        is_scratch[base[r, 2] : base[r, 2] + p.scratch] = True
        for o, block in enumerate(outputs[r]):
            for j in range(c.chunks):
                room[base[r, 1] + o * c.chunks + j] = code(block[0], j)
    averages = c.n > 1 and all(sorted(i for i, _ in b) == list(range(c.n)) for blocks in outputs for b in blocks)
    number = np.random.default_rng(rng.getrandbits(64)).integers(0, 2**63, (ITERATIONS, len(inputs), 2), np.uint64)
    factors = np.array([rng.getrandbits(64) | 1, rng.getrandbits(64) | 1], np.uint64)
    # Of a value: two sums, that of an average of floats, that of an average of integers, a set.
    values = np.zeros((ITERATIONS, len(inputs), 5), np.uint64)
    values[:, :, :2] = number
    values[:, :, 2] = values[:, :, 3] = number[:, :, 0]
    values[:, :, 4] = np.uint64(1) << np.arange(ITERATIONS * len(inputs), dtype=np.uint64).reshape(ITERATIONS, -1) % 64
    at = {place: k for k, place in enumerate(inputs)}
    of_input = np.array([home[base[r, 0] + i] for r, i in inputs], np.int64)

    src = np.array([base[r, b] + k for r, b, k in zip(*_cells(p, "src"), strict=True)], np.int64)
    dst = np.array([base[r, b] + k for r, b, k in zip(*_cells(p, "dst"), strict=True)], np.int64)
    moves = (
        p.lane_start.astype(np.int64), p.count.astype(np.int64), p.like.astype(np.int64), p.final.astype(np.bool_),
        p.src_start.astype(np.int64), src, p.src_first.astype(np.bool_), p.dst_start.astype(np.int64), dst,
    )  # fmt: skip
    sync = (
        p.wait_start.astype(np.int64), p.wait_counter.astype(np.int64), p.wait_value.astype(np.int64),
        p.wait_lag.astype(np.int64), p.signal_start.astype(np.int64), p.signal_counter.astype(np.int64),
        p.counter_total.astype(np.int64),
    )  # fmt: skip
    places, wanted = [], []
    for g in range(ITERATIONS):
        for r, blocks in enumerate(outputs):
            for o, block in enumerate(blocks):
                for j in range(c.chunks):
                    if length_of(c, block[0], j) is not None:
                        places.append(g * total + base[r, 1] + o * c.chunks + j)
                        parts = values[g, [at[i, b * c.chunks + j] for i, b in block]]
                        wanted.append([*parts[:, :4].sum(axis=0, dtype=np.uint64), np.bitwise_or.reduce(parts[:, 4])])
    want = np.array(wanted, np.uint64).reshape(-1, 5)
    if averages:
        want[:, 2:4] *= factors
    asked = [4] if c.name == "barrier" else [0, 1, 2, 3] if averages else [0, 1]
    raced = bool(_races(*moves, *sync, home, is_scratch, ITERATIONS))
    right = ended = True
    for play in range(plays):
        done, ok, memory, has = _play(
            *moves, *sync, home, is_scratch, room, length, of_input, values, factors, play % 4,
            rng.getrandbits(31), ITERATIONS,
        )  # fmt: skip
        ended &= bool(done)
        right &= bool(done and ok and has[places].all() and (memory[places][:, asked] == want[:, asked]).all())
    return (WRONG if not right else RACY if raced else RIGHT), raced, ended


def _cells(p: Program, side: str) -> Iterator[list[int]]:
    for what in ("rank", "buffer", "chunk"):
        yield getattr(p, f"{side}_{what}").tolist()


@njit(cache=True)
def _play(
    lane_start, count, like, final, src_start, src, src_first, dst_start, dst, wait_start, wait_counter, wait_value,
    wait_lag, signal_start, signal_counter, counter_total, home, is_scratch, room, length, of_input, values, factors,
    policy, seed, iterations,
):  # fmt: skip
    """One random interleaving: whether it ended, whether nothing unwritten or of another length was used, memory."""
    np.random.seed(seed)
    lanes, total = len(lane_start) - 1, len(home)
    memory = np.zeros((iterations * total, 5), np.uint64)
    size = np.full(iterations * total, -1, np.int64)
    for g in range(iterations):
        for i in range(len(of_input)):
            memory[g * total + of_input[i]] = values[g, i]
            size[g * total + of_input[i]] = length[i]
    counter = np.zeros(len(counter_total), np.int64)
    iteration = np.zeros(lanes, np.int64)
    move = lane_start[:-1].copy()
    phase = np.zeros(lanes, np.int64)  # within a Move: 0 waits, then the reads and writes of each chunk, signals last
    item = np.zeros(lanes, np.int64)
    chunk = np.zeros(lanes, np.int64)
    register = np.zeros((lanes, 5), np.uint64)
    priority = np.random.permutation(lanes)
    last = 0
    ok = True
    able = np.empty(lanes, np.int64)
    while True:
        n, left = 0, 0
        for k in range(lanes):
            if iteration[k] < iterations and lane_start[k] < lane_start[k + 1]:
                left += 1
                blocked = False
                if phase[k] == 0 and wait_start[move[k]] + item[k] < wait_start[move[k] + 1]:
                    w = wait_start[move[k]] + item[k]
                    c = wait_counter[w]
                    blocked = counter[c] < (iteration[k] - wait_lag[w]) * counter_total[c] + wait_value[w]
                if not blocked:
                    able[n] = k
                    n += 1
        if n == 0:
            return left == 0, ok, memory, size >= 0
        k = able[np.random.randint(n)]
        if policy == 1:
            for i in range(n):
                if priority[able[i]] < priority[k]:
                    k = able[i]
        elif policy >= 2:
            for i in range(n):
                if able[i] == last and np.random.random() < (0.97 if policy == 2 else 0.7):
                    k = last
        last = k
        m, g = move[k], iteration[k]
        if phase[k] == 0:
            if wait_start[m] + item[k] < wait_start[m + 1]:
                item[k] += 1
            else:
                phase[k], item[k], chunk[k] = 1, 0, 0
        elif phase[k] == 1:
            several = src_start[m + 1] - src_start[m] > 1
            if chunk[k] == count[m]:
                phase[k], item[k] = 3, 0
            elif src_start[m] + item[k] < src_start[m + 1]:
                j = src_start[m] + item[k]
                place = home[src[j] + chunk[k]]
                at = place if is_scratch[place] else place + g * total
                ok &= size[at] == length[like[m] + chunk[k]]
                if item[k] == 0:
                    register[k] = 0
                for x in range(4):
                    term = memory[at, x]
                    if x == 2 and several and src_first[j]:
                        term *= factors[0]
                    register[k, x] += term
                register[k, 4] |= memory[at, 4]
                item[k] += 1
            else:
                if several and final[m]:
                    register[k, 3] *= factors[1]
                phase[k], item[k] = 2, 0
        elif phase[k] == 2:
            if dst_start[m] + item[k] < dst_start[m + 1]:
                place = home[dst[dst_start[m] + item[k]] + chunk[k]]
                at = place if is_scratch[place] else place + g * total
                ok &= room[place] < 0 or room[place] == length[like[m] + chunk[k]]
                memory[at] = register[k]
                size[at] = length[like[m] + chunk[k]]
                item[k] += 1
            else:
                phase[k], item[k] = 1, 0
                chunk[k] += 1
        else:
            if signal_start[m] + item[k] < signal_start[m + 1]:
                counter[signal_counter[signal_start[m] + item[k]]] += 1
                item[k] += 1
            else:
                phase[k], item[k] = 0, 0
                move[k] += 1
                if move[k] == lane_start[k + 1]:
                    move[k] = lane_start[k]
                    iteration[k] += 1


@njit(cache=True)
def _races(
    lane_start, count, like, final, src_start, src, src_first, dst_start, dst, wait_start, wait_counter, wait_value,
    wait_lag, signal_start, signal_counter, counter_total, home, is_scratch, iterations,
):  # fmt: skip
    """Whether two accesses to one place, one a write, are not ordered by the closure of happens-before."""
    moves, total = len(count), len(home)
    lanes = len(lane_start) - 1
    nodes = iterations * moves
    # The Move that gives each signal of each counter.
    giver = np.full((len(counter_total), max(1, counter_total.max() if len(counter_total) else 1)), -1)
    given = np.zeros(len(counter_total), np.int64)
    for m in range(moves):
        for s in range(signal_start[m], signal_start[m + 1]):
            giver[signal_counter[s], given[signal_counter[s]]] = m
            given[signal_counter[s]] += 1
    before = np.zeros((nodes, nodes), np.bool_)  # before[b, a]: a happens before b
    for lane in range(lanes):
        first, last = lane_start[lane], lane_start[lane + 1]
        for g in range(iterations):
            for m in range(first, last):
                b = g * moves + m
                if m > first:
                    before[b, b - 1] = True
                elif g > 0:
                    before[b, (g - 1) * moves + last - 1] = True
                for w in range(wait_start[m], wait_start[m + 1]):
                    c = wait_counter[w]
                    target = (g - wait_lag[w]) * counter_total[c] + wait_value[w]
                    if target >= 1:
                        of = (target - 1) // counter_total[c]
                        before[b, of * moves + giver[c, (target - 1) % counter_total[c]]] = True
    words = (nodes + 63) // 64
    reach = np.zeros((nodes, words), np.uint64)
    for b in range(nodes):
        for a in range(nodes):
            if before[b, a]:
                reach[b, a >> 6] |= np.uint64(1) << np.uint64(a & 63)
    changed = True
    while changed:
        changed = False
        for b in range(nodes):
            for a in range(nodes):
                if before[b, a]:
                    for w in range(words):
                        more = reach[b, w] | reach[a, w]
                        if more != reach[b, w]:
                            reach[b, w] = more
                            changed = True
    accesses = 0
    for m in range(moves):
        accesses += count[m] * (src_start[m + 1] - src_start[m] + dst_start[m + 1] - dst_start[m])
    node, place, write = np.empty(accesses * iterations, np.int64), np.empty(accesses * iterations, np.int64), np.empty(accesses * iterations, np.bool_)
    k = 0
    for g in range(iterations):
        for m in range(moves):
            for i in range(count[m]):
                for j in range(src_start[m], src_start[m + 1]):
                    p = home[src[j] + i]
                    node[k], place[k], write[k] = g * moves + m, p if is_scratch[p] else p + g * total, False
                    k += 1
                for j in range(dst_start[m], dst_start[m + 1]):
                    p = home[dst[j] + i]
                    node[k], place[k], write[k] = g * moves + m, p if is_scratch[p] else p + g * total, True
                    k += 1
    order = np.argsort(place)
    for x in range(k):
        y = x + 1
        while y < k and place[order[y]] == place[order[x]]:
            a, b = node[order[x]], node[order[y]]
            if a != b and (write[order[x]] or write[order[y]]):
                ab = reach[b, a >> 6] >> np.uint64(a & 63) & np.uint64(1)
                ba = reach[a, b >> 6] >> np.uint64(b & 63) & np.uint64(1)
                if not ab and not ba:
                    return True
            y += 1
    return False


# How to break a schedule.


def break_schedule(rng: random.Random, s: Schedule) -> tuple[str, Schedule]:
    """One slip in a schedule with rows, and its kind."""
    columns = {name: column.copy() for name, column in s.columns.items()}
    row, other = rng.randrange(len(s)), rng.randrange(len(s))
    step = int(s.step[row])
    last = int(s.step[-1])
    kind = rng.choice(SCHEDULE_KINDS)

    def nudged(name: str) -> None:
        columns[name][row] += rng.choice([-2, -1, 1, 2]) if rng.random() < 0.7 else rng.randrange(8)

    match kind:
        case "drop":
            columns = {name: np.delete(column, row) for name, column in columns.items()}
        case "duplicate":
            columns = {name: np.append(column, column[row]) for name, column in columns.items()}
            columns["step"][-1] = rng.choice([step, step, rng.randint(0, last + 1)])
        case "retarget":
            columns[rng.choice(["rank", "peer"])][row] = rng.randrange(s.n)
        case "reorder":
            match rng.randrange(4):
                case 0:
                    columns["step"][row] = max(0, step + rng.choice([-2, -1, 1, 2]))
                case 1:
                    columns["step"][[row, other]] = columns["step"][[other, row]]
                case 2:
                    to = int(s.step[other])
                    columns["step"][s.step == step], columns["step"][s.step == to] = to, step
                case 3:
                    columns["step"][s.step > step] -= 1  # two steps become one
        case "swap":
            names = rng.choice([("peer", "peer_buffer", "peer_chunk"), ("rank", "buffer", "chunk"), ("chunk",), ("peer_chunk",)])
            for name in names:
                columns[name][[row, other]] = columns[name][[other, row]]
        case "chunk":
            nudged(rng.choice(["chunk", "peer_chunk"]))
        case "action":
            columns["action"][row] = rng.choice([0, 1, 2]) if rng.random() < 0.8 else rng.randrange(-1, 8)
        case "count":
            columns["count"][row] += rng.choice([-1, 1])
        case "buffer":
            columns[rng.choice(["buffer", "peer_buffer"])][row] = rng.randrange(3)
    columns["step"] = np.maximum(columns["step"], 0)
    order = np.argsort(columns["step"], kind="stable")
    return kind, replace(s, **{name: column[order] for name, column in columns.items()})


SCHEDULE_KINDS = ("drop", "duplicate", "retarget", "reorder", "swap", "chunk", "action", "count", "buffer")


# How to break a Program.

RAGGED = {
    "wait": ("wait_counter", "wait_value", "wait_lag"),
    "signal": ("signal_counter",),
    "src": ("src_rank", "src_buffer", "src_chunk", "src_first"),
    "dst": ("dst_rank", "dst_buffer", "dst_chunk"),
}
OF_MOVE = ("step", "origin", "count", "like", "final")


def break_program(rng: random.Random, p: Program) -> tuple[str, Program] | None:
    """One slip in a Program and its kind, of good form as far as that is easy; None if there is nothing to break."""
    kind = rng.choice(PROGRAM_KINDS)
    match kind:
        case "drop wait" | "drop signal" | "drop source" | "drop destination":
            what = {"source": "src", "destination": "dst"}.get(kind[5:], kind[5:])
            made = _without(rng, p, what)
        case "duplicate source" | "duplicate destination" | "duplicate wait":
            what = {"source": "src", "destination": "dst", "wait": "wait"}[kind[10:]]
            made = _twice(rng, p, what)
        case "move signal":
            made = _moved_signal(rng, p)
        case "reorder moves":
            made = _swapped_moves(rng, p)
        case "drop move":
            made = _without_move(rng, p)
        case "wait value":
            made = _entry(rng, p, "wait_value", lambda v, i: rng.randint(1, max(1, int(p.counter_total[p.wait_counter[i]]))))
        case "wait counter":
            made = _entry(rng, p, "wait_counter", lambda v, i: _other_counter(rng, p, v))
        case "lag":
            made = _entry(rng, p, "wait_lag", lambda v, i: 1 - v)
        case "retarget":
            made = _entry(rng, p, rng.choice(["src_rank", "dst_rank"]), lambda v, i: rng.randrange(p.n))
        case "chunk":
            made = _entry(rng, p, rng.choice(["src_chunk", "dst_chunk"]), lambda v, i: max(0, v + rng.choice([-1, 1, 2])))
        case "buffer":
            side = rng.choice(["src", "dst"])
            made = _entry(rng, p, f"{side}_buffer", lambda v, i: rng.randrange(3) if side == "src" else rng.randint(1, 2))
        case "count":
            made = _entry(rng, p, "count", lambda v, i: max(1, v + rng.choice([-1, 1])))
        case "like":
            most = int(p.collective.inputs.sum()) * p.collective.chunks
            made = _entry(rng, p, "like", lambda v, i: min(max(0, v + rng.choice([-2, -1, 1, 2])), most - 1))
        case "flag":
            made = _entry(rng, p, rng.choice(["final", "src_first"]), lambda v, i: not v)
    return None if made is None else (kind, made)


PROGRAM_KINDS = (
    "drop wait", "drop signal", "drop source", "drop destination", "drop move", "duplicate source",
    "duplicate destination", "duplicate wait", "move signal", "reorder moves", "wait value", "wait counter", "lag",
    "retarget", "chunk", "buffer", "count", "like", "flag",
)  # fmt: skip


def _entry(rng: random.Random, p: Program, name: str, new: Callable[[int, int], int]) -> Program | None:
    column = getattr(p, name).copy()
    if not len(column):
        return None
    i = rng.randrange(len(column))
    column[i] = new(int(column[i]), i)
    return replace(p, **{name: column})


def _other_counter(rng: random.Random, p: Program, counter: int) -> int:
    return rng.choice(np.flatnonzero(p.counter_waiter == p.counter_waiter[counter]).tolist())


def _totals(p: Program) -> Program:
    return replace(p, counter_total=np.bincount(p.signal_counter, minlength=len(p.counter_total)))


def _without(rng: random.Random, p: Program, what: str) -> Program | None:
    start = getattr(p, f"{what}_start")
    moves = np.flatnonzero(np.diff(start) >= (2 if what in ("src", "dst") else 1)).tolist()
    if not moves:
        return None
    move = rng.choice(moves)
    item = rng.randrange(start[move], start[move + 1])
    changed: dict[str, Any] = {name: np.delete(getattr(p, name), item) for name in RAGGED[what]}
    changed[f"{what}_start"] = start - (np.arange(len(start)) > move)
    return _totals(replace(p, **changed))


def _twice(rng: random.Random, p: Program, what: str) -> Program | None:
    """An item of one Move once more in another, or the same, Move of that lane."""
    start = getattr(p, f"{what}_start")
    if not start[-1]:
        return None
    item = rng.randrange(int(start[-1]))
    move = int(np.searchsorted(start, item, side="right")) - 1
    lane = int(p.move_lane[move])
    move = rng.randrange(p.lane_start[lane], p.lane_start[lane + 1]) if what == "wait" or rng.random() < 0.3 else move
    changed: dict[str, Any] = {
        name: np.insert(getattr(p, name), start[move + 1], getattr(p, name)[item]) for name in RAGGED[what]
    }
    changed[f"{what}_start"] = start + (np.arange(len(start)) > move)
    return replace(p, **changed)


def _moved_signal(rng: random.Random, p: Program) -> Program | None:
    """A signal is given by another Move of its lane."""
    if not len(p.signal_counter):
        return None
    item = rng.randrange(len(p.signal_counter))
    move = int(np.searchsorted(p.signal_start, item, side="right")) - 1
    lane = int(p.move_lane[move])
    to = rng.randrange(p.lane_start[lane], p.lane_start[lane + 1])
    owner = np.repeat(np.arange(p.moves), np.diff(p.signal_start))
    owner[item] = to
    order = np.argsort(owner, kind="stable")
    return replace(
        p, signal_counter=p.signal_counter[order], signal_start=np.searchsorted(owner[order], np.arange(p.moves + 1))
    )


def _picked(p: Program, moves: list[int], lane_start: Any) -> Program:
    """These Moves, in this order."""
    changed: dict[str, Any] = {name: getattr(p, name)[moves] for name in OF_MOVE}
    for what, names in RAGGED.items():
        start = getattr(p, f"{what}_start")
        items = [i for m in moves for i in range(start[m], start[m + 1])]
        changed |= {name: getattr(p, name)[np.array(items, np.int64)] for name in names}
        changed[f"{what}_start"] = np.concatenate([[0], np.cumsum([start[m + 1] - start[m] for m in moves])]).astype(np.int64)
    return _totals(replace(p, lane_start=lane_start, **changed))


def _swapped_moves(rng: random.Random, p: Program) -> Program | None:
    lanes = np.flatnonzero(np.diff(p.lane_start) > 1).tolist()
    if not lanes:
        return None
    lane = rng.choice(lanes)
    moves = list(range(p.moves))
    a, b = rng.sample(range(p.lane_start[lane], p.lane_start[lane + 1]), 2)
    moves[a], moves[b] = b, a
    return _picked(p, moves, p.lane_start)


def _without_move(rng: random.Random, p: Program) -> Program | None:
    if p.moves < 2:
        return None
    move = rng.randrange(p.moves)
    return _picked(p, [m for m in range(p.moves) if m != move], p.lane_start - (p.lane_start > move))


# Mutants.


@dataclass(frozen=True)
class Subject:
    """A verified schedule, and one of the Programs that it is lowered to."""

    family: str
    schedule: Schedule
    program: Program
    in_place: bool
    lanes: int


@cache
def subjects() -> tuple[Subject, ...]:
    """Every algorithm of the catalogue for 2 to 5 ranks, in both modes where it has them."""
    found = []
    for name, algorithm in algorithms().items():
        family = algorithm.write.__module__.rsplit(".", 1)[-1]
        for n in range(2, 6):
            try:
                s = algorithm(n)
            except AlgoccError:
                continue
            if not 0 < int(s.count.sum()) <= MOST_ROWS:
                continue
            for in_place in (False, True) if len(s.collective.alias) else (False,):
                lanes = 1 + (len(name) + n) % 2
                if not verify(s, in_place=in_place).correct:
                    continue  # not meant for in place
                p = lower(s.matched(), in_place=in_place, lanes=lanes)
                if 0 < p.moves <= MOST_MOVES:
                    found.append(Subject(family, s, p, in_place, lanes))
    return tuple(found)


@dataclass(frozen=True)
class Mutant:
    """One broken subject; `thing` is a Schedule or a Program."""

    seed: int
    family: str
    kind: str
    thing: Any
    in_place: bool
    lanes: int

    def __str__(self) -> str:
        text = dumps(self.thing) if isinstance(self.thing, Schedule) else listing(self.thing)
        flags = "" if isinstance(self.thing, Schedule) else (
            f"\nlike {self.thing.like.tolist()}, final {self.thing.final.astype(int).tolist()}, "
            f"first {self.thing.src_first.astype(int).tolist()}"
        )  # fmt: skip
        return f"seed {self.seed}: {self.kind}, in_place={self.in_place}, lanes={self.lanes}\n{text}{flags}"


def mutant(seed: int) -> Mutant:
    """The mutant of a seed: of a schedule where it is even, of a Program where it is odd."""
    rng = random.Random(seed)
    pool = subjects()
    subject = rng.choice(pool)
    slips = rng.choices([1, 2, 3], [7, 2, 1])[0]
    kinds: list[str] = []
    if seed % 2 == 0:
        s = subject.schedule
        if rng.random() < 0.3:
            s = replace(two_sided_form(rng, s), name=s.name)
        for _ in range(slips):
            if len(s):
                kind, s = break_schedule(rng, s)
                kinds.append(kind)
        return Mutant(seed, subject.family, _named(kinds), s, subject.in_place, subject.lanes)
    p = subject.program
    while len(kinds) < slips:
        if made := break_program(rng, p):
            kinds.append(made[0])
            p = made[1]
    return Mutant(seed, subject.family, _named(kinds), p, subject.in_place, subject.lanes)


def _named(kinds: list[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} slips"


def judged(m: Mutant, *, verify: Any = verify, verify_program: Any = verify_program) -> tuple[str, str]:
    """The truth about a mutant, and how the verifier contradicts it, empty if it does not."""
    rng = random.Random(~m.seed)
    if isinstance(m.thing, Program):
        report = verify_program(m.thing)
        if not report.well_formed:
            return MALFORMED, ""
        return _compared(m.thing, report, rng)
    right, as_sets, why = schedule_truth(m.thing, rng, in_place=m.in_place)
    report = verify(m.thing, in_place=m.in_place, lanes=m.lanes)
    if report.correct != right:
        said = "accepted" if report.correct else f"rejected: {report.failures[0]}"
        return (RIGHT if right else WRONG), f"a {'right' if right else f'wrong ({why})'} schedule is {said}"
    if rng.random() < 0.25:
        loose = verify(m.thing, in_place=m.in_place, op="max", lanes=m.lanes)
        if loose.correct != as_sets:
            return (RIGHT if right else WRONG), f"for max it is {as_sets} in truth, {loose.correct} says the verifier"
    if right:
        p = lower(m.thing.matched(), in_place=m.in_place, lanes=m.lanes)
        if p.moves <= MOST_MOVES * 2:
            truth, against = _compared(p, verify_program(p), rng)
            if truth != RIGHT or against:
                return truth, f"its Program: {truth}; {against}\n{listing(p)}"
    return (RIGHT if right else WRONG), ""


def _compared(p: Program, report: Any, rng: random.Random) -> tuple[str, str]:
    truth, raced, ended = program_truth(p, rng)
    if report.correct != (truth == RIGHT):
        said = "accepted" if report.correct else f"rejected: {report.failures[0]}"
        return truth, f"a {truth} program is {said}"
    if report.deadlock_free != ended:
        return truth, f"it {'ends' if ended else 'gets stuck'}, the verifier says deadlock_free={report.deadlock_free}"
    if ended and report.race_free == raced:
        return truth, f"it {'races' if raced else 'has no race'}, the verifier says race_free={report.race_free}"
    return truth, ""


# The long run.


def batch(seeds: range) -> tuple[Counter[tuple[str, str, str, str]], list[str]]:
    """What became of these mutants, counted by (what, family, kind, truth), and the disagreements as text."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    against = []
    for seed in seeds:
        m = mutant(seed)
        truth, why = judged(m)
        counted["program" if seed % 2 else "schedule", m.family, m.kind, truth] += 1
        if why:
            against.append(f"DISAGREEMENT: {why}\n{m}")
    return counted, against


def score_table(counted: Counter[tuple[str, str, str, str]], by: int, title: str) -> str:
    """A Markdown table with a row for each value of one part of the keys."""
    columns = (WRONG, RACY, MALFORMED, RIGHT)
    lines = [f"| {title} | mutants | " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) + 1)]
    names = sorted({(key[0], key[by]) for key in counted})
    for what, name in names:
        of = {t: sum(k for key, k in counted.items() if (key[0], key[by], key[3]) == (what, name, t)) for t in columns}
        lines.append(f"| {what}: {name} | {sum(of.values())} | " + " | ".join(str(of[t]) for t in columns) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="mutants, half of schedules, half of Programs")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other mutants")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--write", type=Path, help="write the score to this file")
    parser.add_argument("--replay", type=int, help="print the mutant of one seed and what is said of it")
    args = parser.parse_args()
    if args.replay is not None:
        m = mutant(args.replay)
        print(m, *judged(m), sep="\n")
        return 0
    begin, first, size = time.monotonic(), args.seed * 1_000_000_000, 250
    counted: Counter[tuple[str, str, str, str]] = Counter()
    against: list[str] = []
    with ProcessPoolExecutor(args.processes) as pool:
        ahead = [
            pool.submit(batch, range(first + i, first + min(i + size, args.count))) for i in range(0, args.count, size)
        ]
        for k, future in enumerate(ahead):
            if time.monotonic() - begin > args.seconds:
                pool.shutdown(cancel_futures=True)
                break
            try:
                some, found = future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            counted += some
            against += found
            for text in found:
                print(text, flush=True)
            if k % 8 == 7 or k == len(ahead) - 1:
                done = sum(counted.values())
                rate = done / (time.monotonic() - begin)
                print(f"{done} mutants, {rate:.0f}/s, {len(against)} disagreements", file=sys.stderr, flush=True)
    total = sum(counted.values())
    by_truth = Counter[str]()
    for key, k in counted.items():
        by_truth[key[3]] += k
    text = (
        f"# Mutants of verified schedules and Programs\n\n"
        f"{date.today()}, seed {args.seed}: {total} mutants of {len(subjects())} subjects in "
        f"{time.monotonic() - begin:.0f} s on {args.processes} processes, **{len(against)} disagreements**.\n\n"
        f"{by_truth[WRONG]} wrong ones, all rejected; {by_truth[RACY]} racy but lucky, all rejected; "
        f"{by_truth[MALFORMED]} malformed, refused; {by_truth[RIGHT]} right by luck, all accepted.\n\n"
        f"{score_table(counted, 1, 'family')}\n\n{score_table(counted, 2, 'slip')}\n"
    )
    if against:
        text = text.replace(", all ", ", not all ")
    print(text)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(text)
    return 1 if against else 0


if __name__ == "__main__":
    # Under one name, which what Numba keeps compiled depends on.
    sys.exit(import_module("mutants").main())
