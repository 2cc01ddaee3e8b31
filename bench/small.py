"""Calls of 8 bytes: algocc and MPI in the same processes, in turns and in a row; and what Python costs of a call.

    python bench/small.py [-n 2 -n 4] [-c all_gather] [--size 8] [--other /path/to/another/bin/python] [--alone]

*In turns*: one call of each after a barrier of MPI's, time of the slowest rank. *In a row*: a hundred calls, time of each on
average, which is what the scheduler lets through where there are more ranks than cores. Times are µs, of the fastest and of the
median; ratios say how many times faster algocc is. Arrays are shared, AllReduce is in place. `--alone` needs no MPI: one rank,
which never waits, so that all is Python's part, and how many blocks of memory a call leaves or holds at its peak.

Goals: not slower than MPICH with 2 ranks, faster than all with 4 and 8; Python's part below 5 µs, with nothing allocated.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers import COLLECTIVES, OPEN_MPI, arrays, by_algocc, by_mpi, library, times

ROW = 100
Call = Callable[[], object]


def in_a_row(calls: list[Call], barrier: Call, rounds: int) -> Any:
    """µs of each call on average over ROW of them; shape (rounds, calls)."""
    found = np.empty((rounds, len(calls)))
    for turn in found:
        for k, call in enumerate(calls):
            barrier()
            begin = time.perf_counter()
            for _ in range(ROW):
                call()
            turn[k] = (time.perf_counter() - begin) / ROW * 1e6
    return found


def arrays_of(name: str, size: int, n: int, make: Callable[[int], Any]) -> tuple[Any, Any]:
    """Input and output of a collective whose larger buffer has at least `size` bytes; one array if it is in place."""
    in_place = name in ("all_reduce", "broadcast")
    many = max(size // 4, 1) if in_place else max(size // 4 // n, 1) * n
    parts = [many // n if name == narrow else many for narrow in ("all_gather", "reduce_scatter")]
    return arrays(make, *parts, in_place)


def inner(names: list[str], size: int) -> None:
    """What each rank does."""
    from mpi4py import MPI

    from algocc.runtime import Communicator

    world = MPI.COMM_WORLD
    rank, n = world.Get_rank(), world.Get_size()
    with Communicator.mpi() as comm:
        for name in names:
            x, y = arrays_of(name, size, n, lambda m: np.empty(m, np.float32))
            a, b = arrays_of(name, size, n, comm.empty)
            calls = [by_mpi(name, world, x, y), by_algocc(name, comm, a, b)]
            turns = times(calls, world.Barrier, 1.0, lambda t: world.allreduce(t, op=MPI.MAX))
            rows = in_a_row(calls, world.Barrier, 60)
            cells = []
            for table in (turns, rows):
                found = np.empty_like(table)
                world.Allreduce(table, found, op=MPI.MAX)
                for (mpi, ours) in (found.min(0), np.median(found, 0)):
                    cells.append(f"{mpi:8.1f} {ours:8.1f} ({mpi / ours:4.2f})")
            if rank == 0:
                print(f"{library(MPI):>8}  {n}  {name:>14}  " + "  ".join(cells), flush=True)


def alone(names: list[str], size: int) -> None:
    """One rank: µs of a call, the least of many thousands, and the blocks of memory that it takes."""
    from algocc.runtime import Communicator

    print("one rank, us: arrays seen before   a new output   new arrays   blocks left after 1000 calls   bytes at the peak")
    with Communicator.threads(1)[0] as comm:
        for name in names:
            x, y = arrays_of(name, size, 1, comm.empty)
            method = getattr(comm, name)
            made = [np.zeros(len(x), np.float32) for _ in range(2000)]
            again = by_algocc(name, comm, x, y)
            cells = [fastest(again), fastest(lambda m=method, x=x: m(x)), each(method, made)]
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in range(1000):
                again()
            now, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            print(f"{name:>14}  {cells[0]:14.2f}  {cells[1]:14.2f}  {cells[2]:11.2f}  {now - before:28d}  {peak - before:18d}")


def fastest(call: Call) -> float:
    """µs of a call in the fastest hundred of many."""
    call()
    best = 1e9
    for _ in range(200):
        begin = time.perf_counter()
        for _ in range(100):
            call()
        best = min(best, (time.perf_counter() - begin) * 1e4)
    return best


def each(method: Callable[[Any], object], made: list[Any]) -> float:
    """µs of a call on an array that was never seen, in the fastest fifty."""
    best = 1e9
    for k in range(0, len(made), 50):
        begin = time.perf_counter()
        for x in made[k : k + 50]:
            method(x)
        best = min(best, (time.perf_counter() - begin) * 2e4)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, action="append", help="ranks; 2, 4 and 8 if not given")
    parser.add_argument("-c", "--collective", action="append", choices=COLLECTIVES, help="all if not given")
    parser.add_argument("--size", type=int, default=8, help="bytes of the larger buffer")
    parser.add_argument("--other", action="append", default=[], help="a Python of another environment, with its mpiexec")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = args.collective or list(COLLECTIVES)
    if args.inner:
        inner(names, args.size)
        return
    if args.alone:
        alone(names, args.size)
        return
    print("    peer  n      collective  in turns, fastest       median                  in a row, fastest       median")
    here = OPEN_MPI | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])}
    for python in [sys.executable, *args.other]:
        for n in args.n or (2, 4, 8):
            what = [word for c in names for word in ("-c", c)] + ["--size", str(args.size)]
            command = [str(Path(python).parent / "mpiexec"), "-n", str(n), python, "-m", "mpi4py", __file__, "--inner", *what]
            subprocess.run(command, env=os.environ | here, check=True)


if __name__ == "__main__":
    main()
