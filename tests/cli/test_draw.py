"""`algocc draw`: every kind of subject, what it writes and says, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")


@pytest.mark.parametrize("name, start", [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG"), ("a.html", b"<!DOCTYPE html>")])
def test_it_writes_a_file_and_is_silent(algocc, tmp_path: Path, name: str, start: bytes) -> None:
    done = algocc(f"draw binomial_broadcast -n 3 -p root=1 -o {tmp_path / name}")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_what_is_wrong_is_drawn_and_said(algocc, tmp_path: Path) -> None:
    done = algocc(f"draw broken.py:doubling -n 3 -o {tmp_path / 'a.html'}")
    assert done.code == 0 and done.out == ""
    assert f"algocc: {tmp_path / 'a.html'}: wrong: step 2, rank 0: out[0] holds {{0,0,1,2}}" in done.err
    assert 'class="verdict wrong"' in (tmp_path / "a.html").read_text()
    done = algocc(f"draw broken.py:doubling -n 3 --op max -o {tmp_path / 'a.html'}")
    assert "wrong" not in done.err and 'class="verdict right"' in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("slip", ["lonely", "unwritten"])
def test_other_wrong_ones_are_drawn_too(algocc, tmp_path: Path, slip: str) -> None:
    done = algocc(f"draw broken.py:{slip} -n 3 -o {tmp_path / 'a.svg'}")
    assert done.code == 0 and "wrong: step " in done.err
    assert b"WRONG" in (tmp_path / "a.svg").read_bytes()


def test_files_of_ours_and_of_other_tools(algocc, tmp_path: Path) -> None:
    algocc(f"show ring -n 2 --format text -o {tmp_path / 'two.txt'}")
    algocc(f"export ring -n 2 --to msccl-xml -o {tmp_path / 'two.xml'}")
    for file in ("two.txt", "two.xml"):
        done = algocc(f"draw {tmp_path / file} --in-place -o {tmp_path / 'a.html'}")
        assert (done.code, done.err) == (0, "")
        assert "all_reduce n=2" in (tmp_path / "a.html").read_text()


def test_a_part_of_it(algocc, tmp_path: Path) -> None:
    done = algocc(f"draw ring -n 4 --step 1..2 --chunk 0 --chunk 3 -o {tmp_path / 'a.svg'}")
    assert done.code == 0
    assert "of steps 0..6, only 1..2 are shown; --step chooses others" in done.err
    assert "only transfers into chunk 0, 3 are shown" in done.err


@pytest.mark.parametrize(
    "line, said",
    [
        ("ring -n 4 -o a.gif", "-o a.gif: the name ends in .gif, wanted one of .svg, .html, .png, .pdf"),
        ("ring -n 4 -o picture", "-o picture: the name ends in nothing, wanted one of .svg"),
        ("ring -n 4 -o /no/such/a.svg", "-o /no/such/a.svg: No such file or directory"),
        ("ring -n 4", "Missing option '-o'"),
        ("ring -n 65 -o a.svg", "ring: 65 ranks: a picture shows at most 64; draw it for a smaller n"),
        ("ring -n 4 --step 9 -o a.svg", "--step 9..9: ring has steps 0..6"),
        ("ring -n 4 --step x -o a.svg", "--step x: wanted a step or a range, as in 3 or 2..5"),
        ("ring -n 4 --chunk 4 -o a.svg", "--chunk 4: ring writes to no such chunk; to 0, 1, 2, 3"),
        ("rign -n 4 -o a.svg", "unknown schedule 'rign'; did you mean ring?"),
        ("ring -n 4 --op summ -o a.svg", "unknown operator 'summ'; did you mean sum?"),
    ],
)
def test_what_it_refuses(algocc, line: str, said: str) -> None:
    done = algocc(f"draw {line}")
    assert done.code == 2 and said in done.err


def test_no_matplotlib_names_the_extra(algocc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = algocc("draw ring -n 4 -o a.svg")
    assert done.code == 2 and "needs matplotlib, which is not installed: pip install 'algocc[plot]'" in done.err
