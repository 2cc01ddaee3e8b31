"""Parameters of any size: a schedule of a size to work with, or one clear error at once."""

from __future__ import annotations

import inspect
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import algocc
from algocc import catalog
from algocc.errors import AlgoccError

NUMBERS = [
    (name, parameter)
    for name, algorithm in algocc.algorithms().items()
    for parameter, p in inspect.signature(algorithm.write).parameters.items()
    if parameter != "n" and str(p.annotation) in ("int", "int | None")
]
LISTS = [
    (name, parameter)
    for name, algorithm in algocc.algorithms().items()
    for parameter in algorithm.parameters
    if (name, parameter) not in NUMBERS
]
SLIPS = st.one_of(st.integers(-(2**80), 2**80).filter(lambda x: abs(x) > 1 << 21), st.sampled_from([0, -1, 10**4000]))
LEAVES = st.one_of(SLIPS, st.integers(-2, 9), st.floats(), st.text(max_size=2), st.booleans(), st.none())
NESTED = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=9)


def test_parameters_are_found() -> None:
    assert {parameter for _, parameter in NUMBERS} >= {"root", "chunks", "radix", "group", "aggregate"}
    assert {parameter for _, parameter in LISTS} >= {"dims", "pairs", "counts"}


@pytest.mark.parametrize("name, parameter", NUMBERS)
@settings(max_examples=12)
@given(n=st.integers(1, 9), value=SLIPS)
def test_a_number(name: str, parameter: str, n: int, value: int) -> None:
    tracemalloc.start()
    try:
        s = catalog.build(name, n, **{parameter: value})
        assert len(s) < 10_000
    except AlgoccError as error:
        assert str(error).startswith(name) and "failed for" not in str(error)
    finally:
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("name, parameter", LISTS)
@given(n=st.integers(1, 5), value=NESTED)
def test_a_list(name: str, parameter: str, n: int, value: object) -> None:
    try:
        assert len(catalog.build(name, n, **{parameter: value})) < 10_000
    except AlgoccError as error:
        assert str(error).startswith(name), error
        assert "failed for" not in str(error), error
