"""Bounds on topologies: against every subset of nodes, against what trees and flows attain, against published values."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from algocc.errors import UsageError
from algocc.topology import BOUNDS, MODELS, Link, Node, Parts, Topology, all_bounds, bound, chunked_all_gather, model
from algocc.topology.all_to_all import Lengths, evaluate
from algocc.topology.cuts import Cut

from .strategies import topologies

OPTIMA = {  # AllGather: 1/x*, trees at each root, GB/s
    "dgx1": ("7/150", 6, 171.43),
    "dgx-a100": ("7/300", 1, 342.86),
    "dgx-a100:2": ("3/65", 13, 346.67),
    "mi250x": ("7/150", 3, 342.86),
    "mi250x:2": ("15/166", 83, 354.13),
    "mesh:3x3": ("4", 1, None),
    "mesh:5x5": ("12", 1, None),
    "torus:4x4": ("15/4", 4, None),
    "hypercube:3": ("7/3", 3, None),
}

ROUNDS = {  # of links, for each chunk: rounds that exhaustive search found to be the fewest
    ("dgx1", "all_gather"): ("7/6", 25),
    ("dgx1", "gather"): ("7/6", 25),
    ("dgx1", "all_to_all"): ("8/3", 25),
    ("ring:8", "all_gather"): ("7/2", 1),
    ("ring:8", "gather"): ("7/2", 1),
    ("ring:8", "all_to_all"): ("8", 1),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_published_optima(name: str) -> None:
    t = model(name)
    ratio, trees, speed = OPTIMA[name]
    for collective in ("all_gather", "reduce_scatter"):
        b = bound(t, collective)
        assert b.time * t.n == Fraction(ratio)
        assert b.trees == trees
        assert b.attained and b.reached == b.time
        assert speed is None or round(float(b.bandwidth), 2) == speed


@pytest.mark.parametrize(("name", "collective"), ROUNDS)
def test_published_rounds(name: str, collective: str) -> None:
    t = model(name)
    rounds, width = ROUNDS[name, collective]
    assert bound(t, collective).time * t.n * width == Fraction(rounds)


def test_broadcast_of_many_chunks_comes_near_the_bound() -> None:
    dgx1, ring = bound(model("dgx1"), "broadcast").time, bound(model("ring:8"), "broadcast").time
    published = [Fraction(x) for x in ("1", "9/22", "4/13", "5/19", "6/25", "7/31", "8/37")]
    assert all(x > dgx1 * 25 for x in published) and dgx1 * 25 == Fraction(1, 6)
    assert all(Fraction(x) > ring for x in ("2", "5/4", "1", "7/8", "4/5")) and ring == Fraction(1, 2)


@pytest.mark.parametrize("name", [m.example for m in MODELS.values()])
def test_every_model_has_all_bounds_with_proofs(name: str) -> None:
    t = model(name)
    for b in all_bounds(t):
        recheck(b)
        assert b.reached is None or b.reached >= b.time


@settings(max_examples=40)
@given(topologies(), st.data())
def test_cuts_are_the_slowest_of_all_subsets(t: Topology, data: Any) -> None:
    root = data.draw(st.integers(0, t.n - 1))
    best: dict[str, Fraction] = dict.fromkeys(BOUNDS, Fraction(0))
    ranks = set(t.ranks)
    for size in range(1, len(t.nodes)):
        for chosen in combinations(range(len(t.nodes)), size):
            inside = set(chosen)
            held, lacking = len(inside & ranks), len(ranks - inside)
            if not held or not lacking:
                continue
            width = sum(k.nominal for k in t.links if k.start in inside and k.end not in inside)
            has_root = t.ranks[root] in inside
            for name, demand in {
                "all_gather": Fraction(held, t.n),
                "reduce_scatter": Fraction(lacking, t.n),
                "all_reduce": Fraction(1),
                "broadcast": Fraction(has_root),
                "reduce": Fraction(not has_root),
                "scatter": Fraction(lacking * has_root, t.n),
                "gather": Fraction(held * (not has_root), t.n),
            }.items():
                best[name] = max(best[name], demand / width)
    for b in all_bounds(t, root=root):
        recheck(b)
        if b.collective not in ("all_reduce", "all_to_all"):
            assert b.time == best[b.collective], b.collective
    assert bound(t, "all_reduce").time >= best["all_reduce"]


def recheck(b: Any) -> None:
    """The proof of a bound, by its definition."""
    t, widths = b.topology, b.topology.bandwidths(b.measure)
    ranks = set(t.ranks)
    if isinstance(b.proof, Cut):
        inside = set(b.proof.inside)
        crossing = [e for e, k in enumerate(t.links) if k.start in inside and k.end not in inside]
        assert sorted(b.proof.crossing) == crossing
        held, lacking = len(inside & ranks), len(ranks - inside)
        assert held and lacking
        demand = {"all_gather": held, "gather": held, "reduce_scatter": lacking, "scatter": lacking}.get(b.collective)
        part = 1 if demand is None else t.n
        assert b.proof.demand == (1 if demand is None else demand)
        if b.collective in ("broadcast", "scatter"):
            assert t.ranks[b.root] in inside
        if b.collective in ("reduce", "gather"):
            assert t.ranks[b.root] not in inside
        assert b.time == b.proof.demand / sum(widths[e] for e in crossing) / part
    elif isinstance(b.proof, Lengths):
        assert min(b.proof.lengths) >= 0
        between = floyd(t, b.proof.lengths)
        distances = sum(between[s, e] for s in t.ranks for e in t.ranks)
        assert b.time * t.n == distances / sum(w * k for w, k in zip(widths, b.proof.lengths, strict=True))
    else:
        assert isinstance(b.proof, Parts)
        groups = [set(g) for g in b.proof.groups]
        assert all(g & ranks for g in groups) and sum(map(len, groups)) == len(set().union(*groups))
        assert ranks <= set().union(*groups)
        into = sum(w for g in groups for w, k in zip(widths, t.links, strict=True) if k.end in g and k.start not in g)
        out = sum(w for g in groups for w, k in zip(widths, t.links, strict=True) if k.start in g and k.end not in g)
        assert b.time == 2 * (len(groups) - 1) / Fraction(min(into, out))


def floyd(t: Topology, lengths: Any) -> np.ndarray[Any, Any]:
    far = 1 << 60
    d = np.full((len(t.nodes),) * 2, far, dtype=object)
    for i in range(len(t.nodes)):
        d[i, i] = 0
    for k, length in zip(t.links, lengths, strict=True):
        d[k.start, k.end] = min(d[k.start, k.end], length)
    for via in range(len(t.nodes)):
        d = np.minimum(d, d[:, [via]] + d[[via], :])
    return d


def trees(t: Topology, root: int) -> Iterator[list[int]]:
    """Of each tree from a root to all ranks, the links it uses; between ranks data takes a link, or two by a switch."""
    ranks = set(t.ranks)
    ways: dict[int, list[tuple[int, list[int]]]] = {r: [] for r in t.ranks}
    for e, k in enumerate(t.links):
        if k.end in ranks and k.start in ranks:
            ways[k.end].append((k.start, [e]))
        elif k.end in ranks:
            ways[k.end] += [(j.start, [f, e]) for f, j in enumerate(t.links) if j.end == k.start and j.start in ranks]
    others = [r for r in t.ranks if r != root]
    for chosen in product(*([w for w in ways[r] if w[0] != r] for r in others)):
        parent = {r: way[0] for r, way in zip(others, chosen, strict=True)}
        for r in others:
            at = r
            for _ in others:
                at = parent.get(at, at)
            if at != root:
                break
        else:
            yield [e for _, used in chosen for e in used]


@settings(max_examples=25)
@given(st.booleans().flatmap(lambda b: topologies(ranks=3, switches=int(b), balanced=b)), st.integers(0, 1))
def test_packed_trees_attain_the_bound(t: Topology, root: int) -> None:
    """The linear program of all trees, with and without switches, gives what the cut allows."""
    assume(len(t.links) <= 16)
    for name, roots in (("all_gather", t.ranks), ("broadcast", (t.ranks[root],))):
        found = [(r, tree) for r in roots for tree in trees(t, r)]
        assume(len(found) < 3000)
        load = np.zeros((len(t.links), len(found) + 1))
        for i, (_, tree) in enumerate(found):
            for e in tree:
                load[e, i] += 1
        each = np.array([[-float(r == root) for r, _ in found] + [1.0] for root in roots])
        gain = np.zeros(len(found) + 1)
        gain[-1] = -1
        widths = [float(b) for b in t.bandwidths()]
        best = linprog(gain, A_ub=np.vstack([load, each]), b_ub=widths + [0.0] * len(each), method="highs")
        b = bound(t, name, root=root)
        assert b.attained
        parts = t.n if name == "all_gather" else 1
        assert 1 / -best.fun == pytest.approx(float(b.time * parts), rel=1e-7)


@settings(max_examples=25)
@given(topologies())
def test_all_to_all_is_the_largest_concurrent_flow(t: Topology) -> None:
    """The primal, another program: one flow from each rank, which leaves a share at each other one."""
    links, n = len(t.links), t.n
    rows, right = [], []
    for s, source in enumerate(t.ranks):
        for node in range(len(t.nodes)):
            if node == source:
                continue
            row = np.zeros(n * links + 1)
            for e, k in enumerate(t.links):
                row[s * links + e] += (k.end == node) - (k.start == node)
            row[-1] = -float(node in t.ranks)
            rows.append(row)
            right.append(0.0)
    load = np.hstack([np.tile(np.eye(links), n), np.zeros((links, 1))])
    gain = np.zeros(n * links + 1)
    gain[-1] = -1
    best = linprog(
        gain, A_ub=load, b_ub=[float(b) for b in t.bandwidths()], A_eq=np.array(rows), b_eq=right, method="highs"
    )
    b = bound(t, "all_to_all")
    assert float(b.time * n) == pytest.approx(1 / -best.fun, rel=1e-3)
    assert float(b.time * n) <= 1 / -best.fun * (1 + 1e-7)


@settings(max_examples=30)
@given(topologies(), st.integers(1, 5), st.data())
def test_any_lengths_are_a_bound_that_none_beats(t: Topology, _: int, data: Any) -> None:
    given_lengths = data.draw(st.lists(st.integers(0, 9), min_size=len(t.links), max_size=len(t.links)))
    assume(any(given_lengths))
    b = bound(t, "all_to_all")
    assert evaluate(t, t.bandwidths(), given_lengths, "drawn").ratio / t.n <= b.time * Fraction(1001, 1000)


@settings(max_examples=30)
@given(topologies(balanced=True), st.fractions(Fraction(1, 9), 9, max_denominator=9), st.randoms())
def test_scaled_and_renamed(t: Topology, factor: Fraction, random: Any) -> None:
    """Bandwidths times f make times 1/f; another order of the nodes changes nothing."""
    order = list(range(len(t.nodes)))
    random.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    links = [k._replace(start=place[k.start], end=place[k.end], nominal=k.nominal * factor) for k in t.links]
    random.shuffle(links)
    other = Topology("other", tuple(t.nodes[i] for i in order), tuple(links))
    for name in ("all_gather", "reduce_scatter", "all_reduce"):
        assert bound(other, name).time * factor == bound(t, name).time


def test_all_reduce_is_proved_optimal_or_labelled() -> None:
    known = {"dgx1": "7/600", "dgx-a100": "7/1200", "dgx-a100:2": "3/520"}
    for name, time in known.items():
        b = bound(model(name), "all_reduce")
        assert (b.time, b.reached, b.attained) == (Fraction(time), Fraction(time), "ReduceScatter then AllGather")
    b = bound(model("mesh:3x3"), "all_reduce")
    assert (b.time, b.reached, b.attained) == (Fraction(2, 3), Fraction(8, 9), "")


def test_unbalanced_switches_claim_nothing() -> None:
    nodes = (Node("a"), Node("b"), Node("s", "switch"))
    pairs = [(0, 2, 1), (2, 1, 2), (1, 0, 1), (0, 1, 1)]
    t = Topology("odd", nodes, tuple(Link(i, j, Fraction(b)) for i, j, b in pairs))
    b = bound(t, "all_gather")
    assert (b.attained, b.reached, b.trees) == ("", None, None)


def test_pairs_without_a_way_are_named() -> None:
    """Links 0-1 and 2-3 only: nothing gets from one pair to the other."""
    ends = [(0, 1), (1, 0), (2, 3), (3, 2)]
    t = Topology("pairs", tuple(Node(f"gpu{i}") for i in range(4)), tuple(Link(i, j, Fraction(25)) for i, j in ends))
    missing = {(a, b) for a, b in t.missing_pairs() if a < b}
    assert missing == {(0, 2), (0, 3), (1, 2), (1, 3)}
    for name in BOUNDS:
        with pytest.raises(UsageError, match=r"pairs: no link leaves gpu\d, gpu\d: gpu\d can't be reached"):
            bound(t, name)


def test_a_one_way_link_that_is_missing() -> None:
    ends = [(0, 1), (1, 2), (2, 0), (3, 0)]  # nobody sends to 3
    t = Topology("lost", tuple(Node(f"gpu{i}") for i in range(4)), tuple(Link(i, j, Fraction(1)) for i, j in ends))
    with pytest.raises(UsageError, match="no link leaves gpu0, gpu1, gpu2: gpu3 can't be reached"):
        bound(t, "all_gather")
    assert bound(t, "gather").time == Fraction(2, 4)  # of 1 and 2, by 2 -> 0


@settings(max_examples=40)
@given(topologies(), st.integers(1, 3), st.fractions(Fraction(1, 9), 9, max_denominator=9))
def test_chunks_one_by_one(t: Topology, chunks: int, chunk: Fraction) -> None:
    """Let time run from one arrival to the next, at each rank on its own."""
    assume(all(any(k.end == r for k in t.links) for r in t.ranks))
    slowest = Fraction(0)
    for r in t.ranks:
        each = [k.latency + chunk / k.nominal for k in t.links if k.end == r]
        need = chunks * (t.n - 1)
        arrivals = sorted(i * x for x in each for i in range(1, need + 1))
        slowest = max(slowest, arrivals[need - 1])
    assert chunked_all_gather(t, chunk, chunks=chunks) == slowest


def test_bad_questions() -> None:
    t = model("dgx1")
    for call, message in {
        lambda: bound(t, "all_gahter"): "no bound of 'all_gahter' on a topology; did you mean all_gather",
        lambda: bound(t, "broadcast", root=8): "root=8: with 8 ranks a rank is one of 0..7",
        lambda: bound(t, "broadcast", measure="peak"): "unknown bandwidth 'peak'",
        lambda: bound(model("mesh:1x1"), "all_gather"): "one rank, r0.0",
        lambda: chunked_all_gather(t, 0): "chunk=0, chunks=1: wanted numbers above 0",
        lambda: bound(model("fat-tree:2x2"), "reduce", measure="usable"): "no usable bandwidth is known",
    }.items():
        with pytest.raises(UsageError, match=message):
            call()
    huge = Topology("huge", (Node("a"), Node("b")), (Link(0, 1, Fraction(10**9, 7)), Link(1, 0, Fraction(1, 10**12 + 1))))
    with pytest.raises(UsageError, match="too large numbers to be exact"):
        bound(huge, "all_gather")
