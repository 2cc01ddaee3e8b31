"""A scene as matplotlib figures: the space-time diagram, who holds how much when, and what goes over each link."""

from __future__ import annotations

import io
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from textwrap import fill
from typing import Any

import numpy as np

from algocc.draw.scene import Scene
from algocc.draw.style import STYLE, WRONG, chunk_colour, plain, shades

LABELLED = 72
"""Arrows up to which each is labelled with its chunk."""
SHADES = 65
"""Shades of a heat map."""
DASHES = (0, (3.5, 1.8))
"""Of a copy."""
RASTER = 3_000
"""Cells beyond which a heat map is an image within the SVG."""


@contextmanager
def styled() -> Iterator[None]:
    """Figures made within look the same whatever the user's settings."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def image(scene: Scene, form: str) -> bytes:
    """The whole picture as the bytes of a file: svg, png or pdf."""
    with styled():
        return rendered(whole(scene), form)


def rendered(figure: Any, form: str) -> bytes:
    """A figure as the bytes of a file; equal figures, equal bytes."""
    out = io.BytesIO()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(out, format=form, dpi=150, metadata=undated.get(form))
    return out.getvalue()


def whole(scene: Scene) -> Any:
    """All panels: the diagram over the strip of heat maps, with the same steps; beside them the legend and the links."""
    from matplotlib.figure import Figure

    wide, tall = size(scene)
    side, low = 2.6, max(2.5, min(5.0, 0.13 * scene.n + 0.4))
    heights = [tall, low] if scene.results else [tall]
    figure = Figure(figsize=(wide + side + 0.6, sum(heights) + 1.2), layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, width_ratios=(wide, side), height_ratios=heights)
    axes = figure.add_subplot(grid[0, 0])
    space_time(axes, scene)
    keys = grid[0, 1].subgridspec(2, 1, height_ratios=(0.7, tall - 0.7))
    legend(figure.add_subplot(keys[0]), figure.add_subplot(keys[1]), scene)
    if scene.results:
        heat_strip(figure.add_subplot(grid[1, 0], sharex=axes), scene, int(wide * 12))
        link_use(figure.add_subplot(grid[1, 1]), scene)
    title(figure, scene, wide + side)
    return figure


def small(scene: Scene) -> Any:
    """The diagram alone, for a gallery or a notebook."""
    from matplotlib.figure import Figure

    wide, tall = size(scene)
    figure = Figure(figsize=(max(3.6, 0.7 * wide), 0.8 * tall), layout="constrained")
    space_time(figure.add_subplot(), scene)
    return figure


def size(scene: Scene) -> tuple[float, float]:
    """Inches of a diagram, wide and tall."""
    columns = len(scene.steps) + 1
    return min(22.0, max(5.5, columns * (1.25 if columns <= 13 else 0.8))), min(16.0, max(2.4, 0.42 * scene.n + 0.6))


def title(figure: Any, scene: Scene, wide: float) -> None:
    """What it is, what is wrong with it, and what is left out; wide: inches."""
    words = f"{plain(scene.name, 80)}: {plain(scene.collective, 120)}, {'in place' if scene.in_place else 'out of place'}"
    figure.suptitle(fill(words, int(wide * 8)), x=0.01, ha="left", fontsize=12, fontweight="bold")
    notes = [f"WRONG: {plain(scene.failure)}"] if scene.failure else []
    notes += map(plain, scene.left_out)
    text = "\n".join(fill(note, int(wide * 12)) for note in notes)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=9, color=WRONG if scene.failure else "#555555")


def space_time(axes: Any, scene: Scene, *, ids: bool = False) -> None:
    """Ranks downwards, steps to the right; an arrow for each chunk that moves, from before the step to after it.

    ids: name the artists for a page, `w3` for write 3, `t3` for its label and `b2` for the band of step 2.
    """
    from matplotlib.patches import FancyArrowPatch

    first, stop = scene.steps.start, scene.steps.stop
    _frame(axes, scene)
    for step in scene.steps:
        band = axes.axvspan(step + 0.03, step + 0.97, color="#f2f4f7" if step % 2 else "#fafbfc", linewidth=0, zorder=0)
        if ids:
            band.set_gid(f"b{step}")
    axes.hlines(range(scene.n), first - 0.1, stop + 0.1, color="#d0d0d0", linewidth=0.8, zorder=1)
    dots = np.array([(state, rank) for state in range(first, stop + 1) for rank in range(scene.n)]).reshape(-1, 2)
    axes.plot(dots[:, 0], dots[:, 1], "o", color="#9a9a9a", markersize=2.6, zorder=2)
    chunks = colours(scene)
    offsets = _offsets(scene)
    labelled = chunks > 1 and len(scene.drawn) <= LABELLED
    thin = 1.0 if len(scene.drawn) > 300 else 1.5
    for i in scene.drawn:
        w = scene.writes[i]
        start, end = (w.step + 0.07, w.src + offsets[i]), (w.step + 0.93, w.dst + offsets[i])
        colour = WRONG if w.culprit else chunk_colour(w.chunk, chunks)
        arrow = FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=7 if len(scene.drawn) > 300 else 9, shrinkA=0, shrinkB=0,
            color=colour, linewidth=2 * thin if w.culprit else thin * (1.15 if w.reduces else 0.85),
            linestyle="-" if w.reduces else DASHES, zorder=5 if w.culprit else 3,
            alpha=0.65 if w.src == w.dst else 1.0,
        )  # fmt: skip
        if ids:
            arrow.set_gid(f"w{i}")
        axes.add_patch(arrow)
        if labelled and w.src != w.dst:
            at = 0.24 if (w.src + w.dst) % 2 else 0.34
            label = axes.text(
                start[0] + at * (end[0] - start[0]), start[1] + at * (end[1] - start[1]), str(w.chunk), fontsize=7,
                ha="center", va="center", color=colour, zorder=6, fontweight="bold",
                bbox={"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.85},
            )  # fmt: skip
            if ids:
                label.set_gid(f"t{i}")
    for step, rank in scene.marks:
        if step in scene.steps:
            axes.plot([step + 1], [rank], "o", markersize=15, markerfacecolor="none", markeredgecolor=WRONG,
                      markeredgewidth=2, zorder=7)  # fmt: skip


def _frame(axes: Any, scene: Scene) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axes.set_xlim(scene.steps.start - 0.45, scene.steps.stop + 0.45)
    axes.set_ylim(scene.n - 0.4, -0.6)
    every = 1 + len(scene.steps) // 33
    shown = list(scene.steps)[::every]
    axes.xaxis.set_major_locator(FixedLocator([step + 0.5 for step in shown]))
    wordy = len(scene.steps) <= 16
    axes.xaxis.set_major_formatter(FixedFormatter([f"step {step}" if wordy else str(step) for step in shown]))
    axes.xaxis.set_ticks_position("top")
    if not wordy:
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("step")
    ranks = list(range(0, scene.n, 1 + (scene.n - 1) // 32))
    axes.yaxis.set_major_locator(FixedLocator(ranks))
    axes.yaxis.set_major_formatter(FixedFormatter([f"rank {rank}" if scene.n <= 16 else str(rank) for rank in ranks]))
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _offsets(scene: Scene) -> dict[int, float]:
    """How far each arrow is moved aside, in ranks, so that those of one pair of ranks lie side by side."""
    together: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i in scene.drawn:
        w = scene.writes[i]
        together[w.step, w.src, w.dst].append(i)
    apart: dict[int, float] = {}
    for arrows in together.values():
        gap = min(0.14, 0.6 / len(arrows))
        apart |= {i: (k - (len(arrows) - 1) / 2) * gap for k, i in enumerate(arrows)}
    return apart


def colours(scene: Scene) -> int:
    """Numbers of chunks that need a colour."""
    return 1 + max((w.chunk for w in scene.writes), default=0)


def legend(above: Any, below: Any, scene: Scene) -> None:
    """What lines mean, and colours."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    drawn = [scene.writes[i] for i in scene.drawn]
    looks = {"loc": "upper left", "frameon": False, "borderaxespad": 0, "alignment": "left"}
    lines = []
    if any(w.reduces for w in drawn):
        lines.append(Line2D([], [], color="#444444", linewidth=2, label="reduce"))
    if any(not w.reduces for w in drawn):
        lines.append(Line2D([], [], color="#444444", linewidth=1.4, linestyle=DASHES, label="copy"))
    if scene.marks:
        ring: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgewidth": 2}
        lines.append(Line2D([], [], color=WRONG, linewidth=2.4, label="goes wrong here", **ring))
    above.legend(handles=lines, **looks)
    chunks = sorted({w.chunk for w in drawn})
    most = 24
    shown = chunks if len(chunks) <= most else [chunks[round(k * (len(chunks) - 1) / (most - 1))] for k in range(most)]
    patches = [Patch(color=chunk_colour(chunk, colours(scene)), label=str(chunk)) for chunk in shown]
    heading = "chunk written" + (", some of them" if len(shown) < len(chunks) else "")
    below.legend(handles=patches, title=heading, ncols=4, columnspacing=1, handlelength=1.2, **looks)
    above.set_axis_off()
    below.set_axis_off()


