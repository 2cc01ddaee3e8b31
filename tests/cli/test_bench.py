"""`algocc bench` and `algocc tune`: the table, the file it leaves, and what is refused, once."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from algocc.cli import main
from algocc.runtime import choice

BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.is_file() else shutil.which("mpiexec")


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A file for the table of choices, none there yet."""
    path = tmp_path / "deep" / "tuning.json"
    monkeypatch.setenv("ALGOCC_TUNING", str(path))
    choice.tuned.cache_clear()
    yield path
    choice.tuned.cache_clear()


def test_every_size_is_checked_and_its_schedule_told(algocc):
    done = algocc("bench all_reduce -n 3 -b 12 -e 200K -f 20000 --backend threads --iters 3 --dtype int32 --op max --json")
    assert done.code == 0 and done.json["wrong"] == 0
    assert [(row["size"], row["count"], row["schedule"]) for row in done.json["rows"]] == [(12, 3, "one_shot")]
    done = algocc("bench reduce_scatter -n 4 -b 8 -e 64 -f 2 --backend threads --iters 3 --schedule ring_reduce_scatter")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines() if not line.startswith("#")]
    assert [(row[0], row[1], row[5]) for row in rows] == [(str(s), str(s // 4), "ring_reduce_scatter") for s in (16, 32, 64)]
    assert all(row[9] == row[13] == "0" for row in rows)
    assert done.out.splitlines()[-2].startswith("# Avg bus bandwidth: ")


def test_the_schedule_that_is_told_is_that_of_the_size(algocc):
    """Even if a call of the same shape was made for another purpose before."""
    done = algocc("bench all_reduce -n 2 -b 8 -e 64K -f 2 --backend threads --iters 3 --dtype int64 --json")
    assert {row["schedule"] for row in done.json["rows"] if row["size"] <= 16 << 10} == {"one_shot"}
    assert {row["schedule"] for row in done.json["rows"] if row["size"] > 16 << 10} == {"two_shot"}


def test_a_plot(algocc, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install algocc[plot]")
    done = algocc(f"bench broadcast -n 2 -e 64 --backend threads --iters 3 --plot {tmp_path}/b.svg")
    assert done.code == 0 and (tmp_path / "b.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(("line", "told"), [
    ("bench all_reduc", "did you mean all_reduce"),
    ("bench barrier", "'barrier' is not timed; these are: all_reduce, "),
    ("bench all_reduce -b 100 -e 8", "-b 100 -e 8: wanted sizes that go up"),
    ("bench all_reduce --plot x.txt", "wanted one of .svg, .png, .pdf"),
    ("bench broadcast -n 2 --root 5 -e 8", "root=5: with n=2 a rank is one of 0..1"),
    ("bench all_reduce --dtype bool --op avg -e 8", "operator avg is not defined for dtype bool"),
    ("bench scan --op avg -e 8", "operator avg is not defined for scan"),
    ("bench all_reduce -e 8 -p root=1", "a parameter needs a schedule that takes it"),
    ("bench all_reduce -e 8 --schedule ring_all_gather", "it does all_gather, not all_reduce"),
    ("bench reduce_scatter -n 8 -e 8 --backend threads", "no size holds one float32 for each of 8 blocks; use 32 or more"),
    ("tune barrier", "'barrier' is not timed"),
])  # fmt: skip
def test_what_can_not_be_is_one_error(algocc, table, line, told):
    done = algocc(line)
    assert (done.code, done.out) == (2, "") and told in done.err and done.err.count("\n") == 1
    as_json = algocc(f"{line} --json")
    assert as_json.code == 2 and told in as_json.json["error"]


def test_tune_writes_what_auto_then_takes(algocc, table):
    done = algocc("tune broadcast --quick -n 2 --json")
    assert done.code == 0 and done.json["file"] == str(table)
    rows = json.loads(table.read_text())["ranks"]["2"]["broadcast"]
    assert rows == done.json["ranks"]["2"]["broadcast"] and rows[-1][0] == 0
    choice.tuned.cache_clear()
    name, size = rows[0][1], rows[0][0] or 8
    assert choice.choose("broadcast", size, 2, choice.tuned()) == name
    assert choice.choose("broadcast", 8, 3, choice.tuned()) == "knomial_broadcast radix=n"
    found = algocc("bench broadcast -n 2 -b 8 -e 8 --backend threads --iters 3 --json").json["rows"][0]["schedule"]
    assert found == choice.parse(name, 2)[0]


def test_bounds_belong_to_the_smaller_size(table):
    made = {"2": {"all_reduce": [(64, "one_shot"), (1000, "ring"), (0, "two_shot")]}}
    for size, name in ((0, "one_shot"), (64, "one_shot"), (65, "ring"), (1000, "ring"), (1001, "two_shot"), (1 << 40, "two_shot")):
        assert choice.choose("all_reduce", size, 2, made) == name


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranks": {"two": {}}}', '{"ranks": {"2": {"all_reduce": [[1]]}}}'])
def test_a_table_that_makes_no_sense(algocc, table, text):
    table.parent.mkdir()
    table.write_text(text)
    done = algocc("bench all_reduce -n 2 -e 8 --backend threads")
    assert done.code == 2 and f"{table}: not a table of `algocc tune`" in done.err and "Traceback" not in done.err


def test_tune_is_not_for_mpiexec(monkeypatch, capsys, table):
    monkeypatch.setenv("PMI_RANK", "1")
    assert main(["tune"]) == 2
    assert "run it without mpiexec" in capsys.readouterr().err


@pytest.mark.skipif(MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs an MPI: pip install algocc[mpi,mpich]")
def test_ranks_of_mpiexec_speak_once():
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }  # fmt: skip

    def mpiexec(*args):
        command = [MPIEXEC, "-n", "2", sys.executable, "-m", "algocc", "bench", *args]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    done = mpiexec("all_reduce", "-e", "8", "--iters", "3", "--json")
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr
    assert json.loads(done.stdout)["backend"] == "mpi" and json.loads(done.stdout)["wrong"] == 0
    done = mpiexec("all_reduce", "-n", "3", "-e", "8")
    assert done.returncode == 2 and done.stderr.count("-n 3: mpiexec has started 2 ranks") == 1
    assert "Traceback" not in done.stderr
