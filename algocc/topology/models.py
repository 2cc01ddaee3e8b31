"""Topologies of well-known machines and networks, by name.

Bandwidths in GB/s for each direction: nominal as in the data sheets, usable as NCCL and RCCL assume. Latencies of a
hop are those that NCCL's tuning assumes of its LL protocol on a ring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

from algocc.errors import UsageError, near
from algocc.topology.value import MOST_LINKS, MOST_NODES, RANK, Link, Node, Topology, both

NVLINK_HOP = Fraction(6, 10**7)
NETWORK_HOP = Fraction(27, 10**7)

DGX1 = "02112000 20120100 11020020 12200001 20000211 01002012 00201102 00011220"
"""NVLinks between the GPUs of a DGX-1 with V100, a row for each GPU."""

MI250X = (
    "0410200000000000 4011010000000000 1104001000000000 0140000200000000 "
    "2000040000001000 0100400000000110 0010000400000110 0002004000000001 "
    "0000000004102000 0000000040110100 0000000011040010 0000000001400002 "
    "0000100020000400 0000011001004000 0000011000100004 0000000100020040"
)
"""Infinity Fabric links between 16 dies, as RCCL's published dump topo_16p1h has them."""


@dataclass(frozen=True)
class Model:
    """A named topology: what may follow its name after a colon, what it is, and how it is made of those numbers.

    `takes` is "boxes", a "shape" as in 4x4, a "number", or "rails" as in 4x8.
    """

    takes: str
    example: str
    doc: str
    build: Callable[[tuple[int, ...]], Topology]


def _matrix(rows: str, each: int, usable: int, kind: str, source: str, *, at: int = 0) -> Iterator[Link]:
    for i, row in enumerate(rows.split()):
        for j, width in enumerate(map(int, row)):
            if width:
                yield Link(
                    at + i, at + j, Fraction(each * width), Fraction(usable * width), NVLINK_HOP, kind, width, source
                )


def _named(name: str, boxes: int, each: int) -> tuple[Node, ...]:
    return tuple(Node(f"{f'box{b}.' if boxes > 1 else ''}gpu{g}") for b in range(boxes) for g in range(each))


def _matrix_boxes(
    name: str, rows: str, bandwidth: tuple[int, int], kind: str, source: str, network: tuple[int, str] | None
) -> Callable[[tuple[int, ...]], Topology]:
    def build(given: tuple[int, ...]) -> Topology:
        (boxes,), each = given, len(rows.split())
        nodes = _named(name, boxes, each)
        links: list[Link] = []
        for b in range(boxes):
            links += _matrix(rows, *bandwidth, kind, source, at=b * each)
        return _join(name, boxes, nodes, tuple(links), network)

    return build


def _switched(
    name: str, each: int, bandwidth: tuple[int, Fraction], width: int, source: str, network: tuple[int, str] | None
) -> Callable[[tuple[int, ...]], Topology]:
    """Boxes of GPUs that one NVSwitch joins: all switches of a box are one, as none of them is a bottleneck."""

    def build(given: tuple[int, ...]) -> Topology:
        (boxes,) = given
        nodes = list(_named(name, boxes, each))
        links: list[Link] = []
        for b in range(boxes):
            nodes.append(Node(f"{f'box{b}.' if boxes > 1 else ''}nvswitch", "nvswitch"))
            for g in range(each):
                links += both(
                    b * each + g, len(nodes) - 1, bandwidth[0], bandwidth[1],
                    latency=NVLINK_HOP, kind="NVLink", width=width, source=source,
                )  # fmt: skip
        return _join(name, boxes, tuple(nodes), tuple(links), network)

    return build


def _join(
    name: str, boxes: int, nodes: tuple[Node, ...], links: tuple[Link, ...], network: tuple[int, str] | None
) -> Topology:
    """The boxes joined by one network switch without a bottleneck of its own."""
    if boxes == 1:
        return Topology(name, nodes, links)
    if network is None:
        raise UsageError(f"{name}:{boxes}: this model is of one box; no network between several is known")
    each, source = network
    ranks = [i for i, node in enumerate(nodes) if node.kind == RANK]
    more = [
        link for r in ranks for link in both(r, len(nodes), each, latency=NETWORK_HOP, kind="network", source=source)
    ]
    return Topology(f"{name}:{boxes}", (*nodes, Node("network", "net")), (*links, *more))


