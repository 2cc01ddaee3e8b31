"""AllReduce on CPU threads against the fused ceiling: two threads that read every input and write every output once.

    python bench/threads.py [--quick]

Goal: at 64 MiB in place, at least 85 % of the ceiling. Times are medians in µs, with the fastest and slowest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numba
import numpy as np

from algocc.collective import all_reduce
from algocc.lowering import lower
from algocc.runtime import Threads, bandwidths, count_wrong, expected, in_place_buffers, make_inputs
from algocc.steps import Steps
from algocc.table import Schedule

SIZES = [1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20]
BLOCK = 2048


@numba.njit(nogil=True, cache=True)
def fused(inputs, outputs, begin, end):
    """outputs[·] ← the sum of all inputs, elements begin to end, each read and written once."""
    held = np.empty(BLOCK, np.float32)
    for start in range(begin, end, BLOCK):
        stop = min(start + BLOCK, end)
        add(held, inputs[0][start:stop], inputs[1][start:stop])
        for k in range(2, len(inputs)):
            add(held, held, inputs[k][start:stop])
        for out in outputs:
            move(out[start:stop], held)


@numba.njit(nogil=True, cache=True)
def add(out, a, b):
    for i in range(len(b)):
        out[i] = a[i] + b[i]


@numba.njit(nogil=True, cache=True)
def move(out, a):
    for i in range(len(out)):
        out[i] = a[i]


def ring(n: int) -> Schedule:
    """2(n-1) steps round a ring: reduce each chunk on its way once round, then hand it on once more."""
    s = Steps(all_reduce(n, chunks=n), name="ring")
    s.rule(lambda rank, step, n: ((rank + 1) % n, (rank - step) % n), steps=n - 1, action="reduce")
    s.rule(lambda rank, step, n: ((rank + 1) % n, (rank + 1 - step) % n), steps=n - 1)
    return s.build()


def one_shot(n: int) -> Schedule:
    """One step: everyone reduces everyone's input."""
    s = Steps(all_reduce(n), name="one-shot")
    with s.step():
        for r in range(n):
            for q in range(n):
                if q != r:
                    s.reduce(src=q, dst=r, chunk=0, buffer="in")
    return s.build()


def two_shot(n: int) -> Schedule:
    """Two steps: rank r reduces chunk r of all, then all fetch it."""
    s = Steps(all_reduce(n, chunks=n), name="two-shot")
    r, q = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(n)))
    r, q = r[r != q], q[r != q]
    with s.step():
        s.reduce(src=q, dst=r, chunk=r, buffer="in")
    with s.step():
        s.copy(src=r, dst=q, chunk=r)
    return s.build()


def times(call: Callable[[], object], budget: float) -> list[float]:
    """µs of as many calls as the budget in seconds has room for, 5 to 2000."""
    call()
    begin = time.perf_counter()
    call()
    once = max(time.perf_counter() - begin, 1e-7)
    found = []
    for _ in range(int(min(2000, max(5, budget / once)))):
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e6)
    return found


def main(budget: float) -> None:
    print(f"{'schedule':9} {'n':>2} {'mode':6} {'size':>8} {'median':>9} {'fastest':>9} {'slowest':>9} "
          f"{'busbw':>7} {'ceiling':>9} {'of it':>6} {'wrong':>5}")  # fmt: skip
    for n in (2, 4):
        for size in SIZES:
            count = size // 4
            collective = all_reduce(n)
            data = make_inputs(collective, count)
            wanted = expected(collective, data)
            for in_place in (False, True):
                inputs, outputs = data, [np.zeros(count, np.float32) for _ in range(n)]
                if in_place:
                    inputs, outputs = in_place_buffers(collective, count, "float32")
                halves = ((0, count // 2), (count // 2, count))

                with ThreadPoolExecutor(2) as pool:

                    def ceiling(halves=halves, inputs=inputs, outputs=outputs, pool=pool) -> None:
                        tasks = [pool.submit(fused, tuple(inputs), tuple(outputs), *half) for half in halves]
                        for task in tasks:
                            task.result()

                    best = median(times(ceiling, budget))
                for schedule in (ring, one_shot, two_shot):
                    if schedule is one_shot and in_place:
                        continue
                    with Threads(lower(schedule(n), in_place=in_place), count=count) as threads:
                        for mine, theirs in zip(inputs, data, strict=True):
                            mine[:] = theirs
                        threads(inputs, outputs)
                        wrong = count_wrong(outputs, wanted)
                        found = times(lambda: threads(inputs, outputs), budget)  # noqa: B023
                    middle = median(found)
                    _, bus = bandwidths(collective, size, middle)
                    mode = "in" if in_place else "out of"
                    print(f"{schedule.__name__:9} {n:2} {mode:6} {size:8} {middle:9.1f} {min(found):9.1f} {max(found):9.1f} "
                          f"{bus:7.2f} {best:9.1f} {best / middle:6.0%} {wrong:5}")  # fmt: skip


if __name__ == "__main__":
    main(0.05 if "--quick" in sys.argv else 0.5)
