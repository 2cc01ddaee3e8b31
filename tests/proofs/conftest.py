"""Coq compiles the theorems from the moment that tests begin, on a core that they leave idle."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from algocc.proofs import check

PROOFS = Path(check.__file__).resolve().parent
FILES = [line for line in (PROOFS / "_CoqProject").read_text().splitlines() if line.endswith(".v")]


@dataclass
class Coq:
    """A folder with a copy of every file, and the shell that compiles them there in order; what is said goes to FILE.said."""

    folder: Path
    shell: subprocess.Popen[bytes]

    def compile(self, file: str) -> str:
        """What Coq says of one more file, when it is done with the others."""
        assert self.shell.wait() == 0, "\n".join(p.read_text() for p in self.folder.glob("*.said"))
        return subprocess.run(["sh", "-c", command(file)], cwd=self.folder, check=True, capture_output=True, text=True).stdout


def command(file: str) -> str:
    return f"coqc -q -Q . Algocc {file}"


COQ = pytest.StashKey[Coq]()


def pytest_runtestloop(session: pytest.Session) -> None:
    wanted = any("said" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly or shutil.which("coqc") is None:
        return
    folder = tempfile.TemporaryDirectory(prefix="algocc-proofs")
    session.config.add_cleanup(folder.cleanup)
    for file in FILES:
        shutil.copy(PROOFS / file, folder.name)
    steps = " && ".join(f"{command(file)} > {file}.said 2>&1" for file in FILES)
    shell = subprocess.Popen(["nice", "sh", "-c", steps], cwd=folder.name)
    session.config.add_cleanup(shell.wait)
    session.config.add_cleanup(shell.kill)  # cleanups run last first
    session.config.stash[COQ] = Coq(Path(folder.name), shell)


@pytest.fixture(scope="session")
def coq(pytestconfig: pytest.Config) -> Coq:
    if COQ not in pytestconfig.stash:
        pytest.skip("no coqc: `apt-get install coq` has the theorems checked")
    return pytestconfig.stash[COQ]
