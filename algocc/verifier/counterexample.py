"""The smallest counterexample: the fewest ranks for which an algorithm is wrong, the first chunk that goes wrong
there, and exactly the transfers that made it so.

The transfers are a backward slice. Every write is an event that depends on the event whose value it reads and, if it
reduces, on the one whose value it reduces into; what a bad value depends on is all that can be to blame.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from algocc.collective import Buffer
from algocc.errors import UsageError, counted
from algocc.render import diagram, transfer
from algocc.table import Failure, Layout, Schedule, layout
from algocc.verifier.dataflow import MISFIT, RACE, UNWRITTEN_SOURCE, judge, trace
from algocc.verifier.events import Events
from algocc.verifier.explain import Item, explain, explain_trouble, input_of, spell
from algocc.verifier.report import Report, is_idempotent, verify

SECONDS = 5.0
"""How long a smaller n is looked for."""
MOST_EVENTS = 200_000
"""Writes of chunks beyond which the transfers behind a chunk are not looked for."""
MOST_OUTPUTS = 60
"""Wrong outputs among which the one that goes wrong first is looked for."""
MOST_SHOWN = 40
"""Transfers that are printed."""

Build = Callable[[int], Schedule]


@dataclass(frozen=True)
class Link:
    """One transfer of one chunk in the chain that leads to the bad one.

    what: as in `r1.out[0] += r0.out[0]`.
    holds: what its destination holds after it, as the contributions of ranks; empty where nothing was written.
    source: the line that wrote it.
    culprit: it is where the chunk went wrong.
    """

    step: int
    rank: int
    peer: int
    what: str
    holds: str
    source: str | None
    culprit: bool


@dataclass(frozen=True)
class Counterexample:
    """Why an algorithm is wrong, on as few ranks as possible.

    n: ranks. tried: the smaller numbers of ranks that it takes and is right for; from 2 on.
    smallest: no smaller n of 2 or more fails; unknown, so False, if there was no time to try all.
    failure: what goes wrong first, in the order of the steps.
    chain: the transfers that the bad chunk depends on, in the order of the steps.
    table: the chain as a space-time table, a line a rank and a column a step, of those that matter.
    """

    n: int
    smallest: bool
    tried: tuple[int, ...]
    failure: Failure
    chain: tuple[Link, ...]
    table: str

    def to_json(self) -> dict[str, Any]:
        """The counterexample as JSON values."""
        return asdict(self) | {"tried": list(self.tried), "chain": [asdict(link) for link in self.chain]}

    def __str__(self) -> str:
        lines = [self._title(), f"  {self.failure}"]
        if self.chain:
            lines += ["", *(f"  {line}" for line in self.table.split("\n")), ""]
            shown = self.chain[-MOST_SHOWN:]
            if len(shown) < len(self.chain):
                lines.append(f"  … {counted(len(self.chain) - len(shown), 'transfer')} before")
            rows = [
                (
                    f"step {link.step}", link.what, link.holds and f"holds {link.holds}",
                    f"({link.source})" if link.source else "", "<- here" if link.culprit else "",
                )
                for link in shown
            ]  # fmt: skip
            columns = [column for column in zip(*rows, strict=True) if any(column)]
            padded = [[word.ljust(max(map(len, column))) for word in column] for column in columns]
            lines += ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        return "\n".join(lines)

    def _title(self) -> str:
        if self.n < 2:
            return "counterexample for n=1"
        if not self.smallest:
            return f"counterexample for n={self.n}; a smaller one may exist"
        if not self.tried:
            return f"smallest counterexample: n={self.n}"
        *rest, last = map(str, self.tried)
        right = f"{', '.join(rest)} and {last}" if rest else last
        return f"smallest counterexample: n={self.n}; right for n={right if len(self.tried) < 9 else f'all {len(self.tried)} smaller'}"


def smallest_counterexample(
    build: Build, n: int, *, in_place: bool = False, op: str | None = None, lanes: int = 1, program: bool = True,
    seconds: float = SECONDS, report: Report | None = None,
) -> Counterexample | None:  # fmt: skip
    """The smallest counterexample to what `build` makes, for n ranks or fewer; None if it is right for n.

    Programs are only looked at if what is wrong for n is its Program.

    build: the schedule for some number of ranks; a UsageError says that it does not take so many.
    report: the verdict for n, if it is known.
    seconds: for how long a smaller n is looked for, from 2 on.

    >>> from algocc.schedules.recursive import recursive_doubling
    >>> smallest_counterexample(recursive_doubling, 6)
    """
    modes: dict[str, Any] = {"in_place": in_place, "op": op, "lanes": lanes}
    report = report or verify(build(n), **modes, program=program)
    if report.correct:
        return None
    in_program = report.program is not None
    end = time.monotonic() + seconds  # from here: the first verdict may have had to compile
    tried: list[int] = []
    complete = True
    for smaller in range(2, n):
        if time.monotonic() > end:
            complete = False
            break
        try:
            s = build(smaller)
        except UsageError:
            continue
        found = verify(s, **modes, program=in_program)
        if not found.correct:
            return _shown(s, found, tuple(tried), True, in_place, op)
        tried.append(smaller)
    return _shown(build(n), report, tuple(tried), complete, in_place, op)


def _shown(
    s: Schedule, report: Report, tried: tuple[int, ...], smallest: bool, in_place: bool, op: str | None
) -> Counterexample:
    failure = report.failures[0]
    chain: tuple[Link, ...] = ()
    table = ""
    if report.program is None and failure.level != "form":
        failure, chain, table = _first_bad(s.matched(), in_place, op)
    elif failure.level == "form":
        chain, table = _of_form(s, failure)
    return Counterexample(s.n, smallest, tried, failure, chain, table)


def _of_form(s: Schedule, failure: Failure) -> tuple[tuple[Link, ...], str]:
    """The rows of the rank and step that are not of good form."""
    rows = np.flatnonzero((s.step == failure.step) & ((s.rank == failure.rank) | (s.peer == failure.rank)))
    source = [s.source(row) == failure.source for row in rows.tolist()]
    links = []
    for row, named in zip(rows.tolist()[:MOST_SHOWN], source, strict=False):
        culprit = named and s.rank[row] == failure.rank
        try:
            what = transfer(s, row)
        except ValueError:  # an action or buffer that does not exist
            continue
        links.append(Link(int(s.step[row]), int(s.rank[row]), int(s.peer[row]), what, "", s.source(row), bool(culprit)))
    kept = np.isin(np.arange(len(s)), rows)
    return tuple(links), diagram(s.rows(kept), busy=True) if links else ""


def _first_bad(s: Schedule, in_place: bool, op: str | None) -> tuple[Failure, tuple[Link, ...], str]:
    """What goes wrong first in a schedule of good form, the transfers behind it, and their table."""
    places = layout(s, in_place=in_place)
    t = trace(s, places)
    verdict = judge(s, places, t)
    if len(t.trouble):
        failure = explain_trouble(s, t)[0]
        if int(s.count.sum()) > MOST_EVENTS:
            return failure, (), ""
        events = Events(s, places)
        kind, row, part = t.trouble[0].tolist()
        culprit = events.of(row, part)
        ends = [culprit]
        if kind == RACE:
            place = int(places.alias[places.start[s.peer[row], s.peer_buffer[row]] + s.peer_chunk[row] + part])
            ends = [e for e in events.writers[int(s.step[row]), place] if e <= culprit]
        chain = events.slice(ends)
        later = _written_later(events, places, kind, row, part)
        if later is not None and kind != MISFIT:
            first = f"; the first to write it is step {s.step[later]}"
            failure = replace(failure, found=failure.found + first + (f" ({s.source(later)})" if s.source(later) else ""))
        return failure, *_drawn(events, chain, set(ends), Counter(), kind != MISFIT)
    idempotent = s.collective.idempotent or is_idempotent(op)
    wrong = verdict.wrong[:MOST_OUTPUTS]
    if int(s.count.sum()) > MOST_EVENTS:
        return explain(s, places, t, wrong, most=1)[0], (), ""
    events = Events(s, places)
    found = [(*_went_wrong(events, places, int(o), idempotent), int(o)) for o in wrong]

    def when(item: tuple[int, int, int]) -> tuple[int, int, int]:
        how, event, o = item
        return how, int(s.step[events.row[event - events.inputs]]) if event >= events.inputs else 0, o

    how, culprit, o = min(found, key=when)
    failure = explain(s, places, t, np.array([o]), most=1)[0]
    if how == OVERWRITTEN:
        over = events.over[culprit - events.inputs]
        by = f"by step {s.step[events.row[over - events.inputs]]}" if over >= events.inputs else "from the start"
        failure = replace(failure, found=failure.found + f", written over what was right {by}")
    chain = events.slice([culprit]) if culprit >= 0 else []
    return failure, *_drawn(events, chain, {culprit}, _wanted(s, o), False)


def _written_later(events: Events, places: Layout, kind: int, row: int, part: int) -> int | None:
    """The first row after this one's step that writes what this one reads, or reduces into."""
    if kind == RACE:
        return None
    s = events.s
    rank, buffer, chunk = (s.rank, s.buffer, s.chunk) if kind == UNWRITTEN_SOURCE else (s.peer, s.peer_buffer, s.peer_chunk)
    place = int(places.alias[places.start[rank[row], buffer[row]] + chunk[row] + part])
    steps = [(step, written) for (step, at), written in events.writers.items() if at == place and step >= s.step[row]]
    for _, written in sorted(steps):
        for event in written:
            if events.row[event - events.inputs] != row:
                return events.row[event - events.inputs]
    return None


