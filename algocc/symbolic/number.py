"""Whole numbers and truths that stand for any: what a rule is given in place of rank, step and n.

They do what ints and arrays do: + - * // % ** ^ and comparisons, & | ~ of truths, `np.where`, `np.minimum` and
`np.maximum`. What a solver of linear arithmetic can't say, such as a product of two unknowns, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import z3

from algocc.symbolic.theory import DOWN, MOD, QUO, Term, pow2
from algocc.symbolic.world import Unprovable, World


class Number:
    """A whole number, as a term of the solver.

    log: its logarithm, if it is made as a power of two.
    part: (x, e) if it is x // 2^e.
    bit: the truth that it is 1, if it is 0 or 1.
    """

    __slots__ = ("bit", "log", "part", "term", "world")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, world: World, term: Term, *, log: Term = None, part: tuple[Term, Term] | None = None, bit: Term = None
    ) -> None:
        self.world, self.term, self.log, self.part, self.bit = world, term, log, part, bit

    def __repr__(self) -> str:
        return str(self.term)

    def __add__(self, other: Any) -> Number:
        return self._with(other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Number:
        return self._with(other, lambda a, b: b + a)

    def __sub__(self, other: Any) -> Number:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Number:
        return self._with(other, lambda a, b: b - a)

    def __neg__(self) -> Number:
        return Number(self.world, -self.term)

    def __pos__(self) -> Number:
        return self

    def __mul__(self, other: Any) -> Number:
        return product(self, number(self.world, other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Number:
        return quotient(self, number(self.world, other))

    def __rfloordiv__(self, other: Any) -> Number:
        return quotient(number(self.world, other), self)

    def __mod__(self, other: Any) -> Number:
        return remainder(self, number(self.world, other))

    def __rmod__(self, other: Any) -> Number:
        return remainder(number(self.world, other), self)

    def __divmod__(self, other: Any) -> tuple[Number, Number]:
        return self // other, self % other

    def __rpow__(self, base: Any) -> Number:
        log = _log_of_int(base)
        if log is None:
            raise Unprovable(f"{base} ** {self}: powers of two only")
        return power(self.world, log * self.term)

    def __lshift__(self, other: Any) -> Number:
        return self * 2 ** number(self.world, other)

    def __rlshift__(self, other: Any) -> Number:
        return number(self.world, other) * 2**self

    def __rshift__(self, other: Any) -> Number:
        return self // 2 ** number(self.world, other)

    def __rrshift__(self, other: Any) -> Number:
        return number(self.world, other) // 2**self

    def __xor__(self, other: Any) -> Number:
        return flipped(self, number(self.world, other))

    def __rxor__(self, other: Any) -> Number:
        return flipped(number(self.world, other), self)

    def __eq__(self, other: Any) -> Truth:  # type: ignore[override]
        there = number(self.world, other)
        if self.part and there.part and z3.eq(self.part[1], there.part[1]):
            (x, e), (y, _) = self.part, there.part
            return Truth(self.world, DOWN(x, e) == DOWN(y, e))
        return Truth(self.world, self.term == there.term)

    def __ne__(self, other: Any) -> Truth:  # type: ignore[override]
        return ~(self == other)

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.world, self.term < number(self.world, other).term)

    def __le__(self, other: Any) -> Truth:
        return Truth(self.world, self.term <= number(self.world, other).term)

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.world, self.term > number(self.world, other).term)

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.world, self.term >= number(self.world, other).term)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        raise Unprovable(f"{self}: a number is wanted that is known")

    __int__ = __index__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **rest: Any) -> Any:
        if method != "__call__" or rest or ufunc.__name__ not in UFUNCS:
            raise Unprovable(f"np.{ufunc.__name__}: not one of {', '.join(UFUNCS)}")
        return UFUNCS[ufunc.__name__](self.world, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where or len(args) != 3 or kwargs:
            raise Unprovable(f"np.{function.__name__}: not np.where of three")
        return where(self.world, *args)

    def _with(self, other: Any, combine: Callable[[Term, Term], Term]) -> Number:
        return Number(self.world, combine(self.term, number(self.world, other).term))


class Truth:
    """True or false; in arithmetic 1 or 0."""

    __slots__ = ("term", "world")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, world: World, term: Term) -> None:
        self.world, self.term = world, term

    def __repr__(self) -> str:
        return str(self.term)

    def __and__(self, other: Any) -> Any:
        return Truth(self.world, z3.And(self.term, truth(self.world, other).term))

    def __or__(self, other: Any) -> Any:
        return Truth(self.world, z3.Or(self.term, truth(self.world, other).term))

    def __xor__(self, other: Any) -> Any:
        return Truth(self.world, z3.Xor(self.term, truth(self.world, other).term))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Truth:
        return Truth(self.world, z3.Not(self.term))

    def __bool__(self) -> bool:
        return self.world.decide(self.term)

    def __int__(self) -> int:
        return int(bool(self))

    __index__ = __int__
    __array_ufunc__ = Number.__array_ufunc__
    __array_function__ = Number.__array_function__

    @property
    def number(self) -> Number:
        """1 if true, 0 if false."""
        return Number(self.world, z3.If(self.term, z3.IntVal(1), z3.IntVal(0)), bit=self.term)

    def __add__(self, other: Any) -> Number:
        return self.number + other

    def __radd__(self, other: Any) -> Number:
        return other + self.number

    def __sub__(self, other: Any) -> Number:
        return self.number - other

    def __rsub__(self, other: Any) -> Number:
        return number(self.world, other) - self.number

    def __mul__(self, other: Any) -> Number:
        return self.number * other

    __rmul__ = __mul__

    def __eq__(self, other: Any) -> Any:
        return Truth(self.world, self.term == truth(self.world, other).term)

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)


def number(world: World, value: Any) -> Number:
    """A value as a number; raises Unprovable if it is none."""
    if isinstance(value, Number):
        return value
    if isinstance(value, Truth):
        return value.number
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        value = int(value)
        log = _log_of_int(value)
        return Number(world, z3.IntVal(value), log=None if log is None else z3.IntVal(log))
    raise Unprovable(f"{value!r:.60} of type {type(value).__name__}: whole numbers only")


def truth(world: World, value: Any) -> Truth:
    """A value as a truth; raises Unprovable if it is none."""
    if isinstance(value, Truth):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Truth(world, z3.BoolVal(bool(value)))
    if isinstance(value, (Number, int, np.integer)):
        return Truth(world, number(world, value).term != 0)
    raise Unprovable(f"{value!r:.60} of type {type(value).__name__}: true or false only")


def power(world: World, log: Term) -> Number:
    """2^log; raises Unprovable unless log is known to be 0 or more."""
    log = z3.simplify(log)
    if not world.entails(log >= 0):
        raise Unprovable(f"2 ** ({log}): the exponent may be negative")
    return Number(world, pow2(log), log=log)


def log_of(a: Number) -> Term | None:
    """The logarithm of a number that is known to be a power of two."""
    if a.log is None and z3.is_const(a.term):
        for fact in a.world.facts:  # such as n == pow2(d), from `require(n == floor_power(n), …)`
            if z3.is_eq(fact) and z3.eq(fact.arg(0), a.term) and fact.arg(1).decl().name() == "pow2":
                return fact.arg(1).arg(0)
    return a.log


def product(a: Number, b: Number) -> Number:
    """a * b, if one of them is a given number, a bit, or 2^e and the other x // 2^e."""
    world = a.world
    for x, y in ((a, b), (b, a)):
        if z3.is_int_value(z3.simplify(x.term)):
            logs = log_of(a), log_of(b)
            if logs[0] is not None and logs[1] is not None:
                return power(world, logs[0] + logs[1])
            return Number(world, x.term * y.term)
    for x, y in ((a, b), (b, a)):
        if x.bit is not None:
            return Number(world, z3.If(x.bit, y.term, z3.IntVal(0)), bit=None if y.bit is None else z3.And(x.bit, y.bit))
    for x, y in ((a, b), (b, a)):
        log = log_of(y)
        if x.part and log is not None and world.entails(x.part[1] == log):
            return Number(world, DOWN(*x.part))
    logs = log_of(a), log_of(b)
    if logs[0] is not None and logs[1] is not None:
        return power(world, logs[0] + logs[1])
    for x, y in ((a, b), (b, a)):
        known = world.constant(x.term)
        if known is not None:
            return number(world, known) * y
    raise Unprovable(f"({a}) * ({b}): a product of two unknown numbers")


