"""The data path of a lane that is a block of threads: 16 bytes a thread at a time, every source read once.

Threads take vectors in turns, so that neighbours touch neighbouring memory. Elements before the first 16-byte boundary
and after the last are handled one by one. Where the operands lie differently to such boundaries, a thread takes a few
elements, as far apart as there are threads.

Loops are `while`, of which targets make plainer code than of `range`. The sources are folded from the left in the order of the Move, as in `reduction`, so the bits of the result are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba import types
from numba.extending import overload, register_jitable

from algocc.kernels import layout as at
from algocc.kernels.operators import combine, divide, truncate

VECTOR = 16
"""Bytes that a thread moves in one access."""

UNROLL = 2
"""Vectors of each of two sources that a thread has on the way; of more sources it has one."""


APART = 4
"""Elements of each source that a thread has on the way where vectors are of no use."""


def fold(op: Any, a: Any, b: Any) -> Any:
    """The reduction of two values, or of two nested pairs of them, in the type of the first."""
    raise NotImplementedError("for compiled code")


def divide_each(a: Any, ranks: Any) -> Any:
    """`divide` for a value, or nested pairs of them."""
    raise NotImplementedError("for compiled code")


def truncate_each(a: Any, ranks: Any) -> Any:
    """`truncate` for a value, or nested pairs of them, in its own type."""
    raise NotImplementedError("for compiled code")


@overload(fold, prefer_literal=True, jit_options={"forceinline": True})
def _fold(op: Any, a: Any, b: Any) -> Any:
    name, kind = op.literal_value, a
    if isinstance(a, types.BaseTuple):

        def pair(op: Any, a: Any, b: Any) -> Any:
            return (fold(name, a[0], b[0]), fold(name, a[1], b[1]))

        return pair
    if isinstance(a, types.Complex) and name in ("sum", "prod", "avg"):

        def as_it_is(op: Any, a: Any, b: Any) -> Any:
            return combine(name, a, b)

        return as_it_is

    def one(op: Any, a: Any, b: Any) -> Any:
        return kind(combine(name, a, b))

    return one


@overload(divide_each, jit_options={"forceinline": True})
def _divide_each(a: Any, ranks: Any) -> Any:
    if isinstance(a, types.BaseTuple):

        def pair(a: Any, ranks: Any) -> Any:
            return (divide_each(a[0], ranks), divide_each(a[1], ranks))

        return pair

    def one(a: Any, ranks: Any) -> Any:
        return divide(a, ranks)

    return one


@overload(truncate_each, jit_options={"forceinline": True})
def _truncate_each(a: Any, ranks: Any) -> Any:
    kind = a
    if isinstance(a, types.BaseTuple):

        def pair(a: Any, ranks: Any) -> Any:
            return (truncate_each(a[0], ranks), truncate_each(a[1], ranks))

        return pair

    def one(a: Any, ranks: Any) -> Any:
        return kind(truncate(a, ranks))

    return one


def build_reduce(
    P: ModuleType, *, op: str, dtype: str, size: int, scales: bool, vector: int = VECTOR
) -> Callable[..., Any]:
    """The reduction by `op` of elements `dtype`, for the target whose primitives are P.

    size: bytes of an element.
    scales: contributions are divided by the number of ranks before they are added.
    vector: bytes of an access.
    """
    truncates = op == "avg" and not scales
    each = vector // size  # elements
    shift = size.bit_length() - 1
    few = min(each, APART)
    # narrow integers, and a division, take the registers of a second vector
    pairs = (each <= 4 or dtype in ("float16", "bfloat16")) and op != "avg"

    def two(load: Callable[..., Any], store: Callable[..., Any]) -> Any:
        """What one thread does at one place of two sources: all of both is on the way at once."""

        @register_jitable(forceinline=True)
        def body(operands, destinations, sources, records, ranks, final, where, stride):
            x = load(P.word(operands, destinations), where, stride)
            y = load(P.word(operands, destinations + 1), where, stride)
            if scales:
                x = divide_each(x, ranks if P.word(records, at.IS_FIRST) != 0 else 1)
                y = divide_each(y, ranks if P.word(records, at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1)
            x = fold(op, x, y)
            d = 0
            while d < destinations:
                store(P.word(operands, d), where, stride, x)
                d += 1

        return body

    def chain(load: Callable[..., Any], store: Callable[..., Any]) -> Any:
        """What one thread does at one place of any number of sources, of as many elements as `load` gives."""

        @register_jitable(forceinline=True)
        def body(operands, destinations, sources, records, ranks, final, where, stride):
            x = load(P.word(operands, destinations), where, stride)
            if scales:
                x = divide_each(x, ranks if P.word(records, at.IS_FIRST) != 0 else 1)
            s = 1
            while s < sources:
                y = load(P.word(operands, destinations + s), where, stride)
                if scales:
                    y = divide_each(y, ranks if P.word(records, s * at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1)
                x = fold(op, x, y)
                s += 1
            if truncates and final != 0:
                x = truncate_each(x, ranks)
            d = 0
            while d < destinations:
                store(P.word(operands, d), where, stride, x)
                d += 1

        return body

    @register_jitable(forceinline=True)
    def load_one(address, where, stride):
        return P.get(dtype, address, where)

    @register_jitable(forceinline=True)
    def store_one(address, where, stride, value):
        P.put(dtype, address, where, value)

    @register_jitable(forceinline=True)
    def load_apart(address, where, stride):
        return P.get_apart(dtype, few, address, where, stride)

    @register_jitable(forceinline=True)
    def store_apart(address, where, stride, value):
        P.put_apart(dtype, few, address, where, stride, value)

    @register_jitable(forceinline=True)
    def load_vector(address, where, stride):
        return P.get_vector(dtype, each, address + where)

    @register_jitable(forceinline=True)
    def store_vector(address, where, stride, value):
        P.put_vector(dtype, each, address + where, value)

    @register_jitable(forceinline=True)
    def load_vectors(address, where, stride):
        first = P.get_vector(dtype, each, address + where)
        return (first, P.get_vector(dtype, each, address + where + stride))

    @register_jitable(forceinline=True)
    def store_vectors(address, where, stride, value):
        P.put_vector(dtype, each, address + where, value[0])
        P.put_vector(dtype, each, address + where + stride, value[1])

    one, apart = chain(load_one, store_one), chain(load_apart, store_apart)
    single, double = chain(load_vector, store_vector), two(load_vectors, store_vectors)

    def reduce(kernel, operands, destinations, sources, length, records, ranks, final, partial):
        """Reduce two sources or more; arguments as in `reduction.build`, of which the first and last are not used."""
        thread, threads = P.thread(), P.threads()
        first = P.word(operands, 0)
        mixed = 0
        k = 1
        while k < destinations + sources:
            mixed |= P.word(operands, k) ^ first
            k += 1
        head, body = 0, 0  # elements before the body, and of it
        if mixed & (vector - 1) == 0 and first & (size - 1) == 0:
            head = min(length, (-first & (vector - 1)) >> shift)
            body = (length - head) & -each
            step = vector * threads
            end = (head + body) << shift
            where = (head << shift) + vector * thread
            while pairs and sources == 2 and where + step < end:
                double(operands, destinations, sources, records, ranks, final, where, step)
                where += UNROLL * step
            while where < end:
                single(operands, destinations, sources, records, ranks, final, where, step)
                where += step
        elif few > 1:
            while body + few * threads <= length:
                apart(operands, destinations, sources, records, ranks, final, body + thread, threads)
                body += few * threads
        i = thread
        while i < length - body:
            one(operands, destinations, sources, records, ranks, final, i if i < head else i + body, 0)
            i += threads

    made: Callable[..., Any] = register_jitable(forceinline=True)(reduce)
    return made


def build_spread(P: ModuleType, *, vector: int = VECTOR) -> Callable[..., Any]:
    """The copy of one source to all destinations, for the target whose primitives are P."""
    quad = vector // 4  # words of 4 bytes

    def chain(load: Callable[..., Any], store: Callable[..., Any]) -> Any:
        @register_jitable(forceinline=True)
        def body(operands, destinations, where, stride):
            source = P.word(operands, destinations)
            x = load(source, where, stride)
            d = 0
            while d < destinations:
                target = P.word(operands, d)
                if target != source:
                    store(target, where, stride, x)
                d += 1

        return body

    def words(dtype: str, size: int) -> Any:
        """Bodies that move four words, and one."""

        @register_jitable(forceinline=True)
        def load_one(address, where, stride):
            return P.get(dtype, address + where, 0)

        @register_jitable(forceinline=True)
        def store_one(address, where, stride, value):
            P.put(dtype, address + where, 0, value)

        @register_jitable(forceinline=True)
        def load_four(address, where, stride):
            return P.get_apart(dtype, 4, address + where, 0, stride)

        @register_jitable(forceinline=True)
        def store_four(address, where, stride, value):
            P.put_apart(dtype, 4, address + where, 0, stride, value)

        return passage(size, chain(load_four, store_four), chain(load_one, store_one)), chain(load_one, store_one)

    @register_jitable(forceinline=True)
    def load_vector(address, where, stride):
        return P.get_vector("uint32", quad, address + where)

    @register_jitable(forceinline=True)
    def store_vector(address, where, stride, value):
        P.put_vector("uint32", quad, address + where, value)

    @register_jitable(forceinline=True)
    def load_vectors(address, where, stride):
        a = P.get_vector("uint32", quad, address + where)
        b = P.get_vector("uint32", quad, address + where + vector * stride)
        c = P.get_vector("uint32", quad, address + where + 2 * vector * stride)
        return (a, b, c, P.get_vector("uint32", quad, address + where + 3 * vector * stride))

    @register_jitable(forceinline=True)
    def store_vectors(address, where, stride, value):
        P.put_vector("uint32", quad, address + where, value[0])
        P.put_vector("uint32", quad, address + where + vector * stride, value[1])
        P.put_vector("uint32", quad, address + where + 2 * vector * stride, value[2])
        P.put_vector("uint32", quad, address + where + 3 * vector * stride, value[3])

    def passage(size: int, four: Any, one: Any) -> Any:
        """All words of one size between two places, four at a time while there are as many for every thread."""

        @register_jitable(forceinline=True)
        def body(operands, destinations, begin, end):
            thread, threads = P.thread(), P.threads()
            where = begin + size * thread
            while where + 3 * size * threads < end:
                four(operands, destinations, where, threads)
                where += 4 * size * threads
            while where < end:
                one(operands, destinations, where, threads)
                where += size * threads

        return body

    by_16 = passage(vector, chain(load_vectors, store_vectors), chain(load_vector, store_vector))
    by_8, by_4, by_2 = words("uint64", 8)[0], words("uint32", 4)[0], words("uint16", 2)[0]
    by_1, single = words("uint8", 1)

    def spread(operands, destinations, length):
        """Copy `length` bytes to every destination in the table `operands` but those that are the source."""
        first = P.word(operands, destinations)
        mixed = 0
        d = 0
        while d < destinations:
            mixed |= P.word(operands, d) ^ first
            d += 1
        width = vector if mixed & (vector - 1) == 0 else mixed & -mixed
        begin = min(length, -first & (width - 1))
        end = length - ((length - begin) & (width - 1))
        if width == vector:
            by_16(operands, destinations, begin, end)
        elif width == 8:
            by_8(operands, destinations, begin, end)
        elif width == 4:
            by_4(operands, destinations, begin, end)
        elif width == 2:
            by_2(operands, destinations, begin, end)
        else:
            by_1(operands, destinations, begin, end)
        rest = begin + length - end
        i = P.thread()
        while i < rest:
            single(operands, destinations, i if i < begin else i + end - begin, 0)
            i += P.threads()

    made: Callable[..., Any] = register_jitable(forceinline=True)(spread)
    return made
