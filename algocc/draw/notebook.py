"""What a notebook shows of a Schedule, a Report and a Topology.

These values lie below the drawing, so their `_repr_html_` load this module by name when a notebook asks for it. Without
matplotlib, or for what is too large, it is text.
"""

from __future__ import annotations

from html import escape

from algocc import render
from algocc.draw import figure
from algocc.draw.picture import can_draw
from algocc.draw.scene import scene
from algocc.draw.style import plain
from algocc.draw.topology import MOST_NODES, network
from algocc.errors import AlgoccError, counted
from algocc.table import Schedule
from algocc.topology import Topology
from algocc.verifier.report import Report, summary

MOST_RANKS = 16
MOST_ROWS = 400
"""What is drawn without being asked for."""


def schedule_html(s: Schedule) -> str:
    """The space-time diagram, or what each step does as text."""
    if can_draw() and s.n <= MOST_RANKS and len(s) <= MOST_ROWS:
        try:
            found = scene(s)
            with figure.styled():
                svg = figure.rendered(figure.small(found), "svg").decode()
            wrong = f"<div style='color:#b3151b'>WRONG: {escape(plain(found.failure))}</div>" if found.failure else ""
            left_out = escape("; ".join(map(plain, found.left_out)))
            return f"<div><b>{escape(plain(repr(s)))}</b>{wrong}{svg[svg.index('<svg') :]}<div>{left_out}</div></div>"
        except AlgoccError:
            pass  # more than a picture can show
    return _text(render.step_table(s, most=8) if len(s) <= MOST_ROWS else repr(s))


def report_html(r: Report) -> str:
    """The report as a table, its verdict in colour."""
    title, *lines = summary(r).split("\n")
    rows = []
    for line in lines:
        key, value = (line[:14].strip(), line[14:]) if line[2:3] != " " else ("", line.strip())
        colour = "" if key != "correct" else f"color:{'#00694a' if r.correct else '#b3151b'};font-weight:600"
        rows.append(f"<tr><th style='text-align:left'>{escape(key)}</th>"
                    f"<td style='text-align:left;white-space:pre-wrap;{colour}'>{escape(value)}</td></tr>")  # fmt: skip
    return f"<div><b>{escape(title)}</b><table>{''.join(rows)}</table></div>"


def topology_html(t: Topology) -> str:
    """The nodes and links, or how many there are."""
    if can_draw() and len(t.nodes) <= MOST_NODES:
        with figure.styled():
            svg = figure.rendered(network(t), "svg").decode()
        return f"<div><b>{escape(plain(t.name))}</b>{svg[svg.index('<svg') :]}</div>"
    return _text(f"{t.name}: {counted(len(t.nodes), 'node')}, {counted(len(t.links), 'link')}")


def _text(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"
