"""What a picture shows, as data: which chunk goes where in each step, what it carries, and who holds how much of what.

Nothing here draws. Pictures have limits, and what does not fit is said in words: `Scene.left_out`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.draw.holdings import Cell, Holdings, holdings, results_of
from algocc.draw.limits import MOST_CELLS, Move, View, check_size, fitting
from algocc.errors import UsageError, counted
from algocc.render import transfer
from algocc.table import Action, Failure, Schedule, form_failures, layout, place
from algocc.verifier.counterexample import smallest_counterexample
from algocc.verifier.events import Events
from algocc.verifier.explain import input_of, spell
from algocc.verifier.report import Report, is_idempotent, verify


class Write(NamedTuple):
    """One chunk moved in one step: an arrow.

    reduces: it is reduced into the chunk that it goes to, not copied over it.
    src, dst: ranks. chunk: the number, in its buffer, of the chunk written.
    what: as in `r1.out[0] += r0.out[0]`.
    carries, holds: what is moved, and what the place written holds then, as contributions.
    source: the line that wrote it, or "".
    needs: the events whose values it takes, as operands from left to right; -1 where nothing was written.
    units: its size, of which the full vector has `Scene.whole`; 0 where nothing was written.
    culprit: it is where the schedule goes wrong.
    """

    step: int
    reduces: bool
    src: int
    dst: int
    chunk: int
    what: str
    carries: str
    holds: str
    source: str
    needs: tuple[int, ...]
    units: int
    culprit: bool


@dataclass(frozen=True)
class Scene:
    """All that a picture of a schedule shows.

    n: ranks. whole: units of the full vector m.
    failure: what is wrong first, "" if nothing is. marks: where, as (step, rank).
    inputs: the input chunks, which are events 0, 1, …; write i is event len(inputs) + i.
    writes: every chunk that is moved, in order. drawn: those with an arrow.
    steps: those in the picture.
    results: what the collective wants, each once, by the output chunk that holds it.
    holdings: the cells (rank, result) before the first step shown, then those that change in each.
    left_out: what is not shown, in words.
    """

    name: str
    collective: str
    n: int
    whole: int
    in_place: bool
    failure: str = ""
    marks: tuple[tuple[int, int], ...] = ()
    inputs: tuple[str, ...] = ()
    writes: tuple[Write, ...] = ()
    drawn: tuple[int, ...] = ()
    steps: range = range(0)
    results: tuple[str, ...] = ()
    holdings: tuple[Holdings, ...] = ()
    left_out: tuple[str, ...] = ()

    def links(self) -> NDArray[np.int64]:
        """Units sent from each rank to each other; shape (n, n)."""
        sent = np.zeros((self.n, self.n), np.int64)
        for w in self.writes:
            sent[w.src, w.dst] += w.units * (w.src != w.dst)
        return sent

    def states(self) -> Iterator[dict[tuple[int, int], Cell]]:
        """All cells before the first step shown, and after each."""
        cells: dict[tuple[int, int], Cell] = {}
        for changed in self.holdings:
            cells = {**cells, **changed}
            yield cells


def scene(s: Schedule, *, in_place: bool = False, op: str | None = None, view: View | None = None) -> Scene:
    """What a picture of a schedule shows, be it right or wrong.

    in_place, op: as in `verify`.
    view: the steps and chunks to show; all that fit, if None.

    Raises UsageError for more than a picture can show, or a step or chunk that does not exist.

    >>> from algocc.schedules.ring import ring
    >>> found = scene(ring(4))
    >>> w = found.writes[-1]
    >>> w.what, w.carries, w.reduces
    ('r3.out[0] = r2.out[0]', '{0-3}', False)
    >>> [str(cells[0, 1].share) for cells in found.states()]    # of out[1], at rank 0
    ['1/4', '1/4', '1/4', '3/4', '3/4', '3/4', '3/4', '1']
    """
    check_size(s)
    report = verify(s, in_place=in_place, op=op, program=False)
    view = view or View()
    about = Scene(s.name, str(s.collective), s.n, max(1, s.collective.vector * s.collective.chunks), in_place)
    if form_failures(s, most=1):
        return _fitted(_of_form(about, s, report), s, view)
    s = s.canonical()
    idempotent = s.collective.idempotent or is_idempotent(op)
    places = layout(s, in_place=in_place)
    events = Events(s, places)
    events.contributions(list(range(events.inputs, events.inputs + len(events.row))))
    found = _fitted(_of_flow(about, events, report, op), s, view)
    results = results_of(s.collective, places)
    most = MOST_CELLS // s.n
    left_out = [f"of {len(results)} results, the first {most} are shown"] if len(results) > most else []
    return replace(
        found,
        results=tuple(result.label for result in results[:most]),
        holdings=holdings(events, places, results[:most], found.steps, idempotent=idempotent),
        left_out=(*found.left_out, *left_out),
    )


def _fitted(found: Scene, s: Schedule, view: View) -> Scene:
    """With the steps that it shows."""
    wrong = min((step for step, _ in found.marks), default=None)
    steps, drawn, left_out = fitting(s, [Move(w.step, w.chunk, w.src == w.dst) for w in found.writes], view, wrong)
    return replace(found, steps=steps, drawn=drawn, left_out=(*left_out, *found.left_out))


def _of_form(about: Scene, s: Schedule, report: Report) -> Scene:
    """What is not of good form has rows but no data flow: a matched pair once, the rows to blame marked."""
    sends = Counter((int(s.step[i]), int(s.rank[i]), int(s.peer[i])) for i in np.flatnonzero(s.action == Action.SEND))
    writes, nowhere = [], 0
    for row in range(len(s)):
        step, rank, peer, action = (int(column[row]) for column in (s.step, s.rank, s.peer, s.action))
        if not (0 <= rank < s.n and 0 <= peer < s.n and 0 <= action <= max(Action)):
            nowhere += 1
            continue
        culprit = any(_blames(f, s, row) for f in report.failures)
        if action > Action.SEND and sends[step, peer, rank] and not culprit:
            sends[step, peer, rank] -= 1
            continue
        src, dst = (peer, rank) if action > Action.SEND else (rank, peer)
        chunk = max(0, int(s.peer_chunk[row] if action < Action.SEND else s.chunk[row]))
        reduces = action not in (Action.COPY, Action.SEND, Action.RECV)
        writes.append(
            Write(step, reduces, src, dst, chunk, transfer(s, row), "", "", s.source(row) or "", (), 0, culprit)
        )
    places = {(f.step, f.rank) for f in report.failures}
    left_out = ["what chunks hold is not shown, since the schedule is not of good form"]
    if nowhere:
        left_out.append(f"{counted(nowhere, 'row')} of a rank or an action that does not exist: not drawn")
    return replace(
        about, writes=tuple(writes), failure=str(report.failures[0]), left_out=tuple(left_out), marks=_marks(places, s.n)
    )


def _blames(f: Failure, s: Schedule, row: int) -> bool:
    """Whether a failure of form speaks of this row."""
    if (f.step, f.rank, f.source) != (int(s.step[row]), int(s.rank[row]), s.source(row)):
        return False
    return f.chunk in (None, place(s, row, "own"), place(s, row, "peer"))


def _marks(places: set[tuple[Any, Any]], n: int) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((step, rank) for step, rank in places if step is not None and rank is not None and 0 <= rank < n))


def _of_flow(about: Scene, events: Events, report: Report, op: str | None) -> Scene:
    """What is of good form is followed chunk by chunk."""
    s = events.s
    c = s.collective

    def spelt(event: int) -> str:
        held = Counter({input_of(c, i): k for i, k in events.held(event).items()}) if event >= 0 else Counter()
        return spell(held, held) if held else ""

    failure, blamed = _first_failure(s, report, op)
    part = np.array(events.part, np.int32)
    each = s.rows(np.array(events.row, np.int64))
    each = replace(each, chunk=each.chunk + part, peer_chunk=each.peer_chunk + part, count=np.ones(len(part), np.int32))
    writes = []
    for i, (value, *old) in enumerate(events.needs):
        held = events.held(value) if value >= 0 else None
        step, what = int(each.step[i]), transfer(each, i)
        writes.append(
            Write(
                step, bool(each.action[i] != Action.COPY), int(each.rank[i]), int(each.peer[i]), int(each.peer_chunk[i]), what,
                spelt(value), spelt(events.inputs + i), each.source(i) or "",
                (*old, value) if each.action[i] == Action.REDUCE else (value, *old),
                int(c.sizes[min(held) // c.chunks]) if held else 0, (step, what) in blamed,
            )
        )  # fmt: skip
    blames: set[tuple[Any, Any]] = {(w.step, w.dst) for w in writes if w.culprit}
    names = [input_of(c, i) for i in range(events.inputs)]
    return replace(
        about, writes=tuple(writes), inputs=tuple(f"r{rank}.in[{chunk}]" for rank, chunk in names),
        failure=failure, marks=_marks(blames or {(f.step, f.rank) for f in report.failures}, s.n),
    )  # fmt: skip


def _first_failure(s: Schedule, report: Report, op: str | None) -> tuple[str, set[tuple[int, str]]]:
    """What goes wrong first, in words, and the writes to blame, as (step, what)."""

    def build(n: int) -> Schedule:
        if n != s.n:
            raise UsageError("the picture is of another n")
        return s

    why = smallest_counterexample(build, s.n, in_place=report.in_place, op=op, program=False, report=report)
    if why is None:
        return "", set()
    return str(why.failure), {(link.step, link.what) for link in why.chain if link.culprit}
