"""Communicators at the edges of what callers pass: every count, every address, every order; nothing outside is touched."""

import contextlib
import time
from itertools import permutations

import numpy as np
import pytest

from algocc.catalog import algorithms
from algocc.collective import COLLECTIVES
from algocc.errors import UsageError
from algocc.kernels.operators import ELEMENTS
from algocc.lowering import lower
from algocc.runtime import buffer_elements, communicator, count_wrong, expected, make_inputs
from algocc.runtime import rank as module
from algocc.runtime.communicator import APART_UP_TO, ROOTED
from algocc.runtime.launch import spawn
from algocc.runtime.plan import plan

CANARY = 0xA5
FENCE = 16 * 16


def run(fn, n, *args, **options):
    return spawn(fn, n, *args, threads=True, **{"timeout": 20, **options})


def fenced(values, off=0):
    """A copy of the values, `off` bytes from an aligned address, and the memory around it, full of canaries."""
    memory = np.full(values.nbytes + 2 * FENCE + 64, CANARY, np.uint8)
    begin = FENCE + -(memory.__array_interface__["data"][0] + FENCE) % 64 + off
    array = memory[begin : begin + values.nbytes].view(values.dtype)
    array[:] = values
    return memory, array


def intact(memory, array):
    rest = memory.copy()
    start = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    rest[start : start + array.nbytes] = CANARY
    return bool((rest == CANARY).all())


def call(comm, name, x, out, op, root):
    """One collective by its name, with `out` given."""
    kwargs = {"out": out}
    if name in ("all_reduce", "reduce_scatter", "reduce", "scan"):
        kwargs["op"] = op
    if name in ROOTED:
        kwargs["root"] = root
    return getattr(comm, name)(x, **kwargs)


NAMES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan")


