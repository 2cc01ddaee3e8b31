"""Programs on CPU threads: the outputs are NumPy's, for every schedule, count, tile and mode."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algocc import testing
from algocc.catalog import algorithms
from algocc.collective import all_reduce
from algocc.errors import AlgoccError, UsageError
from algocc.kernels.operators import ELEMENTS, OPERATORS, refusal
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import Threads, buffer_elements, count_wrong, expected, in_place_buffers, make_inputs, run
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring

ALGORITHMS = algorithms()
CANARY = 0x5A
LINE = 64


def fenced(elements, kind, skip):
    """An array of zeros, `skip` elements off an aligned address, and the memory around it filled with canaries."""
    kind = np.dtype(kind)
    memory = np.full(elements * kind.itemsize + 3 * LINE + skip * kind.itemsize, CANARY, np.uint8)
    begin = -memory.ctypes.data % LINE + LINE + skip * kind.itemsize
    array = memory[begin : begin + elements * kind.itemsize].view(kind)
    array[:] = 0
    return memory, array


def check_run(program, count, dtype="float32", op="sum", *, skip=0, calls=2, **options):
    """Run twice on fenced arrays; outputs are right, canaries and inputs (out of place) as they were."""
    c = program.collective
    data = make_inputs(c, count, dtype, op, seed=count)
    wanted = expected(c, data, op)
    fences = []
    if program.in_place:
        inputs, outputs = in_place_buffers(c, count, dtype)
    else:
        inputs, outputs = [], []
        for arrays, sizes in zip((inputs, outputs), buffer_elements(c, count), strict=True):
            for size in sizes:
                memory, array = fenced(size, ELEMENTS[dtype].numpy, skip)
                fences.append((memory, array))
                arrays.append(array)
    with Threads(program, count=count, dtype=dtype, op=op, timeout=20, **options) as threads:
        for _ in range(calls):
            for mine, theirs in zip(inputs, data, strict=True):
                mine[:] = theirs
            threads(inputs, outputs)
            assert count_wrong(outputs, wanted) == 0
            if not program.in_place:
                assert count_wrong(inputs, data) == 0
            for array in outputs if not program.in_place else []:
                array[:] = 0
    for memory, array in fences:
        array.view(np.uint8)[:] = CANARY
        assert (memory == CANARY).all()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_correct_schedule_gives_what_its_collective_demands(data):
    in_place = data.draw(st.booleans())
    schedule = data.draw(testing.schedules(4, in_place=in_place))
    program = lower(schedule, in_place=in_place, lanes=data.draw(st.integers(1, 2)))
    chunks = schedule.collective.chunks
    count = 1 if schedule.collective.name == "barrier" else data.draw(st.sampled_from([0, 1, 5, 40])) * chunks
    dtype, op = ("bool", "land") if schedule.collective.idempotent else ("int32", "sum")
    try:
        check_run(program, count, dtype, op, tile_bytes=data.draw(st.sampled_from([1, 64, 1 << 20])))
    except UsageError as error:
        assert "in place" in str(error)  # a custom collective whose buffers can't be laid out


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_schedule_of_the_catalogue(name):
    for n in (1, 2, 3, 4, 7, 8):
        try:
            schedule = ALGORITHMS[name](n)
        except UsageError:
            continue
        for in_place in (False, True):
            try:
                program = lower(schedule, in_place=in_place)
            except AlgoccError:
                continue
            count = 1 if schedule.collective.name == "barrier" else 3 * schedule.collective.chunks
            op = "land" if schedule.collective.idempotent else "sum"
            dtype = "bool" if schedule.collective.idempotent else "int32"
            check_run(program, count, dtype, op, calls=1)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_any_count(n, in_place):
    """Fewer elements than ranks, none, odd ones, around a tile (16 float32) of each chunk."""
    program = lower(ring(n), in_place=in_place)
    for count in (0, 1, n - 1, n + 1, 7, 15 * n, 16 * n, 16 * n + 1, 33 * n - 1, 1003):
        check_run(program, count, skip=count % 16, tile_bytes=64)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(o.name, e.name) for o in OPERATORS.values() for e in ELEMENTS.values() if refusal(o, e) is None],
)
def test_every_operator_and_type(op, dtype):
    check_run(lower(ring(3)), 100, dtype, op, skip=1, calls=1, tile_bytes=64)


@pytest.mark.parametrize("tile_bytes", [1, 64, 100, 4096, 1 << 30])
def test_tiles(tile_bytes):
    for schedule in (one_shot(3), two_shot(4), ring(4)):
        check_run(lower(schedule, lanes=2), 5003, tile_bytes=tile_bytes, skip=3)


def test_many_more_lanes_than_processors():
    check_run(lower(ring(12), lanes=4), 4801, tile_bytes=64)


def test_long_runs_stay_right():
    """Thousands of calls on one object, each with new data, and no reset between them."""
    program = lower(ring(3), in_place=True)
    inputs, outputs = in_place_buffers(program.collective, 30, "int32")
    with Threads(program, count=30, dtype="int32", tile_bytes=64) as threads:
        for k in range(3000):
            for rank, array in enumerate(inputs):
                array[:] = k + rank
            threads(inputs, outputs)
            assert all((out == 3 * k + 3).all() for out in outputs)


@pytest.mark.parametrize("start", [2**31 - 2, 2**32 - 2, 2**62, 2**63 - 3, 2**64 - 2])
def test_counters_wrap(start):
    program = lower(ring(3))
    data = make_inputs(program.collective, 100, "int32")
    outputs = [np.zeros(100, np.int32) for _ in range(3)]
    wanted = expected(program.collective, data)
    with Threads(program, count=100, dtype="int32", tile_bytes=64, timeout=10) as threads:
        threads._resume_at(start)
        for _ in range(6):
            threads(data, outputs)
            assert count_wrong(outputs, wanted) == 0
            outputs[0][:] = 0


def test_counters_wrap_where_a_slot_is_used_again():
    """Scratch makes a tile wait for the one before: the difference to it wraps as well."""
    program = lower(ALGORITHMS["ring_reduce_scatter"](3))
    assert program.wait_lag.any()
    data = make_inputs(program.collective, 100, "int32")
    outputs = [np.zeros(100, np.int32) for _ in range(3)]
    with Threads(program, count=100, dtype="int32", tile_bytes=64, timeout=10) as threads:
        for start in range(2**63 - 8, 2**63 + 1):
            threads._resume_at(start)
            threads(data, outputs)
            assert count_wrong(outputs, expected(program.collective, data)) == 0


def test_barrier_is_a_token_of_one_bool():
    program = lower(ALGORITHMS["dissemination_barrier"](5))
    check_run(program, 1, "bool", "land")
    with pytest.raises(UsageError, match="a barrier exchanges tokens of 1 element"):
        Threads(program, count=2, dtype="bool", op="land")
    with pytest.raises(UsageError, match="may reduce a contribution twice, which operator sum does not bear"):
        Threads(program, count=1, dtype="int32", op="sum")
    outputs = run(program, [np.array([r != 3]) for r in range(5)], op="land")
    assert [out.tolist() for out in outputs] == [[False]] * 5


def test_average_as_reported():
    """Toward zero for integers; no overflow in 16 bits; exact thirds."""
    for dtype, values, wanted in (
        ("int32", (3, 4), 3),
        ("int32", (-3, -4), -3),
        ("float16", (60000, 60000), 60000),
        ("float16", (3, 3, 3), 3),
    ):
        n = len(values)
        out = run(lower(one_shot(n)), [np.array([v], dtype) for v in values], op="avg")
        assert [a.tolist() for a in out] == [[wanted]] * n
    top = np.array([float(np.finfo(np.float32).max)], np.float32).astype(ELEMENTS["bfloat16"].numpy)
    largest = (np.array([0x7F7F], np.uint16)).view(ELEMENTS["bfloat16"].numpy)
    assert np.isinf(top.astype(np.float32))
    out = run(lower(one_shot(10)), [largest] * 10, op="avg")
    assert [a.view(np.uint16).tolist() for a in out] == [[0x7F7F]] * 10


@pytest.mark.parametrize("name", ["ring", "one_shot", "recursive_doubling", "reduce_broadcast"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32", "bfloat16", "complex64"])
def test_average_of_any_schedule(name, dtype):
    for n in (2, 4, 8):
        program = lower(ALGORITHMS[name](n))
        data = make_inputs(program.collective, 50, dtype, "avg")
        assert count_wrong(run(program, data, op="avg"), expected(program.collective, data, "avg")) == 0


def test_average_needs_every_rank():
    program = lower(ALGORITHMS["log_step_scan"](3))
    with pytest.raises(UsageError, match="operator avg is not defined for scan: .* reduces 1 contributions"):
        Threads(program, count=3, op="avg")
    with pytest.raises(UsageError, match="operator avg is not defined for dtype bool: .*; defined are sum"):
        Threads(lower(ring(2)), count=3, dtype="bool", op="avg")
    Threads(lower(ring(1)), count=3, op="avg").close()


def test_nan_in_every_order_of_ranks():
    """One NaN among four: min and max give NaN, wherever it is."""
    from itertools import permutations

    program = lower(ring(4))
    orders = np.array(list(permutations([1.0, np.nan, 3.0, 4.0])), np.float32)
    for op in ("min", "max"):
        for out in run(program, [np.ascontiguousarray(column) for column in orders.T], op=op):
            assert np.isnan(out).all()


def by_hand(n, *, in_place):
    """A Program that no schedule lowers to: rank r reduces chunk r of all and writes it to all, in one Move.

    Nobody else touches that chunk, so there is nothing to wait for, in place and out of place.
    """
    rank, peer = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    none, zeros, starts = np.zeros(0, np.int64), np.zeros(n * n, np.int64), np.arange(n + 1)
    return Program(
        name="by hand", collective=all_reduce(n, chunks=n), in_place=in_place, scratch=0,
        lane_rank=np.arange(n), lane_start=starts, step=np.zeros(n, np.int64), origin=np.zeros(n, np.int64),
        origins=(), count=np.ones(n, np.int64), like=np.arange(n) * (n + 1), final=np.ones(n, bool),
        src_start=starts * n, src_rank=peer, src_buffer=zeros, src_chunk=rank, src_first=zeros + 1,
        dst_start=starts * n, dst_rank=peer, dst_buffer=zeros + 1, dst_chunk=rank,
        wait_start=starts * 0, wait_counter=none, wait_value=none, wait_lag=none,
        signal_start=starts * 0, signal_counter=none,
        counter_writer=none, counter_waiter=none, counter_total=none,
    )  # fmt: skip


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_move_of_many_sources_and_many_destinations(n, in_place):
    for dtype, op in (("float32", "sum"), ("bfloat16", "max"), ("int16", "avg"), ("float16", "avg")):
        check_run(by_hand(n, in_place=in_place), 10_007, dtype, op, tile_bytes=4096)


def test_256_true_are_true():
    out = run(lower(one_shot(256)), [np.array([True])] * 256)
    assert all(a.view(np.uint8).tolist() == [1] for a in out)


def test_runs_are_the_same_bit_for_bit():
    program = lower(ring(4))
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(10_003).astype(ELEMENTS["bfloat16"].numpy) for _ in range(4)]
    first = [a.tobytes() for a in run(program, inputs)]
    assert len(set(first)) == 1
    for _ in range(20):
        assert [a.tobytes() for a in run(program, inputs)] == first


def test_in_place_run_leaves_the_callers_arrays_alone():
    program = lower(ring(4), in_place=True)
    inputs = [np.array([float(r), 1 / r if r else 0.0]) for r in range(4)]
    out = run(program, inputs)
    assert all(a.tolist() == [6.0, 1.8333333333333333] for a in out)
    assert inputs[2].tolist() == [2.0, 0.5]


def test_threads_of_many_objects_all_end():
    program = lower(ring(3))
    before = threading.active_count()
    for _ in range(200):
        Threads(program, count=3).close()
    assert threading.active_count() == before
    for _ in range(20):
        Threads(program, count=3)
    gc.collect()
    assert threading.active_count() == before


def test_a_call_makes_no_thread():
    program = lower(ring(3))
    data = make_inputs(program.collective, 10)
    outputs = [np.zeros(10, np.float32) for _ in range(3)]
    with Threads(program, count=10) as threads:
        during = threading.active_count()
        assert during >= 3
        for _ in range(20):
            threads(data, outputs)
            assert threading.active_count() == during


def test_callers_take_turns():
    program = lower(ring(2))
    with Threads(program, count=1000, dtype="int64") as threads:
        wrong = []

        def work(seed):
            data = make_inputs(program.collective, 1000, "int64", seed=seed)
            outputs = [np.zeros(1000, np.int64) for _ in range(2)]
            for _ in range(200):
                threads(data, outputs)
                wrong.append(count_wrong(outputs, expected(program.collective, data)))

        callers = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert sum(wrong) == 0
    assert len(wrong) == 600


def test_a_closed_object_refuses():
    program = lower(ring(2))
    threads = Threads(program, count=2)
    threads.close()
    threads.close()
    assert repr(threads) == "<Threads ring: 2 float32, sum, closed>"
    with pytest.raises(UsageError, match="it is closed"):
        threads([np.zeros(2, np.float32)] * 2, [np.zeros(2, np.float32) for _ in range(2)])


def test_bad_parameters_are_refused_before_anything_runs():
    program = lower(ring(2))
    for options, message in (
        ({"count": -1}, "count=-1: wanted 0 elements or more"),
        ({"count": 1.5}, "count=1.5: wanted a whole number"),
        ({"count": True}, "count=True: wanted a whole number"),
        ({"count": 2**61}, "more than can be counted"),
        ({"count": 2, "timeout": 0}, "timeout=0: wanted a number of seconds above 0"),
        ({"count": 2, "tile_bytes": 0}, "tile_bytes=0: wanted 1 byte or more"),
        ({"count": 2, "dtype": "flaot32"}, "did you mean float32"),
        ({"count": 2, "op": "averge"}, "did you mean avg"),
        ({"count": 2, "op": "bor"}, "operator bor is not defined for dtype float32"),
    ):
        with pytest.raises(UsageError, match=message):
            Threads(program, **options)


def test_operator_does_not_matter_where_nothing_is_reduced():
    program = lower(ALGORITHMS["ring_all_gather"](3))
    check_run(program, 5, "complex64", "sum")
    Threads(program, count=5, dtype="bool", op="avg").close()
