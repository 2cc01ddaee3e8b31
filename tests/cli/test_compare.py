"""`algocc compare`: the table, exact crossovers, what is refused and why, and the plot."""

from __future__ import annotations

import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from algocc import cli
from algocc.bounds import COLLECTIVES
from algocc.cli import units
from algocc.cli.compare import _times
from algocc.cli.comparison import faster
from algocc.model import Line, Machine, cost
from algocc.schedules.recursive import recursive_doubling
from algocc.schedules.ring import ring
from algocc.schedules.trees import binary_tree

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"

WRONG = """
from algocc import schedule
from algocc.collective import all_reduce
from algocc.steps import Steps

@schedule(collective="all_reduce")
def forgets(n):
    s = Steps(all_reduce(n))
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
    return s

@schedule(collective="all_reduce")
def ring(n):
    s = Steps(all_reduce(n))
    for hop in range(1, n):
        with s.step():
            for rank in range(n):
                s.reduce(src=rank, dst=(rank + hop) % n, chunk=0, buffer="in", to_buffer="out")
    return s

@schedule
def fails(n):
    return 1 // 0
"""


@pytest.fixture
def call(capsys):
    def run(*args):
        code = cli.main(["compare", *map(str, args)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(WRONG)
    return path


def as_json(call, *args):
    code, out, _ = call(*args, "--json")
    return code, json.loads(out)


def test_page_shows_what_is_printed(call):
    for command, shown in re.findall(r"```console\n\$ algocc compare (.*)\n([^`]*)\n```", PAGE.read_text("utf-8")):
        assert call(*command.split())[1].rstrip() == shown


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_collective(call, name):
    for n in (1, 4, 6):
        code, found = as_json(call, name, "-n", n)
        assert code == 0
        assert found["collective"] == name
        assert found["candidates"][0]["fastest"] is True
        times = [Fraction(c["time"]) for c in found["candidates"]]
        assert times == sorted(times)
        assert found["fastest"][-1]["to_bytes"] is None
        assert call(name, "-n", n)[0] == 0


@pytest.mark.parametrize("spelling", ["AllReduce", "all-reduce", "ALL_REDUCE", "all reduce"])
def test_any_spelling(call, spelling):
    assert as_json(call, spelling, "-n", 4)[1]["collective"] == "all_reduce"


@pytest.mark.parametrize(
    ("startup", "other"), [((), recursive_doubling), (("--startup", "step"), binary_tree)], ids=["message", "step"]
)
def test_ring_against_another_is_exact(call, startup, other):
    m = Machine(startup=startup[1] if startup else "message")
    a, b = cost(ring(8), startup=m.startup).line(m), cost(other(8), startup=m.startup).line(m)
    wanted = (a.fixed - b.fixed) / (b.slope - a.slope)
    _, found = as_json(call, "all_reduce", "-n", 8, "--size", "64K", *startup)
    rows = {c["schedule"]: c for c in found["candidates"]}
    assert (found["against"], found["startup"]) == ("ring", m.startup)
    assert Fraction(rows[other.name]["crossover_bytes"]) == wanted
    assert rows[other.name]["faster"] == f"below {units.size(wanted)}"
    assert Fraction(rows["ring"]["time"]) == a.at(2**16)
    shown = [rows["ring"][key] for key in ("startups", "beta_share", "gamma_share")]
    assert shown == [14, "7/4", "7/8"]
    _, found = as_json(call, "all_reduce", "-n", 8, "--against", other.name, *startup)
    rows = {c["schedule"]: c for c in found["candidates"]}
    assert rows["ring"]["faster"] == f"above {units.size(wanted)}"


def test_startups_are_those_of_messages_if_nothing_is_said(call):
    _, found = as_json(call, "all_reduce", "-n", 8)
    assert found == as_json(call, "all_reduce", "-n", 8, "--startup", "message")[1]
    _, by_step = as_json(call, "all_reduce", "-n", 8, "--startup", "step")
    startups = [{c["schedule"]: c["startups"] for c in f["candidates"]} for f in (found, by_step)]
    assert [s["two_shot"] for s in startups] == [14, 2]
    assert [s["ring"] for s in startups] == [14, 14]


def test_envelope_names_the_fastest_at_any_size(call):
    args = ("all_reduce", "-n", 8, "--preset", "ib")
    _, found = as_json(call, *args)
    for segment in found["fastest"]:
        first = Fraction(segment["from_bytes"])
        last = first * 2 + 1000 if segment["to_bytes"] is None else Fraction(segment["to_bytes"])
        _, there = as_json(call, *args, "--size", int((first + last) / 2))
        assert {c["schedule"] for c in there["candidates"] if c["fastest"]} == {
            name.split()[0] for name in segment["schedules"]
        }


def test_amounts_are_exact(call):
    _, found = as_json(call, "scan", "-n", 4, "--alpha", "2.5us", "--beta", "200Gb/s", "--gamma", "1e-11")
    assert (found["alpha"], found["beta"], found["gamma"]) == ("1/400000", "1/25000000000", "1/100000000000")
    _, found = as_json(call, "scan", "-n", 4, "--alpha", "0", "--beta", "40ps", "--gamma", "100GB/s", "--size", 1000)
    assert Fraction(found["candidates"][0]["time"]) == 1000 * (2 * Fraction(4, 10**11) + 2 * Fraction(1, 10**11))
    _, found = as_json(call, "scan", "-n", 4, "--preset", "shm", "--beta", "0")
    assert (found["alpha"], found["beta"]) == ("1/1000000", "0")


def test_more_ports_help_those_with_more_peers(call):
    rows = {}
    for ports in (1, 7):
        _, found = as_json(call, "all_reduce", "-n", 8, "--ports", ports)
        rows[ports] = {c["schedule"]: c for c in found["candidates"]}
    assert rows[1]["ring"]["beta_share"] == rows[7]["ring"]["beta_share"] == "7/4"
    assert (rows[1]["two_shot"]["beta_share"], rows[7]["two_shot"]["beta_share"]) == ("7/4", "1/4")


def test_by_step_says_which_have_more_peers_than_ports(call):
    step = ("all_reduce", "-n", 8, "--startup", "step")
    assert "two_shot" in call(*step)[1].split("more peers in a step than 1 port")[1].split("(--startup")[0]
    assert "more peers" not in call(*step, "--ports", 7)[1]
    assert "more peers" not in call("all_reduce", "-n", 8)[1]


def test_tune_finds_better_parameters_or_none(call):
    best = {}
    for tune in ((), ("--tune",)):
        _, found = as_json(call, "broadcast", "-n", 16, "--size", "64M", *tune)
        best[bool(tune)] = {c["schedule"]: Fraction(c["time"]) for c in found["candidates"]}
        chain = next(c for c in found["candidates"] if c["schedule"] == "chain_broadcast")
    assert best[True].keys() == best[False].keys()
    assert all(best[True][name] <= best[False][name] for name in best[True])
    assert best[True]["chain_broadcast"] < best[False]["chain_broadcast"]
    assert chain["params"]["chunks"] == 64


def test_a_parameter_that_is_given_is_not_tuned(call):
    _, found = as_json(call, "broadcast", "-n", 8, "-p", "chunks=3", "-p", "root=2", "--tune")
    assert all(c["params"].get("chunks", 3) == 3 and c["params"]["root"] == 2 for c in found["candidates"])
    assert "chain_broadcast chunks=3" in call("broadcast", "-n", 8, "-p", "chunks=3")[1]


def test_those_that_do_not_take_n_are_listed_with_the_reason(call):
    _, out, _ = call("reduce_scatter", "-n", 6)
    assert re.search(r"not compared\n +recursive_halving_reduce_scatter +this algorithm takes n a power of two", out)
    _, found = as_json(call, "send_recv", "-n", 4)
    assert [c["schedule"] for c in found["candidates"]] == ["send_recv"]
    assert {r["schedule"] for r in found["refused"]} == {"halo_1d", "halo_2d"}
    assert all("does another task" in r["reason"] for r in found["refused"])


def test_own_schedules_are_compared(call, own):
    code, found = as_json(call, "all_reduce", "-n", 4, "--with", f"{own}:ring")
    assert code == 0
    rows = {c["schedule"]: c for c in found["candidates"]}
    assert rows[f"{own}:ring"]["sent"] == "3" and rows["ring"]["sent"] == "3/2"


def test_a_wrong_one_is_named_and_not_ranked(call, own):
    code, out, _ = call("all_reduce", "-n", 4, "--with", f"{own}:forgets")
    assert code == 1
    assert re.search(r"WRONG\n +forgets +step 0, rank 0: out\[0\]", out)
    code, found = as_json(call, "all_reduce", "-n", 4, "--with", f"{own}:forgets")
    assert code == 1
    assert [w["schedule"] for w in found["wrong"]] == ["forgets"]
    assert "forgets" not in {c["schedule"] for c in found["candidates"]}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("all_reduce",), "compare all_reduce: on how many ranks? Give -n"),
        (("allreduse", "-n", "4"), "unknown collective 'allreduse'; did you mean all_reduce"),
        (("all_reduce", "-n", "0"), "1 to"),
        (("all_reduce", "-n", "4", "--alpha", "fast"), "--alpha fast: wanted seconds, as in 5e-6 or 5us"),
        (("all_reduce", "-n", "4", "--alpha", "1e999999999"), "--alpha 1e999999999: wanted seconds"),
        (("all_reduce", "-n", "4", "--beta", "0GB/s"), "--beta 0GB/s: wanted seconds for a byte"),
        (("all_reduce", "-n", "4", "--gamma", "-1"), "--gamma -1: wanted seconds for a byte"),
        (("all_reduce", "-n", "4", "--ports", "0"), "ports=0, wanted 1 or more"),
        (("all_reduce", "-n", "4", "-p", "rot=1"), "-p rot: no algorithm for all_reduce takes it"),
        (("all_reduce", "-n", "4", "--against", "rnig"), "--against rnig: not compared; did you mean ring"),
        (("broadcast", "-n", "4", "-p", "root=4"), "root=4"),
        (("all_reduce", "-n", "4", "--with", "nothing"), "unknown schedule 'nothing'"),
        (("all_reduce", "-n", "4", "--plot", "a.gif"), "--plot a.gif: the name ends in .gif, wanted one of .svg, .png, .pdf"),
        (("all_reduce", "-n", "4", "--plot", "/no/such/folder/a.svg"), "/no/such/folder/a.svg: No such file"),
        (("scatter", "-n", "1", "--plot", "a.svg"), "--plot a.svg: some times are 0 at every size"),
        (("barrier", "-n", "4", "--plot", "a.svg"), "a barrier carries no data"),
    ],
)  # fmt: skip
def test_refuses(call, args, message):
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert message in err


