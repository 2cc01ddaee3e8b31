"""The kernels of GPUs and their host, without a GPU: every thread of every block is a thread of this process."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algocc import testing
from algocc.catalog import algorithms
from algocc.collective import send_recv
from algocc.errors import AlgoccError, RunError, UsageError
from algocc.kernels import layout as at
from algocc.kernels.operators import ELEMENTS
from algocc.lowering import lower
from algocc.runtime import Threads, count_wrong, expected, make_inputs
from algocc.runtime.cuda import Array, CudaDriver, Devices, Emulated, ThreadDriver, driver
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring
from algocc.steps import Steps

ALGORITHMS = algorithms()
KINDS = [("sum", "int32"), ("sum", "bfloat16"), ("avg", "int8"), ("sum", "float32"), ("land", "bool"), ("prod", "complex64")]
"""Operators and types that these tests compile kernels for; each takes a few seconds."""


def check_run(program, count, dtype="int32", op="sum", *, skips=(0,), calls=2, driver=None, **options):
    """Run, back to back, on arrays `skips[rank]` elements off an aligned address; outputs are right, inputs as before."""
    c = program.collective
    data = make_inputs(c, count, dtype, op, seed=count)
    wanted = expected(c, data, op)
    options = {"threads": 3, "timeout": 20, **options}
    with Emulated(program, count=count, dtype=dtype, op=op, driver=driver or ThreadDriver(rests=20), **options) as run:
        if program.in_place:
            inputs, outputs = run.buffers(skip=skips[0])
        else:
            inputs, outputs = (
                [run.empty(r, n, skip=skips[(r + k) % len(skips)]) for r, n in enumerate(sizes)]
                for k, sizes in enumerate(run._elements)
            )
        for _ in range(calls):
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs)
            run(inputs, outputs)
            assert count_wrong([out.get() for out in outputs], wanted) == 0
            if not program.in_place:
                assert count_wrong([x.get() for x in inputs], data) == 0
                for out in outputs:
                    out.set(np.zeros(out.size, out.element.numpy))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_correct_schedule_gives_what_its_collective_demands(data):
    in_place = data.draw(st.booleans())
    schedule = data.draw(testing.schedules(4, in_place=in_place))
    program = lower(schedule, in_place=in_place, lanes=data.draw(st.integers(1, 2)))
    chunks = schedule.collective.chunks
    count = 1 if schedule.collective.name == "barrier" else data.draw(st.sampled_from([0, 1, 5, 40, 203])) * chunks
    op, dtype = ("land", "bool") if schedule.collective.idempotent else data.draw(st.sampled_from(KINDS[:2]))
    try:
        check_run(
            program, count, dtype, op, skips=data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)),
            threads=data.draw(st.sampled_from([1, 2, 5])), channels=data.draw(st.sampled_from([None, 1, 3])),
            tile_bytes=data.draw(st.sampled_from([1, 64, 300, 1 << 20])),
        )  # fmt: skip
    except UsageError as error:
        assert "in place" in str(error)  # a custom collective whose buffers can't be laid out


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_schedule_of_the_catalogue(name):
    for n in (2, 3, 4):
        try:
            schedule = ALGORITHMS[name](n)
        except UsageError:
            continue
        for in_place in (False, True):
            try:
                program = lower(schedule, in_place=in_place)
            except AlgoccError:
                continue
            count = 1 if schedule.collective.name == "barrier" else 7 * schedule.collective.chunks
            op, dtype = ("land", "bool") if schedule.collective.idempotent else ("sum", "int32")
            check_run(program, count, dtype, op, calls=1, tile_bytes=64, channels=2, skips=(0, 1))


@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize("skips", [(0,), (1,), (3, 0, 2)])
def test_any_alignment(op, dtype, skips):
    """All operands as far from a boundary of 16 bytes, and each as far as it likes; few elements and many."""
    for count in (0, 1, 5, 33, 500):
        for threads in (1, 4):
            check_run(lower(ring(3)), count, dtype, op, skips=skips, threads=threads, tile_bytes=1 << 20)
    check_run(lower(two_shot(3), in_place=True), 500, dtype, op, skips=skips, tile_bytes=256)


@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64"])
def test_bits_are_those_of_the_cpu(dtype):
    """Numbers whose sums are rounded: the same Program gives the same bits, however it is cut."""
    rng = np.random.default_rng(7)
    op = "prod" if dtype == "complex64" else "sum"
    for schedule in (ring(4), one_shot(4), ALGORITHMS["recursive_doubling"](4)):
        program = lower(schedule)
        data = [(rng.standard_normal(2 * 1001) * 1e3).astype(np.float32).view(dtype)[:1001] for _ in range(4)]
        wanted = [np.zeros(1001, dtype) for _ in range(4)]
        with Threads(program, count=1001, dtype=dtype, op=op) as threads:
            threads(data, wanted)
        for channels, tile_bytes in ((1, 1 << 20), (3, 256)):
            with Emulated(
                program, count=1001, dtype=dtype, op=op, driver=ThreadDriver(), threads=4, channels=channels,
                tile_bytes=tile_bytes,
            ) as run:  # fmt: skip
                inputs, outputs = run.buffers()
                for mine, theirs in zip(inputs, data, strict=True):
                    mine.set(theirs)
                run(inputs, outputs)
                for out, want in zip(outputs, wanted, strict=True):
                    assert out.get().tobytes() == want.tobytes()


def test_thousands_of_calls_back_to_back():
    """No reset between them, threads late at random, each with other data."""
    program = lower(ring(3), in_place=True)
    with Emulated(program, count=30, dtype="int32", driver=ThreadDriver(rests=50), threads=2, tile_bytes=64) as run:
        inputs, outputs = run.buffers()
        for k in range(2000):
            for rank, array in enumerate(inputs):
                array.set(np.full(30, k + rank, np.int32))
            run(inputs, outputs)
            assert all((out.get() == 3 * k + 3).all() for out in outputs), k


LEAKY = """
import types, numba, numpy as np
from algocc.kernels import block, grid
from algocc.lowering import lower
from algocc.runtime.cuda import Emulated, ThreadDriver, on_threads
from algocc.schedules.ring import ring