def _wanted(s: Schedule, o: int) -> Counter[Item]:
    """What output chunk o, counted through all ranks, must hold."""
    c = s.collective
    rank = int(np.searchsorted(c.output_start * c.chunks, o, side="right")) - 1
    block, part = divmod(o - int(c.output_start[rank]) * c.chunks, c.chunks)
    return Counter((r, b * c.chunks + part) for r, b in c.wanted(rank, block))


REDUCED, OVERWRITTEN, INCOMPLETE, NEVER = range(4)
"""How an output goes wrong: what is done wrong comes before what is not done."""


def _went_wrong(events: Events, places: Layout, o: int, idempotent: bool) -> tuple[int, int]:
    """How a wrong output went wrong, and the event, -1 if nothing was ever written there.

    That is the first reduction of two values that were still right into one that can't become right, if there is
    one, or else the last write of the output: it was right before, or something is missing, or from the wrong place.
    """
    s = events.s
    c = s.collective
    rank = int(np.searchsorted(c.output_start * c.chunks, o, side="right")) - 1
    place = places.alias[places.start[rank, Buffer.OUTPUT] + o - int(c.output_start[rank]) * c.chunks]
    end = events.last.get(int(place), -1)
    if end < events.inputs:
        return NEVER, -1
    want = Counter({int(c.input_start[r]) * c.chunks + i: k for (r, i), k in _wanted(s, o).items()})

    def fits(event: int) -> bool:
        held = events.held(event)
        return all(want[i] >= (1 if idempotent else k) for i, k in held.items())

    chain = events.slice([end])
    events.contributions(chain)
    for event in chain:
        needs = events.needs[event - events.inputs]
        if len(needs) == 2 and not fits(event) and all(before >= 0 and fits(before) for before in needs):
            return REDUCED, event
    over = events.over[end - events.inputs]
    if over >= 0:
        events.contributions(events.slice([over]))
        held = events.held(over)
        if set(held) == set(want) and (idempotent or held == want):
            return OVERWRITTEN, end
    return INCOMPLETE, end


def _drawn(
    events: Events, chain: list[int], culprits: set[int], want: Counter[Item], unwritten: bool
) -> tuple[tuple[Link, ...], str]:
    """Events as links and as a table."""
    if not chain:
        return (), ""
    s = events.s
    c = s.collective
    events.contributions(chain)
    rows = np.array([events.row[e - events.inputs] for e in chain])
    parts = np.array([events.part[e - events.inputs] for e in chain])
    only = s.rows(rows)
    only = replace(
        only, chunk=only.chunk + parts, peer_chunk=only.peer_chunk + parts, count=np.ones(len(rows), np.int32)
    )
    links = []
    for i, event in enumerate(chain):
        held = Counter({input_of(c, item): k for item, k in events.holds[event].items()})
        spelt = spell(held, want or held)
        if event in culprits and unwritten:
            spelt = ""
        links.append(
            Link(
                int(only.step[i]), int(only.rank[i]), int(only.peer[i]), transfer(only, i), spelt, only.source(i),
                event in culprits,
            )
        )  # fmt: skip
    return tuple(links), diagram(only, most=MOST_SHOWN, busy=True)

