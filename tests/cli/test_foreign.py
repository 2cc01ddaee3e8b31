"""`algocc import` and `export`, and verify, show and run of files of other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = "../exchange/data"
Algocc = Callable[[str], Any]


def test_verify_both_modes(algocc: Algocc) -> None:
    done = algocc(f"verify {DATA}/fixtures/ag_ring_n3_ok.xml")
    assert done.code == 0
    assert done.out.count("correct     yes") == 2
    assert "  slots       8 a connection; runs with 2 or more" in done.out
    both = algocc(f"verify {DATA}/fixtures/ag_ring_n3_ok.xml --json").json
    assert [r["in_place"] for r in both["results"]] == [True, False] and both["correct"]


def test_verify_in_a_mode(algocc: Algocc) -> None:
    name = f"{DATA}/public/rccl__alltoall-8n-0-1kb__0a53077c.xml"
    assert algocc(f"verify {name}").code == 0
    done = algocc(f"verify {name} --mode in-place --json")
    assert done.code == 1 and not done.json["correct"] and done.json["slots"] == 8
    assert algocc(f"verify {DATA}/fixtures/ar_ring_n3_ok.xml --slots 1").code == 1


def test_verify_says_what_only_a_file_has(algocc: Algocc) -> None:
    out = algocc(f"verify {DATA}/fixtures/ar_oneshot_n4_rotated_order.xml").out
    assert "bits        1 output chunks are added up in another order on each rank: bits may differ" in out
    out = algocc(f"verify {DATA}/public/test~execution-files~sendrecv.json__7bedb250.json").out
    assert "note        test~execution-files~sendrecv.json__7bedb250.json:3: plan: key 'colletive' is read as" in out


@pytest.mark.parametrize(
    "line, code, message",
    [
        (f"verify {DATA}/fixtures/truncated_file.xml", 2, "truncated_file.xml:7: column 7: not well-formed XML"),
        (f"verify {DATA}/fixtures/ar_n2_two_tb_ok.xml -n 4", 2, "-n 4: the file is for 2 ranks"),
        ("verify nowhere.xml", 2, "nowhere.xml: No such file or directory"),
        (f"import {DATA}/public/python~mscclpp~language~tests~test.json__1367490b.json", 2, "is no JSON object"),
        ("export ring -n 40 --to msccl-xml --target rccl", 2, "78 steps, the target takes 64; use fewer chunks"),
        ("export ring -n 4 --to nothing", 2, "unknown format 'nothing'; known: msccl-xml, mscclpp-json, chakra, "),
        ("export ring -n 4 --to chakra", 2, "export --to chakra: 4 files: say where with -o PREFIX"),
    ],
)
def test_errors(algocc: Algocc, line: str, code: int, message: str) -> None:
    done = algocc(line)
    assert done.code == code and message in done.err


def test_import_keeps_a_schedule(algocc: Algocc, tmp_path: Path) -> None:
    out = tmp_path / "ring.json"
    done = algocc(f"import {DATA}/fixtures/ar_ring_n5_ok.xml -o {out}")
    assert done.code == 0 and "all_reduce n=5 chunks=5, for in place" in done.out
    report = algocc(f"verify {out} --in-place --json").json
    assert report["correct"] and report["bandwidth_optimal"] and report["steps"] == 8


def test_import_does_not_keep_what_is_wrong(algocc: Algocc, tmp_path: Path) -> None:
    out = tmp_path / "race.json"
    name = f"{DATA}/fixtures/ar_n2_missing_recv_dep_race.xml"
    done = algocc(f"import {name} -o {out}")
    assert done.code == 1 and not out.exists() and "is wrong, so nothing is written" in done.err
    assert algocc(f"import {name} -o {out} --unverified").code == 1 and out.exists()


@pytest.mark.parametrize("to, suffix", [("msccl-xml", ".xml"), ("mscclpp-json", ".json")])
def test_export_and_verify_again(algocc: Algocc, tmp_path: Path, to: str, suffix: str) -> None:
    out = tmp_path / f"ring{suffix}"
    assert algocc(f"export ring -n 4 --to {to} -o {out}").code == 0
    before, after = algocc("verify ring -n 4 --json").json, algocc(f"verify {out} --json").json
    assert {k: v for k, v in after.items() if k in before and k != "program"} == {
        k: v for k, v in before.items() if k in after and k != "program"
    }


def test_from_one_format_to_another(algocc: Algocc, tmp_path: Path) -> None:
    out = tmp_path / "ring.json"
    assert algocc(f"export {DATA}/fixtures/ar_ring_n3_ok.xml --in-place --to mscclpp-json -o {out}").code == 0
    assert algocc(f"verify {out}").code == 0


def test_export_of_several_files(algocc: Algocc, tmp_path: Path) -> None:
    assert algocc(f"export ring -n 3 --to chakra --size 1M -o {tmp_path / 'trace'}").code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trace.0.et", "trace.1.et", "trace.2.et"]


def test_show(algocc: Algocc) -> None:
    name = f"{DATA}/fixtures/ar_n2_two_tb_ok.xml"
    assert algocc(f"show {name}").out.startswith("schedule x: all_reduce n=2 chunks=2")
    assert algocc(f"show {name} --program").out.startswith("program x: all_reduce n=2 chunks=2, in place; 6 lanes")


def test_run(algocc: Algocc) -> None:
    found = algocc(f"run {DATA}/fixtures/ar_ring_n3_ok.xml --size 12K --iters 1 --json").json
    assert found["wrong"] == 0 and found["in_place"]
    done = algocc(f"run {DATA}/fixtures/ar_n2_missing_recv_dep_race.xml --size 12K --iters 1")
    assert done.code == 1 and "x is wrong, so it is not run" in done.err


def test_run_as_a_runtime_would_choose_it(algocc: Algocc) -> None:
    """A file is meant for some sizes and needs some channels; a runtime takes another algorithm beyond."""
    name = f"{DATA}/public/rccl__allgather-8n-1kb-4kb__e44e112a.xml"
    assert algocc(f"run {name} --size 2K --iters 1 --max-channels 2").code == 0
    done = algocc(f"run {name} --size 4K --iters 1")
    assert done.code == 2 and "meant for 0 to 4095 bytes, not for 4096; a runtime would pass it over" in done.err
    done = algocc(f"run {name} --size 2K --iters 1 --max-channels 1")
    assert done.code == 2 and "needs 2 channels, allowed are 1" in done.err


def test_certify_a_file(algocc: Algocc, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    assert algocc(f"certify {DATA}/fixtures/ar_ring_n5_ok.xml -o {out}").code == 0
    assert algocc(f"check {out}").code == 0


def test_a_size_that_is_rounded_is_said(algocc: Algocc) -> None:
    done = algocc("run ring -n 2 --size 7 --iters 1")
    assert done.code == 0 and "--size 7 is rounded down to 4 bytes, whole elements of float32" in done.err
