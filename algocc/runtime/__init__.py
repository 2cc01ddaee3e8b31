"""Run a Program on real arrays: CPU threads, an oracle to compare with, and a stopwatch."""

from algocc.runtime.geometry import buffer_elements, in_place_buffers
from algocc.runtime.measure import Timing, bandwidths, measure
from algocc.runtime.oracle import count_wrong, expected, make_inputs
from algocc.runtime.threads import Threads, run

__all__ = [
    "Threads",
    "Timing",
    "bandwidths",
    "buffer_elements",
    "count_wrong",
    "expected",
    "in_place_buffers",
    "make_inputs",
    "measure",
    "run",
]
