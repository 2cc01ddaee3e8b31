"""Why an output is wrong: what it holds, what it should, and the transfer that went astray."""

from __future__ import annotations

from collections import Counter

import numpy as np

from algocc.collective import Buffer, Collective
from algocc.table import Failure, Layout, Schedule, chunk_name, place
from algocc.verifier.dataflow import MISFIT, RACE, UNWRITTEN_SOURCE, Array, Trace

MOST_VALUES = 20_000
"""Reductions behind one output beyond which its contributions are not spelt out."""


def explain_trouble(s: Schedule, t: Trace) -> list[Failure]:
    """The failures behind a trace's `trouble`: unwritten reads and races, in the order of the steps."""
    failures = []
    for kind, row, part in t.trouble.tolist():
        step, source = int(s.step[row]), s.source(row)
        own = chunk_name(int(s.buffer[row]), int(s.chunk[row]) + part)
        peer = chunk_name(int(s.peer_buffer[row]), int(s.peer_chunk[row]) + part)
        if kind == UNWRITTEN_SOURCE:
            found, wanted = f"is read by rank {s.peer[row]}, but nothing was written there", "a write in a step before"
            failures.append(Failure("race", step, int(s.rank[row]), own, found, wanted, source))
        elif kind == RACE:
            found = f"is written twice in one step, the second time from rank {s.rank[row]}"
            wanted = "one writer, or reductions only"
            failures.append(Failure("race", step, int(s.peer[row]), peer, found, wanted, source))
        elif kind == MISFIT:
            found = f"takes data of another length from rank {s.rank[row]} {own}"
            wanted = "the same part of a block of the same size"
            failures.append(Failure("data", step, int(s.peer[row]), peer, found, wanted, source))
        else:
            found = f"is reduced into from rank {s.rank[row]}, but nothing was written there"
            failures.append(Failure("race", step, int(s.peer[row]), peer, found, "a write in a step before", source))
    return failures


def explain(s: Schedule, places: Layout, t: Trace, wrong: Array, *, most: int = 20) -> list[Failure]:
    """A failure for each of the first wrong outputs, counted through all ranks."""
    c = s.collective
    inputs = int(c.inputs.sum()) * c.chunks
    failures = []
    for o in wrong[:most].tolist():
        rank = int(np.searchsorted(c.output_start * c.chunks, o, side="right")) - 1
        chunk = o - int(c.output_start[rank]) * c.chunks
        name = chunk_name(Buffer.OUTPUT, chunk)
        want = Counter(
            (r, block * c.chunks + chunk % c.chunks) for r, block in c.wanted(rank, chunk // c.chunks)
        )
        location = int(places.alias[places.start[rank, Buffer.OUTPUT] + chunk])
        value, writer = int(t.value[location]), int(t.writer[location])
        step, source = (int(s.step[writer]), s.source(writer)) if writer >= 0 else (None, None)
        if value < 0:
            failures.append(Failure("data", step, rank, name, "was never written", _spell(c, want, want), source))
            continue
        values, held = _contributions(t, value, inputs)
        if held is None:
            found = f"holds the wrong contributions, through more than {MOST_VALUES} reductions"
            failures.append(Failure("data", step, rank, name, found, _spell(c, want, want), source))
            continue
        have = Counter({_input(c, i): k for i, k in held.items()})
        found = f"holds {_spell(c, have, want)}"
        extra = next((i for i, k in held.items() if k > max(1, want[_input(c, i)])), None)
        if extra is not None:
            at = _first_double(t, values, extra, inputs)
            step, source = int(s.step[at]), s.source(at)
            found += f": {_who(c, _input(c, extra), want)} is added twice, at rank {s.peer[at]} {place(s, at, 'peer')}"
        wanted = _spell(c, want, want + have)
        if set(have) == set(want) and have != want:
            wanted += "; valid for idempotent operators (max, min, and, or) only"
        failures.append(Failure("data", step, rank, name, found, wanted, source))
    return failures


def _input(c: Collective, i: int) -> tuple[int, int]:
    """Rank and chunk of input chunk i, counted through all ranks."""
    rank = int(np.searchsorted(c.input_start * c.chunks, i, side="right")) - 1
    return rank, i - int(c.input_start[rank]) * c.chunks


def _contributions(t: Trace, value: int, inputs: int) -> tuple[list[int], Counter[int] | None]:
    """The reductions behind a value, oldest first, and how often each input chunk is in it."""
    seen, todo = {value}, [value]
    while todo:
        v = todo.pop()
        if v >= inputs:
            for operand in (int(t.left[v - inputs]), int(t.right[v - inputs])):
                if operand not in seen:
                    seen.add(operand)
                    todo.append(operand)
        if len(seen) > MOST_VALUES:
            return [], None
    order = sorted(seen)
    uses = Counter({value: 1})
    for v in reversed(order):
        if v >= inputs:
            uses[int(t.left[v - inputs])] += uses[v]
            uses[int(t.right[v - inputs])] += uses[v]
    return [v for v in order if v >= inputs], Counter({v: uses[v] for v in order if v < inputs})


def _first_double(t: Trace, values: list[int], extra: int, inputs: int) -> int:
    """The row of the first reduction both of whose operands hold input chunk `extra`."""
    has = {extra}
    for v in values:
        a, b = int(t.left[v - inputs]) in has, int(t.right[v - inputs]) in has
        if a and b:
            return int(t.row[v - inputs])
        if a or b:
            has.add(v)
    return int(t.row[values[-1] - inputs])


def _spell(c: Collective, have: Counter[tuple[int, int]], want: Counter[tuple[int, int]]) -> str:
    """A multiset of contributions beside another: ranks where one chunk goes without saying, else as in r2.in[3]."""
    if len({chunk for _, chunk in want}) == 1 and {chunk for _, chunk in have} <= {chunk for _, chunk in want}:
        ranks = sorted(Counter({rank: k for (rank, _), k in have.items()}).elements())
        return "{" + ",".join(_runs(ranks)) + "}"
    names = [f"r{rank}.in[{chunk}]" for rank, chunk in sorted(have.elements())]
    shown = names if len(names) <= 12 else [*names[:11], f"… {len(names) - 11} more"]
    return "{" + ",".join(shown) + "}"


def _who(c: Collective, item: tuple[int, int], want: Counter[tuple[int, int]]) -> str:
    same = len({chunk for _, chunk in want}) == 1 and item[1] in {chunk for _, chunk in want}
    return f"rank {item[0]}" if same else f"r{item[0]}.in[{item[1]}]"


def _runs(ranks: list[int]) -> list[str]:
    """Ranks as text, four or more in a row as in 0-7.

    >>> _runs([0, 1, 2, 3, 3, 5])
    ['0-3', '3', '5']
    """
    out: list[str] = []
    i = 0
    while i < len(ranks):
        j = i
        while j + 1 < len(ranks) and ranks[j + 1] == ranks[j] + 1:
            j += 1
        out += [f"{ranks[i]}-{ranks[j]}"] if j - i >= 3 else [str(r) for r in ranks[i : j + 1]]
        i = j + 1
    return out
