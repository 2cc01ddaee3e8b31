"""How long a collective takes on a Topology at least, exactly, with the cut or the edge lengths that prove it.

Times are seconds for each GB of m, the full vector, and ignore latency. A cut bounds any schedule: what must leave it
crosses its links. Where a theorem says that trees, or flows, share the links as well as the cut allows, the bound is
attained, in the limit of small chunks:

- Broadcast and AllGather without switches: trees packed as Edmonds 1973 has it. With switches, where each
  switch and rank has as much bandwidth in as out: switches split off, Bang-Jensen, Frank and Jackson 1995, as in
  ForestColl, Zhao et al. 2024. Reduce and ReduceScatter are their time reversals.
- Scatter and Gather: one flow, Ford and Fulkerson 1956.

AllReduce is bounded in the semigroup model: a message carries reductions of contributions, no coding, and switches
do not reduce. ReduceScatter and then AllGather need not be its fastest schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from algocc.errors import UsageError, near
from algocc.topology.all_to_all import Lengths, lengths
from algocc.topology.cuts import Cut, cut_of, narrowest, scattering, slowest
from algocc.topology.value import Topology


class Parts(NamedTuple):
    """A proof for AllReduce: groups of nodes, and the bandwidth into all of them together."""

    groups: tuple[tuple[int, ...], ...]
    bandwidth: Fraction


@dataclass(frozen=True)
class TopologyBound:
    """What no schedule of a collective on a topology can beat.

    `time` is seconds for each GB of m; `attained` says by which theorem it is reached, or is empty; `reached` is the
    time of the best schedule known, None if none is. `why` is the argument in a sentence; the proof is a cut, edge
    lengths or a partition.
    """

    collective: str
    topology: Topology
    measure: str
    root: int | None
    time: Fraction
    why: str
    proof: Cut | Lengths | Parts
    attained: str = ""
    reached: Fraction | None = None
    trees: int | None = None  # at each root, of equal weight, in the smallest packing that attains it

    @property
    def bandwidth(self) -> Fraction:
        """The algorithm bandwidth in GB/s: m over the time."""
        return 1 / self.time


def bound(t: Topology, collective: str, *, measure: str = "nominal", root: int = 0) -> TopologyBound:
    """The bound of one collective. On one rank, and where data can't get where it must, it is an error.

    Raises UsageError.

    >>> from algocc.topology.models import model
    >>> b = bound(model("dgx1"), "all_gather")
    >>> str(b.time), round(float(b.bandwidth), 2), b.trees
    ('7/1200', 171.43, 6)
    """
    plain = collective.lower().replace("-", "").replace("_", "").replace(" ", "")
    name = next((c for c in BOUNDS if c.replace("_", "") == plain), None)
    if name is None:
        raise UsageError(
            f"no bound of {collective!r} on a topology{near(collective, BOUNDS)}; known: {', '.join(BOUNDS)}"
        )
    if t.n < 2:
        raise UsageError(f"{t.name}: one rank, {t.nodes[t.ranks[0]].name}: a collective needs no link")
    if not 0 <= root < t.n:
        raise UsageError(f"root={root}: with {t.n} ranks a rank is one of 0..{t.n - 1}")
    return BOUNDS[name](t, measure, root)


def all_bounds(t: Topology, *, measure: str = "nominal", root: int = 0) -> list[TopologyBound]:
    """The bounds of all collectives."""
    return [bound(t, name, measure=measure, root=root) for name in BOUNDS]


def _all_gather(t: Topology, measure: str, root: int) -> TopologyBound:
    return _gathering(t, t.bandwidths(measure), measure, "all_gather", "the m/p of each rank inside must get out")


def _reduce_scatter(t: Topology, measure: str, root: int) -> TopologyBound:
    why = "the m/p of each rank outside needs contributions from inside"
    return _turned(t, _gathering(t.reversed(), t.bandwidths(measure), measure, "reduce_scatter", why))


def _gathering(t: Topology, widths: Sequence[Fraction], measure: str, name: str, why: str) -> TopologyBound:
    cut = slowest(t, widths)
    time = cut.ratio / t.n
    attained = _trees_pack(t, widths)
    trees = lcm(*((b * cut.ratio).denominator for b in widths)) if attained else None
    return TopologyBound(name, t, measure, None, time, why, cut, attained, time if attained else None, trees)


def _broadcast(t: Topology, measure: str, root: int) -> TopologyBound:
    return _casting(t, t.bandwidths(measure), measure, root, "broadcast", "m must get out, from the root inside")


def _reduce(t: Topology, measure: str, root: int) -> TopologyBound:
    why = "m, reduced, must get out, to the root"
    return _turned(t, _casting(t.reversed(), t.bandwidths(measure), measure, root, "reduce", why))


def _casting(
    t: Topology, widths: Sequence[Fraction], measure: str, root: int, name: str, why: str
) -> TopologyBound:
    cut = narrowest(t, t.ranks[root], widths)
    attained = _trees_pack(t, widths)
    return TopologyBound(name, t, measure, root, cut.ratio, why, cut, attained, cut.ratio if attained else None)


def _scatter(t: Topology, measure: str, root: int) -> TopologyBound:
    return _dealing(t, t.bandwidths(measure), measure, root, "scatter", "the m/p of each rank outside must get out")


def _gather(t: Topology, measure: str, root: int) -> TopologyBound:
    why = "the m/p of each rank inside must get out, to the root"
    return _turned(t, _dealing(t.reversed(), t.bandwidths(measure), measure, root, "gather", why))


def _dealing(
    t: Topology, widths: Sequence[Fraction], measure: str, root: int, name: str, why: str
) -> TopologyBound:
    cut = scattering(t, t.ranks[root], widths)
    time = cut.ratio / t.n
    return TopologyBound(name, t, measure, root, time, why, cut, "one flow from the root, Ford and Fulkerson", time)


def _all_reduce(t: Topology, measure: str, root: int) -> TopologyBound:
    """The better of a cut, across which m must pass, and partitions into groups that exchange contributions."""
    widths = t.bandwidths(measure)
    first = t.ranks[0]
    away = narrowest(t, first, widths)
    back = narrowest(t.reversed(), first, widths)
    cut = min(away, _complement(t, back, widths), key=lambda c: c.bandwidth)
    why = "m must get out: the contributions from inside, reduced"
    found: tuple[Fraction, Cut | Parts, str] = (cut.ratio, cut, why)
    for parts in _partitions(t, widths):
        k = len(parts.groups)
        least = 2 * (k - 1) / parts.bandwidth
        if least > found[0]:
            reason = f"each element takes 2({k}-1) messages from group to group until all {k} groups have its result"
            found = least, parts, reason
    time, proof, why = found
    gather, scatter = _all_gather(t, measure, root), _reduce_scatter(t, measure, root)
    reached = None
    if gather.reached is not None and scatter.reached is not None:
        reached = gather.reached + scatter.reached
    attained = "ReduceScatter then AllGather" if reached == time else ""
    return TopologyBound("all_reduce", t, measure, None, time, why, proof, attained, reached)


def _all_to_all(t: Topology, measure: str, root: int) -> TopologyBound:
    widths = t.bandwidths(measure)
    found = lengths(t, widths)
    why = "a byte from s to t uses links of dist(s,t) together; all of them can carry the sum of b times length a second"
    return TopologyBound("all_to_all", t, measure, None, found.ratio / t.n, why, found)


BOUNDS: dict[str, Callable[[Topology, str, int], TopologyBound]] = {
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
    "all_to_all": _all_to_all,
}
"""By collective."""


def _turned(t: Topology, b: TopologyBound) -> TopologyBound:
    """A bound of the reversed topology as one of `t`: its cut is what is left, from which the same links lead in."""
    cut = b.proof
    assert isinstance(cut, Cut)
    outside = tuple(sorted(set(range(len(t.nodes))) - set(cut.inside)))
    turned = Cut(outside, cut.crossing, cut.bandwidth, cut.demand)
    return replace(b, topology=t, proof=turned)


def _complement(t: Topology, cut: Cut, widths: Sequence[Fraction]) -> Cut:
    """A cut of the reversed topology, in `t`."""
    return cut_of(t, set(range(len(t.nodes))) - set(cut.inside), cut.demand, widths)


def _trees_pack(t: Topology, widths: Sequence[Fraction]) -> str:
    """The theorem by which trees attain the cut, or nothing where none is known to apply."""
    if t.n == len(t.nodes):
        return "packed trees, Edmonds"
    balance = [Fraction(0)] * len(t.nodes)
    for link, b in zip(t.links, widths, strict=True):
        balance[link.start] += b
        balance[link.end] -= b
    return "" if any(balance) else "packed trees after splitting off the switches, Bang-Jensen, Frank and Jackson"


def _partitions(t: Topology, widths: Sequence[Fraction]) -> list[Parts]:
    """Partitions worth trying: single ranks, and what links above each bandwidth join; any partition is a proof."""
    levels = sorted({*widths}, reverse=True)[:32]
    found = [_parts(t, widths, [(r,) for r in t.ranks])]
    for level in levels:
        group = list(range(len(t.nodes)))

        def top(i: int, group: list[int] = group) -> int:
            while group[i] != i:
                group[i] = group[group[i]]
                i = group[i]
            return i

        for link, b in zip(t.links, widths, strict=True):
            if b >= level:
                group[top(link.start)] = top(link.end)
        members: dict[int, list[int]] = {}
        for i in range(len(t.nodes)):
            members.setdefault(top(i), []).append(i)
        ranks = frozenset(t.ranks)
        groups = [tuple(m) for m in members.values() if ranks.intersection(m)]
        if len(groups) > 1:
            found.append(_parts(t, widths, groups))
    return found


def _parts(t: Topology, widths: Sequence[Fraction], groups: Sequence[tuple[int, ...]]) -> Parts:
    """The smaller of the bandwidths into and out of all groups."""
    of = {node: g for g, members in enumerate(groups) for node in members}
    entering = leaving = Fraction(0)
    for link, b in zip(t.links, widths, strict=True):
        start, end = of.get(link.start), of.get(link.end)
        if start != end:
            entering += b if end is not None else 0
            leaving += b if start is not None else 0
    return Parts(tuple(groups), min(entering, leaving))


def chunked_all_gather(t: Topology, chunk: Fraction | int, *, chunks: int = 1, measure: str = "nominal") -> Fraction:
    """Seconds that an AllGather of `chunks` chunks a rank, of `chunk` GB each, takes at least, with latencies.

    A link passes a chunk in latency + chunk / bandwidth, one after the other, so within T only the whole part of
    T over that; each rank lacks chunks (p - 1) of them.

    >>> from algocc.topology.models import model
    >>> str(chunked_all_gather(model("dgx1"), Fraction(25, 10**6)))  # 7 chunks by 4 neighbours, of 2 double links
    '1/312500'
    """
    if not (chunk > 0 and chunks > 0):
        raise UsageError(f"chunk={chunk}, chunks={chunks}: wanted numbers above 0")
    widths = t.bandwidths(measure)
    entering: dict[int, list[Fraction]] = {r: [] for r in t.ranks}
    for link, b in zip(t.links, widths, strict=True):
        if link.end in entering:
            entering[link.end].append(link.latency + Fraction(chunk) / b)
    need = chunks * (t.n - 1)
    return max((_earliest(times, need, t.nodes[r].name) for r, times in entering.items()), default=Fraction(0))


def _earliest(times: list[Fraction], need: int, name: str) -> Fraction:
    """The least T with at least `need` chunks passed: it is a multiple of some link's time."""
    if not times and need:
        raise UsageError(f"no link enters {name}: no schedule gets data there")
    best: Fraction | None = None
    for each in times:
        low, high = 0, need
        while low < high:
            k = (low + high) // 2
            if sum(k * each // other for other in times) >= need:
                high = k
            else:
                low = k + 1
        best = low * each if best is None else min(best, low * each)
    return best or Fraction(0)
