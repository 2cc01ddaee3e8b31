"""`algocc import` and `export`, and verify, show and run of files of other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = "../exchange/data"
HERE = Path(__file__).parent
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
    done = algocc(f"import {name} -o {out} --unverified")  # a schedule has no races, so none does what the file does
    assert done.code == 1 and not out.exists() and "no schedule: it races, so no order of its steps is the right one" in done.err
    assert "correct     NO: 2 output chunks are wrong" in done.out


def test_what_is_wrong_in_one_way_only_is_kept_as_it_is(algocc: Algocc, tmp_path: Path) -> None:
    out, wrong = tmp_path / "wrong.json", tmp_path / "wrong.xml"
    wrong.write_text((HERE / DATA / "fixtures/ar_ring_n3_ok.xml").read_text().replace('srcoff="0"', 'srcoff="1"', 1))
    assert algocc(f"import {wrong} -o {out}").code == 1 and not out.exists()
    assert algocc(f"import {wrong} -o {out} --unverified").code == 1 and out.exists()
    before, after = algocc(f"verify {wrong} --json").json, algocc(f"verify {out} --in-place --json").json
    assert before["wrong"] == after["wrong"] > 0

    def blamed(report: Any) -> set[tuple[str, ...]]:
        """The wrong outputs; that lengths may differ is said of schedules only."""
        return {
            (x["rank"], x["chunk"], x["found"].split(", at ")[0])
            for x in report["failures"]
            if x["chunk"].startswith("out") and "another length" not in x["found"]
        }

    assert blamed(before) == blamed(after)


RACE = f"{DATA}/fixtures/ar_n2_missing_recv_dep_race.xml"


@pytest.mark.parametrize("command", ["export {} --to mscclpp-json", "certify {} -o {}", "draw {} -o {}.svg", "show {}", "run {}"])
@pytest.mark.parametrize("name, mode", [(RACE, ""), (f"{DATA}/public/rccl__alltoall-8n-0-1kb__0a53077c.xml", " --in-place")])
def test_a_racing_file_is_nowhere_taken_for_right(algocc: Algocc, tmp_path: Path, command: str, name: str, mode: str) -> None:
    size = " --size 512 --iters 1" if command.startswith("run") else ""
    done = algocc(command.format(name, tmp_path / "out") + mode + size)
    assert done.code == 1 and ("wrong" in done.err or "it races" in done.err) and not list(tmp_path.iterdir())


def test_the_mode_that_a_file_declares_is_the_one_that_is_meant(algocc: Algocc, tmp_path: Path) -> None:
    name, out = f"{DATA}/fixtures/ar_ring_n3_ok.xml", tmp_path / "again.xml"
    assert algocc(f"export {name} --to msccl-xml -o {out}").code == 0
    assert 'inplace="1" outofplace="0"' in out.read_text()
    done = algocc(f"export {name} --mode out-of-place --to msccl-xml")
    assert done.code == 1 and "in[1] is written to, wanted the input as it was" in done.err
    done = algocc(f"import {name} -o {tmp_path / 's.json'}")
    assert done.code == 0 and "18 rows, for in place: `algocc verify` and the like need --in-place" in done.err
    done = algocc(f"verify {DATA}/public/test~execution-files~sendrecv.json__7bedb250.json --mode in-place")
    assert done.code == 2 and "send_recv has no in-place form" in done.err


def test_order_of_reductions(algocc: Algocc, tmp_path: Path) -> None:
    """As of a schedule; of a switch, which adds as it likes, it is not known."""
    out = tmp_path / "ring.xml"
    assert algocc(f"export ring -n 4 --to msccl-xml -o {out}").code == 0
    asked = [algocc(f"verify {name} --reduction-order") for name in ("ring -n 4", str(out))]
    orders = [done.out.split("  order of reductions\n")[1].split("  slots")[0].rstrip() for done in asked]
    assert orders[0] == orders[1] and algocc(f"verify {out} --reduction-order --json").json["order"]
    done = algocc(f"verify {DATA}/public/test~execution-files~allreduce_nvls_2.json__6830e158.json --reduction-order")
    assert done.code == 0 and "note        the order of reductions is not known: " in done.out


ONE = f"{DATA}/fixtures/ar_n2_two_tb_ok.xml"
PLAN = f"{DATA}/public/test~execution-files~allreduce_packet.json__7ca31e2a.json"


@pytest.mark.parametrize(
    "line, message",
    [
        (f"verify {ONE} -n 2,4", "-n 4: the file is for 2 ranks"),
        (f"verify {ONE} -p root=1", "-p: a file of another tool takes no parameters"),
        (f"verify {ONE} --lanes 2", "--lanes 2: the file has lanes of its own, its threadblocks"),
        (f"run {ONE} --lanes 2", "--lanes 2: the file has lanes of its own"),
        (f"verify {ONE} --no-program", "--no-program: a file of another tool is a program"),
        (f"verify {ONE} --backend cuda", "--backend cuda is for schedules"),
        (f"verify {ONE} --in-place --mode out-of-place", "--in-place with --mode out-of-place: choose one"),
        (f"verify {ONE} --mode inplace", "'inplace' is not one of 'in-place', 'out-of-place'"),
        (f"verify {ONE} --slots -1", "-1 is not in the range"),
        (f"verify {PLAN} --slots 4", "--slots 4: an MSCCL++ plan has no connections with slots"),
        ("verify ring -n 4 --slots 4", "ring: --slots 4: only an MSCCL file has connections with slots"),
        ("run ring -n 4 --in-place --mode out-of-place", "--in-place with --mode out-of-place: choose one"),
        (f"import {ONE} -o nowhere/s.json", "nowhere/s.json: No such file or directory"),
        (f"import {ONE} -o s.xml", "-o s.xml: a schedule is kept as JSON or text: its name ends in .json or .txt"),
        (f"export {ONE} --to msccl-xml -o nowhere/s.xml", "nowhere/s.xml: No such file or directory"),
        (f"export {ONE} -n 3 --to msccl-xml", "-n 3: the file is for 2 ranks"),
        ("import broken.py -o s.json", "broken.py:1: column 1: "),
    ],
)
def test_odd_options(algocc: Algocc, line: str, message: str) -> None:
    done = algocc(line)
    assert done.code == 2 and message in done.err


def test_what_is_read_is_not_written_over(algocc: Algocc, tmp_path: Path) -> None:
    for command, name in (("import {0} -o {0}", PLAN), ("export {0} --to mscclpp-json -o {0}", PLAN)):
        plan = tmp_path / "plan.json"
        plan.write_bytes((HERE / name).read_bytes())
        done = algocc(command.format(plan))
        assert done.code == 2 and "is the file that is read; choose another name" in done.err
        assert plan.read_bytes() == (HERE / name).read_bytes()
    other = tmp_path / "s.json"
    other.write_text("something else, which is written over as any output is")
    assert algocc(f"import {plan} -o {other}").code == 0 and algocc(f"verify {other} --in-place").code == 0


@pytest.mark.parametrize("name", [ONE, PLAN, f"{DATA}/fixtures/rs_n2_inplace_coll_spelled_with_underscore.xml"])
def test_what_is_kept_does_as_the_file_does(algocc: Algocc, tmp_path: Path, name: str) -> None:
    out = tmp_path / "s.json"
    assert algocc(f"import {name} -o {out}").code == 0
    before, after = algocc(f"verify {name} --json").json, algocc(f"verify {out} --in-place --json").json
    for fact in ("collective", "n", "chunks", "steps", "transfers", "ports", "sent_max", "received_max", "reduced_max", "depth"):
        assert before[fact] == after[fact], fact
    assert algocc(f"run {out} --in-place --size 12K --iters 1 --json").json["wrong"] == 0
    for to in ("msccl-xml", "mscclpp-json", "graphviz"):
        assert algocc(f"export {out} --in-place --to {to}").code == 0
    assert algocc(f"draw {out} --in-place -o {tmp_path / 's.svg'}").code == 0
    assert algocc(f"certify {out} --in-place -o {tmp_path / 'c.json'}").code == 0
    assert algocc(f"show {out}").out == algocc(f"show {name}").out


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
