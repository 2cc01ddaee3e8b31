"""The table: matching of sends with receives, form failures word for word, layout and equality."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.collective import Buffer, all_gather, all_reduce, broadcast, reduce_scatter
from algocc.errors import ScheduleError, UsageError
from algocc.reference import expressions, is_correct
from algocc.steps import Steps
from algocc.table import (
    COLUMNS,
    Action,
    Failure,
    Schedule,
    chunk_name,
    form_failures,
    layout,
    match,
    steps_of,
)
from algocc.testing import schedules
from algocc.testing.generate import two_sided_form

SEND, RECV, REDUCED = Action.SEND, Action.RECV, Action.RECV_REDUCE


def rows(*given_rows, collective=None, scratch=0, origins=()):
    """A schedule of rows (step, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count)."""
    columns = np.array([(*row, 0) for row in given_rows], np.int64).reshape(-1, len(COLUMNS)).T
    c = collective or all_reduce(3, chunks=4)
    return Schedule("s", c, scratch, **dict(zip(COLUMNS, columns, strict=True)), origins=origins)


def texts(failures):
    return [str(f) for f in failures]


def test_the_kth_send_of_a_pair_meets_its_kth_receive():
    s = rows(
        (0, RECV, 1, 0, 1, 0, -1, -1, 1),
        (0, SEND, 0, 1, 0, 3, -1, -1, 1),
        (0, SEND, 2, 1, 0, 1, -1, -1, 1),
        (0, SEND, 0, 1, 0, 2, -1, -1, 1),
        (0, REDUCED, 1, 2, 1, 2, -1, -1, 1),
        (0, RECV, 1, 0, 1, 1, -1, -1, 1),
        (1, SEND, 0, 1, 0, 0, -1, -1, 2),
        (1, RECV, 1, 0, 1, 2, -1, -1, 2),
    )
    m = s.matched()
    assert m.is_matched and not s.is_matched
    found = list(zip(*(m.columns[name].tolist() for name in list(COLUMNS)[:-1]), strict=True))
    assert found == [
        (0, Action.COPY, 0, 1, 0, 3, 1, 0, 1),
        (0, Action.REDUCE, 2, 1, 0, 1, 1, 2, 1),
        (0, Action.COPY, 0, 1, 0, 2, 1, 1, 1),
        (1, Action.COPY, 0, 1, 0, 0, 1, 2, 2),
    ]


@given(schedules(two_sided=False), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_matching_undoes_the_two_sided_form(s, seed):
    back = two_sided_form(random.Random(seed), s).matched()
    assert not form_failures(back) and back.is_matched
    assert expressions(back).outputs().keys() == expressions(s).outputs().keys()
    a, b = back.canonical(), s.canonical()
    for step in range(len(a.step_start) - 1):
        mine, theirs = (
            sorted(zip(*(x.columns[k][x.step == step].tolist() for k in list(COLUMNS)[:-1]), strict=True))
            for x in (a, b)
        )
        assert mine == theirs


@given(schedules())
@settings(max_examples=30, deadline=None)
def test_canonical_keeps_the_meaning(s):
    assert expressions(s.canonical()).outputs() == expressions(s).outputs()
    assert is_correct(s.canonical())


@pytest.mark.parametrize(
    ("given_rows", "message"),
    [
        (
            [(0, SEND, 0, 1, 0, 2, -1, -1, 1)],
            (
                "step 0, rank 0: in[2] is sent to rank 1 without the matching receive, "
                "wanted one receive on rank 1 in the same step (a.py:1)"
            ),
        ),
        (
            [(2, REDUCED, 1, 2, 1, 0, -1, -1, 3)],
            (
                "step 2, rank 1: out[0:3] is received from rank 2 without the matching send, "
                "wanted one send on rank 2 in the same step (a.py:1)"
            ),
        ),
        (
            [(0, SEND, 0, 1, 0, 0, -1, -1, 1), (1, RECV, 1, 0, 1, 0, -1, -1, 1)],
            (
                "step 0, rank 0: in[0] is sent to rank 1 without the matching receive, "
                "wanted one receive on rank 1 in the same step (a.py:1)"
            ),
        ),
        (
            [(0, SEND, 0, 1, 0, 0, -1, -1, 2), (0, RECV, 1, 0, 1, 0, -1, -1, 1)],
            (
                "step 0, rank 0: in[0:2] of 2 chunks meets out[0] of 1 chunk on rank 1, "
                "wanted both sides to name the same place and count (a.py:1) (a.py:1)"
            ),
        ),
        (
            [(0, SEND, 0, 1, 0, 0, 1, 3, 1), (0, RECV, 1, 0, 1, 2, -1, -1, 1)],
            (
                "step 0, rank 0: in[0] of 1 chunk meets out[2] of 1 chunk on rank 1, "
                "wanted both sides to name the same place and count (a.py:1) (a.py:1)"
            ),
        ),
    ],
)
def test_what_can_not_be_matched(given_rows, message):
    s = rows(*given_rows, origins=("a.py:1",))
    assert texts(form_failures(s))[0] == message
    assert texts(match(s)[1])[0] == message
    with pytest.raises(ScheduleError) as error:
        s.matched()
    assert str(error.value) == f"schedule s: {message}"
    assert not is_correct(s)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 9, 0, 1, 0, 0, 1, 0, 1), ("step 0, rank 0: action 9, wanted one of COPY, REDUCE, PREREDUCE, SEND, RECV, "
         "RECV_REDUCE, RECV_PREREDUCE")),
        ((0, 0, 3, 1, 0, 0, 1, 0, 1), "step 0, rank 3: rank 3, wanted one of 0..2"),
        ((0, 0, 1, -1, 0, 0, 1, 0, 1), "step 0, rank 1: peer -1, wanted one of 0..2"),
        ((4, 0, 1, 0, 0, 0, 1, 0, 0), "step 4, rank 1: a transfer of 0 chunks, wanted 1 or more"),
        ((0, 0, 1, 0, 5, 0, 1, 0, 1), "step 0, rank 1: buffer 5, wanted 0 (in), 1 (out) or 2 (scratch)"),
        ((0, 0, 1, 0, 0, 0, -1, 0, 1), "step 0, rank 1: buffer -1, wanted 0 (in), 1 (out) or 2 (scratch)"),
        ((0, 0, 1, 0, 0, 3, 1, 0, 2), ("step 0, rank 1: in[3:5] names a chunk that does not exist, "
         "wanted chunks within 0..3 of that buffer on rank 1")),
        ((0, 0, 1, 0, 0, 3, 1, -1, 1), ("step 0, rank 1: out[-1] names a chunk that does not exist, "
         "wanted chunks within 0..3 of that buffer on rank 0")),
        ((0, 0, 1, 0, 2, 0, 1, 0, 1), ("step 0, rank 1: scratch[0] names a chunk that does not exist, "
         "wanted another buffer: that one is empty on rank 1")),
        ((0, 0, 1, 0, 1, 0, 0, 1, 1), "step 0, rank 1: in[1] is written, wanted only out and scratch written to"),
        ((0, RECV, 1, 0, 0, 1, -1, -1, 1), "step 0, rank 1: in[1] is written, wanted only out and scratch written to"),
        ((0, SEND, 1, 1, 0, 1, -1, -1, 1), ("step 0, rank 1: in[1] is sent to the rank itself, "
         "wanted a local copy or reduce")),
    ],
)  # fmt: skip
def test_each_kind_of_bad_form(row, message):
    s = rows(row)
    assert texts(form_failures(s))[0] == message
    assert not is_correct(s)


def test_failures_are_capped_and_count_each_kind():
    s = rows(*[(step, 0, 0, 1, 0, 9, 1, 9, 1) for step in range(50)])
    assert len(form_failures(s, most=3)) == 6


def test_a_failure_says_what_it_can():
    assert str(Failure("form", None, None, None, "x", "y")) == "form: x, wanted y"
    assert str(Failure("data", 3, 2, "out[5]", "holds {0,1,1}", "{0,1}", "ring.py:41")) == (
        "step 3, rank 2: out[5] holds {0,1,1}, wanted {0,1} (ring.py:41)"
    )


def test_columns_must_fit():
    s = rows((0, 0, 0, 1, 0, 0, 1, 0, 1))
    with pytest.raises(UsageError, match=r"schedule s: column chunk has shape \(2,\), wanted \(1,\)"):
        replace(s, chunk=np.zeros(2))
    with pytest.raises(UsageError, match="schedule s: the steps are not in order from 0"):
        rows((1, 0, 0, 1, 0, 0, 1, 0, 1), (0, 0, 0, 1, 0, 0, 1, 0, 1))
    with pytest.raises(UsageError, match="schedule s: the steps are not in order from 0"):
        rows((-1, 0, 0, 1, 0, 0, 1, 0, 1))
    with pytest.raises(ValueError, match="read-only"):
        s.chunk[0] = 1


def test_equality_is_of_meaning_and_sources():
    s = rows((0, 0, 0, 1, 0, 0, 1, 0, 1), origins=("a.py:1",))
    assert s == replace(s)
    assert s != replace(s, count=[2]) and s != replace(s, name="t") and s != replace(s, scratch=1)
    assert s != replace(s, origins=("a.py:2",))
    assert s == replace(s, origins=("unused", "a.py:1"), origin=[1])
    assert s != "s"


def test_steps_and_sources():
    s = rows(
        (1, 0, 0, 1, 0, 0, 1, 0, 1),
        (3, 0, 0, 1, 0, 0, 1, 0, 1),
        (3, 0, 0, 2, 0, 0, 1, 0, 1),
        origins=("a.py:1",),
    )
    assert s.step_start.tolist() == [0, 0, 1, 1, 3]
    assert list(steps_of(s)) == [(1, range(1)), (3, range(1, 3))]
    assert s.source(0) == "a.py:1" and replace(s, origin=[-1, 0, 0]).source(0) is None
    assert repr(s) == "<Schedule s: all_reduce n=3 chunks=4, 4 steps, 3 rows>"
    assert rows().step_start.tolist() == [0] and rows().is_matched


def test_chunk_names():
    assert chunk_name(Buffer.SCRATCH, 2, 3) == "scratch[2:5]" and chunk_name(7, 1) == "?[1]"


@pytest.mark.parametrize("c", [all_gather(3, chunks=2), reduce_scatter(3), broadcast(3, root=1)])
def test_layout_numbers_every_chunk_once(c):
    s = Steps(c).build()
    places = layout(s)
    assert places.alias.tolist() == list(range(places.total))
    names = [places.name(i) for i in range(places.total)]
    assert len(set(names)) == places.total
    for rank in range(c.n):
        for buffer in (Buffer.INPUT, Buffer.OUTPUT):
            for chunk in range(c.size(buffer, rank)):
                assert places.name(int(places.start[rank, buffer]) + chunk) == (
                    rank,
                    chunk_name(buffer, chunk),
                )
    shared = layout(s, in_place=True)
    moved = [(places.name(i), places.name(int(a))) for i, a in enumerate(shared.alias) if i != a]
    assert moved == [
        ((rank, chunk_name(0, i * c.chunks + part)), (rank, chunk_name(1, o * c.chunks + part)))
        for rank, i, o in c.alias.tolist()
        for part in range(c.chunks)
    ]
