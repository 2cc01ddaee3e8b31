"""Why an output is wrong: what it holds, what it should, and the transfer that went astray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from algocc.collective import Buffer, Collective
from algocc.table import Failure, Layout, Schedule, chunk_name, place
from algocc.verifier.dataflow import MISFIT, RACE, UNWRITTEN_SOURCE, Array, Trace

MOST_VALUES = 20_000
"""Reductions behind one output beyond which its contributions are not spelt out."""
MOST_TIMES = 8
"""Times that a contribution is written out; if it is there more often, they are counted."""
MOST_BITS = 128
"""Bits of such a count beyond which only its size is written."""

Item = tuple[int, int]


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

    def operands(v: int) -> tuple[int, int]:
        return int(t.left[v - inputs]), int(t.right[v - inputs])

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
            failures.append(Failure("data", step, rank, name, "was never written", spell(want, want), source))
            continue
        values, held = contributions(value, inputs, operands)
        if held is None:
            found = f"holds the wrong contributions, through more than {MOST_VALUES} reductions"
            failures.append(Failure("data", step, rank, name, found, spell(want, want), source))
            continue
        have = Counter({input_of(c, i): k for i, k in held.items()})
        found = f"holds {spell(have, want)}"
        extra = next((i for i, k in held.items() if k > max(1, want[input_of(c, i)])), None)
        if extra is not None:
            at = int(t.row[first_double(values, operands, extra, inputs) - inputs])
            step, source = int(s.step[at]), s.source(at)
            found += f": {who(input_of(c, extra), want)} is added twice, at rank {s.peer[at]} {place(s, at, 'peer')}"
        wanted = spell(want, want + have)
        if set(have) == set(want) and have != want:
            wanted += "; valid for idempotent operators (max, min, and, or) only"
        failures.append(Failure("data", step, rank, name, found, wanted, source))
    return failures


def input_of(c: Collective, i: int) -> tuple[int, int]:
    """Rank and chunk of input chunk i, counted through all ranks."""
    rank = int(np.searchsorted(c.input_start * c.chunks, i, side="right")) - 1
    return rank, i - int(c.input_start[rank]) * c.chunks


def contributions(
    value: int, inputs: int, operands: Callable[[int], tuple[int, int]], *, most: int = MOST_VALUES
) -> tuple[list[int], Counter[int] | None]:
    """The reductions behind a value, oldest first, and how often each input chunk is in it.

    operands: the two values of a reduction, both older. most: values beyond which there is no count: ([], None).

    >>> contributions(4, 2, {2: (0, 1), 3: (2, 2), 4: (3, 0)}.__getitem__)
    ([2, 3, 4], Counter({0: 3, 1: 2}))
    """
    seen, todo = {value}, [value]
    while todo:
        v = todo.pop()
        if v >= inputs:
            for operand in operands(v):
                if operand not in seen:
                    seen.add(operand)
                    todo.append(operand)
        if len(seen) > most:
            return [], None
    order = sorted(seen)
    uses = Counter({value: 1})
    for v in reversed(order):
        if v >= inputs:
            for operand in operands(v):
                uses[operand] += uses[v]
    return [v for v in order if v >= inputs], Counter({v: uses[v] for v in order if v < inputs})


def first_double(values: list[int], operands: Callable[[int], tuple[int, int]], extra: int, inputs: int) -> int:
    """The first of some reductions, oldest first, both of whose operands hold input chunk `extra`."""
    has = {extra}
    for v in values:
        a, b = (operand in has for operand in operands(v))
        if a and b:
            return v
        if a or b:
            has.add(v)
    return values[-1]


def spell(have: Counter[Item], want: Counter[Item]) -> str:
    """A multiset of contributions, (rank, input chunk), beside another: ranks where one chunk goes without saying,
    else as in r2.in[3].

    >>> held = Counter({(0, 0): 2, (1, 0): 1})
    >>> spell(held, held), spell(held, held + Counter([(1, 1)])), spell(Counter({(0, 0): 1 << 60}), held)
    ('{0,0,1}', '{r0.in[0],r0.in[0],r1.in[0]}', '{0×1152921504606846976}')
    """
    few = sorted(Counter({item: k for item, k in have.items() if k <= MOST_TIMES}).elements())
    often = sorted((item, k) for item, k in have.items() if k > MOST_TIMES)
    if len({chunk for _, chunk in want}) == 1 and {chunk for _, chunk in have} <= {chunk for _, chunk in want}:
        names = _runs([rank for rank, _ in few]) + [f"{rank}×{_count(k)}" for (rank, _), k in often]
    else:
        names = [f"r{rank}.in[{chunk}]" for rank, chunk in few]
        names += [f"r{rank}.in[{chunk}]×{_count(k)}" for (rank, chunk), k in often]
        names = names if len(names) <= 12 else [*names[:11], f"… {len(names) - 11} more"]
    return "{" + ",".join(names) + "}"


def _count(k: int) -> str:
    """A count as text, of which a huge one has no more than its size.

    >>> _count(1 << 70), _count(1 << 20000), _count(3 << 20000)
    ('1180591620717411303424', '2^20000', '(more than 2^20001)')
    """
    bits = k.bit_length() - 1
    if bits < MOST_BITS:
        return str(k)
    return f"2^{bits}" if k == 1 << bits else f"(more than 2^{bits})"


def who(item: Item, want: Counter[Item]) -> str:
    """The rank that a contribution is of; with its chunk, where that does not go without saying."""
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
