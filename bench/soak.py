"""Many random calls, and many ranks that are killed: nothing wrong, nothing left, memory flat.

    python bench/soak.py [--calls 100000] [--slice 10000] [--kills 20] [-n 4] [--threads] [--seed S]

It goes in slices of so many calls, each on new ranks that count calls and tiles from just before a wrap: of 31, 32, 63 or 64
bits. Slice k of seed S is slice 0 of seed S + k, so a long run may be split. Every rank draws the same calls from one seed: collective, count, type, operator, schedule, root, kind of memory, in place or
not, and before some of them sleeps. Every output is compared with NumPy. Then processes are killed at random moments, and
/dev/shm, descriptors, threads and sockets are compared with those before. It exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from algocc.collective import COLLECTIVES
from algocc.errors import RunError
from algocc.runtime import Communicator, count_wrong, expected, make_inputs, spawn
from algocc.runtime.communicator import ROOTED
from algocc.runtime.sweep import candidates

NAMES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "barrier")


LARGE = 0.004
"""Share of calls that are so large that plain arrays take several turns of every set of scratch."""


def resident() -> int:
    """KiB of this process in memory."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])


KINDS = (
    ("int32", "sum"), ("float32", "max"), ("bfloat16", "sum"), ("int8", "avg"), ("float16", "avg"), ("bool", "lor"),
    ("complex64", "prod"), ("uint64", "bxor"), ("float64", "min"),
)  # fmt: skip


def calls(comm: Communicator, number: int, seed: int) -> dict[str, Any]:
    """`number` random calls; how many elements were wrong, and what memory did."""
    draw, own = random.Random(seed), random.Random(f"{seed} {comm.rank}")
    comm._resume_at(2 ** draw.choice((31, 32, 63, 64)) - draw.randrange(1, 1000), wait=True)
    n, r = comm.size, comm.rank
    known = {name: ["auto", *(c for c in candidates(name, n) if "=" not in c)] for name in NAMES}
    data: dict[Any, Any] = {}
    wrong, middle, begin = 0, 0, time.monotonic()
    k = 0
    while k < number:
        k += 1
        name = draw.choice(NAMES)
        count = draw.choice((0, 1, n - 1, n + 1, 7, 100, 1003, 5003)) if draw.random() > LARGE else 2_000_003
        dtype, op = draw.choice(KINDS)
        if (name, op) == ("scan", "avg"):
            dtype, op = "int8", "sum"
        root, schedule = draw.randrange(n), draw.choice(known[name]) if draw.random() < 0.3 else "auto"
        shared, in_place, again = draw.random() < 0.3, draw.random() < 0.4, draw.random() < 0.5
        if own.random() < 0.002:
            time.sleep(own.random() * 1e-3)
        if not middle and k >= number // 2:
            middle = resident()
        if name == "barrier":
            comm.barrier()
            continue
        key = (name, count, dtype, op, root)
        if key not in data:
            if len(data) > 200 or count > 10_000:
                data.clear()
            c = COLLECTIVES[name](n, root=root) if name in ROOTED else COLLECTIVES[name](n)
            inputs = make_inputs(c, count, dtype, op, seed=seed)
            data[key] = c, inputs[r], expected(c, inputs, op)[r]
        c, mine, wanted = data[key]
        make = comm.empty if shared else np.empty
        x = make(len(mine), mine.dtype)
        x[:] = mine
        kwargs: dict[str, Any] = {"schedule": schedule}
        if name in ("all_reduce", "reduce_scatter", "reduce", "scan"):
            kwargs["op"] = op
        if name in ROOTED:
            kwargs["root"] = root
        if name == "broadcast" or (name == "scatter" and r != root):
            out = make(len(wanted), mine.dtype)
            kwargs["out"] = out
            x = x if r == root else None
        elif in_place and name in ("all_reduce", "scan"):
            kwargs["out"] = x
        k += again
        for _ in range(1 + again):
            if kwargs.get("out") is x and x is not None:
                x[:] = mine
            result = getattr(comm, name)(x, **kwargs)
            if c.outputs[r]:
                wrong += count_wrong([result.reshape(-1)], [wanted])
    return {"wrong": wrong, "seconds": time.monotonic() - begin, "grown_kib": resident() - middle}


def victim(comm: Communicator, seed: int) -> None:
    """Calls until one of the ranks kills itself; all others must raise and name it."""
    draw = random.Random(seed)
    dead, last = draw.randrange(comm.size), draw.randrange(5, 200)
    x = comm.empty(draw.choice((10, 100_000)), "int32")
    x[:] = 1
    try:
        for k in range(400):
            if comm.rank == dead and k == last:
                os.kill(os.getpid(), signal.SIGKILL)
            comm.all_reduce(x, "max", out=x)
    except RunError as error:
        if f"rank {dead}: its process" not in str(error):
            raise ValueError(f"rank {dead} is dead, and rank {comm.rank} says: {error}") from error
        raise


def left() -> dict[str, list[str]]:
    """What a process may leave behind, itself or in the machine, by kind."""
    shm = sorted(p.name for p in Path("/dev/shm").iterdir())
    names = sorted(line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "algocc" in line)
    threads = [f"{t.name} {t.ident}" for t in threading.enumerate()]
    return {"descriptors": os.listdir("/proc/self/fd"), "threads": threads, "shared memory": shm, "sockets": names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--slice", type=int, default=10_000, help="calls of one set of ranks")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--threads", action="store_true")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    before = left()
    wrong = 0
    for k, start in enumerate(range(0, args.calls, args.slice)):
        number = min(args.slice, args.calls - start)
        found = spawn(calls, args.n, number, args.seed + k, threads=args.threads, **({} if args.threads else {"start": "fork"}))
        wrong += sum(f["wrong"] for f in found)
        grown = max(f["grown_kib"] for f in found)
        print(f"{start + number} calls of {args.n} ranks, the last {number} in {found[0]['seconds']:.0f} s: {wrong} elements wrong; "
              f"memory of a rank grew by {grown} KiB in the second half", flush=True)  # fmt: skip
    unnamed = 0
    for k in range(args.kills):
        try:
            spawn(victim, args.n, args.seed + k, start="fork", timeout=20)
            unnamed += 1
        except RunError as error:
            unnamed += "ValueError" in str(error) or "ended by signal 9" not in str(error)
            if "ValueError" in str(error):
                print(error)
    behind = {kind: new for kind, now in left().items() if (new := sorted(set(now) - set(before[kind])))}
    print(f"{args.kills} kills: {unnamed} not named by all; left behind: {behind or 'nothing'}")
    return 1 if wrong or unnamed or behind else 0


if __name__ == "__main__":
    sys.exit(main())
