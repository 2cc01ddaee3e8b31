"""How pictures look: colours, and what text may be in them."""

from __future__ import annotations

from typing import Any

CHUNK_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b", "#332288", "#999933")
"""Colours that stay apart for all eyes. More chunks than these take theirs from a rainbow."""
WRONG = "#d7191c"
LONGEST = 400
"""Characters of one text."""

STYLE: dict[str, Any] = {
    "svg.hashsalt": "algocc",  # equal input, equal file
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is a $
    "text.usetex": False,
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.edgecolor": "#bbbbbb",
    "figure.facecolor": "white",
}


def chunk_colour(chunk: int, chunks: int) -> str:
    """The colour of a chunk, by its number among so many."""
    if chunks <= len(CHUNK_COLOURS):
        return CHUNK_COLOURS[chunk % len(CHUNK_COLOURS)]
    import matplotlib
    from matplotlib.colors import to_hex

    red, green, blue, _ = matplotlib.colormaps["turbo"](0.03 + 0.82 * chunk / (chunks - 1))
    bright = 0.3 * red + 0.6 * green + 0.1 * blue
    return to_hex([part * min(1.0, 0.55 / bright) for part in (red, green, blue)])  # none too pale on white


def shades(count: int) -> list[str]:
    """Colours from nothing, white, to all of it, dark blue."""
    import matplotlib
    from matplotlib.colors import to_hex

    return ["#ffffff", *(to_hex(matplotlib.colormaps["YlGnBu"](0.08 + 0.84 * i / (count - 1))) for i in range(1, count))]


def plain(text: str, longest: int = LONGEST) -> str:
    """Text of whoever wrote the schedule, without what a picture can't hold: no control characters, not endless.

    >>> plain("a\\x1b[31m$b$\\n" + "!" * 1000, 14)
    'a\ufffd[31m$b$\ufffd!!!…'
    """
    text = "".join(ch if ch.isprintable() else "\ufffd" for ch in text[: longest + 1])
    return text if len(text) <= longest else text[: longest - 1] + "…"
