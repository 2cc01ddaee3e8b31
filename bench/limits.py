"""The machine's floor under a collective: memory bandwidth, the fused ceiling, and how fast two processes hear of each other.

    python bench/limits.py [--quick]

The fused ceiling is two threads in one address space that read every input and write every output once and wait for no
one. Against it stands AllReduce of algocc in place on shared arrays of processes, in rows of ten calls, in turns. The last
lines are how fast one core reads what another has just written, which a virtual machine may change from one minute to the
next, half the round trip of a word between two threads, and between two processes the gate alone (barrier) and 8 B of AllReduce.
Goal: at least 85 % of the ceiling in place from 1 MiB up. Times are in µs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numba
import numpy as np
from threads import CEILING, ceiling, halves

from algocc.kernels import cpu
from algocc.runtime import Communicator, spawn

SIZES = (64 << 10, 1 << 20, 16 << 20, 64 << 20)
ROW = 10

WAKE = os.pipe()
"""Where the other ranks sleep while two threads of the first are the ceiling."""


def best(call: Callable[[], object], budget: float) -> tuple[float, float]:
    """µs of the fastest and the median call."""
    call()
    found, end = [], time.perf_counter() + budget
    while time.perf_counter() < end or len(found) < 3:
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e6)
    return min(found), median(found)


@numba.njit(nogil=True)
def ping(mine, theirs, rounds):
    """Set one word, wait for the other, `rounds` times."""
    for k in range(1, rounds + 1):
        cpu.store_release(mine, np.uint64(k))
        while cpu.load_acquire(theirs) < np.uint64(k):
            pass


@numba.njit(nogil=True)
def pong(mine, theirs, rounds):
    """Wait for the other, then set one word, `rounds` times."""
    for k in range(1, rounds + 1):
        while cpu.load_acquire(theirs) < np.uint64(k):
            pass
        cpu.store_release(mine, np.uint64(k))


@numba.njit(nogil=True)
def write(mine, theirs, data, rounds):
    """Write all data, say so, wait until they are read."""
    for k in range(1, rounds + 1):
        data[:] = k
        cpu.store_release(mine, np.uint64(k))
        while cpu.load_acquire(theirs) < np.uint64(k):
            pass


@numba.njit(nogil=True)
def read(mine, theirs, data, rounds):
    """Wait until all data are written, read them, say so."""
    total = 0
    for k in range(1, rounds + 1):
        while cpu.load_acquire(theirs) < np.uint64(k):
            pass
        for x in data:
            total += x
        cpu.store_release(mine, np.uint64(k))
    return total


def handed_over(size: int, budget: float) -> tuple[float, float]:
    """µs to write so many bytes on one thread and read them on another: the fastest and the median row."""
    words, data = np.zeros(64, np.uint64), np.zeros(size // 8, np.int64)
    a, b = words.ctypes.data, words.ctypes.data + 256
    found, end = [], time.perf_counter() + budget
    while time.perf_counter() < end or len(found) < 4:
        words[:] = 0
        other = threading.Thread(target=read, args=(b, a, data, ROW))
        other.start()
        begin = time.perf_counter()
        write(a, b, data, ROW)
        found.append((time.perf_counter() - begin) / ROW * 1e6)
        other.join()
    return min(found[1:]), median(found[1:])


def one_way() -> float:
    """µs for a word from one thread to another."""
    words = np.zeros(64, np.uint64)
    a, b = words.ctypes.data, words.ctypes.data + 256
    found = []
    for rounds in (1, *[2000] * 15):
        words[:] = 0
        other = threading.Thread(target=pong, args=(b, a, rounds))
        other.start()
        begin = time.perf_counter()
        ping(a, b, rounds)
        found.append((time.perf_counter() - begin) / rounds / 2 * 1e6)
        other.join()
    return min(found[1:])


def memory(budget: float) -> None:
    print("memcpy, one thread")
    for size in SIZES:
        a, b = np.zeros(size, np.uint8), np.ones(size, np.uint8)
        fastest, middle = best(lambda a=a, b=b: np.copyto(a, b), budget / 4)
        print(f"  {size:>10} B  {fastest:>9.1f} fastest {middle:>9.1f} median   {size / fastest / 1e3:>6.2f} GB/s read and as much written")


def ranks(comm: Communicator, sizes: tuple[int, ...], budget: float) -> list[Any]:
    """Every rank times AllReduce in place; in between two threads of rank 0 are the ceiling, and the others sleep."""
    n, rows = comm.size, []
    for size in sizes:
        count = size // 4
        x = comm.empty(count)
        x[:] = 0
        parts = halves([np.zeros(count, np.float32) for _ in range(n)] * 2) if comm.rank == 0 else None
        for part in parts or []:
            CEILING[n, True](*part)
        found: list[list[float]] = [[], []]
        comm.all_reduce(x, out=x)
        begin = time.perf_counter()
        comm.all_reduce(x, out=x)
        once = comm.all_reduce(np.array([time.perf_counter() - begin]), "max")[0]
        for _ in range(int(min(100, max(5, budget / max(once, 1e-6) / ROW)))):
            comm.barrier()
            begin = time.perf_counter()
            for _ in range(ROW):
                comm.all_reduce(x, out=x)
            found[0].append((time.perf_counter() - begin) / ROW * 1e6)
            comm.barrier()
            if comm.rank == 0:
                found[1].append(sum(ceiling(n, parts, size) for _ in range(ROW)) / ROW)
                os.write(WAKE[1], bytes(n - 1))
            else:
                os.read(WAKE[0], 1)
        comm.barrier()
        rows.append((size, min(found[0]), median(found[0]), min(found[1], default=0.0), median(found[1] or [0.0])))
    return rows


def latency(comm: Communicator, calls: int) -> tuple[float, float]:
    x = comm.empty(2)
    x[:] = 0
    found = []
    for call in (comm.barrier, lambda: comm.all_reduce(x, out=x)):
        fastest = np.inf
        for _ in range(10):
            comm.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            fastest = min(fastest, (time.perf_counter() - begin) / calls * 1e6)
        found.append(fastest)
    return found[0], found[1]


def main(budget: float) -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    memory(budget)
    for n in (2, 4):
        print(f"AllReduce float32 in place on shared arrays of {n} processes, and the fused ceiling of 2 threads")
        for size, fastest, middle, top, top_middle in spawn(ranks, n, SIZES, budget, start="fork")[0]:
            print(
                f"  {size:>10} B  {fastest:>9.1f} fastest {middle:>9.1f} median   ceiling {top:>9.1f} {top_middle:>9.1f}   "
                f"of it {top / fastest:>5.0%} fastest {top_middle / middle:>5.0%} median"
            )
    for size in SIZES[:2]:
        fastest, middle = handed_over(size, budget / 4)
        print(f"{size} B, written by one core and read by another  {fastest:.1f} fastest {middle:.1f} median")
    print(f"a word from thread to thread  {one_way():.2f}")
    gate, eight = spawn(latency, 2, 1000, start="fork")[0]
    print(f"barrier of 2 processes        {gate:.2f}\nAllReduce of 8 B, 2 processes {eight:.2f}")


if __name__ == "__main__":
    main(0.2 if "--quick" in sys.argv else 1.5)
