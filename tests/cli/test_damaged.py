"""Damaged files of other tools on the command line: an exit code and one clear error, whatever is asked for."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.cli import main

from ..exchange.test_hostile import FILES  # noqa: TID252

COMMANDS = (
    "verify {file}", "verify {file} --reduction-order --json", "verify {file} --slots 1 --mode in-place",
    "import {file} -o {out}.json", "import {file} --unverified -o {out}.txt --mode out-of-place", "show {file} --program",
    "run {file} --size 1K --iters 1 --timeout 5", "draw {file} -o {out}.svg", "export {file} --to msccl-xml --target rccl",
    "export {file} --to mscclpp-json --unverified", "export {file} --to chakra -o {out}", "certify {file} -o {out}.cert",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@given(data=FILES, command=st.sampled_from(COMMANDS))
@settings(max_examples=80)
def test_every_command_ends_well(data: bytes, command: str, folder: Path) -> None:
    file = folder / ("f.xml" if data.lstrip()[:1] == b"<" else "f.json")
    file.write_bytes(data)
    said, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
        code = main(command.format(file=file, out=folder / "out").split())
    assert code in (0, 1, 2)
    assert "Traceback" not in error.getvalue()
    assert len(error.getvalue()) < 3000
    if code == 2:
        assert error.getvalue().startswith("algocc: ")
