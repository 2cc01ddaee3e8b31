"""A topology as a matplotlib figure: ranks on a circle, switches within, links as thick as they are fast."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.draw.style import CHUNK_COLOURS, plain
from algocc.topology import Topology

MOST_NODES = 64
"""Nodes that a picture can show."""
LABELLED = 40
"""Pairs of nodes up to which the bandwidths between them are written."""


def network(t: Topology) -> Any:
    """The figure; an arrow each way where a pair is not joined alike in both directions."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch

    size = min(9.0, 3.6 + 0.1 * len(t.nodes))
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25))
    at = places(t)
    rate: dict[tuple[int, int], Fraction] = {}
    for link in t.links:
        rate[link.start, link.end] = rate.get((link.start, link.end), Fraction(0)) + link.nominal
    fastest = max(rate.values(), default=Fraction(1)) or Fraction(1)
    pairs = {(min(a, b), max(a, b)) for a, b in rate}
    for (a, b), fast in rate.items():
        alike = rate.get((b, a)) == fast
        if alike and a > b:
            continue
        axes.add_patch(
            FancyArrowPatch(
                at[a], at[b], arrowstyle="-" if alike else "-|>", mutation_scale=11, color="#7d8894", zorder=1,
                linewidth=0.8 + 3.2 * float(fast / fastest), shrinkA=11, shrinkB=11,
                connectionstyle="arc3" if alike else "arc3,rad=0.12",
            )
        )  # fmt: skip
        if len(pairs) <= LABELLED:
            x, y = 0.6 * at[a] + 0.4 * at[b]
            axes.text(x, y, f"{float(fast):.4g}", fontsize=7, ha="center", va="center", zorder=2,
                      bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none"})  # fmt: skip
    for node, (x, y) in zip(t.nodes, at, strict=True):
        rank = node.kind == "rank"
        axes.plot(
            [x], [y], "o" if rank else "s", markersize=17, color=CHUNK_COLOURS[0] if rank else "#5c6670", zorder=3
        )
        axes.text(x, y, plain(node.name, 12), fontsize=6.5, color="white", ha="center", va="center", zorder=4)
    axes.set_title("circles: ranks, squares: switches; GB/s", fontsize=8, loc="left")
    return figure


def places(t: Topology) -> NDArray[np.float64]:
    """Where the nodes are: ranks on the unit circle, switches on a smaller one, near those they join; shape (nodes, 2)."""
    ranks = [i for i, node in enumerate(t.nodes) if node.kind == "rank"]
    others = [i for i, node in enumerate(t.nodes) if node.kind != "rank"]
    at = np.zeros((len(t.nodes), 2))
    at[ranks] = _circle(len(ranks))
    pull = {i: sum((at[link.end] for link in t.links if link.start == i), np.zeros(2)) for i in others}
    others.sort(key=lambda i: (np.arctan2(pull[i][0], pull[i][1]) % (2 * np.pi), i))
    if len(others) > 1 or not ranks:
        # Turned a little, so that no link passes behind a switch.
        at[others] = _circle(len(others), turn=np.pi / (2 * max(1, len(ranks)))) * (0.5 if ranks else 1.0)
    return at


def _circle(count: int, turn: float = 0.0) -> NDArray[np.float64]:
    angle = turn + 2 * np.pi * np.arange(count) / max(1, count)
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)
