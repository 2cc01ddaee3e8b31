"""Programs on GPUs: is every result right, and how near is it to what the memory can do.

    python bench/gpu_check.py [--json FILE] [--seconds 450] [--device 0]
    python bench/gpu_check.py --pretend      the same on CPU threads, smaller: a test of this script, not of a GPU

On one device, which emulates the ranks: every schedule of the catalogue with 2, 3, 4 and 8 of them; types and operators; odd
counts and addresses; ten thousand calls back to back; flags beside the data (LL, LL128); graphs; a lane that never comes; two processes over CUDA IPC. Then
against the roof, the bytes that a copy between two places of the device reads and writes in a second: two-shot and ring
AllReduce (goal: 90 % at 256 MiB and more), the reduction of n vectors, also by torch and CuPy where they are there; and the
time of a call of 8 bytes from its launch until it is done (goals: 10 µs, of a graph 6 µs). With several devices, the same
over their links, and NCCL beside it where torch has it; and with multicast, where a switch between them reduces.

Each part has a share of the time and ends with it; what was left out is said. Exit code: 0 all right, 1 something is wrong, 2 there is nothing to run on.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np

from algocc.catalog import algorithms
from algocc.collective import reduce
from algocc.errors import AlgoccError, RunError, UsageError
from algocc.kernels import grid, ptx
from algocc.kernels import layout as at
from algocc.kernels.operators import element, operator
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import count_wrong, expected, make_inputs, measure, spawn
from algocc.runtime.apart import lower_pushed
from algocc.runtime.cuda import Devices, Emulated, ThreadDriver, cuda
from algocc.runtime.cuda.communicator import of_processes
from algocc.schedules.all_pairs import all_pairs_all_gather, all_pairs_reduce_scatter, one_shot, two_shot
from algocc.schedules.ring import ring
from algocc.steps import Steps
from algocc.table import Schedule

COLUMNS = ("check", "schedule", "ranks", "type", "op", "count", "runs", "wrong", "µs", "GB/s", "of_roof", "note")
KINDS = [
    ("sum", "int32"), ("sum", "float32"), ("sum", "float64"), ("sum", "bfloat16"), ("sum", "float16"), ("sum", "int8"),
    ("sum", "int64"), ("sum", "complex64"), ("prod", "float32"), ("min", "float32"), ("max", "bfloat16"), ("avg", "float32"),
    ("avg", "int32"), ("band", "uint8"), ("land", "bool"), ("prod", "complex128"),
]  # fmt: skip
FLAGGED_KINDS = [("sum", "int32"), ("sum", "bfloat16"), ("max", "int8"), ("prod", "complex128")]
FEW = [("sum", "int32"), ("land", "bool")]


class Check:
    """The table, filled row by row, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.driver = ThreadDriver(processors=256, devices=2) if options.pretend else cuda()
        self.kinds = FEW if options.pretend else KINDS
        self.rows: list[dict[str, Any]] = []
        self.start = time.monotonic()
        self.end = self.start + options.seconds
        self.part_end = self.end
        self.roof = 0.0

    def late(self) -> bool:
        """Whether the part at hand has used up its share."""
        return time.monotonic() > self.part_end

    def row(self, **cells: Any) -> None:
        """Print a row and keep it."""
        if not self.rows:
            print(LINE.format(*COLUMNS))
        self.rows.append(cells)
        print(LINE.format(*(_cell(cells.get(c, "")) for c in COLUMNS)), flush=True)

    def rates(self, size: int, µs: float) -> dict[str, float]:
        """The cells of a time; none where there is no clock, as on threads that pretend to be a GPU."""
        return {"µs": µs, "GB/s": size / µs / 1e3, "of_roof": size / µs / 1e3 / self.roof} if µs else {}

    def open(self, program: Program, count: int, op: str, dtype: str, **options: Any) -> Emulated:
        """The program on the device."""
        if self.options.pretend:
            options.setdefault("threads", 2)
        return Emulated(
            program, count=count, op=op, dtype=dtype, device=self.options.device, driver=self.driver,
            **{"timeout": 20, **options},
        )  # fmt: skip

    def wrong(self, program: Program, count: int, op: str, dtype: str, *, skip: int = 0, **options: Any) -> int:
        """Elements that are wrong after two calls."""
        data = make_inputs(program.collective, count, dtype, op)
        wanted = expected(program.collective, data, op)
        with self.open(program, count, op, dtype, **options) as run:
            inputs, outputs = run.buffers(skip=skip)
            found = 0
            for _ in range(2):
                for mine, theirs in zip(inputs, data, strict=True):
                    mine.set(theirs)
                run(inputs, outputs)
                found += count_wrong([out.get() for out in outputs], wanted)
            return found


