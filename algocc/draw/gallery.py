"""The gallery: a page with a picture of each family of algorithms, made from the catalogue.

`python -m algocc.draw.gallery docs` writes docs/gallery.md and the pictures in docs/gallery/.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

from algocc.catalog import algorithms, build
from algocc.decorator import Algorithm
from algocc.draw import figure
from algocc.draw.scene import scene
from algocc.errors import UsageError
from algocc.table import Schedule

RANKS = (4, 6, 8)
"""Numbers of ranks, the first of which an algorithm takes is drawn."""

HEAD = """# Gallery

A picture of each family of algorithms that comes with algocc: ranks downwards, steps to the right, an arrow for each
chunk that moves, in the colour and with the number of the chunk that it writes. A solid arrow is reduced into what is
there, a dashed one is copied over it. `algocc draw NAME -n N -o page.html` draws any of them, and
[more](drawing.md).

<!-- Written by `python -m algocc.draw.gallery docs`. -->
"""


def families() -> dict[str, list[Algorithm]]:
    """The algorithms of the catalogue by the file that they are in."""
    found: dict[str, list[Algorithm]] = defaultdict(list)
    for algorithm in algorithms().values():
        found[algorithm.write.__module__.rpartition(".")[2]].append(algorithm)
    return {family: sorted(found[family], key=_line) for family in sorted(found)}


def _line(algorithm: Algorithm) -> int:
    """The line of its function: the first of a file is what the others build on."""
    return int(algorithm.where.rpartition(":")[2])


def smallest(algorithm: Algorithm) -> Schedule:
    """An algorithm on as few ranks as make a picture worth looking at."""
    for n in RANKS:
        try:
            return build(algorithm, n)
        except UsageError:
            continue
    raise UsageError(f"{algorithm.name}: takes none of {RANKS} ranks")


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for family, members in families().items():
        module = import_module(members[0].write.__module__)
        s = smallest(members[0])
        parts.append(f"## {family}\n\n{(module.__doc__ or '').strip().splitlines()[0]}\n")
        parts.append(f"![{s.name} on {s.n} ranks](gallery/{family}.svg)\n")
        parts.append(f"`{s.name}` on {s.n} ranks is drawn.\n")
        parts.append("\n".join(f"- `{a.name}`: {a.doc}" for a in members) + "\n")
    return "\n".join(parts)


def pictures() -> dict[str, bytes]:
    """The SVG of each family."""
    with figure.styled():
        return {
            family: figure.rendered(figure.small(scene(smallest(members[0]))), "svg")
            for family, members in families().items()
        }


def write(docs: Path) -> None:
    """Write the page and its pictures."""
    (docs / "gallery").mkdir(exist_ok=True)
    (docs / "gallery.md").write_text(page(), encoding="utf-8")
    for family, svg in pictures().items():
        (docs / "gallery" / f"{family}.svg").write_bytes(svg)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
