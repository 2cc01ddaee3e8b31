"""The order of reductions against the reference's expression trees, and against rounded sums done by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from algocc import reference
from algocc.catalog import algorithms
from algocc.collective import all_reduce
from algocc.steps import Steps
from algocc.table import Schedule, layout
from algocc.testing import schedules
from algocc.verifier import verify
from algocc.verifier.dataflow import held_values, trace
from algocc.verifier.order import expression, gamma


def unordered(tree: Any) -> Any:
    """A tree with the operands of each reduction in a fixed order."""
    left, right = tree
    if isinstance(left, int):
        return tree
    return tuple(sorted((unordered(left), unordered(right)), key=repr))


@given(schedules(4))
@settings(max_examples=100)
def test_equal_on_all_ranks_means_equal_trees(s: Schedule) -> None:
    assume(s.collective.reduces)
    report = verify(s, program=False, reduction_order=True)
    assert report.correct and report.order
    trees: dict[Any, set[str]] = {}
    for (rank, chunk), tree in reference.expressions(s).outputs().items():
        want = tuple(sorted(reference.wanted(s.collective, rank, chunk).elements()))
        trees.setdefault(want, set()).add(repr(unordered(tree)))
    assert report.order.same_on_all_ranks == all(len(t) == 1 for t in trees.values())


def rotated(n: int) -> Schedule:
    """One-shot AllReduce in which each rank starts from its own vector, as some libraries shipped it."""
    s = Steps(all_reduce(n), name="rotated")
    with s.step():
        for hop in range(1, n):
            for rank in range(n):
                s.reduce(src=(rank + hop) % n, dst=rank, chunk=0)
    return s.build()


def test_a_rotated_one_shot_leaves_ranks_with_different_bits() -> None:
    """[1e8, 1, -1e8, 1] in float32: rotated sums are 1, 0, 1, 0; in rank order every rank gets 1."""
    assert not verify(rotated(4), reduction_order=True).order.same_on_all_ranks  # type: ignore[union-attr]
    assert verify(algorithms()["one_shot"](4), reduction_order=True).order.same_on_all_ranks  # type: ignore[union-attr]
    x = np.array([1e8, 1, -1e8, 1], np.float32)
    for s, wanted in ((rotated(4), [1, 0, 1, 0]), (algorithms()["one_shot"](4), [1, 1, 1, 1])):
        state = reference.execute(s, in_place=False, leaf=lambda rank, chunk: x[rank], combine=lambda a, b: a + b)
        assert [float(v) for v in state.outputs().values()] == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "everywhere"),
    [
        ("one_shot", "r0 + r1 + r2 + r3", True),
        ("recursive_doubling", "r0 + r1 + (r2 + r3)", True),
        ("ring", "r2 + r1 + r3 + r0", False),
    ],
)
def test_expressions_read_as_people_write_them(name: str, text: str, everywhere: bool) -> None:
    s = algorithms()[name](4).matched()
    t = trace(s, layout(s))
    assert expression(s.collective, t, int(held_values(layout(s), t)[0])) == text
    report = verify(s, reduction_order=True)
    assert report.order is not None and report.order.same_for_all_chunks == everywhere
    assert text in report.order_text


def test_swapped_operands_make_no_difference() -> None:
    s = algorithms()["recursive_doubling"](4)
    action = np.where(s.action == 2, 1, s.action)
    assert verify(replace(s, action=action), reduction_order=True).order.same_on_all_ranks  # type: ignore[union-attr]


def test_the_error_bound_is_the_textbook_one() -> None:
    assert float(gamma(1, "float64")) == pytest.approx(2.0**-53)
    assert gamma(8, "float32") > 8 * gamma(1, "float32")


def test_the_error_bound_holds_for_every_tree_of_a_sample() -> None:
    rng = np.random.default_rng(0)
    for name in ("ring", "recursive_doubling", "double_binary_tree"):
        s = algorithms()[name](8)
        depth = verify(s, program=False).depth
        for _ in range(20):
            x = rng.standard_normal((8, 64)).astype(np.float32)
            state = reference.execute(s, in_place=False, leaf=lambda r, c, x=x: x[r, c % 64], combine=lambda a, b: a + b)
            for (_, chunk), got in state.outputs().items():
                terms = x[:, chunk % 64].astype(np.float64)
                assert abs(float(got) - terms.sum()) <= float(gamma(depth, "float32")) * np.abs(terms).sum() + 1e-15
