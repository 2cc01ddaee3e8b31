"""Lowered Programs: right in every interleaving, whatever the schedule, mode and lanes; and as fused as they should be."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc import reference
from algocc.catalog import algorithms
from algocc.collective import all_reduce, all_to_all
from algocc.errors import ScheduleError, UsageError
from algocc.lowering import lower
from algocc.program import Program, check, listing
from algocc.steps import Steps
from algocc.table import Schedule
from algocc.testing import schedules
from algocc.verifier import verify_program

NAMES = sorted(algorithms())


def modes(s: Schedule) -> list[bool]:
    return [False, True] if len(s.collective.alias) else [False]


def columns(p: Program) -> dict[str, list[object]]:
    return {k: v.tolist() for k, v in vars(p).items() if isinstance(v, np.ndarray)}


@given(schedules(4), st.integers(1, 3), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_a_lowered_schedule_means_what_the_schedule_means(
    s: Schedule, lanes: int, in_place: bool, rng: random.Random
) -> None:
    in_place = in_place and reference.is_correct(s, in_place=True) and len(s.collective.alias) > 0
    p = lower(s, in_place=in_place, lanes=lanes)
    check(p)
    report = verify_program(p)
    assert report.correct, report.failures
    outputs = reference.run_program(p, iterations=2, choose=rng)
    assert reference.is_right(p, outputs, idempotent=s.collective.idempotent)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_lowers_to_a_right_program(name: str) -> None:
    for n in (1, 2, 3, 5, 8):
        try:
            s = algorithms()[name](n)
        except UsageError:
            continue
        for in_place in modes(s):
            for lanes in (1, 2):
                p = lower(s, in_place=in_place, lanes=lanes)
                check(p)
                report = verify_program(p)
                assert report.correct, (n, in_place, lanes, report.failures)
                assert p.lanes == n * lanes


@pytest.mark.parametrize("name", NAMES)
def test_lowering_is_deterministic(name: str) -> None:
    try:
        s = algorithms()[name](4)
    except UsageError:
        s = algorithms()[name](6)
    assert columns(lower(s)) == columns(lower(s))


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("in_place", [False, True])
def test_a_ring_is_reduce_copy_send_and_needs_no_scratch(n: int, in_place: bool) -> None:
    p = lower(algorithms()["ring"](n), in_place=in_place)
    # Each chunk is reduced n - 1 times; of its n - 1 copies, every other one is written by the Move before.
    assert p.moves == (n * (n - 1 + (n - 1) // 2) if n > 1 else 1 - in_place)
    assert p.scratch == 0
    assert np.bincount(np.diff(p.dst_start), minlength=3)[2] == (n * (n // 2) if n > 1 else 0)


@pytest.mark.parametrize("n", range(2, 10))
@pytest.mark.parametrize("in_place", [False, True])
def test_two_shot_is_one_move_a_chunk_that_reads_n_sources_and_writes_n_destinations(n: int, in_place: bool) -> None:
    p = lower(algorithms()["two_shot"](n), in_place=in_place)
    assert p.moves == n and not len(p.wait_counter)
    assert (np.diff(p.src_start) == n).all() and (np.diff(p.dst_start) == n).all()


@pytest.mark.parametrize("n", range(2, 10))
def test_one_shot_reads_each_source_once_and_writes_each_output_once(n: int) -> None:
    p = lower(algorithms()["one_shot"](n))
    assert p.moves == n
    assert (np.diff(p.src_start) == n).all() and (np.diff(p.dst_start) == 1).all()
    assert not len(p.wait_counter) and p.scratch == 0
    assert p.final.all() and p.src_first.all()


def test_a_copy_within_a_rank_is_read_through() -> None:
    s = Steps(all_reduce(2), load=False)
    with s.step():
        s.copy(src=[0, 1], dst=[0, 1], chunk=0, buffer="in", to_buffer="scratch")
    with s.step():
        s.copy(src=[0, 1], dst=[0, 1], chunk=0, buffer="scratch", to=1, to_buffer="scratch")
    with s.step():
        s.copy(src=[0, 1], dst=[0, 1], chunk=1, buffer="scratch", to=0, to_buffer="out")
    with s.step():
        s.reduce(src=[0, 1], dst=[1, 0], chunk=1, buffer="scratch", to=0, to_buffer="out")
    p = lower(s.build())
    assert listing(p).splitlines()[1:] == [
        "rank 0 lane 0",
        "  0: out[0] = in[0] + r1.in[0]",
        "rank 1 lane 1",
        "  0: out[0] = in[0] + r0.in[0]",
    ]


def test_an_exchange_in_place_puts_one_side_in_scratch() -> None:
    s = algorithms()["direct_all_to_all"](2)
    p = lower(s, in_place=True)
    assert listing(p).splitlines()[1:] == [
        "rank 0 lane 0",
        "  0: wait c1>=1; out[1] = r1.out[0]; signal c0",
        "rank 1 lane 1",
        "  0: scratch[0] = r0.out[1]; signal c1",
        "  1: wait c0>=1; out[0] = scratch[0]",
    ]


def test_a_value_for_two_outputs_is_one_move_with_two_destinations() -> None:
    from algocc.collective import custom

    s = Steps(custom("twins", inputs=[1, 1], outputs=[[[(0, 0), (1, 0)], [(0, 0), (1, 0)]], []]), load=False)
    with s.step():
        s.copy(src=0, dst=0, chunk=0, to=0)
    with s.step():
        s.reduce(src=1, dst=0, chunk=0, to=0)
    with s.step():
        s.copy(src=0, dst=0, chunk=0, buffer="out", to=1)
    p = lower(s.build())
    assert "out[0], out[1] = in[0] + r1.in[0]" in listing(p) or "out[1], out[0] = in[0] + r1.in[0]" in listing(p)
    assert p.moves == 1


def test_what_nobody_needs_is_not_done() -> None:
    s = Steps(all_reduce(2))
    with s.step():
        s.copy(src=0, dst=1, chunk=0, to=0, to_buffer="scratch")
    with s.step():
        s.reduce(src=[0, 1], dst=[1, 0], chunk=0)
    assert lower(s.build()).moves == lower(algorithms()["one_shot"](2)).moves == 2


def test_neighbouring_chunks_become_one_move() -> None:
    s = Steps(all_to_all(3, chunks=5))
    with s.step():
        for rank in range(3):
            for peer in range(3):
                if peer != rank:
                    s.copy(src=rank, dst=peer, chunk=5 * peer, to=5 * rank, count=5)
    p = lower(s.build())
    assert p.count.tolist() == [5] * 9


@pytest.mark.parametrize("name", NAMES)
def test_every_wait_is_needed_or_harmless_and_most_are_needed(name: str) -> None:
    """Dropping a wait must make a race, or leave a program that is still right; never pass a wrong one."""
    s = algorithms()[name](4)
    rng = random.Random(name)
    p = lower(s)
    missed = 0
    for w in rng.sample(range(len(p.wait_counter)), min(6, len(p.wait_counter))):
        q = _without_wait(p, w)
        if verify_program(q).correct:
            missed += 1
            for seed in range(5):
                outputs = reference.run_program(q, iterations=2, choose=random.Random(seed))
                assert reference.is_right(q, outputs, idempotent=s.collective.idempotent)
    assert missed <= 2


def _without_wait(p: Program, w: int) -> Program:
    keep = np.arange(len(p.wait_counter)) != w
    start = p.wait_start - (p.wait_start > w)
    return replace(
        p, wait_start=start, wait_counter=p.wait_counter[keep], wait_value=p.wait_value[keep], wait_lag=p.wait_lag[keep]
    )


def test_errors() -> None:
    s = algorithms()["ring"](3)
    with pytest.raises(UsageError, match="lanes=0: a rank has at least 1 lane"):
        lower(s, lanes=0)
    peer = s.peer.copy()
    peer[5] = 7
    with pytest.raises(ScheduleError, match=r"step 1, rank 2: peer 7, wanted one of 0..2"):
        lower(replace(s, peer=peer))