def compile_all(check: Check) -> None:
    """Every kernel that is needed, on all processors: from then on they come from disk."""
    keys = {grid.Key(None, None)}
    for op, dtype in check.kinds:
        keys.add(grid.key_of(operator(op), element(dtype), reduces=True))
    begin = time.monotonic()
    if not check.options.pretend:
        architecture = check.driver.facts(check.options.device).architecture
        with ProcessPoolExecutor(min(len(keys), os.cpu_count() or 1), get_context("spawn")) as pool:
            for done in [pool.submit(_compile, key, architecture) for key in keys]:
                done.result()
    check.row(check="compile", runs=len(keys), note=f"{time.monotonic() - begin:.1f} s")


def _compile(key: grid.Key, architecture: str) -> None:
    ptx.assembled(key, architecture)


def programs(name: str, n: int) -> Iterator[Program]:
    """A schedule of the catalogue, out of place and in place, where there is such a thing."""
    for in_place in (False, True):
        try:
            yield lower(algorithms()[name](n), in_place=in_place)
        except AlgoccError:
            continue


def catalogue(check: Check) -> None:
    """Every schedule: one row for each number of ranks."""
    for n in (2, 3) if check.options.pretend else (2, 3, 4, 8):
        runs = wrong = 0
        names, left_out = [], 0
        for name in sorted(algorithms()):
            if check.late():
                left_out += 1
                continue
            for program in programs(name, n):
                c = program.collective
                count = 1 if c.name == "barrier" else 1001 * c.chunks
                op, dtype = ("land", "bool") if c.idempotent else ("sum", "int32")
                found = check.wrong(program, count, op, dtype, skip=runs % 5, tile_bytes=1024)
                runs, wrong = runs + 1, wrong + found
                names += [name] if found else []
        note = f"{left_out} schedules left out: no time" if left_out else ""
        check.row(check="catalogue", schedule="all", ranks=n, runs=runs, wrong=wrong, note=" ".join([*names[:5], note]).strip())


def types(check: Check) -> None:
    """Operators and types, aligned and not, counts around the vectors."""
    for op, dtype in check.kinds:
        if check.late():
            check.row(check="types", type=dtype, op=op, note="left out: no time")
            continue
        runs = wrong = 0
        for schedule in (ring(4), two_shot(3), one_shot(8)):
            for in_place in (False, True):
                program = lower(schedule, in_place=in_place)
                for count, skip in ((1, 0), (17, 1), (4099, 0), (4099, 3), (100_003, 1)):
                    if check.options.pretend and count > 100:
                        continue
                    wrong += check.wrong(program, count, op, dtype, skip=skip)
                    runs += 1
        check.row(check="types", schedule="three", type=dtype, op=op, runs=runs, wrong=wrong)


def bits(check: Check) -> None:
    """Rounded sums: the same bits as on the CPU, for the same Program."""
    from algocc.runtime import Threads

    rng = np.random.default_rng(3)
    for dtype in ("float32",) if check.options.pretend else ("float32", "float64"):
        wrong = 0
        for schedule in (ring(4), one_shot(4), algorithms()["recursive_doubling"](4)):
            program = lower(schedule)
            data = [rng.standard_normal(10_007).astype(dtype) for _ in range(4)]
            wanted = [np.zeros(10_007, dtype) for _ in range(4)]
            with Threads(program, count=10_007, dtype=dtype) as threads:
                threads(data, wanted)
            with check.open(program, 10_007, "sum", dtype) as run:
                inputs, outputs = run.buffers()
                for mine, theirs in zip(inputs, data, strict=True):
                    mine.set(theirs)
                run(inputs, outputs)
                wrong += sum(out.get().tobytes() != want.tobytes() for out, want in zip(outputs, wanted, strict=True))
        check.row(check="bits", schedule="three", ranks=4, type=dtype, op="sum", count=10_007, runs=3, wrong=wrong)


