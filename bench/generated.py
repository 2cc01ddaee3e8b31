"""Does a kernel generated for a Program win over the interpreter? Time of a small call, by size.

    python bench/generated.py            all ranks on GPU 0, in a CUDA graph
    python bench/generated.py --threads  on CPU threads, which show the cost of decoding without that of a GPU's memory

Goal: the generated form is never slower, and faster below 64 KiB. Peer: the interpreter of the same Program.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from algocc.catalog import algorithms
from algocc.errors import AlgoccError
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime.cuda import Driver, Emulated, ThreadDriver, cuda

SIZES = (8, 512, 4096, 65536)
"""Bytes of a rank's vector."""

FORMS = ("interpreted", "generated")


def measure(program: Program, size: int, driver: Driver, *, times: int, repeats: int) -> list[float]:
    """Median microseconds of a call of each form; their calls take turns, so that both see the same machine."""
    # a thread a block on a CPU: more would measure the scheduler
    options = {"threads": 1, "channels": 1} if isinstance(driver, ThreadDriver) else {}
    runs = [Emulated(program, count=max(1, size // 4), driver=driver, form=form, **options) for form in FORMS]
    graphs = [run.graph(*run.buffers()) for run in runs]
    found: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):
        for run, graph, samples in zip(runs, graphs, found, strict=True):
            begin = time.perf_counter()
            graph(times)
            run.wait()
            if repeat:  # the first warms up
                samples.append((time.perf_counter() - begin) / times * 1e6)
    for run in runs:
        run.close()
    return [statistics.median(samples) for samples in found]


def main() -> int:
    """Print the table; 2 if there is nothing to run on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", action="store_true", help="on CPU threads")
    parser.add_argument("-n", type=int, default=4, help="ranks")
    parser.add_argument("--times", type=int, default=200, help="calls in a row")
    parser.add_argument("--repeats", type=int, default=9, help="medians are of so many rows")
    options = parser.parse_args()
    try:
        driver: Driver = ThreadDriver() if options.threads else cuda()
        print(f"{'schedule':10} {'bytes':>7} {'interpreted':>12} {'generated':>10} {'ratio':>6}   microseconds a call")
        for name in ("one_shot", "two_shot", "ring"):
            program = lower(algorithms()[name](options.n))
            for size in SIZES:
                interpreted, generated = measure(program, size, driver, times=options.times, repeats=options.repeats)
                print(
                    f"{name:10} {size:7} {interpreted:12.1f} {generated:10.1f} {interpreted / generated:6.2f}",
                    flush=True,
                )
    except AlgoccError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
