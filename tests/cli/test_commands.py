"""What each command prints, for people and for scripts."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import algocc as api
from algocc.collective import COLLECTIVES
from algocc.text import from_json, parse

Algocc = Callable[[str], Any]


def test_help_names_every_command(algocc: Algocc) -> None:
    done = algocc("--help")
    assert done.code == 0
    assert algocc("").out == done.out, "no command is a call for help"
    for command in ("list", "show", "verify", "bound", "run", "doctor"):
        assert f"\n  {command} " in done.out
        assert algocc(f"{command} --help").code == 0
    assert algocc("--version").out == f"algocc, version {api.__version__}\n"


def test_list(algocc: Algocc) -> None:
    found = algocc("list --json").json["schedules"]
    assert {row["name"] for row in found} == set(api.algorithms())
    order = [list(COLLECTIVES).index(row["collective"]) for row in found]
    assert order == sorted(order)
    text = algocc("list --collective ReduceScatter").out
    assert text.startswith("reduce_scatter: Rank r ends with the reduction of block r of all inputs.")
    assert "steps n - 1; sends (n - 1)/n" in text
    assert "all_gather" not in text.replace("reduce_scatter", "")


def test_show(algocc: Algocc) -> None:
    assert algocc("show ring -n 2").out.startswith("schedule ring: all_reduce n=2 chunks=2, 3 steps, 6 transfers\nstep 0\n")
    assert algocc("show ring -n 2 --diagram").out.startswith("rank  step 0")
    assert algocc("show ring -n 2 --program --in-place").out.startswith("program ring: all_reduce n=2 chunks=2, in place;")
    assert parse(algocc("show ring -n 3 --format text").out).collective == api.load("ring")(3).collective


def test_a_table_is_as_good_as_a_function(algocc: Algocc, tmp_path: Any) -> None:
    for form in ("json", "text"):
        path = tmp_path / f"ring.{form.replace('text', 'txt')}"
        done = algocc(f"show ring -n 3 --format {form} -o {path}")
        assert (done.code, done.out) == (0, "")
        report = algocc(f"verify {path} --json").json
        assert (report["correct"], report["n"], report["sent_max"]) == (True, 3, "4/3")
        refused = algocc(f"verify {path} -n 4")
        assert refused.code == 2 and "is a table for n=3" in refused.err


def test_show_json_is_the_schedule(algocc: Algocc) -> None:
    shown = json.loads(algocc("show ring -n 3 --format json").out)
    assert from_json(shown) == api.load("ring")(3)


def test_verify_one_n(algocc: Algocc) -> None:
    done = algocc("verify ring -n 4 --json")
    assert done.code == 0
    assert done.json == api.verify(api.load("ring")(4)).to_json()
    assert algocc("verify ring -n 4").out == api.summary(api.verify(api.load("ring")(4))) + "\n"
    assert algocc("verify ring -n 4 --in-place --lanes 2 --json").json["program"]["lanes"] == 8
    assert algocc("verify ring -n 4 --no-program --json").json["program"] is None


def test_verify_many_n(algocc: Algocc) -> None:
    done = algocc("verify broken.py:doubling -n 2..5,8,3 --json")
    found = done.json
    assert done.code == 1
    assert [r["n"] for r in found["results"]] == [2, 3, 4, 5, 8]
    assert [r["n"] for r in found["results"] if r["correct"]] == [2, 4, 8]
    assert (found["correct"], found["smallest_failure"], found["skipped"]) == (False, 3, [])
    lines = algocc("verify broken.py:doubling -n 8,5,3").out.split("\n")
    assert [line[:10] for line in lines[:3]] == ["n=8: corre", "n=5: WRONG", "n=3: WRONG"]
    assert lines[3] == "doubling: WRONG for 2 of 3 n; the smallest is n=3"
    assert lines[4] == "doubling: all_reduce on 3 ranks, 1 chunk, out of place"


def test_verify_skips_what_a_schedule_does_not_take(algocc: Algocc) -> None:
    done = algocc("verify neighbor_exchange_all_gather -n 2..5 --json")
    assert done.code == 0
    assert [r["n"] for r in done.json["results"]] == [2, 4]
    assert done.json["skipped"] == [
        {"n": n, "reason": f"neighbor_exchange_all_gather: n={n}: this algorithm takes n even, or 1"} for n in (3, 5)
    ]
    assert algocc("verify neighbor_exchange_all_gather -n 2..5").out.endswith(": correct for all 2 n; 2 skipped\n")
    assert algocc("verify neighbor_exchange_all_gather -n 3,5").code == 2, "a schedule that takes none of them"
    assert algocc("verify broken.py:fails -n 2..5").code == 2, "a function that fails does not refuse"


def test_operators_that_bear_adding_twice(algocc: Algocc) -> None:
    assert algocc("verify broken.py:doubling -n 3").code == 1
    assert algocc("verify broken.py:doubling -n 3 --op max --no-program").code == 0


def test_what_a_schedule_prints_is_not_output(algocc: Algocc) -> None:
    done = algocc("verify broken.py:doubling -n 2 --json")
    assert done.json["correct"]
    assert done.err == "a user's print does not get into the output\n"


def test_bound(algocc: Algocc) -> None:
    found = algocc("bound all-reduce -n 8 --ports 2 --json").json
    assert (found["collective"], found["n"], found["ports"]) == ("all_reduce", 8, 2)
    assert (found["steps"], found["sent"], found["reduced_total"]) == (2, "7/4", "7")
    text = algocc("bound AllReduce -n 8 --ports 2").out
    for reason in found["reasons"].values():
        assert reason in text
    assert algocc("bound AllToAllV -n 2 --counts [[0,1],[3,0]] --json").json["sent"] == "1"


RUN = ("time_us", "algbw_gbps", "busbw_gbps")


@pytest.mark.parametrize("mode", ("", " --in-place", " --lanes 2"))
def test_run(algocc: Algocc, mode: str) -> None:
    done = algocc(f"run ring -n 4 --size 10000 --iters 2 --json{mode}")
    found = done.json
    assert done.code == 0
    facts = {k: found[k] for k in ("schedule", "n", "backend", "size_bytes", "count", "dtype", "op", "correct", "wrong")}
    assert facts == {
        "schedule": "ring", "n": 4, "backend": "threads", "size_bytes": 10000, "count": 2500, "dtype": "float32",
        "op": "sum", "correct": True, "wrong": 0,
    }  # fmt: skip
    assert found["in_place"] == (mode == " --in-place")
    assert all(found[key] > 0 for key in RUN)
    assert found["busbw_gbps"] == pytest.approx(found["algbw_gbps"] * 6 / 4)
    assert found["verification"]["correct"]


@pytest.mark.parametrize(
    ("line", "size", "count"),
    [
        ("ring_all_gather -n 3 --size 100 --dtype float64", 96, 12),  # of the larger buffer, the output: 3 blocks of 4
        ("ring_reduce_scatter -n 3 --size 1K --dtype int16 --op max", 1020, 510),
        ("binomial_broadcast -n 3 --size 5 --dtype int8 -p root=2", 5, 5),
        ("ring -n 3 --size 0", 0, 0),
        ("ring -n 1 --size 8", 8, 2),
    ],
)
def test_sizes_are_those_of_nccl_tests(algocc: Algocc, line: str, size: int, count: int) -> None:
    found = algocc(f"run {line} --iters 1 --json").json
    assert (found["size_bytes"], found["count"], found["wrong"]) == (size, count, 0)


def test_run_for_people(algocc: Algocc) -> None:
    done = algocc("run binomial_reduce -n 3 --size 4K --iters 1 -p root=1")
    lines = done.out.split("\n")
    assert lines[0] == "binomial_reduce: reduce on 3 ranks, 1 chunk, out of place"
    assert lines[-5].split() == "# size count type redop root time algbw busbw #wrong".split()
    row = lines[-3].split()
    assert (row[:5], row[-1]) == (["4096", "1024", "float32", "sum", "1"], "0")
    assert algocc("run ring -n 2 --size 4K --iters 1 --no-check").out.split("\n")[-3].endswith("N/A")


def test_run_refuses_what_is_wrong(algocc: Algocc) -> None:
    done = algocc("run broken.py:doubling -n 3 --size 1K")
    assert done.code == 1
    assert "#wrong" not in done.out
    assert done.err.endswith("algocc: doubling is wrong, so it is not run; --unverified runs it all the same\n")
    assert algocc("run broken.py:doubling -n 3 --size 1K --json").json["correct"] is False
    done = algocc("run broken.py:doubling -n 3 --size 1K --iters 1 --unverified --json")
    assert done.code == 1 and done.json["wrong"] > 0


def test_doctor(algocc: Algocc) -> None:
    found = algocc("doctor --json").json
    assert found["cores"] >= 1 and found["packages"]["numpy"]
    declared = tomllib.loads((Path(api.__file__).parent.parent / "pyproject.toml").read_text())
    assert set(found["extras"]) == set(declared["project"]["optional-dependencies"])
    text = algocc("doctor").out
    for name, extra in found["extras"].items():
        line = next(line for line in text.split("\n") if line.startswith(f"extra     {name}:"))
        assert line.endswith(": complete") or (extra["missing"] and line.endswith(extra["install"]))


def test_reduction_order(algocc: Algocc) -> None:
    assert "equal on all ranks to the bit     yes" in algocc("verify one_shot -n 4 --reduction-order").out
    order = algocc("verify ring -n 4 --reduction-order --json").json["order"]
    assert order == {"bitwise_equal_across_ranks": True, "same_for_all_chunks": False, "orders": 4}
    assert algocc("verify ring -n 2,3 --reduction-order").out.count("bits equal between ranks") == 2
