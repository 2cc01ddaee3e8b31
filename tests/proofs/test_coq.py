"""The theorems: Coq checks them without axioms, and what is written about them names what exists."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from algocc import bounds
from algocc.proofs import check

from .conftest import FILES, PROOFS, Coq  # noqa: TID252

README = (PROOFS / "README.md").read_text(encoding="utf-8")
ASKED = "Asked.v"
STATED = r"\b(?:Theorem|Lemma|Corollary|Definition|Inductive)\s+{}\b"


def source(file: str) -> str:
    """The text of a file without its comments."""
    text, depth, kept = (PROOFS / file).read_text(encoding="utf-8"), 0, []
    for part in re.split(r"(\(\*|\*\))", text):
        if part in ("(*", "*)"):
            depth += 1 if part == "(*" else -1
        elif not depth:
            kept.append(part)
    return "".join(kept)


def named(cell: str) -> list[str]:
    """The theorems that a cell names; a file goes for those that follow, too."""
    found, file = [], ""
    for name in re.findall(r"`([\w.]+)`", cell):
        prefix, dot, theorem = name.rpartition(".")
        file = prefix if dot else file
        found.append(f"{file}.{theorem}")
    return found


ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in README.splitlines()
    if line.startswith("| `")
]
THEOREMS = sorted({name for row in ROWS for name in named(row[0])})


@pytest.fixture(scope="session")
def said(coq: Coq) -> dict[str, str]:
    """What Coq says while it compiles each file, and a last one that asks about all theorems."""
    modules = " ".join(file.removesuffix(".v") for file in FILES)
    asked = [f"Print Assumptions {name}." for name in THEOREMS]
    (coq.folder / ASKED).write_text("\n".join([f"From Algocc Require {modules}.", *asked]) + "\n")
    answer = coq.compile(ASKED)
    return {file: (coq.folder / f"{file}.said").read_text() for file in FILES} | {ASKED: answer}


def test_the_project_lists_every_file() -> None:
    assert sorted(FILES) == sorted(path.name for path in PROOFS.glob("*.v"))


@pytest.mark.timeout(900)
def test_coq_checks_every_theorem_without_axioms(said: dict[str, str]) -> None:
    for file in FILES:
        asked = len(re.findall(r"\bPrint Assumptions\b", source(file)))
        assert said[file].count("Closed under the global context") == asked, file
        assert "Axioms:" not in said[file], file
    assert said[ASKED].split("\n") == ["Closed under the global context"] * len(THEOREMS) + [""]


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_assumed_or_left_open(file: str) -> None:
    words = re.findall(r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|Abort|give_up|Unset|bypass_check)\b", source(file))
    assert words == []
    opened = re.findall(r"\b(?:Hypothes[ie]s|Variables?)\b", re.sub(r"(?s)\bSection (\w+)\..*?\bEnd \1\.", "", source(file)))
    assert opened == []


def exists(name: str) -> bool:
    file, _, theorem = name.rpartition(".")
    return f"{file}.v" in FILES and re.search(STATED.format(re.escape(theorem)), source(f"{file}.v")) is not None


@pytest.mark.parametrize("name", THEOREMS)
def test_the_readme_names_theorems_that_exist(name: str) -> None:
    assert exists(name)


def test_prose_names_what_exists() -> None:
    for name in re.findall(r"`([A-Z]\w+\.\w+)`", README):
        assert name.endswith(".v") or exists(name), name
    assert len(THEOREMS) > 50


def test_certificates_cite_theorems_that_exist() -> None:
    for name in check.THEOREMS:
        assert exists(name) and name in THEOREMS, name
    citing = {name for row in ROWS if "certificates" in row[-1].lower() for name in named(row[0])}
    assert set(check.THEOREMS) <= citing


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_what_uses_a_theorem_exists(row: list[str]) -> None:
    """A collective of the table of bounds, or a function of algocc."""
    for name in re.findall(r"`([\w.]+)`", row[-1]):
        module, _, function = name.rpartition(".")
        if module:
            assert callable(getattr(import_module(f"algocc.{module}"), function)), name
        else:
            assert name in bounds.COLLECTIVES, name
