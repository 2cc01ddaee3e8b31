"""A scene says what the slow interpreter says: contents, trees, holdings, links; wrong schedules are marked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.collective import Buffer, all_reduce
from algocc.draw import Scene, View, scene
from algocc.draw.limits import MOST_ARROWS, MOST_STEPS
from algocc.errors import UsageError
from algocc.reference import State, interpret, is_empty, wanted
from algocc.schedules.all_pairs import one_shot
from algocc.schedules.ring import ring
from algocc.steps import Steps
from algocc.table import Schedule, chunk_name
from algocc.testing.strategies import arbitrary_schedules, mutations, schedules
from algocc.verifier import verify
from algocc.verifier.explain import spell

Held = Counter[tuple[int, int]]


def states(s: Schedule, in_place: bool) -> list[State[Held]]:
    """What the interpreter says before the first step and after each."""
    count = len(s.step_start) - 1
    return [interpret(s.rows(np.flatnonzero(s.step < k)), in_place=in_place) for k in range(count + 1)]


def leaves(found: Scene, event: int) -> Counter[str]:
    """The inputs at the leaves of the tree behind an event."""
    if event < len(found.inputs):
        return Counter([found.inputs[event]])
    needs = found.writes[event - len(found.inputs)].needs
    return sum((leaves(found, before) for before in needs), Counter())


def name(rank: int, chunk: int) -> str:
    return f"r{rank}.in[{chunk}]"


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_contents_and_trees_are_those_of_the_interpreter(data: st.DataObject, in_place: bool) -> None:
    s = data.draw(schedules(4, in_place=in_place))
    in_place = in_place and len(s.collective.alias) > 0
    found = scene(s, in_place=in_place)
    after = states(s, in_place)
    last = {(w.step, w.what.split(" ")[0]): i for i, w in enumerate(found.writes)}
    for (step, place), i in last.items():
        w = found.writes[i]
        rank, rest = place.removeprefix("r").split(".")
        buffer = ("in", "out", "scratch").index(rest.split("[")[0])
        held = after[step + 1][int(rank), buffer, w.chunk]
        assert held is not None and rest == chunk_name(buffer, w.chunk) and int(rank) == w.dst
        assert leaves(found, len(found.inputs) + i) == Counter({name(*item): k for item, k in held.items()})
        assert w.holds == spell(held, held)


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_holdings_are_the_largest_part_in_one_place(data: st.DataObject, in_place: bool) -> None:
    s = data.draw(schedules(4, in_place=in_place))
    c = s.collective
    in_place = in_place and len(c.alias) > 0
    found = scene(s, in_place=in_place)
    want = {}
    for rank in range(s.n):
        for chunk in range(c.size(Buffer.OUTPUT, rank)):
            label = chunk_name(Buffer.OUTPUT, chunk)
            for known in (label, f"r{rank}.{label}"):
                if known in found.results and not is_empty(c, rank, chunk):
                    want[found.results.index(known)] = wanted(c, rank, chunk)
    assert sorted(want) == list(range(len(found.results)))
    for state, cells in zip(states(s, in_place), found.states(), strict=True):
        for rank in range(s.n):
            values = [state[place] for place in state.places() if place[0] == rank]
            for result, bag in want.items():
                if c.idempotent:
                    parts = [Fraction(len(v), len(bag)) for v in values if v and set(v) <= set(bag)]
                else:
                    parts = [Fraction(v.total(), bag.total()) for v in values if v and v <= bag]
                cell = cells.get((rank, result))
                assert (cell.share if cell else 0) == max(parts, default=0)
                assert cell is None or not cell.wrong


@settings(max_examples=40)
@given(schedules(4))
def test_links_carry_what_the_report_counts(s: Schedule) -> None:
    found = scene(s)
    report = verify(s, program=False)
    assert Fraction(int(found.links().sum(axis=1).max()), found.whole) == report.sent_max
    assert Fraction(int(found.links().sum(axis=0).max()), found.whole) == report.received_max


@settings(max_examples=60)
@given(st.data())
def test_what_is_wrong_is_drawn_and_marked(data: st.DataObject) -> None:
    s = data.draw(st.one_of(schedules(4).flatmap(mutations), arbitrary_schedules()))
    found = scene(s)
    report = verify(s, program=False)
    assert (found.failure == "") == report.correct
    assert report.correct or found.marks or all(f.step is None for f in report.failures)
    assert all(0 <= rank < s.n for _, rank in found.marks)
    if found.results and not report.correct and not any(f.level == "race" for f in report.failures):
        assert sum(cell.wrong for cell in list(found.states())[-1].values()) > 0


def test_the_culprit_is_the_write_that_adds_twice() -> None:
    s = Steps(all_reduce(3))
    s.rule(lambda rank, step, n: ((rank + 2**step) % n, 0), steps=2, action="reduce")
    found = scene(s.build())
    assert [(w.step, w.what) for w in found.writes if w.culprit] == [(2, "r0.out[0] += r1.out[0]")]
    assert found.marks == ((2, 0),)
    assert all(cell.wrong for cell in list(found.states())[-1].values())
    assert scene(s.build(), op="max").failure == ""


def test_a_send_without_receive_has_an_arrow() -> None:
    s = Steps(all_reduce(3), load=False)
    with s.step():
        s.send(rank=0, to=2, chunk=0, buffer="in")
    found = scene(s.build())
    assert [(w.src, w.dst, w.culprit) for w in found.writes] == [(0, 2, True)]
    assert "not of good form" in found.left_out[0] and not found.results


def test_what_is_chosen_and_what_is_left_out() -> None:
    found = scene(ring(4), view=View((2, 3), (1,)))
    assert found.steps == range(2, 4) and len(found.holdings) == 3
    assert {found.writes[i].chunk for i in found.drawn} == {1}
    assert found.left_out == (
        "of steps 0..6, only 2..3 are shown; --step chooses others",
        "only transfers into chunk 1 are shown; what ranks hold is that of all",
    )
    assert list(found.states())[-1] == list(scene(ring(4)).states())[4]
    whole = scene(ring(4))
    assert whole.left_out == () and len(whole.drawn) == len(whole.writes)


def test_large_ones_are_thinned_out_or_refused_in_words() -> None:
    found = scene(ring(48))
    assert len(found.drawn) <= MOST_ARROWS and "copied within a rank" in found.left_out[0]
    with pytest.raises(UsageError, match="65 ranks: a picture shows at most 64"):
        scene(ring(65))
    with pytest.raises(UsageError, match="step 1 alone moves 4032 chunks, and a picture shows at most 2000"):
        scene(one_shot(64))
    with pytest.raises(UsageError, match="a picture follows at most 20000"):
        scene(ring(4).refine(2000))
    for view, wanted_text in ((View((5, 9)), "--step 5..9: ring has steps 0..6"), (View(None, (9,)), "--chunk 9: ring writes")):
        with pytest.raises(UsageError, match=wanted_text):
            scene(ring(4), view=view)


def test_a_step_that_goes_wrong_is_never_left_out() -> None:
    s = ring(40)
    last = len(s.step_start) - 2
    slip = s.action.copy()
    slip[np.flatnonzero(s.step == last)[0]] = 1
    found = scene(replace(s, action=slip))
    assert found.failure and len(found.steps) <= MOST_STEPS < last
    assert found.marks and all(step in found.steps for step, _ in found.marks)
