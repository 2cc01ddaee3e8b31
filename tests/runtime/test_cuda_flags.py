"""Flags beside the data (LL, LL128) on CPU threads: which waits fall away, whatever the count, type and cut, for ever."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from algocc import testing
from algocc.catalog import algorithms
from algocc.collective import Buffer, send_recv
from algocc.errors import RunError, UsageError
from algocc.kernels import layout as at
from algocc.lowering import lower
from algocc.program import check
from algocc.runtime import Threads, count_wrong, expected, make_inputs
from algocc.runtime.apart import lower_apart, lower_pushed
from algocc.runtime.cuda import Devices, Emulated, ThreadDriver
from algocc.runtime.cuda.flags import credits, flagged_slots
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring
from algocc.schedules.trees import binary_tree
from algocc.steps import Steps
from algocc.verifier import verify_program

PROTOCOLS = ["ll", "ll128"]
SLOW = "ALGOCC_SLOW" in os.environ
"""Every Program and type takes a compilation of seconds, so they are few, and shared, unless asked for more."""


def opened(program, count, dtype="int32", *, protocol, rests=20, most=6, **options):
    """All ranks on one device, with two teams a block, late at random."""
    options = {"driver": ThreadDriver(rests=rests, threads=most), "threads": 16, "timeout": 20, **options}
    return Emulated(program, count=count, dtype=dtype, protocol=protocol, **options)


def check_run(program, count, dtype="int32", op="sum", *, skip=0, calls=3, **options):
    data = make_inputs(program.collective, count, dtype, op, seed=count)
    wanted = expected(program.collective, data, op)
    with opened(program, count, dtype, op=op, **options) as run:
        inputs, outputs = run.buffers(skip=skip)
        for _ in range(calls):
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs)
            run(inputs, outputs)
            assert count_wrong([out.get() for out in outputs], wanted) == 0


# Which waits fall away


def with_flags_as_counters(p):
    """A Program of credits, and a counter for each slot in the place of its flags: what the verifier understands."""
    guarded = set(flagged_slots(p).tolist())

    def cells(start, rank, buffer, chunk):
        move = np.repeat(np.arange(p.moves), np.diff(start))
        return [
            (int(rank[i]) * p.scratch + int(chunk[i]) + k, int(m))
            for i, m in enumerate(move.tolist()) if buffer[i] == Buffer.SCRATCH for k in range(int(p.count[m]))
        ]  # fmt: skip

    writes = {slot: m for slot, m in cells(p.dst_start, p.dst_rank, p.dst_buffer, p.dst_chunk) if slot in guarded}
    reads = [(slot, m) for slot, m in cells(p.src_start, p.src_rank, p.src_buffer, p.src_chunk) if slot in writes]
    slots = sorted({slot for slot, _ in reads})
    counter = {slot: len(p.counter_total) + i for i, slot in enumerate(slots)}
    first = {}
    for slot, m in sorted(reads, key=lambda r: r[1]):
        first.setdefault(slot, m)
    waits = [(m, int(p.wait_counter[i]), int(p.wait_value[i]), int(p.wait_lag[i]))
             for m in range(p.moves) for i in range(p.wait_start[m], p.wait_start[m + 1])]  # fmt: skip
    waits += [(first[slot], counter[slot], 1, 0) for slot in slots]
    signals = [(m, int(p.signal_counter[i])) for m in range(p.moves) for i in range(p.signal_start[m], p.signal_start[m + 1])]
    signals += [(writes[slot], counter[slot]) for slot in slots]
    waits.sort()
    signals.sort()
    moves = np.arange(p.moves + 1)
    w, s = np.array(waits, np.int64).reshape(-1, 4), np.array(signals, np.int64).reshape(-1, 2)
    return replace(
        p,
        wait_start=np.searchsorted(w[:, 0], moves), wait_counter=w[:, 1].astype(np.int32), wait_value=w[:, 2].copy(),
        wait_lag=w[:, 3].astype(np.int8),
        signal_start=np.searchsorted(s[:, 0], moves), signal_counter=s[:, 1].astype(np.int32),
        counter_writer=np.append(p.counter_writer, [p.move_lane[writes[slot]] for slot in slots]).astype(np.int32),
        counter_waiter=np.append(p.counter_waiter, [p.move_lane[first[slot]] for slot in slots]).astype(np.int32),
        counter_total=np.append(p.counter_total, np.ones(len(slots), np.int64)),
    )  # fmt: skip


def check_credits(p, *, idempotent=False):
    made = credits(p)
    check(made)
    assert (made.wait_lag == 1).all()  # nothing of the same iteration is waited for
    if len(made.counter_total):
        model = with_flags_as_counters(made)
        report = verify_program(model, idempotent=idempotent)
        assert report.correct, report.failures
    return made


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_credits_and_flags_order_every_algorithm(name):
    for n in (2, 3, 4):
        try:
            s = algorithms()[name](n)
        except UsageError:
            continue
        for in_place in (False, True):
            check_credits(lower_pushed(s, in_place=in_place), idempotent=s.collective.idempotent)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_credits_and_flags_order_any_correct_schedule(data):
    in_place = data.draw(st.booleans())
    s = data.draw(testing.schedules(4, in_place=in_place))
    check_credits(lower_pushed(s, in_place=in_place), idempotent=s.collective.idempotent)


@pytest.mark.parametrize("schedule", [one_shot(3), two_shot(3), ring(3), binary_tree(5, chunks=2)])
def test_no_credit_is_too_many(schedule):
    """Without any one of them a slot may be written before it has been read. (A credit that others imply would be no error.)"""
    made = credits(lower_pushed(schedule))
    needed = 0
    for i in range(len(made.wait_counter)):
        move = int(np.searchsorted(made.wait_start, i, side="right")) - 1
        start = made.wait_start.copy()
        start[move + 1 :] -= 1
        columns = {c: np.delete(getattr(made, c), i) for c in ("wait_counter", "wait_value", "wait_lag")}
        needed += not verify_program(with_flags_as_counters(replace(made, wait_start=start, **columns))).correct
    assert needed > 0 or schedule.name != "one_shot"
    if schedule.name == "one_shot":
        assert needed == len(made.wait_counter) == 6


def test_programs_that_flags_can_not_guard_are_refused():
    for made, fault in (
        (lower(one_shot(2)), r"program one_shot: rank 0, step \d: a Move reads what is rank 1's"),
        (lower_apart(one_shot(2)), r"a Move reads what is rank 1's, which no flag can guard; make it with .*lower_pushed"),
        (lower(two_shot(2)), "which no flag can guard"),
        (lower(ring(1), lanes=2), "program ring: a rank has 2 lanes, flags are for one; make it with"),
    ):
        with pytest.raises(UsageError, match=fault):
            Emulated(made, count=8, driver=ThreadDriver(), protocol="ll")
    p = lower_pushed(one_shot(3))
    twice = replace(p, dst_chunk=np.zeros_like(p.dst_chunk))
    with pytest.raises(UsageError, match=r"scratch\[0\] of rank 0 has 2 Moves that write it and 1 lanes that read it, wanted one"):
        credits(twice)


def test_what_does_not_go_together_is_refused():
    p = lower_pushed(one_shot(2))
    for options, fault in (
        ({"protocol": "LL"}, "protocol='LL': wanted 'simple', 'll', 'll128'"),
        ({"protocol": "ll", "form": "interpreted"}, "protocol='ll' is for generated kernels"),
    ):
        with pytest.raises(UsageError, match=fault):
            Emulated(p, count=8, driver=ThreadDriver(), **options)


def test_lines_of_128_bytes_only_where_they_arrive_whole(monkeypatch):
    p = lower_pushed(one_shot(2))
    torn = ThreadDriver(devices=2, tears={(0, 1), (1, 0)})
    fault = "protocol='ll128': rank 0 on device 0 writes to rank 1 on device 1 over a link that may tear .*use protocol='ll'"
    with pytest.raises(UsageError, match=fault):
        Devices(p, count=8, devices=[0, 1], driver=torn, protocol="ll128")
    with pytest.raises(UsageError, match="threads=15: with protocol='ll128' it takes 16 to store a line"):
        Devices(p, count=8, driver=ThreadDriver(), threads=15, protocol="ll128")
    old = ThreadDriver()
    facts = old.facts(0)
    monkeypatch.setattr(old, "facts", lambda device: replace(facts, architecture="sm_60"))
    with pytest.raises(UsageError, match="is sm_60, wanted sm_70 or later; use protocol='ll'"):
        Devices(p, count=8, driver=old, protocol="ll128")


# The same source on CPU threads


@pytest.mark.parametrize(
    ("protocol", "schedule", "in_place"),
    [("ll", one_shot(2), True), ("ll128", one_shot(2), True), ("ll", ring(3), False), ("ll128", ring(3), False),
     ("ll", two_shot(3), True), ("ll128", two_shot(3), True)][: None if SLOW else 2],
)  # fmt: skip
def test_counts_and_cuts(protocol, schedule, in_place):
    program = lower_pushed(schedule, in_place=in_place)
    for count, skip, options in (
        (0, 0, {}), (1, 1, {}), (5, 0, {}), (101, 3, {"tile_bytes": 64}), (500, 1, {"tile_bytes": 64, "channels": 2}),
        (503, 0, {"most": 5, "channels": 3, "tile_bytes": 128}),
    ):  # fmt: skip
        check_run(program, count, skip=skip, protocol=protocol, **options)


@pytest.mark.parametrize(
    ("dtype", "op", "protocol"),
    [("bfloat16", "avg", "ll128"), ("int8", "sum", "ll"), ("float64", "max", "ll"), ("complex128", "prod", "ll"),
     ("complex128", "sum", "ll128"), ("bool", "land", "ll128"), ("int16", "avg", "ll")][: None if SLOW else 1],
)  # fmt: skip
def test_types(dtype, op, protocol):
    program = lower_pushed(one_shot(2))
    for count, skip in ((1, 1), (37, 0), (203, 3)):
        check_run(program, count, dtype, op, skip=skip, protocol=protocol, tile_bytes=64, calls=2)


@pytest.mark.skipif(not SLOW, reason="a compilation for each example; ALGOCC_SLOW=1 runs it")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_any_correct_schedule(data):
    in_place = data.draw(st.booleans())
    schedule = data.draw(testing.schedules(3, in_place=in_place))
    assume(lower_pushed(schedule, in_place=in_place).moves <= 8)
    c = schedule.collective
    count = 1 if c.name == "barrier" else data.draw(st.sampled_from([1, 5, 203])) * c.chunks
    op, dtype = ("land", "bool") if c.idempotent else ("sum", "int32")
    try:
        check_run(
            lower_pushed(schedule, in_place=in_place), count, dtype, op, skip=data.draw(st.integers(0, 3)),
            channels=data.draw(st.sampled_from([1, 3])), tile_bytes=data.draw(st.sampled_from([64, 1 << 20])),
            protocol=data.draw(st.sampled_from(PROTOCOLS)),
        )  # fmt: skip
    except UsageError as error:
        assert "in place" in str(error) or "at most" in str(error)


@pytest.mark.parametrize("protocol", PROTOCOLS if SLOW else ["ll"])
def test_the_bits_are_those_of_the_cpu(protocol):
    """Of the interpreter on threads, numbers whose sums are rounded."""
    rng = np.random.default_rng(3)
    for schedule in (ring(3), one_shot(3)) if SLOW else (one_shot(3),):
        program = lower_pushed(schedule)
        data = [(rng.standard_normal(501) * 1e3).astype(np.float32) for _ in range(3)]
        wanted = [np.zeros(501, np.float32) for _ in range(3)]
        with Threads(lower(schedule), count=501) as threads:
            threads(data, wanted)
        with opened(program, 501, "float32", protocol=protocol, tile_bytes=256) as run:
            inputs, outputs = run.buffers()
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs)
            run(inputs, outputs)
            assert [out.get().tobytes() for out in outputs] == [w.tobytes() for w in wanted]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("schedule", "in_place"), [(one_shot(2), True), (ring(3), False)][: None if SLOW else 1])
def test_many_calls_back_to_back(protocol, schedule, in_place):
    """No reset between them, each with other data, and some lines used in the last tile of a call only."""
    program = lower_pushed(schedule, in_place=in_place)
    with opened(program, 50, protocol=protocol, rests=50, tile_bytes=64, most=3) as run:
        inputs, outputs = run.buffers()
        for k in range(600):
            for rank, array in enumerate(inputs):
                array.set(np.full(50, k + rank, np.int32))
            run(inputs, outputs)
            wanted = sum(k + rank for rank in range(program.n))
            assert all((out.get() == wanted).all() for out in outputs), k


def test_a_writer_that_nobody_answers_waits_for_its_credits():
    """One way only, many tiles: without credits it would write over what has not been read, and the reader would be stuck."""
    steps = Steps(send_recv(2, pairs=[(0, 1)]), name="one way")
    with steps.step():
        steps.copy(src=0, dst=1, chunk=0)
    check_run(lower_pushed(steps.build()), 16 * 100 + 3, protocol="ll", tile_bytes=64, most=1, timeout=2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("start", [2**31 - 2, 2**32 - 1, 2**63 - 3, 2**64 - 2])
def test_flags_and_credits_wrap(protocol, start):
    program = lower_pushed(ring(3))
    data = make_inputs(program.collective, 100, "int32")
    wanted = expected(program.collective, data)
    with opened(program, 100, protocol=protocol, tile_bytes=64) as run:
        inputs, outputs = run.buffers()
        run._resume_at(start)
        for k in range(4):
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs + k)
            run(inputs, outputs)
            assert count_wrong([out.get() - 3 * k for out in outputs], wanted) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ranks_on_several_devices(protocol):
    program = lower_pushed(ring(3))
    data = make_inputs(program.collective, 203, "int32")
    wanted = expected(program.collective, data)
    driver = ThreadDriver(devices=3, rests=20, threads=3)
    with Devices(program, count=203, dtype="int32", devices=[2, 0, 1], driver=driver, threads=16, protocol=protocol) as run:
        inputs, outputs = run.buffers()
        for _ in range(3):
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs)
            run(inputs, outputs)
            assert count_wrong([out.get() for out in outputs], wanted) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_lane_that_does_not_come_is_named(protocol):
    """Every thread that waits for its flags gives up, and the report says whose they are."""
    run = opened(lower_pushed(ring(3)), 30, protocol=protocol, timeout=0.3, tile_bytes=64)
    inputs, outputs = run.buffers()
    run(inputs, outputs)
    words = np.zeros(at.BLOCK_WORDS, np.int64)
    absent = run._sites[0].arena.address("blocks") + 8 * at.BLOCK_WORDS * 1
    run._driver.download(0, absent, words, 0)
    words[at.ITERATIONS] = -1
    run._driver.upload(0, absent, words, 0)
    fault = r"no progress within 0.3 s; stuck: rank 1\n(.*\n)*.*rank 2 \(lane 2\) in step .* waits for rank 1 \(lane 1\): a flag in scratch\[0\]"
    with pytest.raises(RunError, match=fault):
        for _ in range(3):
            run(inputs, outputs)
    run.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_host_can_abort(protocol):
    run = opened(lower_pushed(ring(3)), 30, protocol=protocol)
    run.abort()
    run._resume_at(0)
    run._driver.clear(0, run._sites[0].arena.address("scratch"), 64, 0)
    with pytest.raises(RunError, match="aborted by the host"):
        run(*run.buffers())
    run.close()


def test_a_flag_of_another_iteration_is_not_taken():
    """Scratch full of what a line of the iteration before would hold: nobody reads it, so the call is stuck, not wrong."""
    program = lower_pushed(ring(3))
    run = opened(program, 9, protocol="ll", most=1, timeout=0.3)
    inputs, outputs = run.buffers()
    for _ in range(2):
        run(inputs, outputs)
    words = np.zeros(at.BLOCK_WORDS, np.int64)
    absent = run._sites[0].arena.address("blocks")
    run._driver.download(0, absent, words, 0)
    words[at.ITERATIONS] = -1
    run._driver.upload(0, absent, words, 0)
    with pytest.raises(RunError, match=r"a flag in scratch\[0\] is 1, wanted 5"):
        run(inputs, outputs)
    run.close()
