"""Schedule → Program: fused Moves, in lanes, ordered by counters. Deterministic.

Four passes: `fuse` (which Moves there are), `push` (who writes what others would fetch), `order` (lanes, levels,
merged chunks), `synchronise` (signals and waits). `algocc.program.listing` prints the result.
"""

from __future__ import annotations

from algocc.errors import ScheduleError, UsageError
from algocc.lowering.fuse import fuse
from algocc.lowering.order import order
from algocc.lowering.push import push
from algocc.lowering.synchronise import synchronise
from algocc.program import Program
from algocc.table import Schedule, form_failures, layout


def lower(s: Schedule, *, in_place: bool = False, lanes: int = 1) -> Program:
    """Schedule → Program, valid for any schedule of good form that reads nothing unwritten and has no races.

    in_place: let inputs and outputs share memory as the collective says.
    lanes: lanes of each rank; the chunks of its blocks are dealt to them in contiguous runs.

    Every Move is run by the rank that its first destination belongs to; it reads and writes its peers' memory.

    Raises ScheduleError if the schedule is malformed, UsageError if `lanes` is less than 1.
    """
    if lanes < 1:
        raise UsageError(f"lanes={lanes}: a rank has at least 1 lane")
    failures = form_failures(s, most=1)
    if failures:
        raise ScheduleError(f"schedule {s.name}: {failures[0]}")
    s = s.matched()
    moves = push(fuse(s, layout(s, in_place=in_place)))
    return synchronise(s, order(s, moves, lanes), lanes=lanes, in_place=in_place)
