"""How much of each result each rank holds, before a step and after each: the heat map of a picture."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from algocc.collective import Buffer, Collective
from algocc.table import Layout, chunk_name
from algocc.verifier.events import Events


class Cell(NamedTuple):
    """How much of a result a rank holds at some time.

    share: the largest part of it in one place of the rank. event: what put it there, -1 if nothing did.
    wrong: all steps are done, and the rank must deliver it but does not.
    """

    share: Fraction
    event: int
    wrong: bool


NOTHING = Cell(Fraction(0), -1, False)
Holdings = Mapping[tuple[int, int], Cell]
"""Cells by (rank, result)."""


class Result(NamedTuple):
    """What some outputs must hold.

    want: the input chunks to be reduced into it. outputs: the locations of these outputs, by rank.
    label: as in `out[3]`, or `r2.out[3]` where not all ranks have it there.
    """

    want: Counter[int]
    outputs: dict[int, list[int]]
    label: str


def results_of(c: Collective, places: Layout) -> list[Result]:
    """Everything that a collective wants, each once, in the order of the first output that must hold it."""
    outputs: dict[int, list[tuple[int, int]]] = {}
    for rank in range(c.n):
        for chunk in range(c.size(Buffer.OUTPUT, rank)):
            block = int(c.output_start[rank]) + chunk // c.chunks
            if c.output_sizes[block]:  # of a block of size 0 nothing is asked
                outputs.setdefault(int(c.want[block]) * c.chunks + chunk % c.chunks, []).append((rank, chunk))
    results = []
    for wish, of_wish in outputs.items():
        bag, part = divmod(wish, c.chunks)
        want = Counter((c.set_items[c.set_start[bag] : c.set_start[bag + 1]] * c.chunks + part).tolist())
        at: dict[int, list[int]] = {}
        for rank, chunk in of_wish:
            at.setdefault(rank, []).append(int(places.alias[places.start[rank, Buffer.OUTPUT] + chunk]))
        rank, chunk = of_wish[0]
        everywhere = {chunk for _, chunk in of_wish} == {chunk} and len(of_wish) == c.n
        results.append(Result(want, at, ("" if everywhere else f"r{rank}.") + chunk_name(Buffer.OUTPUT, chunk)))
    return results


def holdings(
    events: Events, places: Layout, results: list[Result], steps: range, *, idempotent: bool
) -> tuple[Holdings, ...]:  # fmt: skip
    """The cells before the first of some steps, then those that change in each; empty cells are `NOTHING`.

    idempotent: a contribution that is there twice counts once.
    """
    s = events.s
    share_of = _shares(events, results, idempotent)
    own = [_locations(places, rank) for rank in range(s.n)]
    memory = {int(place): i for i, place in enumerate(places.alias[places.chunks_of(Buffer.INPUT)].tolist())}
    step_of = [int(s.step[row]) for row in events.row]
    end = len(s.step_start) - 1

    def cells(rank: int, done: bool) -> dict[tuple[int, int], Cell]:
        """Those of a rank that are not empty."""
        found: dict[tuple[int, int], Cell] = {}
        for event in [memory[location] for location in own[rank] if location in memory]:
            for i, share in share_of[event].items():
                if share > found.get((rank, i), NOTHING).share:
                    found[rank, i] = Cell(share, event, False)
        for i, result in enumerate(results if done else ()):
            for location in result.outputs.get(rank, ()):
                event = memory.get(location, -1)
                if event < 0 or share_of[event].get(i) != 1:
                    found[rank, i] = Cell(found.get((rank, i), NOTHING).share, event, True)
        return found

    known: dict[tuple[int, int], Cell] = {}
    changes: list[Holdings] = []
    first = 0
    for stop in range(steps.start, steps.stop + 1):
        last = bisect_left(step_of, stop)
        for i in range(first, last):
            memory[events.place[i]] = events.inputs + i
        first = last
        now: dict[tuple[int, int], Cell] = {}
        for rank in range(s.n):
            now |= cells(rank, stop == end)
        changes.append({at: now.get(at, NOTHING) for at in sorted({*known, *now}) if now.get(at) != known.get(at)})
        known = now
    return tuple(changes)


def _locations(places: Layout, rank: int) -> list[int]:
    """The places of a rank, where a result is to be before where else it may be, each once."""
    flat = [*places.start.ravel().tolist(), places.total]
    found: list[int] = []
    for buffer in (Buffer.OUTPUT, Buffer.SCRATCH, Buffer.INPUT):
        at = 3 * rank + buffer
        found += places.alias[flat[at] : flat[at + 1]].tolist()
    return list(dict.fromkeys(found))


def _shares(events: Events, results: list[Result], idempotent: bool) -> list[dict[int, Fraction]]:
    """For each event, how much its value is of each result that it is a part of."""
    asks: dict[int, list[int]] = {}
    for i, result in enumerate(results):
        for item in result.want:
            asks.setdefault(item, []).append(i)
    found = []
    for event in range(events.inputs + len(events.row)):
        held = events.held(event)
        found.append(
            {
                i: Fraction(len(held), len(want)) if idempotent else Fraction(held.total(), want.total())
                for i in asks.get(min(held, default=-1), ())
                if all((want := results[i].want)[item] >= (1 if idempotent else k) for item, k in held.items())
            }
        )
    return found
