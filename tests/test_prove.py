"""Proofs for every n: what is proved is right for all n that can be tried, and nothing wrong is ever proved."""

from __future__ import annotations

import ast
import json
import os
import random
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

z3 = pytest.importorskip("z3", reason="z3 is not installed (extra `prove`)")

import numpy as np  # noqa: E402

from algocc import catalog, collective  # noqa: E402
from algocc.cli import main  # noqa: E402
from algocc.collective import Buffer  # noqa: E402
from algocc.decorator import Algorithm  # noqa: E402
from algocc.errors import UsageError  # noqa: E402
from algocc.symbolic import confirm  # noqa: E402
from algocc.symbolic.number import Number  # noqa: E402
from algocc.symbolic.proof import prove  # noqa: E402
from algocc.symbolic.record import rebound  # noqa: E402
from algocc.symbolic.series import Sum, term_of  # noqa: E402
from algocc.symbolic.task import TASKS  # noqa: E402
from algocc.symbolic.theory import ground, pow2  # noqa: E402
from algocc.symbolic.world import Unprovable, World  # noqa: E402
from algocc.verifier import verify  # noqa: E402

EVERY_N = [
    "ring", "ring_reduce_scatter", "ring_all_gather", "bidirectional_ring", "unchunked_ring", "one_shot", "two_shot",
    "all_pairs_reduce_scatter", "all_pairs_all_gather", "direct_all_to_all", "shifted_all_to_all", "recursive_doubling",
    "rabenseifner",
]  # fmt: skip
EVERY_ROOT = ["chain_broadcast", "chain_reduce"]
EVERY_POWER = ["recursive_halving_reduce_scatter", "recursive_doubling_all_gather"]
STEPS = {"ring": "2*(n - 1)", "one_shot": "1", "two_shot": "2", "shifted_all_to_all": "n - 1"}
"""Formulae for the number of steps that are proved too."""

SOURCES = Path(__file__).parent.parent / "schedules"


@pytest.mark.timeout(900)  # rabenseifner asks the solver some four hundred questions
@pytest.mark.parametrize("name", [*EVERY_N, *EVERY_ROOT, *EVERY_POWER])
def test_proved(name: str) -> None:
    proof = prove(catalog.load(name), timeout=60)
    bad = [o for o in proof.obligations if o.status != "ok"]
    assert (proof.status, proof.reason, bad) == ("proved", "", [])
    domain = {
        **dict.fromkeys(EVERY_ROOT, "every n ≥ 1, every root, any number of chunks ≥ 1"),
        **dict.fromkeys(EVERY_POWER, "every n ≥ 1 that it takes (n a power of two)"),
    }
    assert proof.domain == domain.get(name, "every n ≥ 1")
    if name in STEPS:
        assert proof.steps == STEPS[name]


@pytest.mark.parametrize("name", [*EVERY_N, *EVERY_ROOT, *EVERY_POWER])
def test_what_is_proved_is_right(name: str) -> None:
    """For n from 1 to 24 the schedule verifies, and the invariant says what is there."""
    free = EVERY_ROOT and ("root", "chunks") if name in EVERY_ROOT else ()
    assert confirm.counterexample(catalog.load(name), {}, free, []) is None


# Nothing wrong is proved: every slip in a rule, an invariant or the function that writes the schedule.

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.LtE: ast.Lt, ast.Lt: ast.LtE, ast.Mod: ast.FloorDiv, ast.BitOr: ast.BitAnd}
WORDS = {"reduce": "copy", "copy": "reduce", "prereduce": "copy", "scratch": "out", "out": "scratch"}
NAMES = {"FINISHED": "ANYTHING", "ANYTHING": "FINISHED", "up_to": "onward", "onward": "up_to", "sharing": "agreeing"}


def mutants(source: str, functions: set[str]) -> Iterator[tuple[str, str]]:
    """(what was changed, the file with one slip) for every place in these functions where a pen may slip."""
    places = len(list(_places(ast.parse(source), functions)))
    for at in range(places):
        for way in (0, 1):
            tree = ast.parse(source)
            node = list(_places(tree, functions))[at]
            said = _slip(node, way)
            if said:
                yield f"line {node.lineno}: {said}", ast.unparse(ast.fix_missing_locations(tree))


def _places(tree: ast.Module, functions: set[str]) -> Iterator[ast.AST]:
    for top in tree.body:
        if isinstance(top, ast.FunctionDef) and top.name in functions:
            decorated = {id(n) for d in top.decorator_list for n in ast.walk(d)}
            yield from (n for n in ast.walk(top) if hasattr(n, "lineno") and id(n) not in decorated)