def _grid(name: str, shape: tuple[int, ...], wrap: bool, each: int = 1, source: str = "unit links") -> Topology:
    """A rank at each point of a grid, with links to its neighbours along each axis; the ends meet if it wraps."""
    points = list(product(*map(range, shape)))
    place = {p: i for i, p in enumerate(points)}
    links: list[Link] = []
    for p in points:
        for axis, size in enumerate(shape):
            ahead = (*p[:axis], (p[axis] + 1) % size, *p[axis + 1 :])
            if place[ahead] > place[p] or (wrap and size > 2):
                links += both(place[p], place[ahead], each, each, source=source)
    nodes = tuple(Node(f"r{'.'.join(map(str, p))}") for p in points)
    return Topology(f"{name}:{'x'.join(map(str, shape))}", nodes, tuple(links))


def _hypercube(given: tuple[int, ...]) -> Topology:
    (d,) = given
    links = [
        link
        for i in range(2**d)
        for k in range(d)
        if not i >> k & 1
        for link in both(i, i | 1 << k, 1, 1, source="unit links")
    ]
    return Topology(f"hypercube:{d}", tuple(Node(f"r{i:0{d}b}") for i in range(2**d)), tuple(links))


def _rails(given: tuple[int, ...]) -> Topology:
    """GPU g of each box is on the switch of rail g; each rail's switch has a link to the spine for each box."""
    boxes, each, thin = (*given, 1)[:3]
    nodes = [Node(f"box{b}.gpu{g}") for b in range(boxes) for g in range(each)]
    nodes += [Node(f"box{b}.nvswitch", "nvswitch") for b in range(boxes)]
    nodes += [Node(f"rail{g}", "switch") for g in range(each)]
    spine = len(nodes)
    nodes.append(Node("spine", "switch"))
    links: list[Link] = []
    inside, across = "NVLink of H100: 18 links of 25; NCCL assumes 20.6", "one NIC of 400 Gb/s for each GPU"
    for b, g in product(range(boxes), range(each)):
        gpu = b * each + g
        links += both(
            gpu, boxes * each + b, 450, Fraction(3708, 10), latency=NVLINK_HOP, kind="NVLink", width=18, source=inside
        )
        links += both(gpu, boxes * (each + 1) + g, 50, latency=NETWORK_HOP, kind="network", source=across)
    for g in range(each):
        up = Fraction(50 * boxes, thin)
        links += both(boxes * (each + 1) + g, spine, up, latency=NETWORK_HOP, kind="network", source=across)
    return Topology(f"fat-tree:{boxes}x{each}" + (f"x{thin}" if thin > 1 else ""), tuple(nodes), tuple(links))


def _mi300x(given: tuple[int, ...]) -> Topology:
    rows = " ".join("".join("01"[i != j] for j in range(8)) for i in range(8))
    source = "xGMI of MI300X: 64, RCCL assumes 48"
    return _matrix_boxes("mi300x", rows, (64, 48), "xGMI", source, None)(given)


_NVLINK = "NVLink of {}: {} links of {}; NCCL assumes {}"

