"""A schedule backwards."""

from __future__ import annotations

import numpy as np

from algocc.algebra.demand import known, transpose
from algocc.algebra.remap import places_of, starts, step_count, tabulate, units
from algocc.algebra.tidying import tidy
from algocc.collective import Buffer, Collective
from algocc.errors import UsageError
from algocc.table import Action, Schedule, layout


def reversed(s: Schedule, *, as_: Collective | None = None) -> Schedule:
    """A schedule → the same backwards: a copy from x to y reduces y into x, and steps run from last to first.

    AllGather ↔ ReduceScatter, Broadcast ↔ Reduce, Scatter ↔ Gather; AllToAll and AllReduce are their own
    reverses. As a linear map from inputs to outputs, a schedule becomes its transpose: every path of a
    contribution is walked the other way. What was overwritten becomes empty, and what arrives first in an
    empty place is a copy. Reductions come in another order: for commutative operators.

    Valid when every input is wanted by some output, and no step reads a place twice that it also overwrites.
    If the schedule is only right for idempotent operators, so is its reverse.
    """
    s = s.matched()
    name = f"reversed({s.name})"
    c = transpose(s.collective, s.name)
    old, steps = places_of(s), step_count(s)
    row, read, write = units(s)
    work = (s.action[row] != Action.COPY) | (read != write)
    row, read, write = row[work], read[work], write[work]
    step, copies = s.step[row], s.action[row] == Action.COPY
    bounds = np.searchsorted(step, np.arange(steps + 1))
    full = old.buffer == Buffer.OUTPUT
    action = np.full(len(row), -1)
    early = np.zeros(len(row), bool)
    for t in range(steps - 1, -1, -1):
        at = np.arange(bounds[t], bounds[t + 1])
        live = at[full[write[at]]]
        full[write[at[copies[at]]]] = False
        filled = live[~full[read[live]]]
        # What arrives first in an empty place is a copy; best one within the rank, so that no message waits.
        filled = filled[np.argsort(old.rank[read[filled]] != old.rank[write[filled]], kind="stable")]
        targets, first, times = np.unique(read[filled], return_index=True, return_counts=True)
        action[live] = Action.REDUCE
        action[filled[first]] = Action.COPY
        early[filled[first[times > 1]]] = True
        lost = targets[times > 1][np.isin(targets[times > 1], write[live])]
        if len(lost):
            r, chunk = layout(s).name(int(lost[0]))
            source = s.source(int(row[live[write[live] == lost[0]][0]]))
            raise UsageError(
                f"{name}: step {t}: {chunk} of rank {r} is read by several transfers of the step that "
                f"overwrites it ({source}); in reverse they would arrive before it is sent: split the step"
            )
        full[read[live]] = True
    keep = action >= 0
    when = np.where(early, 2 * (steps - 1 - step), 2 * (steps - 1 - step) + 1) + 1
    # Inputs become outputs. Outputs become scratch, since they are written to, loaded with the new inputs.
    kept = int(s.collective.outputs.max(initial=0)) * c.chunks
    buffer = np.array([Buffer.OUTPUT, Buffer.SCRATCH, Buffer.SCRATCH])[old.buffer]
    start = starts(c, kept + s.scratch, name)
    place = start[old.rank, buffer] + old.chunk + np.array([0, 0, kept])[old.buffer]
    was_output = np.flatnonzero(old.buffer == Buffer.OUTPUT)
    source = start[old.rank, Buffer.INPUT][was_output] + old.chunk[was_output]
    loads = np.full(len(was_output), len(s.origins))
    table = tabulate(
        name, c, kept + s.scratch, (*s.origins, "load"),
        step=np.concatenate([0 * loads, when[keep]]), action=np.concatenate([0 * loads, action[keep]]),
        read=np.concatenate([source, place[write[keep]]]),
        write=np.concatenate([place[was_output], place[read[keep]]]),
        origin=np.concatenate([loads, s.origin[row[keep]]]), row=np.concatenate([0 * loads - 1, row[keep]]),
    )  # fmt: skip
    return tidy(known(table, as_))
