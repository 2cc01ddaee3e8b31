"""How long a call takes, and the bandwidths that nccl-tests would print for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from algocc.collective import Collective
from algocc.errors import UsageError
from algocc.kernels.operators import Element
from algocc.program import Program


class Runs(Protocol):
    """A Program made ready, on threads or on GPUs."""

    program: Program
    count: int
    element: Element

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run once."""


@dataclass(frozen=True)
class Timing:
    """Times of some calls in µs, and bandwidths in GB/s (1e9 bytes a second) at the median.

    size: bytes S that the bandwidths count: the largest input or output of a rank.
    """

    median: float
    fastest: float
    slowest: float
    size: int
    algbw: float
    busbw: float


def bus_factor(collective: Collective) -> tuple[int, int]:
    """busbw over algbw as numerator and denominator: the share of S that the busiest link must carry.

    >>> from algocc.collective import all_reduce, broadcast
    >>> bus_factor(all_reduce(8)), bus_factor(broadcast(8))
    ((14, 8), (1, 1))
    """
    n = collective.n
    if collective.name == "all_reduce":
        return 2 * (n - 1), n
    if collective.name in ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "gather", "scatter"):
        return n - 1, n
    return 1, 1


def bandwidths(collective: Collective, size: int, microseconds: float) -> tuple[float, float]:
    """algbw and busbw in GB/s for S of `size` bytes; 0 where there was nothing to move.

    >>> from algocc.collective import all_gather
    >>> [round(b, 2) for b in bandwidths(all_gather(8), 128 << 20, 500)]
    [268.44, 234.88]
    """
    if microseconds <= 0:
        return 0.0, 0.0
    algbw = size / microseconds / 1e3
    up, down = bus_factor(collective)
    return algbw, algbw * up / down


def measure(
    ready: Runs,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    iters: int = 20,
    warmup: int = 1,
) -> Timing:
    """Time `iters` calls one by one, after `warmup` calls that are not counted.

    Raises UsageError for fewer than 1 call, and as the call does.
    """
    if iters < 1 or warmup < 0:
        raise UsageError(f"iters={iters}, warmup={warmup}: wanted 1 call or more, after 0 or more")
    for _ in range(warmup):
        ready(inputs, outputs)
    times = []
    for _ in range(iters):
        begin = time.perf_counter_ns()
        ready(inputs, outputs)
        times.append((time.perf_counter_ns() - begin) / 1e3)
    collective = ready.program.collective
    size = collective.vector * ready.count * ready.element.size
    middle = median(times)
    algbw, busbw = bandwidths(collective, size, middle)
    return Timing(middle, min(times), max(times), size, algbw, busbw)
