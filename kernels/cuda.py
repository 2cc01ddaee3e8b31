"""The primitives of a kernel on a GPU: a lane is a block of threads, the leader its thread 0.

The same names as in `cpu`. Nothing here needs a GPU or its packages until it is compiled, which `ptx` does.

Data are plain accesses; counters are acquired and released at system scope, since another device may have written
them, or wait for them. The words of tables are accesses of their own kind (`// word` in the PTX), so that they can be
told from data. What other threads write is only ever looked at through instructions that LLVM can't move or leave
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from algocc.kernels import elements, multicast
from algocc.kernels.cpu import built_from
from algocc.kernels.operators import ELEMENTS

WINDOW = 0
"""Partial results stay in registers."""

THREADS = 512
"""The most threads of a block that a kernel is compiled for."""

FEWER_THREADS = 384
"""The same for kernels that take more registers: averages, elements of one byte, integers of two, complex128."""

NAP = 64
"""Nanoseconds between two looks at a counter that has not come for long."""

GLOBAL = 1
"""The address space of device memory in NVVM."""

TEAM = 16
"""Threads that share a line of 128 bytes: half a warp."""

_I1, _I32, _I64 = (ir.IntType(bits) for bits in (1, 32, 64))

__all__ = [
    "TEAM", "WINDOW", "alias_fence", "block", "built_from", "clock", "everywhere", "get", "get_apart", "get_some", "get_vector", "give_way", "is_leader",
    "join", "load_acquire", "load_line", "load_relaxed", "load_share", "no_reduce", "put", "put_apart", "put_some", "put_vector",
    "say", "set_word", "store_line", "store_relaxed", "store_release", "store_share", "thread", "threads", "word",
]  # fmt: skip


def most_threads(op: str | None, dtype: str | None) -> int:
    """The most threads of a block of the kernel for an operator and type."""
    if op is None or dtype is None:
        return THREADS
    e = ELEMENTS[dtype]
    return FEWER_THREADS if op == "avg" or e.size == 16 or (e.size <= 2 and e.kind != "float") or e.size == 1 else THREADS


def _asm(builder: Any, text: str, result: Any, args: Sequence[Any], constraints: str) -> Any:
    """Instructions that are neither moved past others like them, nor left out, nor done twice."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), args)


def _register(builder: Any, name: str) -> Any:
    """A special register of 32 bits, as int64."""
    declared = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(_I32, []), name)
    return builder.zext(builder.call(declared, []), _I64)


# Words and their order


def _element_address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    index = context.cast(builder, args[1], signature.args[1], types.int64)
    return builder.add(args[0], builder.shl(index, ir.Constant(_I64, 3)))


@intrinsic
def word(typing: Any, address: Any, index: Any) -> Any:
    """Word `index` of the int64 table at `address`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _element_address(context, builder, signature, args)
        return _asm(builder, "ld.global.u64 $0, [$1]; // word", _I64, [place], "=l,l,~{memory}")

    return types.int64(types.int64, index), code


@intrinsic
def set_word(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write word `index` of the int64 table at `address`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _element_address(context, builder, signature, args)
        _asm(builder, "st.global.u64 [$0], $1; // word", ir.VoidType(), [place, args[2]], "l,l,~{memory}")
        return context.get_dummy_value()

    return types.void(types.int64, index, types.int64), code


@intrinsic
def load_acquire(typing: Any, address: Any) -> Any:
    """A counter, as uint64 so that arithmetic on it wraps; what was written before its release is visible after."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _asm(builder, "ld.acquire.sys.global.u64 $0, [$1];", _I64, args, "=l,l,~{memory}")

    return types.uint64(types.int64), code


@intrinsic
def store_release(typing: Any, address: Any, value: Any) -> Any:
    """Write a counter after everything before, of other threads too if a `join` is between."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, "st.release.sys.global.u64 [$0], $1;", ir.VoidType(), args, "l,l,~{memory}")
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), code


# The threads of a lane


def _special(name: str, text: str) -> Any:
    def declare(typing: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _register(builder, f"llvm.nvvm.read.ptx.sreg.{name}")

        return types.int64(), code

    declare.__doc__ = text
    return intrinsic(declare)


thread = _special("tid.x", "Which of the threads of its lane this is.")
threads = _special("ntid.x", "How many threads a lane has.")
block = _special("ctaid.x", "Which of the blocks of the launch this is.")


@intrinsic
def is_leader(typing: Any) -> Any:
    """Whether this thread waits and signals for its lane."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mine = _register(builder, "llvm.nvvm.read.ptx.sreg.tid.x")
        return builder.icmp_unsigned("==", mine, ir.Constant(_I64, 0))

    return types.boolean(), code