@numba.extending.register_jitable
def join(value):
    block.rest(block.itself())
    return value

P = types.ModuleType("leaky")
P.__dict__.update({name: value for name, value in vars(block).items() if not name.startswith("__")})
P.join = BARRIER
jit = numba.njit(error_model="numpy")
inner = jit(grid.kernel(P, grid.Key("sum", "uint32"), inline=jit))

@numba.njit(nogil=True)
def run(words, blocks):
    block.enter(words)
    inner(blocks)

on_threads.compiled = lambda key: run
for seed in range(2):
    driver = ThreadDriver(rests=3, seed=seed)
    with Emulated(lower(ring(3)), count=3000, dtype="int32", driver=driver, threads=3, tile_bytes=256, timeout=2) as e:
        inputs, outputs = e.buffers()
        for k in range(12):
            for array in inputs:
                array.set(np.full(3000, k, np.int32))
            e(inputs, outputs)
            assert all((out.get() == 3 * k).all() for out in outputs), "wrong"
print("all right")
"""


@pytest.mark.parametrize(("barrier", "fine"), [("block.join", True), ("join", False)])
def test_threads_that_do_not_wait_for_each_other_are_found_out(barrier, fine):
    """A race inside a block shows: without its barriers there are wrong results, a lane that is stuck, or a crash."""
    done = subprocess.run([sys.executable, "-c", LEAKY.replace("BARRIER", barrier)], capture_output=True, text=True)
    assert (done.stdout == "all right\n") is fine, done.stderr[-500:]
    assert (done.returncode == 0) is fine


@pytest.mark.parametrize("start", [2**32 - 2, 2**63 - 3, 2**64 - 2])
def test_counters_wrap(start):
    for program in (lower(ring(3)), lower(ALGORITHMS["ring_reduce_scatter"](3))):
        data = make_inputs(program.collective, 100, "int32")
        wanted = expected(program.collective, data)
        with Emulated(program, count=100, dtype="int32", driver=ThreadDriver(), threads=2, tile_bytes=64) as run:
            inputs, outputs = run.buffers()
            for mine, theirs in zip(inputs, data, strict=True):
                mine.set(theirs)
            run._resume_at(start)
            for _ in range(3):
                run(inputs, outputs)
                assert count_wrong([out.get() for out in outputs], wanted) == 0


def test_a_graph_is_a_call_that_can_be_repeated():
    program = lower(ring(3), in_place=True)
    with Emulated(program, count=30, dtype="int32", driver=ThreadDriver(), threads=2) as run:
        inputs, outputs = run.buffers()
        others = run.buffers()
        graph = run.graph(inputs, outputs)
        for arrays in (inputs, others[0]):
            for array in arrays:
                array.set(np.ones(30, np.int32))
        graph()
        run.wait()
        assert (outputs[0].get() == 3).all()
        run(*others)
        assert (others[1][2].get() == 3).all()
        graph(times=3)
        run.wait()
        assert (outputs[1].get() == 81).all()


@pytest.mark.parametrize("devices", [(0, 0, 1, 1), (0, 1, 0, 1), (3, 2, 1, 0)])
@pytest.mark.parametrize("in_place", [False, True])
def test_ranks_on_several_devices(devices, in_place):
    for schedule in (ring(4), two_shot(4)):
        program = lower(schedule, in_place=in_place)
        data = make_inputs(program.collective, 1003, "int32")
        wanted = expected(program.collective, data)
        with Devices(
            program, count=1003, dtype="int32", devices=devices, driver=ThreadDriver(devices=4), threads=2, tile_bytes=128
        ) as run:
            inputs, outputs = run.buffers()
            assert [a.device for a in inputs] == list(devices)
            for _ in range(3):
                for mine, theirs in zip(inputs, data, strict=True):
                    mine.set(theirs)
                run(inputs, outputs, stream=[7] * len(set(devices)))
                run.wait()
                assert count_wrong([out.get() for out in outputs], wanted) == 0
            with pytest.raises(UsageError, match="a graph is of one device"):
                run.graph(inputs, outputs)


def test_counters_and_scratch_lie_with_the_rank_that_waits():
    program = lower(ALGORITHMS["ring_reduce_scatter"](4))
    assert program.scratch
    driver = ThreadDriver(devices=4)
    with Devices(program, count=64, devices=[0, 1, 2, 3], driver=driver, channels=2, tile_bytes=64, threads=1) as run:
        for site in run._sites:
            device, blocks = site.device, site.arena.address("blocks")
            words = np.zeros((run.shape.channels, at.BLOCK_WORDS), np.int64)
            driver.download(device, blocks, words, 0)
            for c, words_of in enumerate(words):
                waits = np.zeros(run._plan.waits.shape, np.int64)
                driver.download(device, int(words_of[at.WAITS]), waits, 0)
                move = program.move_lane[np.repeat(np.arange(program.moves), np.diff(program.wait_start))]
                for lane, counter in zip(move.tolist(), (waits[:, at.COUNTER] * at.LINE).tolist(), strict=True):
                    assert driver.owner(counter) == run.devices[program.lane_rank[lane]]
                assert [driver.owner(int(a)) for a in run._scratch[c]] == run.devices


class Foreign:
    """An array of another library, over the memory of one of ours."""

    def __init__(self, array, **described):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **described}


class Packed:
    """The same, by DLPack: NumPy's capsule, said to be of a GPU."""

    def __init__(self, array, device=0):
        memory = (ctypes.c_char * (array.size * array.element.size)).from_address(array.address)
        self.view, self.device = np.frombuffer(memory, array.element.numpy), device

    def __dlpack__(self, *, stream=None):
        assert stream is not None and stream > 0
        return self.view.__dlpack__()

    def __dlpack_device__(self):
        return 2, self.device