MODELS: dict[str, Model] = {
    "dgx1": Model("boxes", "dgx1", "DGX-1: 8 V100, NVLinks from GPU to GPU",
        _matrix_boxes("dgx1", DGX1, (25, 20), "NVLink", _NVLINK.format("V100", 6, 25, 20), None)),
    "dgx2": Model("boxes", "dgx2", "DGX-2: 16 V100 on NVSwitches",
        _switched("dgx2", 16, (150, Fraction(120)), 6, _NVLINK.format("V100", 6, 25, 20), None)),
    "dgx-a100": Model("boxes", "dgx-a100:2", "DGX A100: 8 A100 on NVSwitches, 25 GB/s a GPU between boxes",
        _switched("dgx-a100", 8, (300, Fraction(240)), 12, _NVLINK.format("A100", 12, 25, 20),
                  (25, "one NIC of 200 Gb/s for each GPU"))),
    "hgx-h100": Model("boxes", "hgx-h100:4", "HGX H100: 8 H100 on NVSwitches, 50 GB/s a GPU between boxes",
        _switched("hgx-h100", 8, (450, Fraction(3708, 10)), 18, _NVLINK.format("H100", 18, 25, 20.6),
                  (50, "one NIC of 400 Gb/s for each GPU"))),
    "hgx-h200": Model("boxes", "hgx-h200:4", "HGX H200: 8 H200 on NVSwitches, 50 GB/s a GPU between boxes",
        _switched("hgx-h200", 8, (450, Fraction(3708, 10)), 18, _NVLINK.format("H200", 18, 25, 20.6),
                  (50, "one NIC of 400 Gb/s for each GPU"))),
    "gb200-nvl72": Model("boxes", "gb200-nvl72", "GB200 NVL72: 72 B200 in one NVLink domain",
        _switched("gb200-nvl72", 72, (900, Fraction(722)), 18, _NVLINK.format("B200", 18, 50, 40.1), None)),
    "mi250x": Model("boxes", "mi250x:2", "8 MI250(X) of two dies, which are the 16 ranks; 16 GB/s a die between boxes",
        _matrix_boxes("mi250x", MI250X, (50, 36), "xGMI",
                      "xGMI of MI250X: 50, RCCL assumes 36; links as in RCCL's topo_16p1h",
                      (16, "16 for each die, as in the model of ForestColl"))),
    "mi300x": Model("boxes", "mi300x", "8 MI300X, each joined to each", _mi300x),
    "tpu-v4": Model("shape", "tpu-v4:4x4x4", "TPU v4: a 3D torus, 50 GB/s a link",
        lambda shape: _grid("tpu-v4", shape, True, 50, "inter-chip link of TPU v4: 50")),
    "torus": Model("shape", "torus:4x4", "a torus of any dimensions, unit links",
        lambda shape: _grid("torus", shape, True)),
    "mesh": Model("shape", "mesh:3x3", "a grid that doesn't wrap, unit links",
        lambda shape: _grid("mesh", shape, False)),
    "ring": Model("number", "ring:8", "a ring with links both ways, unit links",
        lambda given: _grid("ring", given, True)),
    "hypercube": Model("number", "hypercube:3", "2^d ranks, unit links between those that differ in a bit",
        _hypercube),
    "fat-tree": Model("rails", "fat-tree:4x8", "boxes x H100s a box on an NVSwitch and a network of rails under a "
        "spine; a third number divides what leads to the spine", _rails),
}  # fmt: skip
"""By name."""

_WANTED = {
    "boxes": (1, 1, "a number of boxes"),
    "shape": (1, 6, "the size of each dimension"),
    "number": (1, 1, "a number"),
    "rails": (2, 3, "boxes and GPUs in a box"),
}


def model(text: str) -> Topology:
    """The model of that name, with what follows the colon.

    Raises UsageError for an unknown name, or numbers it doesn't take.

    >>> model("dgx-a100:2").n, model("torus:4x4").nodes[5].name, len(model("hypercube:3").links)
    (16, 'r1.1', 24)
    """
    name, colon, rest = text.strip().lower().partition(":")
    found = MODELS.get(name)
    if found is None:
        raise UsageError(f"unknown topology {text!r}{near(name, MODELS)}; known: {', '.join(MODELS)}; or a file")
    low, high, what = _WANTED[found.takes]
    if found.takes == "boxes" and not colon:
        rest = "1"
    sizes = rest.split("x")
    if not all(re.fullmatch(r"[1-9]\d{0,5}", size) for size in sizes) or not low <= len(sizes) <= high:
        raise UsageError(f"topology {text}: {rest or 'nothing'} after the name: wanted {what}, as in {found.example}")
    given = tuple(map(int, sizes))
    many = 2 ** min(given[0], 99) if name == "hypercube" else prod(given[:2] if name == "fat-tree" else given)
    if many * (72 if found.takes == "boxes" else 2 * len(given)) > min(MOST_NODES, MOST_LINKS):
        raise UsageError(f"topology {text}: too large, at most {MOST_NODES} nodes are taken")
    return found.build(given)
