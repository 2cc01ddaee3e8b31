"""The table of operators and types, and every cell of it compiled and compared with NumPy."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from algocc.collective import all_reduce
from algocc.errors import UsageError
from algocc.kernels import layout as at
from algocc.kernels.compiled import reduction_address
from algocc.kernels.operators import ELEMENTS, OPERATORS, check_defined, element, kernel_of, operator, refusal
from algocc.runtime import count_wrong, expected, make_inputs

DEFINED = [(o.name, e.name) for o in OPERATORS.values() for e in ELEMENTS.values() if refusal(o, e) is None]


def reduce(op, sources, targets, *, final=True):
    """Call the compiled reduction on arrays, each source a contribution as it came in."""
    e = element(sources[0].dtype)
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(reduction_address(operator(op), e))
    addresses = np.array([a.ctypes.data for a in (*targets, *sources)], np.int64)
    records = np.zeros((len(sources), at.OPERAND_WORDS), np.int64)
    records[:, at.IS_FIRST] = 1
    held = np.zeros(16384, np.uint8)
    kernel(
        addresses.ctypes.data, len(targets), len(sources), len(sources[0]), records.ctypes.data, len(sources),
        int(final), held.ctypes.data,
    )  # fmt: skip


def misaligned(values, skip):
    """The values in memory that starts `skip` bytes off, with 16 canary bytes around them."""
    memory = np.full(values.nbytes + skip + 32, 0xA5, np.uint8)
    view = memory[16 + skip : 16 + skip + values.nbytes].view(values.dtype)
    view[:] = values
    return memory, view


@pytest.mark.parametrize(("op", "dtype"), DEFINED)
def test_reduction_is_numpys(op, dtype):
    size = element(dtype).size
    for n, length in ((2, 1), (2, 4099), (3, 2048), (3, 0), (5, 8193)):
        c = all_reduce(n)
        sources = make_inputs(c, length, dtype, op, seed=n)
        wanted = expected(c, sources, op)
        placed = [misaligned(a, k % size if k < 2 else k) for k, a in enumerate(sources)]
        targets = [misaligned(np.zeros_like(wanted[0]), k) for k in range(2)]
        before = [memory.copy() for memory, _ in placed]
        reduce(op, [view for _, view in placed], [view for _, view in targets])
        assert count_wrong([view for _, view in targets], wanted[:2]) == 0, (n, length)
        for memory, view in targets:
            view.view(np.uint8)[:] = 0xA5
            assert (memory == 0xA5).all()
        assert all((memory == old).all() for (memory, _), old in zip(placed, before, strict=True))


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_destination_may_be_any_source(dtype, n):
    c = all_reduce(n)
    for place in range(n):
        sources = make_inputs(c, 5001, dtype, seed=place)
        wanted = expected(c, sources)
        reduce("sum", sources, [sources[place], sources[(place + 1) % n]])
        assert count_wrong([sources[place], sources[(place + 1) % n]], wanted[:2]) == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_nan_survives_from_any_position(op, dtype):
    kind = element(dtype).numpy
    for n in (2, 3, 5):
        for place in range(n):
            sources = [np.full(40, k + 1).astype(kind) for k in range(n)]
            sources[place][7:] = np.nan
            out = np.zeros(40, kind)
            reduce(op, sources, [out])
            assert np.isnan(out[7:].astype(float)).all()
            assert (out[:7].astype(float) == (1 if op == "min" else n)).all()


@pytest.mark.parametrize("dtype", [d for d in ELEMENTS if d.startswith(("int", "uint"))])
def test_integers_wrap(dtype):
    kind = np.dtype(dtype)
    top = np.full(3, np.iinfo(kind).max, kind)
    out = np.zeros(3, kind)
    reduce("sum", [top, np.array([1, 2, 3], kind)], [out])
    assert out.tolist() == [(np.iinfo(kind).min + k) for k in range(3)]


def test_int8_sum_wraps_as_reported():
    out = np.zeros(1, np.int8)
    reduce("sum", [np.array([120], np.int8), np.array([100], np.int8)], [out])
    assert out[0] == -36


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_are_added_in_float32_and_rounded_once(dtype):
    kind = element(dtype).numpy
    rng = np.random.default_rng(1)
    sources = [rng.standard_normal(3000).astype(kind) for _ in range(9)]
    out = np.zeros(3000, kind)
    reduce("sum", sources, [out])
    total = sources[0].astype(np.float32)
    for a in sources[1:]:
        total = total + a.astype(np.float32)
    assert (out.view(np.uint16) == total.astype(kind).view(np.uint16)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_sixteen_bit_pattern_survives(dtype):
    """x + (-0) is x: all 65536 patterns through unpack and pack; NaNs stay NaN."""
    kind = element(dtype).numpy
    x = np.arange(65536, dtype=np.uint16).view(kind)
    out = np.zeros_like(x)
    reduce("sum", [x, np.full_like(x, -0.0)], [out])
    nan = np.isnan(x.astype(np.float32))
    assert np.isnan(out.astype(np.float32))[nan].all()
    assert (out.view(np.uint16) == x.view(np.uint16))[~nan].all()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_every_pair_of_eight_bit_floats(dtype):
    """All 65536 sums and products: rounded as ml_dtypes does, to infinity or NaN where they are too large; NaNs stay NaN."""
    kind = element(dtype).numpy
    a, b = (x.ravel() for x in np.meshgrid(*[np.arange(256, dtype=np.uint8).view(kind)] * 2))
    for op, ufunc in (("sum", np.add), ("prod", np.multiply), ("max", np.maximum)):
        out = np.zeros_like(a)
        reduce(op, [np.ascontiguousarray(a), np.ascontiguousarray(b)], [out])
        with np.errstate(all="ignore"):
            wanted = ufunc(a.astype(np.float32), b.astype(np.float32)).astype(kind)
        nan = np.isnan(wanted.astype(np.float32))
        assert np.isnan(out.astype(np.float32))[nan].all()
        same = out.view(np.uint8) == wanted.view(np.uint8)
        zeros = (out == 0) & (wanted == 0)  # the larger of 0 and -0 may be either
        assert (same | zeros if op == "max" else same)[~nan].all()


def test_what_is_too_large_for_eight_bits():
    """Ties to even at the largest number; beyond it infinity where there is one, else NaN; nothing saturates."""
    for dtype, a, b, wanted in (
        ("float8_e4m3fn", 448, 16, 448),
        ("float8_e4m3fn", 448, 18, np.nan),
        ("float8_e4m3fn", -448, -448, np.nan),
        ("float8_e5m2", 57344, 3584, 57344),
        ("float8_e5m2", 57344, 4096, np.inf),
        ("float8_e5m2", -57344, -57344, -np.inf),
        ("float8_e5m2", np.inf, -np.inf, np.nan),
    ):
        kind = element(dtype).numpy
        out = np.zeros(1, kind)
        reduce("sum", [np.array([a], kind), np.array([b], kind)], [out])
        assert np.array_equal(out.astype(float), [wanted], equal_nan=True), (dtype, a, b)


def test_rounding_of_bfloat16_is_that_of_ml_dtypes():
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**16, (2, 200_000), dtype=np.uint16)
    a, b = bits.view(ml_dtypes.bfloat16)
    out = np.zeros_like(a)
    reduce("sum", [a, b], [out])
    with np.errstate(all="ignore"):
        wanted = (a.astype(np.float32) + b.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert count_wrong([out], [wanted]) == 0


def test_order_of_sources_fixes_the_bits():
    sources = [np.array([v], np.float32) for v in (1e8, 1, -1e8, 1)]
    out = np.zeros(1, np.float32)
    reduce("sum", sources, [out])
    assert out[0] == 1
    reduce("sum", [sources[k] for k in (0, 2, 1, 3)], [out])
    assert out[0] == 2


def test_bool_is_stored_as_one():
    two = np.array([2, 0, 2], np.uint8).view(bool)
    out = np.zeros(3, bool)
    reduce("sum", [two, np.zeros(3, bool)], [out])
    assert out.view(np.uint8).tolist() == [1, 0, 1]


def test_average_of_integers_goes_toward_zero():
    """For int64 and uint64 too, whose limits a detour through floats would round."""
    for dtype, a, b, wanted in (
        ("int32", 3, 4, 3),
        ("int32", -3, -4, -3),
        ("int64", -(2**63), 1, -(2**62) + 1),
        ("int64", 2**63 - 1, 1, -(2**62)),
        ("int8", 127, 127, -1),
        ("uint64", 2**64 - 1, 0, 2**63 - 1),
    ):
        out = np.zeros(1, dtype)
        reduce("avg", [np.array([a], dtype), np.array([b], dtype)], [out])
        assert out[0] == wanted, dtype


def test_average_divides_integers_only_at_the_end():
    out = np.zeros(1, np.int32)
    reduce("avg", [np.array([3], np.int32), np.array([4], np.int32)], [out], final=False)
    assert out[0] == 7


def test_every_operator_is_defined_or_says_why_not():
    for o in OPERATORS.values():
        assert set(o.refused) <= {e.kind for e in ELEMENTS.values()}
        for e in ELEMENTS.values():
            if refusal(o, e) is not None:
                with pytest.raises(
                    UsageError,
                    match=f"operator {o.name} is not defined for dtype {e.name}: .*; defined are sum",
                ):
                    check_defined(o, e)
            else:
                shared, kind = kernel_of(o, e)
                assert refusal(shared, kind) is None
                assert kind.size == e.size


def test_names_that_are_almost_right():
    with pytest.raises(UsageError, match="unknown dtype 'flaot32'; did you mean float32"):
        element("flaot32")
    with pytest.raises(UsageError, match="unknown operator 'summ'; did you mean sum"):
        operator("summ")
    with pytest.raises(UsageError, match="unknown dtype 'float8_e3m4'; did you mean float8_"):
        element(ml_dtypes.float8_e3m4)
    with pytest.raises(UsageError, match="known: int8"):
        element(object())
    assert element(ml_dtypes.bfloat16).name == element("bfloat16").name == "bfloat16"
    assert element(np.dtype(bool)).name == "bool"
