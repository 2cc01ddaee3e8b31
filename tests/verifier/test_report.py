"""The report: its numbers against published ones, its reasons word for word."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algocc.catalog import algorithms
from algocc.collective import all_reduce, all_to_all_v, broadcast, custom
from algocc.errors import UsageError
from algocc.steps import Steps
from algocc.verifier import bound_of, summary, verify


def d(n: int) -> int:
    return (n - 1).bit_length()


@given(st.integers(1, 40), st.booleans())
def test_ring_all_reduce(n: int, in_place: bool) -> None:
    r = verify(algorithms()["ring"](n), in_place=in_place)
    assert r.correct and r.bandwidth_optimal and r.steps == 2 * (n - 1)
    assert r.transfers == 2 * n * (n - 1)
    assert r.sent_max == r.received_max == Fraction(2 * (n - 1), n)
    assert r.reduced_max == Fraction(n - 1, n)
    assert r.step_optimal == (n == 1)
    assert r.needs_commutative == (n > 1) and not r.needs_idempotent


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_published_costs_for_powers_of_two(n: int) -> None:
    r = verify(algorithms()["recursive_doubling"](n))
    assert (r.steps, r.sent_max, r.step_optimal) == (d(n), d(n), True)
    assert not r.needs_commutative
    r = verify(algorithms()["rabenseifner"](n))
    assert (r.steps, r.sent_max, r.bandwidth_optimal) == (2 * d(n), Fraction(2 * (n - 1), n), True)
    r = verify(algorithms()["binomial_broadcast"](n))
    assert (r.steps, r.sent_max, r.step_optimal) == (d(n), d(n), True)
    assert r.bandwidth_optimal == (n == 2)
    r = verify(algorithms()["binomial_scatter"](n))
    assert r.step_optimal and r.bandwidth_optimal and r.sent_max == Fraction(n - 1, n)


def test_the_unchunked_ring_sends_n_over_two_times_as_much() -> None:
    for n in range(2, 9):
        whole, chunked = verify(algorithms()["unchunked_ring"](n)), verify(algorithms()["ring"](n))
        assert whole.correct and whole.sent_max == n - 1
        assert whole.sent_max / chunked.sent_max == Fraction(n, 2)


def test_the_ports_of_a_schedule_set_its_bound_on_steps() -> None:
    r = verify(algorithms()["one_shot"](5))
    assert (r.ports, r.steps, r.step_optimal) == (4, 1, True)


@given(st.integers(2, 20), st.integers(1, 9))
def test_a_pipeline_takes_the_steps_that_its_messages_allow(n: int, chunks: int) -> None:
    """Bar-Noy and Ho: k blocks reach n ranks in k - 1 + ceil(log2 n) rounds, and not sooner."""
    r = verify(algorithms()["circulant_broadcast"](n, chunks=chunks), program=False)
    assert r.message_max == Fraction(1, chunks)
    assert r.bound_in_messages and r.steps == r.bound_in_messages.rounds == chunks - 1 + d(n)
    assert (f"in messages of 1/{chunks}, bound {r.steps}: optimal" in summary(r)) == (chunks > 1)


def xor(n: int) -> Steps:
    """Recursive doubling without a fold, as published by mistake for any n."""
    s = Steps(all_reduce(n), name="xor")
    hop = 1
    while hop < n:
        with s.step():
            for rank in range(n):
                if rank ^ hop < n:
                    s.reduce(src=rank, dst=rank ^ hop, chunk=0)
        hop *= 2
    return s


def test_a_butterfly_for_six_ranks_is_wrong_and_says_what_each_rank_holds() -> None:
    """With inputs 1, 2, 4, …, 32 it leaves 63, 63, 15, 15, 63, 63."""
    r = verify(xor(6).build())
    assert not r.correct and r.wrong == 2
    line = xor.__code__.co_firstlineno + 8
    assert [str(f) for f in r.failures] == [
        f"step 2, rank {rank}: out[0] holds {{0-3}}, wanted {{0-5}} (test_report.py:{line})" for rank in (2, 3)
    ]


def test_a_contribution_added_twice_is_named_and_is_fine_for_max() -> None:
    s = Steps(all_reduce(3), name="twice")
    with s.step():
        s.reduce(src=[0, 1, 2], dst=[1, 2, 0], chunk=0)
    with s.step():
        s.reduce(src=[0, 1, 2], dst=[1, 2, 0], chunk=0)
    made = s.build()
    r = verify(made)
    assert not r.correct and r.needs_idempotent
    assert str(r.failures[0]).startswith(
        "step 2, rank 0: out[0] holds {0,1,2,2}: rank 2 is added twice, at rank 0 out[0], wanted {0,1,2}; "
        "valid for idempotent operators (max, min, and, or) only (test_report.py:"
    )
    assert verify(made, op="max").correct
    assert not verify(made, op="sum").correct


def test_unwritten_reads_and_races_are_named() -> None:
    s = Steps(broadcast(3), name="hasty")
    with s.step():
        s.copy(src=1, dst=2, chunk=0)
    with s.step():
        s.copy(src=[0, 2], dst=[1, 1], chunk=0)
    with s.step():
        s.reduce(src=0, dst=2, chunk=0)
    r = verify(s.build())
    texts = [str(f) for f in r.failures]
    assert texts[0].startswith("step 1, rank 1: out[0] is read by rank 2, but nothing was written there, wanted a write")
    assert any("step 2, rank 1: out[0] is written twice in one step, the second time from rank 2" in t for t in texts)
    assert any("step 3, rank 2: out[0] is reduced into from rank 0, but nothing was written there" in t for t in texts)


def test_an_output_that_was_never_written() -> None:
    s = Steps(broadcast(3), name="lazy")
    with s.step():
        s.copy(src=0, dst=1, chunk=0)
    r = verify(s.build())
    assert [str(f) for f in r.failures] == ["rank 2: out[0] was never written, wanted {0}"]
    assert "correct     NO: 1 output chunk is wrong" in summary(r)


def test_form_failures_are_reported_not_raised() -> None:
    s = Steps(all_reduce(2), name="form")
    with s.step():
        s.send(rank=0, to=1, chunk=0)
        s.copy(src=0, dst=5, chunk=0)
    r = verify(s.build())
    assert not r.correct
    assert "peer 5, wanted one of 0..1 (test_report.py:" in str(r.failures[0])


def test_the_empty_schedule_is_wrong_for_everything_but_one_rank() -> None:
    for name, algorithm in algorithms().items():
        try:
            c = algorithm(4).collective
        except UsageError:
            continue
        report = verify(Steps(c, name=name).build())
        assert not report.correct, name


def test_swapped_destinations_in_an_all_to_all_are_caught() -> None:
    s = algorithms()["direct_all_to_all"](4)
    place = s.peer_chunk.copy()
    rows = np.flatnonzero((s.rank == 2) & (s.peer != 2))[:2]
    peer = s.peer.copy()
    peer[rows] = peer[rows[::-1]]
    from dataclasses import replace

    r = verify(replace(s, peer=peer, peer_chunk=place))
    assert not r.correct and r.wrong == 2
    assert "holds {r2.in[" in str(r.failures[0])


def test_a_custom_collective_has_no_known_bound() -> None:
    swap = custom("swap", inputs=[1, 1], outputs=[[[(1, 0)]], [[(0, 0)]]])
    s = Steps(swap, name="swap", load=False)
    with s.step():
        s.copy(src=[0, 1], dst=[1, 0], chunk=0)
    r = verify(s.build())
    assert r.correct and r.bound is None and not r.bandwidth_optimal
    assert r.to_json()["sent_bound"] is None
    assert "no bound is known" in summary(r)


def test_a_name_alone_earns_no_bound() -> None:
    fake = custom("all_reduce", inputs=[1, 1], outputs=[[[(0, 0)]], [[(1, 0)]]])
    assert bound_of(fake) is None


def test_volumes_of_all_to_all_v_count_elements() -> None:
    counts = [[0, 3, 1], [2, 5, 0], [0, 0, 4]]
    s = Steps(all_to_all_v(3, counts=counts), name="v")
    with s.step():
        for i in range(3):
            for j in range(3):
                if i != j:
                    s.copy(src=i, dst=j, chunk=j, to=i)
    r = verify(s.build())
    assert r.correct, r.failures
    m = max(7, 4, 8, 5)
    assert (r.sent_max, r.received_max) == (Fraction(4, m), Fraction(3, m))
    assert r.bandwidth_optimal


def test_unusable_requests() -> None:
    s = algorithms()["ring"](2)
    with pytest.raises(UsageError, match="unknown operator 'summ'; did you mean sum"):
        verify(s, op="summ")
    with pytest.raises(UsageError, match="send_recv has no in-place form"):
        verify(algorithms()["shift"](3) if "shift" in algorithms() else _shift(3), in_place=True)


def _shift(n: int):  # type: ignore[no-untyped-def]
    from algocc.collective import send_recv

    s = Steps(send_recv(n), name="shift")
    with s.step():
        s.copy(src=range(n), dst=[(r + 1) % n for r in range(n)], chunk=0)
    return s.build()


def test_operators_are_those_that_run() -> None:
    from algocc.kernels import operators
    from algocc.verifier.report import OPERATORS, is_idempotent

    assert sorted(OPERATORS) == sorted(operators.OPERATORS)
    assert {op for op in OPERATORS if is_idempotent(op)} == {o.name for o in operators.OPERATORS.values() if o.idempotent}
