"""Minimum cuts of a Topology, exact, and the search for the cut that takes longest to cross.

For a cut S, a set of nodes, B(S) is the bandwidth of the links that leave it. What all sources in S must get across
takes at least (how many there are) / B(S). `slowest` finds the largest such ratio by Newton's method on cuts: guess a
ratio, find by maximum flow a cut above it, take that cut's ratio as the next guess, until there is none. Each guess is
the ratio of a cut, so the last one is exact and comes with its proof; B(S) falls from guess to guess, so it ends.

Flows are igraph's, in doubles: exact, as capacities are scaled to integers whose sum a double holds.

Sources: Dinkelbach 1967; Radzik 1992; Zhao et al., ForestColl, 2024.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from math import gcd, lcm
from typing import Any

from algocc.errors import UsageError
from algocc.topology.value import Topology

MOST_EXACT = 2**53


@dataclass(frozen=True)
class Cut:
    """A set of nodes, the links that leave it, and their bandwidth together in GB/s.

    `demand` is what must cross it, in units that the bound names.
    """

    inside: tuple[int, ...]
    crossing: tuple[int, ...]
    bandwidth: Fraction
    demand: Fraction

    @property
    def ratio(self) -> Fraction:
        """Seconds to cross, for a demand in GB."""
        return self.demand / self.bandwidth


def library(name: str) -> Any:
    """A library that only bounds need.

    Raises UsageError where it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        missing = name.partition(".")[0]
        raise UsageError(f"bounds of a topology need {missing}: pip install 'algocc[topology]'") from error


def cut_of(t: Topology, inside: Iterable[int], demand: Fraction | int, bandwidths: Sequence[Fraction]) -> Cut:
    """The cut that these nodes are.

    Raises UsageError if nothing leaves it, and something must.
    """
    members = frozenset(inside)
    crossing = tuple(e for e, link in enumerate(t.links) if link.start in members and link.end not in members)
    if not crossing:
        names = [t.nodes[i].name for i in sorted(members)]
        outside = next(t.nodes[r].name for r in t.ranks if r not in members)
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise UsageError(f"{t.name}: no link leaves {shown}: {outside} can't be reached; no schedule gets data there")
    total = sum((bandwidths[e] for e in crossing), Fraction(0))
    return Cut(tuple(sorted(members)), crossing, total, Fraction(demand))


class Network:
    """The links of a topology, with a node from which data starts; capacities change from flow to flow."""

    def __init__(self, t: Topology, bandwidths: Sequence[Fraction], sources: Iterable[int]) -> None:
        self.t, self.bandwidths, self.sources = t, bandwidths, tuple(sources)
        self.start = len(t.nodes)
        self.scale = lcm(*(b.denominator for b in bandwidths)) if bandwidths else 1
        self.integers = [int(b * self.scale) for b in bandwidths]
        if common := gcd(*self.integers):
            self.integers = [b // common for b in self.integers]
            self.factor = Fraction(common, self.scale)  # GB/s of one unit
        else:
            self.factor = Fraction(1)
        self.graph: Any = library("igraph").Graph(
            n=len(t.nodes) + 1,
            edges=[(link.start, link.end) for link in t.links] + [(self.start, r) for r in self.sources],
            directed=True,
        )

    def above(self, ratio: Fraction, target: int, inside: Iterable[int] = ()) -> frozenset[int] | None:
        """A cut S without `target` and with all of `inside` whose sources over B(S) are above the ratio, or None."""
        # Minimise (sources outside S) + ratio B(S); it is below (all sources) for such a cut alone.
        per_unit = ratio * self.factor
        link, supply = per_unit.numerator, per_unit.denominator
        forced = frozenset(inside)
        most = supply * (len(self.sources) + 1) + link * sum(self.integers)
        capacities = [link * b for b in self.integers] + [most if r in forced else supply for r in self.sources]
        self._check(most * (len(self.sources) + 1))
        cut = self.graph.maxflow(self.start, target, capacity=capacities)
        if cut.value >= supply * len(self.sources):
            return None
        return frozenset(next(part for part in cut.partition if self.start in part)) - {self.start}

    def minimum(self, target: int) -> frozenset[int]:
        """The smallest cut between all sources and a target, by bandwidth."""
        most = sum(self.integers) + 1
        self._check(most * (len(self.sources) + 1))
        cut = self.graph.maxflow(self.start, target, capacity=self.integers + [most] * len(self.sources))
        return frozenset(next(part for part in cut.partition if self.start in part)) - {self.start}

    def _check(self, most: int) -> None:
        if most >= MOST_EXACT:
            raise UsageError(
                f"{self.t.name}: bandwidths in units of {self.factor} GB/s make too large numbers to be exact; "
                "round them to a coarser unit"
            )


def slowest(t: Topology, bandwidths: Sequence[Fraction]) -> Cut:
    """The cut with the most ranks for its bandwidth, of those that miss a rank: it bounds AllGather.

    Targets done are kept inside the cuts of those that follow, as cuts without them have been looked at; if the ratio
    rises, the cuts looked at are still below it.
    """
    network = Network(t, bandwidths, t.ranks)
    ranks = frozenset(t.ranks)
    entering = dict.fromkeys(t.ranks, Fraction(0))
    for link, b in zip(t.links, bandwidths, strict=True):
        if link.end in ranks:
            entering[link.end] += b
    least = min(t.ranks, key=lambda r: entering[r])
    found = cut_of(t, frozenset(range(len(t.nodes))) - {least}, t.n - 1, bandwidths)  # a first guess
    done: list[int] = []
    for target in t.ranks:
        while (better := network.above(found.ratio, target, done)) is not None:
            found = cut_of(t, better, len(better & ranks), bandwidths)
        done.append(target)
    return found


def narrowest(t: Topology, root: int, bandwidths: Sequence[Fraction]) -> Cut:
    """The cut of least bandwidth between a node and any rank: it bounds Broadcast."""
    network = Network(t, bandwidths, [root])
    cuts = (cut_of(t, network.minimum(r), 1, bandwidths) for r in t.ranks if r != root)
    return min(cuts, key=lambda cut: cut.bandwidth)


def scattering(t: Topology, root: int, bandwidths: Sequence[Fraction]) -> Cut:
    """The cut around a root with the most ranks outside for its bandwidth: it bounds Scatter."""
    back = t.reversed()
    network = Network(back, bandwidths, [r for r in t.ranks if r != root])
    everyone = frozenset(range(len(t.nodes)))
    found = cut_of(t, {root}, t.n - 1, bandwidths)
    ranks = frozenset(t.ranks)
    while (better := network.above(found.ratio, root)) is not None:
        found = cut_of(t, everyone - better, len(better & ranks), bandwidths)
    return found
