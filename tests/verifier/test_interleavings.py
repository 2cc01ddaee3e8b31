"""The Program check against brute force: every interleaving of tiny Programs, right ones and broken ones."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algocc import reference
from algocc.catalog import algorithms
from algocc.collective import custom
from algocc.errors import ScheduleError, UsageError
from algocc.lowering import lower
from algocc.program import Program, listing
from algocc.runtime.apart import lower_apart
from algocc.runtime.rank import SETS, in_turns
from algocc.steps import Steps
from algocc.testing import program_mutations, schedules
from algocc.verifier import verify_program


def truth(p: Program, limit: int = 4000) -> bool | None:
    """Whether every interleaving of iterations ends right, until scratch is used again; None if they are too many."""
    try:
        results = reference.all_interleavings(p, limit, iterations=p.sets + 1)
    except UsageError:
        return None
    except ScheduleError:
        return False
    return all(reference.is_right(p, outputs) for outputs in results)


@given(st.data())
@settings(max_examples=200)
def test_a_program_is_called_right_only_if_every_interleaving_is(data: st.DataObject) -> None:
    s = data.draw(schedules(3))
    assume(len(s) <= 10)
    p = data.draw(program_mutations(in_turns(lower(s), data.draw(st.sampled_from([1, 1, 2])))))
    report = verify_program(p)
    verdict = truth(p)
    assume(verdict is not None)
    if report.correct:
        assert verdict
    elif report.well_formed and report.race_free:
        assert not verdict


@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "one_shot", "binomial_broadcast", "ring_all_gather"])
@pytest.mark.parametrize("in_place", [False, True])
def test_small_programs_are_right_in_every_interleaving(name: str, in_place: bool) -> None:
    p = lower(algorithms()[name](2), in_place=in_place)
    assert verify_program(p).correct
    assert truth(p, 200_000)


@pytest.mark.parametrize("name", ["ring", "rabenseifner", "direct_all_to_all", "binomial_gather", "double_binary_tree"])
def test_broken_programs_are_caught_whenever_a_sampled_interleaving_goes_wrong(name: str) -> None:
    from algocc.testing.mutate import mutated_program

    rng = random.Random(name)
    p = lower(algorithms()[name](4))
    caught = 0
    for _ in range(150):
        q = mutated_program(rng, p)
        accepted = verify_program(q).correct
        caught += not accepted
        if accepted:
            for seed in range(4):
                outputs = reference.run_program(q, iterations=2, choose=random.Random(seed))
                assert reference.is_right(q, outputs)
    assert caught > 50


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_scratches_in_turns_are_right_for_every_algorithm(n: int) -> None:
    """As ranks of one node use them, and no matter how many turns are taken: the lag never is the last to be tried."""
    lagging = 0
    for make in algorithms().values():
        with contextlib.suppress(UsageError):
            s = make(n)
            once = lower_apart(s)
            lagging += (once.wait_lag > 0).any()
            for sets in (2, SETS):
                p = in_turns(once, sets)
                report = verify_program(p, idempotent=s.collective.idempotent)
                assert report.correct, (s.name, report.failures)
            outputs = reference.run_program(p, iterations=2 * SETS + 1, choose=random.Random(n))
            assert reference.is_right(p, outputs, idempotent=s.collective.idempotent)
    assert lagging > 5


@pytest.mark.parametrize("sets", [1, 2, 4])
@pytest.mark.parametrize("name", ["chain_broadcast", "binomial_gather", "log_step_scan"])
def test_a_scratch_that_is_taken_again_too_early_is_a_race(name: str, sets: int) -> None:
    """Data flow one way there, so that only the wait for the reader of earlier iterations holds a writer back."""
    p = in_turns(lower_apart(algorithms()[name](4)), sets)
    assert verify_program(p).correct
    lagging = np.flatnonzero(p.wait_lag).tolist()
    assert lagging
    for i in lagging:
        start = p.wait_start - (p.wait_start > i)
        columns = {c: np.delete(getattr(p, c), i) for c in ("wait_counter", "wait_value", "wait_lag")}
        assert not verify_program(replace(p, wait_start=start, **columns)).race_free
    later = replace(p, wait_lag=np.where(p.wait_lag > 0, sets + 1, p.wait_lag))
    assert not verify_program(later).well_formed
    if sets > 1:
        assert verify_program(replace(p, wait_lag=p.wait_lag // 2)).correct, "waits for more than it has to"


@pytest.mark.parametrize("sets", [0, -1, 3, 6])
def test_sets_are_a_power_of_two(sets: int) -> None:
    assert "wanted a power of 2" in str(verify_program(replace(handshake(), sets=sets)).failures[0])


def handshake() -> Program:
    """Rank 1 adds what rank 0 wrote to its output, after a signal."""
    s = Steps(custom("handshake", inputs=[1, 1], outputs=[[[(0, 0), (1, 0)]], [[(0, 0), (1, 0), (1, 0)]]]), load=False)
    with s.step():
        s.copy(src=[0, 1], dst=[0, 1], chunk=0)
    with s.step():
        s.reduce(src=1, dst=0, chunk=0)
    with s.step():
        s.reduce(src=0, dst=1, chunk=0, buffer="out")
    p = lower(s.build())
    assert listing(p).splitlines()[1:] == [
        "rank 0 lane 0",
        "  0: out[0] = in[0] + r1.in[0]; signal c0",
        "rank 1 lane 1",
        "  0: wait c0>=1; out[0] = in[0] + r0.out[0]",
    ]
    assert verify_program(p).correct
    return p


def test_a_missing_wait_is_a_race_that_names_both_moves() -> None:
    p = handshake()
    q = replace(
        p, wait_start=np.zeros_like(p.wait_start), wait_counter=p.wait_counter[:0], wait_value=p.wait_value[:0],
        wait_lag=p.wait_lag[:0],
    )  # fmt: skip
    report = verify_program(q)
    assert not report.correct and not report.race_free and report.deadlock_free
    assert "rank 1 lane 1 move 0 (step 2, test_interleavings.py:" in str(report.failures[0])
    assert "nothing to order it after rank 0 lane 0 move 0 (step 1, test_interleavings.py:" in str(report.failures[0])


def test_a_wait_for_a_later_move_that_waits_back_is_a_deadlock_that_names_the_circle() -> None:
    p = handshake()
    # Rank 0 now waits for a signal that rank 1 gives after the Move that waits for rank 0.
    q = replace(
        p,
        wait_start=np.array([0, 1, 2]),
        wait_counter=np.array([1, 0]),
        wait_value=np.array([1, 1]),
        wait_lag=np.array([0, 0]),
        signal_start=np.array([0, 1, 2]),
        signal_counter=np.array([0, 1]),
        counter_writer=np.array([0, 1]),
        counter_waiter=np.array([1, 0]),
        counter_total=np.array([1, 1]),
    )
    report = verify_program(q)
    assert not report.deadlock_free and not report.correct
    assert "deadlock: rank 0 lane 0 move 0" in str(report.failures[0])
    assert "rank 1 lane 1 move 0" in str(report.failures[0])


def test_scratch_used_again_without_a_wait_for_the_iteration_before_is_a_race() -> None:
    p = lower(algorithms()["recursive_doubling"](4), in_place=True)
    assert p.scratch == 1 and verify_program(p).correct
    lagging = np.flatnonzero(p.wait_lag == 1)
    assert len(lagging)
    keep = p.wait_lag == 0
    before = np.concatenate([[0], np.cumsum(keep)])
    q = replace(
        p, wait_start=before[p.wait_start], wait_counter=p.wait_counter[keep], wait_value=p.wait_value[keep],
        wait_lag=p.wait_lag[keep],
    )  # fmt: skip
    assert not verify_program(q).race_free


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src_rank": 9}, "names a rank or buffer that does not exist"),
        ({"dst_buffer": 0}, "writes to an input"),
        ({"src_chunk": 5}, "does not exist"),
        ({"count": 0}, "a Move of no chunks"),
        ({"wait_value": 7}, "a wait for a signal that is never given"),
        ({"wait_lag": 2}, "a lag outside 0..1"),
        ({"counter_total": 4}, "a counter's total is not the number of its signals"),
        ({"counter_writer": 1}, "not its writer"),
        ({"counter_waiter": 0}, "not its waiter"),
    ],
)
def test_a_malformed_program_is_refused_by_name(change: dict[str, int], message: str) -> None:
    p = handshake()
    for name, value in change.items():
        column = getattr(p, name).copy()
        column[0] = value
        p = replace(p, **{name: column})
    report = verify_program(p)
    assert not report.well_formed and not report.correct
    assert message in str(report.failures[0])
