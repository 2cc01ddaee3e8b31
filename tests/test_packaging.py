"""What is built and installed: one package, whole, with the files of the linked folders in it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("schedules", "kernels", "proofs")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what makes the package, so that building leaves nothing behind."""
    tree = tmp_path_factory.mktemp("tree")
    for path in ("pyproject.toml", "README.md", "algocc", *FOLDERS):
        subprocess.run(["cp", "-a", str(ROOT / path), str(tree / path)], check=True)
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without an environment of its own where the setuptools at hand will do."""
    out = tmp_path_factory.mktemp("wheel")
    alone = [] if int(version("setuptools").split(".")[0]) < 77 else ["--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *alone, "--wheel-dir", str(out), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def sources(tree: Path, folder: str) -> list[Path]:
    """The files of a folder that its users need."""
    found = [p for p in (tree / folder).rglob("*") if p.suffix in (".py", ".v", ".json", ".html", ".js") and not p.name.startswith(".")]
    return [p.relative_to(tree) for p in found if "__pycache__" not in p.parts]


@pytest.mark.parametrize("folder", FOLDERS)
def test_links_resolve(folder: str) -> None:
    link = ROOT / "algocc" / folder
    assert link.is_symlink() and link.resolve() == (ROOT / folder).resolve()


def test_one_name_at_the_top(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"algocc"}


@pytest.mark.parametrize("folder", ("algocc", *FOLDERS))
def test_every_source_is_in_it(tree: Path, wheel: zipfile.ZipFile, folder: str) -> None:
    inside = {name: wheel.getinfo(name).file_size for name in wheel.namelist()}
    wanted = sources(tree, folder)
    assert wanted
    for path in wanted:
        name = path.as_posix() if folder == "algocc" else f"algocc/{path.as_posix()}"
        assert name in inside, f"{path} is not in the wheel"
        assert inside[name] == (tree / path).stat().st_size


def test_typed_and_callable(wheel: zipfile.ZipFile) -> None:
    assert "algocc/py.typed" in wheel.namelist()
    points = ConfigParser()
    points.read_string(wheel.read(next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))).decode())
    assert points["console_scripts"]["algocc"] == "algocc.cli:main"
