"""A Program made ready for one rank that runs its own lane, between the gate and the last leaver."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.kernels import compiled, cpu
from algocc.kernels import layout as at
from algocc.kernels.operators import Element, Operator
from algocc.program import Program
from algocc.runtime.geometry import chunks
from algocc.runtime.memory import address, aligned
from algocc.runtime.node import Node
from algocc.runtime.plan import Plan, plan
from algocc.runtime.team import POLLS, POLLS_IF_CROWDED, processors

Ints = NDArray[np.int64]

APART_BYTES = 64 << 20
"""Scratch of all ranks of a program together, where tiles can be so small. A message costs some µs, and on busy processors
a tile costs turns of all ranks, which the scheduler may take milliseconds for, so there are few."""

CACHED_BYTES = 8 << 20
"""The same where every rank has a processor and none sends messages: what is written stays in the caches until it is read."""

SETS = 4
"""Scratches that iterations use in turns there, a power of 2, so that a rank may be so many tiles ahead of its readers."""

MOST_TWICE = 256 << 10
"""Bytes of scratch that a program of one round has twice, so that it needs no counters."""

SMALLEST_TILE = 16 << 10
TILE_BYTES = 256 << 10
"""Bytes of a tile where peers reach the arrays themselves."""


@dataclass(frozen=True)
class Signature:
    """What all ranks must agree on in a call; `facts` in the order in which a disagreement is told."""

    facts: tuple[tuple[str, str], ...]

    @property
    def number(self) -> int:
        """A number for it with its lowest bit free, signed, in 64 bits."""
        digest = hashlib.blake2b(json.dumps(self.facts).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True) & ~1

    @property
    def text(self) -> bytes:
        """As the others read it: a word with the length, then JSON."""
        raw = json.dumps(self.facts).encode()
        return len(raw).to_bytes(8, "little") + raw


def disagreement(found: Sequence[tuple[int, Any]], call: int) -> str:
    """What ranks disagree on: every fact that differs as rank: value, and the first rank that is not with the most.

    found: (rank, facts) of each.
    """
    columns: dict[str, dict[int, str]] = {}
    plain = {"collective", "count", "dtype"}  # told if the collectives differ, since the others follow from them
    for rank, facts in found:
        for name, value in facts:
            columns.setdefault(name, {})[rank] = value
    ranks = [rank for rank, _ in found]
    differing: list[str] = []
    first = len(ranks)
    for name, values in columns.items():
        seen = [values.get(rank, "none") for rank in ranks]
        if len(set(seen)) == 1:
            continue
        if name not in plain and "collective" in "".join(differing[:1]) or (name == "program" and differing):
            continue
        differing.append(f"{name} {', '.join(f'{rank}:{v}' for rank, v in zip(ranks, seen, strict=True))}")
        most = max(seen, key=lambda v: (seen.count(v), -seen.index(v)))
        first = min(first, next(i for i, v in enumerate(seen) if v != most))
    what = "; ".join(differing) or "nothing that has a name"
    return f"call {call}: the ranks do not agree on {what}. First to differ: rank {ranks[min(first, len(ranks) - 1)]}"


def staging_of(members: int, *, messages: bool) -> tuple[int, int]:
    """Scratch of all ranks of a program together, if tiles can be so small, and the sets it is cut into; the same on every
    rank, whatever it is bound to."""
    return (APART_BYTES, 1) if messages or members > (os.cpu_count() or 1) else (CACHED_BYTES, SETS)


def tile_bytes(program: Program, *, apart: bool, staging: int, sets: int = 1) -> int:
    """Bytes of a chunk that one iteration handles."""
    return max(SMALLEST_TILE, staging // max(1, program.scratch * program.n * sets)) if apart else TILE_BYTES


def prelude(p: Program, lane: int) -> int:
    """Moves at the start of a lane that read its own input only, write its own scratch only, and wait for nothing of
    their own iteration."""
    rank = int(p.lane_rank[lane])
    found = 0
    for m in range(p.lane_start[lane], p.lane_start[lane + 1]):
        src, dst = slice(p.src_start[m], p.src_start[m + 1]), slice(p.dst_start[m], p.dst_start[m + 1])
        own = (p.src_rank[src] == rank).all() and (p.dst_rank[dst] == rank).all()
        if not own or (p.src_buffer[src] != Buffer.INPUT).any() or (p.dst_buffer[dst] != Buffer.SCRATCH).any():
            break
        if (p.wait_lag[p.wait_start[m] : p.wait_start[m + 1]] == 0).any():
            break
        found += 1
    return found


def of_one_round(p: Program) -> bool:
    """Whether lanes wait for nothing but what others signal in their preludes, and for the call before."""
    if p.lanes != p.n:
        return False
    ends = p.lane_start[:-1] + [prelude(p, lane) for lane in range(p.lanes)]
    signaller = np.repeat(np.arange(p.moves), np.diff(p.signal_start))
    early = signaller < ends[p.move_lane[signaller]]
    given = np.bincount(p.signal_counter[early], minlength=len(p.counter_total))
    return bool(((p.wait_lag > 0) | (p.wait_value <= given[p.wait_counter])).all())


def without_counters(p: Program) -> Program:
    """before: a Program of one round that waits and signals; after: one that does neither.

    Valid where the gate of `kernels.gate` lies between the preludes and the rest, and calls use two scratches in turns.
    """
    none, starts = np.zeros(0, np.int64), np.zeros(p.moves + 1, np.int64)
    return replace(
        p, wait_start=starts, wait_counter=none, wait_value=none, wait_lag=none, signal_start=starts, signal_counter=none,
        counter_writer=none, counter_waiter=none, counter_total=none,
    )  # fmt: skip


def in_turns(p: Program, sets: int) -> Program:
    """before: one scratch, used again by the next iteration; after: `sets` of them, used again by the one `sets` later."""
    return replace(p, wait_lag=p.wait_lag * sets, sets=sets)


def touching(p: Program, rank: int) -> list[int]:
    """The other ranks whose lanes read or write this rank's input or output."""
    found: set[int] = set()
    for side in ("src", "dst"):
        lane = np.repeat(p.lane_rank[p.move_lane], np.diff(getattr(p, f"{side}_start")))
        theirs = (getattr(p, f"{side}_rank") == rank) & (getattr(p, f"{side}_buffer") != Buffer.SCRATCH)
        found.update(lane[theirs & (lane != rank)].tolist())
    return sorted(found)


