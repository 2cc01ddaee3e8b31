"""Counterexamples word for word: the smallest n, the first chunk that goes wrong, and the transfers behind it."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from algocc.cli import main
from algocc.collective import all_gather, all_reduce, broadcast, gather
from algocc.decorator import require
from algocc.reference import interpret
from algocc.steps import Steps
from algocc.table import Schedule
from algocc.verifier import verify
from algocc.verifier.counterexample import Counterexample, smallest_counterexample


def shown(build: Callable[[int], Steps], n: int) -> str:
    """The smallest counterexample, with the lines of this file as @0 for the line of `def`, @1 for the next, …"""
    found = smallest_counterexample(lambda k: build(k).build(), n, seconds=60)
    first = build.__code__.co_firstlineno
    return re.sub(r"test_counterexample\.py:(\d+)", lambda m: f"@{int(m[1]) - first}", str(found))


def text(s: str) -> str:
    return dedent(s).strip()


def butterfly(n: int) -> Steps:
    """Recursive doubling without a fold: right for powers of two."""
    s = Steps(all_reduce(n))
    hop = 1
    while hop < n:
        with s.step():
            for rank in range(n):
                if rank ^ hop < n:
                    s.reduce(src=rank, dst=rank ^ hop, chunk=0)
        hop *= 2
    return s


def test_the_butterfly_for_six_ranks_fails_for_three() -> None:
    """Rank 2 is never heard of at rank 1: that something is missing shows in what there is."""
    assert shown(butterfly, 6) == text("""
        smallest counterexample: n=3; right for n=2
          step 1, rank 1: out[0] holds {0,1}, wanted {0,1,2} (@8)

          rank  step 0        step 1
          0     out[0]=in[0]  out[0]>1
          1     out[0]=in[0]  +out[0]<0

          step 0  r0.out[0] = r0.in[0]    holds {0}    (load)
          step 0  r1.out[0] = r1.in[0]    holds {1}    (load)
          step 1  r1.out[0] += r0.out[0]  holds {0,1}  (@8)  <- here
    """)
    assert shown(butterfly, 8) == "None"


def off_by_one(n: int) -> Steps:
    """A ring whose second half starts a chunk too early."""
    s = Steps(all_reduce(n, chunks=n))
    s.rule(lambda r, t, n: ((r + 1) % n, (r - t - 1) % n), steps=n - 1, action="reduce")
    s.rule(lambda r, t, n: ((r + 1) % n, (r - t - 1) % n), steps=n - 1)
    return s


def test_an_off_by_one_ring_overwrites_what_is_right() -> None:
    assert shown(off_by_one, 8) == text("""
        smallest counterexample: n=2
          step 2, rank 0: out[0] holds {1}, written over what was right by step 1, wanted {0,1} (@4)

          rank  step 0        step 2
          0     .             out[0]<1
          1     out[0]=in[0]  out[0]>0

          step 0  r1.out[0] = r1.in[0]   holds {1}  (load)
          step 2  r0.out[0] = r1.out[0]  holds {1}  (@4)  <- here
    """)


def dissemination(n: int) -> Steps:
    """Adds contributions twice unless n is a power of two."""
    s = Steps(all_reduce(n))
    s.rule(lambda r, t, n: ((r + 2**t) % n, 0), steps=(n - 1).bit_length(), action="reduce")
    return s


def test_a_contribution_added_twice_shows_both_ways_it_came() -> None:
    assert shown(dissemination, 11) == text("""
        smallest counterexample: n=3; right for n=2
          step 2, rank 0: out[0] holds {0,0,1,2}: rank 0 is added twice, at rank 0 out[0], wanted {0,1,2}; valid for idempotent operators (max, min, and, or) only (@3)

          rank  step 0        step 1              step 2
          0     out[0]=in[0]  out[0]>1 +out[0]<2  +out[0]<1
          1     out[0]=in[0]  +out[0]<0           out[0]>0
          2     out[0]=in[0]  out[0]>0            .

          step 0  r0.out[0] = r0.in[0]    holds {0}        (load)
          step 0  r1.out[0] = r1.in[0]    holds {1}        (load)
          step 0  r2.out[0] = r2.in[0]    holds {2}        (load)
          step 1  r1.out[0] += r0.out[0]  holds {0,1}      (@3)
          step 1  r0.out[0] += r2.out[0]  holds {0,2}      (@3)
          step 2  r0.out[0] += r1.out[0]  holds {0,0,1,2}  (@3)  <- here
    """)


def forgetful(n: int) -> Steps:
    """Forgets the last rank from four ranks on."""
    s = Steps(broadcast(n))
    for rank in range(1, n if n < 4 else n - 1):
        with s.step():
            s.copy(src=0, dst=rank, chunk=0)
    return s


def test_a_missing_transfer_has_no_chain() -> None:
    assert shown(forgetful, 9) == text("""
        smallest counterexample: n=4; right for n=2 and 3
          rank 3: out[0] was never written, wanted {0}
    """)


def crowded(n: int) -> Steps:
    """Every two ranks gather into one chunk."""
    s = Steps(gather(n), load=False)
    with s.step():
        for rank in range(n):
            s.copy(src=rank, dst=0, chunk=0, to=rank // 2 * 2 if n > 2 else rank, buffer="in", to_buffer="out")
    return s


def test_a_race_shows_both_writers() -> None:
    assert shown(crowded, 5) == text("""
        smallest counterexample: n=3; right for n=2
          step 0, rank 0: out[0] is written twice in one step, the second time from rank 1, wanted one writer, or reductions only (@5)

          rank  step 0
          0     out[0]=in[0] out[0]<1
          1     in[0]>0

          step 0  r0.out[0] = r0.in[0]  (@5)  <- here
          step 0  r0.out[0] = r1.in[0]  (@5)  <- here
    """)


def hasty(n: int) -> Steps:
    """A chain in one step: every rank passes on what it is about to get."""
    s = Steps(broadcast(n))
    with s.step():
        for rank in range(n - 1):
            s.copy(src=rank, dst=rank + 1, chunk=0)
    return s


def test_what_is_read_too_early_names_the_step_that_writes_it() -> None:
    assert shown(hasty, 7) == text("""
        smallest counterexample: n=3; right for n=2
          step 1, rank 1: out[0] is read by rank 2, but nothing was written there; the first to write it is step 1 (@5), wanted a write in a step before (@5)

          rank  step 1
          1     out[0]>2
          2     out[0]<1

          step 1  r2.out[0] = r1.out[0]  (@5)  <- here
    """)


def lonely(n: int) -> Steps:
    s = Steps(all_reduce(n))
    with s.step():
        s.send(rank=0, to=1, chunk=0)
    return s


def test_bad_form_shows_the_row() -> None:
    assert shown(lonely, 4) == text("""
        smallest counterexample: n=2
          step 1, rank 0: out[0] is sent to rank 1 without the matching receive, wanted one receive on rank 1 in the same step (@3)

          rank  step 1
          0     out[0]>1

          step 1  r0.out[0] is sent to r1  (@3)  <- here
    """)


def test_the_chain_is_all_that_the_bad_chunk_depends_on_and_nothing_else() -> None:
    """Without the rows that are not in it the bad chunk holds the same; without any one of those in it, it does not."""
    for build, n in ((butterfly, 6), (dissemination, 7), (off_by_one, 4)):
        found = smallest_counterexample(lambda k, build=build: build(k).build(), n)
        assert found is not None
        s = build(found.n).build()
        link = next(link for link in found.chain if link.culprit)
        bad = re.match(r"r(\d+)\.out\[(\d+)\]", link.what)
        assert bad
        place = int(bad[1]), 1, int(bad[2])
        inside = [(link.step, link.rank, link.peer) for link in found.chain]
        of_row = list(zip(s.step.tolist(), s.rank.tolist(), s.peer.tolist(), strict=True))
        kept = np.array([row in inside for row in of_row])
        whole = interpret(s.rows(s.step <= link.step))[place]
        assert interpret(s.rows(kept))[place] == whole
        for i in np.flatnonzero(kept).tolist():
            without = s.rows(kept & (np.arange(len(s)) != i))
            assert _held(without, place) != whole


def _held(s: Schedule, place: tuple[int, int, int]) -> object:
    try:
        return interpret(s)[place]
    except Exception as error:
        return str(error)


def test_n_that_an_algorithm_does_not_take_are_passed_over() -> None:
    def even(n: int) -> Schedule:
        require(n % 2 == 0, "n even")
        return dissemination(n).build()

    found = smallest_counterexample(even, 10)
    assert found is not None
    assert (found.n, found.smallest, found.tried) == (6, True, (2, 4))
    assert str(found).startswith("smallest counterexample: n=6; right for n=2 and 4\n")


def test_without_time_it_says_that_there_may_be_a_smaller_one() -> None:
    found = smallest_counterexample(lambda n: dissemination(n).build(), 6, seconds=-1)
    assert found is not None
    assert (found.n, found.smallest) == (6, False)
    assert str(found).startswith("counterexample for n=6; a smaller one may exist\n")


def test_for_max_it_may_be_another() -> None:
    assert smallest_counterexample(lambda n: dissemination(n).build(), 6, op="max", program=False) is None

    def partial(n: int) -> Schedule:
        s = Steps(all_reduce(n))
        s.rule(lambda r, t, n: ((r + 2**t) % n, 0), steps=(n - 1).bit_length() - (n > 4), action="reduce")
        return s.build()

    found = smallest_counterexample(partial, 7, op="max", program=False)
    assert found is not None and found.n == 5 and "<- here" in str(found)


def test_in_place_and_chunks_in_rows() -> None:
    """A row of several chunks shows only the one that matters."""

    def build(n: int) -> Schedule:
        s = Steps(all_gather(n, chunks=2))
        with s.step():
            for rank in range(n):
                for peer in range(n):
                    if rank != peer and (rank, peer) != (2, 1):
                        s.copy(src=rank, dst=peer, chunk=2 * rank, count=2)
                    elif rank != peer:
                        s.copy(src=rank, dst=peer, chunk=2 * rank - 2, to=2 * rank, count=2)
        return s.build()

    for in_place in (False, True):
        found = smallest_counterexample(build, 4, in_place=in_place)
        assert found is not None and found.n == 3
        if in_place:
            assert "out[2] is read by rank 1, but nothing was written there" in str(found.failure)
        assert all("[2]" in link.what or "[4]" in link.what for link in found.chain)


def test_what_is_right_has_none() -> None:
    assert smallest_counterexample(lambda n: butterfly(n).build(), 4) is None


BROKEN = '''
import algocc

def dissemination(n):
    s = algocc.Steps(algocc.all_reduce(n))
    s.rule(lambda r, t, n: ((r + 2**t) % n, 0), steps=(n - 1).bit_length(), action="reduce")
    return s
'''


def test_algocc_verify_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.replace("algocc.all_reduce", "algocc.collective.all_reduce").replace("import algocc\n", "import algocc\nimport algocc.collective\n"))
    assert main(["verify", f"{path}:dissemination", "-n", "6"]) == 1
    out = capsys.readouterr().out
    assert "\n\nsmallest counterexample: n=3; right for n=2\n  step 2, rank 0: out[0] holds {0,0,1,2}" in out
    assert "\n  rank  step 0        step 1              step 2\n" in out
    assert main(["verify", f"{path}:dissemination", "-n", "6", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == 6 and found["smallest_n"] == 3
    counterexample = found["counterexample"]
    assert counterexample["n"] == 3 and counterexample["tried"] == [2]
    assert counterexample["failure"]["step"] == 2
    assert counterexample["chain"][-1] == {
        "step": 2, "rank": 1, "peer": 0, "what": "r0.out[0] += r1.out[0]", "holds": "{0,0,1,2}",
        "source": "broken.py:7", "culprit": True,
    }  # fmt: skip
    assert main(["verify", "ring", "-n", "4", "--json"]) == 0
    right = json.loads(capsys.readouterr().out)
    assert right["smallest_n"] is None and right["counterexample"] is None


def test_a_counterexample_is_plain_data() -> None:
    found = smallest_counterexample(lambda n: dissemination(n).build(), 6)
    assert isinstance(found, Counterexample)
    assert json.loads(json.dumps(found.to_json()))["n"] == found.n == 3
    assert not verify(dissemination(found.n).build()).correct


DOC = Path(__file__).parents[2] / "docs" / "verification.md"


def test_the_examples_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of our own files are not compared."""

    def plain(output: str) -> str:
        return re.sub(r"(?<!broken)\.py:\d+", ".py:#", output).strip()

    blocks = re.findall(r"^```(\w+)\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(next(code for language, code in blocks if language == "python"))
    commands = 0
    for language, block in blocks:
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] if language == "console" else ():
            command, _, wanted = example.partition("\n")
            code = main(shlex.split(command)[1:])
            found = capsys.readouterr().out + (f"[exit {code}]\n" if code else "")
            assert plain(found) == plain(wanted), command
            commands += 1
    assert commands == 5
    session = "\n".join(block for language, block in blocks if language == "pycon")
    tests = doctest.DocTestParser().get_examples(session)
    namespace: dict[str, object] = {}
    for example in tests:
        exec(compile(example.source, "verification.md", "single"), namespace)
        assert plain(capsys.readouterr().out) == plain(example.want), example.source
    assert len(tests) > 8


def test_contributions_without_number() -> None:
    """Each of 60 steps doubles what the ranks hold, so that nobody can write it out."""
    s = Steps(all_reduce(2))
    for _ in range(60):
        with s.step():
            s.reduce(src=0, dst=1, chunk=0)
            s.reduce(src=1, dst=0, chunk=0)
    report = verify(s.build())
    assert report.failures[0].found.startswith(f"holds {{0×{2**59},1×{2**59}}}: rank 0 is added twice")
