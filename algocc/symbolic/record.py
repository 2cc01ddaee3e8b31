"""Run the function that writes a schedule with an unknown n, and keep what it asks for.

The very code of the schedule and of its rules is executed: `rebound` gives a function the same code with other
globals, in which `Steps`, the collectives, the logarithms and `range` and `sum` are those of this module.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from types import CodeType, FrameType, FunctionType
from typing import Any

import z3

from algocc.invariant import Invariants
from algocc.schedules import arithmetic
from algocc.steps import Steps, caller
from algocc.symbolic.number import Number, Truth, number
from algocc.symbolic.series import Series, is_series, term_of
from algocc.symbolic.task import TASKS, Task
from algocc.symbolic.theory import Term, pow2
from algocc.symbolic.world import Unprovable, World


@dataclass(frozen=True)
class Phase:
    """One call of `Steps.rule`.

    steps: how many, as a number that may be unknown.
    start: the first step of it in the schedule, where n is given; else 0.
    """

    rule: Callable[..., Any]
    steps: Any
    action: str
    first: int
    buffer: str | None
    to_buffer: str | None
    invariant: Invariants
    start: int = 0

    @property
    def code(self) -> CodeType:
        """The code of the rule."""
        function: Any = self.rule
        while isinstance(function, partial):
            function = function.func
        if not isinstance(function, FunctionType):
            raise Unprovable(f"the rule {function!r:.60} is no Python function")
        return function.__code__

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.code.co_name

    @property
    def where(self) -> str:
        """File and line of the rule."""
        return f"{self.code.co_filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{self.code.co_firstlineno}"


@dataclass
class Recorder:
    """Stands for `Steps` where n is unknown: it keeps the rules and writes no rows."""

    collective: Task
    name: str = ""
    load: bool = True
    phases: list[Phase] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.load:
            raise Unprovable(f"{_line()}: Steps(…, load=False) is not covered; leave the load to the collective")

    @property
    def n(self) -> Any:
        """Number of ranks."""
        return self.collective.n

    def rule(
        self, rule: Callable[..., Any], *, steps: Any, action: str = "copy", first: int = 0,
        buffer: str | None = None, to_buffer: str | None = None, invariant: Invariants = None,
    ) -> None:  # fmt: skip
        """As `Steps.rule`."""
        self.phases.append(Phase(rule, steps, action, first, buffer, to_buffer, invariant))

    def step(self) -> AbstractContextManager[None]:
        """Refused."""
        raise Unprovable(f"{_line()}: a step written by hand: for every n at once, write it as a rule")


class Observer(Steps):
    """`Steps` that remembers its rules, for a given n."""

    seen: list[Phase]

    def rule(self, rule: Any, *, steps: int, **how: Any) -> None:
        """As `Steps.rule`."""
        if not hasattr(self, "seen"):
            self.seen = []
        known = {"action": "copy", "first": 0, "buffer": None, "to_buffer": None, "invariant": None, **how}
        self.seen.append(Phase(rule, steps, start=self._step + 1, **known))
        super().rule(rule, steps=steps, **how)


def observed(write: Callable[..., Any]) -> Callable[..., Any]:
    """The function that writes a schedule, made to return an `Observer`."""
    return rebound(write, {id(Steps): Observer})


def recorded(world: World, write: Callable[..., Any], logs: Logarithms) -> Any:
    """The function that writes a schedule, made to return a `Recorder` for unknown n."""
    swaps: dict[int, Any] = {
        id(Steps): Recorder,
        id(arithmetic.floor_log): logs.floor,
        id(arithmetic.ceil_log): logs.ceil,
        **{id(constructor): task for constructor, task in TASKS.items()},
    }
    def series(function: FunctionType, moved: FunctionType) -> Any:
        if not is_series(function):
            return moved

        def read(one: Any, terms: Any) -> Any:
            inside = {**swaps, id(arithmetic.floor_log): _exact_log}
            return rebound(function, inside, {"range": one, "sum": terms})

        return Series(world, moved, lambda clean, i, args: term_of(clean, read, i, args))

    return rebound(write, swaps, {"range": partial(unknown_range, world)}, series)


def _exact_log(n: Any, base: int = 2) -> Any:
    """The logarithm of a number that is made as a power of two."""
    if base != 2 or not isinstance(n, Number) or n.log is None:
        raise Unprovable(f"the logarithm of {n} to base {base} in a sum: of a power of two only")
    return Number(n.world, n.log)


def rebound(
    function: Callable[..., Any],
    swaps: dict[int, Any],
    built_in: dict[str, Any] | None = None,
    other: Callable[[FunctionType, FunctionType], Any] = lambda function, moved: moved,
) -> Any:
    """The same code, in a world where some objects, by identity, are others; so for the functions it calls.

    other: what is to stand for a function that it calls, given that and its moved copy.
    """
    worlds: dict[int, dict[str, Any]] = {}
    home = getattr(function, "__module__", "")

    def moved(f: FunctionType) -> FunctionType:
        new = FunctionType(f.__code__, world_of(f), f.__name__, f.__defaults__, f.__closure__)
        new.__kwdefaults__, new.__dict__, new.__module__ = f.__kwdefaults__, f.__dict__, f.__module__
        return new

    def world_of(f: FunctionType) -> dict[str, Any]:
        key = id(f.__globals__)
        if key not in worlds:
            new = worlds[key] = dict(f.__globals__)
            new["__builtins__"] = {**vars(builtins), **(built_in or {})}
            for name, value in f.__globals__.items():
                if id(value) in swaps:
                    new[name] = swaps[id(value)]
                elif isinstance(value, FunctionType) and _is_rule_code(value, home):
                    new[name] = other(value, moved(value))
        return worlds[key]

    if not isinstance(function, FunctionType):
        raise Unprovable(f"{function!r:.60} is no Python function: its code can't be read")
    return moved(function)


def _is_rule_code(f: FunctionType, home: str) -> bool:
    return f.__module__ == home or str(f.__module__).startswith("algocc.schedules.")


@dataclass
class Logarithms:
    """The logarithms of n, defined when they are first asked for."""

    world: World
    root: Number

    def floor(self, n: Any, base: int = 2) -> Any:
        """`arithmetic.floor_log`."""
        d = self._exact(n, base)
        if d is None:
            d = z3.Int("floor_log_n")
            self.world.define(d >= 0, pow2(d) <= self.root.term, self.root.term < 2 * pow2(d))
        return Number(self.world, d)

    def ceil(self, n: Any, base: int = 2) -> Any:
        """`arithmetic.ceil_log`."""
        d = self._exact(n, base)
        if d is None:
            d = z3.Int("ceil_log_n")
            self.world.define(d >= 0, self.root.term <= pow2(d), pow2(d) < 2 * self.root.term)
        return Number(self.world, d)

    def _exact(self, n: Any, base: int) -> Term | None:
        n = number(self.world, n)
        if base != 2:
            raise Unprovable(f"the logarithm of {n} to base {base}: base 2 only")
        if n.log is None and not z3.eq(n.term, self.root.term):
            raise Unprovable(f"the logarithm of {n}: of n itself only")
        return n.log


def unknown_range(world: World, *bounds: Any) -> Any:
    """`range`; with an unknown bound, one number that stands for all in it, where that is sound."""
    if not any(isinstance(b, (Number, Truth)) for b in bounds):
        return range(*bounds)
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    ends = [world.constant(number(world, b).term) for b in (low, high)]
    if len(bounds) <= 2 and None not in ends:
        return range(*ends)  # type: ignore[arg-type]
    frame = sys._getframe(1)
    if len(bounds) > 2 or not _feeds_the_answer(frame, world.rule):
        raise Unprovable(
            f"{_place(frame)}: range up to an unknown number: only as `return [… for x in range(…)]` of the rule itself, "
            "or as `return sum(… for x in range(…))` of a function that does nothing else"
        )
    return _one_for_all(world, number(world, low).term, number(world, high).term)


def _one_for_all(world: World, low: Term, high: Term) -> Iterator[Number]:
    x = world.fresh("each")
    world.assume(low <= x, x < high)
    world.bound.append((x, low, high))
    yield Number(world, x)


@cache
def _tree(path: str, size: int) -> ast.Module:
    return ast.parse("".join(linecache.getlines(path)))


def _feeds_the_answer(frame: FrameType, rule: CodeType | None) -> bool:
    """Whether the call of `range` that a frame is in feeds the list that the rule returns, and nothing else.

    Then what the rule returns is exactly what one number that stands for all yields, for every number in the range:
    a list comprehension carries nothing from one element to the next, if it assigns nothing.
    """
    if frame.f_code is not rule:
        return False
    at = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    linecache.checkcache(frame.f_code.co_filename)
    lines = linecache.getlines(frame.f_code.co_filename)
    for node in ast.walk(_tree(frame.f_code.co_filename, hash(tuple(lines)))):
        if not isinstance(node, ast.Return) or not isinstance(node.value, ast.ListComp):
            continue
        made = node.value
        call = made.generators[0].iter
        if (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == at:
            return isinstance(call, ast.Call) and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(made))
    return False


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame.f_lineno}"


def _line() -> str:
    """The line of the schedule that is being run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(__name__):
        frame = frame.f_back
    return _place(frame) if frame else caller()
