"""What a collective must give, computed by NumPy from its postcondition alone, and inputs for which that is exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.errors import UsageError
from algocc.kernels.operators import Element, check_defined, element, operator
from algocc.runtime.geometry import block_offsets, buffer_elements, count_of

Array = NDArray[Any]

_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_BITS = {"float8_e4m3fn": 4, "float8_e5m2": 3, "bfloat16": 8, "float16": 11, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53}


def expected(collective: Collective, inputs: Sequence[Array], op: str = "sum") -> list[Array]:
    """The outputs that the collective demands for these inputs, of one dtype.

    Contributions are reduced in the order of their ranks, in float32 where the elements are floats of 8 or 16 bits; a set of
    one contribution is that contribution. An idempotent collective's set is reduced as it is.

    Raises UsageError for inputs of sizes that do not agree.

    >>> from algocc.collective import all_reduce
    >>> expected(all_reduce(2), [np.array([1.0, 2.0]), np.array([3.0, 4.0])])[1]
    array([4., 6.])
    """
    count = count_of(collective, [len(a) for a in inputs])
    e = element(next((a.dtype for a in inputs if a.size), inputs[0].dtype))
    source, size = block_offsets(collective, Buffer.INPUT, count)
    target, _ = block_offsets(collective, Buffer.OUTPUT, count)
    outputs = [np.zeros(n, e.numpy) for n in buffer_elements(collective, count)[1]]
    rank_of_input = np.repeat(np.arange(collective.n), collective.inputs)
    rank_of_output = np.repeat(np.arange(collective.n), collective.outputs)
    order = np.argsort(collective.want, kind="stable").tolist()
    last, value = -1, np.zeros(0)
    for o in order:
        s = int(collective.want[o])
        if s != last:
            items = collective.set_items[collective.set_start[s] : collective.set_start[s + 1]].tolist()
            blocks = [inputs[rank_of_input[i]][source[i] : source[i] + size[i]] for i in items]
            value, last = _reduced(blocks, op, e, collective.n), s
        outputs[rank_of_output[o]][target[o] : target[o] + len(value)] = value
    return outputs


def make_inputs(
    collective: Collective, count: int, dtype: Any = "float32", op: str = "sum", seed: int = 0
) -> list[Array]:
    """Random inputs for which `op` gives the same bits in any order, so that `expected` is exact.

    Floats are small whole numbers, few enough of them not zero that no partial sum is rounded; integers are any,
    since they wrap.

    Raises UsageError if the operator is not defined for the dtype.

    >>> from algocc.collective import all_reduce
    >>> x = make_inputs(all_reduce(2), 5, "int8")
    >>> len(x), x[0].shape, x[0].dtype
    (2, (5,), dtype('int8'))
    """
    e = element(dtype)
    check_defined(operator(op), e)
    sizes = buffer_elements(collective, count)[0]
    return [
        _values(np.random.default_rng([seed, r]), size, e, op, r, collective.n)
        for r, size in enumerate(sizes)
    ]


def count_wrong(outputs: Sequence[Array], wanted: Sequence[Array]) -> int:
    """Elements of all ranks' outputs that differ; a NaN is equal to a NaN.

    Raises UsageError if shapes or dtypes differ, which no count could say.
    """
    if len(outputs) != len(wanted):
        raise UsageError(f"{len(outputs)} outputs, {len(wanted)} expected")
    wrong = 0
    for rank, (found, want) in enumerate(zip(outputs, wanted, strict=True)):
        if found.shape != want.shape or found.dtype != want.dtype:
            raise UsageError(
                f"rank {rank}: output of {found.dtype} {found.shape}, expected {want.dtype} {want.shape}"
            )
        different = found != want
        if element(want.dtype).kind in ("float", "complex"):
            different &= ~(np.isnan(found) & np.isnan(want))
        wrong += int(np.count_nonzero(different))
    return wrong


def _reduced(blocks: list[Array], op: str, e: Element, n: int) -> Array:
    if len(blocks) == 1:
        return blocks[0]
    held = np.dtype(e.held)
    if e.kind == "bool":
        op = operator(op).on_bool
    divides = op == "avg" and e.kind in ("float", "complex")
    ufunc = _UFUNCS[op]
    with np.errstate(all="ignore"):
        parts = [_divided(b.astype(held), n) for b in blocks] if divides else blocks
        total = parts[0].astype(held)
        for part in parts[1:]:
            total = ufunc(total, part.astype(held, copy=False)).astype(held, copy=False)
        if op == "avg" and not divides:
            quotient, rest = np.divmod(total, held.type(n)) if n <= np.iinfo(held).max else (total * 0, total)
            total = quotient + ((rest != 0) & (quotient < 0)).astype(held)
        result: Array = total.astype(e.numpy)
        return result


def _divided(a: Array, n: int) -> Array:
    """a / n; of complex numbers each part, which is exact where NumPy's division of complex numbers is not."""
    real = a.view(a.real.dtype)
    quotient: Array = (real / real.dtype.type(n)).view(a.dtype)
    return quotient


def _values(rng: np.random.Generator, size: int, e: Element, op: str, rank: int, n: int) -> Array:
    kind = e.numpy
    values: Array
    if e.kind == "bool":
        values = rng.integers(0, 2, size, dtype=np.uint8)
    elif op in ("land", "lor", "lxor"):
        values = rng.integers(0, 3, size, dtype=np.uint8) * rng.integers(0, 2, size, dtype=np.uint8)
    elif e.kind in ("int", "uint"):
        limit = np.iinfo(kind)
        values = rng.integers(limit.min, limit.max, size, dtype=kind, endpoint=True)
    elif op in ("min", "max"):
        values = rng.standard_normal(size, dtype=np.float32)
    elif op == "prod":
        turn = rng.integers(0, 4 if e.kind == "complex" else 2, size, dtype=np.uint8)
        units = np.array([1, 1j, -1, -1j] if e.kind == "complex" else [1.0, -1.0])
        values = units[turn] * np.where((np.arange(size) + rank) % n < 3, 2, 1)
    else:
        values = _whole(rng, size, e, op, rank, n)
        if e.kind == "complex":
            values = values + 1j * _whole(rng, size, e, op, rank, n)
    return values.astype(kind)


def _whole(rng: np.random.Generator, size: int, e: Element, op: str, rank: int, n: int) -> Array:
    """Whole numbers whose sums over some ranks have no more bits than an element; for avg, multiples of n."""
    exact = 1 << min(_BITS[e.name], 20)
    scale = n if op == "avg" else 1
    if complex(e.numpy.type(scale)) != scale:
        scale = 0  # n itself is rounded, and so would be its multiples
    few = max(1, -(-n * scale // exact))  # one rank in `few` is not zero
    most = max(1, min(100, exact // max(1, scale * -(-n // few))))
    drawn: Array = rng.integers(-most, most, size, endpoint=True)
    drawn *= scale * ((np.arange(size) + rank) % few == 0)
    return drawn
