"""The independent checker: it confirms what is true, and there is nothing in a certificate that can be changed
without its noticing, unless what is then said is as true.
"""

from __future__ import annotations

import ast
import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc import bounds
from algocc.catalog import build
from algocc.certificate import certify, describe
from algocc.collective import Buffer, Collective, collective
from algocc.proofs import check
from algocc.table import COLUMNS, Action, Schedule
from algocc.testing import arbitrary_schedules, mutated, random_correct, schedules
from algocc.verifier import verify

CHECKER = Path(check.__file__).resolve()
Json = Any
LABELS = (("schedule", "name"), ("collective", "name"))
"""Where any text will do; but a name that is known must be true."""
OTHER_TRUTHS = {"schedule.columns", "bounds.instance", "bounds.theorem", "collective.inputs", "collective.name"}
"""Where another value can be as true: a schedule that takes the same data from elsewhere, combines it in another
order or by way of another place; a bound of another rank, or by another theorem; sizes in AllToAllV, which are for the
user to say; AllToAll is an AllToAllV. Whatever is accepted there is confirmed by the verifier. Everything else in
a certificate has one value only.
"""

CASES: dict[str, Callable[[], Schedule]] = {
    "all_reduce": lambda: build("ring", 3),
    "all_reduce_in_rank_order": lambda: build("recursive_doubling", 4),
    "reduce_scatter": lambda: build("ring_reduce_scatter", 3),
    "all_gather": lambda: build("circulant_all_gather", 3),
    "broadcast": lambda: build("chain_broadcast", 3),
    "reduce": lambda: build("binomial_reduce", 4),
    "barrier": lambda: build("dissemination_barrier", 3),
    "all_to_all": lambda: build("bruck_all_to_all", 3),
    "exscan": lambda: build("log_step_exscan", 4),
    "send_recv": lambda: build("send_recv", 3),
    **{
        name: lambda name=name: random_correct(random.Random(7), collective(name, 3, chunks=2))  # type: ignore[misc]
        for name in ("scatter", "gather", "scan")
    },
    "all_to_all_v": lambda: random_correct(
        random.Random(8), collective("all_to_all_v", 3, chunks=2, counts=[[0, 2, 1], [1, 0, 3], [2, 2, 5]])
    ),
}


@cache
def text(name: str, in_place: bool = False) -> str:
    return json.dumps(certify(CASES[name](), in_place=in_place))


def certificate(name: str, in_place: bool = False) -> Json:
    return json.loads(text(name, in_place))


def code(value: Json) -> int:
    """The exit code, without the process."""
    try:
        verdicts = check.check(value if isinstance(value, str) else json.dumps(value))
    except ValueError:
        return 2
    return 0 if all(ok is True for _, ok, _ in verdicts) else 1


MODES = [(name, False) for name in CASES] + [("all_reduce", True), ("reduce_scatter", True), ("all_gather", True)]
modes = pytest.mark.parametrize(("name", "in_place"), MODES)


@modes
def test_what_is_true_is_confirmed(name: str, in_place: bool) -> None:
    verdicts = check.check(text(name, in_place))
    assert [v for v in verdicts if v[1] is not True] == []
    assert {claim for claim, _, _ in verdicts} >= {"collective", "schedule", *certificate(name, in_place)["claims"]}


# Nothing can be changed.