def heat_strip(axes: Any, scene: Scene, wide: int) -> None:
    """A small heat map between the steps: ranks downwards, results to the right, darker the more a rank holds."""
    from matplotlib.colors import ListedColormap
    shape = (scene.n, len(scene.results))
    raster = shape[0] * shape[1] * len(scene.holdings) > RASTER
    colours_of = ListedColormap(shades(SHADES))
    for state, cells in enumerate(scene.states()):
        left = scene.steps.start + state - 0.36
        share = np.zeros(shape)
        for (rank, result), cell in cells.items():
            share[rank, result] = float(cell.share)
        edges = left + 0.72 * np.arange(shape[1] + 1) / shape[1]
        line = {} if raster else {"edgecolor": "#dddddd", "linewidth": 0.3}
        mesh = axes.pcolormesh(edges, np.arange(shape[0] + 1) - 0.5, share, cmap=colours_of, vmin=0, vmax=1, **line)
        mesh.set_rasterized(raster)
        axes.plot(
            [left, left + 0.72, left + 0.72, left, left], [-0.5, -0.5, shape[0] - 0.5, shape[0] - 0.5, -0.5],
            color="#bbbbbb", linewidth=0.6,
        )  # fmt: skip
        wrong = [(left + 0.72 * (result + 0.5) / shape[1], rank) for (rank, result), cell in cells.items() if cell.wrong]
        if wrong:
            axes.plot(*zip(*wrong, strict=True), "x", color=WRONG, markersize=5, markeredgewidth=1.5)
    axes.set_ylim(scene.n - 0.4, -0.6)
    axes.tick_params(length=0, labeltop=False, labelbottom=False, top=False)
    rank_ticks(axes.yaxis, scene.n)
    for spine in axes.spines.values():
        spine.set_visible(False)
    words = f"how much of each result a rank holds: ranks ↓, {_results(scene)} →; white none, dark blue all"
    if scene.failure:
        words += "; × wrong in the end"
    axes.set_title(fill(words, wide), loc="left", fontsize=9)


