"""What makes each algorithm the one it is: optimality, who talks to whom, order, bounded buffers, what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.bounds import bound
from algocc.errors import UsageError
from algocc.schedules import all_to_all_v, circulant_blocks
from algocc.schedules.all_gather import bruck_all_gather, neighbor_exchange_all_gather
from algocc.schedules.all_pairs import all_pairs_all_gather, all_pairs_reduce_scatter, one_shot, two_shot
from algocc.schedules.all_to_all import (
    bruck_all_to_all,
    pairwise_all_to_all,
    ring_all_to_all,
    shifted_all_to_all,
    two_level_all_to_all,
)
from algocc.schedules.all_to_all_v import colored_all_to_all_v
from algocc.schedules.arithmetic import ceil_div, ceil_log, floor_power, square
from algocc.schedules.binomial import binomial_broadcast, binomial_gather, binomial_reduce, binomial_scatter
from algocc.schedules.chain import chain_broadcast, chain_reduce
from algocc.schedules.circulant import circulant, circulant_all_gather, circulant_reduce_scatter
from algocc.schedules.circulant_blocks import circulant_broadcast, circulant_reduce
from algocc.schedules.compositions import reduce_broadcast, scatter_all_gather
from algocc.schedules.hierarchical import (
    hierarchical_all_reduce,
    leader_all_reduce,
    rail_aligned_all_reduce,
)
from algocc.schedules.knomial import knomial_reduce
from algocc.schedules.pat import pat_all_gather, pat_reduce_scatter, subtree_bits
from algocc.schedules.recursive import (
    rabenseifner,
    recursive_doubling,
    recursive_halving_reduce_scatter,
    recursive_multiplying,
)
from algocc.schedules.ring import (
    bidirectional_ring,
    ring,
    ring_all_gather,
    ring_reduce_scatter,
    unchunked_ring,
)
from algocc.schedules.scan import log_step_exscan, log_step_scan
from algocc.schedules.swing import reach, spread_from_zero, swing
from algocc.schedules.torus import torus
from algocc.schedules.trees import binary_tree, double_binary_tree, in_order_tree, tree_reduce, two_trees
from algocc.schedules.two_trees import delay, two_tree_broadcast, two_tree_reduce
from algocc.table import layout
from algocc.verifier.dataflow import judge, trace


def traced(s):
    return trace(s, layout(s))


def judged(s):
    places = layout(s)
    t = trace(s, places)
    return judge(s, places, t)


def messages(s):
    """(step, source, destination) of every row between two ranks, as arrays."""
    between = s.rank != s.peer
    return s.step[between], s.rank[between], s.peer[between]


# Optimality.

FEWEST_STEPS = [
    binomial_broadcast, binomial_gather, binomial_reduce, binomial_scatter, bruck_all_gather, bruck_all_to_all,
    circulant_all_gather, circulant_reduce_scatter, log_step_scan,
]  # fmt: skip

LEAST_VOLUME = [
    bidirectional_ring, bruck_all_gather, chain_broadcast, chain_reduce, circulant, circulant_all_gather,
    circulant_reduce_scatter, hierarchical_all_reduce, neighbor_exchange_all_gather, pairwise_all_to_all,
    pat_all_gather, pat_reduce_scatter, ring, ring_all_gather, ring_reduce_scatter, shifted_all_to_all, swing, torus,
    two_shot, two_tree_broadcast, two_tree_reduce,
]  # fmt: skip

ONE_PORT = [
    binomial_broadcast, binomial_gather, bruck_all_gather, bruck_all_to_all, chain_broadcast, circulant,
    circulant_broadcast, circulant_reduce, log_step_exscan, pairwise_all_to_all, pat_all_gather, pat_reduce_scatter,
    rabenseifner, recursive_doubling, ring, ring_all_to_all, shifted_all_to_all, swing, torus, two_tree_broadcast,
    two_tree_reduce, unchunked_ring,
]  # fmt: skip


@pytest.mark.parametrize("algorithm", FEWEST_STEPS, ids=lambda a: a.name)
def test_no_schedule_takes_fewer_steps(algorithm):
    for n in range(2, 40):
        assert traced(algorithm(n)).rounds == bound(algorithm.collective, n).rounds


@pytest.mark.parametrize("algorithm", LEAST_VOLUME, ids=lambda a: a.name)
def test_no_schedule_sends_less(algorithm):
    for n in range(2, 40, 2):
        s = algorithm(n)
        t = traced(s)
        m = s.collective.vector * s.collective.chunks
        least = bound(algorithm.collective, n)
        assert Fraction(int(t.sent.max()), m) == least.sent
        assert Fraction(int(t.received.max()), m) <= max(least.received, least.sent)


@pytest.mark.parametrize("algorithm", [circulant, circulant_reduce_scatter, ring], ids=lambda a: a.name)
def test_no_schedule_adds_less(algorithm):
    for n in range(2, 40):
        s = algorithm(n)
        m = s.collective.vector * s.collective.chunks
        assert Fraction(int(traced(s).reduced.max()), m) == bound(algorithm.collective, n).reduced


@pytest.mark.parametrize("algorithm", ONE_PORT, ids=lambda a: a.name)
def test_a_rank_sends_to_one_other_and_receives_from_one(algorithm):
    for n in range(2, 34):
        if n % 2 == 0 or algorithm is not swing:
            assert traced(algorithm(n)).ports == 1


@pytest.mark.parametrize("algorithm", [circulant_broadcast, circulant_reduce], ids=lambda a: a.name)
def test_circulant_blocks_take_the_fewest_steps_for_any_n_and_number_of_blocks(algorithm):
    for n in (*range(2, 20), 33, 100, 127):
        for chunks in (1, 2, 3, 7, 20):
            rounds = traced(algorithm(n, chunks=chunks)).rounds
            assert rounds == bound(algorithm.collective, n, blocks=chunks).rounds == chunks - 1 + ceil_log(n)


def test_circulant_broadcast_delivers_every_block_once():
    for n in (5, 16, 23):
        t = traced(circulant_broadcast(n, chunks=9))
        assert t.received.tolist() == [0] + [9] * (n - 1)


def test_received_blocks_differ_and_come_from_whoever_has_them():
    for n in (2, 3, 7, 18, 64, 100):
        skip, d = circulant_blocks.skips(n), ceil_log(n)
        table = [list(range(d))] + [circulant_blocks.received(rank, skip) for rank in range(1, n)]
        for rank in range(1, n):
            base = circulant_blocks.base_block(rank, skip)
            assert sorted(table[rank]) == sorted({*range(-d, 0), base} - {base - d})
            for k in range(d):
                to = (rank + skip[k]) % n
                if to:
                    assert table[to][k] in [*table[rank][:k], base - d]


# Trees.


def test_no_rank_is_an_inner_node_of_both_trees():
    for n in (*range(1, 200), 1023, 1024, 1025):
        inner = [(t.children >= 0).any(axis=0) for t in two_trees(n)]
        assert not (inner[0] & inner[1]).any()


def test_trees_are_balanced_and_in_order():
    for n in range(1, 130):
        tree = in_order_tree(n)
        assert tree.height == n.bit_length() - 1
        assert (tree.parent >= 0).sum() == n - 1
        left, right = tree.children
        assert ((left < np.arange(n)) | (right < 0) | (right > np.arange(n))).all()


def test_two_tree_delay_is_twice_the_height_at_most():
    for n in (*range(2, 100), 255, 256, 257):
        assert delay(n) <= 2 * (n - 1).bit_length()


def test_double_tree_sends_less_than_one_tree():
    assert traced(double_binary_tree(16)).sent.max() == 2 * 16
    assert traced(binary_tree(16)).sent.max() == 3 * 8


# Who talks to whom.


@pytest.mark.parametrize(
    "algorithm", [ring, bidirectional_ring, ring_all_to_all, neighbor_exchange_all_gather]
)
def test_ring_algorithms_talk_to_neighbours_only(algorithm):
    _, rank, peer = messages(algorithm(10))
    assert set(np.unique((peer - rank) % 10).tolist()) <= {1, 9}


def test_torus_messages_change_one_coordinate_by_one():
    dims = (3, 4, 5)
    _, rank, peer = messages(torus(60, dims=dims))
    steps = (np.array(np.unravel_index(peer, dims)) - np.unravel_index(rank, dims)) % np.array(dims)[:, None]
    assert ((steps != 0).sum(axis=0) == 1).all()
    assert (steps.sum(axis=0) == 1).all()


def test_swing_talks_within_its_reach_and_reaches_all_even_n():
    for n in range(2, 200, 2):
        assert sum(map(len, spread_from_zero(n))) == n - 1
    step, rank, peer = messages(swing(32))
    hops = np.minimum((peer - rank) % 32, (rank - peer) % 32)
    for t in range(5):
        assert set(hops[step == 1 + t].tolist()) == {abs(reach(t))}


def test_swing_with_an_odd_number_of_ranks_leaves_the_last_one_outside():
    for n in (3, 5, 17, 23):
        s = swing(n)
        t = traced(s)
        assert t.rounds == 2 * ceil_log(n - 1)
        assert t.sent.tolist() == t.received.tolist() == [2 * (n - 1)] * n
        _, rank, peer = messages(s)
        last = (rank == n - 1) | (peer == n - 1)
        assert np.bincount(rank[last], minlength=n).tolist() == [2] * (n - 1) + [2 * (n - 1)]


@pytest.mark.parametrize(
    "algorithm", [hierarchical_all_reduce, rail_aligned_all_reduce], ids=lambda a: a.name
)
def test_messages_between_groups_stay_on_a_rail_and_are_few(algorithm):
    n, group = 24, 4
    s = algorithm(n, group=group)
    away = s.rank // group != s.peer // group
    assert (s.rank[away] % group == s.peer[away] % group).all()
    volume = np.bincount(s.rank[away], s.count[away], minlength=n)
    assert (volume == 2 * (n // group - 1)).all()


def test_only_leaders_talk_between_groups():
    s = leader_all_reduce(24, group=4)
    away = s.rank // 4 != s.peer // 4
    assert (s.rank[away] % 4 == 0).all()
    assert (s.peer[away] % 4 == 0).all()


def test_two_level_all_to_all_sends_one_message_a_group():
    s = two_level_all_to_all(24, group=4)
    away = s.rank // 4 != s.peer // 4
    assert (np.bincount(s.rank[away]) == 5).all()
    assert (s.count[away] == 4).all()


# Order of the operands.


@pytest.mark.parametrize(
    "algorithm",
    [
        all_pairs_reduce_scatter, binary_tree, binomial_reduce, chain_reduce, knomial_reduce, log_step_exscan,
        log_step_scan, one_shot, rabenseifner, recursive_doubling, recursive_multiplying, reduce_broadcast,
        tree_reduce, two_shot,
    ],
    ids=lambda a: a.name,
)  # fmt: skip
def test_operands_stay_in_rank_order(algorithm):
    for n in range(1, 34):
        assert judged(algorithm(n)).ordered


def test_one_shot_adds_in_the_same_order_on_every_rank():
    s = one_shot(9)
    places = layout(s)
    t = trace(s, places)
    trees = dict(enumerate(range(9)))
    for i, (a, b) in enumerate(zip(t.left.tolist(), t.right.tolist(), strict=True)):
        trees[9 + i] = (trees[a], trees[b])
    assert len({trees[int(t.value[place])] for place in places.start[:, 1]}) == 1


# Bounded buffers and messages.


@pytest.mark.parametrize("aggregate", [1, 2, 3, 8, 100])
def test_pat_messages_and_scratch_are_bounded(aggregate):
    for n in (2, 7, 16, 33, 64):
        for s in (pat_all_gather(n, aggregate=aggregate), pat_reduce_scatter(n, aggregate=aggregate)):
            step, rank, _ = messages(s)
            assert np.bincount(step * n + rank).max() <= aggregate
        bits = subtree_bits(n, aggregate)
        assert pat_reduce_scatter(n, aggregate=aggregate).scratch <= min(aggregate, n) * max(1, bits)
        assert ceil_div(n, 2**bits) <= aggregate


# AllToAllV.


@st.composite
def counts(draw):
    n = draw(st.integers(2, 7))
    row = st.lists(st.sampled_from([0, 0, 1, 2, 3, 4, 6]), min_size=n, max_size=n)
    return np.array(draw(st.lists(row, min_size=n, max_size=n)))


@settings(max_examples=40)
@given(counts())
def test_edge_colouring_attains_the_heaviest_row_or_column(units):
    n = len(units)
    between = units * (1 - np.eye(n, dtype=int))
    plan = all_to_all_v.colouring(between)
    assert len(plan) == max(between.sum(0).max(), between.sum(1).max())
    moved = np.zeros_like(between)
    for pairs in plan:
        senders, receivers = zip(*pairs, strict=True)
        assert len(set(senders)) == len(set(receivers)) == len(pairs)
        np.add.at(moved, (senders, receivers), 1)
    assert (moved == between).all()


@settings(max_examples=15)
@given(counts())
def test_a_step_of_the_coloured_all_to_all_v_moves_at_most_a_unit(units):
    n = len(units)
    s = colored_all_to_all_v(n, counts=units.tolist())
    between = s.rank != s.peer
    step, rank, peer, chunk = s.step[between], s.rank[between], s.peer[between], s.chunk[between]
    volume = s.count[between] * units[rank, chunk // s.collective.chunks]
    for end in (rank, peer):
        assert np.bincount(step * n + end, volume).max(initial=0) <= s.collective.chunks
    assert not len(judged(s).wrong)


# What is refused.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: neighbor_exchange_all_gather(5), "neighbor_exchange_all_gather: n=5: this algorithm takes n even"),
        (lambda: recursive_halving_reduce_scatter(6), "takes n a power of two"),
        (lambda: torus(12, dims=(3, 5)), r"the product of dims=\[3, 5\]"),
        (lambda: hierarchical_all_reduce(10, group=4), "a multiple of group=4"),
        (lambda: recursive_multiplying(4, radix=1), "a radix of 2 or more"),
        (lambda: pat_all_gather(4, aggregate=0), "aggregate of 1 or more"),
        (lambda: chain_broadcast(4, chunks=0), "at least 1 chunk"),
        (lambda: chain_broadcast(4, root=4), "root=4"),
        (lambda: colored_all_to_all_v(3, counts=[[1]]), "3 rows of 3 counts"),
        (lambda: colored_all_to_all_v(2, counts=[[0, 65537], [65539, 0]]), "a coarser unit"),
    ],
)
def test_says_what_it_takes(build, message):
    with pytest.raises(UsageError, match=message):
        build()


# Arithmetic.


@given(st.integers(1, 10**6), st.integers(2, 9))
def test_logarithms_and_powers(n, base):
    power = floor_power(n, base)
    assert power <= n < power * base
    assert base ** ceil_log(n, base) >= n > (base ** (ceil_log(n, base) - 1) if n > 1 else 0)
    a, b = square(n)
    assert a * b == n
    assert not any(n % c == 0 for c in range(a + 1, b) if c * c <= n)


def test_pipelines_and_compositions_cost_what_the_textbook_says():
    assert traced(chain_broadcast(10, chunks=30)).rounds == 10 - 1 + 30 - 1
    assert traced(chain_reduce(10, root=4, chunks=30)).rounds == 10 - 1 + 30 - 1
    assert traced(scatter_all_gather(8)).rounds == 3 + 7
    assert traced(all_pairs_all_gather(8)).rounds == 1
