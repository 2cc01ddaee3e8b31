"""What a rule sends in a step, as families: one transfer for every rank, and every number it ranges over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from algocc.steps import Transfer
from algocc.symbolic.number import Number, number, truth
from algocc.symbolic.record import Phase
from algocc.symbolic.task import Task
from algocc.symbolic.theory import MOD, Term
from algocc.symbolic.world import World, conjunction, written_by_others


@dataclass(frozen=True)
class Sent:
    """One chunk of one transfer: from `chunk` of `rank` to `to` of `peer`.

    given: the conditions under which it is sent.
    key: the numbers that tell it from the others of its family.
    """

    given: Term
    rank: Term
    peer: Term
    chunk: Term
    to: Term
    count: Term
    key: tuple[Term, ...]


@dataclass(frozen=True)
class Family:
    """The transfers of a step that one `Transfer` of a rule says.

    names: the unknowns: the rank, then what the rule ranges over, then the part of a transfer of several chunks.
    given: the conditions under which it is sent, of all its chunks.
    """

    action: str
    buffer: str
    to_buffer: str
    sent: Sent
    names: tuple[Term, ...]
    each: tuple[Term, ...]
    part: Term | None
    given: Term

    def at(self, *values: Term) -> Sent:
        """The member with these numbers."""
        places = list(zip(self.names, values, strict=True))

        def fill(term: Term) -> Term:
            return z3.substitute(term, *places)

        s = self.sent
        return Sent(fill(s.given), fill(s.rank), fill(s.peer), fill(s.chunk), fill(s.to), fill(s.count), values)

    def any(self, world: World) -> Sent:
        """Some member."""
        return self.at(*(world.fresh(str(name).split("!")[0]) for name in self.names))

    def into(self, n: Term, rank: Term, chunk: Term, p: Term) -> Iterator[Sent]:
        """Members that might bring the contribution of rank p to a place, likely ones first: a guess, to be proved."""
        zeros = tuple(z3.IntVal(0) for _ in self.names[1:])
        there = self.at(rank, *zeros).peer
        back = MOD(2 * rank - there, n)
        ranks = [back, there, p, chunk, rank] if not self.each else [p, chunk, rank]
        for sender in ranks:
            for each in self._each(n, sender, zeros, rank, chunk, p):
                if self.part is None:
                    yield self.at(sender, *each)
                else:
                    first = self.at(sender, *each, z3.IntVal(0)).to
                    yield self.at(sender, *each, z3.simplify(chunk - first))

    def _each(
        self, n: Term, sender: Term, zeros: tuple[Term, ...], rank: Term, chunk: Term, p: Term
    ) -> Iterator[tuple[Term, ...]]:
        if not self.each:
            yield ()
        elif len(self.each) == 1:
            near = self.at(sender, *zeros).peer
            yield from ((h,) for h in (MOD(rank - near, n), rank - near, near - rank, p, chunk))
        # Ranging over more than one number: no guess.


def families(world: World, task: Task, phase: Phase, step: Term) -> list[Family]:
    """Evaluate the rule of a phase once, for an unknown rank; `step` counts from the first of the phase."""
    rank = world.fresh("sender")
    n = number(world, task.n).term
    world.rule = phase.code
    found: list[Family] = []
    try:
        paths = world.paths(lambda: _evaluate(world, task, phase, rank, step), 0 <= rank, rank < n)
    finally:
        world.rule = None
    for path in paths:
        said, each = path.result
        for transfer in said if isinstance(said, list) else [said]:
            found.append(_family(world, task, phase, transfer, path.conditions, rank, n, each))
    return found


def _evaluate(world: World, task: Task, phase: Phase, rank: Term, step: Term) -> tuple[Any, tuple[Term, ...]]:
    before = len(world.bound)
    with written_by_others(phase.name):
        said = phase.rule(Number(world, rank), Number(world, step) + phase.first, task.n)
    return said, tuple(x for x, _, _ in world.bound[before:])


def _family(
    world: World, task: Task, phase: Phase, said: Any, conditions: tuple[Term, ...], rank: Term, n: Term,
    each: tuple[Term, ...],
) -> Family:  # fmt: skip
    t = said if isinstance(said, Transfer) else Transfer(*said)
    chunk = number(world, t.chunk).term
    to = chunk if t.to is None else number(world, t.to).term
    count = number(world, t.count).term
    part = None if isinstance(t.count, int) and t.count == 1 else world.fresh("part")
    given = [*conditions, truth(world, t.when).term, 0 <= rank, rank < n]
    whole = conjunction(given)
    if part is not None:
        given += [0 <= part, part < count]
        chunk, to = chunk + part, to + part
    names = (rank, *each, *(() if part is None else (part,)))
    sent = Sent(conjunction(given), rank, number(world, t.peer).term, chunk, to, count, names)
    action = "reduce" if (t.action or phase.action) == "prereduce" else t.action or phase.action
    source = t.buffer or phase.buffer or task.source
    sink = t.to_buffer or phase.to_buffer or task.sink
    return Family(action, source, sink, sent, names, each, part, whole)
