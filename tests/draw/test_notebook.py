"""What a notebook shows, with matplotlib and without."""

from __future__ import annotations

import sys
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest

from algocc.draw.notebook import schedule_html
from algocc.draw.topology import places
from algocc.schedules.ring import ring
from algocc.steps import Steps
from algocc.table import Schedule
from algocc.topology import Link, Node, Topology
from algocc.verifier import verify


def star(switches: int, ranks: int = 4) -> Topology:
    """Ranks that are joined through switches, in one direction twice as fast."""
    nodes = [Node(f"gpu{i}") for i in range(ranks)] + [Node(f"<b>{i}", "nvswitch") for i in range(switches)]
    links = []
    for rank in range(ranks):
        for switch in range(ranks, ranks + switches):
            links += [Link(rank, switch, Fraction(25)), Link(switch, rank, Fraction(50))]
    return Topology("star", tuple(nodes), tuple(links))


def test_a_schedule_is_a_picture_or_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    shown = ring(4)._repr_html_()
    ElementTree.fromstring(shown)
    assert "<svg" in shown and "Schedule ring: all_reduce" in shown
    assert ring(17)._repr_html_().startswith("<pre>")
    assert ring(600)._repr_html_().startswith("<pre>&lt;Schedule ring")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert schedule_html(ring(4)).startswith("<pre>schedule ring: all_reduce n=4 chunks=4, 7 steps")


def test_a_wrong_one_says_so(hostile: Schedule) -> None:
    assert "<script>" not in hostile._repr_html_()
    if hostile._repr_html_().startswith("<div>"):
        assert "WRONG: " in hostile._repr_html_()
    s = Steps(ring(2).collective)
    with s.step():
        s.send(rank=0, to=1, chunk=0)
    assert "send" in s.build()._repr_html_() or "sent" in s.build()._repr_html_()


def test_a_report_is_a_table(hostile: Schedule) -> None:
    shown = verify(ring(4))._repr_html_()
    rows = {tr[0].text: tr[1].text for tr in ElementTree.fromstring(shown).iter("tr")}
    assert str(rows["steps"]).startswith("6, bound 2") and str(rows["correct"]).startswith("yes, proved")
    assert rows["sent"] == "3/2 of the vector by the busiest rank, bound 3/2: optimal"
    wrong = verify(hostile)._repr_html_()
    assert "<script>" not in wrong and "holds {0,1}" in wrong


def test_a_topology_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    for switches in (0, 1, 3):
        at = places(star(switches))
        apart = np.linalg.norm(at[:, None] - at[None], axis=-1) + np.eye(len(at))
        assert apart.min() > 0.2
        shown = star(switches)._repr_html_()
        said = "".join(ElementTree.fromstring(shown).itertext())
        assert "gpu3" in said and (switches == 0) == ("<b>0" not in said)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert star(1)._repr_html_() == "<pre>star: 5 nodes, 8 links</pre>"
