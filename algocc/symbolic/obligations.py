"""What must be shown of a phase, each obligation a formula that no numbers may satisfy.

With the state S(t) that the invariant claims after t steps, for every step t and all numbers at once:

    initialisation   what the phase before leaves is what S(0) claims
    form             peers and chunks exist, the input is not written, a transfer has a chunk or more
    reads            what is sent, or reduced into, is claimed to be there by S(t)
    races            no two transfers of the step write one place, unless both reduce
    exactly once     a reduced contribution is of the same chunk, is not there yet, and comes from one sender only
    preservation     a place holds after the step what S(t + 1) claims: no contribution more, and none less
    postcondition    in the end every output holds what the collective wants

Together they give by induction over the steps that S(t) holds after every step: what a place holds after the step
is, by *races*, what one copy brings, or what was there and what all reductions bring; each of these contributions is
claimed by S(t + 1), by *exactly once* they are distinct, and by *preservation* nothing that it claims is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import z3

from algocc.invariant import Invariant
from algocc.symbolic.number import Number, number
from algocc.symbolic.record import Phase
from algocc.symbolic.rounds import sends
from algocc.symbolic.state import (
    Content,
    State,
    Template,
    View,
    finished,
    input_of,
    loaded,
    nothing,
    size_of,
    spoken_of,
)
from algocc.symbolic.task import Task
from algocc.symbolic.theory import Term
from algocc.symbolic.transfers import Family, Sent, families
from algocc.symbolic.world import Unprovable, World

FEW = (2, 4, 8, 16, 32, 64)
"""Numbers of ranks, up to which an example is looked for."""
GUESSES = 40
"""Guesses of who brings a contribution that are tried together."""


@dataclass(frozen=True)
class Obligation:
    """One thing to show.

    phase: the rule it is about, and its place among the rules of the schedule; or the end.
    name, statement: which of the above, and in words about what.
    status: "ok", "failed" or "unknown".
    example: numbers that satisfy the negation, where it failed; they need not be reachable.
    """

    phase: str
    name: str
    statement: str
    status: str
    example: dict[str, int]


class Checker:
    """Asks the solver, and writes down the answers."""

    def __init__(self, world: World, task: Task) -> None:
        self.world, self.task = world, task
        self.n = number(world, task.n).term
        self.phase = ""
        self.found: list[Obligation] = []
        self.rounds: list[tuple[Term, bool | None]] = []

    def show(self, name: str, statement: str, claims: Iterable[tuple[Term, list[Term]]], **watch: Term) -> None:
        """Each claim follows from its hypotheses; the first that does not is what the obligation ends with."""
        status, example = "ok", dict[str, int]()
        for goal, hypotheses in claims:
            verdict, model = self.world.refute(*hypotheses, z3.Not(goal))
            if verdict == "unsat":
                continue
            status = "failed" if verdict == "sat" else "unknown"
            if model is not None:
                model = self._smaller(model, [*hypotheses, z3.Not(goal)])
                example = {key: _value(model, term) for key, term in {"n": self.n, **watch}.items()}
            break
        self.found.append(Obligation(self.phase, name, statement, status, example))

    def _smaller(self, model: Any, claims: list[Term]) -> Any:
        """A model of few ranks, if there is one."""
        for most in FEW:
            verdict, found = self.world.refute(*claims, self.n <= most)
            if verdict == "sat":
                return found
        return model

    def rank(self, name: str) -> tuple[Term, list[Term]]:
        """Some rank, and that it is one."""
        rank = self.world.fresh(name)
        return rank, [0 <= rank, rank < self.n]

    def place(self, buffer: str) -> tuple[Term, Term, list[Term]]:
        """Some chunk of some rank, and that it is one."""
        rank, given = self.rank("rank")
        chunk = self.world.fresh("chunk")
        size = spoken_of(self.world, self.task, buffer, rank)
        return rank, chunk, [*given, 0 <= chunk, *([] if size is None else [chunk < size])]


def _value(model: Any, term: Term) -> int:
    value = model.eval(term, model_completion=True)
    return int(value.as_long()) if z3.is_int_value(value) else -1


def check_schedule(world: World, task: Task, phases: list[Phase], case: str = "") -> Checker:
    """Every obligation of a schedule, phase by phase.

    case: what the phases are called by besides their number and rule.
    """
    c = Checker(world, task)
    state: State = {"in": input_of(world, task), "out": nothing, "scratch": nothing}
    state = {**state, task.sink: loaded(world, task)}
    for index, phase in enumerate(phases):
        c.phase = f"{case}{index + 1}. {phase.name}"
        if world.entails(number(world, phase.steps).term == 0):
            continue
        if phase.invariant is None:
            raise Unprovable(f"{phase.where}: {phase.name} has no invariant beside it; hand one to s.rule(…, invariant=…)")
        state = _check_phase(c, phase, state)
    c.phase = f"{case}end"
    _check_end(c, state)
    return c


def _check_phase(c: Checker, phase: Phase, before: State) -> State:
    """The obligations of one phase; what it leaves."""
    world = c.world
    steps = number(world, phase.steps).term
    t = world.fresh("step")
    inside = [0 <= t, t < steps]
    with world.scope(*inside):
        sent = families(world, c.task, phase, t)
    written = {f.to_buffer for f in sent}
    claims = _claims(phase, c.task)
    templates = {b: Template(world, c.task, phase, b, inv) for b, inv in claims.items()}
    single = world.entails(steps == 1)

    def after(s: Term) -> State:
        """What holds after s steps; a buffer that is written and not spoken of holds anything."""
        spoken = {b: template.at(s) for b, template in templates.items()}
        return {b: spoken.get(b, nothing if b in written else view) for b, view in before.items()}

    start = before if single else after(z3.IntVal(0))
    now, then = before if single else after(t), after(t + 1)
    if not single:
        c.show("steps", "the number of steps is not negative", [(steps >= 0, [])])
        for b in sorted(templates):
            _check_initial(c, b, before[b], start[b])
    with world.scope(*inside):
        c.rounds.append((steps, sends(world, c.task, sent)))
        _check_form(c, sent, t)
        _check_reads(c, sent, now, t)
        _check_races(c, sent, t)
        _check_once(c, sent, now, then, t)
        for b in sorted(templates):
            _check_place(c, b, [f for f in sent if f.to_buffer == b], now, then, t)
    return after(steps)


def _claims(phase: Phase, task: Task) -> dict[str, Invariant]:
    said = phase.invariant
    if said is None:
        return {}
    return {phase.to_buffer or task.sink: said} if callable(said) else dict(said)


def _check_initial(c: Checker, buffer: str, before: View, start: View) -> None:
    rank, chunk, given = c.place(buffer)
    p, a_rank = c.rank("p")
    claim, found = start(rank, chunk), before(rank, chunk)
    c.show(
        "initialisation", f"{buffer} holds what is claimed of it before the first step",
        [(_same(found, claim, p), [*given, *a_rank, claim.known])], rank=rank, chunk=chunk,
    )  # fmt: skip


def _same(found: Content, claim: Content, p: Term) -> Term:
    return z3.And(found.known, found.item == claim.item, found.has(p) == claim.has(p))


def _check_form(c: Checker, sent: list[Family], t: Term) -> None:
    def claims() -> Iterator[tuple[Term, list[Term]]]:
        for f in sent:
            s = f.any(c.world)
            peers = [0 <= s.peer, s.peer < c.n]
            yield z3.And(*peers), [s.given]
            for rank, buffer, chunk in ((s.rank, f.buffer, s.chunk), (s.peer, f.to_buffer, s.to)):
                size = size_of(c.world, c.task, buffer, rank)
                inside = [0 <= chunk, *([] if size is None else [chunk < size])]
                yield z3.And(*inside), [s.given, *peers]
            yield z3.BoolVal(f.to_buffer != "in"), [s.given]
            yield f.sent.count >= 1, [f.given]

    c.show("form", "every peer and every chunk that is named exists, and no input is written", claims(), step=t)


def _check_reads(c: Checker, sent: list[Family], now: State, t: Term) -> None:
    def claims() -> Iterator[tuple[Term, list[Term]]]:
        for f in sent:
            s = f.any(c.world)
            yield now[f.buffer](s.rank, s.chunk).known, [s.given]
            if f.action == "reduce":
                here, there = now[f.buffer](s.rank, s.chunk), now[f.to_buffer](s.peer, s.to)
                yield z3.And(there.known, here.item == there.item), [s.given]

    c.show("reads", "what is sent, and what is reduced into, is there and of one chunk", claims(), step=t)


def _check_races(c: Checker, sent: list[Family], t: Term) -> None:
    def claims() -> Iterator[tuple[Term, list[Term]]]:
        for f, g in combinations_with_replacement(sent, 2):
            if f.to_buffer == g.to_buffer and not f.action == g.action == "reduce":
                a, b = f.any(c.world), g.any(c.world)
                yield z3.Not(z3.And(*_meet(f, g, a, b))), [a.given, b.given]

    c.show("races", "no two transfers of a step write one place, unless both reduce", claims(), step=t)


def _meet(f: Family, g: Family, a: Sent, b: Sent) -> list[Term]:
    """Two different transfers go to one place."""
    here = [a.peer == b.peer, a.to == b.to]
    if f is g:
        here.append(z3.Or(*(x != y for x, y in zip(a.key, b.key, strict=True))))
    return here


def _check_once(c: Checker, sent: list[Family], now: State, then: State, t: Term) -> None:
    reducing = [f for f in sent if f.action == "reduce"]
    if not reducing:
        return
    p, a_rank = c.rank("p")

    def claims() -> Iterator[tuple[Term, list[Term]]]:
        for f in reducing:
            s = f.any(c.world)
            brought, there = now[f.buffer](s.rank, s.chunk), now[f.to_buffer](s.peer, s.to)
            claim = then[f.to_buffer](s.peer, s.to)
            yield z3.Not(there.has(p)), [s.given, *a_rank, claim.known, brought.has(p)]
        for f, g in combinations_with_replacement(reducing, 2):
            if f.to_buffer == g.to_buffer:
                a, b = f.any(c.world), g.any(c.world)
                both = [now[f.buffer](a.rank, a.chunk).has(p), now[g.buffer](b.rank, b.chunk).has(p)]
                claim = then[f.to_buffer](a.peer, a.to)
                yield z3.Not(z3.And(*_meet(f, g, a, b), *both)), [a.given, b.given, *a_rank, claim.known]

    c.show("exactly once", "no contribution is added that is there already, or that another adds", claims(), step=t, p=p)


def _check_place(c: Checker, buffer: str, sent: list[Family], now: State, then: State, t: Term) -> None:
    """What arrives is claimed; what is claimed and new has arrived."""
    rank, chunk, given = c.place(buffer)
    p, a_rank = c.rank("p")
    claim, had = then[buffer](rank, chunk), now[buffer](rank, chunk)

    def arrived() -> Iterator[tuple[Term, list[Term]]]:
        for f in sent:
            s = f.any(c.world)
            brought, wanted = now[f.buffer](s.rank, s.chunk), then[buffer](s.peer, s.to)
            hypotheses = [s.given, *a_rank, wanted.known]
            if f.action == "copy":
                yield z3.And(brought.item == wanted.item, brought.has(p) == wanted.has(p)), hypotheses
            else:
                yield z3.And(brought.item == wanted.item, z3.Implies(brought.has(p), wanted.has(p))), hypotheses

    c.show("preservation", f"what arrives in {buffer} is claimed of it", arrived(), step=t, p=p)
    copied = [_goes(s, rank, chunk) for f in sent if f.action == "copy" for s in f.into(c.n, rank, chunk, p)]
    reduced = [
        z3.And(_goes(s, rank, chunk), now[f.buffer](s.rank, s.chunk).has(p))
        for f in sent
        if f.action == "reduce"
        for s in f.into(c.n, rank, chunk, p)
    ]
    replaced = z3.Or(z3.Not(had.known), had.item != claim.item, z3.And(had.has(p), z3.Not(claim.has(p))))
    gained = z3.And(had.known, claim.has(p), z3.Not(had.has(p)))
    hypotheses = [*given, *a_rank, claim.known]
    c.show(
        "preservation", f"what is claimed of {buffer} is there still, or has arrived",
        [
            (_one_of(c, copied, [*hypotheses, replaced]), [*hypotheses, replaced]),
            (_one_of(c, copied + reduced, [*hypotheses, gained]), [*hypotheses, gained]),
        ],
        step=t, rank=rank, chunk=chunk, p=p,
    )  # fmt: skip


def _goes(s: Sent, rank: Term, chunk: Term) -> Term:
    return z3.And(s.given, s.peer == rank, s.to == chunk)


def _one_of(c: Checker, guesses: list[Term], hypotheses: list[Term]) -> Term:
    """The first guess that holds always, or else all of them together."""
    if c.world.refute(*hypotheses)[0] == "unsat":
        return z3.BoolVal(False)
    for guess in guesses:
        if c.world.refute(*hypotheses, z3.Not(guess))[0] == "unsat":
            return guess
    return z3.Or(*guesses[:GUESSES]) if guesses else z3.BoolVal(False)


def _check_end(c: Checker, state: State) -> None:
    world, task = c.world, c.task
    rank, chunk, given = c.place("out")
    p, a_rank = c.rank("p")
    stored = chunk
    if task.stored is not None:
        stored = number(world, task.stored(Number(world, rank), Number(world, chunk))).term
    works_in = task.sink
    goal = _same(state[works_in](rank, stored), finished(world, task, rank, stored), p)
    c.show(
        "postcondition", "every output chunk holds exactly what the collective wants",
        [(goal, [*given, *a_rank])], rank=rank, chunk=chunk,
    )  # fmt: skip
