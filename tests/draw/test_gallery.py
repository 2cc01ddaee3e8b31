"""The gallery in docs is the one that the catalogue makes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from algocc.catalog import algorithms
from algocc.draw import gallery

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "python -m algocc.draw.gallery docs"


def test_the_page_is_up_to_date() -> None:
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == gallery.page(), f"run {AGAIN}"


def test_every_algorithm_and_picture_is_there() -> None:
    page = gallery.page()
    assert all(f"- `{name}`: " in page for name in algorithms())
    pictures = {DOCS / path for path in re.findall(r"\]\((gallery/\w+\.svg)\)", page)}
    assert pictures == set((DOCS / "gallery").iterdir()), f"run {AGAIN}"
    assert len(pictures) == len(gallery.families())
    for path in pictures:
        assert ElementTree.parse(path).getroot().tag.endswith("}svg")
    assert sum(path.stat().st_size for path in pictures) < 2 << 20
