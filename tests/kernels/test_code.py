"""Landmarks of the compiled code: vectors where the processor has them, order where the counters are."""

import re

import numba
import pytest
from numba import types

from algocc.kernels import cpu, lane, reduction
from algocc.kernels.operators import ELEMENTS, OPERATORS, kernel_of

REDUCTION = types.void(*[types.int64] * 8)


def compiled(signature, body):
    return numba.cfunc(signature, error_model="numpy")(body)


@pytest.mark.parametrize(
    ("op", "dtype", "held", "scales"),
    [
        ("sum", "float32", "float32", False),
        ("max", "float64", "float64", False),
        ("sum", "uint8", "uint8", False),
        ("sum", "bfloat16", "float32", False),
        ("avg", "float16", "float32", True),
        ("sum", "complex64", "complex64", False),
    ],
)
def test_reductions_are_vectorised_without_a_check_for_overlap(op, dtype, held, scales):
    size = {"float32": 4, "float64": 8, "uint8": 1, "bfloat16": 2, "float16": 2, "complex64": 8}
    body = reduction.build(
        cpu, op=op, dtype=dtype, held=held, size=size[dtype], held_size=size[held], scales=scales, stamp=""
    )
    code = compiled(REDUCTION, body).inspect_llvm()
    wide = set(re.findall(r"<(\d+) x (?:float|double|half|i8|i16)>", code))
    assert wide, "no vectors"
    assert "vector.memcheck" not in code


def test_counters_are_read_with_acquire_and_written_with_release():
    code = compiled(types.int64(types.int64, types.int64), lane.build(cpu, stamp="")).inspect_llvm()
    assert len(re.findall(r"load atomic i64.* acquire, align 8", code)) >= 3
    assert len(re.findall(r"store atomic i64.* release, align 8", code)) >= 2


@pytest.mark.parametrize("op", ["sum", "prod"])
def test_wrapping_arithmetic_is_not_declared_not_to_wrap(op):
    """LLVM may take `add nsw` for a promise, and Numba says it of signed integers: they use the unsigned kernels."""
    shared, kind = kernel_of(OPERATORS[op], ELEMENTS["int64"])
    assert kind.name == "uint64"
    body = reduction.build(
        cpu, op=shared.name, dtype="uint64", held="uint64", size=8, held_size=8, scales=False, stamp=""
    )
    code = compiled(REDUCTION, body).inspect_llvm()
    word = "add" if op == "sum" else "mul"
    assert re.search(rf"{word} <\d+ x i64>", code)
    assert not re.search(rf"{word} (nuw )?nsw <\d+ x i64> %(\.|wide)", code)
