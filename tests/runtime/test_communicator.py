"""Ranks that call for themselves, as threads: what they get, what they are refused, and the gate they go through."""

import os
import random
import threading
import time

import numpy as np
import pytest

from algocc.catalog import algorithms
from algocc.errors import AlgoccError, RunError, UsageError
from algocc.kernels import compiled
from algocc.kernels import layout as at
from algocc.kernels.operators import ELEMENTS, OPERATORS, refusal
from algocc.runtime import buffer_elements, communicator, count_wrong, expected, make_inputs
from algocc.runtime.communicator import APART_UP_TO, Communicator
from algocc.runtime.launch import spawn
from algocc.runtime.memory import address
from algocc.runtime.rank import disagreement

CANARY = 0xA5


def run(fn, n, *args, **options):
    return spawn(fn, n, *args, threads=True, **{"timeout": 20, **options})


def fenced(size, dtype, skip=0):
    """An array with canaries before and after, off by `skip` elements from any alignment."""
    kind = np.dtype(ELEMENTS[dtype].numpy) if dtype in ELEMENTS else np.dtype(dtype)
    memory = np.full((size + skip + 40) * kind.itemsize, CANARY, np.uint8)
    begin = (20 + skip) * kind.itemsize
    return memory, memory[begin : begin + size * kind.itemsize].view(kind)


