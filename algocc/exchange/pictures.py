"""Schedules to look at elsewhere: a timeline for Perfetto (or chrome://tracing), a graph for Graphviz."""

from __future__ import annotations

import json
from typing import Any

from algocc.model import Machine, timed
from algocc.table import Action, Schedule, place

VERBS = {Action.COPY: "copy", Action.REDUCE: "reduce", Action.PREREDUCE: "reduce"}


def to_perfetto(s: Schedule, *, size: int = 64 << 20, machine: Machine | None = None) -> str:
    """The JSON of a timeline: a process for each rank with tracks for what it sends, receives and does.

    The schedule is simulated in the α-β-γ model for vectors of `size` bytes; times are in microseconds, as Perfetto wants
    them. Copies within a rank take no time there, and are marks.
    """
    machine = machine or Machine()
    t = timed(s, machine, size)
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
        (sent, received), (sent_by, received_by) = [[float(x * 10**6) for x in pair] for pair in (t.begin[i], t.end[i])]
        base = {"cat": verb, "args": args}
        if rank == peer:
            mark = {"ph": "i", "s": "t", "ts": sent, "pid": rank, "tid": tracks["local"]}
            events.append(base | mark | {"name": f"{verb} {src} to {dst}"})
            continue
        out = {"ts": sent, "dur": sent_by - sent, "pid": rank, "tid": tracks["sends"]}
        into = {"ts": received, "dur": received_by - received, "pid": peer, "tid": tracks["receives"]}
        events.append(base | out | {"ph": "X", "name": f"{src} to rank {peer}"})
        events.append(base | into | {"ph": "X", "name": f"{verb} into {dst} from rank {rank}"})
        flow = {"cat": "message", "name": "message", "id": i}
        events.append(flow | {"ph": "s", "ts": sent, "pid": rank, "tid": tracks["sends"]})
        within = min(max(sent, received), received_by)
        events.append(flow | {"ph": "f", "bp": "e", "ts": within, "pid": peer, "tid": tracks["receives"]})
    model = {name: str(getattr(machine, name)) for name in ("alpha", "beta", "gamma")}
    about = {"schedule": s.name, "bytes": size, **model, "microseconds": float(t.step[-1] * 10**6)}
    return json.dumps({"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}) + "\n"


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
