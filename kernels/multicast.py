"""Everybody's same place at one address, which a switch of NVLink reads as the reduction of all, and writes to all.

PTX calls it `multimem`, of sm_90 and later. What is read has been added up in an order that nobody promises, so floats are
not fixed to the bit; those of 16 bits are added in float32 and rounded once.
"""

from __future__ import annotations

SINCE = 90
"""The architecture from which on there is `multimem`."""

WORD = 4
"""Bytes of its least access."""

_INTEGERS = {"int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64"}
_BITS = {"band": "and", "bor": "or", "bxor": "xor"}

FORMS: dict[tuple[str, str], str] = {
    **{("sum", dtype): f"add.{kind}" for dtype, kind in _INTEGERS.items() if dtype.startswith("u")},
    **{(op, dtype): f"{op}.{kind}" for op in ("min", "max") for dtype, kind in _INTEGERS.items()},
    **{(op, dtype): f"{word}.b{kind[1:]}" for op, word in _BITS.items() for dtype, kind in _INTEGERS.items() if kind[0] == "u"},
    ("sum", "float32"): "add.f32", ("sum", "float64"): "add.f64",
    ("sum", "float16"): "add.acc::f32.f16x2", ("sum", "bfloat16"): "add.acc::f32.bf16x2",
}  # fmt: skip
"""Operator and type, as kernels are made for, of what can be read so; the operation, its precision and the type of a word.
Minimum and maximum of floats are not: of NaN they make a number."""