@intrinsic
def _barrier(typing: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        name = "llvm.nvvm.barrier0"
        builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _barrier_or(typing: Any, value: Any) -> Any:
    """A barrier that says whether any thread has brought a value other than 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32])
        name = "llvm.nvvm.barrier0.or"
        barrier = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        brought = builder.zext(builder.icmp_unsigned("!=", args[0], ir.Constant(_I64, 0)), _I32)
        return builder.zext(builder.call(barrier, [brought]), _I64)

    return types.int64(types.int64), code


@register_jitable(forceinline=True)
def join(value: Any) -> Any:
    """Every thread of the lane goes on when all have come: with 0 if all bring it, else 1 if one brings that, else 2."""
    if _barrier_or(value) == 0:
        return 0
    return 2 - (_barrier_or(value & 1) != 0)


# Lines with flags. A vector is loaded and stored as its words, each whole, so these have 64 bits.


@intrinsic
def load_line(typing: Any, address: Any) -> Any:
    """The two words of a line of 16 bytes, each whole."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.LiteralStructType([_I64, _I64])
        found = _asm(builder, "ld.relaxed.sys.global.v2.u64 {$0, $1}, [$2]; // line", kind, args, "=l,=l,l,~{memory}")
        return cgutils.pack_array(builder, [builder.extract_value(found, i) for i in (0, 1)])

    return types.UniTuple(types.uint64, 2)(types.int64), code


@intrinsic
def store_line(typing: Any, address: Any, first: Any, second: Any) -> Any:
    """Write the two words of a line of 16 bytes, each whole."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, "st.relaxed.sys.global.v2.u64 [$0], {$1, $2}; // line", ir.VoidType(), args, "l,l,l,~{memory}")
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64, types.uint64), code


@intrinsic
def load_relaxed(typing: Any, address: Any) -> Any:
    """A word that others may write, whole, and nothing said of any other: the abort flag, for all threads."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _asm(builder, "ld.relaxed.sys.global.u64 $0, [$1]; // abort", _I64, args, "=l,l,~{memory}")

    return types.uint64(types.int64), code


@intrinsic
def store_relaxed(typing: Any, address: Any, value: Any) -> Any:
    """Write a word whole that others may read or write: the abort flag, by any thread."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, "st.relaxed.sys.global.u64 [$0], $1; // abort", ir.VoidType(), args, "l,l,~{memory}")
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), code


def _team(builder: Any) -> Any:
    """The threads of a warp that are of this thread's team, as bits."""
    half = builder.and_(builder.trunc(_register(builder, "llvm.nvvm.read.ptx.sreg.tid.x"), _I32), ir.Constant(_I32, TEAM))
    return builder.shl(ir.Constant(_I32, (1 << TEAM) - 1), half)


@intrinsic
def say(typing: Any, value: Any) -> Any:
    """Every thread of the team goes on when all have come, with the value of the last of them, of 32 bits."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = f"shfl.sync.idx.b32 $0, $1, {TEAM - 1}, {hex((32 - TEAM) << 8 | 31)}, $2;"
        low = builder.trunc(args[0], _I32)
        return builder.zext(_asm(builder, text, _I32, [low, _team(builder)], "=r,r,r,~{memory}"), _I64)

    return types.int64(types.int64), code


@intrinsic
def load_share(typing: Any, address: Any, last: Any) -> Any:
    """This thread's word of a line that the team loads at once."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, "bar.warp.sync $0;", ir.VoidType(), [_team(builder)], "r,~{memory}")
        return _asm(builder, "ld.relaxed.sys.global.u64 $0, [$1]; // line", _I64, args[:1], "=l,l,~{memory}")

    return types.uint64(types.int64, types.boolean), code


@intrinsic
def store_share(typing: Any, address: Any, value: Any, last: Any) -> Any:
    """Write this thread's word of a line that the team stores at once."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, "bar.warp.sync $0;", ir.VoidType(), [_team(builder)], "r,~{memory}")
        text = "st.relaxed.sys.global.u64 [$0], $1; // line"
        _asm(builder, text, ir.VoidType(), args[:2], "l,l,~{memory}")
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64, types.boolean), code


# Time and waiting


@intrinsic
def clock(typing: Any) -> Any:
    """Nanoseconds of a clock that only goes forward."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _asm(builder, "mov.u64 $0, %globaltimer;", _I64, [], "=l,~{memory}")

    return types.int64(), code


@intrinsic
def give_way(typing: Any, polls: Any) -> Any:
    """After `polls` looks at something that has not come: leave the memory to others for a moment."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, f"nanosleep.u32 {NAP};", ir.VoidType(), [], "~{memory}")
        return context.get_dummy_value()

    return types.void(polls), code


# Data

get, put = elements.scalars(GLOBAL, aligned=True)
get_apart, put_apart = elements.strided(GLOBAL, aligned=True)
get_some, put_some = elements.bounded(GLOBAL, aligned=True)


def _several(words: int) -> str:
    return f".v{words}" if words > 1 else ""


def _registers(first: int, count: int) -> str:
    """So many operands of inline assembly, in braces if they are a vector."""
    names = ", ".join(f"${first + i}" for i in range(count))
    return f"{{{names}}}" if count > 1 else names


def _load_vector(builder: Any, address: Any, word: Any, words: int) -> list[Any]:
    """One instruction, which LLVM would cut up for the narrow numbers that are in it."""
    letter = "l" if word.width == 64 else "r"
    text = f"ld.global{_several(words)}.u{word.width} {_registers(0, words)}, [${words}];"
    return _results(builder, text, word, words, letter, address)


def _results(builder: Any, text: str, word: Any, words: int, letter: str, address: Any) -> list[Any]:
    """The words that an instruction loads from an address."""
    kind = ir.LiteralStructType([word] * words) if words > 1 else word
    found = _asm(builder, text, kind, [address], ",".join([f"={letter}"] * words) + ",l,~{memory}")
    return [builder.extract_value(found, i) for i in range(words)] if words > 1 else [found]


def _store_vector(builder: Any, address: Any, word: Any, words: int, values: Sequence[Any]) -> None:
    letter = "l" if word.width == 64 else "r"
    text = f"st.global{_several(words)}.u{word.width} [$0], {_registers(1, words)};"
    _asm(builder, text, ir.VoidType(), [address, *values], ",".join(["l"] + [letter] * words) + ",~{memory}")


get_vector, put_vector = elements.vectors(_load_vector, _store_vector)


# Everybody's same place


@intrinsic
def alias_fence(typing: Any) -> Any:
    """Between accesses to memory by one address, and by another that it has."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _asm(builder, "fence.proxy.alias;", ir.VoidType(), [], "~{memory}")
        return context.get_dummy_value()

    return types.void(), code


def everywhere(op: str | None, dtype: str, n: int) -> tuple[Any, Any]:
    """Load n neighbouring elements reduced over everybody, and store them to everybody: (address) → value, and (address, value).

    Only what is in `multicast.FORMS` can be loaded.
    """
    operation, _, kind = multicast.FORMS.get((str(op), dtype), "").rpartition(".")
    has_vectors = kind in ("f32", "f16x2", "bf16x2")  # the instruction has none of integers, nor of 64 bits

    def load(builder: Any, address: Any, word: Any, words: int) -> list[Any]:
        if not has_vectors and words > 1:
            step = ir.Constant(_I64, word.width // 8)
            places = [builder.add(address, builder.mul(step, ir.Constant(_I64, i))) for i in range(words)]
            return [raw for place in places for raw in load(builder, place, word, 1)]
        letter = "l" if word.width == 64 else "r"
        how = f"{operation}{_several(words)}.{kind}"
        text = f"multimem.ld_reduce.relaxed.sys.global.{how} {_registers(0, words)}, [${words}];"
        return _results(builder, text, word, words, letter, address)

    def store(builder: Any, address: Any, word: Any, words: int, values: Sequence[Any]) -> None:
        if word.width == 64 and words > 1:
            for i, value in enumerate(values):
                store(builder, builder.add(address, ir.Constant(_I64, 8 * i)), word, 1, [value])
            return
        letter = "l" if word.width == 64 else "r"
        kind = ".f32" if words > 1 else f".b{word.width}"
        text = f"multimem.st.relaxed.sys.global{_several(words)}{kind} [$0], {_registers(1, words)};"
        _asm(builder, text, ir.VoidType(), [address, *values], ",".join(["l"] + [letter] * words) + ",~{memory}")

    get, put = elements.vectors(load, store)

    @register_jitable(forceinline=True)
    def load_all(address):
        return get(dtype, n, address)

    @register_jitable(forceinline=True)
    def store_all(address, value):
        put(dtype, n, address, value)

    return load_all, store_all


@register_jitable
def no_reduce(
    kernel: Any, operands: Any, destinations: Any, sources: Any, length: Any, records: Any, ranks: Any, final: Any, held: Any
) -> None:  # fmt: skip
    """For a program that reduces nothing."""
