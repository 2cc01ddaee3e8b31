"""The fast data flow agrees exactly with the reference interpreter, on right, wrong and broken schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.collective import Buffer, all_reduce, all_to_all_v, barrier, custom
from algocc.errors import ScheduleError
from algocc.reference import expressions, interpret, is_correct, wrong_outputs
from algocc.steps import Steps
from algocc.table import chunk_name, form_failures, layout
from algocc.testing import arbitrary_schedules, mutations, schedules
from algocc.verifier.dataflow import (
    MISFIT,
    RACE,
    UNWRITTEN_SOURCE,
    UNWRITTEN_TARGET,
    judge,
    trace,
)

SAYS = {
    UNWRITTEN_SOURCE: "is read",
    UNWRITTEN_TARGET: "is reduced into",
    RACE: "is written twice",
    MISFIT: "is reduced with data",
}


def verdict(s, *, in_place=False):
    """What the fast verifier finds: the form's failures, or the first trouble as text, or the trace and outcome."""
    failures = form_failures(s)
    if failures:
        return failures, None, None, None
    s = s.matched()
    places = layout(s, in_place=in_place)
    t = trace(s, places)
    trouble = None
    if len(t.trouble):
        kind, row, i = t.trouble[0].tolist()
        side = (
            (s.rank, s.buffer, s.chunk) if kind == UNWRITTEN_SOURCE else (s.peer, s.peer_buffer, s.peer_chunk)
        )
        rank, buffer, chunk = (int(column[row]) for column in side)
        trouble = f"step {s.step[row]}, rank {rank}: {chunk_name(buffer, chunk + i)} {SAYS[kind]}"
    return failures, trouble, t, judge(s, places, t)


def contributions(s, t):
    """The multiset behind every value number."""
    c = s.collective
    held = [Counter([(rank, chunk)]) for rank in range(c.n) for chunk in range(c.size(Buffer.INPUT, rank))]
    for a, b in zip(t.left.tolist(), t.right.tolist(), strict=True):
        held.append(held[a] + held[b])
    return held


def depth_of(tree):
    """Most reductions in a row; trees share their branches, so each is looked at once."""

    @cache
    def depth(key):
        node = nodes[key]
        return 0 if isinstance(node[0], int) else 1 + max(depth(visit(node[0])), depth(visit(node[1])))

    nodes = {}

    def visit(node):
        nodes[id(node)] = node
        return id(node)

    return depth(visit(tree))


def leaves(tree):
    return [tree] if isinstance(tree[0], int) else leaves(tree[0]) + leaves(tree[1])