def test_a_schedule_that_fails_is_not_taken_for_one_that_refuses(call, own):
    code, _, err = call("all_reduce", "-n", 4, "--with", f"{own}:fails")
    assert code == 2
    assert "own.py" in err and "ZeroDivisionError" in err


# The plot.


def test_no_matplotlib_names_the_extra(call, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = call("all_reduce", "-n", 4, "--plot", tmp_path / "a.svg")
    assert code == 2
    assert "pip install 'algocc[plot]'" in err
    assert call("all_reduce", "-n", 4)[0] == 0


def test_plot_needs_no_display_and_is_only_imported_for_it():
    for path in Path(cli.__file__).parent.glob("*.py"):
        source = path.read_text("utf-8")
        assert not re.search(r"^(import|from) matplotlib", source, re.MULTILINE)
        assert "pyplot" not in source


def test_plot_shows_every_algorithm_and_crossover(call, tmp_path):
    pytest.importorskip("matplotlib", reason="the plot needs the extra `plot`")
    args = ("all_reduce", "-n", 8)
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        assert call(*args, "--plot", path)[0] == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    drawn = " ".join(re.findall(r"<!-- (.*?) -->", paths[0].read_text("utf-8"), re.DOTALL))
    _, found = as_json(call, *args)
    for c in found["candidates"]:
        assert c["schedule"] in drawn
    for segment in found["fastest"]:
        if segment["to_bytes"] is not None:
            assert f"{units.size(Fraction(segment['to_bytes']))}, " in drawn


@pytest.mark.parametrize(
    "args",
    [
        ("broadcast", "-n", 8, "--tune"), ("gather", "-n", 5), ("all_to_all", "-n", 6, "--size", "0"),
        ("all_reduce", "-n", 4, "--alpha", "0"), ("all_reduce", "-n", 4, "--beta", "0", "--gamma", "0"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_plots_of_odd_cases(call, tmp_path, args):
    pytest.importorskip("matplotlib", reason="the plot needs the extra `plot`")
    code, _, err = call(*args, "--plot", tmp_path / "a.png")
    assert code == 0, err
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


# How numbers are written.


def test_sizes_and_times():
    assert [units.size(m) for m in (0, 1, 1023, 1024, 2**20 - 1, 2**20, 2**60)] == [
        "0",
        "1",
        "1023",
        "1K",
        "1M",
        "1M",
        "1024P",
    ]
    assert [units.time(s) for s in (1e-9, 1e-3, 0.9999999, 100.0)] == ["0.001 us", "1 ms", "1 s", "100 s"]


def test_a_ratio_is_never_rounded_to_the_bound():
    assert _times(Fraction(7, 4), Fraction(7, 4)) == "="
    assert _times(Fraction(100001, 100000), Fraction(1)) == ">1x"
    assert _times(Fraction(3), Fraction(7, 4)) == "1.71x"
    assert _times(Fraction(3), Fraction(0)) == "bound 0"
    assert _times(Fraction(3), None) == "?"


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((1, 1), (1, 1), "same"),
        ((1, 1), (2, 1), "always"),
        ((1, 1), (1, 2), "always"),
        ((2, 1), (1, 1), "never"),
        ((2, 2), (1, 1), "never"),
        ((5, 1), (1, 2), "above 4"),
        ((1, 2), (5, 1), "below 4"),
    ],
)
def test_where_one_is_faster(a, b, said):
    assert faster(Line(*map(Fraction, a)), Line(*map(Fraction, b))) == said
