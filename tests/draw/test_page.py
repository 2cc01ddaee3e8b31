"""The page, in a real browser: steps, tips, trees; it loads nothing, and names in it are only text."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from typing import Any

import pytest

from algocc.draw import scene
from algocc.draw.page import page
from algocc.reference import interpret
from algocc.schedules.ring import ring
from algocc.steps import Steps
from algocc.table import Schedule

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra `test`, is not installed")
pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")


def shown(browser_page: Any, kind: str) -> int:
    return int(browser_page.locator(f"#diagram g.{kind}[id^=w]").count())


def test_it_is_self_contained() -> None:
    html = page(scene(ring(3)))
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", html.replace("xlink:href", "href"))
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 1
    assert f"script-src 'sha256-{b64encode(sha256(scripts[0].encode()).digest()).decode()}'" in html


def test_stepping(open_page: Any) -> None:
    opened = open_page(page(scene(ring(4))))
    when = opened.locator("#when")
    assert when.text_content() == "before step 0" and shown(opened, "now") == 0
    opened.click("#on")
    assert when.text_content() == "after step 0 of 0..6" and shown(opened, "now") == 16
    opened.keyboard.press("ArrowRight")
    assert shown(opened, "now") == 4 and shown(opened, "before") == 16 and shown(opened, "after") == 20
    assert opened.locator("#panels .used").count() == 4
    opened.keyboard.press("End")
    dark = opened.evaluate("data.shades.at(-1)")
    fills = opened.eval_on_selector_all("[id^=c].cell path", "paths => paths.map(p => p.style.fill)")
    assert len(fills) == 16 and len(set(fills)) == 1
    assert opened.evaluate("c => { const d = document.createElement('i'); d.style.color = c; return d.style.color }", dark) == fills[0]
    opened.fill("#slider", "2")
    assert when.text_content() == "after step 1 of 0..6"
    opened.keyboard.press("ArrowLeft")
    opened.locator("#b5").click(position={"x": 3, "y": 3})
    assert when.text_content() == "after step 5 of 0..6"
    opened.click("#play")
    sync_api.expect(when).to_have_text("after step 6 of 0..6")
    assert opened.locator("#play").text_content() == "play"


def test_hovering_says_what_is_carried(open_page: Any) -> None:
    found = scene(ring(4))
    opened = open_page(page(found))
    at = next(i for i, w in enumerate(found.writes) if w.what == "r3.out[1] += r2.out[1]")
    box = opened.locator(f"#w{at}").bounding_box()
    opened.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"])
    said = opened.locator("#tip").text_content().split("\n")
    w = found.writes[at]
    assert said[:4] == [w.what, f"step {w.step}, rank 2 to rank 3, reduce", f"carries the contributions of {w.carries}", f"then there is {w.holds}"]
    assert re.fullmatch(r"ring\.py:\d+", said[4])
    opened.keyboard.press("End")
    opened.locator("#c2-1").hover()
    assert opened.locator("#tip").text_content() == "rank 2 holds all of out[1], {0-3} in r2.out[1]"
    opened.locator("#l2-3").hover()
    assert opened.locator("#tip").text_content() == "rank 2 to rank 3: 3/2 vectors so far, 1/4 in this step"


def test_following_a_chunk_shows_its_tree(open_page: Any) -> None:
    """The leaves of the tree of every output are what the slow interpreter says is there."""
    s = ring(4)
    opened = open_page(page(scene(s)))
    opened.keyboard.press("End")
    for (rank, chunk), held in interpret(s).outputs().items():
        opened.locator(f"#c{rank}-{chunk}").click()
        lines = opened.locator("#tree").text_content().split("\n")
        leaves = Counter(line.lstrip("│├└─ ") for line in lines if "step" not in line)
        assert held is not None and leaves == Counter({f"r{r}.in[{i}]": k for (r, i), k in held.items()})
        assert opened.locator("#heading").text_content() == f"What leads to r{rank}.out[{chunk}]"
        transfers = [line for line in lines if "step" in line]
        assert shown(opened, "on") == len(transfers) and shown(opened, "off") == 40 - len(transfers)
    opened.keyboard.press("Escape")
    assert shown(opened, "on") == 0 and opened.locator("#heading").text_content() == "What is where"


def test_what_is_wrong_is_marked(open_page: Any) -> None:
    s = Steps(ring(3).collective)
    s.rule(lambda rank, step, n: ((rank + 2**step) % n, 0), steps=2, action="reduce")
    opened = open_page(page(scene(s.build())))
    assert opened.locator(".verdict.wrong").text_content().startswith("WRONG: step 2, rank 0: out[0] holds {0,0,1,2}")
    opened.keyboard.press("End")
    assert opened.locator(".cell.bad").count() == 9
    opened.locator("#c0-0").click()
    assert "<- wrong" in opened.locator("#tree").text_content()


def test_a_hostile_name_is_only_text(open_page: Any, hostile: Schedule) -> None:
    opened = open_page(page(scene(hostile)))
    assert opened.title().startswith("</script><script>document.title='owned'")
    assert opened.locator("img").count() == 0 and opened.locator("script").count() == 2
    opened.keyboard.press("End")
    opened.locator("#c1-0").click()
    assert "<img src=x" in opened.locator("#tree").text_content()
