"""Element types and reduction operators: one table of each, and the arithmetic of an operator on two elements.

The arithmetic is plain Python, chosen by name when a kernel is compiled, and the same on every target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numba import types
from numba.extending import overload

from algocc.errors import UsageError, near


@dataclass(frozen=True)
class Element:
    """An element type.

    name: as NumPy and ml_dtypes spell it.
    kind: bool, int, uint, float or complex.
    size: bytes.
    held: the type that holds partial results inside a Move; wider than the element for floats of 8 and 16 bits.
    """

    name: str
    kind: str
    size: int
    held: str

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type."""
        return np.dtype(getattr(ml_dtypes, self.name, self.name))


def _element(name: str, kind: str, size: int, held: str | None = None) -> Element:
    return Element(name, kind, size, held or name)


ELEMENTS = {
    e.name: e
    for e in (
        *(_element(f"int{8 * size}", "int", size) for size in (1, 2, 4, 8)),
        *(_element(f"uint{8 * size}", "uint", size) for size in (1, 2, 4, 8)),
        _element("float8_e4m3fn", "float", 1, "float32"),
        _element("float8_e5m2", "float", 1, "float32"),
        _element("float16", "float", 2, "float32"),
        _element("bfloat16", "float", 2, "float32"),
        _element("float32", "float", 4),
        _element("float64", "float", 8),
        _element("complex64", "complex", 8),
        _element("complex128", "complex", 16),
        _element("bool", "bool", 1),
    )
}


@dataclass(frozen=True)
class Operator:
    """A reduction operator; all of them commute, and associate but for rounding.

    name: as in `OPERATORS`.
    text: what it does.
    refused: for each kind of element that it is not defined for, the reason.
    on_bool: the logical operator that it is on bool.
    idempotent: reducing a contribution twice changes nothing.
    """

    name: str
    text: str
    refused: dict[str, str]
    on_bool: str
    idempotent: bool = False


_BITWISE = {kind: f"bits of a {kind} number have no meaning to combine" for kind in ("float", "complex")}
_ORDER = {"complex": "complex numbers have no order"}

OPERATORS = {
    o.name: o
    for o in (
        Operator("sum", "a + b; integers wrap, bool is or", {}, "lor"),
        Operator("prod", "a · b; integers wrap, bool is and", {}, "land"),
        Operator("min", "the smaller; NaN if either is", _ORDER, "land", idempotent=True),
        Operator("max", "the larger; NaN if either is", _ORDER, "lor", idempotent=True),
        Operator(
            "avg",
            "the sum divided by the ranks; floats before adding, integers after, toward zero",
            {"bool": "an average of truth values is no truth value"},
            "",
        ),
        Operator("land", "1 where both are nonzero, else 0", {}, "land", idempotent=True),
        Operator("lor", "1 where either is nonzero, else 0", {}, "lor", idempotent=True),
        Operator("lxor", "1 where exactly one is nonzero, else 0", {}, "lxor"),
        Operator("band", "a and b, bit by bit", _BITWISE, "land", idempotent=True),
        Operator("bor", "a or b, bit by bit", _BITWISE, "lor", idempotent=True),
        Operator("bxor", "a xor b, bit by bit", _BITWISE, "lxor"),
    )
}


def element(dtype: Any) -> Element:
    """The element type that a name, a NumPy type or a scalar class means.

    Raises UsageError for a type that is none of `ELEMENTS`, with those of a similar name.

    >>> element("bfloat16").held, element(np.float64).size
    ('float32', 8)
    """
    name = dtype
    if not isinstance(dtype, str):
        try:
            name = np.dtype(dtype).name
        except TypeError as error:
            raise UsageError(f"dtype {dtype!r} is no element type; known: {', '.join(ELEMENTS)}") from error
    if name not in ELEMENTS:
        raise UsageError(f"unknown dtype {name!r}{near(name, ELEMENTS)}; known: {', '.join(ELEMENTS)}")
    return ELEMENTS[name]


def operator(op: str) -> Operator:
    """The operator called `op`.

    Raises UsageError for a name that is none of `OPERATORS`, with those of a similar name.
    """
    if op not in OPERATORS:
        raise UsageError(f"unknown operator {op!r}{near(str(op), OPERATORS)}; known: {', '.join(OPERATORS)}")
    return OPERATORS[op]