def quotient(a: Number, b: Number) -> Number:
    """a // b, if b is a given number or a power of two."""
    world = a.world
    known = _given(b)
    top, bottom = log_of(a), log_of(b)
    if top is not None and bottom is not None and world.entails(z3.And(0 <= bottom, bottom <= top)):
        return power(world, top - bottom)
    if known is None and bottom is None:
        known = world.constant(b.term)
    if known is not None and known > 0:
        return Number(world, a.term if known == 1 else a.term / z3.IntVal(known))
    if bottom is not None and world.entails(bottom >= 0):
        return Number(world, QUO(a.term, bottom), part=(a.term, bottom))
    raise Unprovable(f"({a}) // ({b}): divided by neither a given number nor a power of two")


def remainder(a: Number, b: Number) -> Number:
    """a % b, for b known to be 1 or more."""
    world = a.world
    known, log = _given(b), log_of(b)
    if known == 2 and a.part:
        x, e = a.part
        return Truth(world, DOWN(x, e) != DOWN(x, z3.simplify(e + 1))).number
    if known is not None and known > 0:
        rest = a.term % z3.IntVal(known)
        return Number(world, rest, bit=rest == 1 if known == 2 else None)
    if log is not None and world.entails(log >= 0):
        return Number(world, a.term - DOWN(a.term, log))
    if not world.entails(b.term >= 1):
        raise Unprovable(f"({a}) % ({b}): the modulus may be 0 or less")
    return Number(world, MOD(a.term, b.term))


