"""The algorithms of a collective that do the same task, what each costs, and which is the fastest."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from algocc.cli import source, units
from algocc.collective import COLLECTIVES, Collective
from algocc.collective import collective as built_in
from algocc.decorator import Algorithm
from algocc.errors import AlgoccError, UsageError, near
from algocc.model import Cost, Line, Machine, cost, crossover, envelope
from algocc.table import Schedule
from algocc.verifier import Report, verify

TRIED = {
    "chunks": (1, 2, 4, 8, 16, 32, 64, 128),
    "radix": (2, 3, 4, 5, 6, 7, 8),
    "aggregate": (1, 2, 4, 8, 16, 32, 64),
}
"""Values of a parameter that `--tune` tries; of `group`, all divisors of n."""

REFERENCES = ("ring", "chain")
"""Algorithms that others are set against if --against does not say: the first whose name begins so."""


@dataclass(frozen=True)
class Candidate:
    """One algorithm with its parameters, and what it costs."""

    name: str
    params: dict[str, Any]
    report: Report
    cost: Cost
    line: Line
    scratch: Fraction

    @property
    def label(self) -> str:
        """Its name, and the parameters that are not what the task says."""
        words = [f"{k}={v}" for k, v in self.params.items() if k in (*TRIED, "group", "dims") and v is not None]
        return " ".join([self.name, *words])


class Comparison:
    """The candidates that do the same task correctly, and why the others are not among them."""

    def __init__(self, name: str, n: int, params: dict[str, Any], machine: Machine, *, tune: bool) -> None:
        self.name, self.n, self.params, self.machine, self.tune = name, n, params, machine, tune
        self.candidates: list[Candidate] = []
        self.refused: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.task = self._task()

    def _task(self) -> Collective | None:
        """What the collective asks for, if it says so by itself; else what the first candidate does."""
        takes = inspect.signature(COLLECTIVES[self.name]).parameters
        known = {k: v for k, v in self.params.items() if k in takes and k != "chunks"}
        if self.name == "all_to_all_v" and "counts" not in known:
            return None
        return built_in(self.name, self.n, **known)

    def add(self, algorithm: Algorithm) -> None:
        """One algorithm, with each of the values that are tried."""
        for params in self._choices(algorithm):
            try:
                with source.bounded_memory():
                    self._add(algorithm, source.build(algorithm, self.n, params), params)
            except MemoryError:
                self.refused.setdefault(algorithm.name, f"needs more memory than is free for n={self.n}")
            except UsageError as error:
                if error.__cause__ is not None and not isinstance(error.__cause__, AlgoccError):
                    raise  # the function failed; it did not refuse
                said = str(error).removeprefix(f"{algorithm.name}: ")
                self.refused.setdefault(algorithm.name, said.removeprefix(f"n={self.n}: "))
        if any(c.name == algorithm.name for c in self.candidates):
            self.refused.pop(algorithm.name, None)

    def _choices(self, algorithm: Algorithm) -> Iterator[dict[str, Any]]:
        """The parameters to build it with: as given and by default, then those that are tried."""
        takes = inspect.signature(algorithm.write).parameters
        base = {k: p.default for k, p in list(takes.items())[1:] if p.default is not p.empty}
        base |= {k: v for k, v in self.params.items() if k in takes}
        yield base
        tried = TRIED | {"group": tuple(g for g in range(1, self.n + 1) if self.n % g == 0)}
        for key in base:
            if self.tune and key in tried and key not in self.params:
                yield from (
                    {**base, key: value}
                    for value in tried[key]
                    if value != base[key] and (key != "radix" or value <= self.n)
                )

    def _add(self, algorithm: Algorithm, s: Schedule, params: dict[str, Any]) -> None:
        if self.task is None:
            self.task = s.collective
        if not s.collective.same_task(self.task):
            self.refused.setdefault(
                algorithm.name, f"does another task: {_brief(s.collective)}, not {_brief(self.task)}"
            )
            return
        report = verify(s, program=False)
        if not report.correct:
            self.wrong.setdefault(algorithm.name, str(report.failures[0]))
            return
        c = s.collective
        counted = cost(s, ports=self.machine.ports, startup=self.machine.startup)
        scratch = Fraction(int(s.scratch_sizes.sum()), max(1, c.vector * c.chunks))
        self.candidates.append(Candidate(algorithm.name, params, report, counted, counted.line(self.machine), scratch))


def _brief(task: Collective) -> str:
    text = str(task.cut(1)).replace(" chunks=1", "")
    return text if len(text) <= 60 else f"{text[:59]}…"


class Ranking:
    """What is shown of a comparison at a size: of each algorithm its best candidate, the fastest first.

    lines, segments: the times of all candidates, and which are lowest from which size to which.
    against: the candidate that the others are set against, if there is one.
    """

    def __init__(self, found: Comparison, size: int, against: str | None) -> None:
        self.found, self.size = found, size
        self.machine = found.machine
        best: dict[str, Candidate] = {}
        for c in found.candidates:
            if c.name not in best or c.line.at(size) < best[c.name].line.at(size):
                best[c.name] = c
        self.ranked = sorted(best.values(), key=lambda c: (c.line.at(size), c.line, c.name))
        self.lines = {c.label: c.line for c in found.candidates}
        self.segments = envelope(self.lines)
        self.against = self._reference(against, best)

    def _reference(self, name: str | None, best: dict[str, Candidate]) -> Candidate | None:
        if name is None:
            name = next((k for start in REFERENCES for k in sorted(best) if k.startswith(start)), None)
            return best[name] if name else None
        if name not in best:
            raise UsageError(f"--against {name}: not compared{near(name, best)}; compared: {', '.join(sorted(best))}")
        return best[name]

    def fastest(self, c: Candidate) -> bool:
        """Whether none is faster at the size."""
        return c.line.at(self.size) == self.ranked[0].line.at(self.size)


def faster(line: Line, other: Line) -> str:
    """For which sizes one line is below another.

    >>> faster(Line(Fraction(1), Fraction(2)), Line(Fraction(2049), Fraction(1)))
    'below 2K'
    """
    if line == other:
        return "same"
    if line.fixed <= other.fixed and line.slope <= other.slope:
        return "always"
    meet = crossover(line, other)
    if meet is None or (line.fixed >= other.fixed and line.slope >= other.slope):
        return "never"
    return f"{'below' if line.fixed < other.fixed else 'above'} {units.size(meet)}"
