"""Whatever is wrong with the input: one paragraph, the line where there is one, and the right exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algocc.cli import judge, source

HERE = Path(__file__).parent

UNUSABLE = {
    "verify rnig -n 4": "unknown schedule 'rnig'; did you mean ring? `algocc list` shows all; your own is "
    "file.py:function, or a table in file.json or file.txt",
    "verify neighbor_exchange_all_gather -n 3": "neighbor_exchange_all_gather: n=3: this algorithm takes n even, or 1",
    "verify ring": "ring: on how many ranks? Give -n, as in -n 8",
    "verify ring -n 0": "-n 0: the number of ranks is a whole number of 1 to 1048576",
    "verify ring -n -2": "-n -2: the number of ranks is a whole number of 1 to 1048576",
    "verify ring -n four": "-n four: wanted a number of ranks, as in 8; verify also takes 2..64 and 2,4,8",
    "verify ring -n 4.5": "-n 4.5: wanted a number of ranks, as in 8; verify also takes 2..64 and 2,4,8",
    "show ring -n 2..4": "-n 2..4: wanted a number of ranks, as in 8; verify also takes 2..64 and 2,4,8",
    "verify ring -n 64..2": "-n 64..2: a range goes up, as in 2..64",
    "verify ring -n 4,": "-n 4,: wanted numbers of ranks, as in 8, 2..64 or 2,4,8",
    "verify ring -n 4 -p root": "-p root: wanted key=value, as in root=2",
    "verify ring -n 4 -p root=2": "ring: unknown parameter 'root'; it takes: none",
    "verify binomial_broadcast -n 4 -p root=9": "binomial_broadcast: n=4: root=9: with n=4 a rank is one of 0..3",
    "verify ring -n 4 --op summ": "unknown operator 'summ'; did you mean sum?; known: sum, prod, avg, lxor, bxor, max, "
    "min, land, lor, band, bor",
    "verify ring -n 4 --lanes 0": "verify: Invalid value for '--lanes': 0 is not in the range x>=1. "
    "(`algocc verify --help` shows its options)",
    "verify nowhere.py:f -n 4": "nowhere.py: no such file",
    "verify nowhere.json": "nowhere.json: No such file or directory",
    "verify broken.py:nothnig -n 3": "broken.py: no function 'nothnig'; no schedule in it: decorate a function of n "
    "with @algocc.schedule",
    "verify broken.py:outside -n 3": "outside: n=3: broken.py:41: a transfer outside a step: write it inside "
    "`with s.step():`",
    "verify broken.py:fails -n 3": "{here}/broken.py:53: fails failed for n=3: AttributeError: 'Collective' object has no "
    "attribute 'nonsense'",
    "run ring -n 4 --dtype flaot32": "unknown dtype 'flaot32'; did you mean float32 or float64 or float16?; known: int8, "
    "int16, int32, int64, uint8, uint16, uint32, uint64, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, "
    "complex64, complex128, bool",
    "run ring -n 4 --op bor": "operator bor is not defined for dtype float32: bits of a float number have no meaning to "
    "combine; defined are sum, prod, min, max, avg, land, lor, lxor",
    "run ring -n 4 --size 64Q": "--size 64Q: wanted a number of bytes, as in 4096, 64K, 64M or 1.5G",
    "run ring -n 4 --size -1": "--size -1: wanted a number of bytes, as in 4096, 64K, 64M or 1.5G",
    "run ring -n 4 --size 8000P": "count=2251799813685248000: 1.8e+19 elements in all buffers are more than can be counted",
    "run ring -n 4 --size 3": "--size 3: all_reduce on 4 ranks of float32 moves multiples of 4 bytes; wanted 4 or more, or 0",
    "verify ring -n 4 -p n=3": "-p n=3: the number of ranks is no parameter: give it as -n 3",
    "verify torus -n 4 -p dims=2": "torus: dims=2: wanted a list of whole numbers, as in dims=[2,4]",
    "list broadcast --collective reduce": "list broadcast --collective reduce: name one collective",
    "run ring -n 4 --iters 0": "run: Invalid value for '--iters': 0 is not in the range x>=1. "
    "(`algocc run --help` shows its options)",
    "bound AllRedcue -n 3": "unknown collective 'AllRedcue'; did you mean all_reduce or reduce?; known: all_gather, "
    "all_reduce, all_to_all, all_to_all_v, barrier, broadcast, exscan, gather, reduce, reduce_scatter, scan, scatter, "
    "send_recv",
    "bound AllReduce": "bound all_reduce: on how many ranks? Give -n, as in -n 8",
    "bound AllReduce -n 4 --ports 0": "bound: ports=0, wanted a whole number of 1 or more",
    "bound AllToAllV -n 2": "bound of all_to_all_v: no counts; give 2 rows of 2, what rank i holds for rank j",
    "bound AllToAllV -n 2 --counts [[1,": "--counts: not JSON: Expecting value: line 1 column 5 (char 4); wanted rows, as "
    "in [[0,1],[2,0]]",
    "show ring -n 2 --diagram --program": "show: choose one of --diagram, --program and --format",
    "show ring -n 2 -o /nowhere/ring.txt": "/nowhere/ring.txt: No such file or directory",
    "list --collective AllRedcue": "unknown collective 'AllRedcue'; did you mean all_reduce or reduce?; known: all_gather, "
    "all_reduce, all_to_all, all_to_all_v, barrier, broadcast, exscan, gather, reduce, reduce_scatter, scan, scatter, "
    "send_recv",
}


@pytest.mark.parametrize("line", UNUSABLE)
def test_input_that_cannot_be_used(algocc: Callable[[str], Any], line: str) -> None:
    wanted = UNUSABLE[line].replace("{here}", str(HERE))
    done = algocc(line)
    assert (done.code, done.out, done.err) == (2, "", f"algocc: {wanted}\n")
    again = algocc(line + " --json") if not line.startswith("show") else None
    if again:
        assert again.json == {"error": wanted, "exit_code": 2}
        assert (again.code, again.err) == (2, done.err)


CLICK = {
    "verfy ring": "unknown command 'verfy'; did you mean verify",
    "verify": "verify: Missing argument 'SCHEDULE'.",
    "verify ring -n 4 --jsn": "verify: No such option",
    "verify broken.py:nothing -n 3": "broken.py:7) returned NoneType, wanted Steps or a Schedule: end the function with",
    "verify broken.py:halves -n 3": "broken.py:48: ranks, chunks and counts are whole numbers or arrays of one shape",
    "verify broken.py:bad_rule -n 3": "broken.py:58: a rule returns (peer, chunk), a Transfer of whole numbers or a list",
    "run ring -n 4 --size 1P": "float32 takes 16.0 PiB, there are",
}


@pytest.mark.parametrize("line", CLICK)
def test_messages_that_vary(algocc: Callable[[str], Any], line: str) -> None:
    """They hold a path, an amount of memory, or the words of a version of click."""
    done = algocc(line)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("algocc: ") and done.err.count("\n") == 1
    assert CLICK[line] in done.err


WRONG = {
    "far_rank": "step 1, rank 0: peer 3, wanted one of 0..2 (broken.py:14)",
    "far_chunk": "step 1, rank 0: out[3] names a chunk that does not exist, wanted chunks within 0..0 of that buffer on "
    "rank 0 (broken.py:21)",
    "lonely": "step 1, rank 0: out[0] is sent to rank 1 without the matching receive, wanted one receive on rank 1 in the "
    "same step (broken.py:28)",
    "unwritten": "step 0, rank 0: out[0] is read by rank 1, but nothing was written there, wanted a write in a step before "
    "(broken.py:35)",
    "doubling": "step 2, rank 0: out[0] holds {0,0,1,2}: rank 0 is added twice, at rank 0 out[0], wanted {0,1,2}; valid "
    "for idempotent operators (max, min, and, or) only (broken.py:66)",
}


@pytest.mark.parametrize("name", WRONG)
def test_claims_that_are_false(algocc: Callable[[str], Any], name: str) -> None:
    done = algocc(f"verify broken.py:{name} -n 3")
    assert done.code == 1
    lines = done.out.split("\n")
    assert lines[0] == f"{name}: all_reduce on 3 ranks, 1 chunk, out of place"
    assert lines[1].startswith("  correct     NO")
    assert lines[2] == f"    {WRONG[name]}"


@pytest.mark.parametrize("body", ["import nosuch", "def f(:", "raise SystemExit(0)"])
def test_a_file_that_does_not_import(algocc: Callable[[str], Any], tmp_path: Any, body: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(f"# a comment\n{body}\n")
    done = algocc(f"verify {path}:f -n 3")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"algocc: {path}:2: the file does not import: ")


def test_out_of_memory(algocc: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that does not fit is an error, not the end of the machine; what fits is verified as before."""
    monkeypatch.setattr(source, "available", lambda: 400 << 20)
    done = algocc("verify ring -n 5000")
    assert done.code == 2 and done.err.startswith("algocc: not enough memory: ")
    assert algocc("verify ring -n 4").code == 0


def test_our_own_bugs_say_so(algocc: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no\nluck")

    monkeypatch.setattr(judge, "verify", broken)
    done = algocc("verify ring -n 4")
    assert done.code == 70
    assert done.err == "algocc: this is a bug in algocc: ValueError: no luck (set ALGOCC_DEBUG=1 to see where)\n"
    assert json.loads(algocc("verify ring -n 4 --json").out)["exit_code"] == 70
    monkeypatch.setenv("ALGOCC_DEBUG", "1")
    with pytest.raises(ValueError, match="luck"):
        algocc("verify ring -n 4")
