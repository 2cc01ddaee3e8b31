"""Topology files: dumps of NCCL, text of nvidia-smi, JSON; what is in them, and what is wrong with them."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.errors import UsageError
from algocc.topology import MODELS, Topology, bound, from_json, load, model, read, to_json
from algocc.topology.models import DGX1, MI250X

from .strategies import topologies

DATA = Path(__file__).parent / "data"


def links(t: Topology, kind: str) -> dict[tuple[str, str], str]:
    found = [k for k in t.links if k.kind == kind]
    assert len({(k.start, k.end) for k in found}) == len(found)
    return {(t.nodes[k.start].name, t.nodes[k.end].name): f"{k.nominal} {k.usable} {k.width}" for k in found}


@pytest.mark.parametrize("rows", [DGX1, MI250X])
def test_adjacency_is_symmetric(rows: str) -> None:
    table = [list(map(int, row)) for row in rows.split()]
    assert table == [list(column) for column in zip(*table, strict=True)]
    assert {len(row) for row in table} == {len(table)}
    assert {sum(row) for row in table} == {6 if rows == DGX1 else 7}


@pytest.mark.parametrize("name", [m.example for m in MODELS.values()])
def test_models_come_back_from_json(name: str) -> None:
    t = model(name)
    assert from_json(json.loads(json.dumps(to_json(t)))) == t
    assert all(k.source for k in t.links)


def test_nodes_of_models() -> None:
    sizes = {name: (model(name).n, len(model(name).nodes), len(model(name).links)) for name in (
        "dgx1", "dgx2", "dgx-a100", "hgx-h100", "hgx-h200", "mi250x", "mi300x", "gb200-nvl72", "torus:2x3", "torus:3x4x5",
        "hypercube:1", "hypercube:5", "mesh:1x4", "ring:2", "fat-tree:4x8", "hgx-h100:4",
    )}  # fmt: skip
    assert sizes == {
        "dgx1": (8, 8, 32), "dgx2": (16, 17, 32), "dgx-a100": (8, 9, 16), "hgx-h100": (8, 9, 16), "hgx-h200": (8, 9, 16),
        "mi250x": (16, 16, 56), "mi300x": (8, 8, 56), "gb200-nvl72": (72, 73, 144), "torus:2x3": (6, 6, 18),
        "torus:3x4x5": (60, 60, 360), "hypercube:1": (2, 2, 2), "hypercube:5": (32, 32, 160), "mesh:1x4": (4, 4, 6),
        "ring:2": (2, 2, 2), "fat-tree:4x8": (32, 45, 144), "hgx-h100:4": (32, 37, 128),
    }  # fmt: skip


USABLE = {"dgx1": 120, "dgx2": 120, "dgx-a100": 240, "hgx-h100": "370.8", "hgx-h200": "370.8", "gb200-nvl72": 722,
          "mi300x": 7 * 48}  # fmt: skip


@pytest.mark.parametrize("name", USABLE)
def test_usable_bandwidth_out_of_a_rank(name: str) -> None:
    t = model(name)
    widths = t.bandwidths("usable")
    for r in t.ranks:
        assert sum(b for b, k in zip(widths, t.links, strict=True) if k.start == r) == Fraction(USABLE[name])


@settings(max_examples=30)
@given(topologies())
def test_any_topology_comes_back_from_json(t: Topology) -> None:
    again = read(json.dumps(to_json(t)).encode(), "t.json")
    assert again == t
    assert bound(again, "all_gather").time == bound(t, "all_gather").time


def test_dump_with_pcie_only() -> None:
    t = load(str(DATA / "topo_3p_pcie.xml"))
    assert (t.n, t.notes) == (3, ())
    assert [n.name for n in t.nodes if n.kind in ("cpu", "net")] == ["cpu0", "net mlx5_0", "cpu1"]
    assert links(t, "socket") == {("cpu0", "cpu1"): "16 16 1", ("cpu1", "cpu0"): "16 16 1"}
    assert links(t, "PCIe")["gpu0", "pci 0000:21:00.0"] == f"{64 * Fraction(64, 65)} 48 1"
    assert links(t, "network")["nic 0000:41:00.0", "net mlx5_0"] == "25 25 1"
    assert bound(t, "all_gather", measure="usable").time * 3 == Fraction(2, 16)


def test_dump_with_two_groups_of_xgmi() -> None:
    t = load(str(DATA / "topo_4p2h_2nic.xml"))
    square = {(0, 1), (0, 2), (1, 3), (2, 3)}
    wanted = {(a + g, b + g) for g in (0, 4) for a, b in square | {(b, a) for a, b in square}}
    assert links(t, "xGMI") == {(f"gpu{a}", f"gpu{b}"): "46 24 1" for a, b in wanted}
    assert bound(t, "all_gather", measure="usable").time * 8 == Fraction(1, 3)  # 4 ranks by PCIe 3 x16


@pytest.mark.parametrize(("file", "ranks", "xgmi"), [("topo_4p3l.xml", 4, 12), ("topo_8p_rome_4n_1.xml", 8, 24)])
def test_dumps_with_full_meshes_of_four(file: str, ranks: int, xgmi: int) -> None:
    t = load(str(DATA / file))
    assert (t.n, len(links(t, "xGMI"))) == (ranks, xgmi)


def dump(gpus: list[str], sm: int = 80, extra: str = "") -> bytes:
    """A dump of one CPU with these GPUs; each is what stands inside its <gpu>."""
    inside = "".join(
        f'<pci busid="0000:{i:02x}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{i}" sm="{sm}" rank="{i}" gdr="1">{gpu}</gpu></pci>\n'
        for i, gpu in enumerate(gpus, 1)
    )
    return (f'<system version="1">\n<cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="143" '
            f'modelid="49">\n{inside}{extra}</cpu>\n</system>').encode()  # fmt: skip


def nvlink(target: str, count: int = 1, tclass: str = "0x030200") -> str:
    return f'<nvlink target="{target}" count="{count}" tclass="{tclass}"/>'


def test_all_nvswitches_are_one() -> None:
    six = "".join(nvlink(f"0000:{c:02x}:00.0", 2, "0x068000") for c in range(0xC0, 0xC6))
    t = read(dump([six] * 8), "a100.xml")
    assert sum(n.kind == "nvswitch" for n in t.nodes) == 1
    assert links(t, "NVLink")["gpu1", "nvswitch"] == links(t, "NVLink")["nvswitch", "gpu8"] == "300 240 12"
    pcie = 32 * Fraction(128, 130)
    assert bound(t, "all_gather").time * 8 == 7 / (300 + pcie)


def test_dgx1_as_dump_and_as_text() -> None:
    rows = [list(map(int, row)) for row in DGX1.split()]
    gpus = ["".join(nvlink(f"0000:{j + 1:02x}:00.0", k) for j, k in enumerate(row) if k) for row in rows]
    t = read(dump(gpus, sm=70), "dgx1.xml")
    own = model("dgx1")
    assert sorted(links(t, "NVLink").values()) == sorted(links(own, "NVLink").values())
    cells = [["X" if i == j else f"NV{k}" if k else "SYS" for j, k in enumerate(row)] for i, row in enumerate(rows)]
    text = matrix(cells)
    assert links(read(text.encode(), "t"), "NVLink") == links(own, "NVLink")


def matrix(cells: list[list[str]], *, gap: str = "\t", ansi: bool = False, names: list[str] | None = None) -> str:
    names = names or [f"GPU{i}" for i in range(len(cells))]
    head = gap + gap.join(f"\x1b[4m{n}\x1b[0m" if ansi else n for n in names) + f"{gap}CPU Affinity{gap}NUMA Affinity"
    rows = [gap.join([n, *(c.center(5) for c in row), "0-63,128-191", "0"]) for n, row in zip(names, cells, strict=True)]
    return "\n".join([head, *rows, "", "Legend:", "", "  X    = Self", "  SYS  = Connection traversing PCIe"])


@given(st.integers(1, 6), st.data())
def test_tabs_spaces_and_colours_say_the_same(n: int, data: Any) -> None:
    cells = [["X"] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            cells[i][j] = cells[j][i] = data.draw(st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV1", "NV2"]))
    one, *others = [read(matrix(cells, gap=g, ansi=a).encode(), "t") for g in ("\t", "   ") for a in (False, True)]
    assert all(other == one for other in others)
    assert one.n == n and not one.missing_pairs()


def test_matrix_of_nvswitch_and_nics() -> None:
    names = [f"GPU{i}" for i in range(8)] + ["NIC0", "mlx5_1"]
    cells = [["X" if i == j else "NV18" for j in range(8)] + ["PIX", "SYS"] for i in range(8)]
    cells += [["PIX"] * 8 + ["X", "SYS"], ["SYS"] * 9 + ["X"]]
    t = read(matrix(cells, names=names).encode(), "h100.txt")
    assert links(t, "NVLink")["gpu0", "nvswitch"] == "450 360 18"
    assert "assumed" in t.notes[0] and all("assumed" in k.source for k in t.links)
    assert [n.name for n in t.nodes if n.kind == "nic"] == ["NIC0", "mlx5_1"]


def test_matrix_of_pcie_is_a_tree() -> None:
    cells = [
        ["X", "PIX", "SYS", "SYS"], ["PIX", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "NODE"], ["SYS", "SYS", "NODE", "X"],
    ]  # fmt: skip
    t = read(matrix(cells).encode(), "t")
    assert [n.name for n in t.nodes[4:]] == ["pix0", "node0", "sys0"]
    assert {k.kind for k in t.links} == {"PCIe", "socket"}
    assert bound(t, "all_gather").time * 4 == Fraction(2, 16)


def test_pairs_of_nvlink_only() -> None:
    cells = [["X", "NV2", "SYS", "SYS"], ["NV2", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "NV2"], ["SYS", "SYS", "NV2", "X"]]
    t = read(matrix(cells).encode(), "t")
    assert len(links(t, "NVLink")) == 4  # the rest goes by the CPUs
    assert bound(t, "all_gather").time > 0


REAL = (DATA / "topo_3p_pcie.xml").read_bytes()
A, B = nvlink("0000:02:00.0"), nvlink("0000:01:00.0")
BAD_XML = {
    "no arch": (REAL.replace(b' arch="x86_64"', b"", 1), r"bad:6: cpu numaid=0: no attribute 'arch', wanted x86_64"),
    "no vendor": (REAL.replace(b'vendor="AuthenticAMD" ', b"", 1), "bad:6: cpu numaid=0: no attribute 'vendor'"),
    "odd arch": (REAL.replace(b'"x86_64"', b'"z80"', 1), "cpu numaid=0: arch='z80', wanted x86_64"),
    "truncated": (REAL[:900], "bad:14: column 6: not well-formed XML: no element found, inside <nic> of line 13"),
    "entities": (b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><system>&b;</system>', "bad:1: a document type"),
    "deep": (b'<system version="1">' + b"<cpu>" * 100_000, "nested more than 32 deep, wanted system > cpu"),
    "another": (b"<algo/>", "bad:1: <algo>, wanted <system"),
    "version": (REAL.replace(b'version="2"', b'version="7"'), "system: version=7, wanted 1"),
    "no gpu": (b'<system version="1"/>', "bad:1: system: no <gpu> in it"),
    "same busid": (REAL.replace(b"0000:83:00.0", b"0000:23:00.0"), "bad:20: pci busid=0000:23:00.0: busid='0000:23:00.0' is "
                   "that of line 8 too"),
    "same rank": (REAL.replace(b'rank="2"', b'rank="1"'), "gpu dev=2: gpu1 is on line 21 already"),
    "same numaid": (REAL.replace(b'numaid="1"', b'numaid="0"'), "cpu numaid=0: cpu0 is on line 6 already"),
    "busid": (REAL.replace(b"0000:83:00.0", b"nowhere"), "pci busid=nowhere: busid='nowhere', wanted a PCI address"),
    "no width": (REAL.replace(b' link_width="16"', b"", 1), "bad:7: pci busid=0000:21:00.0: no attribute 'link_width'"),
    "width": (REAL.replace(b'link_width="16"', b'link_width="-4"', 1), "link_width='-4', wanted a number of PCIe lanes"),
    "speed": (REAL.replace(b"16.0 GT/s PCIe", b"NaN GT/s", 1), "link_speed='NaN GT/s', wanted one of 2.5, 5, 8"),
    "net speed": (REAL.replace(b'speed="200000"', b'speed="-1"'), "net name=mlx5_0: speed='-1', wanted Mb/s, 1 to"),
    "no target": (dump([nvlink("0000:09:00.0")]), r"bad:3: gpu dev=1 nvlink target=0000:09:00.0: no GPU has that busid"),
    "itself": (dump([nvlink("0000:01:00.0")]), "a link from a GPU to itself"),
    "no tclass": (dump(['<nvlink target="0000:01:00.0" count="1"/>']), "no attribute 'tclass', wanted 0x03"),
    "tclass": (dump([nvlink("0000:09:00.0", 1, "0x99")]), "tclass='0x99', wanted 0x03"),
    "count": (dump([A.replace('"1"', '"0"'), B]), "gpu dev=1 nvlink: count='0', wanted a number of links, 1 to 1024"),
    "huge count": (dump([A.replace('"1"', '"9999999999999"'), B]), "count='9999999999999', wanted a number of links"),
    "no count": (dump([A.replace('count="1" ', ""), B]), "gpu dev=1 nvlink: no attribute 'count'"),
    "sm": (dump([A, B], sm=35), "gpu dev=1: sm=35, wanted 60 or more"),
    "gcn": (dump([A.replace("nvlink", "xgmi"), B]), "gpu dev=1: no attribute 'gcn'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_XML)
def test_bad_dump(case: str) -> None:
    data, message = BAD_XML[case]
    with pytest.raises(UsageError, match=message):
        read(data, "bad")


def test_one_way_nvlink_is_noted() -> None:
    t = read(dump([A, ""]), "one.xml")
    assert t.notes == ("NVLink from gpu1 to gpu2 is not listed in the other direction: taken as one-way",)


@settings(max_examples=150)
@given(st.sampled_from(sorted(DATA.glob("*.xml"))), st.data())
def test_damaged_dumps_are_read_or_refused(path: Path, data: Any) -> None:
    text = path.read_text()
    words = [m.span() for m in re.finditer(r'(?<==")[^"]*(?=")| \w+="[^"]*"', text)]
    start, end = data.draw(st.sampled_from(words))
    new = data.draw(st.sampled_from(["", "-1", "nan", "1e9", "x", "0x068000", "99999999999999999999", "<", "&"]))
    try:
        t = read((text[:start] + new + text[end:]).encode(), "damaged")
    except UsageError as error:
        assert str(error).startswith("damaged:")
    else:
        assert t.n >= 1


GOOD = [["X", "NV1"], ["NV1", "X"]]
BAD_TEXT = {
    "unknown cell": (matrix([["X", "NV1"], ["NVX", "X"]]), "bad:3: row GPU1, column GPU0: 'NVX'; did you mean NV1"),
    "unequal": (matrix([["X", "NV1"], ["NV2", "X"]]), "bad:3: row GPU1, column GPU0: NV2, but NV1 the other way round"),
    "no X": (matrix([["SYS", "NV1"], ["NV1", "X"]]), "bad:2: row GPU0, column GPU0: 'SYS', wanted X"),
    "X twice": (matrix([["X", "X"], ["NV1", "X"]]), "row GPU0, column GPU1: 'X', wanted X where"),
    "no row": ("\n".join(matrix(GOOD).splitlines()[:2]), "bad: no row GPU1, wanted a row for each column; is the text"),
    "short row": ("GPU0 GPU1\nGPU0 X\nGPU1 NV1 X", "bad:2: row GPU0: 1 cells, wanted 2"),
    "row twice": ("GPU0 GPU1\nGPU0 X NV1\nGPU0 X NV1", "bad:3: row GPU0: it is on line 2 too"),
    "column twice": ("GPU0 GPU0\nGPU0 X NV1", "bad:1: header: two columns GPU0"),
    "unknown row": ("GPU0 GPU1\nGPU0 X NV1\nGPU7 NV1 X", "bad:3: row GPU7: unknown device 'GPU7'"),
    "wide": (" ".join(f"GPU{i}" for i in range(5000)), "bad:1: 5000 columns, wanted at most 512"),
    "empty": ("", "bad: no topology; wanted an NCCL topology dump"),
    "prose": ("hello", "bad: no topology; wanted an NCCL topology dump"),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_matrix(case: str) -> None:
    text, message = BAD_TEXT[case]
    with pytest.raises(UsageError, match=re.escape(message)):
        read(text.encode(), "bad")


def record(**changes: Any) -> dict[str, Any]:
    link = {"from": "a", "to": "b", "nominal": "25"} | changes.pop("link", {})
    return {"format": "algocc topology 1", "name": "t", "nodes": [{"name": "a"}, {"name": "b"}], "links": [link]} | changes


BAD_JSON: dict[str, tuple[Any, str]] = {
    "format": ({}, "bad: format None, wanted 'algocc topology 1'"),
    "NaN": (record(link={"nominal": float("nan")}), "bad: link 0: nominal=nan: wanted a number"),
    "infinite": (record(link={"nominal": float("inf")}), "bad: link 0: nominal=inf: wanted a number"),
    "exponent": (record(link={"nominal": "1e999999999"}), "bad: link 0: nominal='1e999999999': wanted a number"),
    "negative": (record(link={"nominal": "-1"}), "link a -> b: nominal=-1: wanted a bandwidth above 0"),
    "zero": (record(link={"usable": 0}), "link a -> b: usable=0: wanted a bandwidth above 0"),
    "latency": (record(link={"latency": -1}), "link a -> b: latency=-1: wanted seconds, 0 or more"),
    "no such node": (record(link={"to": "c"}), "bad: link 0: to='c': no node has that name"),
    "missing": (record(link={"nominal": None}), "bad: link 0: nominal=None: wanted a number"),
    "itself": (record(link={"to": "a"}), "link 0: from a to itself"),
    "width": (record(link={"width": 0}), "bad: link 0: width=0: wanted a number of links"),
    "misspelt": (record(link={"bandwith": 3}), "bad: link 0: unknown attribute 'bandwith'"),
    "kind": (record(nodes=[{"name": "a"}, {"name": "b", "kind": "swich"}]), "node b: kind 'swich'; did you mean switch"),
    "twice": (record(nodes=[{"name": "a"}, {"name": "a"}, {"name": "b"}]), "node a: the name is that of two nodes"),
    "no rank": (record(nodes=[{"name": n, "kind": "switch"} for n in "ab"]), "no rank: none of its 2 nodes holds data"),
    "node": (record(nodes=[3]), "bad: node 0: 3, wanted an object with kind, name"),
    "nodes": (record(nodes=None), "bad: nodes: missing, wanted a list"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json(case: str) -> None:
    value, message = BAD_JSON[case]
    with pytest.raises(UsageError, match=re.escape(message)):
        read(json.dumps(value).encode(), "bad")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":' * 100_000, "bad: not usable as JSON"),
        (b'{"format": "algocc', "bad:1: not JSON"),
        (b'{"width": ' + b"9" * 10_000 + b"}", "bad: not usable as JSON"),
        (b"\xff\xfe\x00", "bad: byte 0 is no UTF-8"),
    ],
)
def test_hostile_json(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(data, "bad")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tours:4x4", "no such topology; did you mean torus"),
        ("torus", "nothing after the name: wanted the size of each dimension, as in torus:4x4"),
        ("torus:4x", "4x after the name"),
        ("torus:0x4", "0x4 after the name"),
        ("torus:-1", "-1 after the name"),
        ("torus:999999x999999", "too large"),
        ("hypercube:99999", "too large"),
        ("dgx-a100:99999", "too large"),
        ("dgx1:2", "no network between several is known"),
        ("fat-tree:8", "wanted boxes and GPUs in a box, as in fat-tree:4x8"),
        ("nowhere.xml", "nowhere.xml: no such file"),
        ("/", "/: not a file"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        load(name)
