"""`algocc verify` and `bound`: is it right, and could it be better?"""

from __future__ import annotations

import json
from typing import Any

import click

from algocc import bounds
from algocc.cli import foreign, gpu, options, source
from algocc.cli.output import aligned, progress, say_json, say_verdict
from algocc.decorator import Algorithm
from algocc.errors import UsageError, counted
from algocc.verifier import Report, summary, verify
from algocc.verifier.counterexample import Counterexample, smallest_counterexample


@click.command("verify", help="Prove a schedule right, or say where it is wrong, and compare it with the lower bounds.")
@options.schedule
@options.several_n
@options.params
@click.option("--op", default=None, help="The operator it is meant for; max, min, and, or bear adding twice.")
@options.in_place
@foreign.mode
@foreign.slots
@options.lanes
@click.option("--program/--no-program", default=True, help="Lower it and verify what runs, too.")
@click.option(
    "--reduction-order", is_flag=True,
    help="In what order contributions are combined: are all ranks equal to the bit, and how far may rounding go.",
)
@click.option("--backend", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="cuda: also compile the kernel that GPUs would run, and look at it; no GPU is needed.")
@click.option("--cc", "capability", default="90", show_default=True, metavar="CC", help="Compute capability that it is compiled for.")
@click.option("--dtype", default="float32", show_default=True, help="Element type that it is compiled for.")
@options.as_json
def verify_command(
    schedule: str, ns: list[int] | None, params: tuple[tuple[str, Any], ...], op: str | None, in_place: bool,
    mode: str | None, slots: int, lanes: int,
    program: bool, reduction_order: bool, backend: str, capability: str, dtype: str, as_json: bool,
) -> int:  # fmt: skip
    if foreign.is_foreign(schedule):
        if backend == "cuda":
            raise UsageError(f"{schedule}: --backend cuda is for schedules; `algocc import` makes one of the file")
        if not program:
            raise UsageError(f"{schedule}: --no-program: a file of another tool is a program; there is nothing else to verify")
        return foreign.verify_file(
            foreign.load(schedule, ns or (), params=params, lanes=lanes, slots=slots),
            mode=mode, in_place=in_place, slots=slots, op=op, reduction_order=reduction_order, as_json=as_json,
        )  # fmt: skip
    foreign.own_only(schedule, slots)
    in_place = bool(foreign.one_mode(mode, in_place))
    algorithm = source.load(schedule)
    ns = ns or [source.ranks(algorithm, None)]
    modes = {"op": op, "in_place": in_place, "lanes": lanes, "program": program}
    with progress(f"verifying {algorithm.name} (the first time, compiling)", len(ns)) as advance:
        reports, skipped = _verify_all(
            algorithm, ns, dict(params), modes | {"reduction_order": reduction_order}, advance,
            quiet=as_json or len(ns) == 1,
        )  # fmt: skip
    wrong = min((r for r in reports if not r.correct), key=lambda r: r.n, default=None)
    smallest = _smallest(algorithm, dict(params), modes, wrong)
    compiled = None
    if backend == "cuda" and wrong is None:
        with progress(f"compiling the kernel for sm_{capability}"):
            compiled = gpu.kernel(op, dtype, any(r.reduced_max for r in reports), capability)
    broken = bool(compiled and compiled["findings"])
    found = {
        **({"kernel": compiled} if backend == "cuda" else {}),
        "smallest_n": smallest.n if smallest and smallest.smallest else None,
        "counterexample": smallest.to_json() if smallest else None,
    }
    if as_json and len(ns) == 1:
        say_json(reports[0].to_json() | found)
    elif as_json:
        say_json({
            "schedule": algorithm.name,
            "collective": reports[0].collective,
            "correct": wrong is None,
            "smallest_failure": wrong.n if wrong else None,
            **found,
            "results": [r.to_json() for r in reports],
            "skipped": [{"n": n, "reason": reason} for n, reason in skipped.items()],
        })  # fmt: skip
    else:
        if len(ns) > 1:
            say_verdict(_conclusion(algorithm.name, reports, len(skipped)))
        if wrong or len(ns) == 1:
            say_verdict(summary(wrong or reports[0]))
        if compiled:
            say_verdict(gpu.kernel_line(compiled))
        if smallest:
            click.echo(f"\n{smallest}")
    return 1 if wrong or broken else 0


