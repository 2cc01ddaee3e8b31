"""`algocc run`: verify, run on CPU threads or GPUs, check every element, time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from algocc.cli import foreign, gpu, options
from algocc.cli.output import progress, say_json, say_verdict
from algocc.cli.subject import Subject, subject
from algocc.collective import Collective
from algocc.errors import UsageError, counted
from algocc.kernels.operators import Element, element, operator
from algocc.program import Program
from algocc.runtime import (
    Threads,
    Timing,
    buffer_elements,
    count_wrong,
    expected,
    in_place_buffers,
    make_inputs,
    measure,
)
from algocc.runtime.memory import check_memory
from algocc.runtime.threads import check_reduction


@click.command("run", help="Verify a schedule, run it, and check every element against NumPy.")
@options.schedule
@options.one_n
@options.params
@click.option(
    "--size", type=options.byte_count, metavar="SIZE", default="64M", show_default=True,
    help="Bytes of a rank's buffer, its larger one, as in nccl-tests; rounded down to whole elements.",
)  # fmt: skip
@click.option("--dtype", default="float32", show_default=True, help="Element type, as NumPy calls it, or bfloat16.")
@click.option("--op", default=None, help="Reduction operator; sum if not given, land for a Barrier.")
@options.in_place
@foreign.mode
@foreign.slots
@click.option("--max-channels", type=click.IntRange(min=1), help="Refuse a file of another tool that needs more.")
@options.lanes
@click.option("--check/--no-check", default=True, help="Compare with NumPy.")
@click.option("--iters", type=click.IntRange(min=1), default=20, show_default=True, help="Calls that are timed.")
@click.option("--timeout", type=click.FloatRange(0, 1e9, min_open=True, max_open=True), default=30.0, show_default=True, help="Seconds to wait for a stuck rank.")
@click.option("--backend", type=click.Choice(("threads", "cuda")), default="threads", show_default=True, help="What ranks are: CPU threads, or GPUs.")
@options.devices
@click.option("--unverified", is_flag=True, help="Run it even if it is wrong.")
@options.as_json
def run_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], size: int, dtype: str, op: str | None, in_place: bool,
    mode: str | None, slots: int, max_channels: int | None, lanes: int, check: bool, iters: int, timeout: float, backend: str,
    devices: list[int] | None, unverified: bool, as_json: bool,
) -> int:  # fmt: skip
    kind = element(dtype)
    gpu.check_devices(devices, backend)
    what = subject(schedule, n, dict(params), mode=mode, in_place=in_place, slots=slots, lanes=lanes)
    c = what.collective
    op = op or ("land" if c.idempotent else "sum")
    check_reduction(c, operator(op), kind)
    count = count_for(c, size, kind)
    places = gpu.place(c.n, devices) if backend == "cuda" else None
    exact = c.vector * count * kind.size
    if exact < size and c.name != "barrier":
        click.echo(f"algocc: --size {size} is rounded down to {exact} bytes, whole elements of {kind.name}", err=True)
    declined = what.file and what.file.declines(exact, most_channels=max_channels)
    if declined:
        raise UsageError(f"{declined}; a runtime would pass it over")
    check_memory(needed(c, count, check) * kind.size, f"{c} of {count} {kind.name}")
    with progress(f"verifying {what.name} (the first time, compiling)"):
        report, verdict = what.judge(op if c.reduces else None)
    if not as_json:
        say_verdict(verdict + "\n")
    facts = _facts(what, kind, op, count) | {"backend": backend, **({} if places is None else {"devices": places})} | {"correct": report.correct, "verification": report.to_json()}
    if not report.correct and not unverified:
        if as_json:
            say_json(facts | {"error": f"{what.name} is wrong, so it is not run", "exit_code": 1})
        click.echo(f"algocc: {what.name} is wrong, so it is not run; --unverified runs it all the same", err=True)
        return 1
    with progress(f"running {what.name}"):
        job = Job(what.program(), count, kind, op, timeout)
        timing, wrong = job.run(iters=iters, check=check) if places is None else job.run_on(places, iters=iters, check=check)
    if as_json:
        say_json(facts | _measured(timing, wrong))
    else:
        where = f"{os.cpu_count()} cores as threads" if places is None else gpu.on_devices(places)
        click.echo(_table(f"{counted(c.n, 'rank')} on {where}", facts, timing, wrong, iters))
    return 1 if wrong or not report.correct else 0


def count_for(collective: Collective, size: int, kind: Element) -> int:
    """Elements of a unit block for buffers of `size` bytes; a Barrier has tokens of one element."""
    if collective.name == "barrier":
        return 1
    unit = max(1, collective.vector * kind.size)
    if size and size < unit:
        raise UsageError(
            f"--size {size}: {collective.name} on {counted(collective.n, 'rank')} of {kind.name} moves multiples of {unit} bytes; "
            f"wanted {unit} or more, or 0"
        )
    return size // unit


def needed(collective: Collective, count: int, check: bool) -> int:
    """Elements that `Job.run` holds at once: the buffers, fresh inputs, and what NumPy expects."""
    ins, outs = (sum(elements) for elements in buffer_elements(collective, count))
    return ins + outs + check * (ins + outs)


@dataclass(frozen=True)
class Job:
    """A Program, and what to run it on."""

    program: Program
    count: int
    kind: Element
    op: str
    timeout: float

    def run(self, *, iters: int, check: bool) -> tuple[Timing, int | None]:
        """Time it, then check one more call on fresh inputs: elements that are wrong, None if unchecked."""
        c, in_place = self.program.collective, self.program.in_place
        data = make_inputs(c, self.count, self.kind.name, self.op)
        inputs, outputs = data, [np.zeros(size, self.kind.numpy) for size in buffer_elements(c, self.count)[1]]
        if in_place:
            inputs, outputs = in_place_buffers(c, self.count, self.kind.name)
        with Threads(self.program, count=self.count, dtype=self.kind.name, op=self.op, timeout=self.timeout) as threads:
            timing = measure(threads, inputs, outputs, iters=iters)
            if not check:
                return timing, None
            for out in outputs:
                out.fill(0)
            if in_place:
                for mine, fresh in zip(inputs, data, strict=True):
                    mine[:] = fresh
            threads(inputs, outputs)
        return timing, count_wrong(outputs, expected(c, data, self.op))

    def run_on(self, devices: list[int], *, iters: int, check: bool) -> tuple[Timing, int | None]:
        """The same on GPUs, rank i on `devices[i]`; a call is timed on the host, from its launch until it is done."""
        from algocc.runtime.cuda import Devices

        c = self.program.collective
        data = make_inputs(c, self.count, self.kind.name, self.op)
        with Devices(
            self.program, count=self.count, dtype=self.kind.name, op=self.op, timeout=self.timeout, devices=devices
        ) as run:
            inputs, outputs = run.buffers()
            for mine, fresh in zip(inputs, data, strict=True):
                mine.set(fresh)
            timing = measure(run, inputs, outputs, iters=iters)
            if not check:
                return timing, None
            for out in outputs:
                out.set(np.zeros(out.size, self.kind.numpy))
            for mine, fresh in zip(inputs, data, strict=True):
                mine.set(fresh)
            run(inputs, outputs)
            found = [out.get() for out in outputs]
        return timing, count_wrong(found, expected(c, data, self.op))


def _facts(what: Subject, kind: Element, op: str, count: int) -> dict[str, Any]:
    c = what.collective
    return {
        "schedule": what.name,
        "collective": c.name,
        "n": c.n,
        "size_bytes": c.vector * count * kind.size,
        "count": count * c.vector,
        "dtype": kind.name,
        "op": op if c.reduces else "none",
        "root": c.params.get("root", -1),
        "in_place": what.in_place,
    }


def _measured(t: Timing, wrong: int | None) -> dict[str, Any]:
    return {
        "time_us": t.median,
        "fastest_us": t.fastest,
        "slowest_us": t.slowest,
        "algbw_gbps": t.algbw,
        "busbw_gbps": t.busbw,
        "wrong": wrong,
    }


def _table(who: str, facts: dict[str, Any], t: Timing, wrong: int | None, iters: int) -> str:
    """What nccl-tests prints, for one size."""
    checked = "not checked" if wrong is None else "checked element by element against NumPy"
    rows = (
        ("#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"),
        ("#", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""),
        (
            "", facts["size_bytes"], facts["count"], facts["dtype"], facts["op"], facts["root"],
            f"{t.median:.2f}", f"{t.algbw:.2f}", f"{t.busbw:.2f}", "N/A" if wrong is None else wrong,
        ),
    )  # fmt: skip
    widths = (1, 12, 12, 10, 6, 5, 11, 8, 8, 7)
    lines = [" ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.append(
        f"# {who}; median of {iters} calls, {t.fastest:.0f} to "
        f"{t.slowest:.0f} us; {checked}"
    )
    return "\n".join(lines)
