"""The catalogue at work: any algorithm, operator, type, count and place of the buffers gives what NumPy does."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from algocc.catalog import algorithms
from algocc.errors import UsageError
from algocc.kernels.operators import ELEMENTS, OPERATORS, refusal
from algocc.lowering import lower
from algocc.runtime import Threads, expected, make_inputs, run
from algocc.testing.conformance import Case, check_case

PAIRS = [(o, e) for o in OPERATORS.values() for e in ELEMENTS.values() if refusal(o, e) is None]
REDUCING = {"all_reduce", "reduce_scatter", "reduce", "scan", "exscan", "barrier"}
AVERAGING = {"all_reduce", "reduce_scatter", "reduce"}
"""Collectives whose every output is of all ranks."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A Program of the catalogue, with its own parameters, and what to run it on."""
    algorithm = algorithms()[draw(st.sampled_from(sorted(algorithms())))]
    n = draw(st.integers(1, 9))
    values = {
        "root": st.integers(0, n - 1),
        "chunks": st.integers(1, 5),
        "radix": st.integers(2, 5),
        "aggregate": st.sampled_from([1, 2, 8]),
        "group": st.sampled_from([g for g in range(1, n + 1) if n % g == 0]),
    }
    params = {key: draw(values[key]) for key in algorithm.parameters if key in values}
    try:
        schedule = algorithm(n, **params)
    except UsageError:
        assume(False)
    in_place = len(schedule.collective.alias) > 0 and draw(st.booleans())
    name = schedule.collective.name
    op, kind = draw(
        st.sampled_from([
            (o, e)
            for o, e in PAIRS
            if (o.name != "avg" or name in AVERAGING or name not in REDUCING)
            and (not schedule.collective.idempotent or o.idempotent)
        ])
    )  # fmt: skip
    count = 1 if name == "barrier" else draw(st.sampled_from([0, 1, 2, 7, 16, 61]))
    event(f"{name}, {'in place' if in_place else 'out of place'}")
    program = lower(schedule, in_place=in_place, lanes=draw(st.integers(1, 2)))
    return Case(program, count, kind.name, op.name, calls=2)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(cases(), st.sampled_from([16, 64, 1 << 20]))
def test_the_outputs_are_numpys(case: Case, tile_bytes: int) -> None:
    def threads(*args, **options):
        return Threads(*args, **options, tile_bytes=tile_bytes, timeout=20)

    check_case(threads, case)


def test_the_oracle_is_numpy_itself() -> None:
    """What the above compares with, spelled out for each collective that reduces or moves blocks."""
    n, count = 5, 3
    wanted = {
        "all_reduce": lambda x, r: x.sum(0),
        "reduce_scatter": lambda x, r: x.sum(0).reshape(n, -1)[r],
        "all_gather": lambda x, r: x.ravel(),
        "broadcast": lambda x, r: x[0],
        "reduce": lambda x, r: x.sum(0) if r == 0 else x[0, :0],
        "scatter": lambda x, r: x[0].reshape(n, -1)[r],
        "gather": lambda x, r: x.ravel() if r == 0 else x[0, :0],
        "all_to_all": lambda x, r: x.reshape(n, n, -1)[:, r].ravel(),
        "scan": lambda x, r: x[: r + 1].sum(0),
        "exscan": lambda x, r: x[:r].sum(0) if r else x[0, :0],
    }
    for algorithm in algorithms().values():
        if algorithm.collective not in wanted:
            continue
        try:
            program = lower(algorithm(n))
        except UsageError:
            continue
        data = make_inputs(program.collective, count, "int64")
        size = max(len(a) for a in data)
        stacked = np.stack([a if len(a) else np.zeros(size, np.int64) for a in data])
        outputs = run(program, data)
        for rank, (out, oracle) in enumerate(zip(outputs, expected(program.collective, data), strict=True)):
            assert out.tolist() == oracle.tolist() == wanted[algorithm.collective](stacked, rank).tolist()
