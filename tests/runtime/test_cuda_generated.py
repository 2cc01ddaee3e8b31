"""Generated kernels on CPU threads: the bits of the interpreter, and what is demanded of random schedules, whatever the cut."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algocc import testing
from algocc.errors import RunError, UsageError
from algocc.kernels.layout import BLOCK_WORDS, FIRST, LINE
from algocc.lowering import lower
from algocc.runtime import Threads, count_wrong, expected, make_inputs
from algocc.runtime.cuda import Emulated, ThreadDriver
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring


def check_run(program, count, dtype="int32", op="sum", *, skip=0, **options):
    """Two calls of the generated kernel give what the collective demands."""
    data = make_inputs(program.collective, count, dtype, op, seed=count)
    options = {"threads": 3, "timeout": 20, **options}
    with Emulated(
        program, count=count, dtype=dtype, op=op, driver=ThreadDriver(rests=20), form="generated", **options
    ) as run:
        inputs, outputs = run.buffers(skip=skip)
        for _ in range(2):
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs)
            run(inputs, outputs)
            assert count_wrong([out.get() for out in outputs], expected(program.collective, data, op)) == 0


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_correct_schedule(data):
    """Few, since each takes a compilation."""
    in_place = data.draw(st.booleans())
    schedule = data.draw(testing.schedules(3, in_place=in_place))
    program = lower(schedule, in_place=in_place)
    chunks = schedule.collective.chunks
    count = 1 if schedule.collective.name == "barrier" else data.draw(st.sampled_from([1, 5, 203])) * chunks
    op, dtype = ("land", "bool") if schedule.collective.idempotent else ("sum", "int32")
    try:
        check_run(
            program, count, dtype, op, skip=data.draw(st.integers(0, 3)), channels=data.draw(st.sampled_from([1, 3])),
            tile_bytes=data.draw(st.sampled_from([64, 1 << 20])),
        )  # fmt: skip
    except UsageError as error:
        assert "in place" in str(error) or "at most" in str(error)


@pytest.mark.parametrize(
    ("schedule", "in_place", "op", "dtype"),
    [(two_shot(3), True, "sum", "bfloat16"), (one_shot(2), False, "prod", "complex128")],
)
def test_types_and_alignments(schedule, in_place, op, dtype):
    program = lower(schedule, in_place=in_place)
    for count, skip, channels in ((500, 0, 2), (501, 3, None)):
        check_run(program, count, dtype, op, skip=skip, channels=channels, tile_bytes=64)


def test_the_bits_are_those_of_the_cpu():
    """Of the interpreter on threads, numbers whose sums are rounded."""
    rng = np.random.default_rng(3)
    program = lower(ring(3))
    data = [(rng.standard_normal(501) * 1e3).astype(np.float32) for _ in range(3)]
    wanted = [np.zeros(501, np.float32) for _ in range(3)]
    with Threads(program, count=501) as threads:
        threads(data, wanted)
    with Emulated(
        program, count=501, driver=ThreadDriver(), threads=4, tile_bytes=64, form="generated"
    ) as run:
        inputs, outputs = run.buffers()
        for mine, theirs in zip(inputs, data, strict=True):
            mine.set(theirs)
        run(inputs, outputs)
        assert [out.get().tobytes() for out in outputs] == [w.tobytes() for w in wanted]


def test_a_thousand_calls_back_to_back():
    program = lower(ring(3), in_place=True)
    with Emulated(
        program, count=48, dtype="int32", driver=ThreadDriver(rests=50), threads=2, tile_bytes=64, form="generated"
    ) as run:
        inputs, outputs = run.buffers()
        for k in range(1000):
            for rank, array in enumerate(inputs):
                array.set(np.full(48, k + rank, np.int32))
            run(inputs, outputs)
            assert all((out.get() == 3 * k + 3).all() for out in outputs), k


def test_a_lane_that_is_stuck_is_named():
    """Counters that say that nothing came for five iterations: the report is the interpreter's."""
    program = lower(ring(3), in_place=True)
    with Emulated(
        program, count=48, dtype="int32", driver=ThreadDriver(), threads=2, tile_bytes=64, timeout=0.3, form="generated"
    ) as run:
        inputs, outputs = run.buffers()
        run._resume_at(5)
        arena = run._sites[0].arena
        run._driver.clear(0, arena.address("counters"), LINE * len(program.counter_total), 0)
        blocks = np.zeros((program.lanes, BLOCK_WORDS), np.int64)
        run._driver.download(0, arena.address("blocks"), blocks, 0)
        blocks[0, FIRST] = 0
        run._driver.upload(0, arena.address("blocks"), blocks, 0)
        with pytest.raises(RunError, match=r"rank 1 \(lane 1\) in step 2 .*move 1, iteration 0: waits for rank 0"):
            run(inputs, outputs)


def test_an_unknown_form_is_refused():
    with pytest.raises(UsageError, match="form='compiled': wanted 'interpreted' or 'generated'"):
        Emulated(lower(ring(3)), count=8, driver=ThreadDriver(), form="compiled")
