"""The cost model: textbook closed forms, a slow model in plain Python, and envelopes against sampling."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.bounds import bound
from algocc.catalog import algorithms
from algocc.collective import all_reduce
from algocc.errors import UsageError
from algocc.model import PRESETS, STARTUPS, Cost, Line, Machine, cost, crossover, envelope, timed
from algocc.schedules.all_gather import bruck_all_gather, neighbor_exchange_all_gather
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.all_to_all import bruck_all_to_all, direct_all_to_all, pairwise_all_to_all
from algocc.schedules.all_to_all_v import colored_all_to_all_v
from algocc.schedules.binomial import binomial_broadcast, binomial_gather, binomial_reduce, binomial_scatter
from algocc.schedules.chain import chain_broadcast
from algocc.schedules.compositions import reduce_broadcast, scatter_all_gather
from algocc.schedules.recursive import (
    rabenseifner,
    recursive_doubling,
    recursive_doubling_all_gather,
    recursive_halving_reduce_scatter,
)
from algocc.schedules.ring import ring, ring_all_gather, ring_reduce_scatter
from algocc.schedules.scan import log_step_scan
from algocc.schedules.trees import binary_tree
from algocc.steps import Steps
from algocc.table import layout
from algocc.verifier.dataflow import trace


def slow_cost(s, ports, startup):
    """Startups, and the loads of every step, rank by rank and transfer by transfer."""
    c = s.collective
    s = s.matched()
    held = {}
    for rank in range(s.n):
        for block in range(c.inputs[rank]):
            for part in range(c.chunks):
                held[rank, 0, block * c.chunks + part] = int(c.sizes[c.input_start[rank] + block])
    startups, steps = 0, []
    for first, last in zip(s.step_start[:-1], s.step_start[1:], strict=True):
        out = [{} for _ in range(s.n)]
        into = [{} for _ in range(s.n)]
        reduced = [0] * s.n
        arrived = {}
        for i in range(first, last):
            src, dst, volume = int(s.rank[i]), int(s.peer[i]), 0
            for j in range(s.count[i]):
                size = held[src, int(s.buffer[i]), int(s.chunk[i]) + j]
                arrived[dst, int(s.peer_buffer[i]), int(s.peer_chunk[i]) + j] = size
                volume += size
            if src != dst:
                out[src][dst] = out[src].get(dst, 0) + volume
                into[dst][src] = into[dst].get(src, 0) + volume
            if s.action[i] != 0:
                reduced[dst] += volume
        held |= arrived
        moved, turns = [0] * s.n, 0
        for rank in range(s.n):
            for peers in (out[rank], into[rank]):
                load = [0] * ports
                for volume in sorted(peers.values(), reverse=True):
                    load[load.index(min(load))] += volume
                moved[rank] = max(moved[rank], *load)
                turns = max(turns, -(-len(peers) // ports))
        startups += min(turns, 1) if startup == "step" else turns
        steps.append(list(zip(moved, reduced, strict=True)))
    return startups, steps


def slow_line(s, machine):
    startups, steps = slow_cost(s, machine.ports, machine.startup)
    whole = max(1, s.collective.vector * s.collective.chunks)
    slope = sum((max(machine.beta * x + machine.gamma * y for x, y in step) for step in steps), Fraction(0))
    return Line(startups * machine.alpha, slope / whole)


RATES = [(Fraction(1, 25), Fraction(1, 100)), (Fraction(1), Fraction(0)), (Fraction(1, 9), Fraction(3, 7))]


@pytest.mark.parametrize("algorithm", algorithms().values(), ids=lambda a: a.name)
def test_agrees_with_the_slow_model(algorithm):
    for n in (1, 2, 5, 8):
        try:
            s = algorithm(n)
        except UsageError:
            continue
        for ports, startup in ((1, "step"), (1, "message"), (2, "step"), (3, "message")):
            counted = cost(s, ports=ports, startup=startup)
            for beta, gamma in RATES:
                machine = Machine(Fraction(7, 2), beta, gamma, ports, startup)
                assert counted.line(machine) == slow_line(s, machine)


@settings(max_examples=25)
@given(st.data())
def test_unequal_blocks_weigh_what_they_hold(data):
    n = data.draw(st.integers(2, 5))
    row = st.lists(st.sampled_from([0, 1, 2, 4]), min_size=n, max_size=n)
    counts = data.draw(st.lists(row, min_size=n, max_size=n))
    s = colored_all_to_all_v(n, counts=counts)
    machine = Machine(ports=data.draw(st.integers(1, 3)), startup=data.draw(st.sampled_from(STARTUPS)))
    assert cost(s, ports=machine.ports, startup=machine.startup).line(machine) == slow_line(s, machine)


# Textbook closed forms, by Thakur, Rabenseifner and Gropp 2005 where they give one: (α, mβ, mγ).

POWERS = [
    (recursive_doubling, lambda n, d: (d, d, d)),
    (rabenseifner, lambda n, d: (2 * d, 2 * Fraction(n - 1, n), Fraction(n - 1, n))),
    (recursive_halving_reduce_scatter, lambda n, d: (d, Fraction(n - 1, n), Fraction(n - 1, n))),
    (recursive_doubling_all_gather, lambda n, d: (d, Fraction(n - 1, n), 0)),
    (bruck_all_to_all, lambda n, d: (d, Fraction(d, 2), 0)),
    (binomial_scatter, lambda n, d: (d, Fraction(n - 1, n), 0)),
    (binomial_gather, lambda n, d: (d, Fraction(n - 1, n), 0)),
]  # fmt: skip

ANY = [
    (ring, lambda n, d: (2 * (n - 1), 2 * Fraction(n - 1, n), Fraction(n - 1, n))),
    (ring_reduce_scatter, lambda n, d: (n - 1, Fraction(n - 1, n), Fraction(n - 1, n))),
    (ring_all_gather, lambda n, d: (n - 1, Fraction(n - 1, n), 0)),
    (bruck_all_gather, lambda n, d: (d, Fraction(n - 1, n), 0)),
    (binomial_broadcast, lambda n, d: (d, d, 0)),
    (binomial_reduce, lambda n, d: (d, d, d)),
    (reduce_broadcast, lambda n, d: (2 * d, 2 * d, d)),
    (log_step_scan, lambda n, d: (d, d, d)),
    (chain_broadcast, lambda n, d: (n - 2 + 8, Fraction(n - 2 + 8, 8), 0)),
    (two_shot, lambda n, d: (2 * (n - 1), 2 * Fraction(n - 1, n), Fraction(n - 1, n))),
    (one_shot, lambda n, d: (n - 1, n - 1, n - 1)),
    (direct_all_to_all, lambda n, d: (n - 1, Fraction(n - 1, n), 0)),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "form"), POWERS + ANY, ids=lambda a: getattr(a, "name", ""))
def test_closed_forms(algorithm, form):
    ns = (2, 4, 8, 16, 64) if any(algorithm is a for a, _ in POWERS) else (2, 3, 4, 6, 7, 16, 33)
    for n in ns:
        counted = cost(algorithm(n))
        startups, x, y = form(n, (n - 1).bit_length())
        assert (counted.startups, counted.coefficients) == (startups, (x, y))


@pytest.mark.parametrize(("algorithm", "form"), POWERS + ANY, ids=lambda a: getattr(a, "name", ""))
def test_closed_forms_of_startups_by_step(algorithm, form):
    """With α once a step all-pairs algorithms start as often as they have steps; to the others it makes no difference."""
    steps = {two_shot: 2, one_shot: 1, direct_all_to_all: 1}
    for n in (2, 4, 8, 16, 64):
        counted = cost(algorithm(n), startup="step")
        startups, x, y = form(n, (n - 1).bit_length())
        assert (counted.startups, counted.coefficients) == (steps.get(algorithm, startups), (x, y))


def test_closed_forms_of_even_n():
    for n in (2, 4, 6, 12):
        assert cost(pairwise_all_to_all(n)).startups == n - 1
        neighbours = cost(neighbor_exchange_all_gather(n))
        assert (neighbours.startups, neighbours.coefficients) == (n // 2, (Fraction(n - 1, n), 0))


def test_van_de_geijns_broadcast():
    for n in (4, 8, 32):
        counted = cost(scatter_all_gather(n))
        assert counted.startups == (n - 1).bit_length() + n - 1
        assert counted.coefficients == (2 * Fraction(n - 1, n), 0)


def test_crossover_of_ring_and_recursive_doubling():
    machine = Machine()
    a, b, g = machine.alpha, machine.beta, machine.gamma
    for n in (4, 8, 16, 64):
        d, share = (n - 1).bit_length(), Fraction(n - 1, n)
        wanted = (2 * (n - 1) - d) * a / ((d - 2 * share) * b + (d - share) * g)
        assert crossover(cost(ring(n)).line(machine), cost(recursive_doubling(n)).line(machine)) == wanted


def test_startups_never_beat_the_bounds():
    """On K ports no schedule pays fewer startups, or moves less, than what the lower bounds for K ports say."""
    for algorithm in algorithms().values():
        if algorithm.collective in ("all_to_all_v", "send_recv", "barrier"):
            continue
        for n, ports in ((6, 1), (8, 1), (8, 2)):
            try:
                s = algorithm(n)
            except UsageError:
                continue
            counted = cost(s, ports=ports)
            least = bound(algorithm.collective, n, ports=ports)
            moved = counted.line(Machine(beta=Fraction(1), gamma=Fraction(0), ports=ports)).slope
            assert counted.startups >= least.rounds
            assert moved >= least.volume / ports


def test_ports_and_startup():
    s = two_shot(8)
    for ports in (1, 2, 3, 7, 20):
        turns = -(-7 // ports)
        assert cost(s, ports=ports).coefficients == (Fraction(2 * turns, 8), Fraction(7, 8))
        assert cost(s, ports=ports).startups == 2 * turns
        assert cost(s, ports=ports) == cost(s, ports=ports, startup="message")
        assert cost(s, ports=ports, startup="step").startups == 2


def test_longest_message_first_on_the_emptiest_port():
    s = Steps(all_reduce(4, chunks=12), load=False)
    with s.step():
        for peer, count in ((1, 5), (2, 4), (3, 3)):
            s.copy(src=0, dst=peer, chunk=0, count=count, buffer="in")
    made = s.build()
    assert [cost(made, ports=k).coefficients[0] * 12 for k in (1, 2, 3)] == [12, 7, 5]


def test_local_work_costs_no_startup_and_copies_nothing():
    s = Steps(all_reduce(3), load=False)
    r = np.arange(3)
    with s.step():
        s.copy(src=r, dst=r, chunk=0, buffer="in", to_buffer="scratch")
    with s.step():
        s.reduce(src=0, dst=0, chunk=0, buffer="scratch", to_buffer="scratch")
    assert str(cost(s.build())) == "0 α + m (1 γ)"


def test_the_busiest_rank_may_depend_on_beta_and_gamma():
    counted = cost(binary_tree(8))
    assert counted.coefficients is None
    assert "max(3/8 β, 1/8 β + 1/8 γ)" in str(counted)
    slow, fast = Fraction(1), Fraction(1, 10)
    assert counted.line(Machine(beta=slow, gamma=fast)) == slow_line(binary_tree(8), Machine(beta=slow, gamma=fast))
    assert counted.line(Machine(beta=fast, gamma=slow)) == slow_line(binary_tree(8), Machine(beta=fast, gamma=slow))


def test_one_rank_costs_nothing():
    for algorithm in (ring, two_shot, recursive_doubling):
        assert cost(algorithm(1)) == Cost(0, (), 1, "message")
        assert cost(algorithm(1), startup="step") == Cost(0, (), 1, "step")
    assert str(cost(ring(1))) == "0 α"


def test_one_port_moves_what_the_verifier_counts():
    """In a ring every step is alike, so the sum over steps is the total of a rank."""
    s = ring(9)
    x, y = cost(s).coefficients
    t = trace(s, layout(s))
    assert (x * 9, y * 9) == (t.sent.max(), t.reduced.max())


def test_blocks_of_steps_add_up(monkeypatch):
    whole = [cost(s) for s in (ring(12), binary_tree(12), one_shot(5))]
    monkeypatch.setattr("algocc.model.BLOCK", 1)
    assert [cost(s) for s in (ring(12), binary_tree(12), one_shot(5))] == whole


# Envelopes.

numbers = st.fractions(0, 20, max_denominator=6)
some_lines = st.dictionaries(st.sampled_from("abcdefghij"), st.builds(Line, numbers, numbers), min_size=1)


@pytest.mark.parametrize("name", algorithms())
def test_the_simulation_ends_when_the_model_says(name):
    """Step by step, with every message on its port after the one before: the same time, and nothing overlaps."""
    machine = Machine(Fraction(3), Fraction(5), Fraction(7))
    for n in (2, 3, 4, 8):
        try:
            s = algorithms()[name](n).matched()
        except UsageError:
            continue
        t = timed(s, machine, 11)
        assert t.step[-1] == cost(s).line(machine).at(11)
        spans, sizes = {}, {}
        for row, (begin, end) in enumerate(zip(t.begin, t.end, strict=True)):
            step, rank, peer = int(s.step[row]), int(s.rank[row]), int(s.peer[row])
            if rank == peer:
                continue
            sizes.setdefault(step, Counter())[rank, peer] += int(s.count[row])
            for port, a, b in (((rank, 0), begin[0], end[0]), ((peer, 1), begin[1], end[1])):
                assert t.step[step] <= a <= b <= t.step[step + 1]
                spans.setdefault(port, []).append((a, b))
        for port in spans.values():
            assert all(b <= c for (_, b), (c, _) in pairwise(sorted(port)))
        for row in range(len(s)):
            if s.rank[row] != s.peer[row] and len(set(sizes[int(s.step[row])].values())) == 1:
                assert t.begin[row][0] == t.begin[row][1] and t.end[row][0] == t.end[row][1], "sent while it is received"


@given(some_lines)
def test_envelope_is_lowest_everywhere(lines):
    segments = envelope(lines)
    assert segments[0].first == 0 and segments[-1].last is None
    for s, after in pairwise(segments):
        assert s.last == after.first > s.first
        assert lines[s.names[0]].at(s.last) == lines[after.names[0]].at(s.last)
        assert lines[s.names[0]].slope > lines[after.names[0]].slope
    for s in segments:
        last = s.first + 100 if s.last is None else s.last
        inside = (s.first + last) / 2
        for m in (s.first, inside, last):
            assert lines[s.names[0]].at(m) == min(line.at(m) for line in lines.values())
        lowest = [name for name, line in lines.items() if line == lines[s.names[0]]]
        assert list(s.names) == lowest
        assert {name for name, line in lines.items() if line.at(inside) == lines[s.names[0]].at(inside)} == set(lowest)


@given(st.builds(Line, numbers, numbers), st.builds(Line, numbers, numbers))
def test_crossover_is_where_both_take_equally_long(a, b):
    meet = crossover(a, b)
    assert meet == crossover(b, a)
    if meet is None:
        assert a.slope == b.slope or (a.fixed - b.fixed) * (a.slope - b.slope) > 0
    else:
        assert a.at(meet) == b.at(meet)


def test_no_lines_no_envelope():
    assert envelope({}) == []


# What is refused, and what the page says.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Machine(alpha=Fraction(-1)), "alpha=-1, wanted 0 or more"),
        (lambda: Machine(ports=0), "ports=0, wanted 1 or more"),
        (lambda: Machine(startup="byte"), "startup='byte', wanted message or step"),
        (lambda: cost(ring(3), ports=0), "ports=0"),
        (lambda: cost(ring(3)).line(Machine(ports=2)), "count again"),
        (lambda: cost(ring(3)).line(Machine(startup="step")), "count again"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_page_has_the_presets():
    page = (Path(__file__).parents[1] / "docs" / "compare.md").read_text(encoding="utf-8")
    for name, m in {"default": Machine(), **PRESETS}.items():
        row = re.search(rf"^\| {name} +\| ([\d.]+) us +\| ([\d.]+) GB/s +\| ([\d./]+) GB/s", page, re.MULTILINE)
        assert row, name
        assert Fraction(row[1]) / 10**6 == m.alpha
        assert 1 / (Fraction(row[2]) * 10**9) == m.beta
        assert 1 / (Fraction(row[3]) * 10**9) == m.gamma
