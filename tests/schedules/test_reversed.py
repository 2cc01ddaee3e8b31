"""Time reversal takes each algorithm to one of the opposite collective, at the same cost."""

from __future__ import annotations

import pytest

from algocc.algebra import reversed
from algocc.catalog import algorithms
from algocc.errors import UsageError
from algocc.verifier import verify

OPPOSITE = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "broadcast": "reduce",
    "reduce": "broadcast",
    "gather": "scatter",
    "scatter": "gather",
}
NAMES = sorted(name for name, a in algorithms().items() if a.collective in OPPOSITE)


@pytest.mark.parametrize("name", NAMES)
def test_reversed(name: str) -> None:
    algorithm = algorithms()[name]
    for n in (1, 2, 3, 4, 6, 7, 8, 12, 16):
        try:
            there = algorithm(n)
        except UsageError:
            continue
        back = reversed(there)
        assert n == 1 or back.collective.name == OPPOSITE[algorithm.collective]
        forth, report = verify(there, program=False), verify(back, program=False)
        assert report.correct, report.failures
        assert (report.steps, report.transfers) == (forth.steps, forth.transfers)
        assert (report.sent_max, report.received_max) == (forth.received_max, forth.sent_max)
        if len(back.collective.alias):
            assert verify(back, in_place=True, program=False).correct
