"""The fast data flow agrees exactly with the reference interpreter, on right, wrong and broken schedules."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algocc.collective import Buffer, all_reduce, all_to_all_v, barrier, custom
from algocc.errors import ScheduleError
from algocc.reference import expressions, interpret, is_correct, wrong_outputs
from algocc.steps import Steps
from algocc.table import chunk_name, form_failures, layout
from algocc.testing import arbitrary_schedules, assert_correct, mutations, schedules
from algocc.verifier.dataflow import (
    MISFIT,
    RACE,
    UNWRITTEN_SOURCE,
    UNWRITTEN_TARGET,
    judge,
    trace,
)

SAYS = {UNWRITTEN_SOURCE: "is read", UNWRITTEN_TARGET: "is reduced into", RACE: "is written twice", MISFIT: "takes data"}


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
        side = (s.rank, s.buffer, s.chunk) if kind == UNWRITTEN_SOURCE else (s.peer, s.peer_buffer, s.peer_chunk)
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
    trees = [tree for tree in expressions(s, in_place=in_place).outputs().values() if tree]
    assert outcome.depth == max((depth_of(tree) for tree in trees), default=0)
    reduced = [tree for tree in trees if not isinstance(tree[0], int)]
    assert outcome.idempotent == any(max(Counter(leaves(tree)).values()) > 1 for tree in reduced)
    assert outcome.ordered == all(a < b for tree in reduced for a, b in pairwise(leaves(tree)))
    assert volumes(s.matched(), in_place) == [t.sent.tolist(), t.received.tolist(), t.reduced.tolist()]
    return right


def volumes(s, in_place):
    """Units sent, received and reduced by each rank, and checked against what every transfer carries."""
    c = s.collective
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
        if s.action[row]:
            found[2, s.peer[row]] += carried
    return found.tolist()


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
