"""What only a process of its own shows: pipes, signals, full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "algocc"]


def test_nobody_reads() -> None:
    """As `algocc list | head -1`."""
    with subprocess.Popen([*COMMAND, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", (["list"], ["bound", "AllReduce", "-n", "4", "--json"], ["--help"]))
def test_a_full_disk(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "algocc: the output can't be written: No space left on device\n")


@pytest.mark.parametrize("arguments", (["verify", "ring", "-n", "2..4000"], ["run", "ring", "-n", "2", "--iters", "100000000"]))
def test_interrupted(arguments: list[str]) -> None:
    """Wherever it is: importing, in Python, or in a compiled function."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout
    process.stdout.read(1)  # it is at work
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "algocc: interrupted\n")
