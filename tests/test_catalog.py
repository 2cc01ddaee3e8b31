"""Algorithms by name: built in, in a user's file, in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

import algocc
from algocc import catalog, text
from algocc.errors import UsageError

GOOD = """
import algocc
from algocc.collective import all_reduce

@algocc.schedule
def pair(n, hops=1):
    s = algocc.Steps(all_reduce(n))
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
        s.reduce(src=1, dst=0, chunk=0)
    return s

def plain(n):
    return pair.write(n)

def forgets(n):
    pair.write(n)

def breaks(n):
    return n / 0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path


def test_every_name_is_one() -> None:
    for name, algorithm in algocc.algorithms().items():
        assert algocc.load(name) is algorithm
        assert algorithm.name == name and algorithm.doc


def test_a_function_in_a_file(file: Path) -> None:
    assert algocc.verify(algocc.load(f"{file}:pair")(2)).correct
    assert algocc.load(str(file)).name == "pair", "the only schedule needs no name"
    assert algocc.load(f"{file}:plain")(2).n == 2, "a plain function will do"


def test_files_of_one_name_are_two_modules(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(GOOD.replace("def pair", "def couple").replace("pair.write", "couple.write"))
    assert [algocc.load(str(path)).name for path in (file, other)] == ["pair", "couple"]


@pytest.mark.parametrize("suffix", (".json", ".txt"))
def test_a_table(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    text.dump(algocc.load("ring")(3), path)
    assert algocc.verify(algocc.load(str(path))(3)).bandwidth_optimal
    with pytest.raises(UsageError, match="is a table for n=3"):
        algocc.load(str(path))(4)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("rnig", "unknown schedule 'rnig'; did you mean ring"),
        ("xyzzy", "unknown schedule 'xyzzy'. `algocc list` shows all"),
        ("nowhere.py:f", "nowhere.py: no such file"),
        ("nowhere.json", "nowhere.json: No such file or directory"),
        ("{file}:piar", "mine.py: no function 'piar'; did you mean pair"),
    ],
)
def test_not_found(file: Path, name: str, wanted: str) -> None:
    with pytest.raises(UsageError) as error:
        algocc.load(name.replace("{file}", str(file)))
    assert wanted in str(error.value)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("import nosuch", "bad.py:1: the file does not import: ModuleNotFoundError: No module named 'nosuch'"),
        ("\ndef f(:", "bad.py:2: the file does not import: SyntaxError"),
        ("x = 1\nraise SystemExit(3)", "bad.py:2: the file does not import: SystemExit: 3"),
    ],
)
def test_a_file_that_does_not_import(tmp_path: Path, body: str, wanted: str) -> None:
    (tmp_path / "bad.py").write_text(body)
    with pytest.raises(UsageError) as error:
        algocc.load(f"{tmp_path / 'bad.py'}:f")
    assert wanted in str(error.value)


@pytest.mark.parametrize(
    ("function", "params", "wanted"),
    [
        ("forgets", {}, "returned NoneType, wanted Steps or a Schedule: end the function with `return s`"),
        ("breaks", {}, "mine.py:20: breaks failed for n=2: ZeroDivisionError"),
        ("pair", {"hop": 1}, "pair: unknown parameter 'hop'; it takes: hops"),
    ],
)
def test_a_function_that_fails(file: Path, function: str, params: dict[str, int], wanted: str) -> None:
    with pytest.raises(UsageError) as error:
        catalog.build(f"{file}:{function}", 2, **params)
    assert wanted in str(error.value)


@pytest.mark.parametrize(
    "code, error",
    [
        ("raise SystemExit(3)", r"mine.py:4: f failed for n=4: SystemExit: 3$"),
        ("raise ValueError('two\\nlines')", r"mine.py:4: f failed for n=4: ValueError: two lines$"),
        ("return load('ring')(5)", r"mine.py:3\): n=4: returned a schedule for n=5$"),
    ],
)
def test_what_a_function_does_is_one_clear_error(tmp_path, code, error):
    (tmp_path / "mine.py").write_text(f"from algocc import load\n\ndef f(n):\n    {code}\n")
    with pytest.raises(UsageError, match=error):
        catalog.build(f"{tmp_path}/mine.py:f", 4)


@pytest.mark.parametrize("code", ["class f:\n    def __init__(self, n): 1 / 0", "from math import gcd as f",
                                  "from functools import partial\nf = partial(int, z=1)"])  # fmt: skip
def test_callables_that_are_no_functions_are_refused(tmp_path, code):
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(UsageError, match=r"mine\.py|f \("):
        catalog.build(f"{tmp_path}/mine.py:f", 4)


@pytest.mark.parametrize("value", ["x", 1.0, True, None, [1]])
def test_a_parameter_that_is_a_number_is_checked(value):
    with pytest.raises(UsageError, match=r"^binomial_broadcast: root=.*: wanted a whole number$"):
        catalog.build("binomial_broadcast", 4, root=value)


def test_a_radix_beyond_n_takes_no_time():
    far, near = (catalog.build("bruck_all_to_all", 4, radix=radix) for radix in (10**14, 4))
    assert text.format(far) == text.format(near)