def _slip(node: ast.AST, way: int) -> str:
    match node:
        case ast.Constant(value=bool()):
            return ""
        case ast.Constant(value=int(value)):
            node.value = value + (1, -1)[way]
            return f"{value} becomes {node.value}"
        case ast.Constant(value=str(word)) if word in WORDS and way == 0:
            node.value = WORDS[word]
            return f"{word} becomes {node.value}"
        case ast.BinOp(op=op) if type(op) in SWAPS and way == 0:
            node.op = SWAPS[type(op)]()
            return f"{type(op).__name__} becomes {type(node.op).__name__}"
        case ast.Compare(ops=[op]) if type(op) in SWAPS and way == 0:
            node.ops = [SWAPS[type(op)]()]
            return f"{type(op).__name__} becomes {type(node.ops[0]).__name__}"
        case ast.Name(id=name) if name in NAMES and way == 0:
            node.id = NAMES[name]
            return f"{name} becomes {node.id}"
    return ""


FAMILIES = {
    "ring": ("ring", {"collect", "collected", "spread", "spread_so_far", "ring"}),
    "ring_reduce_scatter": ("ring", {"collect", "collected", "ring_reduce_scatter"}),
    "ring_all_gather": ("ring", {"spread", "spread_so_far", "ring_all_gather"}),
    "unchunked_ring": ("ring", {"set_out", "set_out_to", "pass_on", "added_up", "in_transit", "unchunked_ring"}),
    "one_shot": ("all_pairs", {"to_slots", "slotted", "first_slot", "other_slots", "one_shot"}),
    "two_shot": ("all_pairs", {"to_owners", "owned", "from_owners", "two_shot"}),
    "direct_all_to_all": ("all_to_all", {"shift", "all_shifts", "direct_all_to_all"}),
    "shifted_all_to_all": ("all_to_all", {"shift", "shifted", "settle", "shifted_all_to_all"}),
    "chain_broadcast": ("chain", {"down", "passed_down", "chain_broadcast"}),
    "chain_reduce": ("chain", {"up", "passed_up", "chain_reduce"}),
    "recursive_doubling_all_gather": ("recursive", {"double_by_distance", "doubled_by_distance"}),
    "recursive_halving_reduce_scatter": ("recursive", {"halve_by_distance", "halved_by_distance"}),
    "recursive_doubling": ("recursive", {"exchange", "agreed", "folded", "to_leader", "leader", "run_of"}),
    "rabenseifner": ("recursive", {"halve", "halved", "kept", "unhalve", "unhalved"}),
}


def all_mutants(name: str) -> list[tuple[str, str]]:
    file, functions = FAMILIES[name]
    return list(mutants((SOURCES / f"{file}.py").read_text(encoding="utf-8"), functions))


def judge_mutant(name: str, text: str, path: Path) -> str:
    """The verdict of the prover on a file with a slip; fails if it is not borne out by what can be tried."""
    path.write_text(text, encoding="utf-8")
    algorithm = catalog.load(f"{path}:{name}")
    free = tuple(p for p in algorithm.parameters if p in ("root", "chunks"))
    proof = prove(algorithm, timeout=5)
    wrong = confirm.counterexample(algorithm, {}, free, [])
    if proof.status == "proved":
        assert wrong is None or wrong.of == "invariant" and "holds nothing" not in wrong.reason, wrong
    elif wrong is not None:
        assert proof.status == "disproved"
        assert proof.counterexample is not None and proof.counterexample.n == wrong.n
    return proof.status


FEW = 30 if "ALGOCC_SLOW" in os.environ else 3


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("recursive_doubling", "rabenseifner")])
def test_no_slip_is_proved(name: str, tmp_path: Path) -> None:
    slips = all_mutants(name)
    verdicts = {
        said: judge_mutant(name, text, tmp_path / f"slip{i}_{name}.py")
        for i, (said, text) in enumerate(random.Random(name).sample(slips, min(FEW, len(slips))))
    }
    assert any(v == "disproved" for v in verdicts.values()), verdicts


# A wrong rule or invariant is named with a number of ranks.

