"""GOAL, the input of LogGOPSim: a block for each rank, `requires` for what must wait."""

from __future__ import annotations

from math import ceil

from algocc.exchange.workload import jobs
from algocc.table import Schedule


def to_goal(s: Schedule, *, size: int, in_place: bool = False, reduce_ns: float = 0.05, copy_ns: float = 0.05) -> str:
    """The text of a schedule for vectors of `size` bytes; a byte takes so many nanoseconds to reduce or copy.

    >>> from algocc.schedules.ring import ring
    >>> to_goal(ring(2), size=2048).splitlines()[2:5]
    ['rank 0 {', 'l0: calc 103', 'l1: send 1024b to 1 tag 0']
    """
    cost = {"reduce": reduce_ns, "copy": copy_ns}
    lines = [f"num_ranks {s.n}"]
    for rank, mine in enumerate(jobs(s, size=size, in_place=in_place)):
        lines += ["", f"rank {rank} {{"]
        for i, job in enumerate(mine):
            if job.peer >= 0:
                way = "to" if job.kind == "send" else "from"
                lines.append(f"l{i}: {job.kind} {job.size}b {way} {job.peer} tag {job.tag}")
            else:
                lines.append(f"l{i}: calc {ceil(job.size * cost[job.kind])}")
            lines += [f"l{i} requires l{before}" for before in job.after]
        lines.append("}")
    return "\n".join([*lines, ""])
