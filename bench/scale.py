"""Is it fast enough? How long it takes to build, verify and bound schedules, to lower them, and to start.

    python bench/scale.py [--quick]

Each row is a median with the fastest and slowest, against its goal. Compilation is done before the clock starts;
`--quick` leaves out 1024 ranks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import algocc
from algocc.verifier import verify_program


@dataclass(frozen=True)
class Row:
    """What is timed, so many times, and how long it may take in seconds."""

    what: str
    call: Callable[[], object]
    goal: float
    repeat: int = 5


def judge(n: int) -> None:
    """Build, verify and bound, without the Program."""
    report = algocc.verify(algocc.load("ring")(n), program=False)
    assert report.bandwidth_optimal


def lower(n: int) -> Callable[[], None]:
    """Lower, and verify all interleavings of what runs."""
    ring = algocc.load("ring")(n)

    def call() -> None:
        assert verify_program(algocc.lower(ring)).correct

    return call


def command(*arguments: str) -> Callable[[], object]:
    """A process of its own."""
    return lambda: subprocess.run(
        [sys.executable, "-m", "algocc", *arguments], check=True, stdout=subprocess.DEVNULL
    )


def peak_of(n: int) -> int:
    """Bytes that a process of its own needs to build and verify a ring, at most."""
    code = (
        f"import resource, algocc; algocc.verify(algocc.load('ring')({n}), program=False); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)


def main(quick: bool) -> None:
    rows = [
        Row("ring, n=128: build, verify, bound", lambda: judge(128), 0.1, 20),
        Row("ring, n=1024: build, verify, bound", lambda: judge(1024), 3.0),
        Row("ring, n=128: lower, verify all interleavings", lower(128), 1.0),
        Row("algocc --help", command("--help"), 0.3),
        Row("algocc list", command("list"), 1.0),
        Row("algocc verify ring -n 4, compiled before", command("verify", "ring", "-n", "4"), 3.0, 3),
    ]
    print(f"{'what':46} {'median':>8} {'fastest':>8} {'slowest':>8} {'goal':>6}")
    for row in rows:
        if quick and "1024" in row.what:
            continue
        row.call()
        times = []
        for _ in range(row.repeat):
            begin = time.perf_counter()
            row.call()
            times.append(time.perf_counter() - begin)
        print(f"{row.what:46} {median(times):8.3f} {min(times):8.3f} {max(times):8.3f} {row.goal:6} s    {met(median(times), row.goal)}")
    if not quick:
        peak = peak_of(1024) / 2**30
        print(f"{'ring, n=1024: peak memory':46} {peak:8.3f} {'':8} {'':8} {1.0:6} GiB  {met(peak, 1.0)}")


def met(value: float, goal: float) -> str:
    """Within the goal, or by how much it is missed."""
    return "met" if value <= goal else f"{value / goal:.1f} times the goal"


if __name__ == "__main__":
    main("--quick" in sys.argv)