def leaves(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every number, text, flag and null."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def other_values(value: Json) -> list[Json]:
    """What to put in the place of a leaf."""
    if isinstance(value, bool):
        return [not value, None, int(value)]
    if isinstance(value, int):
        return [value + 1, value - 1, value + 2, 0 if value else 7, None, str(value), float(value), value > 0]
    if value is None:
        return [0, 1, {}]
    try:
        return [str(Fraction(value) + Fraction(1, 2)), str(Fraction(value) / 2), "0", f"{value}/1", f"0{value}", None]
    except ValueError:
        known = [*check.THEOREMS, *bounds.COLLECTIVES, "in place", "out of place"]
        return ["", value + "x", value.upper(), *(word for word in known if word != value), None]


def changed(value: Json, path: tuple[Any, ...], new: Json) -> Json:
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return value


def kind(path: tuple[Any, ...]) -> str:
    """The part of a certificate that a path leads to."""
    part = path[2] if path[0] == "bounds" else path[1]
    return f"{path[0]}.{part}"


@modes
def test_no_leaf_can_be_changed(name: str, in_place: bool) -> None:
    """Each entry of the file, to several other values: it is rejected, or what is said is true."""
    original = certificate(name, in_place)
    accepted = 0  # labels aside
    for path in leaves(original):
        at = original
        for key in path:
            at = at[key]
        for new in other_values(at):
            if type(new) is type(at) and new == at:
                continue
            value = changed(original, path, new)
            label = path in LABELS and type(new) is str and new not in bounds.COLLECTIVES
            if label or code(value):
                assert not label or code(value) == 0
                continue
            assert path in LABELS or kind(path) in OTHER_TRUTHS, (path, new)
            assert is_true(original, value), (path, at, new)
            accepted += 1
    assert accepted < 60


@pytest.mark.parametrize("name", ["ring", "two_tree_reduce", "pairwise_all_to_all", "recursive_halving_reduce_scatter"])
def test_larger_ones_by_samples(name: str) -> None:
    original = certify(build(name, 8))
    rng = random.Random(name)
    for path in rng.sample(list(leaves(original)), 150):
        at = original
        for key in path:
            at = at[key]
        new = rng.choice([v for v in other_values(at) if type(v) is not type(at) or v != at])
        value = changed(original, path, new)
        assert code(value) or is_true(original, value), (path, at, new)


def is_true(original: Json, value: Json) -> bool:
    """Whether a certificate that was changed is true all the same, by what algocc computes from what it says."""
    s, in_place = schedule_of(value)
    report = verify(s, in_place=in_place, program=False)
    found = describe(s, report)
    optimal = ("bandwidth_optimal", "step_optimal")
    same = all(found["claims"][key] == said for key, said in value["claims"].items() if key not in optimal)
    least = {"steps": "0", "sent_max": "0", "received_max": "0"}
    name = next(c["collective"]["name"] for c in (value, original) if c["collective"]["name"] in bounds.COLLECTIVES)
    b = bounds.bound(name, s.n, ports=max(1, report.ports), counts=counts_of(name, value["collective"]))
    truth = {"steps": b.rounds, "sent_max": b.sent, "received_max": b.received, "reduced_max": b.reduced}
    for measure, said in value["bounds"].items():
        if said is not None:
            same &= Fraction(said["at_least"]) <= truth[measure]
            least[measure] = said["at_least"]
    claims = {key: Fraction(said) for key, said in value["claims"].items() if key in least}
    shares = [max(Fraction(x[m]) for m in ("sent_max", "received_max")) for x in (claims, least)]
    said = [value["claims"][key] for key in optimal]
    return report.correct and same and said == [shares[0] == shares[1], claims["steps"] == Fraction(least["steps"])]


def counts_of(name: str, c: Json) -> list[list[int]] | None:
    """What rank i holds for rank j, where the bounds depend on it."""
    if name == "all_to_all_v":
        return list(c["inputs"])
    if name != "send_recv":
        return None
    counts = np.zeros((len(c["inputs"]),) * 2, np.int64)
    for rank, wants in enumerate(c["outputs"]):
        for s in wants:
            counts[c["sets"][s][0][0], rank] += 1
    return counts.tolist()  # type: ignore[no-any-return]


def schedule_of(value: Json) -> tuple[Schedule, bool]:
    """The schedule in a certificate, for a collective that is spelled out, and whether it is in place."""
    c, columns = value["collective"], value["schedule"]["columns"]
    inputs = np.array([len(sizes) for sizes in c["inputs"]])
    start = np.concatenate([[0], np.cumsum(inputs)])
    spelled = Collective(
        name=c["name"] + "'",
        n=len(inputs),
        inputs=inputs,
        outputs=np.array([len(wants) for wants in c["outputs"]]),
        want=np.array([s for wants in c["outputs"] for s in wants], np.int64),
        set_start=np.concatenate([[0], np.cumsum([len(items) for items in c["sets"]])]),
        set_items=np.array([start[r] + b for items in c["sets"] for r, b in items], np.int64),
        alias=np.array(c["alias"], np.int64).reshape(-1, 3),
        sizes=np.array([size for sizes in c["inputs"] for size in sizes], np.int64),
        idempotent=c["idempotent"],
        chunks=c["chunks"],
    )
    table = {key: np.array(columns[key], np.int64) for key in COLUMNS if key != "origin"}
    s = Schedule("again", spelled, value["claims"]["scratch"], **table, origin=np.full(len(columns["step"]), -1))
    return s, value["claims"]["mode"] == "in place"


@modes
def test_no_key_can_be_left_out_renamed_or_added(name: str, in_place: bool) -> None:
    original = certificate(name, in_place)

    def objects(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        if isinstance(value, dict):
            yield path
            for key, item in value.items():
                yield from objects(item, (*path, key))

    for path in objects(original):
        at = original
        for key in path:
            at = at[key]
        for key in at:
            without = {k: v for k, v in at.items() if k != key}
            for new in (without, without | {key + "_": at[key]}, at | {"more": 0}):
                assert code(changed({"": original}, ("", *path), new)[""]) != 0, (path, key)
    twice = json.dumps(original).replace('"version": 1', '"version": 1, "version": 1')
    assert code(twice) == 2


@modes
def test_no_row_can_be_dropped_or_added_or_moved(name: str, in_place: bool) -> None:
    original = certificate(name, in_place)
    columns = original["schedule"]["columns"]
    rows = list(zip(*columns.values(), strict=True))
    for i, row in enumerate(rows):
        for other in (rows[:i] + rows[i + 1 :], rows[: i + 1] + [row] + rows[i + 1 :], [*rows[:i], *rows[i + 1 :], row]):
            table = dict(zip(columns, map(list, zip(*other, strict=True)), strict=True)) if other else columns
            value = changed(original, ("schedule", "columns"), table)
            if other != rows:
                assert code(value) or is_true(original, value), (i, row)


def test_claims_that_are_honest_but_of_another_schedule() -> None:
    """A broken schedule with the claims, and the invariant or none, of the right one."""
    rng, rejected = random.Random(5), 0
    for name in CASES:
        s = CASES[name]()
        original = certify(s)
        for _ in range(40):
            try:
                broken = mutated(rng, s).canonical()
            except Exception:
                continue  # a send without its receive can't be written down
            columns = {k: v.tolist() for k, v in broken.columns.items() if k != "origin"}
            steps = {step: i for i, step in enumerate(sorted(set(columns["step"])))}
            columns["step"] = [steps[step] for step in columns["step"]]
            for invariant in (original["invariant"], None):
                value = original | {"schedule": {"name": s.name, "columns": columns}, "invariant": invariant}
                right = verify(broken, program=False).correct
                rejected += not right
                assert code(value) or is_true(original, value)
    assert rejected > 300


# The same verdict as the verifier.


def agrees(s: Schedule, in_place: bool) -> None:
    # A certificate claims the scratch that is used, whatever the schedule said it has.
    used = [(s.chunk + s.count)[s.buffer == Buffer.SCRATCH], (s.peer_chunk + s.count)[s.peer_buffer == Buffer.SCRATCH]]
    s = replace(s, scratch=max(s.scratch, int(np.concatenate(used).max(initial=0))))
    report = verify(s, in_place=in_place, program=False)
    if s.is_matched or report.correct or report.failures[0].level != "form":
        assert (code(describe(s, replace(report, correct=True))) == 0) == report.correct, report.failures


@settings(max_examples=60)
@given(schedules(), st.booleans())
def test_correct_ones_of_any_collective(s: Schedule, in_place: bool) -> None:
    agrees(s, in_place and len(s.collective.alias) > 0)


@settings(max_examples=60)
@given(schedules(in_place=True))
def test_correct_ones_in_place(s: Schedule) -> None:
    agrees(s, len(s.collective.alias) > 0)


@settings(max_examples=150)
@given(arbitrary_schedules(), st.booleans())
def test_arbitrary_ones(s: Schedule, in_place: bool) -> None:
    agrees(s, in_place and len(s.collective.alias) > 0)


@settings(max_examples=100)
@given(schedules(two_sided=False), st.integers(0, 2**32 - 1), st.booleans())
def test_broken_ones(s: Schedule, seed: int, in_place: bool) -> None:
    broken = mutated(random.Random(seed), s)
    if not len(broken) or broken.action.max() <= Action.PREREDUCE:
        agrees(broken, in_place and len(s.collective.alias) > 0)


# A bound is had by what is demanded, not by name.


def test_a_collective_that_is_not_what_its_name_says() -> None:
    value = certificate("reduce")
    value["collective"]["name"] = "all_reduce"
    assert [claim for claim, ok, _ in check.check(json.dumps(value)) if ok is not True] == ["collective"]


def test_a_bound_of_a_collective_that_demands_less() -> None:
    """Reduce is claimed to be AllReduce, in name and bound: both are FALSE."""
    value = certificate("reduce")
    value["collective"]["name"] = "all_reduce"
    value["bounds"]["sent_max"] = {
        "at_least": "3/2",
        "theorem": "VolumeBounds.all_reduce_volume",
        "instance": {"ranks": 4, "chunks": value["collective"]["chunks"]},
    }
    false = {claim for claim, ok, _ in check.check(json.dumps(value)) if ok is False}
    assert {"collective", "bound on sent_max"} <= false


@pytest.mark.parametrize("theorem", check.THEOREMS)
def test_no_theorem_gives_more_than_is_true(theorem: str) -> None:
    """Whatever instance a theorem is given of, no collective gets a bound that a schedule of it stays below."""
    for name in CASES:
        value = certificate(name)
        c = check.Collective(value["collective"])
        c.ports = value["claims"]["ports"] or 1
        for rank in (None, *range(c.n)):
            for ranks in (None, *range(c.n + 2)):
                for measure, least in check.THEOREMS[theorem](c, {"rank": rank, "ranks": ranks})[1].items():
                    assert least <= Fraction(value["claims"][measure])


# Input that can't be used, or means harm.

HOSTILE: dict[str, Json] = {
    "nothing": "",
    "no JSON": "{",
    "not UTF-8": b"\xff\xfe",
    "a number": "7",
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 50_000,
    "NaN": '{"format": NaN}',
    "long number": '{"format": ' + "9" * 10_000 + "}",
    "another format": '{"format": "algocc-schedule", "version": 1}',
    "another version": json.dumps(certificate("all_reduce") | {"version": 2}),
    "a true version": json.dumps(certificate("all_reduce") | {"version": True}),
    "a surrogate": json.dumps(certificate("all_reduce") | {"format": "\ud800"}),
    "many chunks": json.dumps(changed(certificate("all_reduce"), ("collective", "chunks"), 2**52)),
    "many moves": json.dumps(changed(certificate("all_reduce"), ("schedule", "columns", "count", 0), 2**52)),
    "a late step": json.dumps(changed(certificate("all_reduce"), ("schedule", "columns", "step", 0), 2**52)),
    "a far rank": json.dumps(changed(certificate("all_reduce"), ("schedule", "columns", "rank", 0), 2**52)),
    "a far chunk": json.dumps(changed(certificate("all_reduce"), ("schedule", "columns", "chunk", 0), 2**52)),
    "a far theorem": json.dumps(changed(certificate("all_reduce"), ("bounds", "steps", "instance", "rank"), 2**52)),
    "many ranks": json.dumps(changed(certificate("reduce"), ("bounds", "reduced_max", "instance", "ranks"), 2**52)),
    "a key to obey": json.dumps(changed(certificate("all_reduce"), ("claims", "\x1b[2J\n"), 1)),
    "text to obey": json.dumps(changed(certificate("all_reduce"), ("claims", "mode"), "\x1b[2J\n" * 99)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    content = HOSTILE[what]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert check.main([str(path)]) in (1, 2)
    out, err = capsys.readouterr()
    assert "Traceback" not in err and "\x1b" not in out + err and len(err) < 1000


def doubling(steps: int) -> Json:
    """A Barrier of one rank in which what a place holds doubles in every step."""
    s = random_correct(random.Random(1), collective("barrier", 1))
    value = describe(s, verify(s, program=False))
    rows = [(0, 0, 0, 0, 0, 0, 1, 0, 1)] + [(i + 1, 1, 0, 0, 1, 0, 1, 0, 1) for i in range(steps)]
    value["schedule"]["columns"] = dict(zip(check.COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    value["invariant"] = None
    value["claims"] |= {"needs_idempotent": True, "reduced_max": str(steps), "scratch": 0}
    return value


def test_values_that_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MOST_VISITS", 1 << 17)
    assert code(doubling(5)) == 0
    assert code(doubling(60)) == 2


def test_a_collective_that_asks_for_too_much() -> None:
    """Many outputs that all want one large set: a small file, and a great deal to look at."""
    value = certificate("all_reduce")
    value["collective"] |= {
        "name": "mine",
        "chunks": 1,
        "inputs": [[1] * 3000],
        "outputs": [[0] * 100_000],
        "sets": [[[0, b] for b in range(3000)]],
        "alias": [],
    }
    assert code(value) in (1, 2)


@pytest.mark.parametrize("path", ["/dev/zero", "/", "missing.json", "\0"])
def test_files_that_are_none(path: str) -> None:
    assert check.main([path]) == 2


def test_arguments() -> None:
    assert check.main([]) == check.main(["a", "b"]) == 2


# It stands alone.


def test_it_imports_the_standard_library_only() -> None:
    imported = set()
    for node in ast.walk(ast.parse(CHECKER.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
            assert node.level == 0
    assert imported <= sys.stdlib_module_names
    assert len(CHECKER.read_text().splitlines()) < 400


def run_alone(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The checker as a file of its own, in a folder without algocc."""
    alone = folder / "check.py"
    alone.write_bytes(CHECKER.read_bytes())
    command = [sys.executable, "-I", str(alone), str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_it_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text("all_reduce"))
    done = run_alone(path, tmp_path)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.splitlines()[-1] == "verdict: all 19 claims hold"
    assert "trusted: the statements of the theorems" in done.stdout
    path.write_text(json.dumps(changed(certificate("all_reduce"), ("claims", "sent_max"), "1")))
    done = run_alone(path, tmp_path)
    assert done.returncode == 1
    assert "FALSE sent_max               1, found 4/3" in done.stdout
    assert done.stdout.splitlines()[-1] == "verdict: 1 of 19 claims do not hold"
    path.write_text("{}")
    done = run_alone(path, tmp_path)
    assert done.returncode == 2 and "can't be used: not a certificate" in done.stderr and not done.stdout
