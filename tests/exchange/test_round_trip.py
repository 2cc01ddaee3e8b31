"""A schedule, written and read again, is judged the same to the last fraction."""

from __future__ import annotations

import random

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
FACTS = (
    "collective", "n", "chunks", "in_place", "correct", "wrong", "steps", "transfers", "ports", "sent_max", "received_max",
    "reduced_max", "bound", "needs_commutative", "needs_idempotent", "depth",
)  # fmt: skip
ROUNDS = ("steps", "ports", "bound")
"""What depends on which round a message is in."""
ROOTED = ("broadcast", "reduce", "scatter", "gather")
NAMES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", *ROOTED)


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
@settings(max_examples=60, deadline=None)
def test_verdict_survives(case: tuple[Schedule, bool], form: tuple[str, str], channels: int) -> None:
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
    r = verify(s, in_place=in_place)
    # What is staged before it is overwritten may fall into another round of a Simple plan.
    facts = tuple(fact for fact in FACTS if (to, protocol) != ("mscclpp-json", "Simple") or fact not in ROUNDS)
    same(r, verdict(f).report, facts)
    if r.correct:
        same(r, verify(schedule(f), in_place=in_place), facts)
        p = program(f)
        assert is_right(p, run_program(p, iterations=2, choose=random.Random(0)))


def same(a: Report, b: Report, facts: tuple[str, ...] = FACTS) -> None:
    for fact in facts:
        assert getattr(a, fact) == getattr(b, fact), fact


@pytest.mark.parametrize("name", sorted(catalog.algorithms()))
def test_catalogue(name: str) -> None:
    """Every algorithm that the formats have words for; n = 8 takes them all."""
    algorithm = catalog.algorithms()[name]
    try:
        s = catalog.build(algorithm, 8)
    except UsageError:
        s = catalog.build(algorithm, 4)
    r = verify(s)
    for to, protocol in FORMATS:
        try:
            text = export(s, to, target="none", protocol=protocol)[""]
        except UsageError as error:
            assert any(why in str(error) for why in ("no word for", "different sizes", "no room for what"))
            continue
        same(r, verdict(read(text, name)).report)


def test_ring_reads_as_the_textbook() -> None:
    text = export(catalog.load("ring")(3), "msccl-xml", in_place=True)[""].decode()
    assert [line.split('type="')[1].split('"')[0] for line in text.splitlines() if "<step" in line][:5] == [
        "s", "rrcs", "rrcs", "rcs", "r",
    ]  # fmt: skip
