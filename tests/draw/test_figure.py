"""The files: well-formed, the same each time, with every transfer and text in them, whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from algocc.draw import Scene, picture, scene
from algocc.draw import figure as figures
from algocc.draw.page import _diagram
from algocc.draw.style import CHUNK_COLOURS, WRONG, chunk_colour, shades
from algocc.schedules.all_to_all import pairwise_all_to_all
from algocc.schedules.barrier import dissemination_barrier
from algocc.schedules.recursive import rabenseifner
from algocc.schedules.ring import ring
from algocc.steps import Steps
from algocc.table import Schedule

pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")

ODD = [ring(1), pairwise_all_to_all(3), dissemination_barrier(3), Steps(ring(2).collective, load=False).build()]


def texts(svg: bytes) -> str:
    return " ".join("".join(e.itertext()) for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text"))


@pytest.mark.parametrize("form, magic", [(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".HTML", b"<!DOC")])
def test_equal_scenes_are_equal_files(form: str, magic: bytes) -> None:
    first, second = (picture(scene(ring(3)), form) for _ in range(2))
    assert first.startswith(magic) and first == second


def test_the_picture_says_what_it_shows() -> None:
    said = texts(picture(scene(rabenseifner(4)), ".svg"))
    for part in ("rabenseifner: all_reduce n=4 chunks=4, out of place", "rank 3", "step 4", "reduce", "copy", "link use", "1/2"):
        assert part in said
    assert "WRONG" not in said


@pytest.mark.parametrize("found", [scene(s) for s in (ring(4), rabenseifner(3), *ODD)], ids=lambda found: f"{found.name}-{found.n}")
def test_each_write_has_its_arrow(found: Scene) -> None:
    with figures.styled():
        ids = {e.get("id") for e in ElementTree.fromstring(_diagram(found)).iter()}
    assert {f"w{i}" for i in range(len(found.writes))} <= ids
    assert f"w{len(found.writes)}" not in ids
    assert {f"b{step}" for step in found.steps} <= ids
    assert picture(found, ".svg") and picture(found, ".html")


def test_what_is_wrong_is_said_and_red() -> None:
    s = Steps(ring(3).collective)
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
        s.reduce(src=0, dst=1, chunk=0)
    svg = picture(scene(s.build()), ".svg")
    assert "WRONG: step 1, rank 1: out[0]" in texts(svg) and WRONG.encode() in svg
    assert WRONG.encode() not in picture(scene(ring(3)), ".svg")


def test_a_hostile_name_is_only_text(hostile: Schedule) -> None:
    root = ElementTree.fromstring(picture(scene(hostile), ".svg"))
    assert not [e for e in root.iter() if e.tag.rpartition("}")[2] in ("script", "img")]
    assert "</script><script>" in texts(picture(scene(hostile), ".svg"))
    assert picture(scene(hostile), ".png").startswith(b"\x89PNG")


def test_colours_differ() -> None:
    for count in (1, 8, 9, 64):
        assert len({chunk_colour(chunk, count) for chunk in range(count)}) == count
    assert WRONG not in CHUNK_COLOURS
    assert shades(65)[0] == "#ffffff" and len(set(shades(65))) == 65
