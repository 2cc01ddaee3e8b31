"""Small random topologies."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from algocc.topology import Link, Node, Topology

BANDWIDTHS = st.builds(Fraction, st.integers(1, 12), st.integers(1, 4))


@st.composite
def topologies(draw: Any, *, ranks: int = 4, switches: int = 2, balanced: bool = False) -> Topology:
    """A cycle through all nodes, so that everyone can be reached, and some more links; perhaps each there and back."""
    n, k = draw(st.integers(2, ranks)), draw(st.integers(0, switches))
    kinds = draw(st.permutations(["rank"] * n + ["switch"] * k))
    nodes = tuple(Node(f"{kind}{i}", kind) for i, kind in enumerate(kinds))
    pairs = [(i, (i + 1) % len(nodes)) for i in range(len(nodes))]
    ends = st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, len(nodes) - 1)).filter(lambda p: p[0] != p[1])
    pairs += draw(st.lists(ends, max_size=8))
    links = []
    for start, end in pairs:
        link = Link(start, end, draw(BANDWIDTHS), draw(st.none() | BANDWIDTHS), Fraction(draw(st.integers(0, 3)), 10))
        links += [link, link._replace(start=end, end=start)] if balanced else [link]
    return Topology("random", nodes, tuple(links))