def intact(memory, array):
    rest = memory.copy()
    start = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    rest[start : start + array.nbytes] = CANARY
    return bool((rest == CANARY).all())


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_every_collective(n):
    def work(comm):
        r = comm.rank
        for count in (0, 1, n - 1, n + 1, 7, 4099):
            x = np.arange(count, dtype=np.int32) * 3 + r
            total = np.arange(count) * 3 * n + n * (n - 1) // 2
            before = x.copy()
            assert (comm.all_reduce(x) == total).all()
            assert (comm.reduce_scatter(np.tile(x, n)) == total).all()
            assert (comm.all_gather(x) == [np.arange(count) * 3 + k for k in range(n)]).all()
            for root in range(n):
                b = x.copy()
                assert comm.broadcast(b, root=root) is b
                assert (b == np.arange(count) * 3 + root).all()
                assert (comm.broadcast(x if r == root else None, root=root, out=np.empty_like(x)) == b).all()
                reduced, gathered = comm.reduce(x, root=root), comm.gather(x, root=root)
                assert (reduced is None) == (gathered is None) == (r != root)
                if r == root:
                    assert (reduced == total).all() and (gathered[n - 1] == np.arange(count) * 3 + n - 1).all()
                part = comm.scatter(np.repeat(np.arange(n, dtype=np.int32), count) if r == root else None,
                                    root=root, out=np.empty_like(x))  # fmt: skip
                assert (part == r).all() and part.size == count
            swapped = comm.all_to_all(np.repeat(np.arange(n) + 10 * r, count))
            assert (swapped == np.repeat(10 * np.arange(n), count) + r).all()
            assert (comm.scan(x) == np.arange(count) * 3 * (r + 1) + r * (r + 1) // 2).all()
            before_me = comm.scan(x, exclusive=True)
            assert before_me is None if r == 0 else (before_me == np.arange(count) * 3 * r + r * (r - 1) // 2).all()
            assert (x == before).all()
        comm.barrier()

    run(work, n)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("skip", [0, 1])
def test_canaries_and_alignment(n, skip):
    """In place and out of place, counts around everything, a view one element off: nothing outside is touched."""

    def work(comm):
        for count in (0, 1, n - 1, 257, 263, 264, 4097, APART_UP_TO // 2, APART_UP_TO // 2 + 1):
            for dtype in ("float16", "float64"):
                data = make_inputs(algorithms()["one_shot"](n).collective, count, dtype, "avg")
                wanted = expected(algorithms()["one_shot"](n).collective, data, "avg")[comm.rank]
                memory, x = fenced(count, dtype, skip)
                other, y = fenced(count, dtype, 3 * skip)
                x[:] = data[comm.rank]
                y[:] = 0
                comm.all_reduce(x, "avg", out=y)
                assert (x == data[comm.rank]).all() and (y == wanted).all()
                comm.all_reduce(x, "avg", out=x)
                assert (x == wanted).all() and intact(memory, x) and intact(other, y)

    run(work, n)


@pytest.mark.parametrize(("op", "dtype"), [
    (o.name, d) for o in OPERATORS.values() for d in ("bool", "int8", "uint64", "bfloat16", "float32", "complex64")
    if refusal(o, ELEMENTS[d]) is None
])  # fmt: skip
def test_operators_and_types(op, dtype):
    c = algorithms()["two_shot"](3).collective
    data = make_inputs(c, 100, dtype, op)

    def work(comm):
        for schedule in ("one_shot", "two_shot", "ring"):
            assert count_wrong([comm.all_reduce(data[comm.rank], op, schedule)], [expected(c, data, op)[0]]) == 0

    run(work, 3)


def test_every_schedule_of_the_catalogue_in_place_and_out_of_place():
    """By `run`, with elements enough that arrays of threads are reached directly, and few enough that they are not."""
    n = 4
    made = [a(n) for a in algorithms().values() if a.collective not in ("barrier",) and _takes(a, n)]

    def work(comm):
        wrong = []
        for s in made:
            c = s.collective
            for count in (3, APART_UP_TO):
                data = make_inputs(c, count, "int32")
                wanted = expected(c, data)[comm.rank]
                x = data[comm.rank] if c.inputs[comm.rank] else None
                out = np.zeros(wanted.size, np.int32) if c.outputs[comm.rank] else None
                comm.run(s, x, out=out)
                if out is not None and not (out == wanted).all():
                    wrong.append((s.name, count))
        return wrong

    assert run(work, n) == [[]] * n


def _takes(a, n):
    try:
        a(n)
    except UsageError:
        return False
    return True


# Cases that others have reported


def test_reduce_scatter_as_reported():
    def work(comm):
        x = np.array([1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16], np.int32)
        return comm.reduce_scatter(x).tolist()

    assert run(work, 2) == [[2, 4, 6, 8, 10, 12], [22, 24, 26, 28, 30, 32]]


def test_a_total_that_does_not_divide_is_refused_by_name():
    def work(comm):
        with pytest.raises(UsageError, match="reduce_scatter: x of rank . has 73 elements, not a multiple of its 4 parts: 1 left"):
            comm.reduce_scatter(np.zeros(73))
        assert comm.all_gather(np.ones(1, np.float32)).size == 4
        return comm.reduce_scatter(np.ones((4, 2), np.float32)).tolist()

    assert run(work, 4) == [[4, 4]] * 4


def test_numbers_as_reported():
    def reduced(values, dtype, op):
        kind = ELEMENTS[dtype].numpy
        return run(lambda comm: comm.all_reduce(np.array([values[comm.rank]], kind), op)[0].item(), len(values))

    assert reduced((3, 4), "int32", "avg") == [3, 3]
    assert reduced((-3, -4), "int32", "avg") == [-3, -3]
    assert reduced((60000, 60000), "float16", "avg") == [60000, 60000]
    assert reduced((3, 3, 3), "float16", "avg") == [3, 3, 3]
    assert reduced((120, 100), "int8", "sum") == [-36, -36]
    assert reduced((True, True), "bool", "sum") == [True, True]
    assert all(np.isnan(v) for v in reduced((1, np.nan, 3, 4), "float32", "min"))
    with pytest.raises(RunError, match="operator avg is not defined for dtype bool"):
        reduced((True, False), "bool", "avg")


def test_ring_in_place_with_fewer_elements_than_ranks():
    def work(comm):
        x = np.array([comm.rank, 1 / comm.rank if comm.rank else 0.0])
        return comm.all_reduce(x, schedule="ring", out=x).tolist()

    assert run(work, 4) == [[6.0, 1.8333333333333333]] * 4


def test_hierarchical_in_place_of_sixteen():
    def work(comm):
        x = np.full(3, comm.rank + 1, np.int32)
        comm.run(algorithms()["hierarchical_all_reduce"](16, group=8), x, out=x)
        return x.tolist()

    assert run(work, 16) == [[136] * 3] * 16


def test_nothing_to_move():
    def work(comm):
        shape = (1, 0, 2)
        empty = np.empty(shape, np.float32)
        assert comm.all_reduce(empty).shape == shape
        assert comm.all_gather(empty).shape == (comm.size, *shape)
        assert comm.reduce_scatter(np.empty((comm.size, 0), np.float32)).size == 0
        assert comm.all_to_all(np.empty((comm.size, 0))).size == 0
        return comm.all_reduce(np.array([1])).item()

    assert run(work, 1) == [1]
    assert run(work, 4) == [4] * 4


def test_some_pairs_exchange_nothing():
    def work(comm):
        counts = [[1, 1], [0, 0]]
        out = np.zeros(1, np.int64)
        comm.all_to_all_v(np.array([[5, 6], []][comm.rank], np.int64), counts, out=out)
        same = np.zeros(1, np.int64)
        comm.all_to_all_v(np.array([[5, 6], []][comm.rank], np.int64), counts[comm.rank], out=same)
        return out.item(), same.item()

    assert run(work, 2) == [(5, 5), (6, 6)]


def test_where_the_block_lies_in_place():
    def work(comm):
        n, r, count = comm.size, comm.rank, 5
        out = np.zeros(n * count, np.int32)
        mine = out[r * count : (r + 1) * count]
        mine[:] = r + 1
        comm.all_gather(mine, out=out)
        assert (out == np.repeat(np.arange(n) + 1, count)).all()
        if r:
            with pytest.raises(UsageError, match=rf"all_gather: rank {r}: x and out share memory; in place, x starts at element {5 * r} of out"):
                comm.all_gather(out[:count], out=out)
        x = np.tile(np.arange(n, dtype=np.int32), (count, 1)).T.ravel().copy()
        part = x[r * count : (r + 1) * count]
        comm.reduce_scatter(x, out=part)
        assert (part == r * n).all()
        with pytest.raises(UsageError, match="all_reduce: rank .: x and out share memory; in place, x starts at element 0 of out"):
            comm.all_reduce(x[1:6], out=x[:5])

    run(work, 4)


@pytest.mark.parametrize("big", [False, True])
def test_what_is_not_contiguous_holds_the_result(big):
    def work(comm):
        a = np.arange(12 << (12 if big else 0), dtype=np.float32).reshape(3, -1) + comm.rank
        wanted = 2 * a.T + 1 - 2 * comm.rank
        x = a.T
        assert comm.all_reduce(x, out=x) is x and (a.T == wanted).all()
        b = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        out = np.zeros((2, 6))[:, ::2]
        comm.all_reduce(b, out=out)
        assert (out == 2 * b).all()
        everyone = np.zeros((2, 2, 6))[:, :, ::2]
        comm.all_gather(b, out=everyone)
        assert (everyone == b).all()

    run(work, 2)


def test_other_libraries_arrays():
    import array

    class Exporter:
        """An array that speaks DLPack only."""

        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **options):
            return self.a.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    def work(comm):
        a = array.array("d", [comm.rank + 1.0, 2.0])
        comm.all_reduce(a, out=a)
        assert a.tolist() == [3.0, 4.0]
        assert comm.all_reduce(memoryview(b"\1\2"))[1] == 4
        assert comm.all_reduce(Exporter(np.ones(3))).tolist() == [2, 2, 2]
        for wrong, message in (
            ([1, 2], "x of rank . is a list, wanted an array"),
            (None, "gives neither x nor out"),
            (np.array(["a"]), "unknown dtype|no element type"),
            (object(), "is a object, wanted an array"),
        ):
            with pytest.raises(UsageError, match=message):
                comm.all_reduce(wrong)
        with pytest.raises(UsageError, match=r"out of rank . has dtype float32, wanted float64, that of the input"):
            comm.all_reduce(np.ones(3), out=np.ones(3, np.float32))
        frozen = np.ones(3)
        frozen.setflags(write=False)
        with pytest.raises(UsageError, match="out of rank . is read-only"):
            comm.all_reduce(np.ones(3), out=frozen)

    run(work, 2)


def test_two_level_reduce_leaves_its_inputs_alone():
    def work(comm):
        x = np.arange(1000, dtype=np.int32) + comm.rank
        first = comm.run("leader_all_reduce", x)
        assert (x == np.arange(1000) + comm.rank).all()
        assert (comm.run("leader_all_reduce", x) == first).all()

    run(work, 4)


def test_ranks_get_the_same_bits_every_time():
    rng = np.random.default_rng(1)
    data = [rng.standard_normal(10_003).astype(ELEMENTS["bfloat16"].numpy) for _ in range(4)]
    found = set()
    for _ in range(3):
        for results in run(lambda comm: {comm.all_reduce(data[comm.rank]).tobytes() for _ in range(10)}, 4):
            found |= results
    assert len(found) == 1


def test_views_of_one_piece_of_memory_are_themselves():
    def work(comm):
        pool = comm.empty(4 << 10, "int32")
        views = pool.reshape(4, -1)
        for k in range(4):
            views[k] = k + 1
        return [comm.broadcast(v if comm.rank == 0 else np.zeros_like(v), root=0)[0].item() for v in views]

    assert run(work, 2) == [[1, 2, 3, 4]] * 2


# Disagreement


def test_counts_that_differ_are_an_error_on_every_rank_before_anything_moves():
    def work(comm):
        x = np.ones(1002 if comm.rank == 0 else 1000, np.float32)
        out = np.full_like(x, 7)
        with pytest.raises(UsageError) as caught:
            comm.all_reduce(x, out=out)
        assert (out == 7).all()
        y = np.ones(10, np.float32)
        assert comm.all_reduce(y)[0] == comm.size
        return str(caught.value)

    said = "call 1: the ranks do not agree on count 0:1002, 1:1000, 2:1000, 3:1000. First to differ: rank 0"
    assert run(work, 4) == [said] * 4


def test_different_calls_are_told_by_rank():
    def work(comm):
        x = np.ones(10, np.float32)
        with pytest.raises(UsageError) as caught:
            comm.broadcast(x) if comm.rank == 2 else comm.all_reduce(x)
        return str(caught.value)

    said = "call 1: the ranks do not agree on collective 0:all_reduce, 1:all_reduce, 2:broadcast. First to differ: rank 2"
    assert run(work, 3) == [said] * 3


@pytest.mark.parametrize(("kwargs", "told"), [
    ({"op": "max"}, "op 0:sum, 1:max"), ({"schedule": "ring"}, "schedule 0:one_shot, 1:ring"),
])  # fmt: skip
def test_other_things_to_disagree_on(kwargs, told):
    def work(comm):
        with pytest.raises(UsageError, match=told):
            comm.all_reduce(np.ones(10, np.float32), **(kwargs if comm.rank else {}))

    run(work, 2)


def test_types_and_schedules_of_one_name():
    def work(comm):
        with pytest.raises(UsageError, match=r"dtype 0:float32, 1:int32\. First"):
            comm.all_reduce(np.ones(10, np.int32 if comm.rank else np.float32))
        from dataclasses import replace

        s = algorithms()["ring"](2)
        other = replace(algorithms()["two_shot"](2), name="ring")
        with pytest.raises(UsageError, match="do not agree on program 0:"):
            comm.all_reduce(np.ones(10), schedule=other if comm.rank else s)

    run(work, 2)


def test_after_a_disagreement_ranks_prepare_alike():
    """What one rank has prepared and another has not would be let go of at different times: all start anew."""

    def work(comm):
        for round_ in range(3):
            for count in range(1, 70):
                x = np.full(count, comm.rank)
                assert (comm.all_reduce(x) == 1).all()
                if count == 40:
                    with pytest.raises(UsageError, match="do not agree on count"):
                        comm.all_reduce(np.ones(100 + 10 * round_ + comm.rank))

    run(work, 2)


def test_the_first_to_differ_is_the_one_alone():
    facts = lambda op: (("op", op),)  # noqa: E731
    assert disagreement([(0, facts("a")), (1, facts("b")), (2, facts("b"))], 3).endswith("differ: rank 0")
    assert disagreement([(0, facts("a")), (1, facts("b"))], 3).endswith("differ: rank 1")


# The gate


@pytest.mark.parametrize("start", [2**31 - 2, 2**32 - 2, 2**63 - 3, 2**64 - 2])
def test_calls_are_counted_across_a_wrap(start):
    comms = Communicator.threads(3, timeout=20)
    for comm in comms:
        comm._resume_at(start)

    def work(comm):
        for k in range(8):
            comm.barrier()
            x = np.full(5, k + comm.rank)
            y = np.full(APART_UP_TO, k + comm.rank)
            assert (comm.all_reduce(x) == 3 * k + 3).all()
            comm.all_reduce(y, out=y)
            assert (y == 3 * k + 3).all()
        assert comm._state.call == (start + 24) % 2**64

    in_threads(comms, work)


def in_threads(comms, work):
    errors = []

    def guarded(comm):
        try:
            with comm:
                work(comm)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_barriers_back_to_back_with_delays():
    def work(comm):
        rng = random.Random(comm.rank)
        for k in range(300):
            if rng.random() < 0.2:
                time.sleep(rng.random() * 1e-3)
            marks[comm.rank] = k
            comm.barrier()
            assert (marks >= k).all()
            comm.barrier()

    marks = np.zeros(4, np.int64)
    run(work, 4)


def test_no_one_is_touched_before_it_enters_and_after_it_leaves():
    """Each rank changes its arrays right before it enters and right after it returns; whoever reads too early, or too
    late, gives a wrong sum. Directly and through scratch, with delays of random ranks."""

    def work(comm):
        rng = random.Random(7 + comm.rank)
        for size in (4, APART_UP_TO):
            x, out = np.zeros(size, np.int64), np.zeros(size, np.int64)
            for k in range(60):
                if rng.random() < 0.3:
                    time.sleep(rng.random() * 2e-3)
                x[:] = k * 10 + comm.rank
                comm.all_reduce(x, out=x if k % 3 == 0 else out)
                assert (x if k % 3 == 0 else out).tolist() == [30 * k + 3] * size
                x[:] = out[:] = -1

    run(work, 3)


@pytest.mark.parametrize("count", [2, 18, 1000])
def test_a_slow_reader_reads_its_own_call(count):
    """Rank 1 passes the gate and reads late; rank 0 is long out, has changed its array, and is about to enter other calls.

    Data in the record, in two scratches used in turns, and of another program of the same communicator. With one scratch,
    or records without turns, rank 1 would read what the next call has put there.
    """
    comms = Communicator.threads(2, timeout=20)
    gate, lane = comms[1]._enter, compiled.run_lane()

    def slowly(start):
        """The call in two parts: in through the gate, and after a while what comes then."""
        block = current[0].block
        assert address(block) == start
        tiles, early = int(block[at.TILES]), int(block[at.PRELUDE])
        block[at.TILES] = 0
        status = gate(start)
        block[at.TILES] = tiles
        if status == at.FINE:
            time.sleep(0.03)
            block[at.BEGIN_MOVE], block[at.ITERATIONS] = early, tiles
            status = lane(start)
        return status

    current = []

    def work(comm):
        x = np.zeros(count, np.int64)
        for k, schedule in enumerate(("one_shot", "two_shot", "one_shot", "one_shot", "two_shot", "one_shot", "one_shot")):
            x[:] = 10 * k + comm.rank
            if comm.rank == 1 and k >= 2:  # both programs are prepared
                ready = next(p for p in comm._prepared.values() if p.schedule.name == schedule)
                current[:] = [ready.sides[True]]
                if schedule == "one_shot":
                    assert current[0].block[at.SECOND] == (at.IN_RECORD if 8 * count <= 64 else -(-8 * count // 128) * 128)
                comm._enter = slowly
            out = comm.all_reduce(x, schedule=schedule)
            x[:] = -1
            assert (out == 20 * k + 1).all(), k

    in_threads(comms, work)


def test_a_late_rank_is_read_after_it_comes():
    def work(comm):
        if comm.rank == 1:
            time.sleep(0.05)
            shared[0] = 1
        comm.barrier()
        return shared[0].item()

    shared = np.zeros(1)
    assert run(work, 2) == [1, 1]


# Failure


def test_a_rank_that_raises_fails_the_others_at_once():
    def work(comm):
        comm.barrier()
        if comm.rank == 1:
            raise ValueError("boom")
        begin = time.monotonic()
        with pytest.raises(RunError, match=r"call 2 \(all_reduce, 10 float64, schedule one_shot\): rank 1: ValueError: boom"):
            comm.all_reduce(np.ones(10))
        assert time.monotonic() - begin < 10
        with pytest.raises(RunError, match="an earlier call failed, make a new one; that was: call 2"):
            comm.barrier()
        assert repr(comm).endswith("threads, failed>")

    with pytest.raises(RunError, match="^rank 1 failed: ValueError: boom$"):
        run(work, 3)


def test_a_rank_that_never_comes_is_named():
    def work(comm):
        comm.barrier()
        if comm.rank != 2:
            with pytest.raises(RunError, match=r"call 2 \(barrier.*\): rank 2 did not come within 0.2 s"):
                comm.barrier()
        time.sleep(1)

    run(work, 4, timeout=0.2)


def test_a_rank_that_stops_in_the_middle_is_named():
    """Rank 0's lane never signals: it is shown to have entered, and the others wait inside the program."""
    comms = Communicator.threads(3, timeout=0.3)
    told = []

    def work(comm):
        x = np.ones(APART_UP_TO)
        comm.all_reduce(x, schedule="ring")
        if comm.rank == 0:
            ready = next(iter(comm._prepared.values()))
            for side in ready.sides.values():
                side.block[37] = 0  # no tiles
        try:
            comm.all_reduce(x, schedule="ring")
        except RunError as error:
            told.append(str(error).splitlines()[0])

    in_threads(comms, work)
    assert len(told) >= 2
    assert any("stuck: rank 0" in text for text in told)


def test_a_closed_end():
    comms = Communicator.threads(2, timeout=5)
    comms[0].close()
    comms[0].close()
    assert repr(comms[0]) == "<Communicator rank 0 of 2: threads, closed>"
    with pytest.raises(UsageError, match="it is closed; make a new one"):
        comms[0].barrier()
    with pytest.raises(RunError, match="rank 0 has closed the communicator"):
        comms[1].barrier()
    comms[1].close()


def test_two_communicators_do_not_disturb_each_other():
    outer = Communicator.threads(4, timeout=20)
    inner = Communicator.threads(2, timeout=20)

    def work(comm):
        for k in range(50):
            if comm.rank < 2:
                assert inner[comm.rank].all_reduce(np.array([k]))[0] == 2 * k
            assert comm.all_reduce(np.array([k]))[0] == 4 * k
        if comm.rank < 2:
            inner[comm.rank].close()

    in_threads(outer, work)


def test_two_threads_of_one_rank_take_turns():
    """In the same order on all ranks they are right; in opposite orders, a disagreement is told with the call's number."""
    comms = Communicator.threads(2, timeout=20)
    wrong = []

    def work(comm):
        for k in range(200):
            if comm.all_reduce(np.full(100, 5))[0] != 10:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(comm,)) for comm in comms for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

    def crossed(comm):
        with pytest.raises(UsageError, match=r"call \d+: the ranks do not agree on count"):
            comm.all_reduce(np.ones(3 + comm.rank))

    in_threads(comms, crossed)


def test_many_ends_leave_no_thread():
    before = threading.active_count()
    for _ in range(50):
        run(lambda comm: comm.barrier(), 2)
    assert threading.active_count() == before


def test_many_shapes_keep_few_programs():
    def work(comm):
        for count in range(200):
            assert comm.all_reduce(np.ones(count + 1, np.int32))[count] == 2
        return len(comm._prepared)

    assert run(work, 2) == [64, 64]


def test_ranks_let_go_of_the_same_programs():
    """What is found again at once on one rank, and looked at anew on another whose array is no plain one, ages alike on both."""

    def work(comm):
        x = np.full(3, comm.rank)
        mine = memoryview(x) if comm.rank == 1 else x
        for count in range(4, 150):
            assert comm.all_gather(mine).tolist() == [[0] * 3, [1] * 3, [2] * 3]
            assert (comm.all_gather(np.full(count, comm.rank))[1] == 1).all()

    run(work, 3, timeout=5)


@pytest.mark.parametrize(("processors", "kept"), [(1, 8), (2, 12)])
def test_large_calls_keep_little_scratch(processors, kept, monkeypatch):
    """Those of ranks that share processors weigh 32 MiB each, others 0.5: what they weigh is what is held."""
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setattr(communicator, "APART_UP_TO", 1 << 40)

    def work(comm):
        for count in range(12):
            assert comm.all_reduce(np.ones((40 << 20) + count, np.int8))[0] == 2
        held = sum(ready.sides[True].scratch.nbytes for ready in comm._prepared.values())
        return len(comm._prepared), abs(held / comm._weight - 1) < 0.01, comm._weight <= 256 << 20

    assert run(work, 2) == [(kept, True, True)] * 2


@pytest.mark.parametrize("size", [APART_UP_TO - 4, APART_UP_TO, APART_UP_TO + 4])
def test_the_bound_of_a_size_belongs_to_it(size):
    def work(comm):
        x = np.ones(size // 4, np.float32)
        comm.all_reduce(x)
        return next(iter(comm._prepared.values())).sides.keys() == {size <= APART_UP_TO}

    assert run(work, 2) == [True, True]


def test_arguments_that_can_not_be():
    for bad in (0, -1, True, 1.5):
        with pytest.raises(UsageError, match="wanted 1 rank or more"):
            Communicator.threads(bad)
    with pytest.raises(UsageError, match="timeout=0: wanted a number of seconds above 0"):
        Communicator.threads(2, timeout=0)

    def work(comm):
        x = np.ones(4)
        for call, message in (
            (lambda: comm.broadcast(x, root=2), "root=2: with 2 ranks it is one of 0..1"),
            (lambda: comm.all_reduce(x, "averge"), "did you mean avg"),
            (lambda: comm.all_reduce(x, schedule="rnig"), "did you mean ring"),
            (lambda: comm.all_reduce(x, schedule="ring_all_gather"), "all_reduce: schedule ring_all_gather does all_gather"),
            (lambda: comm.all_reduce(x, schedule=algorithms()["ring"](3)), "is for 3 ranks, this communicator has 2"),
            (lambda: comm.all_reduce(x, schedule=7), "wanted a name, an algorithm or a Schedule"),
            (lambda: comm.scatter(x if comm.rank == 1 else None, root=1) if comm.rank == 0 else comm.empty((-1,)),
             "neither x nor out|wanted 0 or more in each"),
            (lambda: comm.all_to_all_v(x, [[1, 2, 3]]), "wanted 2 rows of 2 numbers"),
        ):  # fmt: skip
            with pytest.raises(AlgoccError, match=message):
                call()

    run(work, 2)


def test_unchecked_calls_that_agree_are_right():
    assert run(lambda comm: comm.all_reduce(np.array([comm.rank])).item(), 3, checked=False) == [3] * 3


def test_outputs_of_no_call_are_shared():
    def work(comm):
        a, b = comm.all_reduce(np.ones(5)), comm.all_reduce(np.ones(5))
        x = np.ones(5)
        c, d = comm.all_reduce(x), comm.all_reduce(x)
        return len({v.__array_interface__["data"][0] for v in (a, b, c, d)})

    assert run(work, 2) == [4, 4]
    assert buffer_elements(algorithms()["ring"](2).collective, 3) == ([3, 3], [3, 3])
