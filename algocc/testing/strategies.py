"""Hypothesis strategies over collectives, schedules, mutations and interleavings."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from algocc.collective import (
    COLLECTIVES,
    Collective,
    all_to_all_v,
    barrier,
    collective,
    custom,
    send_recv,
)
from algocc.program import Program
from algocc.reference import Choose
from algocc.table import Schedule
from algocc.testing.generate import random_arbitrary, random_correct
from algocc.testing.mutate import mutated, mutated_program


@st.composite
def collectives(draw: st.DrawFn, max_n: int = 4, *, max_chunks: int = 3) -> Collective:
    """Any built-in collective with any parameters, or one that wants a random multiset in each output block."""
    n = draw(st.integers(1, max_n), label="n")
    chunks = draw(st.integers(1, max_chunks), label="chunks")
    name = draw(st.sampled_from([*COLLECTIVES, "custom"]), label="collective")
    ranks = st.integers(0, n - 1)
    if name == "custom":
        return draw(_customs(n, chunks))
    if name == "barrier":
        return barrier(n)
    if name == "all_to_all_v":
        row = st.lists(st.integers(0, 3), min_size=n, max_size=n)
        return all_to_all_v(n, counts=draw(st.lists(row, min_size=n, max_size=n)), chunks=chunks)
    if name == "send_recv":
        return send_recv(
            n, pairs=draw(st.lists(st.tuples(ranks, ranks), min_size=1, max_size=n + 1)), chunks=chunks
        )
    rooted = {"root": draw(ranks)} if name in ("broadcast", "reduce", "scatter", "gather") else {}
    return collective(name, n, chunks=chunks, **rooted)


@st.composite
def _customs(draw: st.DrawFn, n: int, chunks: int) -> Collective:
    inputs = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n).filter(any))
    blocks = [(rank, block) for rank in range(n) for block in range(inputs[rank])]
    bags = st.lists(st.sampled_from(blocks), min_size=1, max_size=4)
    pool = st.sampled_from(draw(st.lists(bags, min_size=1, max_size=3)))
    outputs = draw(st.lists(st.lists(pool, max_size=2), min_size=n, max_size=n))
    alias = [
        (rank, block, block)
        for rank in range(n)
        for block in range(min(inputs[rank], len(outputs[rank])))
        if draw(st.booleans())
    ]
    return custom("custom", inputs=inputs, outputs=outputs, alias=alias, chunks=chunks)


def _randoms() -> st.SearchStrategy[random.Random]:
    return st.integers(0, 2**32 - 1).map(random.Random)


@st.composite
def schedules(
    draw: st.DrawFn, max_n: int = 4, *, in_place: bool = False, two_sided: bool | None = None
) -> Schedule:
    """Correct schedules for random collectives, by `random_correct`.

    in_place: correct also where inputs share memory with outputs.
    two_sided: whether messages are written as a send and a receive; either, if None.
    """
    c = draw(collectives(max_n))
    delay = draw(st.integers(0, 2), label="delay")
    sides = draw(st.booleans(), label="two_sided") if two_sided is None else two_sided
    return random_correct(draw(_randoms()), c, in_place=in_place, delay=delay, two_sided=sides)


@st.composite
def arbitrary_schedules(draw: st.DrawFn, max_n: int = 3, *, max_rows: int = 12) -> Schedule:
    """Schedules of good form that are mostly wrong, by `random_arbitrary`."""
    c = draw(collectives(max_n, max_chunks=2))
    rows, scratch = draw(st.integers(0, max_rows), label="rows"), draw(st.integers(0, 2), label="scratch")
    return random_arbitrary(draw(_randoms()), c, rows=rows, scratch=scratch)


@st.composite
def mutations(draw: st.DrawFn, schedule: Schedule, *, most: int = 2) -> Schedule:
    """A schedule with 1 to `most` slips, by `mutated`."""
    rng = draw(_randoms())
    for _ in range(draw(st.integers(1, most), label="slips")):
        schedule = mutated(rng, schedule)
    return schedule


@st.composite
def program_mutations(draw: st.DrawFn, program: Program, *, most: int = 2) -> Program:
    """A Program with 1 to `most` slips, by `mutated_program`."""
    rng = draw(_randoms())
    for _ in range(draw(st.integers(1, most), label="slips")):
        program = mutated_program(rng, program)
    return program


@st.composite
def interleavings(draw: st.DrawFn) -> Choose:
    """Ways to choose the next lane: at random, by random priorities, or one lane as long as it can go on."""
    rng = draw(_randoms())
    kind = draw(st.sampled_from(["random", "priorities", "greedy"]))
    if kind == "random":
        return rng.choice
    rank: dict[int, float] = {}

    def by_priority(lanes: Sequence[int]) -> int:
        return max(lanes, key=lambda lane: rank.setdefault(lane, rng.random()))

    last = [-1]

    def greedy(lanes: Sequence[int]) -> int:
        if last[0] not in lanes or rng.random() < 0.05:
            last[0] = rng.choice(lanes)
        return last[0]

    return by_priority if kind == "priorities" else greedy