def _smallest(
    algorithm: Algorithm, params: dict[str, Any], modes: dict[str, Any], wrong: Report | None
) -> Counterexample | None:
    """The smallest counterexample, where there is one."""
    if wrong is None:
        return None
    with progress("looking for the smallest n that fails"), source.bounded_memory():
        return smallest_counterexample(lambda n: source.build(algorithm, n, params), wrong.n, **modes, report=wrong)


def _verify_all(
    algorithm: Algorithm, ns: list[int], params: dict[str, Any], modes: dict[str, Any], advance: Any, *, quiet: bool
) -> tuple[list[Report], dict[int, str]]:
    """The reports, and the n that the schedule does not take with its reasons; one of several n may be such."""
    reports: list[Report] = []
    skipped: dict[int, str] = {}
    first: UsageError | None = None
    for n in ns:
        try:
            with source.bounded_memory():
                s = source.build(algorithm, n, params)
        except UsageError as error:
            if isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, UsageError):
                raise  # the function failed; it did not refuse
            first = first or error
            skipped[n] = str(error)
        else:
            with source.bounded_memory():
                reports.append(verify(s, **modes))
        if not quiet:
            say_verdict(f"n={n}: {'skipped: ' + skipped[n] if n in skipped else _line(reports[-1])}")
        advance()
    if first and not reports:
        raise first
    return reports, skipped


def _line(r: Report) -> str:
    """A report in one line."""
    if not r.correct:
        return f"WRONG: {r.failures[0]}"
    b = r.bound
    steps = counted(r.steps, "step") + (f" (bound {b.rounds})" if b else "")
    sent = f"sends {r.sent_max}" + (f" (bound {b.sent})" if b else "")
    bits = f"; bits {'equal' if r.order.same_on_all_ranks else 'DIFFER'} between ranks" if r.order else ""
    return f"correct, {steps}, {sent}" + (": optimal" if r.bandwidth_optimal else "") + bits


def _conclusion(name: str, reports: list[Report], skipped: int) -> str:
    wrong = [r.n for r in reports if not r.correct]
    beside = f"; {skipped} skipped" if skipped else ""
    if wrong:
        return f"{name}: WRONG for {len(wrong)} of {len(reports)} n{beside}; the smallest is n={min(wrong)}"
    return f"{name}: correct for all {len(reports)} n{beside}"


@click.command("bound", help="What no schedule of a collective can beat, exactly, with the reason for each number.")
@click.argument("collective")
@options.one_n
@click.option("--ports", type=int, default=1, show_default=True, help="Messages a rank sends, and receives, in a step.")
@click.option("--blocks", type=int, default=None, help="Parts of the vector, of which a message carries one.")
@click.option("--counts", default=None, help="Of AllToAllV: n rows of n numbers as JSON, what rank i holds for rank j.")
@options.as_json
def bound_command(
    collective: str, n: int | None, ports: int, blocks: int | None, counts: str | None, as_json: bool
) -> None:
    name = bounds.canonical(collective)
    if n is None:
        raise UsageError(f"bound {name}: on how many ranks? Give -n, as in -n 8")
    try:
        matrix = json.loads(counts) if counts else None
    except json.JSONDecodeError as error:
        raise UsageError(f"--counts: not JSON: {error}; wanted rows, as in [[0,1],[2,0]]") from error
    b = bounds.bound(name, n, ports=ports, blocks=blocks, counts=matrix)
    values = {
        "steps": b.rounds,
        "sent": b.sent,
        "received": b.received,
        "reduced": b.reduced,
        "reduced_total": b.reduced_total,
    }
    reasons = {"steps" if key == "rounds" else key: reason for key, reason in b.reasons.items()}
    if as_json:
        say_json({
            "collective": b.collective, "n": b.n, "ports": b.ports, "blocks": b.blocks, "model": b.model,
            **{key: value if isinstance(value, int) else str(value) for key, value in values.items()},
            "reasons": reasons,
        })  # fmt: skip
        return
    many = f"{counted(b.n, 'rank')}, {counted(b.ports, 'port')}" + (f", {b.blocks} blocks" if b.blocks > 1 else "")
    click.echo(f"{b.collective} on {many}: no schedule takes less, volumes of the full vector m")
    click.echo(aligned([(key.replace("_", " "), str(value), reasons[key]) for key, value in values.items()]))
    click.echo(f"model: {b.model}")
