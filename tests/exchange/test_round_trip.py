"""A schedule, written and read again, is judged the same to the last fraction."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algocc import catalog
from algocc.collective import collective
from algocc.errors import ScheduleError, UsageError
from algocc.exchange import export, program, read, schedule, verdict
from algocc.reference import is_right, run_program
from algocc.table import Schedule, form_failures
from algocc.testing.generate import random_correct
from algocc.testing.mutate import mutated
from algocc.verifier import Report, verify

FORMATS = (("msccl-xml", "Simple"), ("mscclpp-json", "Simple"), ("mscclpp-json", "LL"))
"""Formats with the protocols that are written in another way."""
TARGETS = {"msccl-xml": ("rccl", "msccl-executor", "msccl", "none"), "mscclpp-json": ("mscclpp", "none")}
FACTS = (
    "collective", "n", "chunks", "in_place", "correct", "wrong", "steps", "transfers", "ports", "sent_max", "received_max",
    "reduced_max", "message_max", "bound", "bound_in_messages", "needs_commutative", "needs_idempotent", "depth",
)  # fmt: skip
ROOTED = ("broadcast", "reduce", "scatter", "gather")
NAMES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", *ROOTED)
UNSAID = ("no word for", "different sizes", "no room for what", "beyond the limits of")
"""Why a right schedule is not written."""
LENGTH = "takes data of another length"
"""The one failure that no file has: in files all chunks are of one length."""


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schedule, bool]:
    """A right or broken schedule and a mode it is for."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    n, name = draw(st.integers(1, 4)), draw(st.sampled_from(NAMES))
    root = {"root": draw(st.integers(0, n - 1))} if name in ROOTED else {}
    c = collective(name, n, chunks=draw(st.integers(1, 3)), **root)
    in_place = draw(st.booleans()) and len(c.alias) > 0
    s = random_correct(rng, c, in_place=in_place)
    return (mutated(rng, s) if draw(st.booleans()) else s), in_place


@given(cases(), st.sampled_from(FORMATS), st.integers(1, 2))
@settings(max_examples=100, deadline=None)
def test_verdict_survives(case: tuple[Schedule, bool], form: tuple[str, str], channels: int) -> None:
    """Right or wrong: the file, and the schedule that it is taken for, are judged as the one that was written."""
    (s, in_place), (to, protocol) = case, form
    channels = 1 if protocol == "LL" else channels
    assume(not form_failures(s))
    try:
        text = export(s, to, target="none", in_place=in_place, protocol=protocol, channels=channels)[""]
    except ScheduleError:
        assert not verify(s, in_place=in_place, program=False).correct
        return
    except UsageError as error:
        assert "no room for what" in str(error)  # a root that the messages do not tell
        return
    f = read(text, "again")
    r = verify(s, in_place=in_place, reduction_order=True, most=MANY)
    v = verdict(f, most=MANY)
    assert f.modes == (in_place,)
    if not r.correct and all(LENGTH in x.found for x in r.failures):
        same(r, v.report, tuple(k for k in FACTS if k != "correct"))
        assert v.correct and "or is added to it: it runs only for counts divisible" in v.notes[-1]
        with pytest.raises(UsageError, match="no schedule: it adds data of another length"):
            schedule(f)
        return
    same(r, v.report)
    assert outputs_blamed(v.report) == outputs_blamed(r)
    again = schedule(f)
    found = verify(again, in_place=in_place, reduction_order=True, most=MANY)
    same(r, found, (*FACTS, "order_text"))
    assert outputs_blamed(found) == outputs_blamed(r)
    assert (LENGTH in str(found.failures)) == (LENGTH in str(r.failures))
    if r.correct:
        p = program(f)
        assert is_right(p, run_program(p, iterations=2, choose=random.Random(0)))


MANY = 1000


def same(a: Report, b: Report, facts: tuple[str, ...] = FACTS) -> None:
    for fact in facts:
        assert getattr(a, fact) == getattr(b, fact), fact