def refusal(op: Operator, e: Element) -> str | None:
    """Why an operator is not defined for an element type, or None if it is."""
    return op.refused.get(e.kind)


def check_defined(op: Operator, e: Element) -> None:
    """Raise UsageError if an operator is not defined for an element type.

    >>> check_defined(operator("bor"), element("int8"))
    """
    reason = refusal(op, e)
    if reason is not None:
        defined = ", ".join(o.name for o in OPERATORS.values() if refusal(o, e) is None)
        raise UsageError(
            f"operator {op.name} is not defined for dtype {e.name}: {reason}; defined are {defined}"
        )


def kernel_of(op: Operator, e: Element) -> tuple[Operator, Element]:
    """The pair whose kernel serves `op` on `e`: same bits, fewer to compile.

    Wrapping arithmetic does not see the sign, and every operator on bool is a logical one.
    """
    if e.kind == "bool":
        op = OPERATORS[op.on_bool]
    elif e.kind == "int" and op.name not in ("min", "max", "avg"):
        e = ELEMENTS["u" + e.name]
    return op, e


def combine(op: Any, a: Any, b: Any) -> Any:
    """The reduction of two elements by the operator called `op`."""
    raise NotImplementedError("for compiled code")


def divide(a: Any, ranks: Any) -> Any:
    """A float or complex contribution divided by the number of ranks, an int64."""
    raise NotImplementedError("for compiled code")


def truncate(a: Any, ranks: Any) -> Any:
    """An integer divided by the number of ranks, an int64, rounded toward zero."""
    raise NotImplementedError("for compiled code")


def _sum(op: Any, a: Any, b: Any) -> Any:
    return a + b


def _prod(op: Any, a: Any, b: Any) -> Any:
    return a * b


def _min(op: Any, a: Any, b: Any) -> Any:
    return a if a < b or a != a else b  # noqa: PLR0124 (a NaN stays)


def _max(op: Any, a: Any, b: Any) -> Any:
    return a if a > b or a != a else b  # noqa: PLR0124 (a NaN stays)


def _land(op: Any, a: Any, b: Any) -> Any:
    return (a != 0) & (b != 0)


def _lor(op: Any, a: Any, b: Any) -> Any:
    return (a != 0) | (b != 0)


def _lxor(op: Any, a: Any, b: Any) -> Any:
    return (a != 0) != (b != 0)


def _band(op: Any, a: Any, b: Any) -> Any:
    return a & b


def _bor(op: Any, a: Any, b: Any) -> Any:
    return a | b


def _bxor(op: Any, a: Any, b: Any) -> Any:
    return a ^ b


_ARITHMETIC: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": _sum,
    "prod": _prod,
    "min": _min,
    "max": _max,
    "avg": _sum,
    "land": _land,
    "lor": _lor,
    "lxor": _lxor,
    "band": _band,
    "bor": _bor,
    "bxor": _bxor,
}


@overload(combine, prefer_literal=True)
def _combine(op: Any, a: Any, b: Any) -> Any:
    name = op.literal_value
    if name == "avg" and isinstance(a, types.Integer):
        whole = types.Integer.from_bitwidth(a.bitwidth, signed=False)

        def wrapping(op: Any, a: Any, b: Any) -> Any:
            return whole(a) + whole(b)

        return wrapping
    return _ARITHMETIC[name]


@overload(divide)
def _divide(a: Any, ranks: Any) -> Any:
    if isinstance(a, types.Complex):
        real = a.underlying_float

        def parts(a: Any, ranks: Any) -> Any:
            return complex(a.real / real(ranks), a.imag / real(ranks))

        return parts

    real = a

    def scalar(a: Any, ranks: Any) -> Any:
        return a / real(ranks)

    return scalar


@overload(truncate)
def _truncate(a: Any, ranks: Any) -> Any:
    wide = types.uint64 if a == types.uint64 else types.int64

    def quotient(a: Any, ranks: Any) -> Any:
        n = wide(ranks)
        q = wide(a) // n
        return q + wide(q < 0 and q * n != wide(a))

    return quotient
