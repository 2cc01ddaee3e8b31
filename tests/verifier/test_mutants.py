"""A sample of bench/mutants.py: verified schedules and Programs, broken at random, and the truth found out apart."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algocc import reference
from algocc.collective import all_to_all_v
from algocc.errors import UsageError
from algocc.lowering import lower
from algocc.program import Program, check, listing
from algocc.steps import Steps
from algocc.table import Schedule
from algocc.verifier import verify, verify_program

HERE = Path(__file__).parents[2] / "bench" / "mutants.py"
SAMPLE = range(7_000_000_000, 7_000_001_400)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", HERE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


def test_no_wrong_mutant_is_accepted_and_no_right_one_rejected(bench: ModuleType) -> None:
    counted, against = bench.batch(SAMPLE)
    assert not against, "\n".join(against[:3])
    truth: Counter[str] = Counter()
    for (*_, verdict), k in counted.items():
        truth[verdict] += k
    assert truth["wrong"] > 800 and truth["right"] > 200, "a sample of both"
    assert {family for _, family, _, _ in counted} == {s.family for s in bench.subjects()}
    kinds = {kind for _, _, kind, _ in counted}
    assert {*bench.SCHEDULE_KINDS, *bench.PROGRAM_KINDS} <= kinds


def test_the_same_seed_gives_the_same_mutant(bench: ModuleType) -> None:
    for seed in SAMPLE[:40]:
        assert str(bench.mutant(seed)) == str(bench.mutant(seed))


def test_a_verifier_that_accepts_or_refuses_everything_is_found_out(bench: ModuleType) -> None:
    def says(correct: bool) -> Any:
        verdict = SimpleNamespace(
            correct=correct, well_formed=True, race_free=True, deadlock_free=True, failures=["it says"], program=None
        )
        return lambda *_, **__: verdict

    for correct in (True, False):
        found = Counter()
        for seed in SAMPLE[:200]:
            m = bench.mutant(seed)
            if isinstance(m.thing, Program) and not verify_program(m.thing).well_formed:
                continue
            _, why = bench.judged(m, verify=says(correct), verify_program=says(correct))
            found[why.split(" program is ")[0].split(" schedule is ")[0]] += 1
        assert any("wrong" in text for text in found) == correct
        assert any("right" in text for text in found) != correct


def test_the_truth_agrees_with_the_reference(bench: ModuleType) -> None:
    """The oracle is checked in turn: by the interpreter of schedules, and by all interleavings of tiny Programs."""
    looked: Counter[str] = Counter()
    for seed in SAMPLE:
        m = bench.mutant(seed)
        rng = random.Random(seed)
        if isinstance(m.thing, Schedule):
            if looked["schedule"] < 150:
                looked["schedule"] += 1
                right, as_sets, _ = bench.schedule_truth(m.thing, rng, in_place=m.in_place)
                assert right == reference.is_correct(m.thing, in_place=m.in_place)
                assert as_sets == reference.is_correct(m.thing, in_place=m.in_place, idempotent=True)
        elif m.thing.moves <= 6 and verify_program(m.thing).well_formed and (
            m.kind not in ("like", "flag") and "slips" not in m.kind
        ):
            truth, raced, _ = bench.program_truth(m.thing, rng)
            try:
                results = reference.all_interleavings(m.thing, 3000, iterations=2)
            except UsageError:
                continue
            except reference.ScheduleError:
                assert truth != "right"
                looked["stuck or unwritten"] += 1
                continue
            every = all(reference.is_right(m.thing, outputs) for outputs in results)
            looked["right" if every else "wrong"] += 1
            assert every or truth != "right"
            assert not every or truth != "wrong"
            assert len(results) == 1 or raced, "no race, one result"
    assert min(looked[k] for k in ("right", "wrong", "stuck or unwritten")) > 5, looked


# Found by mutants: what the verifier or lowering once got wrong.


def two_chunks() -> Program:
    """Rank 1 gets two parts of rank 0's block, one longer than the other for odd counts."""
    from algocc.collective import broadcast

    s = Steps(broadcast(2, chunks=2))
    for part in (0, 1):
        with s.step():
            s.copy(src=0, dst=1, chunk=part)
    p = lower(s.build(), lanes=2)
    assert verify_program(p).correct
    return p


def test_a_move_of_the_length_of_another_part_is_refused() -> None:
    p = two_chunks()
    at = int(np.argmax((p.count == 1) & (p.like == 1)))
    q = replace(p, like=np.where(np.arange(p.moves) == at, 0, p.like))
    check(q)
    report = verify_program(q)
    assert not report.correct and report.race_free
    assert "has another length than what" in str(report.failures[0])
    beyond = replace(p, like=p.like + 9)
    assert "as long as an input chunk outside 0..1" in str(verify_program(beyond).failures[0])


@pytest.mark.parametrize("flag", ["final", "src_first"])
def test_an_average_divides_once(flag: str, bench: ModuleType) -> None:
    from algocc.schedules.ring import ring

    p = lower(ring(3))
    for i in range(len(getattr(p, flag))):
        column = getattr(p, flag).copy()
        column[i] = not column[i]
        q = replace(p, **{flag: column})
        move = i if flag == "final" else int(np.searchsorted(p.src_start, i, side="right")) - 1
        sources = int(p.src_start[move + 1] - p.src_start[move])
        report = verify_program(q)
        assert report.correct == (sources == 1), listing(q)
        if sources > 1:
            assert "is not divided exactly once by an average" in str(report.failures[0])


@pytest.mark.parametrize("in_place", [False, True])
def test_of_an_empty_output_nothing_is_asked(in_place: bool) -> None:
    """It may stay unwritten, and may hold what is longer: lowering leaves that out."""
    c = all_to_all_v(2, counts=[[0, 1], [1, 0]])
    r = np.arange(2)
    for extra in (False, True):
        s = Steps(c, load=False)
        with s.step():
            s.copy(src=r, dst=1 - r, chunk=1 - r, to=r, buffer="in", to_buffer="scratch")
        with s.step():
            s.copy(src=1 - r, dst=1 - r, chunk=r, buffer="scratch", to_buffer="out")
            if extra:
                s.copy(src=r, dst=r, chunk=1 - r, to=r, buffer="in", to_buffer="out")
        made = s.build()
        assert reference.is_correct(made, in_place=in_place)
        report = verify(made, in_place=in_place)
        assert report.correct, report.failures
        assert report.program is not None and report.program.moves == (2 if not in_place else report.program.moves)
    missing = Steps(c, load=False)
    with missing.step():
        missing.copy(src=0, dst=1, chunk=1, to=0, buffer="in", to_buffer="out")
    assert "rank 0: out[1] was never written" in str(verify(missing.build()).failures[0])
