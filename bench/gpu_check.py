"""Ranks emulated on one GPU: is every result right, and how near is it to what the memory can do.

    python bench/gpu_check.py [--json FILE] [--seconds 420] [--device 0]
    python bench/gpu_check.py --pretend      the same on CPU threads, smaller: a test of this script, not of a GPU

Every schedule of the catalogue with 2, 3, 4 and 8 ranks; types and operators; odd counts and addresses; ten thousand calls
back to back; graphs; a lane that never comes. Then AllReduce against the roof: bytes that its Moves read and write in a
second, as a part of those of a copy between two places of the device. No goal is set before a GPU has been measured.

Exit code: 0 all right, 1 something is wrong, 2 there is nothing to run on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from algocc.catalog import algorithms
from algocc.errors import AlgoccError, RunError, UsageError
from algocc.kernels import grid, ptx
from algocc.kernels import layout as at
from algocc.kernels.operators import element, operator
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import count_wrong, expected, make_inputs
from algocc.runtime.cuda import Emulated, ThreadDriver, cuda
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring

COLUMNS = ("check", "schedule", "ranks", "type", "op", "count", "runs", "wrong", "µs", "GB/s", "of_roof", "note")
KINDS = [
    ("sum", "int32"), ("sum", "float32"), ("sum", "float64"), ("sum", "bfloat16"), ("sum", "float16"), ("sum", "int8"),
    ("sum", "int64"), ("sum", "complex64"), ("prod", "float32"), ("min", "float32"), ("max", "bfloat16"), ("avg", "float32"),
    ("avg", "int32"), ("band", "uint8"), ("land", "bool"), ("prod", "complex128"),
]  # fmt: skip
FEW = [("sum", "int32"), ("land", "bool")]


class Check:
    """The table, filled row by row, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.driver = ThreadDriver(processors=256) if options.pretend else cuda()
        self.kinds = FEW if options.pretend else KINDS
        self.rows: list[dict[str, Any]] = []
        self.end = time.monotonic() + options.seconds
        self.roof = 0.0

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
    keys = {(None, None)}
    for op, dtype in check.kinds:
        keys.add(grid.key_of(operator(op), element(dtype), reduces=True))
    begin = time.monotonic()
    if not check.options.pretend:
        architecture = check.driver.facts(check.options.device).architecture
        with ProcessPoolExecutor(min(len(keys), os.cpu_count() or 1), get_context("spawn")) as pool:
            for done in [pool.submit(_compile, key, architecture) for key in keys]:
                done.result()
    check.row(check="compile", runs=len(keys), note=f"{time.monotonic() - begin:.1f} s")


def _compile(key: ptx.Key, architecture: str) -> None:
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
        names = []
        for name in sorted(algorithms()):
            for program in programs(name, n):
                c = program.collective
                count = 1 if c.name == "barrier" else 1001 * c.chunks
                op, dtype = ("land", "bool") if c.idempotent else ("sum", "int32")
                found = check.wrong(program, count, op, dtype, skip=runs % 5, tile_bytes=1024)
                runs, wrong = runs + 1, wrong + found
                names += [name] if found else []
        check.row(check="catalogue", schedule="all", ranks=n, runs=runs, wrong=wrong, note=" ".join(names[:5]))


def types(check: Check) -> None:
    """Operators and types, aligned and not, counts around the vectors."""
    for op, dtype in check.kinds:
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
                        run(inputs, outputs, stream=run._streams[check.options.device])
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


def absent(check: Check) -> None:
    """A lane that never comes ends in an error that names it, and the device goes on."""
    run = check.open(lower(ring(3)), 1003, "sum", "int32", timeout=0.5, channels=1)
    arrays = run.buffers()
    arena = run._arenas[check.options.device]
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


def speed(check: Check) -> None:
    """AllReduce of the ranks of one device against a copy."""
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
    for n in (2, 4, 8):
        for schedule in (one_shot(n), two_shot(n), ring(n)):
            for size in (8 << 10, 1 << 20, 64 << 20):
                if time.monotonic() > check.end or (check.options.pretend and size > 8 << 10):
                    continue
                with check.open(lower(schedule, in_place=schedule.name != "one_shot"), size // 4, "sum", "float32") as run:
                    graph = run.graph(*run.buffers())
                    run.measure(graph, times)
                    µs = run.measure(graph, 5 * times)
                    check.row(
                        check="speed", schedule=schedule.name, ranks=n, type="float32", op="sum", count=size // 4,
                        runs=5 * times, note=f"{run.shape.channels} channels of {run.shape.threads} threads",
                        **check.rates(run.traffic, µs),
                    )  # fmt: skip


LINE = "{:16} {:10} {:>5} {:>10} {:>5} {:>10} {:>6} {:>6} {:>10} {:>8} {:>7}  {}"


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the table there too")
    parser.add_argument("--seconds", type=float, default=420.0, help="begin no further check after so many seconds")
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
    steps: list[Callable[[Check], None]] = [compile_all, types, bits, repeat, speed, catalogue, absent]
    failed = None
    for step in steps:
        if time.monotonic() > check.end:
            check.row(check=step.__name__, note="left out: no time")
            continue
        try:
            step(check)
        except AlgoccError as error:
            failed = f"{step.__name__}: {error}"
            check.row(check=step.__name__, wrong=1, note=str(error).splitlines()[0])
    wrong = sum(int(row.get("wrong", 0) or 0) for row in check.rows)
    print(f"{len(check.rows)} rows, {wrong} wrong" + (f"; {failed}" if failed else ""))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": vars(facts), "pretended": options.pretend, "rows": check.rows}, file, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
