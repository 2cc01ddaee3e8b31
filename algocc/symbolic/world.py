"""What is known about the numbers of a proof, and the ways that a function may go on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import z3

from algocc.errors import AlgoccError
from algocc.symbolic.theory import Term, ground

T = TypeVar("T")
PATHS = 64
"""Ways through one function beyond which the proof gives up."""


class Unprovable(AlgoccError):
    """What this prover can't put into formulas; no statement about the schedule."""


@dataclass(frozen=True)
class Path(Generic[T]):
    """One way through a function: what it returned, and the conditions under which it goes that way."""

    conditions: tuple[Term, ...]
    result: T


class World:
    """Facts, and the solver that draws conclusions from them.

    timeout: seconds for one question.
    """

    def __init__(self, timeout: float = 10) -> None:
        self.facts: list[Term] = []
        self.definitions: list[Term] = []
        self.series: dict[str, Any] = {}
        self.timeout = timeout
        self.questions = 0
        self.rule: Any = None
        self.bound: list[tuple[Term, Term, Term]] = []
        self._script: list[bool] | None = None
        self._taken: list[bool] = []
        self._todo: list[list[bool]] = []
        self._fresh = 0
        self._known: dict[tuple[int, ...], tuple[Any, bool]] = {}

    def fresh(self, name: str) -> Term:
        """A whole number that nothing is known of."""
        self._fresh += 1
        return z3.Int(f"{name}!{self._fresh}")

    def assume(self, *facts: Term) -> None:
        """Take these as given, until the scope ends."""
        self.facts += facts

    def define(self, *facts: Term) -> None:
        """Introduce a number by what is true of exactly one number, whatever else is."""
        self.definitions += [f for f in facts if not any(z3.eq(f, g) for g in self.definitions)]

    @contextmanager
    def scope(self, *facts: Term) -> Iterator[None]:
        """While the body runs these are given too, and so is what it assumes."""
        size = len(self.facts)
        self.facts += facts
        try:
            yield
        finally:
            del self.facts[size:]

    def refute(self, *claims: Term) -> tuple[str, Any]:
        """Whether the facts and these claims contradict each other: ("unsat", None), ("sat", model) or ("unknown", None)."""
        solver = z3.Solver()
        solver.set("timeout", int(self.timeout * 1000))
        formulas = [z3.simplify(f) for f in (*self.definitions, *self.facts, *claims)]
        solver.add(*formulas)
        solver.add(*ground(formulas, self.series))
        self.questions += 1
        verdict = str(solver.check())
        return verdict, solver.model() if verdict == "sat" else None

    def entails(self, claim: Term) -> bool:
        """Whether the facts leave no way for the claim to be false."""
        claim = z3.simplify(claim)
        if z3.is_true(claim) or z3.is_false(claim):
            return z3.is_true(claim)
        key = (claim.get_id(), len(self.definitions), *(f.get_id() for f in self.facts))
        if key not in self._known:
            # The terms are kept: their numbers are theirs as long as they live.
            self._known[key] = ((claim, *self.facts), self.refute(z3.Not(claim))[0] == "unsat")
        return self._known[key][1]

    def constant(self, term: Term) -> int | None:
        """The one value that the facts leave for a term, if there is one."""
        term = z3.simplify(term)
        if z3.is_int_value(term):
            return int(term.as_long())
        value_of = z3.Int("value")
        verdict, model = self.refute(value_of == term)
        if verdict != "sat":
            return None
        value = model.eval(value_of, model_completion=True)
        return int(value.as_long()) if z3.is_int_value(value) and self.entails(term == value) else None

    def decide(self, claim: Term) -> bool:
        """The truth of a claim, for a Python `if`: known, or each in turn."""
        if self.entails(claim):
            return True
        if self.entails(z3.Not(claim)):
            return False
        if self._script is None:
            raise Unprovable(f"branches on {claim}, which is true for some numbers and false for others")
        at = len(self._taken)
        if at < len(self._script):
            taken = self._script[at]
        else:
            taken = True
            self._todo.append([*self._taken, False])
        self._taken.append(taken)
        self.assume(claim if taken else z3.Not(claim))
        return taken

    def paths(self, function: Callable[[], T], *given: Term) -> list[Path[T]]:
        """Every way through a function under what is given; the conditions of the paths cover all cases.

        The conditions are what the function assumed on its way, branches and bound numbers alike.

        Raises Unprovable for more than 64 ways.
        """
        saved = self._script, self._taken, self._todo
        found: list[Path[T]] = []
        self._todo = [[]]
        try:
            while self._todo:
                if len(found) >= PATHS:
                    raise Unprovable(f"branches in more than {PATHS} ways: too many to follow")
                self._script, self._taken = self._todo.pop(), []
                with self.scope(*given):
                    size = len(self.facts)
                    result = function()
                    found.append(Path(tuple(self.facts[size:]), result))
        finally:
            self._script, self._taken, self._todo = saved
        return found

    @contextmanager
    def straight(self) -> Iterator[None]:
        """While the body runs nothing may branch."""
        saved, self._script = self._script, None
        try:
            yield
        finally:
            self._script = saved


@contextmanager
def written_by_others(what: str) -> Iterator[None]:
    """The body runs the code of a schedule; whatever fails in it is Unprovable.

    what: what it is.
    """
    try:
        yield
    except AlgoccError:
        raise
    except Exception as error:
        raise Unprovable(f"{what} does not take unknown numbers: {type(error).__name__}: {error}") from error


def conjunction(terms: Sequence[Term]) -> Term:
    """All of them."""
    return z3.And(*terms) if terms else z3.BoolVal(True)