@pytest.mark.parametrize("n", [1, 2, 4])
def test_canaries_around_every_buffer_of_every_collective(n):
    """Inputs stay as they were, outputs are right, and what lies beside them is not touched."""

    def work(comm):
        r = comm.rank
        for name in NAMES:
            for root in (0, n - 1) if name in ROOTED else (0,):
                c = COLLECTIVES[name](n, root=root) if name in ROOTED else COLLECTIVES[name](n)
                for count in (0, 1, n - 1, 33, APART_UP_TO // 2 + 1):
                    data = make_inputs(c, count, "int16")
                    wanted = expected(c, data)[r]
                    around_x, x = fenced(data[r], 2)
                    around_y, y = fenced(np.zeros_like(wanted), 6)
                    given = x if c.inputs[r] else None
                    target = y if c.outputs[r] else None
                    if given is None and target is None:
                        given = x
                    call(comm, name, given, target, "sum", root)
                    assert (x == data[r]).all() and (target is None or (y == wanted).all()), (name, root, count)
                    assert intact(around_x, x) and intact(around_y, y), (name, root, count)

    run(work, n)


@pytest.mark.parametrize("dtype", ["float32", "complex128", "float16"])
def test_every_address(dtype):
    """Inputs and outputs off by every number of bytes up to a vector of 16, whether the type likes that or not."""
    c = COLLECTIVES["all_reduce"](2)
    cases = [(count, make_inputs(c, count, dtype)) for count in (5, 67, APART_UP_TO // 2 + 3)]

    def work(comm):
        for count, data in cases:
            wanted = expected(c, data)[0]
            for off in range(16):
                around_x, x = fenced(data[comm.rank], off)
                around_y, y = fenced(np.zeros_like(wanted), 15 - off)
                comm.all_reduce(x, out=y)
                assert (x == data[comm.rank]).all() and (y == wanted).all()
                comm.all_reduce(x, out=x)
                assert (x == wanted).all() and intact(around_x, x) and intact(around_y, y), (count, off)

    run(work, 2)


def test_counts_of_one_rank():
    """A tail is lost where elements are split over blocks by rounded quotients; averages of one are what they were."""
    kind = np.dtype(ELEMENTS["bfloat16"].numpy)
    values = (np.arange(2049) % 251).astype(np.float32).astype(kind)

    def work(comm):
        for count in (*range(1, 300), *range(255, 2049, 256), *range(256, 2049, 256), *range(257, 2049, 256)):
            around, out = fenced(np.zeros(count, kind))
            comm.all_reduce(values[:count], "avg", out=out)
            assert (out.view(np.uint16) == values[:count].view(np.uint16)).all() and intact(around, out), count

    run(work, 1)


@pytest.mark.parametrize("op", ["sum", "avg", "min"])
def test_collectives_of_one_rank_copy(op):
    def work(comm):
        for name in NAMES:
            x, out = np.arange(5.0), np.zeros(5)
            call(comm, name, x, out, op if name != "scan" else "sum", 0)
            assert (out == x).all(), name
            if name not in ROOTED:
                call(comm, name, x, x, op if name != "scan" else "sum", 0)
                assert (x == np.arange(5.0)).all(), name

    run(work, 1)


def test_fewer_elements_than_ranks_in_half_precision():
    def work(comm):
        for count in (1, 3, 7):
            for schedule in ("auto", "one_shot", "two_shot", "ring", "recursive_doubling"):
                around, x = fenced(np.full(count, comm.rank + 1, np.float16))
                assert (comm.all_reduce(x, schedule=schedule) == 36).all()
                comm.all_reduce(x, schedule=schedule, out=x)
                assert (x == 36).all() and intact(around, x)

    run(work, 8)


def test_a_count_that_neither_ranks_nor_vectors_divide():
    count = 10_556_587
    assert count % 8 == 3

    def work(comm):
        x = np.resize(np.arange(1021, dtype=np.float32), count) + comm.rank
        comm.all_reduce(x, out=x)
        return (x[:1021] == 8 * np.arange(1021) + 28).all() and (x[-100:] == 8 * (np.arange(count)[-100:] % 1021) + 28).all()

    assert run(work, 8) == [True] * 8


@pytest.mark.parametrize("threads", [True, False])
def test_chunks_around_a_slot(threads, monkeypatch):
    """A chunk one element shorter than a slot of scratch, as long, longer, and three times as long and one more."""
    slot = 1024
    monkeypatch.setattr(module, "APART_BYTES", 0)
    monkeypatch.setattr(module, "CACHED_BYTES", 0)
    monkeypatch.setattr(module, "SMALLEST_TILE", slot)
    monkeypatch.setattr(module, "TILE_BYTES", slot)

    def work(comm):
        for size in (slot - 4, slot, slot + 4, 3 * slot + 4):
            for schedule in ("ring", "two_shot", "recursive_doubling", "one_shot"):
                x = np.arange(4 * size // 4, dtype=np.int32) + comm.rank
                wanted = 4 * np.arange(x.size) + 6
                assert (comm.all_reduce(x, schedule=schedule) == wanted).all(), (size, schedule)
                comm.all_reduce(x, schedule=schedule, out=x)
                assert (x == wanted).all(), (size, schedule)

    options = {"threads": True} if threads else {"start": "fork"}
    spawn(work, 4, timeout=20, **options)


@pytest.mark.parametrize("n", [2, 3])
def test_ranks_that_are_tiles_ahead_of_others(n, monkeypatch):
    """Every algorithm, in calls of fewer and of more tiles than there are sets of scratch, each rank late now and then."""
    for name in ("APART_BYTES", "CACHED_BYTES", "MOST_TWICE"):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(module, "SMALLEST_TILE", 64)
    monkeypatch.setattr(communicator, "APART_UP_TO", 1 << 30)
    schedules = []
    for make in algorithms().values():
        with contextlib.suppress(UsageError):
            schedules.append(make(n))
    calls = []
    for s in schedules:
        c = s.collective
        for tiles in (5, 1, 23) if c.name != "barrier" else ():
            count = 16 * tiles * c.chunks
            data = make_inputs(c, count, "int32")
            calls.append((s, count, data, expected(c, data)))

    def work(comm):
        r = comm.rank
        late = np.random.default_rng(r)
        for s, count, data, wanted in calls:
            if late.random() < 0.2:
                time.sleep(1e-3)
            out = np.zeros(wanted[r].size, np.int32) if s.collective.outputs[r] else None
            comm.run(s, data[r] if s.collective.inputs[r] else None, out=out)
            assert out is None or count_wrong([out], [wanted[r]]) == 0, (s.name, count)

    assert module.SETS > 1
    run(work, n, timeout=60)


def test_totals_that_divide_though_counts_do_not():
    def work(comm):
        x = np.arange(6, dtype=np.float32)
        assert comm.reduce_scatter(x, schedule="ring_reduce_scatter").tolist() == [6 * comm.rank, 6 * comm.rank + 3]
        assert comm.all_gather(np.ones(1, np.float32), schedule="ring_all_gather").tolist() == [[1]] * 3

    run(work, 3)


def test_offsets_in_the_tables_have_64_bits():
    """8 ranks, 2^33 + 5 elements of 8 bytes: the last chunk begins beyond 2^32 elements, and nothing of it is cut off."""
    count = 2**33 + 5
    p = plan(lower(algorithms()["ring"](8)), count=count, element=ELEMENTS["int64"], tile_bytes=1 << 20)
    assert p.parts.dtype == np.int64 and int(p.parts.max()) == 7 * count // 8 > 2**32
    assert p.iterations * p.tile >= -(-count // 8)


def test_nothing_at_no_address():
    class Null:
        """No elements, at address 0."""

        __array_interface__ = {"shape": (0,), "typestr": "<f4", "data": (0, False), "version": 3}

    def work(comm):
        assert comm.all_gather(Null()).size == 0
        assert comm.all_reduce(Null()).size == 0
        return comm.all_reduce(np.array([1])).item()

    assert run(work, 1) == [1]
    assert run(work, 2) == [2, 2]


def test_sums_of_half_precision_are_rounded_once():
    """[256, 1, 1, …] in bfloat16 is 263, 264 when rounded once; hop by hop it would stay 256 from some starts."""
    kind = ELEMENTS["bfloat16"].numpy

    def work(comm):
        x = np.full(8, 256 if comm.rank == 0 else 1, np.float32).astype(kind)
        return {comm.all_reduce(x, schedule=s).astype(np.float32).tobytes() for s in ("one_shot", "two_shot")}

    assert run(work, 8) == [{np.full(8, 264, np.float32).tobytes()}] * 8


def test_nan_and_signed_zeros_in_every_order_of_ranks():
    for values, check in (
        ([1.0, np.nan, 3.0, 4.0], lambda a: np.isnan(a).all()),
        ([-0.0, -0.0, -0.0, -0.0], lambda a: np.signbit(a).all()),
    ):
        orders = np.array(list(permutations(values)), np.float32)

        def work(comm, orders=orders, check=check):
            x = np.ascontiguousarray(orders[:, comm.rank])
            return all(check(comm.all_reduce(x, op, schedule)) for op in ("min", "max") for schedule in ("one_shot", "ring"))

        assert run(work, 4) == [True] * 4


def test_one_result_of_all_runs():
    """Threads, processes, and processes of another run: the same bits."""
    data = make_inputs(COLLECTIVES["all_reduce"](4), 10_003, "bfloat16", seed=5)
    data = [np.asarray(a.astype(np.float32) * 1.1).astype(a.dtype) for a in data]

    def work(comm):
        return {comm.all_reduce(data[comm.rank]).tobytes() for _ in range(10)}

    found = [s for options in ({"threads": True}, {"start": "fork"}, {"start": "fork"}) for s in spawn(work, 4, **options)]
    assert len(set().union(*found)) == 1


def test_a_barrier_that_is_a_schedule():
    def work(comm):
        for _ in range(5):
            assert comm.run("dissemination_barrier", np.ones(1, bool), op="land")[0]

    for n in (3, 5, 6, 7):
        run(work, n)
        s = algorithms()["dissemination_barrier"](n)
        assert s.step[s.peer >= 0].max() == (n - 1).bit_length()  # step 0 is what each rank starts with


def test_subgroups_and_the_whole_at_once():
    """{4..7} of 8 reduce among themselves while all 8 gather."""
    from algocc.runtime import Communicator

    inner = Communicator.threads(4, timeout=20)

    def work(comm):
        for k in range(20):
            if comm.rank >= 4:
                assert inner[comm.rank - 4].all_reduce(np.array([k + comm.rank]))[0] == 4 * k + 22
            assert comm.all_gather(np.array([comm.rank * k])).ravel().tolist() == [r * k for r in range(8)]

    run(work, 8)
    for comm in inner:
        comm.close()


def test_random_calls_on_every_kind_of_memory_from_before_a_wrap():
    """A soak of a second: see bench/soak.py for a long one."""
    rng = np.random.default_rng(11)
    names = rng.choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"], 150)
    counts = rng.choice([0, 1, 2, 5, 8, 16, 17, 300, 5000], 150)
    ops = rng.choice(["sum", "max", "bxor"], 150)

    def work(comm):
        comm._resume_at(2**64 - 70, wait=True)
        for k, (name, count, op) in enumerate(zip(names.tolist(), counts.tolist(), ops.tolist(), strict=True)):
            root = k % comm.size
            c = COLLECTIVES[name](comm.size, root=root) if name in ROOTED else COLLECTIVES[name](comm.size)
            data = make_inputs(c, count, "int32", op, seed=k)
            wanted = expected(c, data, op)[comm.rank]
            make = comm.empty if k % 2 else np.empty
            x, out = make(data[comm.rank].size, "int32"), make(wanted.size, "int32")
            x[:] = data[comm.rank]
            call(comm, name, x, out, op, root)
            x[:] = -7
            assert count_wrong([out], [wanted]) == 0, (k, name, count)
            assert buffer_elements(c, count)[1][comm.rank] == out.size

    spawn(work, 3, start="fork", timeout=20)
