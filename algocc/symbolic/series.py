"""Sums of an unknown number of terms: functions of the form `return sum(f(i, …) for i in range(…))`.

Such a function becomes one that the solver does not look into, K(…), and what it knows of it are lemmas. Each is
proved first, of the terms f and for every i, and then holds of the sums; with v and x two of the arguments:

    grows    f(i, v + 1) = f(i, v) for i ≠ v, and f(i, v) = 0 for i ≥ v, so K(0) = 0 and K(v + 1) = K(v) + f(v, v + 1)
    low      if it grows with v, and f(i, x) = f(i, x mod 2^v) for i < v, then K(x, v) = K(x mod 2^v, v)
    bounded  if it grows with v, 0 ≤ f(i, v) ≤ 2^(d-1-i) for i < v and there are d terms, then 0 ≤ K ≤ 2^d - 2^(d-v)
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import z3

from algocc.symbolic.number import Number, number
from algocc.symbolic.theory import DOWN, Term, pow2
from algocc.symbolic.world import Unprovable, World


def is_series(function: FunctionType) -> bool:
    """Whether the function is `return sum(… for i in range(…))` and nothing else."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return False
    body = [s for s in definition.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return):
        return False
    match body[0].value:
        case ast.Call(
            func=ast.Name("sum"),
            args=[ast.GeneratorExp(generators=[ast.comprehension(iter=ast.Call(func=ast.Name("range")), ifs=[])])],
            keywords=[],
        ):
            return not any(isinstance(node, ast.NamedExpr) for node in ast.walk(body[0]))
    return False


class Series:
    """Such a function, of unknown numbers.

    read: the function, with `range` and `sum` replaced: it returns the term f(i, …) and where i ends.
    """

    def __init__(self, world: World, function: Callable[..., Any], read: Callable[..., Any]) -> None:
        self.world, self.function, self.read = world, function, read
        self.made: dict[tuple[bool, ...], Sum] = {}

    def __call__(self, *args: Any) -> Any:
        if not any(isinstance(a, Number) for a in args):
            return self.function(*args)
        numbers = [number(self.world, a) for a in args]
        logs = [a.log if isinstance(raw, Number) else None for a, raw in zip(numbers, args, strict=True)]
        shape = tuple(log is not None for log in logs)
        if shape not in self.made:
            self.made[shape] = Sum(self.world, f"{self.function.__name__}#{len(self.world.series)}", self.read, shape)
            self.world.series[self.made[shape].name] = self.made[shape]
        terms = [a.term if log is None else log for a, log in zip(numbers, logs, strict=True)]
        return Number(self.world, self.made[shape].function(*terms))


class Sum:
    """K: its terms and the lemmas that hold of it.

    logs: which arguments are powers of two; of those it is given the logarithm.
    """

    def __init__(self, world: World, name: str, read: Callable[..., Any], logs: tuple[bool, ...]) -> None:
        self.name = name
        self.function = z3.Function(name, *(z3.IntSort() for _ in logs), z3.IntSort())
        clean = World(world.timeout)
        self.i = z3.Int("i")
        self.args = [z3.Int(f"a{k}") for k in range(len(logs))]
        given = [a >= 0 for a, log in zip(self.args, logs, strict=True) if log]
        numbers = [
            Number(clean, pow2(a) if log else a, log=a if log else None) for a, log in zip(self.args, logs, strict=True)
        ]
        with clean.scope(*given):
            self.term, self.end = read(clean, self.i, numbers)
            clean.assume(0 <= self.i, self.i < self.end)
            self.grows = [v for v in self.args if self._grows(clean, v)]
            self.low = [(x, v) for v in self.grows for x in self.args if x is not v and self._low(clean, x, v)]
            self.bounded = [v for v in self.grows if self._bounded(clean, v)]

    def _at(self, term: Term, *places: tuple[Term, Term]) -> Term:
        return z3.substitute(term, *places)

    def _grows(self, world: World, v: Term) -> bool:
        f, more = self.term, self._at(self.term, (v, v + 1))
        same_end = self._at(self.end, (v, v + 1)) == self.end
        return world.entails(z3.Implies(v >= 0, z3.And(same_end, z3.Implies(self.i != v, f == more)))) and world.entails(
            z3.Implies(z3.And(v >= 0, self.i >= v), f == 0)
        )

    def _low(self, world: World, x: Term, v: Term) -> bool:
        rest = self._at(self.term, (x, x - DOWN(x, v)))
        same_end = self._at(self.end, (x, x - DOWN(x, v))) == self.end
        return world.entails(z3.Implies(v >= 0, z3.And(same_end, z3.Implies(self.i < v, self.term == rest))))

    def _bounded(self, world: World, v: Term) -> bool:
        inside = z3.And(0 <= self.term, self.term <= pow2(self.end - 1 - self.i))
        return world.entails(z3.Implies(z3.And(0 <= v, self.i < v), inside))

    def axioms(self, old: list[Term], new: list[Term]) -> Iterator[Term]:
        """What the lemmas say of these sums."""
        for a in new:
            here = list(zip(self.args, a.children(), strict=True))
            for v in self.grows:
                yield z3.Implies(self._at(v, *here) == 0, a == 0)
            for v in self.bounded:
                at, end = self._at(v, *here), self._at(self.end, *here)
                yield z3.Implies(z3.And(0 <= at, at <= end), z3.And(0 <= a, a <= pow2(end) - pow2(end - at)))
        for a in new:
            for b in [*new, *old]:
                if not z3.eq(a, b):
                    yield from self._step(a, b)
                    yield from self._step(b, a)

    def _step(self, a: Term, b: Term) -> Iterator[Term]:
        """Of one more term in b than in a, or as many."""
        at_a, at_b = (list(zip(self.args, s.children(), strict=True)) for s in (a, b))
        for v in self.grows:
            v_a, v_b = self._at(v, *at_a), self._at(v, *at_b)
            lows = [x for x, w in self.low if w is v]
            same = [
                p - DOWN(p, v_a) == q - DOWN(q, v_a) if any(x is arg for x in lows) else p == q
                for (arg, p), (_, q) in zip(at_a, at_b, strict=True)
                if arg is not v
            ]
            last = self._at(self.term, (self.i, v_a), *at_b)
            inside = z3.And(0 <= v_a, v_a < self._at(self.end, *at_b))
            yield z3.Implies(z3.And(v_b == v_a + 1, inside, *same), b == a + last)
            yield z3.Implies(z3.And(v_b == v_a, v_a >= 0, *same), a == b)


def term_of(world: World, function: Callable[..., Any], i: Term, args: list[Number]) -> tuple[Term, Term]:
    """The term and the end of a series: run once, with i for the number it ranges over."""
    ranges: list[Any] = []

    def one(*bounds: Any) -> Iterator[Number]:
        if len(bounds) != 1:
            raise Unprovable(f"{function.__name__}: a sum over range(…) of one argument only")
        ranges.append(number(world, bounds[0]).term)
        world.assume(0 <= i, i < ranges[0])
        yield Number(world, i)

    def terms(items: Any) -> Any:
        (item,) = items
        return number(world, item).term

    with world.scope(), world.straight():
        term = function(one, terms)(*args)
    return term, ranges[0]