def repeat(check: Check) -> None:
    """Ten thousand calls without a reset: enqueued together, by graph, and one by one with new data."""
    times = 300 if check.options.pretend else 10_000
    for schedule in (ring(3), two_shot(3)):
        program = lower(schedule, in_place=True)
        with check.open(program, 1003, "sum", "int32", tile_bytes=256) as run:
            inputs, outputs = run.buffers()
            graph = run.graph(inputs, outputs)
            for how in ("calls", "graph", "waits"):
                for array in inputs:
                    array.set(np.ones(1003, np.int32))
                if how == "calls":
                    for _ in range(times):
                        run(inputs, outputs, stream=run._sites[0].stream)
                elif how == "graph":
                    graph(times)
                else:
                    for _ in range(times):
                        run(inputs, outputs)
                run.wait()
                want = pow(3, times, 2**32)  # each call multiplies by three, which wraps and is never 0
                wrong = sum(int((out.get().view(np.uint32) != want).sum()) for out in outputs)
                check.row(
                    check=f"repeat {how}", schedule=program.name, ranks=3, type="int32", op="sum", count=1003, runs=times,
                    wrong=wrong,
                )  # fmt: skip
    program = lower(ring(3))
    with check.open(program, 1003, "sum", "int32") as run:
        inputs, outputs = run.buffers()
        wrong = 0
        for k in range(times // 10):
            for rank, array in enumerate(inputs):
                array.set(np.full(1003, k + rank, np.int32))
            run(inputs, outputs)
            wrong += sum(int((out.get() != 3 * k + 3).sum()) for out in outputs)
        check.row(check="repeat new data", schedule="ring", ranks=3, type="int32", count=1003, runs=times // 10, wrong=wrong)


def flags(check: Check) -> None:
    """Flags beside the data: right, for types of each width, and for thousands of calls whose slots are used in turns."""
    pretend = check.options.pretend
    times = 300 if pretend else 10_000
    for protocol in ("ll", "ll128"):
        options: dict[str, Any] = {"protocol": protocol, "threads": 16} if pretend else {"protocol": protocol}
        runs = wrong = 0
        for op, dtype in [("sum", "int32")] if pretend else FLAGGED_KINDS:
            for schedule in (one_shot(2),) if pretend else (one_shot(4), two_shot(3), ring(4)):
                program = lower_pushed(schedule, in_place=schedule.name != "one_shot")
                for count, skip in ((1, 0), (17, 1), (1003, 3), (100_003, 0)):
                    if check.late() or (pretend and count > 2000):
                        continue
                    wrong += check.wrong(program, count, op, dtype, skip=skip, **options)
                    runs += 1
        check.row(check=protocol, schedule="three", type="several", runs=runs, wrong=wrong, note="" if runs else "left out: no time")
        for schedule in (one_shot(2),) if pretend else (one_shot(8), ring(3)):
            if check.late():
                continue
            n = schedule.n
            with check.open(lower_pushed(schedule, in_place=True), 1003, "sum", "int32", tile_bytes=1024, **options) as run:
                inputs, outputs = run.buffers()
                for array in inputs:
                    array.set(np.arange(1003, dtype=np.int32) | 1)
                run.graph(inputs, outputs)(times)
                run.wait()
                want = (np.arange(1003, dtype=np.uint64) | 1) * np.uint64(pow(n, times, 2**32)) % np.uint64(2**32)
                bad = sum(int((out.get().view(np.uint32) != want).sum()) for out in outputs)
            check.row(
                check=f"repeat {protocol}", schedule=schedule.name, ranks=n, type="int32", op="sum", count=1003, runs=times,
                wrong=bad,
            )  # fmt: skip


def absent(check: Check) -> None:
    """A lane that never comes ends in an error that names it, and the device goes on."""
    run = check.open(lower(ring(3)), 1003, "sum", "int32", timeout=0.5, channels=1)
    arrays = run.buffers()
    arena = run._sites[0].arena
    words = np.zeros(at.BLOCK_WORDS, np.int64)
    place = arena.address("blocks") + 8 * at.BLOCK_WORDS
    check.driver.download(check.options.device, place, words, 0)
    words[at.ITERATIONS] = -1
    check.driver.upload(check.options.device, place, words, 0)
    try:
        run(*arrays)
        said = "no error"
    except RunError as error:
        said = str(error).splitlines()[0]
    run.close()
    check.row(check="absent lane", schedule="ring", ranks=3, runs=1, wrong=int("stuck: rank 1" not in said), note=said)


def processes(check: Check) -> None:
    """Two processes, each with its own context, on one device, over CUDA IPC; they take turns on it, so it is slow."""
    options = check.options
    try:
        found = spawn(_in_process, 2, options.device, options.pretend, timeout=60.0)
    except AlgoccError as error:
        check.row(check="CUDA IPC", ranks=2, runs=1, wrong=1, note=str(error).splitlines()[0])
        return
    runs, wrong = (sum(column) for column in zip(*found, strict=True))
    check.row(check="CUDA IPC", schedule="three", ranks=2, type="int32", op="sum", runs=runs, wrong=wrong)


def _in_process(control: Any, device: int, pretend: bool) -> tuple[int, int]:
    """Calls of one rank, and the elements that are wrong."""
    driver = ThreadDriver() if pretend else cuda()
    runs = wrong = 0
    with of_processes(control, device, pool_bytes=64 << 20, driver=driver) as comm:
        for name in ("ring", "two_shot", "one_shot"):
            s = algorithms()[name](2)
            for count in (1, 4099) if pretend else (1, 4099, 1_000_003):
                data = make_inputs(s.collective, count, "int32")
                x, out = comm.empty(count, "int32"), comm.empty(count, "int32")
                x.set(data[comm.rank])
                for _ in range(3 if pretend else 20):
                    comm.all_reduce(x, schedule=s, out=out, stream=x.stream)
                    runs += 1
                comm.wait()
                wrong += count_wrong([out.get()], [expected(s.collective, data)[comm.rank]])
    return runs, wrong


def roof(check: Check) -> None:
    """What a copy between two places of the device reads and writes in a second."""
    device, driver = check.options.device, check.driver
    size = 1 << 20 if check.options.pretend else 1 << 30
    times = 1 if check.options.pretend else 10
    a, b, stream = driver.allocate(device, size), driver.allocate(device, size), driver.stream(device)
    begin, end = driver.event(device), driver.event(device)
    for _ in range(2):
        driver.record(device, begin, stream)
        for _ in range(times):
            driver.copy(device, a, b, size, stream)
        driver.record(device, end, stream)
        driver.synchronize(device, stream)
    µs = driver.elapsed(begin, end) * 1e3 / times
    driver.free(device, a)
    driver.free(device, b)
    check.roof = 2 * size / µs / 1e3 if µs else 0.0
    check.row(check="roof: copy", count=size, runs=times, **check.rates(2 * size, µs))


def speed(check: Check) -> None:
    """AllReduce of the ranks of one device against a copy: large first, where the goal is."""
    times = 1 if check.options.pretend else 10
    for size in (8 << 10,) if check.options.pretend else (256 << 20, 1 << 30, 64 << 20, 1 << 20, 8 << 10):
        for n in (2, 4, 8):
            for schedule in (two_shot(n), ring(n), one_shot(n)):
                program = lower(schedule, in_place=schedule.name != "one_shot")
                for form in forms() if size <= 1 << 20 else [{}]:
                    if check.late():
                        check.row(check="speed", schedule=schedule.name, ranks=n, count=size // 4, note="left out: no time")
                        continue
                    with check.open(program, size // 4, "sum", "float32", **form) as run:
                        graph = run.graph(*run.buffers())
                        run.measure(graph, times)
                        µs = run.measure(graph, times if size >= 256 << 20 else 5 * times)
                        shape = f"{run.shape.channels} channels of {run.shape.threads} threads"
                        goal = verdict(check.roof and run.traffic / µs / 1e3 / check.roof >= 0.9, "90 %") if (
                            µs and size >= 256 << 20 and schedule.name != "one_shot"
                        ) else ""  # fmt: skip
                        check.row(
                            check="speed", schedule=schedule.name, ranks=n, type="float32", op="sum", count=size // 4,
                            runs=5 * times, note=" ".join(filter(None, [*form.values(), shape, goal])),
                            **check.rates(run.traffic, µs),
                        )  # fmt: skip


def verdict(reached: object, goal: str) -> str:
    """Whether a goal is reached, in words."""
    return f"goal {goal} {'reached' if reached else 'MISSED'}"


def forms() -> list[dict[str, str]]:
    """The ways there are to run a Program: as a table that one kernel reads, and as code of its own."""
    if "form" not in inspect.signature(Devices.__init__).parameters:
        return [{}]
    return [{"form": "interpreted"}, {"form": "generated"}]


def ways(n: int, pretend: bool) -> list[dict[str, Any]]:
    """Those, and the protocols with flags beside the data."""
    options: dict[str, Any] = {"threads": 16} if pretend else {}
    flagged = [{"protocol": protocol, **options} for protocol in ("ll", "ll128")]
    return [*forms(), *(flagged if n == 2 or not pretend else [])]


def star(n: int) -> Schedule:
    """Rank 0 reduces all vectors at once: one Move that reads n and writes one."""
    s = Steps(reduce(n, root=0), name="star")
    with s.step():
        for rank in range(1, n):
            s.reduce(src=rank, dst=0, chunk=0)
    return s.build()


def n_way(check: Check) -> None:
    """The sum of n vectors as one Move of one rank's lane, and by other libraries where they are there."""
    count = (1 << 12) if check.options.pretend else (64 << 20)
    times = 1 if check.options.pretend else 10
    for n in (2, 4, 8):
        if check.late():
            check.row(check="n-way", ranks=n, note="left out: no time")
            continue
        program = lower(star(n))
        with check.open(program, count, "sum", "float32") as run:
            graph = run.graph(*run.buffers())
            run.measure(graph, times)
            µs = run.measure(graph, times)
            check.row(
                check="n-way", schedule=program.name, ranks=n, type="float32", op="sum", count=count, runs=times,
                note=f"{run.traffic >> 20} MiB", **check.rates(run.traffic, µs),
            )  # fmt: skip
        for name, µs in peers(check, n, count, times):
            check.row(check="n-way", schedule=name, ranks=n, count=count, runs=times, **check.rates(4 * count * (n + 1), µs))


def peers(check: Check, n: int, count: int, times: int) -> Iterator[tuple[str, float]]:
    """µs of the sum of n vectors by torch and by CuPy; each reads the vectors once and writes one."""
    if check.options.pretend:
        return
    with contextlib.suppress(ImportError):
        import torch

        where = f"cuda:{check.options.device}"
        x, out = torch.ones((n, count), device=where), torch.empty(count, device=where)
        torch.sum(x, 0, out=out)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            torch.sum(x, 0, out=out)
        end.record()
        end.synchronize()
        yield "torch", begin.elapsed_time(end) * 1e3 / times
        del x, out
        torch.cuda.empty_cache()
    with contextlib.suppress(ImportError):
        import cupy

        with cupy.cuda.Device(check.options.device):
            y, target = cupy.ones((n, count), cupy.float32), cupy.empty(count, cupy.float32)
            cupy.sum(y, 0, out=target)
            first, last = cupy.cuda.Event(), cupy.cuda.Event()
            first.record()
            for _ in range(times):
                cupy.sum(y, 0, out=target)
            last.record()
            last.synchronize()
            yield "cupy", cupy.cuda.get_elapsed_time(first, last) * 1e3 / times


def latency(check: Check) -> None:
    """8 bytes a rank: from the launch until the host knows that it is done, and of each of many graphs in a row."""
    times = 5 if check.options.pretend else 1000
    for n in (2, 4, 8):
        for schedule in (one_shot(n), two_shot(n), ring(n)):
            for form in ways(n, check.options.pretend):
                if check.late():
                    check.row(check="latency", schedule=schedule.name, ranks=n, note="left out: no time")
                    continue
                program = lower_pushed(schedule) if "protocol" in form else lower(schedule)
                with check.open(program, 2, "sum", "float32", **form) as run:
                    arrays = run.buffers()
                    graph = run.graph(*arrays)
                    for how, call in (("call", lambda run=run, arrays=arrays: run(*arrays)), ("graph", graph)):
                        for _ in range(3):
                            call()
                        run.wait()
                        taken = []
                        for _ in range(times):
                            begin = time.perf_counter_ns()
                            call()
                            run.wait()
                            taken.append((time.perf_counter_ns() - begin) / 1e3)
                        note = " ".join(str(v) for v in form.values())
                        if schedule.name == "one_shot" and not check.options.pretend:
                            goal = 10 if how == "call" else 6
                            note += " " + verdict(median(taken) < goal, f"{goal} µs")
                        check.row(
                            check=f"latency {how}", schedule=schedule.name, ranks=n, type="float32", op="sum", count=2,
                            runs=times, note=note.strip(), **({} if check.options.pretend else {"µs": median(taken)}),
                        )  # fmt: skip


def several(check: Check) -> None:
    """A rank on each device: right, and how fast, with NCCL beside it where torch has it."""
    n = check.driver.count()
    if n < 2:
        check.row(check="devices", note=f"{n} device: nothing to compare over links")
        return
    sizes = (8 << 10,) if check.options.pretend else (8, 64 << 10, 1 << 20, 64 << 20, 256 << 20)
    for size in sizes:
        for schedule in (one_shot(n), two_shot(n), ring(n)):
            if check.late():
                check.row(check="devices", schedule=schedule.name, ranks=n, count=size // 4, note="left out: no time")
                continue
            program = lower(schedule)
            data = make_inputs(program.collective, size // 4, "float32")
            options = {"threads": 2} if check.options.pretend else {}
            with Devices(program, count=size // 4, devices=list(range(n)), driver=check.driver, timeout=20, **options) as run:
                inputs, outputs = run.buffers()
                for mine, theirs in zip(inputs, data, strict=True):
                    mine.set(theirs)
                timing = measure(run, inputs, outputs, iters=20)
                wrong = count_wrong([out.get() for out in outputs], expected(program.collective, data))
            check.row(
                check="devices", schedule=schedule.name, ranks=n, type="float32", op="sum", count=size // 4, runs=20,
                wrong=wrong, note=f"busbw {timing.busbw:.1f} GB/s",
                **({} if check.options.pretend else {"µs": timing.median}),
            )  # fmt: skip
        nccl(check, n, size)


def switch(check: Check) -> None:
    """The same with multicast, where the devices are at a switch that reduces: right, and how fast."""
    n = check.driver.count()
    sizes = (8 << 10,) if check.options.pretend else (8 << 10, 1 << 20, 64 << 20, 256 << 20)
    options = {"threads": 2} if check.options.pretend else {}
    times = 2 if check.options.pretend else 20
    for size in sizes:
        for dtype in ("int32", "float32", "bfloat16"):
            for schedule in (one_shot(n), two_shot(n), all_pairs_reduce_scatter(n), all_pairs_all_gather(n)):
                if check.late():
                    check.row(check="multicast", schedule=schedule.name, ranks=n, note="left out: no time")
                    continue
                program = lower(schedule)
                count = size // element(dtype).size // (1 if schedule.collective.name == "all_reduce" else n)
                data = make_inputs(program.collective, count, dtype)
                try:
                    run = Devices(
                        program, count=count, dtype=dtype, devices=list(range(n)), multicast=True, driver=check.driver, timeout=20,
                        **options,
                    )  # fmt: skip
                except UsageError as error:
                    check.row(check="multicast", schedule=schedule.name, ranks=n, type=dtype, note=f"skipped: {error}")
                    if n < 2 or not check.driver.multicast(0):
                        return
                    continue
                with run:
                    inputs, outputs = run.buffers()
                    for mine, theirs in zip(inputs, data, strict=True):
                        mine.set(theirs)
                    timing = measure(run, inputs, outputs, iters=times)
                    wrong = count_wrong([out.get() for out in outputs], expected(program.collective, data))
                check.row(
                    check="multicast", schedule=schedule.name, ranks=n, type=dtype, op="sum", count=count, runs=times, wrong=wrong,
                    note=f"busbw {timing.busbw:.1f} GB/s" + ("" if run.bitwise else ", not fixed to the bit"),
                    **({} if check.options.pretend else {"µs": timing.median}),
                )  # fmt: skip


def nccl(check: Check, n: int, size: int) -> None:
    """AllReduce by NCCL, as torch calls it for the devices of one process."""
    if check.options.pretend:
        return
    try:
        import torch
        from torch.cuda import nccl as torch_nccl
    except ImportError:
        check.row(check="NCCL", count=size // 4, note="torch is not installed")
        return
    arrays = [torch.ones(size // 4, device=f"cuda:{d}") for d in range(n)]
    taken = []
    for _ in range(22):
        begin = time.perf_counter_ns()
        torch_nccl.all_reduce(arrays)
        for d in range(n):
            torch.cuda.synchronize(d)
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    µs = median(taken[2:])
    note = f"busbw {size / µs / 1e3 * 2 * (n - 1) / n:.1f} GB/s"
    check.row(check="NCCL", ranks=n, type="float32", op="sum", count=size // 4, runs=20, note=note, **{"µs": µs})


PARTS: list[tuple[Callable[[Check], None], float]] = [
    (compile_all, 0.15), (types, 0.1), (bits, 0.02), (repeat, 0.1), (flags, 0.1), (absent, 0.02), (processes, 0.1), (roof, 0.01),
    (speed, 0.2), (n_way, 0.05), (latency, 0.05), (several, 0.1), (switch, 0.1), (catalogue, 0.25),
]  # fmt: skip
"""What is done, in this order, and the part of the time that it may take; what one does not need, the later ones have."""

LINE = "{:16} {:10} {:>5} {:>10} {:>5} {:>10} {:>6} {:>6} {:>10} {:>8} {:>7}  {}"


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the table there too")
    parser.add_argument("--seconds", type=float, default=450.0, help="of all parts together")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--pretend", action="store_true", help="run on CPU threads: a test of this script, not of a GPU")
    options = parser.parse_args()
    try:
        check = Check(options)
        facts = check.driver.facts(options.device)
        if not options.pretend and ptx.missing():
            raise UsageError(f"kernels can't be compiled: {ptx.missing()}")
    except AlgoccError as error:
        print(f"nothing to check: {error}", file=sys.stderr)
        return 2
    print(f"{facts.name}, {facts.architecture}, {facts.processors} processors, {facts.memory / 2**30:.0f} GiB")
    failed = None
    for step, share in PARTS:
        left = check.end - time.monotonic()
        check.part_end = min(check.end, time.monotonic() + share * options.seconds)
        if left <= 0:
            check.row(check=step.__name__, note="left out: no time")
            continue
        try:
            step(check)
        except AlgoccError as error:
            failed = f"{step.__name__}: {error}"
            check.row(check=step.__name__, wrong=1, note=str(error).splitlines()[0])
    wrong = sum(int(row.get("wrong", 0) or 0) for row in check.rows)
    print(f"{len(check.rows)} rows, {wrong} wrong, {time.monotonic() - check.start:.0f} s" + (f"; {failed}" if failed else ""))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": vars(facts), "pretended": options.pretend, "rows": check.rows}, file, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
