"""A scene as one self-contained page: matplotlib draws the panels, `page.js` steps through them and says what is what.

The page loads nothing. Text of whoever wrote the schedule gets there as JSON data and as SVG text, never as markup, and
the page's own policy lets no script run but this one.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from algocc.draw import figure
from algocc.draw.scene import Scene
from algocc.draw.style import plain, shades

HERE = Path(__file__).parent


def page(scene: Scene) -> str:
    """The text of the HTML file."""
    script = (HERE / "page.js").read_text(encoding="utf-8")
    mode = "in place" if scene.in_place else "out of place"
    with figure.styled():
        panels = {"diagram": _diagram(scene), "panels": _panels(scene) if scene.results else ""}
        data = json.dumps(_data(scene), separators=(",", ":"))
    return Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(
        panels,
        title=html.escape(plain(scene.name, 80)),
        about=html.escape(f"{plain(scene.collective, 120)}, {mode}"),
        verdict=html.escape(f"WRONG: {plain(scene.failure)}" if scene.failure else "correct, proved for every input"),
        state="wrong" if scene.failure else "right",
        notes=html.escape("; ".join(map(plain, scene.left_out))),
        script=script,
        digest=b64encode(sha256(script.encode()).digest()).decode(),
        # Within a script element only "<" could end it.
        data=data.replace("<", "\\u003c"),
    )


def _svg(drawn: Any) -> str:
    """A figure as an element of a page."""
    text = figure.rendered(drawn, "svg").decode()
    return text[text.index("<svg") :]


def _diagram(scene: Scene) -> str:
    from matplotlib.figure import Figure

    wide, tall = figure.size(scene)
    drawn = Figure(figsize=(wide + 2.2, tall + 0.3), layout="constrained")
    grid = drawn.add_gridspec(2, 2, width_ratios=(wide, 2.2), height_ratios=(0.7, tall - 0.4))
    figure.space_time(drawn.add_subplot(grid[:, 0]), scene, ids=True)
    figure.legend(drawn.add_subplot(grid[0, 1]), drawn.add_subplot(grid[1, 1]), scene)
    return _svg(drawn)


def _panels(scene: Scene) -> str:
    """The heat map and the links: a cell each, `c2-3` and `l2-3`, that the script colours."""
    from matplotlib.figure import Figure

    rows, columns = scene.n, len(scene.results)
    tall = min(9.0, max(2.6, 0.3 * rows + 0.9))
    wide = min(12.0, max(4.2, 0.42 * columns + 1.2))
    drawn = Figure(figsize=(wide + tall + 0.4, tall), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(wide, tall))
    _cells(left, "c", rows, columns)
    figure.rank_ticks(left.yaxis, rows)
    shown = list(range(0, columns, 1 + (columns - 1) // 24))
    left.set_xticks(shown, [scene.results[i] for i in shown], rotation=90 if columns > 6 else 0)
    left.set_title("held of each result: white none, dark blue all", loc="left", fontsize=9)
    left.set_ylabel("rank")
    _cells(right, "l", rows, rows)
    figure.rank_ticks(right.xaxis, rows)
    figure.rank_ticks(right.yaxis, rows)
    right.set_aspect("equal")
    right.set(xlabel="to rank", ylabel="from rank")
    right.set_title("vectors sent so far", loc="left", fontsize=9)
    return _svg(drawn)


def _cells(axes: Any, kind: str, rows: int, columns: int) -> None:
    from matplotlib.patches import Rectangle

    for row in range(rows):
        for column in range(columns):
            cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="white", edgecolor="#dddddd", linewidth=0.5)
            cell.set_gid(f"{kind}{row}-{column}")
            axes.add_patch(cell)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(length=0)


def _data(scene: Scene) -> dict[str, Any]:
    """What the script needs to know: rows of `writes` and `holdings` as it unpacks them."""
    first = scene.steps.start
    earlier = np.zeros((scene.n, scene.n), np.int64)
    sent: list[dict[tuple[int, int], int]] = [{} for _ in scene.steps]
    for w in scene.writes:
        if w.src != w.dst and w.step < first:
            earlier[w.src, w.dst] += w.units
        elif w.src != w.dst and w.step in scene.steps:
            now = sent[w.step - first]
            now[w.src, w.dst] = now.get((w.src, w.dst), 0) + w.units
    so_far = [{(a, b): int(earlier[a, b]) for a, b in zip(*map(list, np.nonzero(earlier)), strict=True)}, *sent]
    return {
        "n": scene.n,
        "whole": scene.whole,
        "busiest": int(scene.links().max(initial=0)),
        "first": first,
        "steps": len(scene.steps),
        "inputs": scene.inputs,
        "results": scene.results,
        "drawn": scene.drawn,
        "shades": shades(figure.SHADES),
        "writes": [
            [w.step, w.reduces, w.src, w.dst, w.what, w.carries, w.holds, plain(w.source, 200), w.needs, w.culprit]
            for w in scene.writes
        ],
        "holdings": [
            [[rank, result, _shade(c.share), str(c.share), c.event, c.wrong] for (rank, result), c in changed.items()]
            for changed in scene.holdings
        ],
        "sent": [[[int(a), int(b), units] for (a, b), units in step.items()] for step in so_far],
    }


def _shade(share: Fraction) -> int:
    return -int(-share * (figure.SHADES - 1) // 1)
