"""The plot of a comparison: time over size, the fastest and its crossovers marked."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.cli import units
from algocc.cli.comparison import Ranking, faster
from algocc.errors import UsageError, counted
from algocc.model import Line, crossover

Array = NDArray[Any]

PLOTS = (".svg", ".png", ".pdf")


def check_plot(path: Path, name: str) -> None:
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
        raise UsageError("--plot needs matplotlib, which is not installed: pip install 'algocc[plot]'") from error


class Curve(NamedTuple):
    """The times at the sizes drawn, and of which algorithms they are.

    wins: whether one of them is the fastest somewhere.
    beats: for which sizes they are faster than the reference, "" if nowhere, always or not to be said.
    """

    times: tuple[float, ...]
    labels: list[str]
    wins: bool
    beats: str


def draw(ranking: Ranking, path: Path) -> None:
    """Time over size, both logarithmic: a line an algorithm, the envelope under them, its crossovers marked."""
    if min(ranking.lines.values()) == Line(Fraction(0), Fraction(0)):
        raise UsageError(f"--plot {path}: some times are 0 at every size, and 0 has no place on a logarithmic axis")
    import matplotlib
    from matplotlib.figure import Figure

    low, high = _span(ranking)
    with matplotlib.rc_context({"svg.hashsalt": "algocc", "font.size": 9}):
        figure = Figure(figsize=(10.5, 6), layout="constrained")
        axes = figure.add_subplot()
        _draw_curves(axes, ranking, 2.0 ** np.linspace(low, high, 401))
        _mark(axes, ranking, low, high)
        _draw_axes(axes, ranking, low, high)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=2.6)
        try:
            # No date: equal input, equal file.
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise UsageError(f"--plot {path}: {error.strerror or error}") from error


def _draw_curves(axes: Any, ranking: Ranking, sizes: Array) -> None:
    import matplotlib

    curves = _curves(ranking, sizes)
    lowest = np.min([c.times for c in curves], axis=0)
    axes.plot(sizes, lowest, color="#ffd54a", linewidth=9, solid_capstyle="round", zorder=1, label="fastest")
    palette = matplotlib.colormaps["tab10"]
    order = sorted(curves, key=lambda c: (not c.wins, c.times[-1]))
    looks = {c.times: (palette(i % 10), ("--", "-.", ":")[i // 10 % 3]) for i, c in enumerate(order)}
    for c in sorted(curves, key=lambda c: -c.times[-1]):
        label = fill(" = ".join(c.labels), 40, subsequent_indent="   ")
        if c.beats and ranking.against:
            label += f"\n   beats {ranking.against.name} {c.beats}"
        colour, dashes = looks[c.times]
        wide: dict[str, Any] = {"linewidth": 1.2, "zorder": 3, "linestyle": dashes}
        if c.wins:
            wide = {"linewidth": 2.2, "zorder": 4, "linestyle": "-"}
        axes.plot(sizes, c.times, label=label, color=colour, **wide)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(sizes[0], sizes[-1])
    axes.set_ylim(float(lowest[0]) / 2 if lowest[0] else None, max(max(c.times[-1] for c in curves) * 1.3, 1e-9))


def _curves(ranking: Ranking, sizes: Array) -> list[Curve]:
    """One for each algorithm, with --tune the best of its candidates at each size; equal ones together."""
    winners = {label.split()[0] for s in ranking.segments for label in s.names}
    curves: dict[tuple[float, ...], Curve] = {}
    for c in ranking.ranked:
        lines = [(float(d.line.fixed), float(d.line.slope)) for d in ranking.found.candidates if d.name == c.name]
        times = tuple(np.min([fixed + slope * sizes for fixed, slope in lines], axis=0).tolist())
        known = curves.get(times, Curve(times, [], False, ""))
        beats = known.beats
        if ranking.against and not ranking.found.tune and c.line != ranking.against.line:
            where = faster(c.line, ranking.against.line)
            beats = beats if where in ("always", "never") else where
        label = c.name if ranking.found.tune else c.label
        curves[times] = Curve(times, [*known.labels, label], known.wins or c.name in winners, beats)
    return list(curves.values())


def _draw_axes(axes: Any, ranking: Ranking, low: int, high: int) -> None:
    """What the axes say, and the title."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_xticks([2.0**k for k in range(low, high + 1, max(1, round((high - low) / 10)))])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: units.size(x)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: units.time(y)))
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    m = ranking.machine
    axes.set_xlabel("size m of the full vector, bytes")
    axes.set_ylabel("time in the α-β-γ model")
    axes.set_title(
        f"{ranking.found.name} on {counted(ranking.found.n, 'rank')}\n"
        f"α = {units.time(m.alpha)} a {m.startup}, β = {units.rate(m.beta)}, γ = {units.rate(m.gamma)}, "
        f"{counted(m.ports, 'port')}" + (", each at its best chunks, radix, …" if ranking.found.tune else ""),
        loc="left",
    )


