"""What every fabric must pass, ours or a user's: Programs on real arrays against NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import COLLECTIVES, Collective, collective
from algocc.errors import UsageError
from algocc.kernels.operators import check_defined, element, operator
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import buffer_elements, count_wrong, expected, in_place_buffers, make_inputs
from algocc.testing.generate import random_correct

MARGIN = 3
"""Elements around each array that must stay as they are; an odd number, so that arrays are not aligned."""
Runner = Callable[[Sequence[NDArray[Any]], Sequence[NDArray[Any]]], object]
"""Runs one Program: called with every rank's input and output."""
MakeRunner = Callable[..., Runner]
"""Called as `make(program, count=…, dtype=…, op=…)`. A runner that is a context manager is entered and left."""


@dataclass(frozen=True)
class Case:
    """One thing a fabric must do: a Program, the count and type of its elements, and the operator."""

    program: Program
    count: int
    dtype: str = "float32"
    op: str = "sum"
    calls: int = 1

    def __str__(self) -> str:
        mode = "in place" if self.program.in_place else "out of place"
        lanes = f"{self.program.lanes} lanes"
        return f"{self.program.collective} {mode} {lanes}, count={self.count} {self.dtype} {self.op}"


def check_fabric(
    make: MakeRunner,
    *,
    sizes: Sequence[int] = (1, 2, 3, 5),
    counts: Sequence[int] = (0, 1, 2, 17, 1000),
    dtypes: Sequence[str] = (
        "int8",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "bool",
    ),
    ops: Sequence[str] = ("sum", "prod", "min", "max", "avg"),
    large: int = 200_003,
    seed: int = 0,
) -> int:
    """Run a battery of Programs on a fabric and compare with NumPy; the number of cases that passed.

    Every built-in collective for each number of ranks in `sizes`, by random correct schedules of 1 to 4 chunks, on
    1 to 3 lanes, in place and out of place, for counts that chunks do not divide; every dtype with every operator
    that it has; several calls of one runner, with `large` elements a call. Inputs must be left as they are, and
    nothing written outside the arrays, which are not aligned.

    Raises AssertionError that names the first case to fail, and the rank and element that differ.

    >>> from algocc.runtime import Threads
    >>> check_fabric(Threads, sizes=[2], counts=[5], dtypes=["int32"], ops=["sum"], large=7)
    35
    """
    passed = 0
    for case in cases(sizes=sizes, counts=counts, dtypes=dtypes, ops=ops, large=large, seed=seed):
        check_case(make, case)
        passed += 1
    return passed


def cases(
    *,
    sizes: Sequence[int],
    counts: Sequence[int],
    dtypes: Sequence[str],
    ops: Sequence[str],
    large: int,
    seed: int = 0,
) -> Iterator[Case]:
    """The battery of `check_fabric`, the same for the same arguments."""
    rng = random.Random(seed)
    for n in sizes:
        for name in COLLECTIVES:
            for in_place in (False, True):
                made = _program(rng, _collective(rng, name, n), in_place)
                for count in [1] if name == "barrier" else counts:
                    yield Case(
                        made,
                        count,
                        "bool" if name == "barrier" else "int32",
                        "lor" if name == "barrier" else "sum",
                    )
    n = max(sizes)
    whole = _program(rng, collective("all_reduce", n, chunks=3), False)
    for dtype in dtypes:
        for op in ops:
            try:
                check_defined(operator(op), element(dtype))
            except UsageError:
                continue
            yield Case(whole, 13, dtype, op)
    for name in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"):
        for in_place in (False, True):
            chunks = 2 if name == "all_reduce" else 1
            yield Case(_program(rng, collective(name, n, chunks=chunks), in_place), large, "int16", calls=3)


def check_case(make: MakeRunner, case: Case) -> None:
    """Run one case on a fabric.

    Raises AssertionError if an output differs from NumPy's, an input changed, or a byte outside an array did.
    """
    c = case.program.collective
    with ExitStack() as stack:
        runner = make(case.program, count=case.count, dtype=case.dtype, op=case.op)
        if hasattr(runner, "__enter__"):
            runner = stack.enter_context(runner)  # type: ignore[arg-type]
        for call in range(case.calls):
            given = make_inputs(c, case.count, case.dtype, case.op, seed=call)
            wanted = expected(c, given, case.op)
            if case.program.in_place:
                inputs, outputs = in_place_buffers(c, case.count, case.dtype)
                memory: list[NDArray[Any]] = []
            else:
                ins, outs = buffer_elements(c, case.count)
                memory = [_fenced(size, case.dtype) for size in [*ins, *outs]]
                arrays = [m[MARGIN : len(m) - MARGIN] for m in memory]
                inputs, outputs = arrays[: c.n], arrays[c.n :]
            for mine, theirs in zip(inputs, given, strict=True):
                mine[:] = theirs
            runner(inputs, outputs)
            _compare(f"{case}, call {call + 1}", outputs, wanted)
            if not case.program.in_place:
                _compare(f"{case}, call {call + 1}: an input was written to", inputs, given)
            for rank, m in enumerate(memory):
                edges = np.concatenate([m[:MARGIN], m[len(m) - MARGIN :]]).view(np.uint8)
                if (edges != FILL).any():
                    side = "input" if rank < c.n else "output"
                    raise AssertionError(f"{case}: rank {rank % c.n}: written outside of its {side}")


FILL = 0x5A


def _fenced(size: int, dtype: str) -> NDArray[Any]:
    """Memory for `size` elements and the margins around it, full of a pattern."""
    kind = element(dtype).numpy
    return np.full((size + 2 * MARGIN) * kind.itemsize, FILL, np.uint8).view(kind)


def _compare(what: str, found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]]) -> None:
    for rank, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if count_wrong([mine], [theirs]):
            differing = [i for i in range(len(mine)) if count_wrong([mine[i : i + 1]], [theirs[i : i + 1]])]
            i = differing[0]
            raise AssertionError(
                f"{what}: rank {rank}: {len(differing)} of {len(mine)} elements are wrong, "
                f"the first at {i}: found {mine[i]}, wanted {theirs[i]}"
            )


def _collective(rng: random.Random, name: str, n: int) -> Collective:
    """A built-in collective with random parameters, cut into 1 to 4 chunks."""
    chunks = rng.randint(1, 4)
    if name == "barrier":
        return collective(name, n)
    if name in ("broadcast", "reduce", "scatter", "gather"):
        return collective(name, n, chunks=chunks, root=rng.randrange(n))
    if name == "all_to_all_v":
        counts = [[rng.randint(0, 3) for _ in range(n)] for _ in range(n)]
        return collective(name, n, chunks=chunks, counts=counts)
    return collective(name, n, chunks=chunks)


def _program(rng: random.Random, c: Collective, in_place: bool) -> Program:
    return lower(random_correct(rng, c, in_place=in_place), in_place=in_place, lanes=rng.randint(1, 3))
