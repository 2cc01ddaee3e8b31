"""Elements between memory and registers, one by one, in vectors, or apart from one another, as primitives.

Several elements are nested pairs of values: four of them are ((a, b), (c, d)), so that arithmetic on them is a
recursion that compiles to straight code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from algocc.kernels.cpu import memory_type, pack, register_type, unpack
from algocc.kernels.operators import ELEMENTS

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def nested(kind: Any, n: int) -> Any:
    """The type of n values, a power of two."""
    return kind if n == 1 else types.UniTuple(nested(kind, n // 2), 2)


def _nest(builder: Any, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return cgutils.pack_array(builder, [_nest(builder, values[:half]), _nest(builder, values[half:])])


def _flat(builder: Any, value: Any, n: int) -> list[Any]:
    if n == 1:
        return [value]
    halves = (builder.extract_value(value, i) for i in (0, 1))
    return [v for half in halves for v in _flat(builder, half, n // 2)]


def _parts(name: str) -> int:
    """Numbers that an element is made of."""
    return 2 if name.startswith("complex") else 1


def _number(name: str) -> Any:
    """The type of those numbers in memory."""
    kind = memory_type(name)
    return kind.elements[0] if _parts(name) == 2 else kind


def _to_register(builder: Any, name: str, raw: Sequence[Any]) -> Any:
    return unpack(builder, name, raw[0]) if len(raw) == 1 else cgutils.pack_struct(builder, raw)


def _to_memory(builder: Any, name: str, value: Any) -> list[Any]:
    if _parts(name) == 2:
        return [builder.extract_value(value, i) for i in (0, 1)]
    return [pack(builder, name, value)]


def _load(builder: Any, name: str, address: Any, space: int, align: int) -> Any:
    base = builder.inttoptr(address, ir.PointerType(_number(name), space))
    places = [builder.gep(base, [ir.Constant(_I64, i)]) for i in range(_parts(name))]
    return _to_register(builder, name, [builder.load(place, align=align) for place in places])


def _store(builder: Any, name: str, address: Any, value: Any, space: int, align: int) -> None:
    base = builder.inttoptr(address, ir.PointerType(_number(name), space))
    for i, number in enumerate(_to_memory(builder, name, value)):
        builder.store(number, builder.gep(base, [ir.Constant(_I64, i)]), align=align)


def _at(builder: Any, name: str, address: Any, index: Any) -> Any:
    return builder.add(address, builder.mul(index, ir.Constant(_I64, ELEMENTS[name].size)))


def _align(name: str, aligned: bool) -> int:
    return _bytes(name) if aligned else 1


def scalars(space: int, *, aligned: bool) -> tuple[Any, Any]:
    """`get` and `put` as in `cpu`, for memory of an address space of LLVM; aligned to the size of a number, or not."""

    def get(typing: Any, dtype: Any, address: Any, index: Any) -> Any:
        """Element `index` of the array at `address`, as the value that arithmetic takes."""
        name = dtype.literal_value

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _load(builder, name, _at(builder, name, args[1], args[2]), space, _align(name, aligned))

        return register_type(name)(dtype, types.int64, types.int64), code

    def put(typing: Any, dtype: Any, address: Any, index: Any, value: Any) -> Any:
        """Write a value as element `index` of the array at `address`."""
        name = dtype.literal_value

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[3], signature.args[3], register_type(name))
            _store(builder, name, _at(builder, name, args[1], args[2]), value, space, _align(name, aligned))
            return context.get_dummy_value()

        return types.void(dtype, types.int64, types.int64, value), code

    return intrinsic(prefer_literal=True)(get), intrinsic(prefer_literal=True)(put)


def strided(space: int, *, aligned: bool) -> tuple[Any, Any]:
    """`get_apart` and `put_apart`: elements `index`, `index + stride` and so on, `n` of them."""

    def places(builder: Any, name: str, n: int, args: Any) -> list[Any]:
        found = [_at(builder, name, args[2], args[3])]
        step = builder.mul(args[4], ir.Constant(_I64, ELEMENTS[name].size))
        while len(found) < n:
            found.append(builder.add(found[-1], step))
        return found

    def get_apart(typing: Any, dtype: Any, n: Any, address: Any, index: Any, stride: Any) -> Any:
        name, count = dtype.literal_value, n.literal_value

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [
                _load(builder, name, place, space, _align(name, aligned)) for place in places(builder, name, count, args)
            ]
            return _nest(builder, values)

        return nested(register_type(name), count)(dtype, n, *[types.int64] * 3), code

    def put_apart(typing: Any, dtype: Any, n: Any, address: Any, index: Any, stride: Any, value: Any) -> Any:
        name, count = dtype.literal_value, n.literal_value

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = _flat(builder, args[5], count)
            for place, number in zip(places(builder, name, count, args), values, strict=True):
                _store(builder, name, place, number, space, _align(name, aligned))
            return context.get_dummy_value()

        return types.void(dtype, n, *[types.int64] * 3, nested(register_type(name), count)), code

    return intrinsic(prefer_literal=True)(get_apart), intrinsic(prefer_literal=True)(put_apart)


def bounded(space: int, *, aligned: bool) -> tuple[Any, Any]:
    """`get_some` and `put_some`: `n` neighbouring elements of an array that may end among them.

    `get_some` takes the last element of the array for those after it; `put_some` leaves them out.
    """

    def get_some(typing: Any, dtype: Any, n: Any, address: Any, index: Any, length: Any) -> Any:
        name, count = dtype.literal_value, n.literal_value

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            last = builder.sub(args[4], ir.Constant(_I64, 1))
            values = []
            for i in range(count):
                index = builder.add(args[3], ir.Constant(_I64, i))
                index = builder.select(builder.icmp_signed("<", index, last), index, last)
                values.append(_load(builder, name, _at(builder, name, args[2], index), space, _align(name, aligned)))
            return _nest(builder, values)

        return nested(register_type(name), count)(dtype, n, *[types.int64] * 3), code

    def put_some(typing: Any, dtype: Any, n: Any, address: Any, index: Any, length: Any, value: Any) -> Any:
        name, count = dtype.literal_value, n.literal_value

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            for i, number in enumerate(_flat(builder, args[5], count)):
                index = builder.add(args[3], ir.Constant(_I64, i))
                with builder.if_then(builder.icmp_signed("<", index, args[4])):
                    _store(builder, name, _at(builder, name, args[2], index), number, space, _align(name, aligned))
            return context.get_dummy_value()

        return types.void(dtype, n, *[types.int64] * 3, nested(register_type(name), count)), code

    return intrinsic(prefer_literal=True)(get_some), intrinsic(prefer_literal=True)(put_some)


def _words(name: str, n: int) -> tuple[int, int]:
    """Words of 64 bits that n elements fill, and the numbers in each."""
    return ELEMENTS[name].size * n // 8, 8 // _bytes(name)


@intrinsic(prefer_literal=True)
def to_words(typing: Any, dtype: Any, n: Any, value: Any) -> Any:
    """The bits of `n` elements, which fill words of 64 bits, as a tuple of these."""
    name, count = dtype.literal_value, n.literal_value
    words, each = _words(name, count)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = [p for v in _flat(builder, args[2], count) for p in _to_memory(builder, name, v)]
        return cgutils.pack_array(builder, [_word_of(builder, numbers[i * each : (i + 1) * each], _I64) for i in range(words)])

    return types.UniTuple(types.uint64, words)(dtype, n, nested(register_type(name), count)), code


@intrinsic(prefer_literal=True)
def from_words(typing: Any, dtype: Any, n: Any, words: Any) -> Any:
    """The `n` elements that a tuple of words of 64 bits holds."""
    name, count = dtype.literal_value, n.literal_value
    many, each = _words(name, count)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        raw = [builder.extract_value(args[2], i) for i in range(many)]
        numbers = [_number_of(builder, word, _number(name), i) for word in raw for i in range(each)]
        k = _parts(name)
        return _nest(builder, [_to_register(builder, name, numbers[i : i + k]) for i in range(0, len(numbers), k)])

    return nested(register_type(name), count)(dtype, n, types.UniTuple(types.uint64, many)), code


def vectors(load: Any, store: Any) -> tuple[Any, Any]:
    """`get_vector` and `put_vector`: `n` neighbouring elements in one access, aligned to its size.

    load, store: (builder, address, word, number of words), words of 4 or 8 bytes, and the words to be stored.
    """

    def shapes(name: str, n: int) -> tuple[Any, int, int]:
        """The word, how many, and numbers in each."""
        size = _bytes(name)
        word = ir.IntType(64 if size == 8 else 32)
        return word, ELEMENTS[name].size * n * 8 // word.width, word.width // (8 * size)

    def get_vector(typing: Any, dtype: Any, n: Any, address: Any) -> Any:
        name, count = dtype.literal_value, n.literal_value
        word, words, each = shapes(name, count)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = [
                _number_of(builder, raw, _number(name), i) for raw in load(builder, args[2], word, words) for i in range(each)
            ]
            k = _parts(name)
            return _nest(builder, [_to_register(builder, name, numbers[i : i + k]) for i in range(0, len(numbers), k)])

        return nested(register_type(name), count)(dtype, n, types.int64), code

    def put_vector(typing: Any, dtype: Any, n: Any, address: Any, value: Any) -> Any:
        name, count = dtype.literal_value, n.literal_value
        word, words, each = shapes(name, count)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = [p for v in _flat(builder, args[3], count) for p in _to_memory(builder, name, v)]
            raw = [_word_of(builder, numbers[i * each : (i + 1) * each], word) for i in range(words)]
            store(builder, args[2], word, words, raw)
            return context.get_dummy_value()

        return types.void(dtype, n, types.int64, nested(register_type(name), count)), code

    return intrinsic(prefer_literal=True)(get_vector), intrinsic(prefer_literal=True)(put_vector)


def plain_vectors() -> tuple[Any, Any]:
    """`vectors` by LLVM's own loads and stores."""

    def place(builder: Any, address: Any, word: Any, words: int) -> Any:
        return builder.inttoptr(address, ir.PointerType(ir.VectorType(word, words)))

    def load(builder: Any, address: Any, word: Any, words: int) -> list[Any]:
        raw = builder.load(place(builder, address, word, words), align=words * word.width // 8)
        return [builder.extract_element(raw, ir.Constant(_I32, i)) for i in range(words)]

    def store(builder: Any, address: Any, word: Any, words: int, values: Any) -> None:
        raw = ir.Constant(ir.VectorType(word, words), ir.Undefined)
        for i, value in enumerate(values):
            raw = builder.insert_element(raw, value, ir.Constant(_I32, i))
        builder.store(raw, place(builder, address, word, words), align=words * word.width // 8)

    return vectors(load, store)


def _bytes(name: str) -> int:
    return ELEMENTS[name].size // _parts(name)


def _number_of(builder: Any, raw: Any, kind: Any, index: int) -> Any:
    """The number at a place of a word."""
    bits = kind.width if isinstance(kind, ir.IntType) else {"half": 16, "float": 32, "double": 64}[str(kind)]
    part = builder.lshr(raw, ir.Constant(raw.type, index * bits)) if index else raw
    part = builder.trunc(part, ir.IntType(bits)) if bits < raw.type.width else part
    return part if isinstance(kind, ir.IntType) else builder.bitcast(part, kind)


def _word_of(builder: Any, numbers: Sequence[Any], word: Any) -> Any:
    """The word that numbers make, the first lowest."""
    raw = None
    bits = word.width // len(numbers)
    for i, number in enumerate(numbers):
        part = number if isinstance(number.type, ir.IntType) else builder.bitcast(number, ir.IntType(bits))
        part = builder.zext(part, word) if bits < word.width else part
        part = builder.shl(part, ir.Constant(word, i * bits)) if i else part
        raw = part if raw is None else builder.or_(raw, part)
    return raw
