"""Full verification, of the schedule and of its Program for all interleavings, against a goal and against its growth.

    python bench/verifier.py
    python bench/verifier.py --most 256 --repeat 3

Goal: ring AllReduce on 256 ranks (130 560 transfers) in less than 2 s after warm-up, and time in proportion to the
chunks transferred. Everything is compiled before anything is timed. Times are CPU seconds of the one thread that there
is, so that other work on the machine counts little. Exit code 1 if the goal is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from algocc.catalog import algorithms
from algocc.errors import AlgoccError
from algocc.lowering import lower
from algocc.table import layout
from algocc.verifier import verify, verify_program
from algocc.verifier.dataflow import judge, trace

GOAL_N, GOAL_SECONDS = 256, 2.0
FAMILIES = (
    "ring", "rabenseifner", "recursive_doubling", "double_binary_tree", "two_shot", "ring_all_gather",
    "bruck_all_to_all", "direct_all_to_all",
)  # fmt: skip


def timed(name: str, n: int, repeat: int) -> tuple[int, list[float]]:
    """Chunks transferred between ranks, and the seconds of each full verification."""
    seconds = []
    chunks = 0
    for _ in range(repeat):
        s = algorithms()[name](n)
        begin = time.process_time()
        report = verify(s)
        seconds.append(time.process_time() - begin)
        assert report.correct, report.failures
        chunks = int(s.count[s.rank != s.peer].sum())
    return chunks, seconds


def parts(name: str, n: int) -> list[tuple[str, float]]:
    """Seconds of each part of one verification."""
    s = algorithms()[name](n).matched()
    marks = [time.process_time()]
    places = layout(s)
    t = trace(s, places)
    marks.append(time.process_time())
    judge(s, places, t)
    marks.append(time.process_time())
    p = lower(s)
    marks.append(time.process_time())
    verify_program(p)
    marks.append(time.process_time())
    names = ("trace the schedule", "judge its outputs", "lower it", "all interleavings")
    return [(name, b - a) for name, a, b in zip(names, marks[:-1], marks[1:], strict=True)]


def spread(seconds: list[float]) -> str:
    """Median, and from the fastest to the slowest."""
    return f"{statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--most", type=int, default=512, help="most ranks in the table")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--write", type=Path, help="write the table to this file, too")
    args = parser.parse_args()
    for name in FAMILIES:
        try:
            timed(name, 16, 1)  # compiles
        except AlgoccError as error:
            print(error, file=sys.stderr)
            return 2
    lines = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    chunks, seconds = timed("ring", GOAL_N, args.repeat)
    met = statistics.median(seconds) < GOAL_SECONDS
    say(f"ring n={GOAL_N}, {chunks} chunks transferred: {spread(seconds)}; goal {GOAL_SECONDS} s: {'met' if met else 'MISSED'}")
    for part, took in parts("ring", GOAL_N):
        say(f"  {part:<20} {took:.3f} s")
    say("")
    say("| algorithm | n | chunks | median | fastest to slowest | µs a chunk | growth of time / of chunks |")
    say("|---|--:|--:|--:|--:|--:|--:|")
    for name in FAMILIES:
        before: tuple[int, float] | None = None
        n = 32
        while n <= args.most:
            chunks, seconds = timed(name, n, args.repeat if n <= 256 else min(args.repeat, 3))
            median = statistics.median(seconds)
            growth = f"{median / before[1]:.1f} / {chunks / before[0]:.1f}" if before else ""
            say(
                f"| {name} | {n} | {chunks} | {median:.3f} s | {min(seconds):.3f} to {max(seconds):.3f} "
                f"| {1e6 * median / chunks:.2f} | {growth} |"
            )
            before = chunks, median
            n *= 2
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text("\n".join(lines) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
