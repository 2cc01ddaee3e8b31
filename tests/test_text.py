"""Files: both forms round trip for any schedule, errors say where, and nothing a file holds brings the reader down."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc import text
from algocc.collective import COLLECTIVES, all_reduce, all_to_all_v, barrier, broadcast, send_recv
from algocc.collective import collective as named
from algocc.errors import ScheduleError, UsageError
from algocc.steps import Steps
from algocc.table import COLUMNS, Schedule, form_failures, layout
from algocc.testing import arbitrary_schedules, mutated, schedules
from algocc.verifier.dataflow import judge, trace

DOCS = Path(__file__).parents[1] / "docs" / "schedule-format.md"
few = settings(max_examples=150, deadline=None)


def exchange(chunks: int = 2) -> Schedule:
    s = Steps(all_reduce(2, chunks=chunks), name="exchange")
    with s.step():
        s.reduce(src=[0, 1], dst=[1, 0], chunk=0, count=chunks)
    return s.build()


def without_lines(s: Schedule) -> Schedule:
    return Schedule(s.name, s.collective, s.scratch, **{**s.columns, "origin": np.full(len(s), -1)})


def is_correct(s: Schedule) -> bool:
    if form_failures(s):
        return False
    places = layout(s := s.matched())
    t = trace(s, places)
    return not len(t.trouble) and not len(judge(s, places, t).wrong)


# Round trips.


@few
@given(st.one_of(schedules(), arbitrary_schedules()))
def test_json_is_lossless(s: Schedule) -> None:
    back = text.loads(text.dumps(s))
    assert back == s
    assert back.origins == s.origins
    assert all(np.array_equal(column, back.columns[key]) for key, column in s.columns.items())


@few
@given(schedules(), st.integers(0, 2**32))
def test_json_keeps_what_is_wrong(s: Schedule, seed: int) -> None:
    broken = mutated(random.Random(seed), s)
    assert text.loads(text.dumps(broken)) == broken


@few
@given(st.one_of(schedules(), arbitrary_schedules()))
def test_text_round_trip(s: Schedule) -> None:
    back = text.parse(text.format(s))
    assert without_lines(back) == without_lines(s.canonical())
    assert text.format(back) == text.format(s)


@few
@given(schedules(), st.integers(0, 2**32))
def test_text_round_trip_of_broken_schedules(s: Schedule, seed: int) -> None:
    broken = mutated(random.Random(seed), s)
    try:
        said = text.format(broken)
    except ScheduleError:
        return
    assert without_lines(text.parse(said)) == without_lines(broken.canonical())


@pytest.mark.parametrize("name", sorted(set(COLLECTIVES) - {"all_to_all_v", "send_recv"}))
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_rows_of_a_collective_are_two_words(name: str, n: int) -> None:
    s = Steps(named(name, n, chunks=2)).build()
    said = text.format(s)
    assert "step" not in said
    assert without_lines(text.parse(said)) == without_lines(s.canonical())


@pytest.mark.parametrize(
    "c",
    [
        broadcast(4, root=2, chunks=3), barrier(3), barrier(3, chunks=2), send_recv(3, pairs=[(0, 1), (0, 2)]),
        all_to_all_v(2, counts=[[1, 0], [3, 2]]),
    ],
    ids=str,
)  # fmt: skip
def test_collectives_with_parameters(c: Any) -> None:
    s = Steps(c, name="none", load=False).build()
    assert text.parse(text.format(s)).collective == c
    assert text.loads(text.dumps(s)).collective == c
    assert "{" not in text.format(s)


@given(st.text(max_size=20))
def test_any_name(name: str) -> None:
    s = Steps(all_reduce(1), name=name, load=False).build()
    assert text.parse(text.format(s)).name == name
    assert text.loads(text.dumps(s)).name == name


def test_files(tmp_path: Path) -> None:
    s = exchange()
    for name in ("s.json", "s.algo", "s.txt", "plain"):
        text.dump(s, tmp_path / name)
        assert without_lines(text.read(tmp_path / name).canonical()) == without_lines(s.canonical())
    assert text.load(tmp_path / "s.json") == s
    (tmp_path / "bare").write_text(text.format(s))
    assert text.read(tmp_path / "bare").source(0) == "bare:3"


def test_empty_steps_are_kept() -> None:
    s = exchange()
    late = s.step * 5 + 2
    gap = Schedule(s.name, s.collective, 0, **{**s.columns, "step": late}, origins=s.origins)
    assert text.parse(text.format(gap)).step.tolist() == sorted(late.tolist())


# By hand.


def test_by_hand() -> None:
    s = text.parse(
        """
        # two ranks, each sends the other what it lacks
        schedule hand  made   # name
        collective all_reduce n=2 chunks=2
        load
        step
        0: send [0:2] to 1; reduce [0:2] from 1

        1: send [0] to 0; send out[1] to 0   # two sends meet
        1: reduce [0:2] from 0
        """,
        source="hand.algo",
    )
    assert s.name == "hand  made"
    assert str(form_failures(s)[0]) == (
        "step 1, rank 1: out[1] is sent to rank 0 without the matching receive, "
        "wanted one receive on rank 0 in the same step (hand.algo:9)"
    )


def test_origins_are_lines() -> None:
    s = text.parse("collective all_reduce n=2\nload\nstep\n0: send [0] to 1; reduce [0] from 1\n1: send [0] to 0\n1: reduce [0] from 0\n")
    assert [s.source(i) for i in range(len(s))] == ["<text>:2", "<text>:2", "<text>:4", "<text>:6"]
    assert is_correct(s)


HEAD = "collective all_reduce n=2 chunks=2\n"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("", "f: no line `collective …`: wanted one as in `collective all_reduce n=4`"),
        ("colective x", "f:1: found 'colective'; did you mean collective?; wanted schedule, collective, scratch, load, step, store or `rank: entries`"),
        ("collective", "f:1: collective: found no name, wanted as in `collective all_reduce n=4`"),
        ("collective all_redcue n=2", "f:1: unknown collective all_redcue; did you mean all_reduce or"),
        ("collective all_reduce", "f:1: collective all_reduce: n is missing or null, wanted a whole number"),
        ("collective all_reduce n=2 chnks=3", "f:1: collective all_reduce: unknown parameter chnks; did you mean chunks?; it takes n, chunks"),
        ("collective all_reduce n=2 3", "f:1: collective all_reduce: found '3', wanted as in `n=4 chunks=2`"),
        ("collective all_reduce n=2 n=3", "f:1: collective all_reduce: n is given twice"),
        ("collective all_reduce n=x", "f:1: collective all_reduce: n: not JSON: Expecting value at 'x'"),
        ("collective all_reduce n=2.5", "f:1: collective all_reduce: n is 2.5, wanted a whole number"),
        ("collective all_reduce n=0", "f:1: collective all_reduce: n is 0, wanted 1..1048576"),
        ("collective all_to_all n=100000", "f:1: collective all_to_all: n=100000 makes 10000000000 blocks, wanted at most 67108864"),
        ("collective broadcast n=2 root=2", "f:1: root=2: with n=2 a rank is one of 0..1"),
        ("collective all_reduce n=2 chunks=2147483647", "f:1: all_reduce n=2 chunks=2147483647 with 0 chunks of scratch: 8589934588 chunks"),
        ("collective {", "f:1: collective: not JSON: Expecting property name enclosed in double quotes at ''"),
        (HEAD + HEAD, "f:2: found a second line `collective …`, wanted one"),
        ("load", "f:1: found 'load' before the line `collective …`"),
        ("collective send_recv n=2\nload", "f:2: send_recv has no load: leave the line out"),
        (HEAD + "0: send out[0] to 1", "f:2: found entries of a rank outside a step, wanted a line `step` above"),
        (HEAD + "load\n0: send out[0] to 1", "f:3: found entries of a rank outside a step, wanted a line `step` above"),
        (HEAD + "step 3\nstep 3", "f:3: found step 3 after step 3, wanted 4 or more"),
        (HEAD + "step 99999999", "f:2: found step 99999999, wanted less than 16777216"),
        (HEAD + "step\nscratch 2", "f:3: found 'scratch' after the first step: it belongs above"),
        (HEAD + "scratch two", "f:2: scratch: found 'two', wanted a whole number"),
        (HEAD + "step\n2: send out[0] to 1", "f:3: found rank 2, wanted one of 0..1"),
        (HEAD + "step\n0: sned out[0] to 1", "f:3: 'sned out[0] to 1': found 'sned'; did you mean send?; wanted send, recv, reduce, prereduce, copy"),
        (HEAD + "step\n0: send out[0] 1", "f:3: 'send out[0] 1': found 3 words, wanted 4 as in `send out[0] to 1`"),
        (HEAD + "step\n0: send out[0] from 1", "f:3: 'send out[0] from 1': found 'from'; wanted to"),
        (HEAD + "step\n0: send out(0) to 1", "f:3: 'send out(0) to 1': found 'out(0)', wanted a chunk or a range as in `out[3]` or `out[0:4]`"),
        (HEAD + "step\n0: send ouput[0] to 1", "f:3: 'send ouput[0] to 1': found buffer 'ouput'; did you mean out?; wanted in, out, scratch"),
        (HEAD + "step\n0: send out[2:2] to 1", "f:3: 'send out[2:2] to 1': found out[2:2], which is empty, wanted as in out[2:3]"),
        (HEAD + "step\n0: send out[0] to 7", "f:3: 'send out[0] to 7': found rank 7, wanted one of 0..1"),
        (HEAD + "step\n0: send out[0] to 0", "f:3: 'send out[0] to 0': found the rank itself, wanted another rank, or as in `copy out[0] to out[1]`"),
        (HEAD + "step\n0: send out[0] to out[1]", "f:3: 'send out[0] to out[1]': rank: found 'out[1]', wanted a whole number"),
        (HEAD + "step\n0: copy in[0:2] to out[0]", "f:3: 'copy in[0:2] to out[0]': found in[0:2] of 2 chunks and out[0] of 1, wanted as many"),
        (HEAD + "step\n0: send out[99999999999] to 1", "f:3: 'send out[99999999999] to 1': chunk: found 99999999999, which does not fit in 32 bits"),
        ('schedule "a" b\n', "f:1: schedule: found 'b' after the name, wanted nothing"),
    ],
)  # fmt: skip
def test_errors_in_text(said: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        text.parse(said, source="f")
    assert str(caught.value).startswith(error)


def spoiled(path: str, value: Any) -> str:
    """The JSON of `exchange` with one entry changed, or left out if `value` is None."""
    whole = text.to_json(exchange())
    *way, last = path.split("/")
    at: Any = whole
    for key in way:
        at = at[int(key) if isinstance(at, list) else key]
    if value is None:
        del at[last]
    else:
        at[int(last) if isinstance(at, list) else last] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("[1]", "f: the file is a list, wanted an object"),
        ("{}", "f: format is missing or null, wanted 'algocc-schedule'"),
        ('{"format":\n 1 2}', "f:2:4: not JSON: Expecting ',' delimiter"),
        ('{"a": 1, "a": 2}', "f: not JSON that can be read: the key 'a' comes twice"),
        ('{"a": NaN}', "f: not JSON that can be read: NaN is no number here"),
        ("[" * 100000, "f: not JSON that can be read: "),
        ("1" * 10000, "f: not JSON that can be read: "),
        (spoiled("version", 2), "f: version is 2, wanted 1: this algocc reads no other"),
        (spoiled("scrach", 2), "f: unknown key scrach; did you mean scratch?; known: format, version"),
        (spoiled("scratch", None), "f: the key scratch is missing"),
        (spoiled("scratch", True), "f: scratch is True, wanted a whole number"),
        (spoiled("scratch", -1), "f: scratch is -1, wanted 0..2147483647"),
        (spoiled("scratch", 2**31 - 1), "f: all_reduce n=2 chunks=2 with 2147483647 chunks of scratch: 4294967302 chunks"),
        (spoiled("columns/pear", []), "f: unknown key columns.pear; did you mean peer?; known"),
        (spoiled("columns/peer", None), "f: the key columns.peer is missing"),
        (spoiled("columns/peer", 3), "f: columns.peer is 3, wanted a list"),
        (spoiled("columns/peer", [1]), "f: columns.peer has 1 row, columns.step has 4: wanted as many in all"),
        (spoiled("columns/peer/1", 1.5), "f: columns.peer[1] is 1.5, wanted a whole number"),
        (spoiled("columns/peer/2", True), "f: columns.peer[2] is True, wanted a whole number"),
        (spoiled("columns/peer/2", [1]), "f: columns.peer[2] is a list, wanted a whole number"),
        (spoiled("columns/peer/3", 2**31), "f: columns.peer[3] is 2147483648, wanted -2147483648..2147483647"),
        (spoiled("columns/action/3", 200), "f: columns.action[3] is 200, wanted -128..127"),
        (spoiled("columns/chunk/3", 10**100), "f: columns.chunk[3] is a number of more than 64 bits, wanted "),
        (spoiled("columns/step/3", 0), "f: columns.step[3] is 0 after 1, wanted steps in order from 0"),
        (spoiled("columns/step/0", -1), "f: columns.step[0] is -1, wanted steps in order from 0"),
        (spoiled("columns/step/3", 2**30), "f: columns.step[3] is 1073741824 after 1, wanted less than 16777216"),
        (spoiled("origins/0", 3), "f: origins[0] is 3, wanted a text in quotes"),
        (spoiled("collective", []), "f: collective is a list, wanted an object"),
        (spoiled("collective/name", "alreduce"), "f: unknown collective alreduce; did you mean"),
        (spoiled("collective/n", "2"), "f: collective all_reduce: n is '2', wanted a whole number"),
        (spoiled("collective/n", None), "f: collective all_reduce: n is missing or null, wanted a whole number"),
        (spoiled("collective/root", 1), "f: collective all_reduce: unknown parameter root; it takes n, chunks"),
        (spoiled("collective/want", []), "f: the key collective.work is missing"),
    ],
)  # fmt: skip
def test_errors_in_json(said: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        text.loads(said, source="f")
    assert str(caught.value).startswith(error)


def test_errors_of_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        text.read(tmp_path / "missing.json")
    with pytest.raises(UsageError, match="directory"):
        text.read(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="byte 0 is not UTF-8"):
        text.read(tmp_path / "bytes")
    with pytest.raises(UsageError, match="No such file"):
        text.dump(exchange(), tmp_path / "no" / "way.json")


# Fuzz: UsageError or a schedule, never anything else.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.integers(-2, 4) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def survives(read: Any, said: str) -> None:
    try:
        s = read(said)
    except (UsageError, ScheduleError) as error:
        assert "\n" not in str(error) or "\n" in said or "\\n" in said
        return
    assert isinstance(s, Schedule)
    form_failures(s)


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a JSON value."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in places_of(inner)]


CUSTOM = text.to_json(Steps(named("all_gather", 2), name="x").build())
CUSTOM["collective"] = {
    "name": "mine", "n": 2, "work": 1, "idempotent": False, "chunks": 1, "params": {}, "source": 0, "sink": 1,
    "inputs": [1, 1], "outputs": [2, 2], "want": [0, 1, 0, 1], "set_start": [0, 1, 2], "set_items": [0, 1],
    "alias": [[0, 0, 0], [1, 0, 1]], "load": [[0, 0, 0], [1, 0, 1]], "store": [[0, 0, 0]], "sizes": [1, 1],
}  # fmt: skip


def test_the_custom_collective_of_the_fuzz_is_sound() -> None:
    assert text.loads(json.dumps(CUSTOM)).collective.name == "mine"


@settings(max_examples=600, deadline=None)
@given(st.booleans(), st.data())
def test_fuzz_json(custom: bool, data: st.DataObject) -> None:
    value = json.loads(json.dumps(CUSTOM if custom else text.to_json(exchange())))
    for _ in range(data.draw(st.integers(1, 2))):
        places = places_of(value)
        at, key = places[data.draw(st.integers(0, len(places) - 1))]
        at[key] = data.draw(json_values)
    survives(text.loads, json.dumps(value))


@settings(max_examples=300, deadline=None)
@given(json_values)
def test_fuzz_any_json(value: Any) -> None:
    survives(text.loads, json.dumps(value))


WORDS = [
    "schedule", "collective", "all_reduce", "broadcast", "n=2", "n=", "chunks=2", "root=1", "root=[", "scratch", "step", "load",
    "store", "0:", "1:", "2:", "send", "recv", "reduce", "prereduce", "copy", "in[0]", "out[0:2]", "out[1]", "scratch[0]",
    "[0]", "[1:3]", "to", "from", "into", "0", "1", "2", ";", "#", "\n", "\n", "\r\n", '"x"', "{", "}", '{"n":1}', "-1", "٣",
    "9" * 5000, "0" * 5000, "\x00", "\u2028",
]  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=30), st.booleans())
def test_fuzz_text(words: list[str], headed: bool) -> None:
    survives(text.parse, ("collective all_reduce n=2 chunks=2\nstep\n" if headed else "") + " ".join(words))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_fuzz_any_text(said: str) -> None:
    survives(text.parse, said)
    survives(text.loads, said)


@settings(max_examples=300, deadline=None)
@given(schedules(3), st.data())
def test_fuzz_slips(s: Schedule, data: st.DataObject) -> None:
    said = text.format(s)
    at = data.draw(st.integers(0, len(said)))
    cut = data.draw(st.integers(0, 3))
    survives(text.parse, said[:at] + data.draw(st.sampled_from([*WORDS, ""])) + said[at + cut :])


# The documentation.


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("said", blocks("text") + blocks("json"))
def test_the_examples_of_the_documentation(said: str) -> None:
    s = (text.loads if said.lstrip().startswith("{") else text.parse)(said)
    assert is_correct(s), [str(f) for f in form_failures(s)]


def test_the_documentation_names_every_column() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in COLUMNS)
    assert len(blocks("text")) >= 3 and blocks("json")