@pytest.mark.parametrize("wrap", [Foreign, Packed])
def test_arrays_of_other_libraries(wrap):
    program = lower(two_shot(2))
    with Emulated(program, count=9, dtype="float32", driver=ThreadDriver(), threads=2) as run:
        inputs, outputs = run.buffers()
        for array in inputs:
            array.set(np.arange(9, dtype=np.float32))
        run([wrap(a) for a in inputs], [wrap(a) for a in outputs])
        assert outputs[1].get().tolist() == [2 * i for i in range(9)]


def test_bfloat16_comes_as_uint16_from_libraries_that_do_not_know_it():
    with Emulated(lower(one_shot(2)), count=4, dtype="bfloat16", driver=ThreadDriver(), threads=1) as run:
        inputs, outputs = run.buffers()
        for array in inputs:
            array.set(np.ones(4, ELEMENTS["bfloat16"].numpy))
        run([Foreign(a) for a in inputs], outputs)
        assert outputs[0].get().astype(float).tolist() == [2.0] * 4


def run_refused(fault, *, inputs=None, outputs=None, **options):
    driver = ThreadDriver(devices=2)
    with Emulated(lower(one_shot(2)), count=8, dtype="float32", driver=driver, threads=1, **options) as run:
        good = run.buffers()
        with pytest.raises(UsageError, match=fault):
            run(inputs(run, driver) if inputs else good[0], outputs(run, driver) if outputs else good[1])


