"""From what the lanes left behind when they gave up to a message that names the rank to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.kernels import layout as at
from algocc.program import Program

MOST = 8
"""Lanes that a message lists."""


def describe(program: Program, reports: NDArray[np.int64], timeout: float) -> str:
    """Who waited for whom, where in the schedule, and which rank all of it leads to.

    reports: what each lane says, as in `kernels.layout`; shape (lanes, words).
    """
    waiting = {
        lane: _target(program, report)
        for lane, report in enumerate(reports.tolist())
        if report[at.STATUS] != at.FINE
    }
    late = [lane for lane in waiting if reports[lane, at.STATUS] == at.TIMED_OUT]
    ranks = program.lane_rank
    stuck = sorted({int(ranks[lane]) for first in late for lane in _roots(waiting, first)})
    names = f"rank{'s' if len(stuck) > 1 else ''} {', '.join(map(str, stuck))}"
    lines = [f"program {program.name}: no progress within {timeout:g} s; stuck: {names}"]
    for lane in [*late, *(lane for lane in waiting if lane not in late)][:MOST]:
        lines.append("  " + _line(program, lane, reports[lane].tolist()))
    if len(waiting) > MOST:
        lines.append(f"  and {len(waiting) - MOST} more lanes")
    return "\n".join(lines)


def _target(program: Program, report: Any) -> int:
    """The lane that a waiting lane waits for."""
    source = _flagged(program, report)
    if source is not None:
        return _writer(program, source)
    wait = int(program.wait_start[report[at.AT_MOVE]]) + report[at.AT_WAIT]
    return int(program.counter_writer[program.wait_counter[wait]])


def _flagged(program: Program, report: Any) -> int | None:
    """The source whose flag a lane waits for: its Move's sources are numbered after the waits."""
    move = report[at.AT_MOVE]
    nth = report[at.AT_WAIT] - int(program.wait_start[move + 1] - program.wait_start[move])
    return int(program.src_start[move]) + nth if nth >= 0 else None


def _writer(program: Program, source: int) -> int:
    """The lane that writes a source that lies in scratch."""
    move = int(np.searchsorted(program.src_start, source, side="right")) - 1
    first = program.src_chunk[source]
    writes = np.repeat(np.arange(program.moves), np.diff(program.dst_start))
    begin, end = program.dst_chunk, program.dst_chunk + program.count[writes]
    found = (
        (program.dst_buffer == Buffer.SCRATCH) & (program.dst_rank == program.src_rank[source])
        & (begin < first + program.count[move]) & (first < end)
    )  # fmt: skip
    return int(program.move_lane[writes[np.argmax(found)]])


def _roots(waiting: dict[int, int], lane: int) -> list[int]:
    """The lane at the end of the chain of waits from `lane`, which waits for no one, or the cycle it runs into."""
    chain: list[int] = []
    while lane in waiting and lane not in chain:
        chain.append(lane)
        lane = waiting[lane]
    return chain[chain.index(lane) :] if lane in chain else [lane]


def _line(program: Program, lane: int, report: Any) -> str:
    move, peer = report[at.AT_MOVE], _target(program, report)
    line, flagged = program.source(move), _flagged(program, report)
    where = f"step {program.step[move]}" + (f" ({line})" if line else "")
    if flagged is not None:
        what = f"a flag in scratch[{program.src_chunk[flagged]}] is {report[at.HAVE]}, wanted {report[at.WANT]}"
    else:
        counter = program.wait_counter[int(program.wait_start[move]) + report[at.AT_WAIT]]
        missing = (report[at.WANT] - report[at.HAVE]) % 2**64
        what = f"counter {counter} is at {report[at.HAVE]}, wanted {report[at.WANT]}, {missing} to go"
    return (
        f"rank {program.lane_rank[lane]} (lane {lane}) in {where}, move {move - program.lane_start[lane]}, "
        f"iteration {report[at.AT_ITERATION]}: waits for rank {program.lane_rank[peer]} (lane {peer}): {what}"
    )
