"""The algebra: whatever is made of correct schedules is correct, or is refused with the reason.

Random schedules for random collectives go through every operation; the catalogue shows what the results cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from algocc import algebra
from algocc.algebra import (
    beside,
    hierarchical,
    instances,
    pipelined,
    recast,
    refine,
    relabel,
    striped,
    then,
    tidy,
    within,
)
from algocc.algebra import reversed as backwards
from algocc.catalog import algorithms
from algocc.collective import (
    Collective,
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_v,
    barrier,
    broadcast,
    custom,
    gather,
    reduce,
    reduce_scatter,
    scatter,
    send_recv,
)  # fmt: skip
from algocc.errors import UsageError
from algocc.schedules.ring import ring, ring_all_gather, ring_reduce_scatter
from algocc.steps import Steps
from algocc.table import Schedule, form_failures, layout
from algocc.testing import schedules
from algocc.verifier.dataflow import Trace, judge, trace

few = settings(max_examples=80, deadline=None)


def traced(s: Schedule, *, in_place: bool = False) -> Trace:
    return trace(s.matched(), layout(s, in_place=in_place))


def is_correct(s: Schedule, *, in_place: bool = False) -> bool:
    if form_failures(s):
        return False
    s, places = s.matched(), layout(s, in_place=in_place)
    t = trace(s, places)
    outcome = judge(s, places, t)
    right = outcome.sets_right if s.collective.idempotent else not len(outcome.wrong)
    return not len(t.trouble) and right


def assert_keeps(old: Schedule, new: Schedule) -> None:
    """The new schedule is correct, in place too if the old one was."""
    assert is_correct(new)
    assert is_correct(new, in_place=True) or not is_correct(old, in_place=True)


def volumes(s: Schedule) -> tuple[int, list[int], list[int]]:
    """Rounds, and chunks sent and received by each rank."""
    t = traced(s)
    return t.rounds, t.sent.tolist(), t.received.tolist()


# Laws, for random schedules of random collectives.


@few
@given(schedules(in_place=True))
def test_tidy(s: Schedule) -> None:
    made = tidy(s)
    assert_keeps(s, made)
    assert made.scratch <= s.scratch and made.collective == s.collective
    assert tidy(made) == made
    before, after = traced(s), traced(made)
    assert (after.rounds, after.messages) == (before.rounds, before.messages)


@few
@given(schedules(), st.integers(1, 3), st.integers(1, 2))
def test_refine(s: Schedule, k: int, j: int) -> None:
    made = refine(s, k)
    assert_keeps(s, made)
    assert made.collective == s.collective.cut(s.collective.chunks * k)
    assert refine(made, j) == refine(s, k * j)
    assert refine(s, 1) == s.matched()


@few
@given(schedules(in_place=True))
def test_reversed(s: Schedule) -> None:
    try:
        made = backwards(s)
    except UsageError as error:
        assert "goes nowhere" in str(error) or "split the step" in str(error)
        return
    assert is_correct(made) and is_correct(made, in_place=True)
    again = backwards(made)
    assert is_correct(again) and is_correct(again, in_place=True)
    recast(again, s.collective)
    there_and_back = then(s, made)
    assert is_correct(there_and_back) and is_correct(there_and_back, in_place=True)


@few
@given(schedules(in_place=True), st.data())
def test_relabel(s: Schedule, data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(s.n)))
    made = relabel(s, perm)
    assert_keeps(s, made)
    assert volumes(made)[1] == [volumes(s)[1][old] for old in perm]
    back = relabel(made, np.argsort(perm))
    assert_keeps(s, recast(back, s.collective))
    if s.collective.name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"):
        assert made.collective == s.collective


@few
@given(schedules(in_place=True), st.integers(1, 4), st.sampled_from([0, 1, 2, None]))
def test_pipelined(s: Schedule, k: int, every: int | None) -> None:
    made = pipelined(s, k, every=every)
    assert_keeps(s, made)
    assert made.collective == s.collective.cut(k * s.collective.chunks)
    assert volumes(made)[1] == [k * sent for sent in volumes(s)[1]]
    if every == 0:
        assert made.columns["step"].tolist() == instances(s, k).step.tolist()


@few
@given(st.data())
def test_beside(data: st.DataObject) -> None:
    a = data.draw(schedules(in_place=True))
    parts = [a, tidy(a), refine(a, data.draw(st.integers(1, 2)))]
    made = beside(*parts)
    assert_keeps(a, made)
    assert made.collective.chunks == sum(s.collective.chunks for s in parts)
    weights = data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
    assert_keeps(a, striped(parts, weights))


@few
@given(schedules(3, in_place=True), st.data())
def test_within(s: Schedule, data: st.DataObject) -> None:
    n = s.n * 2 + data.draw(st.integers(0, 1))
    ranks = data.draw(st.permutations(range(n)))
    groups = [ranks[: s.n], ranks[s.n : 2 * s.n]][: data.draw(st.integers(1, 2))]
    made = within(s, groups, n=n)
    assert_keeps(s, made)
    inside = {rank for group in groups for rank in group}
    assert all(made.collective.inputs[rank] == made.collective.outputs[rank] == 0 for rank in set(range(n)) - inside)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(schedules(3), schedules(3))
def test_then(a: Schedule, b: Schedule) -> None:
    assume(a.n == b.n)
    try:
        made = then(a, b)
    except UsageError as error:
        assert "chunk" in str(error) or "sizes" in str(error)
        return
    assert is_correct(made) and is_correct(made, in_place=True)
    assert traced(made).rounds <= traced(a).rounds + traced(b).rounds


@few
@given(schedules(3), st.integers(1, 2), st.data())
def test_towers(s: Schedule, k: int, data: st.DataObject) -> None:
    """Any operations on top of each other."""
    made = s
    for _ in range(3):
        operations: list[Callable[[Schedule], Schedule]] = [
            lambda x: relabel(x, list(range(x.n))[::-1]), lambda x: pipelined(x, k), lambda x: beside(x, x),
            lambda x: then(x, x), backwards, lambda x: within(x, np.arange(2 * x.n).reshape(x.n, 2).T),
        ]  # fmt: skip
        try:
            made = data.draw(st.sampled_from(operations))(made)
        except UsageError:
            continue
        assert is_correct(made)
        assume(len(made) < 3000)


@few
@given(schedules())
def test_source_lines_are_kept(s: Schedule) -> None:
    s = s.matched()
    lines = tuple(f"line {i}" for i in range(len(s)))
    named = Schedule(s.name, s.collective, s.scratch, **{**s.columns, "origin": np.arange(len(s))}, origins=lines)
    idle = (s.action == 0) & (s.rank == s.peer) & (s.buffer == s.peer_buffer) & (s.chunk == s.peer_chunk)
    moving = {line for line, stays in zip(lines, idle, strict=True) if not stays}
    for made in (pipelined(named, 2), relabel(named, np.arange(s.n)), beside(named, named)):
        assert {made.source(i) for i in range(len(made))} == moving


# The catalogue.

Family = dict[tuple[str, int], list[Schedule]]


@pytest.fixture(scope="module")
def family() -> Family:
    """The schedules of the catalogue for few ranks, by collective and number of ranks."""
    found: Family = {}
    for algorithm, n in itertools.product(algorithms().values(), (1, 2, 3, 4)):
        try:
            s = algorithm(n)
        except UsageError:
            continue
        found.setdefault((s.collective.name, n), []).append(s)
    return found


REVERSES = {
    "all_gather": "reduce_scatter", "broadcast": "reduce", "scatter": "gather", "all_to_all": "all_to_all",
    "all_reduce": "all_reduce",
}  # fmt: skip
REVERSES |= {other: name for name, other in REVERSES.items()}


def test_every_algorithm_runs_backwards(family: Family) -> None:
    for (name, n), members in family.items():
        for s in members if name in REVERSES and n > 1 else []:
            made = backwards(s)
            assert made.collective.name == REVERSES[name]
            assert made.collective.params == s.collective.params
            assert_keeps(s, made)
            if made.collective.chunks == s.collective.chunks and name != "all_reduce":
                rounds, sent, received = volumes(s)
                assert volumes(made) == (rounds, received, sent)


def test_every_algorithm_in_segments_and_on_other_ranks(family: Family) -> None:
    for (_, n), members in family.items():
        perm = [(rank + 1) % n for rank in range(n)]
        for s in members:
            assert_keeps(s, relabel(s, perm))
            busiest = _busiest(s)
            made = pipelined(s, 3, every=None)
            assert_keeps(s, made)
            assert _busiest(made) <= busiest or _messages(made) > 3 * _messages(s)  # where blocks split messages
            assert_keeps(s, tidy(s))


def _messages(s: Schedule) -> int:
    return traced(s).messages


def _busiest(s: Schedule) -> int:
    """Most messages that a rank sends, or receives, in a step."""
    sent = s.matched().rows(np.flatnonzero(s.matched().rank != s.matched().peer))
    keys = [sent.step.astype(np.int64) * s.n + side for side in (sent.rank, sent.peer)]
    return max((int(np.unique(key, return_counts=True)[1].max(initial=0)) for key in keys), default=0)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_two_algorithms_compose_or_do_not_fit(family: Family, data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([3, 4]))
    members = [s for (_, ranks), found in family.items() if ranks == n for s in found]
    a, b = data.draw(st.sampled_from(members)), data.draw(st.sampled_from(members))
    operations: list[Callable[[Schedule, Schedule], Schedule]] = [
        then, hierarchical, beside, lambda x, y: striped([x, y], [2, 1]), lambda x, y: then(backwards(x), y),
        lambda x, y: instances(then(x, y), 2), lambda x, y: pipelined(hierarchical(x, y), 2),
    ]  # fmt: skip
    try:
        made = data.draw(st.sampled_from(operations))(a, b)
    except UsageError as error:
        assert a.name in str(error) or b.name in str(error)
        return
    assert is_correct(made) and is_correct(made, in_place=True)


def test_all_of_a_kind_share_a_vector(family: Family) -> None:
    for members in family.values():
        same = [s for s in members if s.collective.same_task(members[0].collective)]
        made = striped(same, list(range(1, len(same) + 1)))
        assert is_correct(made)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_reduce_scatter_then_all_gather_is_the_ring(n: int) -> None:
    made = ring_reduce_scatter(n).then(ring_all_gather(n))
    assert made.collective == all_reduce(n, chunks=n) and made.scratch == 0
    assert volumes(made) == volumes(ring(n))
    assert len(made) == len(ring(n))


def test_hierarchies(family: Family) -> None:
    """Every pair of kinds that is said to fit does, and no other."""
    fitting = {(a, "all_reduce"): "all_reduce" for a in ("reduce_scatter", "reduce", "all_reduce")}
    fitting |= {(a, a): a for a in ("reduce_scatter", "all_gather", "broadcast", "reduce", "scatter", "gather", "all_to_all")}
    for (name, g), intras in family.items():
        for (other, nodes), inters in family.items():
            for intra, inter in zip(intras[:2], inters[-2:], strict=False) if g * nodes < 10 else []:
                if (name, other) not in fitting:
                    with pytest.raises(UsageError, match="in nodes and .* across"):
                        hierarchical(intra, inter)
                    continue
                made = hierarchical(intra, inter)
                assert made.n == g * nodes
                assert g * nodes == 1 or made.collective.name == fitting[name, other]
                assert is_correct(made) and is_correct(made, in_place=True)


def test_a_hierarchy_spares_the_links_between_nodes() -> None:
    g, nodes = 4, 3
    made = hierarchical(ring_reduce_scatter(g), ring(nodes))
    between = np.flatnonzero(made.rank // g != made.peer // g)
    sent = np.bincount(made.rank[between], weights=made.count[between], minlength=g * nodes) / made.collective.chunks
    assert set(np.round(sent * g * nodes, 9)) == {2 * (nodes - 1)}  # 2 (m - 1) / m of a g-th of the vector
    assert traced(made).rounds == 2 * (g - 1) + 2 * (nodes - 1)


def test_roots_of_hierarchies() -> None:
    inside, across = (_chain(broadcast(n, root=root)) for n, root in ((3, 2), (2, 1)))
    assert hierarchical(inside, across).collective == broadcast(6, root=5)
    back = hierarchical(backwards(inside), backwards(across))
    assert back.collective == reduce(6, root=5) and is_correct(back)
    mixed = hierarchical(backwards(inside), ring(2))
    assert mixed.collective == all_reduce(6, chunks=2) and is_correct(mixed)


def _chain(c: Collective) -> Schedule:
    """Broadcast along the ranks, from the root on."""
    s = Steps(c, name="chain")
    for hop in range(c.n - 1):
        with s.step():
            s.copy(src=(c.params["root"] + hop) % c.n, dst=(c.params["root"] + hop + 1) % c.n, chunk=0)
    return s.build()


def test_a_pipelined_chain() -> None:
    s = _chain(broadcast(5))
    made = pipelined(s, 8)
    assert (volumes(made)[0], _busiest(made)) == (4 + 7, 1)
    assert pipelined(s, 8, every=None) == made
    assert volumes(pipelined(s, 8, every=2))[0] == 4 + 14


# What collectives become.


@pytest.mark.parametrize(
    ("a", "b", "made"),
    [
        (reduce_scatter(3), all_gather(3), all_reduce(3, chunks=3)),
        (reduce_scatter(3, chunks=2), all_gather(3, chunks=3), all_reduce(3, chunks=18)),
        (reduce(3, root=1), broadcast(3, root=1), all_reduce(3)),
        (gather(3, root=1), scatter(3, root=1), None),
        (gather(3), broadcast(3), all_gather(3)),
        (reduce(3, root=2), scatter(3, root=2), reduce_scatter(3)),
        (scatter(3), all_gather(3), broadcast(3, chunks=3)),
        (all_to_all(3), all_to_all(3), None),
        (reduce_scatter(3), gather(3), reduce(3, chunks=3)),
        (barrier(3), barrier(3), barrier(3)),
    ],
    ids=str,
)  # fmt: skip
def test_compositions_are_recognised(a: Collective, b: Collective, made: Collective | None, family: Family) -> None:
    s = then(_any(a), _any(b))
    assert is_correct(s) and is_correct(s, in_place=True)
    if made is None:
        made = {"gather": all_reduce(3), "all_to_all": all_to_all(3)}[a.name]
        pairs = [(r, r) for r in range(3)]
        made = send_recv(3, pairs=pairs) if a.name == "gather" else _identity(3)
        recast(s, made.cut(s.collective.chunks if a.name == "gather" else 1))
        return
    assert s.collective == made


def _identity(n: int) -> Collective:
    """Every rank keeps its n blocks."""
    return custom("keep", inputs=[n] * n, outputs=[[[(r, b)] for b in range(n)] for r in range(n)])


def _any(c: Collective) -> Schedule:
    """Some correct schedule: every contribution goes straight to every output that wants it."""
    s = Steps(c, name=c.name, load=False)
    wanted = [(r, o, c.wanted(r, o)) for r in range(c.n) for o in range(int(c.outputs[r]))]
    k = c.chunks
    for turn in range(max(len(w) for _, _, w in wanted)):
        with s.step():
            for r, o, items in wanted:
                if turn < len(items):
                    source, i = items[turn]
                    write = s.reduce if turn else s.copy
                    write(src=source, dst=r, chunk=i * k, to=o * k, buffer="in", to_buffer="out", count=k)
    return s.build()


def test_reverses_of_others() -> None:
    assert backwards(_any(all_to_all_v(2, counts=[[0, 1], [2, 3]]))).collective == all_to_all_v(2, counts=[[0, 2], [1, 3]])
    swap = custom("swap", inputs=[1, 1], outputs=[[[(1, 0)]], [[(0, 0), (0, 0)]]])
    assert backwards(_any(swap)).collective.wanted(0, 0) == [(1, 0), (1, 0)]


def test_relabelled_collectives() -> None:
    perm = [2, 0, 1]
    assert relabel(_any(broadcast(3, root=2)), perm).collective == broadcast(3, root=0)
    assert relabel(_any(send_recv(3)), perm).collective == send_recv(3, pairs=[(1, 2), (2, 0), (0, 1)])
    counts = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    turned = [[counts[i][j] for j in perm] for i in perm]
    assert relabel(_any(all_to_all_v(3, counts=counts)), perm).collective == all_to_all_v(3, counts=turned)


def test_as() -> None:
    a, b = _any(reduce_scatter(2)), _any(all_gather(2))
    mine = custom("mine", inputs=[2, 2], outputs=[[[(0, b), (1, b)] for b in range(2)]] * 2)
    assert then(a, b, as_=mine).collective == mine
    with pytest.raises(UsageError, match="found outputs of 2, 2 chunks on the ranks, wanted 1, 1"):
        then(a, b, as_=reduce_scatter(2))


def test_methods_are_the_functions() -> None:
    s, c = ring(3), ring_all_gather(3)
    groups = [[0, 2, 4], [1, 3, 5]]
    assert s.then(s) == then(s, s)
    assert s.beside(s, s) == beside(s, s, s) and s.instances(3).step.tolist() == s.beside(s, s).step.tolist()
    assert c.reversed() == backwards(c)
    assert s.relabel([1, 2, 0]) == relabel(s, [1, 2, 0])
    assert s.refine(2) == refine(s, 2)
    assert s.pipelined(2, every=2) == pipelined(s, 2, every=2)
    assert s.within(groups) == within(s, groups)
    assert all(hasattr(Schedule, name) for name in set(algebra.__all__) - {"hierarchical", "recast", "striped", "tidy"})


# What does not fit.

two, three = ring(2), ring(3)
doubled = Steps(broadcast(3), name="doubled", load=False)
with doubled.step():
    doubled.copy(src=0, dst=0, chunk=0, buffer="in")
with doubled.step():
    doubled.copy(src=0, dst=1, chunk=0)
    doubled.copy(src=0, dst=2, chunk=0)
    doubled.copy(src=0, dst=0, chunk=0, buffer="in")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: then(two, three), "then(ring, ring): ring has 2 ranks, ring has 3: wanted as many"),
        (lambda: then(ring_all_gather(2), _any(broadcast(2))), "then(ring_all_gather, broadcast): rank 1 ends ring_all_gather with 2 chunks and begins broadcast with 0"),
        (lambda: then(_any(all_to_all(2)), _any(all_to_all_v(2, counts=[[1, 2], [2, 1]]))), "then(all_to_all, all_to_all_v): all_to_all ends with blocks of sizes 1, 1, 1, 1, all_to_all_v takes 1, 2, 2, 1"),
        (lambda: then(two, _any(all_to_all_v(2, counts=[[1, 2], [2, 1]]))), "then(ring, all_to_all_v): blocks of all_to_all_v have sizes 1, 2, 2, 1, wanted one size to regroup them"),
        (lambda: then(two, _any(send_recv(2, pairs=[(0, 1), (0, 1), (1, 0)]))), "then(ring, send_recv): rank 0 ends ring with 2 chunks and begins send_recv with 2, rank 1 with 2 and 1: wanted one ratio"),
        (lambda: recast(two, all_reduce(2)), "ring does all_reduce n=2 chunks=2, not all_reduce n=2 chunks=1: found inputs of 2, 2 chunks on the ranks, wanted 1, 1"),
        (lambda: recast(two, all_reduce(3)), "ring does all_reduce n=2 chunks=2, not all_reduce n=3 chunks=1: found 2 ranks, wanted 3"),
        (lambda: recast(two, all_to_all(2)), "ring does all_reduce n=2 chunks=2, not all_to_all n=2 chunks=1: out[0] of rank 0 reduces (0, 0), (1, 0), wanted (0, 0) (rank, chunk"),
        (lambda: recast(two, barrier(2, chunks=2)), "ring does all_reduce n=2 chunks=2, not barrier n=2 chunks=2: the sizes of the blocks differ, or one wants sets"),
        (lambda: beside(), "beside(): no schedule, wanted at least one"),
        (lambda: beside(two, three), "beside(ring, ring): ring does all_reduce n=3 chunks=3, ring does all_reduce n=2 chunks=2: wanted the same of all"),
        (lambda: beside(two, _any(barrier(2))), "beside(ring, barrier): barrier does barrier n=2 chunks=1, ring does all_reduce"),
        (lambda: striped([two], []), "striped(ring): 0 weights for 1 schedules, wanted one each"),
        (lambda: striped([two], [0]), "striped(ring): weight=0, wanted a whole number of 1 or more"),
        (lambda: refine(two, 0), "refine: k=0, wanted a whole number of 1 or more"),
        (lambda: refine(two, 2**30), "collective all_reduce: chunks=2147483648: with 1 blocks a rank, at most 2147483647"),
        (lambda: pipelined(two, 2, every=-1), "pipelined: every=-1, wanted a whole number of 0 or more"),
        (lambda: pipelined(two, True), "pipelined: k=True, wanted a whole number of 1 or more"),
        (lambda: relabel(three, [0, 1, 1]), "relabel(ring): perm is 0, 1, 1, wanted each of 0..2 once"),
        (lambda: within(two, [[0, 1], [2]]), "within(ring): groups of 1, 2 ranks, wanted 2, as many as ring has"),
        (lambda: within(two, []), "within(ring): groups of no ranks, wanted 2, as many as ring has"),
        (lambda: within(two, [[0, 1], [1, 2]]), "within(ring): rank 1 comes twice, wanted each rank at most once"),
        (lambda: within(two, [[0, 4]], n=4), "within(ring): a group has rank 4, wanted one of 0..3"),
        (lambda: within(two, np.array([["a", "b"]])), "within(ring): a group holds a, b, wanted whole numbers"),
        (lambda: backwards(_any(custom("drop", inputs=[2], outputs=[[[(0, 0)]]]))), "reversed(drop): block 1 of the input of rank 0 goes nowhere, so in reverse nothing would arrive"),
        (lambda: backwards(doubled.build()), "reversed(doubled): step 1: out[0] of rank 0 is read by several transfers of the step that overwrites it (test_algebra.py:"),
        (lambda: hierarchical(two, ring_all_gather(2)), "hierarchical(ring, ring_all_gather): found all_reduce in nodes and all_gather across: wanted reduce_scatter or reduce in nodes"),
        (lambda: hierarchical(ring_reduce_scatter(2), two, ring_all_gather(3)), "hierarchical(ring_reduce_scatter, ring): ring_all_gather has 3 ranks, ring_reduce_scatter has 2: wanted as many"),
        (lambda: hierarchical(two, two, two), "hierarchical(ring, ring): found all_reduce in nodes and all_reduce across, then ring: wanted"),
    ],
)  # fmt: skip
def test_refusals(make: Callable[[], Any], error: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value).startswith(error)


def test_scale() -> None:
    """Large schedules stay columns: no Python object a transfer."""
    n = 128
    s = ring(n)
    made: Sequence[Schedule] = [relabel(s, np.arange(n)[::-1]), pipelined(s, 2), backwards(ring_all_gather(n))]
    assert all(is_correct(x) for x in made)
