"""Run commands, in this process where that will do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from algocc.cli import main

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def algocc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Done]:
    """`algocc("verify ring -n 4")`, in the folder of these tests."""
    monkeypatch.chdir(HERE)

    def command(line: str) -> Done:
        capsys.readouterr()
        code = main(line.split())
        return Done(code, *capsys.readouterr())

    return command
