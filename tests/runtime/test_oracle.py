"""The oracle against an element-by-element reading of the postcondition, and inputs for which sums are exact."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.collective import all_gather, all_reduce, barrier, reduce_scatter, scan
from algocc.errors import UsageError
from algocc.kernels.operators import ELEMENTS, OPERATORS, refusal
from algocc.runtime import buffer_elements, count_wrong, expected, make_inputs
from algocc.testing import collectives


@settings(max_examples=60, deadline=None)
@given(collectives(), st.integers(0, 5))
def test_every_element_is_the_sum_of_what_is_wanted(c, count):
    count = 1 if c.name == "barrier" else count
    inputs = make_inputs(c, count, "int64")
    outputs = expected(c, inputs)
    assert [len(a) for a in outputs] == buffer_elements(c, count)[1]
    sizes = (c.sizes * count).tolist()
    for rank in range(c.n):
        at = 0
        for block in range(int(c.outputs[rank])):
            total = None
            for r, b in c.wanted(rank, block):
                first = int(c.input_start[r])
                begin = sum(sizes[first : first + b])
                part = inputs[r][begin : begin + sizes[first + b]]
                total = part.copy() if total is None else total + part
            assert outputs[rank][at : at + len(total)].tolist() == total.tolist()
            at += len(total)


def shares(a, n):
    """a / n, part by part for complex numbers."""
    wide = a.astype(complex if a.dtype.kind == "c" else float)
    return (wide.view(float) / n).view(wide.dtype).astype(a.dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 300, 1000])
@pytest.mark.parametrize("dtype", [e.name for e in ELEMENTS.values() if e.kind in ("float", "complex")])
@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
def test_sums_of_made_inputs_are_exact(op, dtype, n):
    """The same from the left, from the right and in exact fractions."""
    inputs = make_inputs(all_reduce(n), 40, dtype, op, seed=n)
    assert sum(int(np.count_nonzero(a)) for a in inputs) > 0 or op == "avg"
    kind = ELEMENTS[dtype].numpy
    parts = [shares(a, n) for a in inputs] if op == "avg" else inputs
    left = right = None
    for a, b in zip(parts, reversed(parts), strict=True):
        combine = np.multiply if op == "prod" else np.add
        left = a if left is None else combine(left, a).astype(kind)
        right = b if right is None else combine(b, right).astype(kind)
    assert left.tobytes() == right.tobytes() or (left == right).all()
    assert count_wrong(expected(all_reduce(n), inputs, op), [left] * n) == 0
    if op == "sum":
        for i in range(40):
            exact = sum(Fraction(float(a[i].real)) for a in inputs)
            assert Fraction(float(left[i].real)) == exact


def test_made_inputs_repeat():
    for o in OPERATORS.values():
        for e in ELEMENTS.values():
            if refusal(o, e) is None:
                once, again = (make_inputs(all_gather(2), 9, e.name, o.name, seed=4) for _ in range(2))
                assert all(
                    a.tobytes() == b.tobytes() and a.dtype == e.numpy
                    for a, b in zip(once, again, strict=True)
                )
    with pytest.raises(UsageError, match="not defined for dtype bool"):
        make_inputs(all_reduce(2), 3, "bool", "avg")


def test_expected_by_hand():
    x = [np.array([1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16], np.int32)] * 2
    assert [a.tolist() for a in expected(reduce_scatter(2), x)] == [
        [2, 4, 6, 8, 10, 12],
        [22, 24, 26, 28, 30, 32],
    ]
    y = [np.array([v], np.int32) for v in (3, -8, 1)]
    assert [a.tolist() for a in expected(scan(3), y)] == [[3], [-5], [-4]]
    assert [a.tolist() for a in expected(all_reduce(3), y, "avg")] == [[-1]] * 3
    assert [a.tolist() for a in expected(barrier(2), [np.array([True]), np.array([False])], "land")] == [
        [False]
    ] * 2


def test_what_counts_as_wrong():
    a = [np.array([1.0, np.nan, 3.0], np.float32)]
    assert count_wrong(a, [a[0].copy()]) == 0
    assert count_wrong(a, [np.array([np.nan, np.nan, 4.0], np.float32)]) == 2
    with pytest.raises(UsageError, match="1 outputs, 2 expected"):
        count_wrong(a, a * 2)
    with pytest.raises(UsageError, match=r"rank 0: output of float32 \(3,\), expected float64 \(3,\)"):
        count_wrong(a, [np.zeros(3)])
