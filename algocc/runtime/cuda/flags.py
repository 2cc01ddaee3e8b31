"""Protocols in which the flag lies beside the data, so that nobody waits for a message but whoever reads it.

A slot of scratch that another rank writes holds *lines*, pieces of data with the number of their iteration; the reader
looks at each line until it has that number. So no wait for what is read is left. What is left are *credits*: before a slot
is written again, what was in it has been read. A slot has two copies, used in turns, and a credit is of the iteration
before the one before, so that it has come as a rule.

Valid for Programs with one lane a rank that touches nothing of a peer's but slots of its scratch that it alone writes, once,
and the peer alone reads, as `lower_pushed` makes them. A flag says of the line that it is in that it is there, and nothing
of anything else; every credit is a counter, acquired and released as ever.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.kernels import cuda
from algocc.kernels import layout as at
from algocc.kernels.operators import Element, Operator
from algocc.program import Program
from algocc.runtime.cuda.cut import kernel_of
from algocc.runtime.cuda.driver import Driver
from algocc.runtime.cuda.links import touching
from algocc.runtime.plan import Plan, plan

Ints = NDArray[np.int64]

PROTOCOLS = {"simple": at.PLAIN, "ll": at.LL, "ll128": at.LL128}
"""How what is in scratch is said to be there: by a counter, or by a flag in each line of 16 bytes, or of 128."""

BOUNDARY = 128
"""Bytes that the copies of a slot start at multiples of."""

WHOLE_LINES_SINCE = 70
"""The architecture from which on a warp's stores of a line of 128 bytes arrive as one, on the device and over NVLink."""


class Access(NamedTuple):
    """An operand in scratch: its slot (rank · slots + chunk), and the lane and Move."""

    slot: int
    lane: int
    move: int


def check_protocol(protocol: str, form: str | None, *, multicast: bool = False) -> str:
    """The form of the kernel for a protocol, or for multicast.

    Raises UsageError for a protocol or form that there is not, or that do not go together.
    """
    if protocol not in PROTOCOLS:
        raise UsageError(f"protocol={protocol!r}: wanted {', '.join(map(repr, PROTOCOLS))}")
    if multicast and protocol != "simple":
        raise UsageError(f"protocol={protocol!r}: multicast goes with protocol='simple' only")
    if multicast and form not in (None, "generated"):
        raise UsageError(f"multicast is for generated kernels: wanted form='generated', not {form!r}")
    if protocol == "simple":
        return "generated" if multicast else form or "interpreted"
    if form not in (None, "generated"):
        raise UsageError(f"protocol={protocol!r} is for generated kernels: wanted form='generated', not {form!r}")
    return "generated"


def check_whole_lines(p: Program, devices: list[int] | None, driver: Driver) -> None:
    """Raise UsageError unless lines of 128 bytes arrive as one wherever ranks write to each other.

    devices: of each rank; None if they are of other processes, of whose links nothing is known.
    """
    mend = "use protocol='ll', which needs no more than 8 bytes at once"
    if devices is None:
        raise UsageError(f"protocol='ll128': what joins the devices of different processes is not known here; {mend}")
    for device in sorted(set(devices)):
        facts = driver.facts(device)
        if int(facts.architecture.removeprefix("sm_")) < WHOLE_LINES_SINCE:
            raise UsageError(f"protocol='ll128': device {device} ({facts.name}) is {facts.architecture}, wanted sm_70 or later; {mend}")
    for rank, peer in touching(p):
        a, b = devices[rank], devices[peer]
        if not driver.whole_lines(a, b):
            raise UsageError(
                f"protocol='ll128': rank {rank} on device {a} writes to rank {peer} on device {b} over a link that may tear a "
                f"line of 128 bytes (no NVLink); {mend}"
            )


def check_teams(threads: int) -> None:
    """Raise UsageError unless a block has as many threads as share a line."""
    if threads < cuda.TEAM:
        raise UsageError(f"threads={threads}: with protocol='ll128' it takes {cuda.TEAM} to store a line, use that many or more")


def _accesses(p: Program, start: Ints, rank: Ints, buffer: Ints, chunk: Ints) -> list[Access]:
    move = np.repeat(np.arange(p.moves), np.diff(start))
    return [
        Access(int(rank[i]) * p.scratch + int(chunk[i]) + k, int(p.move_lane[move[i]]), int(move[i]))
        for i in np.flatnonzero(buffer == Buffer.SCRATCH).tolist()
        for k in range(int(p.count[move[i]]))
    ]


