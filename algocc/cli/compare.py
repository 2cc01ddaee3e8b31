"""`algocc compare`: all algorithms of a collective side by side, and which is fastest for which sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from algocc import bounds
from algocc.catalog import algorithms
from algocc.cli import options, source, units
from algocc.cli.comparison import TRIED, Candidate, Comparison, Ranking, faster
from algocc.cli.output import aligned, progress, say_json
from algocc.cli.plot import check_plot, draw
from algocc.errors import UsageError, counted, near
from algocc.model import PRESETS, STARTUPS, Machine, Segment, crossover


@click.command(
    "compare", help="All algorithms of a collective in one table: cost, time in the α-β-γ model, crossovers."
)
@click.argument("collective")
@options.one_n
@click.option(
    "--size",
    type=options.byte_count,
    metavar="SIZE",
    default="1M",
    show_default=True,
    help="Bytes of the full vector m.",
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="α, β and γ of a kind of machine.")
@click.option(
    "--alpha",
    callback=units.seconds,
    metavar="SECONDS",
    help="Seconds to start a message; 5us if nothing else is said.",
)
@click.option(
    "--beta",
    callback=units.per_byte,
    metavar="SECONDS|RATE",
    help="Seconds for a byte through a port, or a rate; 25GB/s.",
)
@click.option(
    "--gamma",
    callback=units.per_byte,
    metavar="SECONDS|RATE",
    help="Seconds for a byte reduced, or a rate; 100GB/s.",
)
@click.option("--ports", type=int, default=1, show_default=True, help="Peers that a rank can send to at once.")
@click.option(
    "--startup", type=click.Choice(STARTUPS), default="message", show_default=True,
    help="Pay α for each message that a port handles after another, or once a step.",
)  # fmt: skip
@options.params
@click.option("--tune", is_flag=True, help="Try several values of chunks, radix, group and aggregate.")
@click.option(
    "--with", "own", multiple=True, help="A schedule of your own as well, as in file.py:function; repeatable."
)
@click.option(
    "--against",
    default=None,
    help="For which sizes is each faster than this one?  [default: a ring or chain]",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw time over size: a file .svg, .png or .pdf.")
@options.as_json
def compare_command(
    collective: str, n: int | None, size: int, preset: str | None, alpha: Fraction | None, beta: Fraction | None,
    gamma: Fraction | None, ports: int, startup: str, params: tuple[tuple[str, Any], ...], tune: bool,
    own: tuple[str, ...], against: str | None, plot: Path | None, as_json: bool,
) -> int:  # fmt: skip
    name = bounds.canonical(collective)
    if n is None:
        raise UsageError(f"compare {name}: on how many ranks? Give -n, as in -n 8")
    given = {k: v for k, v in (("alpha", alpha), ("beta", beta), ("gamma", gamma)) if v is not None}
    machine = replace(PRESETS[preset] if preset else Machine(), **given, ports=ports, startup=startup)
    if name == "barrier":
        size = 0
    if plot is not None:
        check_plot(plot, name)
    listed = [a for a in algorithms().values() if a.collective == name]
    for word in own:
        a = source.load(word)
        listed.append(replace(a, name=word) if any(a.name == b.name for b in listed) else a)
    taken = {key for a in listed for key in a.parameters}
    for key, _ in params:
        if key not in taken:
            raise UsageError(
                f"-p {key}: no algorithm for {name} takes it{near(key, taken)}; known: {', '.join(sorted(taken))}"
            )
    found = Comparison(name, n, dict(params), machine, tune=tune)
    with progress(f"comparing {len(listed)} algorithms (the first time, compiling)", len(listed)) as advance:
        for algorithm in listed:
            found.add(algorithm)
            advance()
    if not found.candidates and not found.wrong:
        reasons = "; ".join(f"{who}: {why}" for who, why in found.refused.items())
        raise UsageError(f"compare {name}: nothing can be compared for n={n}: {reasons or 'no algorithm is known'}")
    ranking = Ranking(found, size, against)
    if plot is not None and ranking.ranked:
        draw(ranking, plot)
    if as_json:
        say_json(_json(ranking))
    else:
        click.echo(_text(ranking))
    return 1 if found.wrong else 0


def _json(ranking: Ranking) -> dict[str, Any]:
    """Exact numbers are strings, times in seconds and volumes in fractions of m."""
    m = ranking.machine
    return {
        "collective": ranking.found.name,
        "n": ranking.found.n,
        "size_bytes": ranking.size,
        "alpha": str(m.alpha),
        "beta": str(m.beta),
        "gamma": str(m.gamma),
        "ports": m.ports,
        "startup": m.startup,
        "tuned": ranking.found.tune,
        "candidates": [_facts(ranking, c) for c in ranking.ranked],
        "fastest": [
            {"from_bytes": str(s.first), "to_bytes": None if s.last is None else str(s.last), "schedules": list(s.names)}
            for s in ranking.segments
        ],
        "against": ranking.against.label if ranking.against else None,
        "refused": [{"schedule": k, "reason": v} for k, v in ranking.found.refused.items()],
        "wrong": [{"schedule": k, "failure": v} for k, v in ranking.found.wrong.items()],
    }  # fmt: skip


def _facts(ranking: Ranking, c: Candidate) -> dict[str, Any]:
    r, b = c.report, c.report.bound
    pair = c.cost.coefficients
    meet = crossover(c.line, ranking.against.line) if ranking.against else None
    return {
        "schedule": c.name,
        "params": c.params,
        "fastest": ranking.fastest(c),
        "time": str(c.line.at(ranking.size)),
        "time_us": float(c.line.at(ranking.size) * 10**6),
        "fixed": str(c.line.fixed),
        "per_byte": str(c.line.slope),
        "cost": str(c.cost),
        "startups": c.cost.startups,
        "beta_share": str(pair[0]) if pair else None,
        "gamma_share": str(pair[1]) if pair else None,
        "steps": r.steps,
        "steps_bound": b.rounds if b else None,
        "ports": r.ports,
        "sent": str(r.sent_max),
        "sent_bound": str(b.sent) if b else None,
        "received": str(r.received_max),
        "received_bound": str(b.received) if b else None,
        "depth": r.depth,
        "scratch": str(c.scratch),
        "bandwidth_optimal": r.bandwidth_optimal,
        "step_optimal": r.step_optimal,
        "faster": faster(c.line, ranking.against.line) if ranking.against else None,
        "crossover_bytes": None if meet is None else str(meet),
    }


def _text(ranking: Ranking) -> str:
    """The table, the crossovers, and what is not in it."""
    m = ranking.machine
    size = f"m = {units.size(Fraction(ranking.size))}" if ranking.found.name != "barrier" else "no data"
    rates = f"α = {units.time(m.alpha)}, β = {units.rate(m.beta)}, γ = {units.rate(m.gamma)}"
    ports = f"{counted(m.ports, 'port')}, α for each {m.startup}"
    lines = [f"{ranking.found.name} on {counted(ranking.found.n, 'rank')}, {size}, {rates}, {ports}"]
    if ranking.ranked:
        lines += ["", aligned(_table(ranking)), "", *_notes(ranking)]
    if ranking.segments:
        lines += ["", "fastest, by size", aligned([_range(s) for s in ranking.segments])]
    for title, rows in (("not compared", ranking.found.refused), ("WRONG", ranking.found.wrong)):
        if rows:
            lines += ["", title, aligned(list(rows.items()))]
    return "\n".join(lines)


def _table(ranking: Ranking) -> list[tuple[str, ...]]:
    head = (
        "", "algorithm", "steps", "bound", "ports", "sent", "of bound", "received", "of bound", "depth", "scratch", "time",
    )  # fmt: skip
    rows = [(*head, *([f"faster than {ranking.against.name}"] if ranking.against else []), "optimal in")]
    for c in ranking.ranked:
        r, b = c.report, c.report.bound
        optimal = [word for word, holds in (("volume", r.bandwidth_optimal), ("steps", r.step_optimal)) if holds]
        row = [
            "*" if ranking.fastest(c) else "", c.label, str(r.steps), str(b.rounds) if b else "?", str(r.ports),
            str(r.sent_max), _times(r.sent_max, b.sent if b else None),
            str(r.received_max), _times(r.received_max, b.received if b else None),
            str(r.depth), str(c.scratch), units.time(c.line.at(ranking.size)),
        ]  # fmt: skip
        row += ([""] if c is ranking.against else [faster(c.line, ranking.against.line)]) if ranking.against else []
        rows.append((*row, ", ".join(optimal)))
    return rows


def _notes(ranking: Ranking) -> Iterator[str]:
    yield fill(
        "* fastest at this size; sent and received by the busiest rank and scratch, in vectors of m; of bound: how "
        "many times what no schedule can beat, = if equal; the bound of steps is that on as many ports as the "
        "algorithm uses; depth: reductions in a row",
        110, subsequent_indent="  ",
    )  # fmt: skip
    many = [c.name for c in ranking.ranked if c.report.ports > ranking.machine.ports]
    if many and ranking.machine.startup == "step":
        yield fill(
            f"more peers in a step than {counted(ranking.machine.ports, 'port')}, at one α, as if only"
            f" their bytes had to queue: {', '.join(many)} (--startup message: α for each message in the queue)",
            110, subsequent_indent="  ",
        )  # fmt: skip
    if any(" " in c.label for c in ranking.ranked):
        if ranking.found.tune:
            tried = "; ".join(f"{k} {', '.join(map(str, v))}" for k, v in TRIED.items())
            said = f"tuned: of each, the fastest at this size of its default and {tried}; group, all divisors of n"
            yield fill(said, 110, subsequent_indent="  ")
        else:
            yield "parameters as shown, by default or as given with -p; --tune tries others"


def _range(s: Segment) -> tuple[str, str]:
    to = f" to {units.size(s.last)}" if s.last is not None else ""
    named = {label.split()[0]: label for label in reversed(s.names)}  # of variants of one algorithm, the first
    return f"from {units.size(s.first)}{to}", " = ".join(reversed(named.values()))


def _times(value: Fraction, least: Fraction | None) -> str:
    """How many times its bound a volume is; never rounded to the bound itself."""
    if least is None:
        return "?"
    if value == least:
        return "="
    if not least:
        return "bound 0"
    ratio = f"{float(value / least):.3g}"
    return f"{'>' if ratio == '1' else ''}{ratio}x"