def _span(ranking: Ranking) -> tuple[int, int]:
    """Powers of two around the size and all crossovers that are told of."""
    told = [s.last for s in ranking.segments if s.last]
    if ranking.against:
        told += [meet for c in ranking.ranked if (meet := crossover(c.line, ranking.against.line))]
    points = np.log2([float(m) for m in [*told, Fraction(max(1, ranking.size))] if m >= 1] or [20.0])
    low, high = int(np.floor(points.min())) - 4, int(np.ceil(points.max())) + 4
    return max(0, min(low, high - 16)), max(high, low + 16)


def _mark(axes: Any, ranking: Ranking, low: int, high: int) -> None:
    """The crossovers of the envelope, with who is fastest between them; those of the reference as small circles."""
    for s, after in pairwise(ranking.segments):
        if s.last is None or not 2.0**low < s.last < 2.0**high:
            continue
        y = float(ranking.lines[s.names[0]].at(s.last))
        axes.axvline(float(s.last), ymax=0.9, color="#555555", linestyle=":", linewidth=1, zorder=2)
        axes.plot([float(s.last)], [y], "o", color="black", markersize=6, zorder=6)
        chosen = after.names[0].split(maxsplit=1)[1:] if ranking.found.tune else []
        axes.annotate(
            f"{units.size(s.last)}, {chosen[0] if chosen else units.time(y)}", (float(s.last), y), (7, -7), va="top",
            textcoords="offset points", fontsize=8, zorder=7,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
        )  # fmt: skip
    for left, right, names in _regions(ranking, low, high):
        wide = int((right - left) / (high - low) * 80)
        # A name may break after an underscore.
        words = [
            line.replace("_ ", "_") for line in wrap(names.replace("_", "_ "), max(wide, 1), break_long_words=False)
        ]
        upright = max(map(len, words)) > wide
        axes.text(
            2 ** ((left + right) / 2), 0.985, names if upright else "\n".join(words), rotation=90 if upright else 0,
            transform=axes.get_xaxis_transform(), ha="center", va="top", fontweight="bold", fontsize=8, zorder=7,
        )  # fmt: skip
    if ranking.against is None or ranking.found.tune:
        return
    line = ranking.against.line
    meets = sorted({m for c in ranking.ranked if (m := crossover(c.line, line))})
    if meets:
        axes.plot(
            [float(m) for m in meets], [float(line.at(m)) for m in meets], "o", markersize=4.5, zorder=5, linestyle="none",
            markerfacecolor="white", markeredgecolor="black", label=f"as fast as {ranking.against.label}",
        )  # fmt: skip


def _regions(ranking: Ranking, low: int, high: int) -> list[tuple[float, float, str]]:
    """From where to where, as powers of two, which algorithms are fastest; neighbours that share one are joined."""
    joined: list[tuple[float, float, list[str]]] = []
    for s in ranking.segments:
        left = max(low, float(np.log2(float(s.first)))) if s.first else float(low)
        right = min(high, float(np.log2(float(s.last)))) if s.last is not None else float(high)
        names = list(dict.fromkeys(name.split()[0] for name in s.names))
        shared = [name for name in joined[-1][2] if name in names] if joined else []
        if shared:
            joined[-1] = (joined[-1][0], right, shared)
        else:
            joined.append((left, right, names))
    shown = [(a, b, names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")) for a, b, names in joined]
    return [region for region in shown if region[0] < region[1]]