def without_messages(p: Program, nodes: Sequence[int]) -> Program:
    """The Program with what crosses nodes left out: destinations, waits and signals there."""
    lane_node = np.asarray(nodes)[p.lane_rank]
    mover = lane_node[p.move_lane]

    def kept(start: Any, keep: Any) -> Any:
        owner = np.repeat(np.arange(p.moves), np.diff(start))
        return np.searchsorted(owner[keep], np.arange(p.moves + 1))

    dst = np.asarray(nodes)[p.dst_rank] == np.repeat(mover, np.diff(p.dst_start))
    wait = lane_node[p.counter_writer[p.wait_counter]] == np.repeat(mover, np.diff(p.wait_start))
    signal = (lane_node[p.counter_writer] == lane_node[p.counter_waiter])[p.signal_counter]
    return replace(
        p,
        dst_start=kept(p.dst_start, dst), dst_rank=p.dst_rank[dst], dst_buffer=p.dst_buffer[dst],
        dst_chunk=p.dst_chunk[dst], wait_start=kept(p.wait_start, wait), wait_counter=p.wait_counter[wait],
        wait_value=p.wait_value[wait], wait_lag=p.wait_lag[wait], signal_start=kept(p.signal_start, signal),
        signal_counter=p.signal_counter[signal],
        counter_total=np.bincount(p.signal_counter[signal], minlength=len(p.counter_total)),
    )  # fmt: skip


class State:
    """The words of `kernels.layout` that all calls of a rank share, and the memory its kernels use."""

    def __init__(self, node: Node, timeout: float) -> None:
        self.node = node
        self.words = aligned(8 * at.STATE_WORDS).view(np.int64)
        self.ranks = np.array(node.ranks, np.int64)
        self.timeout = timeout
        self.first = 0  # iteration that programs made ready from now on begin with

    @property
    def call(self) -> int:
        """The number of the call under way, or of the last."""
        return int(self.words[at.CALL]) % 2**64


