"""Imports flow one way, as pyproject.toml says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_layers() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run([sys.executable, "-c", command, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_command_line_without_numpy() -> None:
    """`algocc --help` and `import algocc` import neither NumPy nor Numba, so they cost nothing."""
    code = (
        "import sys, algocc; from algocc.cli import main; main(['--help']); "
        "print({'numpy', 'numba', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
