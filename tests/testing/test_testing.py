"""The public helpers for tests: what they make, what they catch and what they say."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.collective import all_gather, all_reduce, collective
from algocc.errors import ScheduleError
from algocc.lowering import lower
from algocc.program import check
from algocc.reference import is_correct, is_right, run_program
from algocc.render import diagram, step_table
from algocc.runtime import Threads
from algocc.steps import Steps
from algocc.table import form_failures
from algocc.testing import (
    Case,
    arbitrary_schedules,
    assert_correct,
    assert_equivalent,
    assert_has_diagram,
    check_case,
    check_fabric,
    collectives,
    mutated,
    mutated_program,
    random_arbitrary,
    random_correct,
    schedules,
)


def ring(n: int) -> Steps:
    s = Steps(all_gather(n), name="ring")
    s.rule(lambda rank, step, n: ((rank + 1) % n, (rank - step) % n), steps=n - 1)
    return s


@given(schedules(), schedules(in_place=True))
@settings(max_examples=50, deadline=None)
def test_schedules_are_correct(s, in_place):
    assert_correct(s)
    assert_correct(in_place)
    assert_correct(in_place, in_place=True)


@given(arbitrary_schedules())
@settings(max_examples=50, deadline=None)
def test_arbitrary_schedules_are_of_good_form(s):
    assert not form_failures(s)


def test_the_same_seed_gives_the_same():
    c = collective("all_reduce", 4, chunks=2)
    for make in (random_correct, random_arbitrary):
        assert make(random.Random(5), c) == make(random.Random(5), c)
    s = random_correct(random.Random(5), c)
    assert mutated(random.Random(1), s) == mutated(random.Random(1), s)


def test_mutations_break_most_schedules_and_never_fail():
    rng = random.Random(0)
    s = random_correct(rng, collective("all_reduce", 3, chunks=2), two_sided=True)
    verdicts = Counter(is_correct(mutated(rng, s)) for _ in range(300))
    assert verdicts[False] > verdicts[True] > 0
    empty = Steps(all_reduce(1), load=False).build()
    assert mutated(rng, empty) is empty


def test_program_mutations_break_most_programs():
    rng = random.Random(0)
    p = lower(random_correct(rng, collective("all_reduce", 3, chunks=2)), lanes=2)
    verdicts: Counter[str] = Counter()
    for _ in range(150):
        broken = mutated_program(rng, p)
        try:
            check(broken)
            verdicts[
                "right" if is_right(broken, run_program(broken, iterations=2, choose=rng)) else "wrong"
            ] += 1
        except ScheduleError:
            verdicts["refused or stuck"] += 1
    assert set(verdicts) == {"right", "wrong", "refused or stuck"}
    assert verdicts["right"] < 100


@given(collectives(3))
@settings(max_examples=30, deadline=None)
def test_any_two_correct_schedules_are_equivalent(c):
    assert_equivalent(random_correct(random.Random(1), c), random_correct(random.Random(2), c))


def test_what_assertions_say():
    s = Steps(all_reduce(2, chunks=2), name="half")
    with s.step():
        s.reduce(src=0, dst=1, chunk=0, count=2)
    with pytest.raises(AssertionError) as error:
        assert_correct(s.build())
    assert str(error.value) == (
        "half: rank 0: out[0] holds {0.0}, wanted {0.0, 1.0}\nhalf: rank 0: out[1] holds {0.1}, wanted {0.1, 1.1}"
    )
    with pytest.raises(
        AssertionError, match="half does all_reduce n=2 chunks=2, ring does all_gather n=2 chunks=1"
    ):
        assert_equivalent(s.build(), ring(2).build())
    other = replace(s.build(), name="other", action=np.zeros(len(s.build())))
    with pytest.raises(
        AssertionError, match=r"rank 1: out\[0\] holds {0.0, 1.0} after half, {0.0} after other"
    ):
        assert_equivalent(s.build(), other)
    cut = Steps(all_reduce(2), name="cut").build()
    with pytest.raises(AssertionError, match="half cuts a block into 2 chunks, cut into 1"):
        assert_equivalent(s.build(), cut)
    missing = Steps(all_gather(2), load=False, name="nothing")
    with pytest.raises(AssertionError, match=r"nothing: rank 0: out\[0\] holds nothing, wanted {0.0}"):
        assert_correct(missing.build())
    with missing.step():
        missing.copy(src=0, dst=1, chunk=0)
    with pytest.raises(AssertionError, match=r"nothing: step 0, rank 0: out\[0\] is read"):
        assert_correct(missing.build())


def test_a_diagram_is_ranks_by_steps():
    assert_has_diagram(
        ring(3).build(),
        """
        rank  step 0        step 1             step 2
        0     out[0]=in[0]  out[0]>1 out[2]<2  out[2]>1 out[1]<2
        1     out[1]=in[0]  out[0]<0 out[1]>2  out[2]<0 out[0]>2
        2     out[2]=in[0]  out[1]<1 out[2]>0  out[0]<1 out[1]>0
        """,
    )
    with pytest.raises(AssertionError) as error:
        assert_has_diagram(ring(2).build(), "rank  step 0\n0     out[0]=in[0]\n1     out[1]=in[0]")
    assert "ring has another diagram:" in str(error.value) and "-rank  step 0" in str(error.value)


def test_a_crowded_diagram_and_both_sides_of_a_message():
    s = Steps(all_reduce(7))
    with s.step():
        s.prereduce(src=np.arange(1, 7), dst=0, chunk=0)
    with s.step():
        s.send(rank=0, to=1, chunk=0)
        s.recv(rank=1, source=0, chunk=0, action="reduce")
        s.recv(rank=2, source=0, chunk=0, action="prereduce")
        s.reduce(src=3, dst=3, chunk=0, buffer="in")
        s.prereduce(src=4, dst=4, chunk=0, buffer="in")
    lines = diagram(s.build()).splitlines()
    assert "out[0]+<1 out[0]+<2 out[0]+<3 out[0]+<4 … 2 more  out[0]>1" in lines[1]
    assert [line.split()[-1] for line in lines[2:7]] == [
        "+out[0]<0", "out[0]+<0", "out[0]+=in[0]", "out[0]=in[0]+", ".",
    ]  # fmt: skip


def test_a_step_table_lists_every_transfer():
    s = Steps(all_reduce(3, chunks=2), name="s")
    with s.step():
        s.reduce(src=0, dst=1, chunk=0, count=2)
        s.prereduce(src=0, dst=2, chunk=1)
        s.send(rank=1, to=0, chunk=1)
        s.recv(rank=0, source=1, chunk=1, action="reduce")
    line = s.build().source(5)
    assert step_table(s.build()).splitlines()[5:] == [
        "step 1",
        f"  r1.out[0:2] += r0.out[0:2]  ({line.rsplit(':', 1)[0]}:{int(line.rsplit(':', 1)[1]) - 2})",
        f"  r2.out[1] = r0.out[1] +  ({line.rsplit(':', 1)[0]}:{int(line.rsplit(':', 1)[1]) - 1})",
        f"  r1.out[1] is sent to r0  ({line})",
        f"  r0.out[1] += what r1 sends  ({line.rsplit(':', 1)[0]}:{int(line.rsplit(':', 1)[1]) + 1})",
    ]
    assert "  … 3 more" in step_table(s.build(), most=1)


# ----------------------------------------------------------------------------------------------- fabrics


def test_threads_are_a_fabric():
    passed = check_fabric(
        Threads,
        sizes=(1, 3),
        counts=(0, 1, 17),
        dtypes=("int8", "float16", "bool"),
        ops=("sum", "max", "avg"),
        large=70_001,
    )
    assert passed > 150


def spoiled(how):
    """A fabric that does everything right but for one thing."""

    def make(program, **about):
        run = Threads(program, **about)

        def call(inputs, outputs):
            run(inputs, outputs)
            how(inputs, outputs)

        return call

    return make


def off_by_one(inputs, outputs):
    outputs[1][3] += 1


def writes_an_input(inputs, outputs):
    inputs[0][0] += 1


def writes_outside(inputs, outputs):
    outputs[1].base[:1] = 0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (off_by_one, "call 1: rank 1: 1 of 5 elements are wrong, the first at 3: found "),
        (writes_an_input, "an input was written to: rank 0: 1 of 5 elements are wrong, the first at 0"),
        (writes_outside, "rank 1: written outside of its output"),
    ],
)
def test_a_fabric_that_slips_is_caught(how, message):
    p = lower(random_correct(random.Random(0), collective("all_reduce", 2)))
    with pytest.raises(AssertionError, match=message):
        check_case(spoiled(how), Case(p, 5, "int32"))
    check_case(spoiled(lambda inputs, outputs: None), Case(p, 5, "int32"))


def test_a_fabric_that_forgets_to_start_over_is_caught():
    p = lower(random_correct(random.Random(0), collective("all_gather", 2)))

    class Once(Threads):
        def __call__(self, inputs, outputs):
            if not getattr(self, "ran", False):
                self.ran = True
                super().__call__(inputs, outputs)

    check_case(Once, Case(p, 5, "int32", calls=1))
    with pytest.raises(AssertionError, match="call 2: rank 0"):
        check_case(Once, Case(p, 5, "int32", calls=2))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_any_correct_schedule_runs_on_threads(seed):
    rng = random.Random(seed)
    c = collective(
        rng.choice(["all_reduce", "reduce_scatter", "scan", "gather"]),
        rng.randint(1, 3),
        chunks=rng.randint(1, 3),
    )
    in_place = rng.random() < 0.5
    p = lower(random_correct(rng, c, in_place=in_place), in_place=in_place, lanes=rng.randint(1, 2))
    check_case(Threads, Case(p, rng.randint(0, 9), "int32", calls=2))
