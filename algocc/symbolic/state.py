"""What every place holds, as formulas: the invariants of a phase, and what the load leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from algocc.invariant import ANYTHING, FINISHED, Claim, Holds, Invariant
from algocc.symbolic.number import Number, number, truth
from algocc.symbolic.record import Phase
from algocc.symbolic.task import Task
from algocc.symbolic.theory import Term
from algocc.symbolic.world import Path, Unprovable, World, conjunction, written_by_others


@dataclass(frozen=True)
class Content:
    """What one place holds.

    known: whether anything is claimed.
    item: the input chunk, of each rank that is in it.
    has: whether the contribution of a rank is in it.
    """

    known: Term
    item: Term
    has: Callable[[Term], Term]


View = Callable[[Term, Term], Content]
"""The content of a buffer by rank and chunk."""
State = Mapping[str, View]


def nothing(rank: Term, chunk: Term) -> Content:
    """No claim."""
    return Content(z3.BoolVal(False), z3.IntVal(0), lambda p: z3.BoolVal(False))


def input_of(world: World, task: Task) -> View:
    """The input: each chunk is the rank's own contribution, and never changes."""

    def view(rank: Term, chunk: Term) -> Content:
        size = number(world, task.inputs(Number(world, rank))).term
        return Content(z3.And(0 <= chunk, chunk < size), chunk, lambda p: p == rank)

    return view


def loaded(world: World, task: Task) -> View:
    """What the load puts into the sink."""

    def view(rank: Term, chunk: Term) -> Content:
        r, c = Number(world, rank), Number(world, chunk)
        item = number(world, task.load_from(r, c)).term
        return Content(truth(world, task.loaded(r, c)).term, item, lambda p: p == rank)

    return view


def size_of(world: World, task: Task, buffer: str, rank: Term) -> Term | None:
    """Chunks of a buffer of a rank; None for scratch, which is as large as its use."""
    if buffer == "scratch":
        return None
    return number(world, (task.inputs if buffer == "in" else task.outputs)(Number(world, rank))).term


def spoken_of(world: World, task: Task, buffer: str, rank: Term) -> Term | None:
    """Chunks of a buffer of a rank that an invariant speaks of; None if of all."""
    if buffer == "scratch":
        return None if task.work is None else number(world, task.work).term
    return size_of(world, task, buffer, rank)


def finished(world: World, task: Task, rank: Term, chunk: Term) -> Content:
    """What a place must hold at the end where the rules work."""
    holds = task.finished(Number(world, rank), Number(world, chunk))
    return Content(
        z3.BoolVal(True),
        number(world, chunk_of(holds, Number(world, chunk))).term,
        lambda p: truth(world, holds.ranks(Number(world, p))).term,
    )


def chunk_of(holds: Holds, chunk: Any) -> Any:
    """The input chunk that is held."""
    return chunk if holds.of is None else holds.of


@dataclass(frozen=True)
class Said:
    """A claim as terms, in the variables of `Template`."""

    known: bool
    item: Term
    has: Term


class Template:
    """An invariant, read once with unknowns for rank, chunk and step, then filled in."""

    def __init__(self, world: World, task: Task, phase: Phase, buffer: str, invariant: Invariant) -> None:
        self.rank, self.chunk, self.step, self.p = (world.fresh(v) for v in ("rank", "chunk", "step", "p"))
        n = number(world, task.n).term
        size = spoken_of(world, task, buffer, self.rank)
        given = [0 <= self.rank, self.rank < n, 0 <= self.p, self.p < n, 0 <= self.chunk]
        given += [self.step >= 0, self.step <= number(world, phase.steps).term]
        given += [] if size is None else [self.chunk < size]
        self.inside = z3.BoolVal(True) if size is None else self.chunk < size
        self.paths = world.paths(lambda: self._say(world, task, invariant), *given)

    def _say(self, world: World, task: Task, invariant: Invariant) -> Said:
        rank, chunk = Number(world, self.rank), Number(world, self.chunk)
        with written_by_others("the invariant"):
            claim: Claim = invariant(rank, chunk, Number(world, self.step), task.n)
        if claim is ANYTHING:
            return Said(False, z3.IntVal(0), z3.BoolVal(False))
        if claim is FINISHED:
            claim = task.finished(rank, chunk)
        if not isinstance(claim, Holds):
            raise Unprovable(f"an invariant says Holds(…), FINISHED or ANYTHING, found {claim!r:.60}")
        with written_by_others("the invariant"):
            has = truth(world, claim.ranks(Number(world, self.p))).term
        return Said(True, number(world, chunk_of(claim, chunk)).term, has)

    def at(self, step: Term) -> View:
        """The claims after so many steps."""

        def view(rank: Term, chunk: Term) -> Content:
            places = [(self.rank, rank), (self.chunk, chunk), (self.step, step)]

            def has(p: Term) -> Term:
                return z3.substitute(_cases(self.paths, lambda said: said.has, z3.BoolVal(False)), *places, (self.p, p))

            p = self.p  # what is known, and of which chunk, may not depend on the rank that is asked about
            known = [conjunction(path.conditions) for path in self.paths if path.result.known]
            item = _cases(self.paths, lambda said: said.item, z3.IntVal(0))
            known_at = z3.substitute(z3.And(self.inside, z3.Or(*known)), *places)
            if any(_mentions(path.conditions, p) for path in self.paths):
                raise Unprovable("an invariant branches on the rank that a set is asked about; write it without `if`")
            return Content(known_at, z3.substitute(item, *places), has)

        return view


def _cases(paths: list[Path[Said]], pick: Callable[[Said], Term], otherwise: Term) -> Term:
    term = otherwise
    for path in reversed(paths):
        term = z3.If(conjunction(path.conditions), pick(path.result), term)
    return term


def _mentions(terms: Any, variable: Term) -> bool:
    stack = list(terms)
    seen = set()
    while stack:
        term = stack.pop()
        if z3.eq(term, variable):
            return True
        if term.get_id() not in seen:
            seen.add(term.get_id())
            stack += term.children()
    return False
