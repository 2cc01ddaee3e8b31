"""Certificates say what the verifier says, and the commands that write and check them."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from algocc.catalog import algorithms, build
from algocc.certificate import MEASURES, certify, dumps
from algocc.cli import main
from algocc.collective import COLLECTIVES, collective
from algocc.errors import ScheduleError, UsageError
from algocc.proofs import check
from algocc.table import Schedule
from algocc.testing import random_correct
from algocc.verifier import verify

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "certificate-format.md"


def confirmed(certificate: dict[str, Any]) -> bool:
    return all(ok is True for _, ok, _ in check.check(dumps(certificate)))


def has_bounds_of_report(s: Schedule, certificate: dict[str, Any]) -> bool:
    b = verify(s, program=False).bound
    assert b is not None
    said = [Fraction(at["at_least"]) if at else 0 for at in map(certificate["bounds"].get, MEASURES)]
    return said == [b.rounds, b.sent, b.received, b.reduced]


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_every_algorithm_of_the_catalogue_is_certified(name: str) -> None:
    """In place and out of place; its bounds, derived by theorems from what is demanded, are those of `bounds`."""
    made = 0
    for n in (1, 2, 3, 4, 6, 8, 9, 16):
        try:
            s = build(name, n)
        except UsageError:
            continue
        certificate = certify(s)
        made += 1
        assert confirmed(certificate) and has_bounds_of_report(s, certificate)
        if len(s.collective.alias) and verify(s, in_place=True, program=False).correct:
            assert confirmed(certify(s, in_place=True))
    assert made


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_collective_on_every_number_of_ranks_with_any_parameters(name: str) -> None:
    rng = random.Random(name)
    for n in range(1, 12):
        params: dict[str, Any] = {}
        if name in ("broadcast", "reduce", "scatter", "gather"):
            params["root"] = rng.randrange(n)
        if name == "all_to_all_v":
            params["counts"] = [[rng.randint(0, 4) for _ in range(n)] for _ in range(n)]
        if name == "send_recv":
            params["pairs"] = [(rng.randrange(n), rng.randrange(n)) for _ in range(n)]
        s = random_correct(rng, collective(name, n, chunks=rng.randint(1, 3), **params))
        certificate = certify(s)
        assert confirmed(certificate) and has_bounds_of_report(s, certificate)
        assert certificate["collective"]["name"] == name


def test_claims_are_those_of_the_report() -> None:
    s = build("rabenseifner", 8)
    report = verify(s, program=False).to_json()
    claims = certify(s)["claims"]
    renamed = {"mode", "scratch"}
    assert {key: claims[key] for key in claims.keys() - renamed} == {key: report[key] for key in claims.keys() - renamed}


def test_a_large_one_has_no_invariant() -> None:
    """Its values would be longer than the schedule; the checker replays it all the same."""
    certificate = certify(build("ring", 130))
    assert certificate["invariant"] is None and confirmed(certificate)


def test_what_is_wrong_is_not_certified() -> None:
    s = build("ring", 4)
    with pytest.raises(ScheduleError, match="ring is wrong, so there is nothing to certify: step 2, rank"):
        certify(s.rows(s.step < 4))
    with pytest.raises(UsageError, match="no in-place form"):
        certify(build("send_recv", 4), in_place=True)


def test_the_page_shows_a_certificate_and_names_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    example = re.findall("```json\n(.*?)```", page, re.DOTALL)[0]
    assert example == dumps(certify(build("recursive_doubling", 2)))
    assert all(ok is True for _, ok, _ in check.check(example))
    value = json.loads(example)
    for part in ("collective", "claims"):
        for key in value[part]:
            assert f"`{key}`" in page
    for theorem in check.THEOREMS:
        assert re.search(rf"\b{theorem.partition('.')[2]}`", page)


# Commands.


def test_certify_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ring.json"
    assert main(["certify", "ring", "-n", "8", "--in-place", "-o", str(path)]) == 0
    assert capsys.readouterr().out.endswith("ring on 8 ranks, in place: correct, 14 steps, sends 7/4, bandwidth optimal\n")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.endswith("verdict: all 19 claims hold\n")
    path.write_text(path.read_text().replace('"sent_max": "7/4"', '"sent_max": "6/4"'))
    assert main(["check", str(path)]) == 2
    assert '$.claims.sent_max is 6/4, wanted "p/q" in lowest terms' in capsys.readouterr().err
    path.write_text(path.read_text().replace('"sent_max": "6/4"', '"sent_max": "3/2"'))
    assert main(["check", str(path)]) == 1
    assert "FALSE sent_max               3/2, found 7/4" in capsys.readouterr().out


def test_certify_takes_parameters(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    assert main(["certify", "chain_broadcast", "-n", "4", "-p", "root=2", "-o", str(path)]) == 0
    assert [len(sizes) for sizes in json.loads(path.read_text())["collective"]["inputs"]] == [0, 0, 1, 0]
    assert main(["check", str(path)]) == 0


def test_certify_writes_nothing_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, path = tmp_path / "half.txt", tmp_path / "c.json"
    table.write_text("schedule half\ncollective all_reduce n=2\nload\nstep\n  0: send out[0] to 1\n  1: reduce out[0] from 0\n")
    assert main(["certify", str(table), "-o", str(path)]) == 1
    assert "half is wrong" in capsys.readouterr().err and not path.exists()
    assert main(["certify", "ring", "-n", "4", "-o", str(tmp_path / "no" / "folder")]) == 2
    assert main(["check", str(path)]) == 2