def outputs_blamed(r: Report) -> list[tuple[int | None, str | None, str, str]]:
    """The wrong outputs, with what they hold and what they should; where it went wrong is named in each one's own words."""
    wrong = [x for x in r.failures if x.level == "data" and LENGTH not in x.found]
    return sorted((x.rank, x.chunk, x.found.split(", at ")[0], x.wanted) for x in wrong)


@pytest.mark.parametrize("name", sorted(catalog.algorithms()))
def test_catalogue(name: str) -> None:
    """Every algorithm that the formats have words for, in both modes; n = 8 takes them all."""
    algorithm = catalog.algorithms()[name]
    try:
        s = catalog.build(algorithm, 8)
    except UsageError:
        s = catalog.build(algorithm, 4)
    for in_place in (False, True) if len(s.collective.alias) else (False,):
        r = verify(s, in_place=in_place, reduction_order=True)
        for to, protocol in FORMATS:
            for channels in (1, 2) if protocol == "Simple" else (1,):
                survives(s, r, to, protocol, "none", channels)


@given(st.sampled_from(sorted(catalog.algorithms())), st.integers(1, 7), st.booleans(), st.integers(1, 3), st.data())
@settings(max_examples=100, deadline=None)
def test_catalogue_for_every_target(name: str, n: int, in_place: bool, channels: int, data: st.DataObject) -> None:
    try:
        s = catalog.build(catalog.algorithms()[name], n)
    except UsageError:
        assume(False)
    assume(len(s.collective.alias) or not in_place)
    to, protocol = data.draw(st.sampled_from((*FORMATS, ("msccl-xml", "LL"), ("msccl-xml", "LL128"))))
    target = data.draw(st.sampled_from(TARGETS[to]))
    channels = 1 if (to, protocol) == ("mscclpp-json", "LL") else channels
    survives(s, verify(s, in_place=in_place, reduction_order=True), to, protocol, target, channels)


def survives(s: Schedule, r: Report, to: str, protocol: str, target: str, channels: int) -> None:
    """A right schedule is refused by name, or judged the same as a file and as what the file is taken for."""
    try:
        text = export(s, to, target=target, in_place=r.in_place, protocol=protocol, channels=channels)[""]
    except UsageError as error:
        assert any(why in str(error) for why in UNSAID), error
        return
    f = read(text, s.name)
    assert f.modes == (r.in_place,)
    same(r, verdict(f).report)
    same(r, verify(schedule(f), in_place=r.in_place, reduction_order=True), (*FACTS, "order_text"))


IN_PLACE = {
    # collective: by which names the chunks of each rank go in place, the vector's own
    "all_reduce": ("i", "i", "i"),
    "all_to_all": ("i", "i", "i"),
    "reduce_scatter": ("i", "i", "i"),
    "all_gather": ("o", "o", "o"),
    "broadcast": ("i", "o", "o"),
    "reduce": ("i", "i", "i"),
    "gather": ("o", "i", "i"),
    "scatter": ("i", "o", "o"),
}


@pytest.mark.parametrize("name", sorted(catalog.algorithms()))
def test_names_in_place(name: str) -> None:
    """As public files have it: what is both an input and an output goes by the larger buffer, the input if they are equal."""
    try:
        s = catalog.build(catalog.algorithms()[name], 3)
        text = export(s, "msccl-xml", target="none", in_place=True)[""].decode()
    except (UsageError, ScheduleError):
        assert name not in ("ring", "ring_all_gather", "ring_reduce_scatter", "tree_broadcast", "tree_reduce")
        return
    ranks = text.split("<gpu")[1:]
    found = [set(re.findall(r'type="[^n]\w*" srcbuf="([ios])" \S+ dstbuf="([ios])"', gpu)) for gpu in ranks]
    found = [{letter for pair in pairs for letter in pair} - {"s"} for pairs in found]
    assert all(names <= {name} for names, name in zip(found, IN_PLACE[s.collective.name], strict=True)), found


def test_ring_reads_as_the_textbook() -> None:
    text = export(catalog.load("ring")(3), "msccl-xml", in_place=True)[""].decode()
    assert [line.split('type="')[1].split('"')[0] for line in text.splitlines() if "<step" in line][:5] == [
        "s", "rrcs", "rrcs", "rcs", "r",
    ]  # fmt: skip
