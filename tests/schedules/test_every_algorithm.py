"""Every algorithm of the catalogue: right for every n, root and place of the buffers, and as costly as it says."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from fractions import Fraction
from functools import cache
from importlib import import_module

import numpy as np
import pytest

import algocc.schedules
from algocc.bounds import bound
from algocc.decorator import Algorithm
from algocc.errors import UsageError
from algocc.schedules import arithmetic
from algocc.steps import Steps, Transfer
from algocc.table import form_failures, layout
from algocc.verifier.dataflow import judge, trace


@cache
def algorithms() -> dict[str, Algorithm]:
    """Every algorithm that a module of the catalogue defines, by its public name."""
    found = {}
    for module in pkgutil.iter_modules(algocc.schedules.__path__):
        for name, value in vars(import_module(f"algocc.schedules.{module.name}")).items():
            if isinstance(value, Algorithm):
                assert found.setdefault(name, value) is value, f"two algorithms are called {name}"
    return found


COUNTS = [[1, 0, 4, 2], [0, 3, 1, 0], [6, 2, 0, 2], [0, 0, 0, 0]]

VARIANTS = {
    "bruck_all_to_all": [{"radix": 3}, {"radix": 40}],
    "chain_broadcast": [{"chunks": 1}],
    "chain_reduce": [{"chunks": 1}],
    "circulant_broadcast": [{"chunks": 1}, {"chunks": 13}],
    "circulant_reduce": [{"chunks": 1}, {"chunks": 13}],
    "colored_all_to_all_v": [{"counts": COUNTS}],
    "binary_tree": [{"chunks": 1}],
    "double_binary_tree": [{"chunks": 1}],
    "halo_2d": [{"dims": (4, 6)}, {"dims": (1, 5)}],
    "hierarchical_all_gather": [{"group": 3}],
    "hierarchical_all_reduce": [{"group": 3}, {"group": 8}],
    "hierarchical_reduce_scatter": [{"group": 3}],
    "knomial_broadcast": [{"radix": 2}, {"radix": 3}, {"radix": 40}],
    "knomial_reduce": [{"radix": 2}, {"radix": 3}],
    "leader_all_reduce": [{"group": 3}, {"group": 8}],
    "pat_all_gather": [{"aggregate": 1}, {"aggregate": 2}, {"aggregate": 64}],
    "pat_reduce_scatter": [{"aggregate": 1}, {"aggregate": 2}, {"aggregate": 64}],
    "rail_aligned_all_reduce": [{"group": 3}],
    "recursive_multiplying": [{"radix": 2}, {"radix": 3}, {"radix": 40}],
    "send_recv": [{"pairs": [(0, 2), (0, 1), (2, 2), (1, 0), (3, 0)]}],
    "torus": [{"dims": (2, 3, 4)}, {"dims": (8, 2)}, {"dims": (3, 1, 5)}],
    "tree_broadcast": [{"chunks": 1}],
    "tree_reduce": [{"chunks": 1}],
    "two_level_all_to_all": [{"group": 3}, {"group": 8}],
    "two_tree_broadcast": [{"chunks": 1}],
    "two_tree_reduce": [{"chunks": 1}],
}
"""Parameters to try besides the defaults."""

CASES = [(name, params) for name in algorithms() for params in [{}, *VARIANTS.get(name, [])]]
IDS = ["-".join([name, *(f"{k}={v}".replace(" ", "") for k, v in params.items())]) for name, params in CASES]

COSTLY = [
    "bruck_all_to_all", "bruck_reduce_scatter", "colored_all_to_all_v", "neighbor_exchange_reduce_scatter",
    "reduce_scatter_gather", "ring_all_to_all",
]  # fmt: skip
"""Too costly for a thousand ranks."""

PLAIN = {"halo_1d", "halo_2d", "send_recv"}
"""Those that need no paper."""


class Exact(ast.NodeTransformer):
    """Makes every division one of Fractions."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            node.left = ast.Call(ast.Name("Fraction", ast.Load()), [node.left], [])
        return node


def evaluate(algorithm: Algorithm, formula: str, n: int, params: dict) -> Fraction:
    """The value of `steps` or `sent`: names are those of the catalogue's arithmetic and of the algorithm's own file."""
    tree = ast.fix_missing_locations(Exact().visit(ast.parse(formula, mode="eval")))
    known = {**vars(arithmetic), **algorithm.write.__globals__, "Fraction": Fraction}
    known |= {"n": n, "d": arithmetic.ceil_log(n), **defaults(algorithm), **params}
    return Fraction(eval(compile(tree, formula, "eval"), known))


def defaults(algorithm: Algorithm) -> dict:
    signature = inspect.signature(algorithm.write).parameters
    return {name: p.default for name, p in signature.items() if name != "n"}


def built(algorithm: Algorithm, n: int, params: dict):
    """The schedule, or None for an n that the algorithm says it does not take."""
    try:
        return algorithm(n, **params)
    except UsageError:
        if algorithm.takes or "pairs" in params:
            return None
        raise


def follow(s, *, in_place=False):
    """The trace and the outcome of a schedule that must be right."""
    assert not form_failures(s)
    places = layout(s, in_place=in_place)
    t = trace(s, places)
    assert not len(t.trouble), f"{s}: kind, row, chunk = {t.trouble[0]} ({s.source(int(t.trouble[0][1]))})"
    outcome = judge(s, places, t)
    assert not len(outcome.wrong), f"{s}: wrong outputs {outcome.wrong[:5]}"
    return t, outcome


