"""A Topology: ranks, switches, and directed links with bandwidth and latency. Frozen, and checked when it is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from typing import NamedTuple

from algocc.errors import UsageError, near

RANK = "rank"
SWITCHES = ("switch", "nvswitch", "pci", "cpu", "nic", "net")
MOST_NODES = 1 << 16
MOST_LINKS = 1 << 20
MEASURES = ("nominal", "usable")


class Node(NamedTuple):
    """A rank, which holds data, or a switch, which passes it on: `nvswitch`, `pci`, `cpu`, `nic`, `net`, `switch`."""

    name: str
    kind: str = RANK


class Link(NamedTuple):
    """A directed link, or a bundle of `width` equal ones, between two nodes given by their places in `nodes`.

    Bandwidths are of the whole bundle in GB/s (10^9 bytes a second), exact: what the data sheet says, and what
    programs get, None where nobody has said. Latency is in seconds. `source` says where the numbers come from.
    """

    start: int
    end: int
    nominal: Fraction
    usable: Fraction | None = None
    latency: Fraction = Fraction(0)
    kind: str = "link"
    width: int = 1
    source: str = ""


@dataclass(frozen=True)
class Topology:
    """Ranks and switches with the links between them; rank i is the i-th node of kind `rank`.

    Raises UsageError, naming the node or link and its attribute.

    >>> pair = Topology("pair", (Node("a"), Node("b")), (Link(0, 1, Fraction(25)), Link(1, 0, Fraction(25), width=2)))
    >>> pair.n, [str(b) for b in pair.bandwidths()], pair.ports
    (2, ['25', '25'], (1, 2))
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The places of the ranks in `nodes`."""
        return tuple(i for i, node in enumerate(self.nodes) if node.kind == RANK)

    @property
    def n(self) -> int:
        """How many ranks there are."""
        return len(self.ranks)

    @cached_property
    def ports(self) -> tuple[int, ...]:
        """Of each node, the links that leave it, each of a bundle counted."""
        return tuple(sum(self.links[e].width for e in out) for out in self._out)

    @cached_property
    def _out(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for e, link in enumerate(self.links):
            found[link.start].append(e)
        return tuple(map(tuple, found))

    def _repr_html_(self) -> str:
        """What a notebook shows: a picture. The drawing is built on this module, so it is loaded by name."""
        shown: str = import_module("algocc.draw.notebook").topology_html(self)
        return shown

    def bandwidths(self, measure: str = "nominal") -> tuple[Fraction, ...]:
        """The bandwidth of each link in GB/s.

        Raises UsageError where the usable one is wanted and not known.
        """
        if measure not in MEASURES:
            raise UsageError(f"{self.name}: unknown bandwidth {measure!r:.80}{near(measure, MEASURES)}; nominal or usable")
        if measure == "nominal":
            return tuple(link.nominal for link in self.links)
        found = tuple(link.usable for link in self.links)
        if None in found:
            link = self.links[found.index(None)]
            raise UsageError(f"{self.name}: {self.describe(link)}: no usable bandwidth is known; take the nominal one")
        return tuple(b for b in found if b is not None)

    def describe(self, link: Link) -> str:
        """`a -> b`, by names."""
        return f"{self.nodes[link.start].name} -> {self.nodes[link.end].name}"

    def reversed(self) -> Topology:
        """Each link turned around: what holds of Broadcast, AllGather and Scatter here, of their opposites there."""
        turned = (link._replace(start=link.end, end=link.start) for link in self.links)
        return Topology(self.name, self.nodes, tuple(turned), self.notes)

    def missing_pairs(self) -> list[tuple[int, int]]:
        """The ordered pairs of ranks, by number, that no link and no switch joins: data must pass another rank."""
        number = {node: rank for rank, node in enumerate(self.ranks)}
        missing = []
        for rank, start in enumerate(self.ranks):
            seen, todo = {start}, [start]
            while todo:
                for e in self._out[todo.pop()]:
                    end = self.links[e].end
                    if end not in seen:
                        seen.add(end)
                        if end not in number:
                            todo.append(end)
            missing += [(rank, other) for other, node in enumerate(self.ranks) if node not in seen]
        return missing


def both(
    start: int, end: int, nominal: Fraction | int, usable: Fraction | int | None = None, *,
    latency: Fraction = Fraction(0), kind: str = "link", width: int = 1, source: str = "",
) -> tuple[Link, Link]:  # fmt: skip
    """Two equal links, there and back."""
    forth = Link(
        start, end, Fraction(nominal), None if usable is None else Fraction(usable), latency, kind, width, source
    )  # fmt: skip
    return forth, forth._replace(start=end, end=start)


def _check(t: Topology) -> None:
    if len(t.nodes) > MOST_NODES or len(t.links) > MOST_LINKS:
        raise UsageError(
            f"{t.name}: {len(t.nodes)} nodes and {len(t.links)} links, at most {MOST_NODES} and {MOST_LINKS} are taken"
        )
    seen: set[str] = set()
    for node in t.nodes:
        if node.name in seen:
            raise UsageError(f"{t.name}: node {node.name}: the name is that of two nodes")
        if not node.name or not node.name.isprintable():
            raise UsageError(f"{t.name}: node {node.name!r:.80}: name: wanted printable text")
        seen.add(node.name)
        if node.kind != RANK and node.kind not in SWITCHES:
            known = (RANK, *SWITCHES)
            raise UsageError(
                f"{t.name}: node {node.name}: kind {node.kind!r:.80}{near(node.kind, known)}; one of {', '.join(known)}"
            )
    if not any(node.kind == RANK for node in t.nodes):
        raise UsageError(f"{t.name}: no rank: none of its {len(t.nodes)} nodes holds data")
    for e, link in enumerate(t.links):
        for key, end in (("start", link.start), ("end", link.end)):
            if not 0 <= end < len(t.nodes):
                raise UsageError(f"{t.name}: link {e}: {key}={end}: wanted a node, 0 to {len(t.nodes) - 1}")
        if link.start == link.end:
            raise UsageError(f"{t.name}: link {e}: from {t.nodes[link.start].name} to itself")
        for why in _wrong(link):
            raise UsageError(f"{t.name}: link {t.describe(link)}: {why}")


def _wrong(link: Link) -> Iterable[str]:
    if link.nominal <= 0:
        yield f"nominal={link.nominal}: wanted a bandwidth above 0 in GB/s"
    if link.usable is not None and link.usable <= 0:
        yield f"usable={link.usable}: wanted a bandwidth above 0 in GB/s"
    if link.latency < 0:
        yield f"latency={link.latency}: wanted seconds, 0 or more"
    if link.width < 1:
        yield f"width={link.width}: wanted 1 or more links"
