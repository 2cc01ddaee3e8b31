"""One AllReduce of more than 4 GiB a rank: offsets beyond 32 bits, in bytes and in elements.

    python bench/large.py [--gib 4.2] [-n 2] [--schedule auto]

uint8 in place on shared arrays, by sum, which wraps. Random numbers of each rank come again every 2^24 - 3 elements, a prime,
so that no power of two hides a wrong offset; checked on every rank are the first and last elements of every chunk, those around 2^31 and 2^32, and a million at random. It needs as much memory as the
arrays, and some for scratch. Exits with 1 if an element is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from numpy.typing import NDArray

from algocc.runtime import Communicator, spawn

PERIOD = 2**24 - 3


def pattern(rank: int) -> NDArray[np.uint8]:
    """What the elements of a rank are, again and again."""
    return np.random.default_rng(rank).integers(0, 256, PERIOD, np.uint8)


def work(comm: Communicator, count: int, schedule: str, seed: int) -> tuple[float, int, int]:
    """Seconds of the call, elements that were looked at, and how many were wrong."""
    x = comm.empty(count, "uint8")
    mine = pattern(comm.rank)
    for start in range(0, count, PERIOD):
        x[start : start + PERIOD] = mine[: count - start]
    comm.barrier()
    begin = time.perf_counter()
    comm.all_reduce(x, schedule=schedule, out=x)
    seconds = time.perf_counter() - begin
    edges = [j * count // k for k in (comm.size, 2 * comm.size) for j in range(k + 1)] + [2**31, 2**32]
    near = np.concatenate([np.arange(e - 64, e + 64) for e in edges])
    index = np.concatenate([near[(near >= 0) & (near < count)], np.random.default_rng(seed).integers(0, count, 1_000_000)])
    wanted = np.zeros(len(index), np.uint8)
    for rank in range(comm.size):
        wanted += pattern(rank)[index % PERIOD]
    return seconds, len(index), int((x[index] != wanted).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.2)
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--schedule", default="auto")
    args = parser.parse_args()
    count = int(args.gib * 2**30) + 3
    found = spawn(work, args.n, count, args.schedule, 1, timeout=120)
    for rank, (seconds, looked, wrong) in enumerate(found):
        print(f"rank {rank}: {count} uint8 in {seconds:.2f} s, {count / seconds / 1e9:.2f} GB/s; {wrong} of {looked} elements wrong")
    return 1 if any(wrong for _, _, wrong in found) else 0


if __name__ == "__main__":
    sys.exit(main())