@pytest.mark.parametrize(
    ("fault", "inputs"),
    [
        ("1 inputs, wanted one for each of 2 ranks", lambda r, d: [r.empty(0, 8)]),
        ("input of rank 1 is a ndarray, wanted an array on a device", lambda r, d: [r.empty(0, 8), np.zeros(8)]),
        ("input of rank 0 has dtype int32, wanted float32", lambda r, d: [Array(d, 0, 8, "int32"), r.empty(0, 8)]),
        ("input of rank 1 has 7 elements, wanted 8", lambda r, d: [r.empty(0, 8), r.empty(0, 7)]),
        ("rank 1 is on device 1, wanted it on device 0", lambda r, d: [r.empty(0, 8), Array(d, 1, 8, "float32")]),
        ("rank 0 is not contiguous", lambda r, d: [Foreign(r.empty(0, 8), strides=(8,)), r.empty(0, 8)]),
        (
            "rank 0 starts at .*, wanted a multiple of 4",
            lambda r, d: [Foreign(a := r.empty(0, 8, skip=1), data=(a.address - 2, False)), r.empty(0, 8)],
        ),
        ("rank 0 is on device 1, wanted it on", lambda r, d: [Packed(r.empty(0, 8), device=1), r.empty(0, 8)]),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(fault, inputs):
    run_refused(fault, inputs=inputs)


def test_outputs_that_do_not_fit():
    run_refused(
        "output of rank 1 is read-only",
        outputs=lambda r, d: [r.empty(0, 8), Foreign(a := r.empty(0, 8), data=(a.address, True))],
    )

    def same(run, driver):
        array = run.empty(0, 8)
        return [array, array]

    run_refused("buffers of ranks 0 and 1 share memory that is written", outputs=same)


def refused(match, program=None, **options):
    with pytest.raises(UsageError, match=match):
        Devices(program or lower(ring(4)), **{"count": 1 << 16, "driver": ThreadDriver(devices=2), **options})


def test_what_can_not_run_is_refused_before_it_is_launched(monkeypatch):
    refused("2 devices, wanted one for each of 4 ranks", devices=[0, 1])
    refused("rank 2: there is no device 2; there are 2", devices=[0, 1, 2, 3])
    refused("no link between them .peer access.", devices=[0, 0, 1, 1], driver=ThreadDriver(devices=2, links={(0, 1)}))
    refused(
        "runs 3 blocks of 32 threads at the same time, 1 on each of 3 processors; 4 lanes in 1 channels are 4: use fewer",
        driver=ThreadDriver(processors=3), threads=32,
    )  # fmt: skip
    refused("4 lanes in 20 channels are 80", channels=20, tile_bytes=64)
    refused("can't promise that all blocks of a launch run at the same time", driver=ThreadDriver(cooperative=False))
    refused("threads=1024: this kernel is compiled for at most 512", threads=1024)
    refused("channels=0: wanted 1 or more", channels=0)
    refused("timeout=0", timeout=0)
    refused("operator bor is not defined for dtype float32", op="bor")

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(UsageError, match="no CUDA driver: libcuda.so.1: .*; install NVIDIA's driver, or run on"):
        CudaDriver()


def test_a_link_is_only_wanted_where_the_program_uses_it():
    steps = Steps(send_recv(3, pairs=[(0, 1)]), name="one way")
    with steps.step():
        steps.copy(src=0, dst=1, chunk=0)
    program = lower(steps.build())
    linked = ThreadDriver(devices=3, links={(0, 1), (1, 0)})
    Devices(program, count=4, devices=[0, 1, 2], driver=linked).close()
    with pytest.raises(UsageError, match="rank [01] on device [01] touches memory of rank [01] on device [01]"):
        Devices(program, count=4, devices=[0, 1, 2], driver=ThreadDriver(devices=3, links={(0, 2), (2, 0)}))


def test_a_lane_that_does_not_come_is_named():
    driver = ThreadDriver()
    run = Emulated(lower(ring(3)), count=30, dtype="int32", driver=driver, threads=2, timeout=0.3, tile_bytes=64)
    inputs, outputs = run.buffers()
    run(inputs, outputs)
    arena = run._sites[0].arena
    words = np.zeros(at.BLOCK_WORDS, np.int64)
    absent = arena.address("blocks") + 8 * at.BLOCK_WORDS * 1
    driver.download(0, absent, words, 0)
    words[at.ITERATIONS] = -1
    driver.upload(0, absent, words, 0)
    with pytest.raises(RunError, match=r"no progress within 0.3 s; stuck: rank 1\n"):
        run(inputs, outputs)
    with pytest.raises(RunError, match="an earlier call failed, make a new one"):
        run(inputs, outputs)
    assert "failed" in repr(run)
    run.close()
    run.close()
    with pytest.raises(UsageError, match="it is closed"):
        run(inputs, outputs)


def test_the_host_can_abort():
    run = Emulated(lower(ring(3)), count=30, dtype="int32", driver=ThreadDriver(), threads=1)
    run.abort()
    with pytest.raises(RunError, match="aborted by the host"):
        run(*run.buffers())
    run.close()


def test_memory_is_given_back():
    driver = ThreadDriver()
    with Emulated(lower(ring(3)), count=30, dtype="int32", driver=driver, threads=1) as run:
        arrays = run.buffers()
        run(*arrays)
    del arrays
    assert not driver._memory


def test_nothing_to_do():
    """No elements; a single rank; a collective that only copies."""
    check_run(lower(ring(3)), 0)
    check_run(lower(ring(1)), 5)
    check_run(lower(ALGORITHMS["ring_all_gather"](3)), 50, "complex128", skips=(0, 1))


def test_names_and_numbers_of_the_driver():
    """What is called directly is called as NVIDIA's own bindings do."""
    cuda = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings, of the extra cuda, are not installed")
    text = Path(driver.__file__).read_text()
    names = {re.sub(r"_v\d$", "", name) for name in re.findall(r"\bcu[A-Z]\w+", text)}
    assert len(names) > 25
    # the headers of CUDA 12 and later call this one cuGraphInstantiate, and the library exports it by its own name
    assert {name for name in names if not hasattr(cuda, name)} == {"cuGraphInstantiateWithFlags"}
    attribute = cuda.CUdevice_attribute
    assert driver._ATTRIBUTES == {
        "processors": attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        "major": attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        "minor": attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        "cooperative": attribute.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
    }
    assert driver._PORTABLE_AND_MAPPED == cuda.CU_MEMHOSTALLOC_PORTABLE | cuda.CU_MEMHOSTALLOC_DEVICEMAP
    assert driver._ALREADY_ENABLED == cuda.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    native = cuda.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
    assert driver._NATIVE_ATOMICS == native
    assert driver._MEMORY_TYPE == cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert driver._DEVICE_ORDINAL == cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert driver._OF_DEVICE == cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    assert driver._NON_BLOCKING == cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
    assert driver._RELAXED == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
