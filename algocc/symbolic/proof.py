"""Prove a schedule right for every number of ranks, or say why that was not possible."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import z3

from algocc.decorator import Algorithm
from algocc.errors import UsageError
from algocc.symbolic.confirm import Counterexample, counterexample
from algocc.symbolic.number import Number
from algocc.symbolic.obligations import Obligation, check_schedule
from algocc.symbolic.record import Recorder, recorded
from algocc.symbolic.theory import Term
from algocc.symbolic.world import Unprovable, World

FREE: dict[str, tuple[str, Callable[[Term, Term], Term]]] = {
    "root": ("every root", lambda root, n: z3.And(0 <= root, root < n)),
    "chunks": ("any number of chunks ≥ 1", lambda chunks, n: chunks >= 1),
}
"""Parameters that the proof leaves open where they are not given: in words, and their range."""

ASSUMED = (
    "all transfers of a step read the state before the step and take effect together after it",
    "the builder writes, for a given n, the rows that the rule returns; numbers fit in 32 bits",
    "outputs and inputs are separate memory; the order of the operands of a reduction is not part of the claim",
    "z3, the axioms of algocc.symbolic.theory and the obligations of algocc.symbolic.obligations are sound",
)


@dataclass(frozen=True)
class Proof:
    """What was shown of a schedule for every n.

    status: "proved"; "disproved", with a counterexample; or "unknown".
    domain: for which n and parameters, in words.
    obligations: what had to be shown.
    reason: why the status is "unknown", empty otherwise.
    counterexample: numbers for which the schedule, or its invariant, is false.
    """

    schedule: str
    collective: str
    status: str
    domain: str
    obligations: list[Obligation]
    reason: str = ""
    counterexample: Counterexample | None = None

    @property
    def exit_code(self) -> int:
        """0 proved, 1 disproved, 2 not known."""
        return {"proved": 0, "disproved": 1, "unknown": 2}[self.status]

    def to_json(self) -> dict[str, Any]:
        """The proof as JSON values."""
        return {**asdict(self), "assumed": list(ASSUMED)}


@dataclass(frozen=True)
class _Refused:
    """A way through the function that writes the schedule that ends in `require`."""

    message: str


def prove(algorithm: Algorithm, *, timeout: float = 10, **params: Any) -> Proof:
    """Prove a schedule that is written as rules, with invariants beside them, for every n that it takes.

    timeout: seconds for one question to the solver.
    params: parameters to fix; `root` and `chunks` are open otherwise, others have their default.

    Raises UsageError for a parameter that the schedule does not have.

    >>> from algocc.schedules.ring import ring
    >>> p = prove(ring)
    >>> p.status, p.domain
    ('proved', 'every n ≥ 1')
    """
    for key in params:
        if key not in algorithm.parameters:
            known = ", ".join(algorithm.parameters) or "none"
            raise UsageError(f"{algorithm.name}: unknown parameter {key!r}; it takes: {known}")
    defaults = inspect.signature(algorithm.write).parameters
    fixed = {name: params.get(name, defaults[name].default) for name in algorithm.parameters}
    free = tuple(name for name in algorithm.parameters if name in FREE and name not in params)
    domain = ", ".join(["every n ≥ 1", *(FREE[name][0] for name in free)])
    found: list[Obligation] = []
    reason = ""
    try:
        found, refusals = _obligations(algorithm, fixed, free, timeout)
        if refusals:
            takes = algorithm.takes or "; ".join(refusals)
            domain = domain.replace("every n ≥ 1", f"every n ≥ 1 that it takes ({takes})")
    except Unprovable as error:
        reason = str(error)
    if not reason and all(o.status == "ok" for o in found):
        return Proof(algorithm.name, algorithm.collective, "proved", domain, found)
    kept = {name: value for name, value in fixed.items() if name not in free}
    wrong = counterexample(algorithm, kept, free, [o.example for o in found])
    if wrong is not None:
        return Proof(algorithm.name, algorithm.collective, "disproved", domain, found, "", wrong)
    if not reason:
        bad = next(o for o in found if o.status != "ok")
        reason = (
            f"{bad.name} of {bad.phase or 'the end'}: not shown that {bad.statement}"
            if bad.status == "failed"
            else f"{bad.name} of {bad.phase or 'the end'}: the solver gave up"
        )
    return Proof(algorithm.name, algorithm.collective, "unknown", domain, found, reason)


def _obligations(
    algorithm: Algorithm, fixed: dict[str, Any], free: tuple[str, ...], timeout: float
) -> tuple[list[Obligation], list[str]]:
    """Every obligation, and what the schedule says where it refuses an n."""
    world = World(timeout)
    n = Number(world, z3.Int("n"))
    world.assume(n.term >= 1)
    unknown = {name: Number(world, z3.Int(name)) for name in free}
    world.assume(*(FREE[name][1](value.term, n.term) for name, value in unknown.items()))
    write = recorded(world, algorithm.write, n)

    def run() -> Any:
        try:
            return write(n, **{**fixed, **unknown})
        except UsageError as error:
            return _Refused(str(error))
        except (TypeError, ValueError, AttributeError) as error:
            raise Unprovable(f"{algorithm.name}: the function does not take an unknown n: {error}") from error

    found: list[Obligation] = []
    refusals: list[str] = []
    for path in world.paths(run):
        if isinstance(path.result, _Refused):
            refusals.append(path.result.message)
            continue
        if not isinstance(path.result, Recorder):
            raise Unprovable(f"{algorithm.name}: written as a {type(path.result).__name__}, not as rules on `Steps`")
        with world.scope(*path.conditions):
            found += check_schedule(world, path.result.collective, path.result.phases)
    if not found:
        raise Unprovable(f"{algorithm.name}: takes no n at all: {'; '.join(refusals)}")
    return found, refusals