WRONG = '''
from algocc import Steps, schedule
from algocc.collective import all_gather, all_reduce, broadcast
from algocc.invariant import ANYTHING, FINISHED, Holds, up_to, only
from algocc.schedules.ring import collect, collected, spread, spread_so_far

def late(rank, chunk, step, n):
    return FINISHED if (rank - chunk) % n <= step + 1 else ANYTHING

def early(rank, chunk, step, n):
    return FINISHED if (rank - chunk) % n < step else ANYTHING

@schedule(collective="all_gather")
def wrong_invariant(n):
    s = Steps(all_gather(n))
    s.rule(spread, steps=n - 1, invariant=late)
    return s

@schedule(collective="all_gather")
def weak_invariant(n):
    s = Steps(all_gather(n))
    s.rule(spread, steps=n - 1, invariant=early)
    return s

@schedule(collective="all_reduce")
def one_step_less(n):
    s = Steps(all_reduce(n, chunks=n))
    s.rule(collect, steps=n - 1, action="reduce", invariant=collected)
    s.rule(spread, steps=n - 2, invariant=spread_so_far)
    return s

@schedule(collective="all_reduce")
def twice(n):
    """Right as sets, wrong as multisets: the last step adds the owner's contribution again."""
    s = Steps(all_reduce(n, chunks=n))
    s.rule(collect, steps=n, action="reduce", invariant=collected)
    s.rule(spread, steps=n - 1, invariant=spread_so_far)
    return s

def skips(rank, step, n):
    total = 0
    for i in range(n):
        total = total + i
    return (rank + total) % n, 0

def carries(rank, step, n):
    return [(rank + 1, sum(x for x in range(n)))]

@schedule(collective="all_reduce")
def loop(n):
    s = Steps(all_reduce(n))
    s.rule(skips, steps=1, invariant=spread_so_far)
    return s

@schedule(collective="all_reduce")
def summed(n):
    s = Steps(all_reduce(n))
    s.rule(carries, steps=1, invariant=spread_so_far)
    return s

@schedule(collective="all_gather")
def bare(n):
    s = Steps(all_gather(n))
    s.rule(spread, steps=n - 1)
    return s

def right_below_30(rank, step, n):
    return (rank + 1 + (n > 29)) % n, (rank - step) % n

def two_faced(rank, step, n):
    return (rank + 1) % n, (rank - step * (1 if type(n).__name__ == "Number" else 2)) % n

@schedule(collective="all_gather")
def cheats(n):
    s = Steps(all_gather(n))
    s.rule(two_faced, steps=n - 1, invariant=spread_so_far)
    return s

@schedule(collective="all_gather")
def large(n):
    s = Steps(all_gather(n))
    s.rule(right_below_30, steps=n - 1, invariant=spread_so_far)
    return s
'''


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name, of, n, says",
    [
        ("wrong_invariant", "invariant", 3, "after 0 steps of spread"),
        ("one_step_less", "schedule", 2, "wanted"),
        ("twice", "schedule", 1, "wanted"),
        ("large", "schedule", 30, "wanted"),
        ("cheats", "schedule", 3, "wanted"),
    ],
)
def test_false(wrong: Path, name: str, of: str, n: int, says: str) -> None:
    proof = prove(catalog.load(f"{wrong}:{name}"))
    found = proof.counterexample
    assert proof.status == "disproved" and found is not None
    assert (found.of, found.n) == (of, n) and says in found.reason
    if of == "schedule":
        assert not verify(catalog.load(f"{wrong}:{name}")(n), program=False).correct


@pytest.mark.parametrize(
    "name, says",
    [
        ("weak_invariant", "spread"),
        ("loop", "range up to an unknown number: only as `return"),
        ("summed", "range up to an unknown number: only as `return"),
        ("bare", "spread has no invariant beside it; hand one to s.rule"),
        ("ring_all_to_all", "all_to_all.py"),
    ],
)
def test_not_proved(wrong: Path, name: str, says: str) -> None:
    """Unknown is said to be unknown, with the line and the reason; or it is false for some n."""
    proof = prove(catalog.load(name if name == "ring_all_to_all" else f"{wrong}:{name}"))
    if name in ("loop", "summed", "weak_invariant"):
        assert proof.status in ("unknown", "disproved")
    else:
        assert proof.status == "unknown"
    if proof.status == "unknown":
        assert says in proof.reason


