"""`algocc compare`: all algorithms of a collective side by side, and which is fastest for which sizes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

import click
import numpy as np

from algocc import bounds
from algocc.catalog import algorithms
from algocc.cli import options, source
from algocc.cli.output import aligned, progress, say_json
from algocc.collective import COLLECTIVES, Collective
from algocc.collective import collective as built_in
from algocc.decorator import Algorithm
from algocc.errors import AlgoccError, UsageError, near
from algocc.model import PRESETS, STARTUPS, Cost, Line, Machine, Segment, cost, crossover, envelope
from algocc.table import Schedule
from algocc.verifier import Report, verify

TRIED = {
    "chunks": (1, 2, 4, 8, 16, 32, 64, 128),
    "radix": (2, 3, 4, 5, 6, 7, 8),
    "aggregate": (1, 2, 4, 8, 16, 32, 64),
}
"""Values of a parameter that `--tune` tries; of `group`, all divisors of n."""

REFERENCES = ("ring", "chain")
"""Algorithms that others are set against if --against does not say: the first whose name begins so."""

NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)"
UNITS = {"": 0, "s": 0, "ms": 3, "us": 6, "µs": 6, "ns": 9, "ps": 12}
SCALES = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12}
"""Powers of ten: of parts of a second, of bytes or bits."""

PLOTS = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Candidate:
    """One algorithm with its parameters, and what it costs."""

    name: str
    params: dict[str, Any]
    report: Report
    cost: Cost
    line: Line
    scratch: Fraction

    @property
    def label(self) -> str:
        """Its name, and the parameters that are not what the task says."""
        words = [
            f"{k}={v}" for k, v in self.params.items() if k in (*TRIED, "group", "dims") and v is not None
        ]
        return " ".join([self.name, *words])


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    return None if value is None else _amount(param.opts[0], value, "seconds, as in 5e-6 or 5us")


def _per_byte(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    if value is None:
        return None
    found = re.fullmatch(rf"{NUMBER} *([kKMGT]?)([Bb])/s", value.strip())
    if found and (rate := Fraction(found[1])):
        return (8 if found[3] == "b" else 1) / (rate * Fraction(10) ** SCALES[found[2]])
    return _amount(
        param.opts[0], value, "seconds for a byte, as in 4e-11 or 40ps, or a rate, as in 25GB/s or 200Gb/s"
    )


def _amount(option: str, value: str, wanted: str) -> Fraction:
    """Seconds, exactly as written; the units are seconds and parts of them."""
    found = re.fullmatch(rf"{NUMBER} *(s|ms|us|µs|ns|ps|)", value.strip())
    if not found:
        raise UsageError(f"{option} {value}: wanted {wanted}, 0 or more")
    return Fraction(found[1]) / Fraction(10) ** UNITS[found[2]]


@click.command(
    "compare", help="All algorithms of a collective in one table: cost, time in the α-β-γ model, crossovers."
)
@click.argument("collective")
@options.one_n
@click.option(
    "--size", type=options.Size(), default="1M", show_default=True, help="Bytes of the full vector m."
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="α, β and γ of a kind of machine.")
@click.option(
    "--alpha",
    callback=_seconds,
    metavar="SECONDS",
    help="Seconds to start a step; 5us if nothing else is said.",
)
@click.option(
    "--beta",
    callback=_per_byte,
    metavar="SECONDS|RATE",
    help="Seconds for a byte through a port, or a rate; 25GB/s.",
)
@click.option(
    "--gamma",
    callback=_per_byte,
    metavar="SECONDS|RATE",
    help="Seconds for a byte reduced, or a rate; 100GB/s.",
)
@click.option(
    "--ports", type=int, default=1, show_default=True, help="Peers that a rank can send to at once."
)
@click.option(
    "--startup", type=click.Choice(STARTUPS), default="message", show_default=True,
    help="Pay α once a step, or for each message that a port handles after another.",
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
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw time over size: a file .svg, .png or .pdf."
)
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
        _check_plot(plot, name)
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
    found = _Comparison(name, n, dict(params), machine, tune=tune)
    with progress(f"comparing {len(listed)} algorithms (the first time, compiling)", len(listed)) as advance:
        for algorithm in listed:
            found.add(algorithm)
            advance()
    if not found.candidates and not found.wrong:
        reasons = "; ".join(f"{who}: {why}" for who, why in found.refused.items())
        raise UsageError(
            f"compare {name}: nothing can be compared for n={n}: {reasons or 'no algorithm is known'}"
        )
    view = _View(found, size, against)
    if plot is not None and view.lines and min(view.lines.values()) == Line(Fraction(0), Fraction(0)):
        raise UsageError(
            f"--plot {plot}: some times are 0 at every size, and 0 has no place on a logarithmic axis"
        )
    if plot is not None and view.ranked:
        _draw(view, plot)
    if as_json:
        say_json(view.to_json())
    else:
        click.echo(view.text())
    return 1 if found.wrong else 0


class _Comparison:
    """The candidates that do the same task correctly, and why the others are not among them."""

    def __init__(self, name: str, n: int, params: dict[str, Any], machine: Machine, *, tune: bool) -> None:
        self.name, self.n, self.params, self.machine, self.tune = name, n, params, machine, tune
        self.candidates: list[Candidate] = []
        self.refused: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.task = self._task()

    def _task(self) -> Collective | None:
        """What the collective asks for, if it says so by itself; else what the first candidate does."""
        takes = inspect.signature(COLLECTIVES[self.name]).parameters
        known = {k: v for k, v in self.params.items() if k in takes and k != "chunks"}
        if self.name == "all_to_all_v" and "counts" not in known:
            return None
        return built_in(self.name, self.n, **known)

    def add(self, algorithm: Algorithm) -> None:
        """One algorithm, with each of the values that are tried."""
        for params in self._choices(algorithm):
            try:
                with source.bounded_memory():
                    self._add(algorithm, source.build(algorithm, self.n, params), params)
            except MemoryError:
                self.refused.setdefault(algorithm.name, f"needs more memory than is free for n={self.n}")
            except UsageError as error:
                if error.__cause__ is not None and not isinstance(error.__cause__, AlgoccError):
                    raise  # the function failed; it did not refuse
                said = str(error).removeprefix(f"{algorithm.name}: ")
                self.refused.setdefault(algorithm.name, said.removeprefix(f"n={self.n}: "))
        if any(c.name == algorithm.name for c in self.candidates):
            self.refused.pop(algorithm.name, None)

    def _choices(self, algorithm: Algorithm) -> Iterator[dict[str, Any]]:
        """The parameters to build it with: as given and by default, then those that are tried."""
        takes = inspect.signature(algorithm.write).parameters
        base = {k: p.default for k, p in list(takes.items())[1:] if p.default is not p.empty}
        base |= {k: v for k, v in self.params.items() if k in takes}
        yield base
        tried = TRIED | {"group": tuple(g for g in range(1, self.n + 1) if self.n % g == 0)}
        for key in base:
            if self.tune and key in tried and key not in self.params:
                yield from (
                    {**base, key: value}
                    for value in tried[key]
                    if value != base[key] and (key != "radix" or value <= self.n)
                )

    def _add(self, algorithm: Algorithm, s: Schedule, params: dict[str, Any]) -> None:
        if self.task is None:
            self.task = s.collective
        if not s.collective.same_task(self.task):
            self.refused.setdefault(
                algorithm.name, f"does another task: {_brief(s.collective)}, not {_brief(self.task)}"
            )
            return
        report = verify(s, program=False)
        if not report.correct:
            self.wrong.setdefault(algorithm.name, str(report.failures[0]))
            return
        c = s.collective
        counted = cost(s, ports=self.machine.ports, startup=self.machine.startup)
        scratch = Fraction(int(s.scratch_sizes.sum()), max(1, c.vector * c.chunks))
        self.candidates.append(
            Candidate(algorithm.name, params, report, counted, counted.line(self.machine), scratch)
        )


class _View:
    """What is shown of a comparison: one candidate an algorithm, the fastest first."""

    def __init__(self, found: _Comparison, size: int, against: str | None) -> None:
        self.found, self.size = found, size
        self.machine = found.machine
        best: dict[str, Candidate] = {}
        for c in found.candidates:
            if c.name not in best or c.line.at(size) < best[c.name].line.at(size):
                best[c.name] = c
        self.ranked = sorted(best.values(), key=lambda c: (c.line.at(size), c.line, c.name))
        self.lines = {c.label: c.line for c in found.candidates}
        self.segments = envelope(self.lines)
        self.against = self._reference(against, best)

    def _reference(self, name: str | None, best: dict[str, Candidate]) -> Candidate | None:
        if name is None:
            name = next((k for start in REFERENCES for k in sorted(best) if k.startswith(start)), None)
            return best[name] if name else None
        if name not in best:
            raise UsageError(
                f"--against {name}: not compared{near(name, best)}; compared: {', '.join(sorted(best))}"
            )
        return best[name]

    def fastest(self, c: Candidate) -> bool:
        """Whether none is faster at the size."""
        return c.line.at(self.size) == self.ranked[0].line.at(self.size)

    def to_json(self) -> dict[str, Any]:
        """Exact numbers are strings, times in seconds and volumes in fractions of m."""
        m = self.machine
        return {
            "collective": self.found.name,
            "n": self.found.n,
            "size_bytes": self.size,
            "alpha": str(m.alpha),
            "beta": str(m.beta),
            "gamma": str(m.gamma),
            "ports": m.ports,
            "startup": m.startup,
            "tuned": self.found.tune,
            "candidates": [self._facts(c) for c in self.ranked],
            "fastest": [
                {"from_bytes": str(s.first), "to_bytes": None if s.last is None else str(s.last), "schedules": list(s.names)}
                for s in self.segments
            ],
            "against": self.against.label if self.against else None,
            "refused": [{"schedule": k, "reason": v} for k, v in self.found.refused.items()],
            "wrong": [{"schedule": k, "failure": v} for k, v in self.found.wrong.items()],
        }  # fmt: skip

    def _facts(self, c: Candidate) -> dict[str, Any]:
        r, b = c.report, c.report.bound
        pair = c.cost.coefficients
        meet = crossover(c.line, self.against.line) if self.against else None
        return {
            "schedule": c.name,
            "params": c.params,
            "fastest": self.fastest(c),
            "time": str(c.line.at(self.size)),
            "time_us": float(c.line.at(self.size) * 10**6),
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
            "faster": _faster(c.line, self.against.line) if self.against else None,
            "crossover_bytes": None if meet is None else str(meet),
        }

    def text(self) -> str:
        """The table, the crossovers, and what is not in it."""
        m = self.machine
        size = f"m = {_size(Fraction(self.size))}" if self.found.name != "barrier" else "no data"
        rates = f"α = {_time(m.alpha)}, β = {_rate(m.beta)}, γ = {_rate(m.gamma)}"
        ports = f"{m.ports} port{'s' * (m.ports > 1)}, α for each {m.startup}"
        lines = [f"{self.found.name} on {self.found.n} ranks, {size}, {rates}, {ports}"]
        if self.ranked:
            lines += ["", aligned(self._table()), "", *self._notes()]
        if self.segments:
            lines += ["", "fastest, by size", aligned([_range(s) for s in self.segments])]
        for title, rows in (("not compared", self.found.refused), ("WRONG", self.found.wrong)):
            if rows:
                lines += ["", title, aligned(list(rows.items()))]
        return "\n".join(lines)

    def _table(self) -> list[tuple[str, ...]]:
        head = [
            "",
            "algorithm",
            "steps",
            "bound",
            "ports",
            "sent",
            "of bound",
            "received",
            "of bound",
            "depth",
            "scratch",
            "time",
        ]
        rows = [(*head, *([f"faster than {self.against.name}"] if self.against else []), "optimal in")]
        for c in self.ranked:
            r, b = c.report, c.report.bound
            optimal = [
                word for word, holds in (("volume", r.bandwidth_optimal), ("steps", r.step_optimal)) if holds
            ]
            row = [
                "*" if self.fastest(c) else "", c.label, str(r.steps), str(b.rounds) if b else "?", str(r.ports),
                str(r.sent_max), _times(r.sent_max, b.sent if b else None),
                str(r.received_max), _times(r.received_max, b.received if b else None),
                str(r.depth), str(c.scratch), _time(c.line.at(self.size)),
            ]  # fmt: skip
            row += (
                ([""] if c is self.against else [_faster(c.line, self.against.line)]) if self.against else []
            )
            rows.append((*row, ", ".join(optimal)))
        return rows

    def _notes(self) -> Iterator[str]:
        yield fill(
            "* fastest at this size; sent and received by the busiest rank and scratch, in vectors of m; of bound: how "
            "many times what no schedule can beat, = if equal; the bound of steps is that on as many ports as the "
            "algorithm uses; depth: reductions in a row",
            110, subsequent_indent="  ",
        )  # fmt: skip
        many = [c.name for c in self.ranked if c.report.ports > self.machine.ports]
        if many and self.machine.startup == "step":
            yield fill(
                f"more peers in a step than {self.machine.ports} port{'s' * (self.machine.ports > 1)}, at one α, as if only"
                f" their bytes had to queue: {', '.join(many)} (--startup message: α for each message in the queue)",
                110, subsequent_indent="  ",
            )  # fmt: skip
        if any(" " in c.label for c in self.ranked):
            if self.found.tune:
                tried = "; ".join(f"{k} {', '.join(map(str, v))}" for k, v in TRIED.items())
                said = f"tuned: of each, the fastest at this size of its default and {tried}; group, all divisors of n"
                yield fill(said, 110, subsequent_indent="  ")
            else:
                yield "parameters as shown, by default or as given with -p; --tune tries others"


def _brief(task: Collective) -> str:
    text = str(task.cut(1)).replace(" chunks=1", "")
    return text if len(text) <= 60 else f"{text[:59]}…"


def _range(s: Segment) -> tuple[str, str]:
    to = f" to {_size(s.last)}" if s.last is not None else ""
    named = {
        label.split()[0]: label for label in reversed(s.names)
    }  # of variants of one algorithm, the first
    return f"from {_size(s.first)}{to}", " = ".join(reversed(named.values()))


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


def _faster(line: Line, other: Line) -> str:
    """For which sizes one line is below another.

    >>> _faster(Line(Fraction(1), Fraction(2)), Line(Fraction(2049), Fraction(1)))
    'below 2K'
    """
    if line == other:
        return "same"
    if line.fixed <= other.fixed and line.slope <= other.slope:
        return "always"
    meet = crossover(line, other)
    if meet is None or (line.fixed >= other.fixed and line.slope >= other.slope):
        return "never"
    return f"{'below' if line.fixed < other.fixed else 'above'} {_size(meet)}"


def _size(m: Fraction | float) -> str:
    """Bytes for people.

    >>> _size(Fraction(100)), _size(Fraction(3 * 2**19)), _size(Fraction(1000000, 7))
    ('100', '1.5M', '139.5K')
    """
    value = float(m)
    for unit in ("", "K", "M", "G", "T", "P"):
        if value < 1023.95 or unit == "P":
            break
        value /= 1024
    return f"{value:.4g}{unit}"


def _time(seconds: Fraction | float) -> str:
    """Seconds for people.

    >>> _time(Fraction(5, 10**6)), _time(0), _time(Fraction(1, 3))
    ('5 us', '0 us', '333.3 ms')
    """
    value = float(seconds)
    for scale, unit in ((1e-6, "us"), (1e-3, "ms"), (1.0, "s")):
        if value < 999.95 * scale or unit == "s":
            break
    return f"{value / scale:.4g} {unit}"


def _rate(seconds: Fraction) -> str:
    """Seconds a byte, as bytes a second.

    >>> _rate(Fraction(1, 25 * 10**9)), _rate(Fraction(0))
    ('1/(25 GB/s)', '0')
    """
    return f"1/({float(1 / seconds) / 1e9:.4g} GB/s)" if seconds else "0"


def _check_plot(path: Path, name: str) -> None:
    """Refuse early what can't be drawn."""
    if name == "barrier":
        raise UsageError("--plot: a barrier carries no data, so there is no size to draw its time over")
    if path.suffix.lower() not in PLOTS:
        raise UsageError(
            f"--plot {path}: the name ends in {path.suffix or 'nothing'}, wanted one of {', '.join(PLOTS)}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "--plot needs matplotlib, which is not installed: pip install 'algocc[plot]'"
        ) from error


