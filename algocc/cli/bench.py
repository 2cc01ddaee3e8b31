"""`algocc bench`: the table of nccl-tests, for ranks that are threads, processes, MPI's, or GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from algocc.bounds import canonical
from algocc.cli import gpu, options, source
from algocc.cli.output import progress, say_json
from algocc.cli.plot import check_plot
from algocc.errors import UsageError, counted
from algocc.kernels.operators import element, operator
from algocc.runtime import Communicator, spawn
from algocc.runtime.launch import run_threads
from algocc.runtime.sweep import Row, check_swept, collective_of, sweep
from algocc.runtime.threads import check_reduction
from algocc.table import Schedule

BACKENDS = ("threads", "processes", "mpi", "cuda")
UNDER_MPIEXEC = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables of which mpiexec sets one to the rank."""


def mpi_rank() -> int | None:
    """The rank that mpiexec gave this process, None without mpiexec."""
    found = [os.environ[v] for v in UNDER_MPIEXEC if os.environ.get(v, "").isdigit()]
    return int(found[0]) if found else None


@click.command("bench", help="Time a collective over a range of sizes, as nccl-tests does, and check every element.")
@click.argument("collective")
@options.one_n
@click.option("-b", "begin", type=options.byte_count, metavar="SIZE", default="8", show_default=True, help="Smallest size.")
@click.option("-e", "end", type=options.byte_count, metavar="SIZE", default="64M", show_default=True, help="Largest size.")
@click.option("-f", "factor", type=click.FloatRange(min=1, min_open=True), default=4, show_default=True, help="From one size to the next.")
@click.option("--schedule", default="auto", show_default=True, help="A name, file.py:function, or a table in a file.")
@click.option("--backend", type=click.Choice(BACKENDS), help="What ranks are: processes, or under mpiexec MPI's; cuda: GPUs, one for each process under mpiexec.")
@options.devices
@options.protocol
@click.option("--memory", type=click.Choice(("shared", "plain")), default="shared", show_default=True, help="Arrays that peers reach directly, or any.")
@click.option("--dtype", default="float32", show_default=True, help="Element type, as NumPy calls it, or bfloat16.")
@click.option("--op", default="sum", show_default=True, help="Reduction operator.")
@click.option("--root", type=click.IntRange(min=0), default=0, show_default=True, help="Root, where there is one.")
@click.option("--iters", type=click.IntRange(min=1), default=20, show_default=True, help="Calls that are timed, of each size.")
@click.option("--timeout", type=click.FloatRange(0, 1e9, min_open=True, max_open=True), default=30.0, show_default=True, help="Seconds to wait for a stuck rank.")
@options.params
@click.option("--plot", type=click.Path(path_type=Path), help="Draw bandwidth over size: .svg, .png or .pdf.")
@options.as_json
def bench_command(
    collective: str, n: int | None, begin: int, end: int, factor: float, schedule: str, backend: str | None,
    devices: list[int] | None, protocol: str | None, memory: str,
    dtype: str, op: str, root: int, iters: int, timeout: float, params: tuple[tuple[str, Any], ...], plot: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    try:
        return _bench(
            collective, n, begin, end, factor, schedule, backend, devices, protocol, memory, dtype, op, root, iters, timeout, params, plot,
            as_json,
        )  # fmt: skip
    except UsageError as error:
        if mpi_rank():  # rank 0 says it, once
            return error.exit_code
        raise


def _bench(
    collective: str, n: int | None, begin: int, end: int, factor: float, schedule: str, backend: str | None,
    devices: list[int] | None, protocol: str | None, memory: str,
    dtype: str, op: str, root: int, iters: int, timeout: float, params: tuple[tuple[str, Any], ...], plot: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    name = canonical(collective)
    check_swept(name)
    element(dtype), operator(op)
    if plot is not None:
        check_plot(plot, name)
    backend = backend or ("processes" if mpi_rank() is None else "mpi")
    sizes = steps(begin, end, factor)
    kwargs: dict[str, Any] = {"dtype": dtype, "op": op, "root": root, "iters": iters, "shared": memory == "shared"}
    gpu.check_devices(devices, backend, protocol)
    where = f"{backend} on {os.cpu_count()} cores, {memory} memory"
    if backend == "mpi" or (backend == "cuda" and mpi_rank() is not None):
        on = "cuda" if backend == "cuda" else "cpu"
        with Communicator.mpi(timeout=timeout, backend=on, device=_mine(devices), protocol=protocol) as comm:
            if n is not None and n != comm.size:
                raise UsageError(f"-n {n}: mpiexec has started {counted(comm.size, 'rank')}")
            ranks, first = comm.size, comm.rank == 0
            check_reduction(collective_of(name, ranks, root), operator(op), element(dtype))
            rows = sweep(comm, name, sizes, schedule=_schedule(schedule, ranks, name, root, params), **kwargs)
            where = "processes, each on its GPU" if backend == "cuda" else where
    elif backend == "cuda":
        ranks, first = n or 2, True
        places = gpu.place(ranks, devices)
        where = gpu.on_devices(places)
        chosen = _schedule(schedule, ranks, name, root, params)
        comms = Communicator.threads(ranks, timeout=timeout, backend="cuda", devices=places, protocol=protocol)
        with progress(f"timing {name} on {where}"):
            rows = run_threads(_measure, comms, name, sizes, chosen, kwargs)[0]
    else:
        ranks, first = n or 2, True
        check_reduction(collective_of(name, ranks, root), operator(op), element(dtype))
        chosen = _schedule(schedule, ranks, name, root, params)
        with progress(f"timing {name} on {ranks} {backend}"):
            rows = spawn(_measure, ranks, name, sizes, chosen, kwargs, threads=backend == "threads", timeout=timeout)[0]
    if not first:
        return 0
    c = collective_of(name, ranks, root)
    if not rows:
        raise UsageError(f"-e {end}: no size holds one {dtype} for each of {c.vector} blocks; use {c.vector * element(dtype).size} or more")
    if plot is not None:
        draw(plot, rows, f"{name}, {ranks} {backend}", c)
    wrong = sum(r.out_of_place_wrong + (r.in_place_wrong or 0) for r in rows)
    if as_json:
        facts = {"collective": name, "n": ranks, "backend": backend, "memory": memory, "dtype": dtype, "op": op, "root": root}
        say_json(facts | {"rows": [r.json(c) for r in rows], "wrong": wrong})
    else:
        click.echo(table(rows, c, dtype, op if c.reduces else "none", root if c.params else -1))
        many = counted(ranks, "rank")
        click.echo(f"# {many} {'on' if backend == 'cuda' else 'as'} {where}; time of a call on average")
    return 1 if wrong else 0


def _measure(comm: Communicator, name: str, sizes: Sequence[int], schedule: Any, kwargs: dict[str, Any]) -> list[Row]:
    return sweep(comm, name, sizes, schedule=schedule, **kwargs)


def _mine(devices: list[int] | None) -> int | None:
    """The device of this process of those started by mpiexec."""
    if devices is None:
        return None
    return devices[(mpi_rank() or 0) % len(devices)]


def _schedule(name: str, n: int, collective: str, root: int, params: tuple[tuple[str, Any], ...]) -> Schedule | str:
    if name == "auto":
        if params:
            raise UsageError("-p: a parameter needs a schedule that takes it: name one with --schedule")
        return name
    algorithm = source.load(name)
    given = dict(params)
    if "root" in algorithm.parameters:
        given.setdefault("root", root)
    s = source.build(algorithm, n, given)
    if s.collective.name != collective:
        raise UsageError(f"--schedule {name}: it does {s.collective.name}, not {collective}")
    return s


def steps(begin: int, end: int, factor: float) -> list[int]:
    """Sizes from `begin` to `end`, each `factor` times the one before.

    >>> steps(8, 200, 4)
    [8, 32, 128]
    """
    if begin < 1 or end < begin:
        raise UsageError(f"-b {begin} -e {end}: wanted sizes that go up from 1 byte or more")
    found, size = [], float(begin)
    while size <= end:
        found.append(int(size))
        size = max(size * factor, size + 1)
    return found


def table(rows: Sequence[Row], c: Any, dtype: str, op: str, root: int) -> str:
    """What nccl-tests prints, out of place and in place."""
    lines = [
        f"#{'':>65}{'out-of-place':>24}{'in-place':>38}",
        f"#{'size':>12}{'count':>13}{'type':>10}{'redop':>7}{'root':>6}{'schedule':>26}"
        + f"{'time':>11}{'algbw':>8}{'busbw':>8}{'#wrong':>8}" * 2,
        f"#{'(B)':>12}{'(elements)':>13}{'':>49}" + f"{'(us)':>11}{'(GB/s)':>8}{'(GB/s)':>8}{'':>8}" * 2,
    ]
    busiest = []
    for row in rows:
        found = row.json(c)
        cells = f" {row.size:>12}{row.count * c.vector:>13}{dtype:>10}{op:>7}{root:>6}{row.schedule[:25]:>26}"
        for mode in ("out_of_place", "in_place"):
            if found[f"{mode}_us"] is None:
                cells += f"{'N/A':>11}{'N/A':>8}{'N/A':>8}{'N/A':>8}"
                continue
            us, alg, bus, wrong = (found[f"{mode}_{k}"] for k in ("us", "algbw_gbps", "busbw_gbps", "wrong"))
            busiest.append(bus)
            cells += f"{us:>11.2f}{alg:>8.2f}{bus:>8.2f}{wrong:>8}"
        lines.append(cells)
    lines.append(f"# Avg bus bandwidth: {sum(busiest) / len(busiest):.4f} GB/s")
    return "\n".join(lines)


def draw(path: Path, rows: Sequence[Row], title: str, c: Any) -> None:
    """Algorithm bandwidth over size, both logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for mode, label in (("out_of_place", "out of place"), ("in_place", "in place")):
        points = [(r.size, r.json(c)[f"{mode}_algbw_gbps"]) for r in rows]
        points = [(size, bandwidth) for size, bandwidth in points if bandwidth]
        if points:
            axes.loglog(*zip(*points, strict=True), marker="o", label=label, base=2)
    axes.set(title=title, xlabel="size (bytes)", ylabel="algorithm bandwidth (GB/s)")
    axes.legend()
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(f"--plot {path}: {error.strerror}") from error