def flagged_slots(p: Program) -> Ints:
    """The slots of scratch that lanes of other ranks write, as rank · slots + chunk, ascending.

    Raises UsageError, naming the first Move at fault, if the Program is not as above.
    """
    mend = "make it with algocc.runtime.apart.lower_pushed, or use protocol='simple'"
    if len(p.lane_rank) and np.bincount(p.lane_rank).max() > 1:  # they share memory of their rank, which no flag guards
        raise UsageError(f"program {p.name}: a rank has {np.bincount(p.lane_rank).max()} lanes, flags are for one; {mend}")
    for start, rank, buffer, verb in (
        (p.src_start, p.src_rank, p.src_buffer, "reads"), (p.dst_start, p.dst_rank, p.dst_buffer, "writes"),
    ):  # fmt: skip
        move = np.repeat(np.arange(p.moves), np.diff(start))
        away = rank != p.lane_rank[p.move_lane[move]]
        wrong = np.flatnonzero(away & ((buffer != Buffer.SCRATCH) | (verb == "reads")))
        if len(wrong):
            m = int(move[wrong[0]])
            raise UsageError(
                f"program {p.name}: rank {p.lane_rank[p.move_lane[m]]}, step {p.step[m]}: a Move {verb} what is rank "
                f"{rank[wrong[0]]}'s, which no flag can guard; {mend}"
            )
    writers = defaultdict[int, list[Access]](list)
    for a in _accesses(p, p.dst_start, p.dst_rank, p.dst_buffer, p.dst_chunk):
        writers[a.slot].append(a)
    found = {slot for slot, by in writers.items() if any(p.lane_rank[a.lane] != slot // p.scratch for a in by)}
    readers = defaultdict[int, set[int]](set)
    for a in _accesses(p, p.src_start, p.src_rank, p.src_buffer, p.src_chunk):
        readers[a.slot].add(a.lane)
    for slot in sorted(found):
        if len(writers[slot]) > 1 or len(readers[slot]) > 1:
            raise UsageError(
                f"program {p.name}: scratch[{slot % p.scratch}] of rank {slot // p.scratch} has {len(writers[slot])} Moves that "
                f"write it and {len(readers[slot])} lanes that read it, wanted one; {mend}"
            )
    return np.array(sorted(found), np.int64)


def credits(p: Program) -> Program:
    """The same Moves with no waits but credits, of the iteration before: of all that wait for an iteration, the latest read.

    Raises UsageError as `flagged_slots`.
    """
    guarded = set(flagged_slots(p).tolist())
    last = dict[int, Access]()  # read of each slot
    for a in _accesses(p, p.src_start, p.src_rank, p.src_buffer, p.src_chunk):
        if a.slot in guarded and (a.slot not in last or a.move > last[a.slot].move):
            last[a.slot] = a
    wanted = defaultdict[tuple[int, int], dict[int, int]](dict)  # by (reader, writer): of each Move that writes, the last read
    for a in _accesses(p, p.dst_start, p.dst_rank, p.dst_buffer, p.dst_chunk):
        if a.slot in last:
            read = last[a.slot]
            of = wanted[read.lane, a.lane]
            of[a.move] = max(of.get(a.move, -1), read.move)
    waits, signals, totals = list[tuple[int, int, int]](), list[tuple[int, int]](), list[int]()
    pairs = sorted(wanted)
    for counter, pair in enumerate(pairs):
        latest, kept = -1, list[tuple[int, int]]()
        for move, until in sorted(wanted[pair].items()):
            if until > latest:  # those before have not waited for as much
                kept.append((move, until))
                latest = until
        ordinal = {until: i + 1 for i, until in enumerate(sorted({until for _, until in kept}))}
        waits += [(move, counter, ordinal[until]) for move, until in kept]
        signals += [(until, counter) for until in ordinal]
        totals.append(len(ordinal))
    waits.sort()
    signals.sort()
    wait, signal = np.array(waits, np.int64).reshape(-1, 3), np.array(signals, np.int64).reshape(-1, 2)
    moves = np.arange(p.moves + 1)
    return replace(
        p,
        wait_start=np.searchsorted(wait[:, 0], moves),
        wait_counter=wait[:, 1].astype(np.int32),
        wait_value=wait[:, 2].copy(),
        wait_lag=np.ones(len(wait), np.int8),
        signal_start=np.searchsorted(signal[:, 0], moves),
        signal_counter=signal[:, 1].astype(np.int32),
        counter_writer=np.array([reader for reader, _ in pairs], np.int32),
        counter_waiter=np.array([writer for _, writer in pairs], np.int32),
        counter_total=np.array(totals, np.int64),
    )


def fits(p: Program, count: int, op: Operator, e: Element) -> bool:
    """Whether a program can have flags and code of its own."""
    try:
        ready = plan(credits(p), count=count, element=e, tile_bytes=count * e.size)
        kernel_of(p, ready, op, e, "generated")
    except UsageError:
        return False
    return True


def lined(p: Program, ready: Plan, e: Element, protocol: str) -> tuple[Plan, Ints, int]:
    """The tables of a Program of credits: flagged operands lie in lines, and credits are of two iterations before.

    Also the kind of each operand as in `layout`, and the bytes from one copy of all slots to the other.
    """
    slots = flagged_slots(p)
    stride = ready.scratch // max(1, p.scratch)  # elements of a slot
    packets = -(-stride * e.size // at.PACKET)
    room = -(-packets * at.LL_LINE // BOUNDARY) * BOUNDARY + BOUNDARY  # enough for lines of any length
    plain = -(-ready.scratch * e.size // BOUNDARY) * BOUNDARY
    of_rank = np.bincount(slots // max(1, p.scratch), minlength=p.n)
    nth = {slot: i - int(of_rank[: slot // p.scratch].sum()) for i, slot in enumerate(slots.tolist())}
    copy = int(of_rank.max(initial=0)) * room
    kinds = np.zeros(len(ready.operands), np.int64)
    parts = ready.parts.copy()
    for move in ready.moves.tolist():
        width = move[at.DESTINATIONS] + move[at.SOURCES]
        first = move[at.OPERAND_START] // at.OPERAND_WORDS
        for k in range(width):
            base = int(ready.operands[first + k, at.BASE])
            for i in range(move[at.PARTS_OF]):
                cell = move[at.PART_START] + i * (1 + width) + 1 + k
                slot = base // 3 * p.scratch + int(parts[cell]) // max(1, stride)
                if base % 3 == Buffer.SCRATCH and slot in nth:
                    parts[cell] = (plain + nth[slot] * room) // at.LL_LINE
                    kinds[first + k] = PROTOCOLS[protocol]
    waits = ready.waits.copy()
    waits[:, at.LAG] += 1
    scratch = -(-(plain + 2 * copy) // e.size)
    return replace(ready, parts=parts, waits=waits, scratch=scratch), kinds, copy