def test_command(capsys: pytest.CaptureFixture[str], wrong: Path) -> None:
    assert main(["prove", "ring_all_gather"]) == 0
    out = capsys.readouterr().out
    assert "PROVED for every n ≥ 1: ring_all_gather" in out and "assumed:" in out
    assert main(["prove", f"{wrong}:twice"]) == 1
    assert "WRONG for n=1: " in capsys.readouterr().out
    assert main(["prove", f"{wrong}:bare"]) == 2
    assert "NOT PROVED, and not disproved either: " in capsys.readouterr().out
    assert main(["prove", "chain_broadcast", "--json", "-p", "chunks=4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["domain"]) == ("proved", "every n ≥ 1, every root")
    assert main(["prove", "ring", "-p", "root=1"]) == 2
    assert "unknown parameter 'root'" in capsys.readouterr().err


# The parts: what the proofs rest on.


@pytest.mark.parametrize("name", [n for n, c in collective.COLLECTIVES.items() if TASKS[c].__name__ == n])
def test_tasks_are_the_collectives(name: str) -> None:
    """The functions of `task` say what the arrays of `collective` say."""
    for n in range(1, 8):
        for root in range(n) if name in ("broadcast", "reduce", "scatter", "gather") else [None]:
            params = {} if root is None else {"root": root}
            whole = name in ("reduce_scatter", "all_gather", "scatter", "gather", "all_to_all")
            for chunks in [1] if whole else [1, 3]:
                c = collective.COLLECTIVES[name](n, chunks=chunks, **params)
                task = TASKS[collective.COLLECTIVES[name]](n, chunks=chunks, **params)
                assert [task.inputs(r) for r in range(n)] == (c.inputs * chunks).tolist()
                assert [task.outputs(r) for r in range(n)] == (c.outputs * chunks).tolist()
                names = {"in": Buffer.INPUT, "out": Buffer.OUTPUT, "scratch": Buffer.SCRATCH}
                assert (names[task.source], names[task.sink]) == (c.source, c.sink)
                assert task.work is None or task.work == c.work * chunks
                size = c.work * chunks if c.sink == Buffer.SCRATCH else int(c.outputs.max()) * chunks
                loaded = {(r, k): task.load_from(r, k) for r in range(n) for k in range(size) if task.loaded(r, k)}
                assert loaded == {
                    (r, b * chunks + j): a * chunks + j for r, a, b in c.load.tolist() for j in range(chunks)
                }
                stored = {(r, o) for r in range(n) for o in range(int(c.outputs[r]) * chunks)}
                if task.stored is None:
                    assert not len(c.store)
                else:
                    assert {(r, task.stored(r, o), o) for r, o in stored} == {
                        (r, a * chunks + j, b * chunks + j) for r, a, b in c.store.tolist() for j in range(chunks)
                    }
                for r, o in stored:
                    place = o if task.stored is None else task.stored(r, o)
                    holds = task.finished(r, place)
                    of = place if holds.of is None else holds.of
                    wanted = [(p, b * chunks + o % chunks) for p, b in c.wanted(r, o // chunks)]
                    assert [(p, of) for p in range(n) if holds.ranks(p)] == wanted


def value(term: object, numbers: dict[str, int], sums: dict[str, Sum] | None = None) -> int | bool:
    """What a formula means: an interpreter of its own, for given numbers."""
    t: z3.ExprRef = term  # type: ignore[assignment]
    arguments = [value(a, numbers, sums) for a in t.children()]
    name = t.decl().name()
    if z3.is_int_value(t):
        return t.as_long()
    if name in numbers and not arguments:
        return numbers[name]
    if sums and name in sums:
        s = sums[name]
        known = dict(zip((str(a) for a in s.args), arguments, strict=True))
        return sum(int(value(s.term, {**known, "i": i})) for i in range(int(value(s.end, known))))
    x = arguments
    meaning = {
        "pow2": lambda: 2 ** x[0] if x[0] >= 0 else 17,
        "down": lambda: x[0] // 2 ** x[1] * 2 ** x[1] if x[1] >= 0 else 18,
        "quo": lambda: x[0] // 2 ** x[1] if x[1] >= 0 else 19,
        "mod": lambda: x[0] % x[1] if x[1] != 0 else 20,
        "+": lambda: sum(x), "-": lambda: -x[0] if len(x) == 1 else x[0] - sum(x[1:]),
        "*": lambda: int(np.prod([*x], dtype=object)),
        "div": lambda: x[0] // x[1],
        "<=": lambda: x[0] <= x[1], "<": lambda: x[0] < x[1], ">=": lambda: x[0] >= x[1], ">": lambda: x[0] > x[1],
        "=": lambda: x[0] == x[1], "distinct": lambda: x[0] != x[1], "not": lambda: not x[0],
        "and": lambda: all(x), "or": lambda: any(x), "=>": lambda: (not x[0]) or x[1],
        "if": lambda: x[1] if x[0] else x[2], "true": lambda: True, "false": lambda: False,
    }  # fmt: skip
    return meaning[name]()


SMALL = st.integers(-9, 20)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_axioms_are_true(data: st.DataObject) -> None:
    """Every axiom that is ever written down is a true sentence, whatever the numbers: exponents below 0 as well."""
    from algocc.symbolic.theory import DOWN, MOD, QUO

    a, b, e, f = (z3.Int(name) for name in "abef")
    exponents = [e, f, e + 1, f - e, z3.IntVal(2)]
    terms = [a, b, a + b, a - 3]
    for _ in range(5):
        make = data.draw(st.sampled_from([DOWN, QUO, MOD, pow2]))
        x, k = data.draw(st.sampled_from(terms)), data.draw(st.sampled_from(exponents))
        terms.append(z3.simplify(pow2(k) if make is pow2 else make(x, k)))
        terms.append(z3.simplify(x - terms[-1]))
    axioms = ground([t == 0 for t in terms], {})
    numbers = {"a": data.draw(SMALL), "b": data.draw(SMALL)}
    numbers |= {name: data.draw(st.integers(-2, 6)) for name in "ef"}
    for axiom in axioms:
        assert value(axiom, numbers) is True, (axiom, numbers)


def kept(rank, halvings, n):
    return sum((i < halvings) * (rank // 2**i % 2) * (n // 2 ** (i + 1)) for i in range(floor_log(n)))


def floor_log(n, base=2):
    return Number(n.world, n.log)


def test_lemmas_of_sums_are_true() -> None:
    def read(one, terms):
        return rebound(kept, {}, {"range": one, "sum": terms})

    world = World()
    s = Sum(world, "kept#0", lambda clean, i, args: term_of(clean, read, i, args), (False, False, True))
    x, h, d = s.args
    assert (s.grows, s.low, s.bounded) == ([h], [(x, h)], [h])
    y, g = z3.Ints("y g")
    axioms = list(s.axioms([], [s.function(x, h, d), s.function(y, g, d), s.function(y, h + 1, d)]))
    rng = random.Random(0)
    for _ in range(25):
        d = rng.randrange(4)
        numbers = {"a0": rng.randrange(9), "a1": rng.randrange(-1, d + 2), "a2": d, "y": rng.randrange(9), "g": rng.randrange(5)}
        for axiom in axioms:
            assert value(axiom, numbers, {"kept#0": s}) is True


def compute(a, b, e, m):
    """What rules do with numbers."""
    x = (a - 2 * b) % m
    yield from (x, a % 2, a // 3, -a + 1, a // 2**e, a // 2**e % 2, a % 2**e, a // 2**e * 2**e, a ^ 2**e)
    yield from (2**e ^ b, (2**e * 8) // 2 ** (e + 1), 3 * 2**e, (a < b) * a, 2 - (a == b), (a % 2) * (b - 7))
    yield from (np.where((0 <= a) & (a < m), a, b), np.minimum(a, b), np.maximum(3, b), 1 << e, a >> e)
    yield from ((a <= b) | (a > m), (a != b) & (2 * a != b), a // 2**e == b // 2**e)


@cache
def computed() -> list[object]:
    world = World()
    names = z3.Ints("a b e m")
    world.assume(names[2] >= 0, names[3] >= 1)
    return [found.term for found in compute(*(Number(world, t) for t in names))]


@given(SMALL, SMALL, st.integers(0, 5), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_numbers_compute_as_ints(a: int, b: int, e: int, m: int) -> None:
    """What a rule computes from unknown numbers means what it computes from ints."""
    numbers = dict(zip("abem", (a, b, e, m), strict=True))
    for term, wanted in zip(computed(), compute(a, b, e, m), strict=True):
        assert value(term, numbers) == wanted


def test_what_linear_arithmetic_can_not_say_is_refused() -> None:
    world = World()
    x, y = (Number(world, z3.Int(name)) for name in "xy")
    for refused in (lambda: x * y, lambda: x // y, lambda: x % y, lambda: 3**x, lambda: 2**x, lambda: x ^ 3, lambda: int(x)):
        with pytest.raises(Unprovable):
            refused()


def test_an_algorithm_that_takes_no_such_parameter() -> None:
    with pytest.raises(UsageError, match="unknown parameter 'chunk'"):
        prove(catalog.load("ring"), chunk=2)


def test_a_partial_or_a_table_is_no_rule() -> None:
    algorithm = Algorithm(name="table", collective="", write=partial(lambda n: None))  # type: ignore[arg-type]
    with pytest.raises(Unprovable):
        rebound(algorithm.write, {})


def test_docs(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/proving.md is what is printed, and its lists are those that are tested."""
    text = (Path(__file__).parent.parent / "docs" / "proving.md").read_text(encoding="utf-8")
    command, output = text.split("```console\n$ algocc ", 1)[1].split("```", 1)[0].split("\n", 1)
    assert main(command.split()) == 0
    assert capsys.readouterr().out == output
    listed = text.split("## What is proved")[1].split("## What is not")[0]
    for name in [*EVERY_N, *EVERY_ROOT, *EVERY_POWER]:
        assert f"`{name}`" in listed
