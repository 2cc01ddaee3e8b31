"""Bandwidths as nccl-tests define them, and a stopwatch that only has to be consistent."""

import numpy as np
import pytest

from algocc.collective import COLLECTIVES, all_gather, all_reduce, collective
from algocc.errors import UsageError
from algocc.lowering import lower
from algocc.runtime import Threads, bandwidths, measure
from algocc.runtime.measure import bus_factor
from algocc.schedules.ring import ring


def test_the_two_columns_of_nccl_tests():
    assert bandwidths(all_gather(8), 128 << 20, 500) == pytest.approx((268.44, 234.88), abs=0.005)
    assert bandwidths(all_reduce(8), 64 << 20, 400) == pytest.approx((167.77, 293.60), abs=0.005)
    assert bandwidths(all_reduce(8), 0, 0) == (0, 0)


def test_bus_factors():
    found = {
        name: bus_factor(collective(name, 4, **({"counts": [[1] * 4] * 4} if name.endswith("_v") else {})))
        for name in COLLECTIVES
    }
    some = {name for name, factor in found.items() if factor == (3, 4)}
    assert some == {"all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "gather", "scatter"}
    assert found["all_reduce"] == (6, 4)
    assert {factor for name, factor in found.items() if name not in some | {"all_reduce"}} == {(1, 1)}


def test_a_timing_adds_up():
    with Threads(lower(ring(2)), count=1000) as threads:
        inputs = [np.ones(1000, np.float32) for _ in range(2)]
        outputs = [np.zeros(1000, np.float32) for _ in range(2)]
        timing = measure(threads, inputs, outputs, iters=5)
        assert timing.fastest <= timing.median <= timing.slowest
        assert timing.size == 4000
        assert (timing.algbw, timing.busbw) == bandwidths(threads.program.collective, 4000, timing.median)
        with pytest.raises(UsageError, match="iters=0, warmup=1: wanted 1 call or more"):
            measure(threads, inputs, outputs, iters=0)
