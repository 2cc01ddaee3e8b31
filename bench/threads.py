"""AllReduce on CPU threads against the fused ceiling: two threads that read every input and write every output once.

    python bench/threads.py [--quick]

Goal: at 64 MiB in place, at least 85 % of the ceiling where the Program allows: a rank that reads what another has
just written pays for the way between their caches, which the ceiling never does.

Calls and ceiling take turns, so that both see the same machine. Times are in µs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import numba
import numpy as np

from algocc.collective import all_reduce
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import Threads, bandwidths, count_wrong, expected, in_place_buffers, make_inputs
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring

SIZES = (1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
COLUMNS = (
    "schedule", "n", "mode", "size", "median", "fastest", "slowest", "busbw", "ceiling", "fastest", "of_it", "of_fastest",
    "wrong",
)  # fmt: skip


@numba.njit(nogil=True)
def two(a, b, c, d):
    """c, d ← a + b."""
    for i in range(len(a)):
        c[i] = d[i] = a[i] + b[i]


@numba.njit(nogil=True)
def four(a, b, c, d, e, f, g, h):
    """e, f, g, h ← a + b + c + d."""
    for i in range(len(a)):
        e[i] = f[i] = g[i] = h[i] = a[i] + b[i] + c[i] + d[i]


@numba.njit(nogil=True)
def two_in_place(a, b, c, d):
    """a, b ← a + b."""
    for i in range(len(a)):
        a[i] = b[i] = a[i] + b[i]


@numba.njit(nogil=True)
def four_in_place(a, b, c, d, e, f, g, h):
    """a, b, c, d ← a + b + c + d."""
    for i in range(len(a)):
        a[i] = b[i] = c[i] = d[i] = a[i] + b[i] + c[i] + d[i]


CEILING = {(2, False): two, (4, False): four, (2, True): two_in_place, (4, True): four_in_place}


def fused(n: int, *, in_place: bool) -> Program:
    """By hand: rank r reduces chunk r of all and writes it to all, one Move a rank that waits for no one."""
    rank, peer = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    none, zeros, starts = np.zeros(0, np.int64), np.zeros(n * n, np.int64), np.arange(n + 1)
    return Program(
        name="fused", collective=all_reduce(n, chunks=n), in_place=in_place, scratch=0,
        lane_rank=np.arange(n), lane_start=starts, step=np.zeros(n, np.int64), origin=np.zeros(n, np.int64),
        origins=(), count=np.ones(n, np.int64), like=np.arange(n) * (n + 1), final=np.ones(n, bool),
        src_start=starts * n, src_rank=peer, src_buffer=zeros, src_chunk=rank, src_first=zeros + 1,
        dst_start=starts * n, dst_rank=peer, dst_buffer=zeros + 1, dst_chunk=rank,
        wait_start=starts * 0, wait_counter=none, wait_value=none, wait_lag=none,
        signal_start=starts * 0, signal_counter=none,
        counter_writer=none, counter_waiter=none, counter_total=none,
    )  # fmt: skip


def halves(arrays: list[Any]) -> list[list[Any]]:
    """The first and the second half of every array."""
    middle = len(arrays[0]) // 2
    return [[a[:middle] for a in arrays], [a[middle:] for a in arrays]]


def ceiling(n: int, parts: Any, size: int) -> float:
    """µs of the fused loop on two threads, on average over so many that starting the second does not count."""
    repeat = max(1, (16 << 20) // size)

    def half(arrays: Any) -> float:
        begin = time.perf_counter()
        for _ in range(repeat):
            CEILING[n, True](*arrays)
        return (time.perf_counter() - begin) / repeat * 1e6

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(half, parts[1])
        return max(half(parts[0]), other.result())


def times(calls: list[Callable[[], object]], budget: float) -> list[list[float]]:
    """µs of each call, in turns, 5 to 2000 times each as the budget in seconds allows."""
    for call in calls:
        call()
    begin = time.perf_counter()
    for call in calls:
        call()
    once = max(time.perf_counter() - begin, 1e-7)
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(int(min(2000, max(5, budget / once)))):
        for call, mine in zip(calls, found, strict=True):
            begin = time.perf_counter()
            call()
            mine.append((time.perf_counter() - begin) * 1e6)
    return found


def main(budget: float) -> None:
    print("  ".join(f"{name:>{11 if name == 'of_fastest' else 9}}" for name in COLUMNS))
    with ThreadPoolExecutor(2) as pool:
        for n in (2, 4):
            for size in SIZES:
                for in_place in (False, True):
                    rows(pool, n, size, in_place, budget)


def rows(pool: ThreadPoolExecutor, n: int, size: int, in_place: bool, budget: float) -> None:
    """A line for each schedule."""
    count = size // 4
    collective = all_reduce(n)
    data = make_inputs(collective, count)
    wanted = expected(collective, data)
    inputs, outputs = data, [np.zeros(count, np.float32) for _ in range(n)]
    if in_place:
        inputs, outputs = in_place_buffers(collective, count, "float32")
    parts = halves([*inputs, *outputs])

    def ceiling() -> None:
        for task in [pool.submit(CEILING[n, in_place], *part) for part in parts]:
            task.result()

    programs = [
        fused(n, in_place=in_place),
        lower(ring(n), in_place=in_place),
        lower(two_shot(n), in_place=in_place),
    ]
    if not in_place:
        programs.append(lower(one_shot(n)))
    for program in programs:
        with Threads(program, count=count) as threads:
            for mine, theirs in zip(inputs, data, strict=True):
                mine[:] = theirs
            threads(inputs, outputs)
            wrong = count_wrong(outputs, wanted)
            for array in inputs if in_place else []:
                array[:] = 0
            found, best = times([lambda: threads(inputs, outputs), ceiling], budget)
        _, bus = bandwidths(collective, size, median(found))
        cells = [
            program.name, n, "in" if in_place else "out of", size,
            *(f"{t:.1f}" for t in (median(found), min(found), max(found))), f"{bus:.2f}",
            f"{median(best):.1f}", f"{min(best):.1f}",
            f"{median(best) / median(found):.0%}", f"{min(best) / min(found):.0%}", wrong,
        ]  # fmt: skip
        print("  ".join(f"{cell:>{11 if k == 11 else 9}}" for k, cell in enumerate(cells)), flush=True)


if __name__ == "__main__":
    main(0.1 if "--quick" in sys.argv else 1.0)