def rank_ticks(axis: Any, n: int, most: int = 16) -> None:
    """Numbers of ranks along an axis, of more than `most` only some."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    ranks = list(range(0, n, 1 + (n - 1) // most))
    axis.set_major_locator(FixedLocator(ranks))
    axis.set_major_formatter(FixedFormatter([str(rank) for rank in ranks]))


def _results(scene: Scene) -> str:
    """As in `out[0] … out[3]`."""
    first, last = scene.results[0], scene.results[-1]
    return first if first == last else f"{first} … {last}"


def link_use(axes: Any, scene: Scene) -> None:
    """What each rank sends to each other in all steps, in vectors."""
    from matplotlib.colors import ListedColormap
    sent = scene.links()
    axes.pcolormesh(
        np.arange(scene.n + 1) - 0.5, np.arange(scene.n + 1) - 0.5, sent, cmap=ListedColormap(shades(SHADES)), vmin=0,
        vmax=max(1, sent.max()), edgecolor="#e4e4e4" if scene.n <= 32 else "none", linewidth=0.3,
    ).set_rasterized(scene.n > 32)  # fmt: skip
    if scene.n <= 8:
        for a, b in zip(*np.nonzero(sent), strict=True):
            dark = sent[a, b] > 0.6 * sent.max()
            axes.text(b, a, str(Fraction(int(sent[a, b]), scene.whole)), ha="center", va="center", fontsize=7.5,
                      color="white" if dark else "#222222")  # fmt: skip
    axes.set_aspect("equal")
    axes.set_xlim(-0.5, scene.n - 0.5)
    axes.set_ylim(scene.n - 0.5, -0.5)
    rank_ticks(axes.xaxis, scene.n, 8)
    rank_ticks(axes.yaxis, scene.n, 8)
    axes.tick_params(length=0)
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    axes.set_title("link use: " + ("vectors sent" if sent.any() else "none"), loc="left", fontsize=9)
    if sent.any() and scene.n > 8:
        axes.set_title(f"link use: up to {Fraction(int(sent.max()), scene.whole)} vectors", loc="left", fontsize=9)
