"""Prove a schedule right for every number of ranks, or say why that was not possible."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import z3

from algocc.decorator import Algorithm
from algocc.errors import UsageError
from algocc.symbolic.confirm import Counterexample, counterexample
from algocc.symbolic.number import Number
from algocc.symbolic.obligations import Obligation, check_schedule
from algocc.symbolic.record import Logarithms, Recorder, recorded
from algocc.symbolic.rounds import is_total
from algocc.symbolic.theory import Term
from algocc.symbolic.world import Unprovable, World, written_by_others

FREE: dict[str, tuple[str, Callable[[Term, Term], Term]]] = {
    "root": ("every root", lambda root, n: z3.And(0 <= root, root < n)),
    "chunks": ("any number of chunks ≥ 1", lambda chunks, n: chunks >= 1),
}
"""Parameters that the proof leaves open where they are not given: in words, and their range."""

TRIED = 6
"""Numbers of ranks for which what is proved is tried as well: a rule might tell unknown numbers from ints."""
ASSUMED = (
    "all transfers of a step read the state before the step and take effect together after it",
    "the rules compute with arrays of numbers, of 32 bits, as they do with unknown ones; the builder writes what they return",
    "outputs and inputs are separate memory; the order of the operands of a reduction is not part of the claim",
    "z3, the axioms of algocc.symbolic.theory and the obligations of algocc.symbolic.obligations are sound",
)


@dataclass(frozen=True)
class Proof:
    """What was shown of a schedule for every n.

    status: "proved"; "disproved", with a counterexample; or "unknown".
    domain: for which n and parameters, in words.
    obligations: what had to be shown.
    steps: the formula for the number of steps, if it was proved too, for n ≥ 2.
    reason: why the status is "unknown", empty otherwise.
    counterexample: numbers for which the schedule, or its invariant, is false.
    """

    schedule: str
    collective: str
    status: str
    domain: str
    obligations: list[Obligation]
    steps: str = ""
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
    about = algorithm.name, algorithm.collective
    kept = {name: value for name, value in fixed.items() if name not in free}
    found: list[Obligation] = []
    try:
        found, steps, refusals = _obligations(algorithm, fixed, free, timeout)
        if refusals:
            takes = algorithm.takes or "; ".join(refusals)
            domain = domain.replace("every n ≥ 1", f"every n ≥ 1 that it takes ({takes})")
        bad = next((o for o in found if o.status != "ok"), None)
        if bad is None and counterexample(algorithm, kept, free, [], TRIED) is None:
            return Proof(*about, "proved", domain, found, algorithm.steps if steps else "")
        reason = _reason(bad)
    except Unprovable as error:
        reason = _located(error)
    wrong = counterexample(algorithm, kept, free, [o.example for o in found])
    if wrong is not None:
        return Proof(*about, "disproved", domain, found, counterexample=wrong)
    return Proof(*about, "unknown", domain, found, reason=reason)


def _obligations(
    algorithm: Algorithm, fixed: dict[str, Any], free: tuple[str, ...], timeout: float
) -> tuple[list[Obligation], bool, list[str]]:
    """Every obligation, whether the number of steps is as the formula says, and what the schedule says where it refuses an n."""
    world = World(timeout)
    n = Number(world, z3.Int("n"))
    world.assume(n.term >= 1)
    unknown = {name: Number(world, z3.Int(name)) for name in free}
    world.assume(*(FREE[name][1](value.term, n.term) for name, value in unknown.items()))
    logs = Logarithms(world, n)
    write = recorded(world, algorithm.write, logs)

    def run() -> Any:
        try:
            with written_by_others(algorithm.name):
                return write(n, **{**fixed, **unknown})
        except UsageError as error:
            return _Refused(str(error))

    found: list[Obligation] = []
    paths = world.paths(run)
    refusals = [path.result.message for path in paths if isinstance(path.result, _Refused)]
    taken = [path for path in paths if not isinstance(path.result, _Refused)]
    if not taken:
        raise Unprovable(f"{algorithm.name}: takes no n at all: {'; '.join(refusals)}")
    steps = True
    for path in taken:
        if not isinstance(path.result, Recorder):
            raise Unprovable(f"{algorithm.name}: written as a {type(path.result).__name__}, not as rules on `Steps`")
        case = f"if {_words(path.conditions)}: " if len(taken) > 1 else ""
        with world.scope(*path.conditions):
            task = path.result.collective
            c = check_schedule(world, task, path.result.phases, case)
            names = {**write.__globals__, **fixed, **unknown, "n": n, "d": logs.ceil(n)}
            steps &= is_total(world, task, c.rounds, algorithm.steps, names)
        found += c.found
    return found, steps, refusals


def _reason(bad: Obligation | None) -> str:
    if bad is None:
        return "the rules do other things with unknown numbers than with given ones"
    why = "the solver gave up on it" if bad.status == "unknown" else "it does not follow from the invariant"
    return f"{bad.phase}: {bad.name}: {bad.statement}: {why}"


def _located(error: Unprovable) -> str:
    """The message, with the line of the schedule that it came from."""
    here = str(Path(__file__).parent)
    first: BaseException = error.__cause__ or error
    frames = [f for f in traceback.extract_tb(first.__traceback__) if not f.filename.startswith((here, "<"))]
    own = [f for f in frames if "site-packages" not in f.filename and not f.filename.endswith(("contextlib.py", "functools.py"))]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    message = str(error)
    return message if message.split(":")[0].endswith(".py") else where + message


def _words(conditions: tuple[Term, ...]) -> str:
    """Conditions as people write them."""
    said = " and ".join(str(z3.simplify(c)) for c in conditions)
    for ours, theirs in (
        ("pow2(floor_log_n)", "floor_power(n)"),
        ("Not(n <= floor_power(n))", "n > floor_power(n)"),
        ("n <= floor_power(n)", "n = floor_power(n)"),
        ("Not(n <= 1)", "n > 1"),
        ("n <= 1", "n = 1"),
    ):
        said = said.replace(ours, theirs)
    return said


