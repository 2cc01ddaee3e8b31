"""Run a Program on real arrays: ranks that call for themselves, threads under one call, an oracle, and a stopwatch."""

from algocc.runtime.communicator import Communicator
from algocc.runtime.geometry import buffer_elements, in_place_buffers
from algocc.runtime.launch import spawn
from algocc.runtime.measure import Timing, bandwidths, measure
from algocc.runtime.oracle import count_wrong, expected, make_inputs
from algocc.runtime.threads import Threads, run

__all__ = [
    "Communicator",
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
    "spawn",
]
