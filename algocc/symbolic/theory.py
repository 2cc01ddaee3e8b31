"""True facts about powers of two, division and remainder, as ground axioms for a solver of linear arithmetic.

The functions below are uninterpreted for the solver. What they mean is said by axioms, each a true sentence about
whole numbers; `ground` writes down the instances for the terms at hand. So a formula that the solver refutes
together with them is false, whatever they leave out: fewer axioms can lose a proof, never forge one.

    pow2(e)     2^e
    down(x, e)  the largest multiple of 2^e that is at most x
    quo(x, e)   down(x, e) / 2^e
    mod(x, m)   x modulo m
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

import z3

Term = Any
"""A z3 expression; z3 has no types to speak of."""

_I = z3.IntSort()
POW = z3.Function("pow2", _I, _I)
DOWN = z3.Function("down", _I, _I, _I)
QUO = z3.Function("quo", _I, _I, _I)
MOD = z3.Function("mod", _I, _I, _I)

WRAPS = range(-3, 4)
"""Multiples of the divisor that the axioms of `mod` and `quo` know how to take away."""
ROUNDS = 4
"""The axioms speak of new terms, which have axioms; as often as this."""


def pow2(e: Term) -> Term:
    """2^e, a number if e is a small one."""
    e = z3.simplify(e)
    if z3.is_int_value(e) and 0 <= e.as_long() < 64:
        return z3.IntVal(1 << e.as_long())
    return POW(e)


def applications(formulas: Iterable[Term], seen: set[int]) -> Iterator[Term]:
    """Every application of the four functions in formulas that was not `seen`."""
    stack = list(formulas)
    while stack:
        term = stack.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_quantifier(term):
            raise ValueError("a quantifier in a ground formula")
        stack.extend(term.children())
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED and term.num_args():
            yield term


def ground(formulas: Iterable[Term], series: Mapping[str, Any]) -> list[Term]:
    """The axioms for the terms of these formulas, and for the sums of `series` in them."""
    axioms: list[Term] = []
    fresh = list(formulas)
    keep = list(fresh)  # ids are those of living terms
    seen: set[int] = set()
    table: dict[str, list[Term]] = {name: [] for name in ("pow2", "down", "quo", "mod", *series)}
    for _ in range(ROUNDS):
        new: dict[str, list[Term]] = {name: [] for name in table}
        for term in applications(fresh, seen):
            if term.decl().name() in new:
                new[term.decl().name()].append(term)
        if not any(new.values()):
            break
        fresh = [*_single(new), *_pairs(table, new)]
        for name, known in series.items():
            fresh += known.axioms(table[name], new[name])
        for name, terms in new.items():
            table[name] += terms
        axioms += fresh
        keep += fresh
    return axioms


def _single(new: dict[str, list[Term]]) -> Iterator[Term]:
    for power in new["pow2"]:
        (e,) = power.children()
        yield z3.Implies(e >= 0, z3.And(power >= 1, power >= e + 1))
        yield z3.Implies(e == 0, power == 1)
    for down in new["down"]:
        x, e = down.children()
        yield z3.Implies(e >= 0, z3.And(down <= x, x < down + pow2(e)))
        for summand in x.children() if z3.is_add(x) else ():
            multiple, f = _multiple(summand)
            if f is not None:
                yield from _if([0 <= e, e <= f], down == DOWN(z3.simplify(x - multiple), e) + multiple)
    for quo in new["quo"]:
        x, e = quo.children()
        for k in WRAPS:
            inside = z3.And(k * pow2(e) <= x, x < (k + 1) * pow2(e))
            yield z3.Implies(e >= 0, z3.And((quo == k) == inside, (DOWN(x, e) == k * pow2(e)) == inside))
    for mod in new["mod"]:
        x, m = mod.children()
        yield z3.Implies(m >= 1, z3.And(0 <= mod, mod < m))
        for k in WRAPS:
            yield z3.Implies(z3.And(m >= 1, k * m <= x, x < (k + 1) * m), mod == x - k * m)


def _pairs(old: dict[str, list[Term]], new: dict[str, list[Term]]) -> Iterator[Term]:
    powers = old["pow2"] + new["pow2"]
    downs = old["down"] + new["down"]
    for a, b in _fresh_pairs(old["pow2"], new["pow2"]):
        for low, high in ((a, b), (b, a)):
            e, f = low.arg(0), high.arg(0)
            yield from _if([0 <= e, e < f], 2 * low <= high)
            yield from _if([0 <= e, e + 1 == f], 2 * low == high)
    for a, b in _fresh_pairs(old["down"], new["down"]):
        if not z3.eq(a.arg(0), b.arg(0)):
            continue
        for low, high in ((a, b), (b, a)):
            e, f = low.arg(1), high.arg(1)
            yield from _if([0 <= e, e <= f], high <= low)
            yield from _if([0 <= e, e + 1 == f], z3.Or(low == high, low == high + pow2(e)))
    if not new["down"] and not new["pow2"]:
        return
    # Two multiples of 2^e are equal or at least 2^e apart. A multiple of 2^f is one of 2^e if e ≤ f.
    multiples = [(z3.IntVal(0), None), *((p, p.arg(0)) for p in powers), *((d, d.arg(1)) for d in downs)]
    old_ones = {t.get_id() for name in ("pow2", "down") for t in old[name]}
    for i, a in enumerate(downs):
        e = a.arg(1)
        for b, f in multiples[: 1 + len(powers) + i]:
            if a.get_id() in old_ones and (f is None or b.get_id() in old_ones):
                continue
            apart = z3.Or(a == b, a + pow2(e) <= b, b + pow2(e) <= a)
            yield from _if([0 <= e, *([] if f is None else [e <= f])], apart)
            if f is not None and b.decl().name() == "down" and not z3.eq(e, f):
                yield from _if([0 <= f, f < e], z3.Or(a == b, a + pow2(f) <= b, b + pow2(f) <= a))


def _if(conditions: list[Term], claim: Term) -> Iterator[Term]:
    """The implication, unless a condition is false whatever the numbers are."""
    left = [c for c in map(z3.simplify, conditions) if not z3.is_true(c)]
    if not any(z3.is_false(c) for c in left):
        yield z3.Implies(z3.And(*left), claim) if left else claim


def _multiple(summand: Term) -> tuple[Term, Term | None]:
    """±down(x, f), a multiple of 2^f, with f; None if the summand is no such."""
    inner = summand.arg(1) if z3.is_mul(summand) and z3.is_int_value(summand.arg(0)) else summand
    is_down = z3.is_app(inner) and inner.num_args() == 2 and inner.decl().name() == "down"
    return summand, inner.arg(1) if is_down else None


def _fresh_pairs(old: list[Term], new: list[Term]) -> Iterator[tuple[Term, Term]]:
    yield from combinations(new, 2)
    for a in new:
        for b in old:
            yield a, b

