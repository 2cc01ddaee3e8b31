"""The bound of AllToAll: lengths of links, which any schedule must pay for and no second can provide more of.

For any lengths l >= 0, the demand of one unit from each rank to each other takes at least
sum over pairs of dist(s, t) / sum over links of b l. The best lengths are the dual of the maximum concurrent flow
(Shahrokhi and Matula 1990), a linear program; it is solved in floats (HiGHS), its lengths are rounded to integers, and
the ratio is then evaluated exactly, so that rounding costs a little of the bound, never its truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from algocc.topology.cuts import library, slowest
from algocc.topology.value import Topology

MOST_ROWS = 12_000
"""Constraints, ranks times links, beyond which the program is not solved; simpler lengths still give a bound."""
FINEST = 720_720
"""What the longest length is rounded to a fraction of: it has many divisors, as such lengths are often simple."""


@dataclass(frozen=True)
class Lengths:
    """A proof: integer lengths of links, the sum of all distances between ranks, and what a second provides."""

    lengths: tuple[int, ...]
    distances: int
    capacity: Fraction
    how: str

    @property
    def ratio(self) -> Fraction:
        """Seconds for a demand of 1 GB for each ordered pair."""
        return self.distances / self.capacity


def lengths(t: Topology, bandwidths: Sequence[Fraction]) -> Lengths:
    """The best of the program's lengths, equal ones, those inverse to the bandwidth, and the slowest cut's."""
    unit = lcm(*(b.numerator for b in bandwidths))
    crossing = set(slowest(t, bandwidths).crossing)
    tries = [
        ([1] * len(bandwidths), "all links as long"),
        ([int(unit / b) for b in bandwidths] if unit < 2**40 else [], "as long as slow"),
        ([int(e in crossing) for e in range(len(bandwidths))], "the links of a cut"),
    ]
    if t.n * len(t.links) <= MOST_ROWS:
        tries.append((_program(t, bandwidths), "the dual of the concurrent flow, rounded"))
    return max((evaluate(t, bandwidths, given, how) for given, how in tries if any(given)), key=lambda x: x.ratio)


def evaluate(t: Topology, bandwidths: Sequence[Fraction], given: Sequence[int], how: str) -> Lengths:
    """What some lengths prove, exactly: distances of integers below 2^53 are exact."""
    common = gcd(*given)
    given = [k // common for k in given]
    graph = library("igraph").Graph(n=len(t.nodes), edges=[(k.start, k.end) for k in t.links], directed=True)
    table = graph.distances(source=list(t.ranks), target=list(t.ranks), weights=list(given), mode="out")
    distances = sum(int(d) for row in table for d in row)
    return Lengths(tuple(given), distances, sum((b * k for b, k in zip(bandwidths, given, strict=True)), Fraction(0)), how)


def _program(t: Topology, bandwidths: Sequence[Fraction]) -> list[int]:
    """Lengths l and potentials d(s, v) that maximise sum of d(s, t): d(s, v) <= d(s, u) + l(u, v), sum of b l = 1."""
    linprog, coo_array = library("scipy.optimize").linprog, library("scipy.sparse").coo_array
    links, nodes, n = len(t.links), len(t.nodes), t.n
    start = np.array([k.start for k in t.links])
    end = np.array([k.end for k in t.links])
    rank, link = (a.ravel() for a in np.indices((n, links)))
    row = np.arange(n * links)
    entries = [
        (links + rank * nodes + end[link], 1.0),
        (links + rank * nodes + start[link], -1.0),
        (link, -1.0),
    ]
    columns = np.concatenate([c for c, _ in entries])
    values = np.concatenate([np.full(n * links, v) for _, v in entries])
    above = coo_array((values, (np.tile(row, 3), columns)), shape=(n * links, links + n * nodes)).tocsr()
    scale = float(sum(bandwidths))
    one = np.zeros((1, links + n * nodes))
    one[0, :links] = [float(b) / scale for b in bandwidths]
    gain = np.zeros(links + n * nodes)
    limits: list[tuple[float, float | None]] = [(0, None)] * (links + n * nodes)
    for s, source in enumerate(t.ranks):
        gain[links + s * nodes + np.array(t.ranks)] = -1
        limits[links + s * nodes + source] = (0, 0)
    found = linprog(gain, A_ub=above, b_ub=np.zeros(n * links), A_eq=one, b_eq=[1.0], bounds=limits, method="highs")
    if found.x is None:
        return []
    lengths = np.maximum(found.x[:links], 0)
    return [round(float(k) * FINEST) for k in lengths / lengths.max()]
