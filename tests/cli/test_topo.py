"""`algocc topo`: names, links, bounds, and what it refuses."""

from __future__ import annotations

import doctest
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from algocc.topology import BOUNDS, MODELS, from_json, model, to_json

DATA = Path(__file__).parent.parent / "topology" / "data"


def test_names(algocc: Any) -> None:
    done = algocc("topo")
    assert done.code == 0 and all(m.example in done.out for m in MODELS.values())
    assert [row["name"] for row in algocc("topo --json").json["topologies"]] == list(MODELS)


def test_show(algocc: Any) -> None:
    done = algocc("topo show mesh:2x2")
    assert done.out.splitlines() == [
        "mesh:2x2: 4 ranks, 0 switches, 8 links; GB/s a direction",
        "  link           of      nominal  usable  latency  source",
        "  r0.0 <-> r1.0  1 link  1        1       -        unit links",
        "  r0.0 <-> r0.1  1 link  1        1       -        unit links",
        "  r0.1 <-> r1.1  1 link  1        1       -        unit links",
        "  r1.0 <-> r1.1  1 link  1        1       -        unit links",
        "ports of a rank: 2",
        "no way without another rank: 4 of 12 ordered pairs: r0.0-r1.1, r0.1-r1.0",
    ]


@pytest.mark.parametrize("name", ["dgx-a100:2", str(DATA / "topo_4p3l.xml")])
def test_json_of_show_is_a_topology(algocc: Any, name: str, tmp_path: Path) -> None:
    done = algocc(f"topo show {name} --json")
    again = tmp_path / "again.json"
    again.write_text(done.out)
    assert algocc(f"topo show {again} --json").json == done.json
    assert from_json(done.json).n == len([n for n in done.json["nodes"] if n["kind"] == "rank"])


def test_bound_names_the_cut(algocc: Any) -> None:
    done = algocc("topo bound dgx-a100:2 --collective all-gather -m 1M")
    assert done.code == 0
    head, line, why, cut, sides = done.out.splitlines()
    assert head.startswith("dgx-a100:2: 16 ranks, nominal bandwidths")
    assert line == (
        "  all_gather      at most 346.67 GB/s, m x 3/1040 s/GB, 3.025 us for 1M: attained by packed trees after "
        "splitting off the switches, Bang-Jensen, Frank and Jackson, 13 a rank"
    )
    assert why == "      the m/p of each rank inside must get out"
    assert cut.startswith("      15 m/p over 2 links of 325 GB/s in all: box0.nvswitch -> box0.gpu0, network -> box0.gpu0")
    assert sides.endswith("outside: box0.gpu0")


def test_bounds_as_json_carry_their_proofs(algocc: Any) -> None:
    found = algocc("topo bound mesh:3x3 --json -m 1000 --root 4").json
    assert [b["collective"] for b in found["bounds"]] == list(BOUNDS)
    for b in found["bounds"]:
        assert ("cut" in b) + ("dual" in b) + ("partition" in b) == 1
        assert b["seconds"] == pytest.approx(float(Fraction(b["seconds_per_gb"])) * 1e-6)
        if "cut" in b:
            inside = set(b["cut"]["inside"])
            assert all(k["from"] in inside and k["to"] not in inside for k in b["cut"]["crossing"])
    assert found["bounds"][3]["seconds_per_gb"] == "1/2" and found["bounds"][3]["root"] == 4


def test_usable_is_slower(algocc: Any) -> None:
    usable = algocc("topo bound hgx-h100 --usable --collective AllGather --json").json["bounds"][0]
    assert Fraction(usable["seconds_per_gb"]) == Fraction(7, 8) / Fraction("370.8")


def test_nvidia_smi_with_a_speed(algocc: Any, tmp_path: Path) -> None:
    file = tmp_path / "smi.txt"
    file.write_text("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n")
    done = algocc(f"topo bound {file} --collective broadcast --nvlink 50")
    assert "at most 200.00 GB/s" in done.out and "for each NVLink 50 GB/s was given" in done.out
    assert "assumed" in algocc(f"topo show {file}").out


def test_the_page_prints_what_is_printed(algocc: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "topologies.md").read_text()
    block = page.split("```console\n")[1].split("```")[0]
    command, _, printed = block.partition("\n")
    assert algocc(command.removeprefix("$ algocc ")).out == printed
    done = doctest.DocTestRunner().run(
        doctest.DocTestParser().get_doctest(page.split("```pycon\n")[1].split("```")[0], {}, "page", None, 0)
    )
    assert (done.attempted, done.failed) == (3, 0)
    record = page.split("```json\n")[1].split("```")[0]
    assert to_json(from_json(json.loads(record))) == json.loads(record) | {
        "nodes": [{"name": "a", "kind": "rank"}, {"name": "b", "kind": "rank"}, {"name": "s", "kind": "switch"}],
        "links": [{"from": "a", "to": "s", "nominal": "25", "usable": "20", "latency": "3/5000000", "source": "why"}],
    }


def test_without_the_extra(algocc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    assert algocc("topo show dgx1").code == 0
    done = algocc("topo bound dgx1")
    assert (done.code, done.err) == (
        2, "algocc: bounds of a topology need igraph: pip install 'algocc[topology]'\n",
    )  # fmt: skip


REFUSED = {
    "topo bond dgx1": "topo: unknown action 'bond'; did you mean bound?; one of show, bound",
    "topo bound dgx3": "dgx3: no such file, and no such topology; did you mean dgx",
    "topo bound dgx1 --collective scan": "no bound of 'scan' on a topology; did you mean scatter?; known: all_gather",
    "topo bound dgx1 --root 8": "root=8: with 8 ranks a rank is one of 0..7",
    "topo bound dgx1 --size many": "--size many: wanted a number of bytes",
    "topo bound dgx1 --nvlink nan": "--nvlink='nan': wanted a number",
    "topo bound dgx1 --nvlink -3": "--nvlink -3: wanted GB/s above 0",
    "topo bound fat-tree:2x2 --usable": "no usable bandwidth is known; take the nominal one",
    "topo bound mesh:1": "mesh:1: one rank, r0: a collective needs no link",
    "topo show torus:4": None,
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused(algocc: Any, line: str) -> None:
    done, message = algocc(line), REFUSED[line]
    if message is None:
        assert done.code == 0 and model("torus:4").n == 4
        return
    assert (done.code, done.out) == (2, "")
    assert message in done.err and "Traceback" not in done.err
    assert json.loads(algocc(f"{line} --json").out)["exit_code"] == 2