def flipped(a: Number, b: Number) -> Number:
    """a ^ b, where one of them is a power of two: that bit of the other is flipped."""
    world = a.world
    for x, y in ((a, b), (b, a)):
        log = log_of(y)
        if log is not None and world.entails(log >= 0):
            clear = DOWN(x.term, log) == DOWN(x.term, z3.simplify(log + 1))
            return Number(world, z3.If(clear, x.term + y.term, x.term - y.term))
    raise Unprovable(f"({a}) ^ ({b}): neither is known to be a power of two")


def where(world: World, condition: Any, a: Any, b: Any) -> Any:
    """`np.where`."""
    test = truth(world, condition).term
    if all(isinstance(v, (Truth, bool, np.bool_)) for v in (a, b)):
        return Truth(world, z3.If(test, truth(world, a).term, truth(world, b).term))
    return Number(world, z3.If(test, number(world, a).term, number(world, b).term))


def _given(a: Number) -> int | None:
    term = z3.simplify(a.term)
    return int(term.as_long()) if z3.is_int_value(term) else None


def _log_of_int(value: Any) -> int | None:
    """The logarithm of a power of two."""
    value = int(value)
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


def _by(apply: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def ufunc(world: World, a: Any, b: Any) -> Any:
        """Either may be an int that NumPy has wrapped."""
        return apply(*(v if isinstance(v, (Number, Truth)) else v.item() if hasattr(v, "item") else v for v in (a, b)))

    return ufunc


UFUNCS: dict[str, Callable[..., Any]] = {
    "minimum": lambda world, a, b: where(world, number(world, a) <= b, a, b),
    "maximum": lambda world, a, b: where(world, number(world, a) >= b, a, b),
    "add": _by(lambda a, b: a + b),
    "subtract": _by(lambda a, b: a - b),
    "multiply": _by(lambda a, b: a * b),
    "floor_divide": _by(lambda a, b: a // b),
    "remainder": _by(lambda a, b: a % b),
    "bitwise_xor": _by(lambda a, b: a ^ b),
    "bitwise_and": _by(lambda a, b: a & b),
    "bitwise_or": _by(lambda a, b: a | b),
    "logical_and": lambda world, a, b: truth(world, a) & truth(world, b),
    "logical_or": lambda world, a, b: truth(world, a) | truth(world, b),
    "logical_not": lambda world, a: ~truth(world, a),
    "equal": _by(lambda a, b: a == b),
    "not_equal": _by(lambda a, b: a != b),
    "less": _by(lambda a, b: a < b),
    "less_equal": _by(lambda a, b: a <= b),
    "greater": _by(lambda a, b: a > b),
    "greater_equal": _by(lambda a, b: a >= b),
}
