"""Schedules to look at elsewhere: a timeline for Perfetto (or chrome://tracing), a graph for Graphviz."""

from __future__ import annotations

import json
from typing import Any

from algocc.table import Action, Schedule, place

STEP_US = 1000
"""Length of a step in the timeline, whose clock counts steps."""
VERBS = {Action.COPY: "copy", Action.REDUCE: "reduce", Action.PREREDUCE: "reduce"}


def to_perfetto(s: Schedule) -> str:
    """The JSON of a timeline: a process for each rank with tracks for what it sends, receives and does."""
    s = s.matched()
    tracks = {"sends": 0, "receives": 1, "local": 2}
    events: list[dict[str, Any]] = []
    for rank in range(s.n):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events += [
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": name}}
            for name, tid in tracks.items()
        ]
    for i in range(len(s)):
        step, rank, peer = int(s.step[i]), int(s.rank[i]), int(s.peer[i])
        src, dst = place(s, i, "own"), place(s, i, "peer")
        verb = VERBS[Action(int(s.action[i]))]
        args = {"step": step, "from": f"rank {rank} {src}", "to": f"rank {peer} {dst}", "line": s.source(i) or ""}
        base = {"ph": "X", "ts": step * STEP_US, "dur": STEP_US, "cat": verb, "args": args}
        if rank == peer:
            events.append(base | {"name": f"{verb} {src} to {dst}", "pid": rank, "tid": tracks["local"]})
            continue
        events.append(base | {"name": f"{src} to rank {peer}", "pid": rank, "tid": tracks["sends"]})
        events.append(base | {"name": f"{verb} into {dst} from rank {rank}", "pid": peer, "tid": tracks["receives"]})
        flow = {"cat": "message", "name": "message", "id": i}
        events.append(flow | {"ph": "s", "ts": step * STEP_US, "pid": rank, "tid": tracks["sends"]})
        events.append(
            flow | {"ph": "f", "bp": "e", "ts": (step + 1) * STEP_US - 1, "pid": peer, "tid": tracks["receives"]}
        )
    return json.dumps({"displayTimeUnit": "ms", "otherData": {"schedule": s.name}, "traceEvents": events}) + "\n"


def to_graphviz(s: Schedule) -> str:
    """A directed graph: a node for each rank before each step, an edge for each message.

    >>> from algocc.schedules.ring import ring
    >>> to_graphviz(ring(2)).splitlines()[0]
    'digraph "ring" {'
    """
    s = s.matched()
    steps = int(s.step[-1]) + 1 if len(s) else 0
    name = s.name.replace('"', "'")
    lines = [f'digraph "{name}" {{', "  rankdir=LR; node [shape=circle];"]
    for step in range(steps + 1):
        nodes = "; ".join(f'"{rank}.{step}" [label="{rank}"]' for rank in range(s.n))
        lines.append(f"  {{ rank=same; {nodes} }}")
    for rank in range(s.n):
        chain = " -> ".join(f'"{rank}.{step}"' for step in range(steps + 1))
        lines.append(f"  {chain} [style=dotted, arrowhead=none];")
    for i in range(len(s)):
        step, rank, peer = int(s.step[i]), int(s.rank[i]), int(s.peer[i])
        if rank != peer:
            sign = "" if s.action[i] == Action.COPY else "+"
            lines.append(f'  "{rank}.{step}" -> "{peer}.{step + 1}" [label="{sign}{place(s, i, "peer")}"];')
    return "\n".join([*lines, "}", ""])
