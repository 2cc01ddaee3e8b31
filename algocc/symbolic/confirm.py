"""Look for numbers of ranks for which a schedule, or what its invariant says, is false: by building it for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from algocc.collective import BUFFER_NAMES, Buffer
from algocc.decorator import Algorithm
from algocc.errors import UsageError, counted
from algocc.invariant import ANYTHING, FINISHED, Holds, shown
from algocc.symbolic.record import Phase, observed
from algocc.symbolic.state import chunk_of
from algocc.symbolic.task import TASKS, Task
from algocc.table import Schedule, form_failures, steps_of
from algocc.verifier import verify

Memory = dict[tuple[int, int, int], "Counter[tuple[int, int]]"]
"""(rank, buffer, chunk): the exact multiset of (rank, input chunk) in it."""
SMALL = range(1, 25)
"""Numbers of ranks that are always tried."""
LARGE = 64
"""Up to the example of the solver they are tried, if it has no more ranks than this."""


@dataclass(frozen=True)
class Counterexample:
    """Why a claim is false.

    of: "schedule" or "invariant".
    n, params: for which it is false.
    step: where, None if only in the end.
    reason: what was found and what was wanted.
    """

    of: str
    n: int
    params: dict[str, int]
    step: int | None
    reason: str


def counterexample(
    algorithm: Algorithm, fixed: dict[str, Any], free: Iterable[str], examples: Iterable[dict[str, int]], small: int = 0
) -> Counterexample | None:
    """The first number of ranks for which the schedule is wrong, or else for which the invariant is.

    fixed, free: parameters with a value, and those that may have any.
    examples: numbers that the solver came up with, tried as well.
    small: try numbers of ranks up to this only.
    """
    last = max([SMALL.stop - 1, *(e["n"] for e in examples if e.get("n", LARGE + 1) <= LARGE)])
    sizes = range(SMALL.start, last + 1)
    free = tuple(free)
    if small:
        sizes = range(1, small + 1)
    for check in (_wrong_schedule, _wrong_invariant):
        for n in sizes:
            for params in _values(free, n):
                found = check(algorithm, n, {**fixed, **params})
                if found is not None:
                    return found
    return None


def _values(free: tuple[str, ...], n: int) -> Iterator[dict[str, int]]:
    """Some values of the free parameters."""
    some = {"root": sorted({0, n // 2, n - 1}), "chunks": [1, 2, 3]}
    for values in product(*(some[name] for name in free)):
        yield dict(zip(free, values, strict=True))


def _wrong_schedule(algorithm: Algorithm, n: int, params: dict[str, Any]) -> Counterexample | None:
    try:
        s = algorithm(n, **params)
    except UsageError:
        return None  # it does not take this n
    except Exception as error:  # whatever the function does, there is no schedule for this n
        return Counterexample("schedule", n, params, None, f"the function fails: {type(error).__name__}: {error}")
    report = verify(s, program=False)
    if report.correct:
        return None
    first = report.failures[0] if report.failures else None
    return Counterexample("schedule", n, params, first.step if first else None, str(first or "wrong"))


def _wrong_invariant(algorithm: Algorithm, n: int, params: dict[str, Any]) -> Counterexample | None:
    try:
        made = observed(algorithm.write)(n, **params)
        s = made.build()
        phases = getattr(made, "seen", [])
        task = next(t for c, t in TASKS.items() if c.__name__ == s.collective.name)(
            n, **s.collective.params, chunks=s.collective.chunks
        )
    except Exception:  # no schedule for this n, or no collective that can be compared: nothing to say of the invariant
        return None
    if form_failures(s):
        return None
    states = dict(enumerate(_states(s)))
    last = max(states)
    for phase in phases:
        for t in range(1 if phase.steps == 1 else 0, phase.steps + 1):
            try:
                wrong = _compare(s, task, phase, t, states[min(phase.start + t, last)])
            except Exception as error:  # whatever the invariant does, it claims nothing
                wrong = f"the invariant of {phase.name} fails: {type(error).__name__}: {error}"
            if wrong:
                return Counterexample("invariant", n, params, phase.start + t, wrong)
    return None


def _states(s: Schedule) -> Iterator[Memory]:
    """What is where before each step, and at the end."""
    memory: Memory = {
        (rank, int(Buffer.INPUT), chunk): Counter({(rank, chunk): 1})
        for rank in range(s.n)
        for chunk in range(int(s.collective.inputs[rank]) * s.collective.chunks)
    }
    done = 0
    for step, rows in steps_of(s):
        for _ in range(done, step + 1):
            yield dict(memory)
        done = step + 1
        moved = []
        for i in rows:
            for part in range(int(s.count[i])):
                source = int(s.rank[i]), int(s.buffer[i]), int(s.chunk[i]) + part
                target = int(s.peer[i]), int(s.peer_buffer[i]), int(s.peer_chunk[i]) + part
                moved.append((target, memory.get(source, Counter()), int(s.action[i]) != 0))
        for target, value, reduces in moved:
            memory[target] = memory.get(target, Counter()) + value if reduces else value
    yield memory


def _compare(s: Schedule, task: Task, phase: Phase, t: int, memory: Memory) -> str | None:
    """The first place that does not hold what the invariant of a phase says after t steps."""
    claims = phase.invariant
    if claims is None:
        return None
    sink = phase.to_buffer or task.sink
    for buffer, invariant in ({sink: claims} if callable(claims) else claims).items():
        kind = next(b for b, name in BUFFER_NAMES.items() if name == buffer)
        for rank in range(s.n):
            size = s.scratch if kind == Buffer.SCRATCH else s.collective.size(kind, rank)
            size = task.work if kind == Buffer.SCRATCH and task.work is not None else size
            for chunk in range(size):
                claim = invariant(rank, chunk, t, s.n)
                if claim is ANYTHING:
                    continue
                claim = task.finished(rank, chunk) if claim is FINISHED else claim
                if not isinstance(claim, Holds):
                    return f"the invariant of {phase.name} says {claim!r:.60}, wanted Holds(…), FINISHED or ANYTHING"
                of = chunk_of(claim, chunk)
                wanted = Counter({(p, int(of)): 1 for p in range(s.n) if claim.ranks(p)})
                held = memory.get((rank, int(kind), chunk), Counter())
                if held != wanted:
                    return (
                        f"after {counted(t, 'step')} of {phase.name} ({phase.where}) {buffer}[{chunk}] of "
                        f"rank {rank} holds "
                        f"{_words(held)}, the invariant says {shown(claim, s.n, chunk)}"
                    )
    return None


def _words(held: Counter[tuple[int, int]]) -> str:
    if not held:
        return "nothing"
    chunks = sorted({chunk for _, chunk in held})
    return " and ".join(
        f"chunk {c} of ranks {{{', '.join(str(p) for p, i in sorted(held.elements()) if i == c)}}}" for c in chunks
    )
