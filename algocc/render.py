"""A schedule for people to read: a picture of ranks × steps, and a list of what each step does."""

from __future__ import annotations

from algocc.errors import counted
from algocc.table import Action, Schedule, place, steps_of

CELL = 4
"""Entries of one cell of a diagram; the rest is counted."""


def diagram(s: Schedule, *, most: int = CELL, busy: bool = False) -> str:
    """One line a rank, one column a step.

    `out[0]>1` sends to rank 1; `out[3]<0` receives from rank 0, `+out[3]<0` reduces it in, and `out[3]+<0`
    reduces with the incoming operand on the left; `out[3]=in[3]`, `out[3]+=in[3]` and `out[3]=in[3]+` are local.

    most: entries in one cell; the others are only counted.
    busy: leave out the ranks and steps in which nothing happens.

    >>> from algocc.collective import all_reduce
    >>> from algocc.steps import Steps
    >>> s = Steps(all_reduce(2))
    >>> with s.step():
    ...     s.reduce(src=0, dst=1, chunk=0)
    >>> with s.step():
    ...     s.copy(src=1, dst=0, chunk=0)
    >>> print(diagram(s.build()))
    rank  step 0        step 1     step 2
    0     out[0]=in[0]  out[0]>1   out[0]<1
    1     out[0]=in[0]  +out[0]<0  out[0]>0
    """
    steps = len(s.step_start) - 1
    entries: list[list[list[str]]] = [[[] for _ in range(steps)] for _ in range(s.n)]
    for step, rows in steps_of(s):
        for row in rows:
            for rank, text in _entries(s, row):
                if 0 <= rank < s.n:
                    entries[rank][step].append(text)
    shown = [step for step in range(steps) if not busy or any(cells[step] for cells in entries)]
    lines = [["rank", *(f"step {step}" for step in shown)]]
    for rank, cells in enumerate(entries):
        if not busy or any(cells):
            lines.append([str(rank), *(_cell(cells[step], most) for step in shown)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(entries: list[str], most: int) -> str:
    shown = entries if len(entries) <= most else entries[:most] + [f"… {len(entries) - most} more"]
    return " ".join(shown) or "."


def _entries(s: Schedule, row: int) -> list[tuple[int, str]]:
    """What a row adds to the cells of a diagram: (rank, entry)."""
    action, rank, peer = int(s.action[row]), int(s.rank[row]), int(s.peer[row])
    own = place(s, row, "own")
    if action == Action.SEND:
        return [(rank, f"{own}>{peer}")]
    if action > Action.SEND:
        return [(rank, _arrives(action - Action.RECV, own, peer))]
    there = place(s, row, "peer")
    if rank == peer:
        return [(rank, f"{there}{_assign(action, own)}")]
    return [(rank, f"{own}>{peer}"), (peer, _arrives(action, there, rank))]


def _arrives(action: int, there: str, peer: int) -> str:
    """How a chunk arrives from a peer: `x<1`, `+x<1`, or `x+<1` where the incoming operand goes on the left."""
    before = "+" if action == Action.REDUCE else ""
    after = "+" if action == Action.PREREDUCE else ""
    return f"{before}{there}{after}<{peer}"


def _assign(action: int, operand: str, space: str = "") -> str:
    """How a place takes an operand: `=x`, `+=x`, or `=x+` where the operand goes on the left."""
    sign = "+=" if action == Action.REDUCE else "="
    return f"{space}{sign}{space}{operand}" + (f"{space}+" if action == Action.PREREDUCE else "")


def step_table(s: Schedule, *, most: int = 100) -> str:
    """What each step does, a line a transfer, under the source lines that wrote them.

    most: transfers shown of each step; the others are only counted.

    >>> from algocc.collective import all_reduce
    >>> from algocc.steps import Steps
    >>> s = Steps(all_reduce(2), name="exchange", load=False)
    >>> with s.step():
    ...     s.copy(src=0, dst=1, chunk=0, buffer="in")
    >>> print(step_table(s.build()).split("  (")[0])
    schedule exchange: all_reduce n=2 chunks=1, 1 step, 1 transfer
    step 0
      r1.out[0] = r0.in[0]
    """
    what = counted(len(s), "transfer" if s.is_matched else "row")
    lines = [f"schedule {s.name}: {s.collective}, {counted(len(s.step_start) - 1, 'step')}, {what}"]
    for step, rows in steps_of(s):
        lines.append(f"step {step}")
        for row in list(rows)[:most]:
            source = s.source(row)
            lines.append(f"  {transfer(s, row)}" + (f"  ({source})" if source else ""))
        if len(rows) > most:
            lines.append(f"  … {len(rows) - most} more")
    return "\n".join(lines)


def transfer(s: Schedule, row: int) -> str:
    """What a row does, as in `r1.out[0] += r0.out[0]`."""
    action, rank, peer = int(s.action[row]), int(s.rank[row]), int(s.peer[row])
    own, there = f"r{rank}.{place(s, row, 'own')}", f"r{peer}.{place(s, row, 'peer')}"
    if action == Action.SEND:
        return f"{own} is sent to r{peer}"
    if action > Action.SEND:
        return f"{own}{_assign(action - Action.RECV, f'what r{peer} sends', ' ')}"
    return f"{there}{_assign(action, own, ' ')}"
