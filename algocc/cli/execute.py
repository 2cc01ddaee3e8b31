"""`algocc run`: verify, run on CPU threads, check every element, time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from algocc.cli import foreign, options
from algocc.cli.output import progress, say_json, say_verdict
from algocc.cli.subject import Subject, subject
from algocc.collective import Collective
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


@click.command("run", help="Verify a schedule, run it on CPU threads, and check every element against NumPy.")
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
@options.lanes
@click.option("--check/--no-check", default=True, help="Compare with NumPy.")
@click.option("--iters", type=click.IntRange(min=1), default=20, show_default=True, help="Calls that are timed.")
@click.option("--timeout", type=click.FloatRange(0, 1e9, min_open=True, max_open=True), default=30.0, show_default=True, help="Seconds to wait for a stuck rank.")
@click.option("--unverified", is_flag=True, help="Run it even if it is wrong.")
@options.as_json
def run_command(
    schedule: str, n: int | None, params: tuple[tuple[str, Any], ...], size: int, dtype: str, op: str | None, in_place: bool,
    mode: str | None, slots: int, lanes: int, check: bool, iters: int, timeout: float, unverified: bool, as_json: bool,
) -> int:  # fmt: skip
    kind = element(dtype)
    what = subject(schedule, n, dict(params), mode=mode, in_place=in_place, slots=slots, lanes=lanes)
    c = what.collective
    op = op or ("land" if c.idempotent else "sum")
    check_reduction(c, operator(op), kind)
    count = count_for(c, size, kind)
    check_memory(needed(c, count, check) * kind.size, f"{c} of {count} {kind.name}")
    with progress(f"verifying {what.name} (the first time, compiling)"):
        report, verdict = what.judge(op if c.reduces else None)
    if not as_json:
        say_verdict(verdict + "\n")
    facts = _facts(what, kind, op, count) | {"correct": report.correct, "verification": report.to_json()}
    if not report.correct and not unverified:
        if as_json:
            say_json(facts | {"error": f"{what.name} is wrong, so it is not run", "exit_code": 1})
        click.echo(f"algocc: {what.name} is wrong, so it is not run; --unverified runs it all the same", err=True)
        return 1
    with progress(f"running {what.name}"):
        timing, wrong = Job(what.program(), count, kind, op, timeout).run(iters=iters, check=check)
    if as_json:
        say_json(facts | _measured(timing, wrong))
    else:
        click.echo(_table(c.n, facts, timing, wrong, iters))
    return 1 if wrong or not report.correct else 0


def count_for(collective: Collective, size: int, kind: Element) -> int:
    """Elements of a unit block for buffers of `size` bytes; a Barrier has tokens of one element."""
    if collective.name == "barrier":
        return 1
    return size // max(1, collective.vector * kind.size)


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


def _facts(what: Subject, kind: Element, op: str, count: int) -> dict[str, Any]:
    c = what.collective
    return {
        "schedule": what.name,
        "collective": c.name,
        "n": c.n,
        "backend": "threads",
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


def _table(n: int, facts: dict[str, Any], t: Timing, wrong: int | None, iters: int) -> str:
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
        f"# {n} ranks on {os.cpu_count()} cores as threads; median of {iters} calls, {t.fastest:.0f} to "
        f"{t.slowest:.0f} us; {checked}"
    )
    return "\n".join(lines)
