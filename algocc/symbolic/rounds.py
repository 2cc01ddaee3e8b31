"""The number of steps in which a message is sent, against the formula of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import z3

from algocc.symbolic.number import Number, Truth, number
from algocc.symbolic.task import Task
from algocc.symbolic.theory import Term
from algocc.symbolic.transfers import Family
from algocc.symbolic.world import Unprovable, World


def sends(world: World, task: Task, sent: list[Family]) -> bool | None:
    """Whether some rank sends to another in every step, True; in none, False; or not shown either way, None.

    For two ranks or more; the step is one that the world knows of.
    """
    members = [f.any(world) for f in sent]
    if all(world.entails(z3.Implies(s.given, s.peer == s.rank)) for s in members):
        return False
    n = number(world, task.n).term
    root = number(world, task.params.get("root", 0)).term
    seen = []
    for f in sent:
        for rank in (root, n - 1 - root, z3.IntVal(1)):
            for each in product((z3.IntVal(0), z3.IntVal(1)), repeat=len(f.each)):
                s = f.at(rank, *each, *(() if f.part is None else (z3.IntVal(0),)))
                seen.append(z3.And(s.given, s.peer != s.rank))
    return True if world.entails(z3.Implies(n >= 2, z3.Or(*seen))) else None


def is_total(world: World, task: Task, rounds: list[tuple[Term, bool | None]], formula: str, names: dict[str, Any]) -> bool:
    """Whether the phases have as many steps with a message as the formula says, for two ranks or more."""
    if not formula or any(known is None for _, known in rounds):
        return False
    total = z3.Sum([steps for steps, known in rounds if known] or [z3.IntVal(0)])
    try:
        claimed: Any = _evaluate(formula, names)
        claim = number(world, claimed).term
    except (Unprovable, NameError, TypeError, AttributeError, ValueError):
        return False
    n = number(world, task.n).term
    return world.entails(z3.Implies(n >= 2, claim == total))


def _evaluate(formula: str, names: dict[str, Any]) -> Number | Truth | int:
    evaluate: Callable[..., Any] = eval  # the formulae are the code of the schedules' own files
    found = evaluate(formula, names)
    if not isinstance(found, (Number, Truth, int)):
        raise TypeError(f"{formula} is no whole number")
    return found