def agree(s, in_place):
    """Assert that both say the same of a schedule; what they say."""
    failures, trouble, t, outcome = verdict(s, in_place=in_place)
    right = not failures and not trouble and not len(outcome.wrong)
    assert right == is_correct(s, in_place=in_place)
    if failures or trouble:
        with pytest.raises(ScheduleError) as raised:
            interpret(s, in_place=in_place)
        assert trouble is None or str(raised.value).startswith(trouble)
        return right
    state = interpret(s, in_place=in_place)
    places = layout(s, in_place=in_place)
    held = contributions(s, t)
    for rank, buffer, chunk in state.places():
        value = t.value[places.alias[places.start[rank, buffer] + chunk]]
        assert state[rank, buffer, chunk] == (held[value] if value >= 0 else None)
    outputs = list(state.outputs())
    assert [outputs[i] for i in outcome.wrong.tolist()] == list(wrong_outputs(state))
    assert outcome.sets_right == (not any(wrong_outputs(state, idempotent=True)))
    c = s.collective
    trees = [
        tree
        for (rank, chunk), tree in expressions(s, in_place=in_place).outputs().items()
        if tree and c.output_sizes[c.output_start[rank] + chunk // c.chunks]  # nothing is asked of an empty output
    ]
    assert outcome.depth == max((depth_of(tree) for tree in trees), default=0)
    reduced = [tree for tree in trees if not isinstance(tree[0], int)]
    assert outcome.idempotent == any(max(Counter(leaves(tree)).values()) > 1 for tree in reduced)
    assert outcome.ordered == all(a < b for tree in reduced for a, b in pairwise(leaves(tree)))
    found, messages = volumes(s.matched(), in_place)
    assert found == [t.sent.tolist(), t.received.tolist(), t.reduced.tolist()]
    assert t.largest == max(messages.values(), default=0)
    ways = [Counter((step, ends[way]) for step, *ends in messages) for way in (0, 1)]
    assert t.ports == max([*ways[0].values(), *ways[1].values()], default=0)
    return right


def volumes(s, in_place):
    """Units sent, received and reduced by each rank; and in each message, all that goes from a rank to another in a step."""
    c = s.collective
    messages = Counter()
    found = np.zeros((3, s.n), np.int64)
    for row in range(len(s)):
        carried = 0
        for i in range(s.count[row]):
            before = interpret(s.rows(np.arange(len(s)) < s.step_start[s.step[row]]), in_place=in_place)
            rank, chunk = next(iter(before[int(s.rank[row]), int(s.buffer[row]), int(s.chunk[row]) + i]))
            carried += int(c.sizes[c.input_start[rank] + chunk // c.chunks])
        if s.rank[row] != s.peer[row]:
            found[0, s.rank[row]] += carried
            found[1, s.peer[row]] += carried
            messages[int(s.step[row]), int(s.rank[row]), int(s.peer[row])] += carried
        if s.action[row]:
            found[2, s.peer[row]] += carried
    return found.tolist(), messages


@given(schedules(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_correct_schedule_passes_both(s, in_place):
    assert agree(s, False)
    agree(s, in_place)


@given(schedules(in_place=True))
@settings(max_examples=50, deadline=None)
def test_a_schedule_made_for_in_place_passes_both_ways(s):
    assert agree(s, True)
    assert agree(s, False)


@given(arbitrary_schedules(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_arbitrary_schedules(s, in_place):
    agree(s, in_place)


@given(st.data(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_break_a_correct_one_and_both_object_or_neither(data, in_place):
    s = data.draw(schedules(in_place=in_place))
    agree(data.draw(mutations(s)), in_place)


def local(c, *steps):
    """A schedule of one rank: each step is a list of (method, source buffer, chunk, to buffer, to)."""
    s = Steps(c, load=False)
    for transfers in steps:
        with s.step():
            for method, buffer, chunk, to_buffer, to in transfers:
                getattr(s, method)(src=0, dst=0, chunk=chunk, to=to, buffer=buffer, to_buffer=to_buffer)
    return s.build()


def test_an_input_wanted_twice_must_be_added_twice():
    twice = custom("twice", inputs=[1], outputs=[[[(0, 0), (0, 0)]]])
    once = local(twice, [("copy", "in", 0, "out", 0)])
    right = local(twice, [("copy", "in", 0, "out", 0)], [("reduce", "in", 0, "out", 0)])
    thrice = local(twice, [("copy", "in", 0, "out", 0)], [("reduce", "in", 0, "out", 0)] * 2)
    assert [agree(s, False) for s in (once, right, thrice)] == [False, True, False]
    assert verdict(thrice)[3].sets_right


@pytest.mark.parametrize("first", [0, 1])
def test_one_value_that_two_outputs_want_to_be_different(first):
    """The output that wants what it holds is right, whichever of them comes first."""
    wants = [[(0, 0), (0, 0), (0, 1)], [(0, 0), (0, 1)]]
    c = custom("differing", inputs=[2], outputs=[[wants[first], wants[1 - first]]])
    s = local(
        c,
        [("copy", "in", 0, "out", 0)],
        [("reduce", "in", 1, "out", 0)],
        [("copy", "out", 0, "out", 1)],
    )
    assert not agree(s, False)
    outcome = verdict(s)[3]
    assert outcome.wrong.tolist() == [first] and outcome.sets_right


def test_equal_wants_under_different_numbers():
    c = custom("equal", inputs=[2], outputs=[[[(0, 0), (0, 1)], [(0, 1), (0, 0)]]])
    s = local(
        c, [("copy", "in", 0, "out", 0)], [("reduce", "in", 1, "out", 0)], [("copy", "out", 0, "out", 1)]
    )
    assert agree(s, False)


def test_only_chunks_of_one_length_can_be_reduced():
    """An output may hold another part for a while, since lowering finds room for it."""
    parts = custom("parts", inputs=[1], outputs=[[[(0, 0)]]], chunks=2)
    whole = [("copy", "in", 0, "out", 0), ("copy", "in", 1, "out", 1)]
    assert agree(local(parts, [("copy", "in", 0, "out", 1)], whole), False)
    mixed = [("copy", "in", 0, "scratch", 0)], [("reduce", "in", 1, "scratch", 0)]
    assert not agree(local(parts, whole, *mixed), False)
    assert verdict(local(parts, whole, *mixed))[1].startswith(
        "step 2, rank 0: scratch[0] is reduced with data"
    )
    sizes = custom("sizes", inputs=[1, 1], outputs=[[[(0, 0)]], [[(1, 0)]]])
    s = Steps(sizes)
    with s.step():
        s.copy(src=[0, 1], dst=[0, 1], chunk=0, buffer="in")
        s.copy(src=[0, 1], dst=[0, 1], chunk=0, buffer="in", to_buffer="scratch")
    with s.step():
        s.reduce(src=0, dst=1, chunk=0, buffer="in", to_buffer="scratch")
    for units, fits in (([2, 1], False), ([0, 1], False), ([2, 2], True), ([0, 0], True)):
        weighted = replace(s.build(), collective=replace(sizes, sizes=np.array(units)))
        assert agree(weighted, False) == fits


def test_volume_is_in_units_of_the_blocks():
    s = Steps(all_to_all_v(2, counts=[[5, 3], [2, 7]]))
    with s.step():
        s.copy(src=0, dst=1, chunk=1, to=0, buffer="in")
        s.copy(src=1, dst=0, chunk=0, to=1, buffer="in")
    t = verdict(s.build())[2]
    assert (t.sent.tolist(), t.received.tolist(), t.rounds, t.messages, t.ports) == ([3, 2], [2, 3], 1, 2, 1)


def test_a_barrier_may_hear_of_a_rank_twice():
    s = Steps(barrier(3))
    for hop in (1, 2):
        with s.step():
            s.reduce(src=np.arange(3), dst=(np.arange(3) + hop) % 3, chunk=0)
    assert agree(s.build(), False)
    assert not agree(Steps(barrier(2)).build(), False)


def test_the_side_of_a_reduction_is_its_order():
    """A prefix of the ranks comes from the left, so only `prereduce` keeps the order of the ranks."""

    def chain(method):
        s = Steps(all_reduce(3))
        for rank in (0, 1):
            with s.step():
                getattr(s, method)(src=rank, dst=rank + 1, chunk=0)
        for rank in (1, 0):
            with s.step():
                s.copy(src=2, dst=rank, chunk=0)
        return s.build()

    assert agree(chain("reduce"), False) and not verdict(chain("reduce"))[3].ordered
    assert agree(chain("prereduce"), False) and verdict(chain("prereduce"))[3].ordered
    assert verdict(chain("prereduce"))[3].depth == 2


def test_ports_are_distinct_peers_of_a_step():
    s = Steps(all_reduce(4, chunks=2))
    with s.step():
        s.reduce(src=[0, 0, 0, 1], dst=[1, 2, 1, 2], chunk=[0, 0, 1, 1])
    t = verdict(s.build())[2]
    assert (t.ports, t.messages, t.rounds) == (2, 4, 1)


def test_trouble_is_capped():
    s = Steps(all_reduce(2, chunks=50), load=False)
    with s.step():
        s.copy(src=0, dst=1, chunk=0, count=50)
    made = s.build()
    assert len(trace(made, layout(made), most=7).trouble) == 7
