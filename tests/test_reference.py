"""The reference interpreter: what schedules and Programs mean, on examples small enough to check by eye."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.collective import Buffer, all_gather, all_reduce, barrier, custom, exscan, reduce, reduce_scatter
from algocc.errors import ScheduleError, UsageError
from algocc.lowering import lower
from algocc.program import Program, listing
from algocc.reference import (
    all_interleavings,
    execute,
    expressions,
    interpret,
    is_correct,
    is_right,
    run_program,
    wanted,
    wrong_outputs,
)
from algocc.steps import Steps
from algocc.testing import interleavings, program_mutations, schedules
from algocc.verifier.interleavings import verify_program


def exchange(n: int = 2, chunks: int = 1) -> Steps:
    s = Steps(all_reduce(n, chunks=chunks), name="exchange")
    with s.step():
        for rank in range(n):
            for peer in range(n):
                if rank != peer:
                    s.reduce(src=rank, dst=peer, chunk=0, count=chunks)
    return s


def test_all_of_a_step_reads_the_state_before_it():
    s = Steps(custom("swap", inputs=[1, 1], outputs=[[[(1, 0)]], [[(0, 0)]]]))
    with s.step():
        s.copy(src=0, dst=0, chunk=0, buffer="in")
        s.copy(src=1, dst=1, chunk=0, buffer="in")
    with s.step():
        s.copy(src=0, dst=1, chunk=0, buffer="out")
        s.copy(src=1, dst=0, chunk=0, buffer="out")
    assert is_correct(s.build())


def test_several_reductions_into_one_chunk_apply_in_row_order():
    s = Steps(all_reduce(3))
    with s.step():
        s.reduce(src=1, dst=0, chunk=0)
        s.prereduce(src=2, dst=0, chunk=0)
    assert expressions(s.build())[0, Buffer.OUTPUT, 0] == ((2, 0), ((0, 0), (1, 0)))


def test_the_part_of_a_block_wants_that_part():
    assert wanted(all_gather(2, chunks=3), 0, 4) == Counter({(1, 1): 1})
    assert wanted(reduce_scatter(2, chunks=2), 1, 1) == Counter({(0, 3): 1, (1, 3): 1})


def test_twice_is_wrong_unless_idempotent():
    s = exchange()
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
    assert not is_correct(s.build())
    assert list(wrong_outputs(interpret(s.build()))) == [(1, 0)]
    assert is_correct(s.build(), idempotent=True)
    assert is_correct(replace(s.build(), collective=barrier(2)))


def test_in_place_overwrites_the_input():
    s = Steps(all_gather(2), load=False)
    with s.step():
        s.copy(src=0, dst=1, chunk=0, buffer="in")
        s.copy(src=1, dst=0, chunk=0, to=1, buffer="in")
    assert not is_correct(s.build())  # no one copies a rank's own block
    assert is_correct(s.build(), in_place=True)
    with s.step():
        s.copy(src=0, dst=0, chunk=1, to=0, buffer="out")
    assert interpret(s.build(), in_place=True)[0, Buffer.INPUT, 0] == Counter({(1, 0): 1})


def test_values_of_any_kind():
    x = np.array([[1.0, 2.0], [10.0, 20.0]])
    state = execute(
        exchange(chunks=2).build(), in_place=False, leaf=lambda rank, i: x[rank, i], combine=np.add
    )
    assert list(state.outputs().values()) == [11, 22, 11, 22]


CASES = {
    "read": ("step 0, rank 0: scratch[0] is read, wanted a chunk written before", 1,
             lambda s: s.copy(src=0, dst=1, chunk=0, buffer="scratch")),
    "target": ("step 0, rank 1: out[0] is reduced into, wanted a chunk written before", 1,
               lambda s: s.reduce(src=0, dst=1, chunk=0, buffer="in")),
    "race": ("step 0, rank 1: out[0] is written twice, wanted one writer in a step unless all reduce", 1,
             lambda s: [s.copy(src=r, dst=1, chunk=0, buffer="in") for r in (0, 1)]),
    "input": ("step 0, rank 1: in[0] is written, wanted inputs left as they are", 1,
              lambda s: s.copy(src=0, dst=1, chunk=0, buffer="in", to_buffer="in")),
    "place": ("step 0, rank 1: out[9] does not exist, wanted a chunk that does", 1,
              lambda s: s.copy(src=0, dst=1, chunk=0, to=9, buffer="in")),
    "rank": ("step 0, rank 0: ranks 0 and 7, wanted ranks of 0..1", 1,
             lambda s: s.copy(src=0, dst=7, chunk=0, buffer="in")),
    "count": ("step 0, rank 0: a transfer of 0 chunks, wanted 1 or more", 1,
              lambda s: s.copy(src=0, dst=1, chunk=0, count=0, buffer="in")),
    "send": ("step 0, rank 0: a send without its receive, wanted one receive for each send", 1,
             lambda s: s.send(rank=0, to=1, chunk=0, buffer="in")),
    "recv": ("step 0, rank 1: a receive without its send, wanted one send for each receive", 1,
             lambda s: s.recv(rank=1, source=0, chunk=0)),
    "self": ("step 0, rank 0: a message to the rank itself, wanted a local copy or reduce", 1,
             lambda s: s.send(rank=0, to=0, chunk=0, buffer="in")),
    "disagree": ("step 0, rank 0: a send that disagrees with its receive, wanted one place and one count", 2,
                 lambda s: [s.send(rank=0, to=1, chunk=0, count=2, buffer="in"), s.recv(rank=1, source=0, chunk=0)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_step_rank_and_chunk(case):
    message, chunks, write = CASES[case]
    s = Steps(all_reduce(2, chunks=chunks), load=False)
    with s.step():
        write(s)
    made = replace(s.build(), scratch=1)
    with pytest.raises(ScheduleError) as error:
        interpret(made)
    assert str(error.value).startswith(message)
    assert "test_reference.py:" in str(error.value)
    assert not is_correct(made)


def test_parts_of_different_lengths_are_not_reduced():
    s = Steps(all_reduce(2, chunks=2))
    with s.step():
        s.reduce(src=0, dst=1, chunk=1, to=0)
    with pytest.raises(
        ScheduleError, match=r"step 1, rank 1: out\[0\] is reduced with data of another length"
    ):
        interpret(s.build())


# ----------------------------------------------------------------------------------------------- programs


@given(schedules(3), st.booleans(), st.integers(1, 3), st.integers(1, 3), interleavings())
@settings(max_examples=60, deadline=None)
def test_a_lowered_program_is_right_in_every_interleaving_tried(s, in_place, lanes, iterations, choose):
    if is_correct(s, in_place=in_place):
        p = lower(s, in_place=in_place, lanes=lanes)
        assert is_right(p, run_program(p, iterations=iterations, choose=choose))


@given(st.data(), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_break_a_program_and_the_verifier_objects_if_any_run_is_wrong(data, lanes):
    p = lower(data.draw(schedules(3)), lanes=lanes)
    broken = data.draw(program_mutations(p))
    try:
        right = is_right(broken, run_program(broken, iterations=2, choose=data.draw(interleavings())))
    except ScheduleError:
        right = False
    assert right or not verify_program(broken).correct


def test_all_interleavings_have_one_result():
    p = lower(exchange().build())
    (outputs,) = all_interleavings(p)
    assert is_right(p, outputs)
    assert outputs == run_program(p)
    (outputs,) = all_interleavings(p, iterations=2)
    assert is_right(p, outputs)


def _without(p: Program, what: str, item: int, names: tuple[str, ...]) -> Program:
    start = getattr(p, f"{what}_start")
    move = int(np.searchsorted(start, item, side="right")) - 1
    changed = {name: np.delete(getattr(p, name), item) for name in names}
    changed[f"{what}_start"] = start - (np.arange(len(start)) > move)
    if what == "signal":
        changed["counter_total"] = np.bincount(changed["signal_counter"], minlength=len(p.counter_total))
    return replace(p, **changed)


def relay() -> Program:
    """Rank 1 reduces both inputs in its scratch, rank 0 copies the result from there.

    rank 0 lane 0
      0: wait c1>=1; out[0] = r1.scratch[0]; signal c0
    rank 1 lane 1
      0: wait c0>=1'; scratch[0] = r0.in[0] + in[0]; signal c1
    """
    columns = {
        "lane_rank": [0, 1], "lane_start": [0, 1, 2],
        "step": [1, 0], "origin": [-1, -1], "count": [1, 1], "like": [0, 0], "final": [0, 1],
        "src_start": [0, 1, 3], "src_rank": [1, 0, 1], "src_buffer": [2, 0, 0], "src_chunk": [0, 0, 0], "src_first": [0, 1, 1],
        "dst_start": [0, 1, 2], "dst_rank": [0, 1], "dst_buffer": [1, 2], "dst_chunk": [0, 0],
        "wait_start": [0, 1, 2], "wait_counter": [1, 0], "wait_value": [1, 1], "wait_lag": [0, 1],
        "signal_start": [0, 1, 2], "signal_counter": [0, 1],
        "counter_writer": [0, 1], "counter_waiter": [1, 0], "counter_total": [1, 1],
    }  # fmt: skip
    arrays = {name: np.array(column) for name, column in columns.items()}
    return Program("relay", reduce(2), in_place=False, scratch=1, origins=(), **arrays)


def test_the_relay_is_what_it_says():
    docstring = [line.strip() for line in relay.__doc__.splitlines()[2:] if line.strip()]
    assert [line.strip() for line in listing(relay()).splitlines()[1:]] == docstring


@pytest.mark.parametrize("item", range(2))
def test_a_missing_wait_shows_in_some_interleaving(item):
    p = relay()
    assert len(all_interleavings(p, iterations=2)) == 1
    broken = _without(p, "wait", item, ("wait_counter", "wait_value", "wait_lag"))
    try:
        results = all_interleavings(broken, iterations=2)
    except ScheduleError as error:
        assert "before anyone writes it" in str(error)
    else:
        assert len(results) > 1


def test_a_deadlock_names_its_lanes():
    p = relay()
    circular = replace(p, wait_lag=np.zeros_like(p.wait_lag))
    message = r"deadlock: rank 0 lane 0 move 0 waits for c\d>=1, found 0; rank 1 lane 1 move 0 waits for c\d>=1, found 0"
    for run in (run_program, all_interleavings):
        with pytest.raises(ScheduleError, match=message):
            run(circular)


def test_an_iteration_has_its_own_tiles_and_the_same_scratch():
    p = relay()
    hasty = _without(p, "wait", 1, ("wait_counter", "wait_value", "wait_lag"))
    stale = [out for out in all_interleavings(hasty, iterations=2) if not is_right(hasty, out)]
    assert stale and all(out[0, 0, 0] == ((1, 0, 0), (1, 1, 0)) for out in stale)


def test_a_program_too_large_to_exhaust():
    with pytest.raises(UsageError, match="more than 10 moments"):
        all_interleavings(lower(exchange(3).build()), limit=10)


def test_a_program_of_bad_form_is_refused():
    p = relay()
    with pytest.raises(ScheduleError, match="does not exist"):
        run_program(replace(p, src_chunk=p.src_chunk + 5))


def test_outputs_of_no_rank():
    p = lower(Steps(exscan(1)).build())
    assert run_program(p) == {}