class Ready:
    """A Program ready for one rank: its tables, and the block from which the kernels start.

    apart: peers touch only scratch, so that any memory will do for input and output.
    bases: addresses of input, output and scratch of each rank, those of this rank's arrays set by the caller.
    """

    def __init__(
        self, program: Program, state: State, rank: int, *, count: int, e: Element, op: Operator, signature: Signature,
        apart: bool, checked: bool, tile: int | None = None, outside: Sequence[int] = (),
    ) -> None:  # fmt: skip
        node = state.node
        crowded = node.members > processors()
        staging, sets = staging_of(node.members, messages=bool(outside))
        self.full = program
        if outside:
            program = without_messages(program, outside)
        sets = sets if apart else 1
        tile = tile or tile_bytes(program, apart=apart, staging=staging, sets=sets)
        self.plan: Plan = plan(program, count=count, element=e, tile_bytes=tile)
        twice = self.plan.scratch * e.size <= MOST_TWICE and self.plan.iterations == 1
        one_round = twice and apart and not outside and of_one_round(program)
        if one_round or (sets > 1 and self.plan.iterations > 1):
            program = without_counters(program) if one_round else in_turns(program, sets)
            self.plan = plan(program, count=count, element=e, tile_bytes=tile)
        self.program, self.rank, self.apart = program, rank, apart
        ready, n = self.plan, program.n
        local = -(-(8 * (at.ADDRESSES + ready.most_operands)) // at.LINE) * at.LINE + cpu.WINDOW
        self._local = aligned(local)
        self.report = self._local.view(np.int64)[: at.ADDRESSES]
        self.bases = aligned(8 * 3 * n).view(np.int64).reshape(n, 3)
        self.text = signature.text
        scratch = -(-ready.scratch * e.size // at.LINE) * at.LINE
        in_record = one_round and ready.scratch * e.size <= at.ROOM
        counters = len(program.counter_total) * at.LINE if node.member == 0 else 0
        text = -(-len(self.text) // at.LINE) * at.LINE
        self._memory = node.allocate(counters + text + scratch * (program.sets + one_round), f"scratch of {program.name}")
        self._memory[: counters + text] = 0
        self._memory[counters : counters + len(self.text)] = np.frombuffer(self.text, np.uint8)
        start = address(self._memory)
        self.counters = self._memory[:counters].view(np.uint64).reshape(-1, at.LINE // 8)
        self.counters[:, 0] = [(state.first * total) % 2**64 for total in program.counter_total.tolist()][: len(self.counters)]
        self.bases[rank, 2] = start + counters + text
        self.scratch = self._memory[counters + text :]
        self._base = int(node.maps[node.member])
        member_of = {r: m for m, r in enumerate(node.ranks)}
        leavers = [] if apart else [member_of[r] for r in touching(program, rank)]
        self._leavers = np.array([*leavers, 0], np.int64)
        self._tables = (
            program.lane_start.astype(np.int64), ready.moves, ready.parts, ready.operands, ready.waits, ready.signals
        )  # fmt: skip
        self.block = block = aligned(8 * at.BLOCK_WORDS).view(np.int64)
        self.record = aligned(8 * at.RECORD_WORDS).view(np.int64)
        self.record[0] = signature.number | int(apart)
        self.record[at.SCRATCH_AT - 1] = self.bases[rank, 2] - self._base
        self.record[at.COUNTERS_AT - 1] = start - self._base
        self.record[at.TEXT_AT - 1] = start + counters - self._base
        places = (at.LANE_START, at.MOVES, at.PARTS, at.OPERANDS, at.WAITS, at.SIGNALS)
        for place, table in zip(places, self._tables, strict=True):
            block[place] = address(table)
        block[at.TILE], block[at.SIZE], block[at.RANKS] = ready.tile, e.size, n
        block[at.REDUCTION] = compiled.reduction_address(op, e) if ready.reduces else 0
        block[at.LANE] = compiled.lane_address()
        block[at.BASES] = address(self.bases)
        block[at.LOCAL], block[at.LOCAL_SIZE] = address(self._local) - rank * local, local
        block[at.TIMEOUT] = int(state.timeout * 1e9)
        block[at.POLLS] = POLLS_IF_CROWDED if crowded else POLLS
        block[at.LINES], block[at.GATE] = node.lines_address, node.gate_address
        block[at.LANES], block[at.ABSENT], block[at.INDEX] = program.lanes, -1, rank
        block[at.MEMBER], block[at.MEMBERS] = node.member, node.members
        block[at.STATE], block[at.MAPS] = address(state.words), address(node.maps)
        block[at.GLOBALS], block[at.RECORD] = address(state.ranks), address(self.record)
        block[at.CHECKED], block[at.TILES] = int(checked), 0 if outside else ready.iterations
        block[at.PRELUDE] = prelude(program, rank) if apart and ready.iterations and not outside else 0
        block[at.LEAVERS], block[at.LEAVER_COUNT] = address(self._leavers), len(leavers)
        block[at.FIRST] = (state.first + 2**63) % 2**64 - 2**63
        block[at.SETS], block[at.SET_BYTES] = program.sets - 1, scratch
        if one_round:
            block[at.SECOND] = at.IN_RECORD if in_record else scratch
            block[at.COUNTERS] = start  # there are none; the prelude need not wait until the gate tells
        self.start = address(block)
        self.pointed: object = None
        # For messages between nodes:
        self.stops: list[Any] = []
        self.size = e.size
        self.stride = ready.scratch // max(1, program.scratch)
        self.lengths = chunks(program.collective, Buffer.INPUT, count).length

    def point(self, source: int, target: int, whose: object = None) -> None:
        """Take input and output from these addresses in the next calls; `pointed` says for whom, if that is given."""
        self.pointed = whose
        self.bases[self.rank, 0], self.bases[self.rank, 1] = source, target
        if not self.apart:
            self.record[at.INPUT_AT - 1] = source - self._base
            self.record[at.OUTPUT_AT - 1] = target - self._base