def check_cost(algorithm: Algorithm, s, t, params: dict) -> None:
    if s.n == 1:
        assert (t.rounds, t.sent.max()) == (0, 0)
        return
    sent = Fraction(int(t.sent.max()), s.collective.vector * s.collective.chunks)
    assert evaluate(algorithm, algorithm.steps, s.n, params) == t.rounds, f"{s}: steps"
    assert evaluate(algorithm, algorithm.sent, s.n, params) == sent, f"{s}: sent"


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_right_and_as_costly_as_it_says(name, params):
    algorithm = algorithms()[name]
    taken = 0
    for n in range(1, 34):
        roots = [None]
        if "root" in algorithm.parameters:
            roots = range(n) if n <= 9 else [0, n // 3, n - 1]
        for root in roots:
            s = built(algorithm, n, params | ({} if root is None else {"root": root}))
            if s is None:
                continue
            taken += 1
            assert s.collective.name == algorithm.collective
            t, _ = follow(s)
            check_cost(algorithm, s, t, params)
            if len(s.collective.alias):
                follow(s, in_place=True)
    assert taken >= (1 if params else 6)


@pytest.mark.parametrize("name", algorithms())
def test_formulae_up_to_64_ranks(name):
    algorithm = algorithms()[name]
    for n in range(34, 65):
        if (s := built(algorithm, n, {})) is not None:
            check_cost(algorithm, s, trace(s, layout(s)), {})


@pytest.mark.parametrize("name", algorithms())
@pytest.mark.parametrize("n", [96, 127, 1000, 1024])
def test_formulae_of_large_n(name, n):
    algorithm = algorithms()[name]
    if (n < 1000 or name not in COSTLY) and (s := built(algorithm, n, {})) is not None:
        t, _ = follow(s)
        check_cost(algorithm, s, t, {})


@pytest.mark.parametrize("name", algorithms())
def test_nothing_beats_the_lower_bounds(name):
    algorithm = algorithms()[name]
    for n in (2, 3, 6, 8, 13, 16):
        if (s := built(algorithm, n, {})) is None or algorithm.collective == "send_recv":
            continue
        t, _ = follow(s)
        m = s.collective.vector * s.collective.chunks
        counts, blocks = s.collective.params.get("counts"), max(1, m // max(1, t.largest))
        best = bound(algorithm.collective, n, ports=t.ports, blocks=blocks, counts=counts)
        assert t.rounds >= best.rounds
        for measured, least in ((t.sent, best.sent), (t.received, best.received), (t.reduced, best.reduced)):
            assert Fraction(int(measured.max()), m) >= least


@pytest.mark.parametrize("name", algorithms())
def test_documented(name):
    algorithm = algorithms()[name]
    assert algorithm.name == name
    assert algorithm.doc.endswith(".")
    assert algorithm.steps
    assert algorithm.sent
    file = inspect.getsource(inspect.getmodule(algorithm.write))
    assert name in PLAIN or re.search(r"\b(19|20)\d\d\b|arXiv:", file), "who published it, and when?"


@pytest.mark.parametrize("name", algorithms())
def test_rules_say_the_same_of_ints_and_of_arrays(name, monkeypatch):
    rules = []
    monkeypatch.setattr(Steps, "rule", lambda self, rule, *, steps, **how: rules.append((rule, steps)))
    for n in (2, 6, 8):
        rules.clear()
        built(algorithms()[name], n, {})
        for rule, steps in rules:
            rank, step = np.arange(n)[None, :], np.arange(steps)[:, None]
            for t in range(steps):
                for r in range(n):
                    one = arithmetic.listed(rule(r, t, n))
                    for a, b in zip(one, arithmetic.listed(rule(rank, step, n)), strict=True):
                        picked = [at(column, t, r, (steps, n)) for column in b[:5]]
                        assert bool(a.when) == bool(picked[4])
                        if a.when:
                            assert [a.peer, a.chunk, a.to, a.count] == picked[:4]
                            assert a.action == b.action


def at(column, t, r, shape):
    return None if column is None else np.broadcast_to(column, shape)[t, r]


def test_a_rule_may_send_several_times_and_say_what_each_does():
    collective = algorithms()["one_shot"](3).collective

    def both(rank, step, n):
        return [
            Transfer((rank + 1) % n, 0, when=step == 0, action="prereduce"),
            Transfer((rank - 1) % n, 0, when=step >= 0),
        ]

    by_rule = Steps(collective, name="both")
    by_rule.rule(both, steps=2, action="reduce")
    by_hand = Steps(collective, name="both")
    r = np.arange(3)
    with by_hand.step():
        by_hand.prereduce(src=r, dst=(r + 1) % 3, chunk=0)
        by_hand.reduce(src=r, dst=(r - 1) % 3, chunk=0)
    with by_hand.step():
        by_hand.reduce(src=r, dst=(r - 1) % 3, chunk=0)
    a, b = by_rule.build(), by_hand.build()
    assert all(np.array_equal(a.columns[k], b.columns[k]) for k in a.columns if k != "origin")