def _draw(view: _View, path: Path) -> None:
    """Time over size, both logarithmic: a line an algorithm, the envelope under them, its crossovers marked."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    low, high = _span(view)
    sizes = 2.0 ** np.linspace(low, high, 401)
    winners = {label.split()[0] for s in view.segments for label in s.names}
    curves: dict[tuple[float, ...], list[str]] = {}
    wins, beats = set(), {}
    for c in view.ranked:
        own = [(float(d.line.fixed), float(d.line.slope)) for d in view.found.candidates if d.name == c.name]
        label = c.name if view.found.tune else c.label
        times = np.min([fixed + slope * sizes for fixed, slope in own], axis=0)
        curve = tuple(times.tolist())
        curves.setdefault(curve, []).append(label)
        if c.name in winners:
            wins.add(curve)
        if view.against and not view.found.tune and c.line != view.against.line:
            where = _faster(c.line, view.against.line)
            if where not in ("always", "never"):
                beats[curve] = where
    with matplotlib.rc_context({"svg.hashsalt": "algocc", "font.size": 9}):
        figure = Figure(figsize=(10.5, 6), layout="constrained")
        axes = figure.add_subplot()
        lowest = np.min([np.array(times) for times in curves], axis=0)
        axes.plot(
            sizes, lowest, color="#ffd54a", linewidth=9, solid_capstyle="round", zorder=1, label="fastest"
        )
        palette = matplotlib.colormaps["tab10"]
        order = sorted(curves, key=lambda curve: (curve not in wins, curve[-1]))
        colour = {curve: (palette(i % 10), ("--", "-.", ":")[i // 10 % 3]) for i, curve in enumerate(order)}
        for curve in sorted(curves, key=lambda curve: -curve[-1]):
            look: dict[str, Any] = {
                "linewidth": 1.2,
                "zorder": 3,
                "color": colour[curve][0],
                "linestyle": colour[curve][1],
            }
            if curve in wins:
                look |= {"linewidth": 2.2, "zorder": 4, "linestyle": "-"}
            label = fill(" = ".join(curves[curve]), 40, subsequent_indent="   ")
            if curve in beats:
                label += f"\n   beats {view.against.name if view.against else ''} {beats[curve]}"
            axes.plot(sizes, curve, label=label, **look)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlim(sizes[0], sizes[-1])
        axes.set_ylim(
            float(lowest[0]) / 2 if lowest[0] else None,
            max(float(np.max([t[-1] for t in curves])) * 1.3, 1e-9),
        )
        _mark(axes, view, low, high)
        every = max(1, round((high - low) / 10))
        axes.set_xticks([2.0**k for k in range(low, high + 1, every)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _size(x)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _time(y)))
        axes.grid(which="major", color="#dddddd", linewidth=0.6)
        m = view.machine
        axes.set_xlabel("size m of the full vector, bytes")
        axes.set_ylabel("time in the α-β-γ model")
        axes.set_title(
            f"{view.found.name} on {view.found.n} ranks\nα = {_time(m.alpha)} a {m.startup}, β = {_rate(m.beta)}, "
            f"γ = {_rate(m.gamma)}, {m.ports} port{'s' * (m.ports > 1)}"
            + (", each at its best chunks, radix, …" if view.found.tune else ""),
            loc="left",
        )
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=2.6)
        try:
            # No date: equal input, equal file.
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise UsageError(f"--plot {path}: {error.strerror or error}") from error


def _span(view: _View) -> tuple[int, int]:
    """Powers of two around the size and all crossovers that are told of."""
    told = [s.last for s in view.segments if s.last]
    if view.against:
        told += [meet for c in view.ranked if (meet := crossover(c.line, view.against.line))]
    points = np.log2([float(m) for m in [*told, Fraction(max(1, view.size))] if m >= 1] or [20.0])
    low, high = int(np.floor(points.min())) - 4, int(np.ceil(points.max())) + 4
    return max(0, min(low, high - 16)), max(high, low + 16)


def _mark(axes: Any, view: _View, low: int, high: int) -> None:
    """The crossovers of the envelope, with who is fastest between them; those of the reference as small circles."""
    for s, after in pairwise(view.segments):
        if s.last is None or not 2.0**low < s.last < 2.0**high:
            continue
        y = float(view.lines[s.names[0]].at(s.last))
        axes.axvline(float(s.last), ymax=0.9, color="#555555", linestyle=":", linewidth=1, zorder=2)
        axes.plot([float(s.last)], [y], "o", color="black", markersize=6, zorder=6)
        chosen = after.names[0].split(maxsplit=1)[1:] if view.found.tune else []
        axes.annotate(
            f"{_size(s.last)}, {chosen[0] if chosen else _time(y)}", (float(s.last), y), (7, -7), va="top",
            textcoords="offset points", fontsize=8, zorder=7,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
        )  # fmt: skip
    for left, right, names in _regions(view, low, high):
        wide = int((right - left) / (high - low) * 80)
        # A name may break after an underscore.
        words = [
            line.replace("_ ", "_")
            for line in wrap(names.replace("_", "_ "), max(wide, 1), break_long_words=False)
        ]
        upright = max(map(len, words)) > wide
        axes.text(
            2 ** ((left + right) / 2), 0.985, names if upright else "\n".join(words), rotation=90 if upright else 0,
            transform=axes.get_xaxis_transform(), ha="center", va="top", fontweight="bold", fontsize=8, zorder=7,
        )  # fmt: skip
    if view.against is None or view.found.tune:
        return
    line = view.against.line
    meets = sorted({m for c in view.ranked if (m := crossover(c.line, line))})
    if meets:
        axes.plot(
            [float(m) for m in meets], [float(line.at(m)) for m in meets], "o", markersize=4.5, zorder=5, linestyle="none",
            markerfacecolor="white", markeredgecolor="black", label=f"as fast as {view.against.label}",
        )  # fmt: skip


def _regions(view: _View, low: int, high: int) -> list[tuple[float, float, str]]:
    """From where to where, as powers of two, which algorithms are fastest; neighbours that share one are joined."""
    joined: list[tuple[float, float, list[str]]] = []
    for s in view.segments:
        left = max(low, float(np.log2(float(s.first)))) if s.first else float(low)
        right = min(high, float(np.log2(float(s.last)))) if s.last is not None else float(high)
        names = list(dict.fromkeys(name.split()[0] for name in s.names))
        shared = [name for name in joined[-1][2] if name in names] if joined else []
        if shared:
            joined[-1] = (joined[-1][0], right, shared)
        else:
            joined.append((left, right, names))
    shown = [
        (a, b, names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")) for a, b, names in joined
    ]
    return [region for region in shown if region[0] < region[1]]
