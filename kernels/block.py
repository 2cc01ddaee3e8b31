"""The primitives of a kernel on a CPU where a lane is several threads, as it is on a GPU.

The same names as in `cuda`, so that the code that runs on a GPU runs here too, under real concurrency, with threads that
rest at a barrier for a moment at random. A thread finds out who it is from a few words that it was handed (`enter`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from algocc.kernels import elements
from algocc.kernels.cpu import (
    add_release,
    built_from,
    clock,
    give_way,
    load_acquire,
    nap,
    sched_yield,
    set_word,
    store_release,
    word,
)  # fmt: skip
from algocc.kernels.layout import LINE

WINDOW = 0
"""Partial results stay in registers."""

# The words of a thread
THREAD = 0
THREADS = 1
BLOCK = 2
BARRIER = 3  # address of the lines of the block: arrivals, then the leader's value in even turns, and in odd ones
TURN = 4
CHANCE = 5  # state of a random number
RESTS = 6  # one in so many arrivals at a barrier is late; 0 for none
SELF_WORDS = 16

BARRIER_LINES = 3

__all__ = [
    "WINDOW", "block", "built_from", "clock", "enter", "get", "get_apart", "get_vector", "give_way", "is_leader", "join",
    "load_acquire", "no_reduce", "put", "put_apart", "put_vector", "set_word", "store_release", "thread", "threads", "word",
]  # fmt: skip

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_key = ctypes.c_uint()
if ctypes.CDLL(None).pthread_key_create(ctypes.byref(_key), None):
    raise ImportError("no thread-specific key is left (pthread_key_create)")
llvmlite.binding.add_symbol("algocc_thread_key", ctypes.addressof(_key))


def _load_key(builder: Any) -> Any:
    name = "algocc_thread_key"
    key = builder.module.globals.get(name)
    if key is None:
        key = ir.GlobalVariable(builder.module, _I32, name)
        key.linkage = "external"
    return builder.load(key)


@intrinsic
def enter(typing: Any, words: Any) -> Any:
    """This thread is the one that the words at an address describe."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I64])
        name = "pthread_setspecific"
        declared = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(declared, [_load_key(builder), args[0]])
        return context.get_dummy_value()

    return types.void(types.int64), code


@intrinsic
def itself(typing: Any) -> Any:
    """Address of the words that describe this thread."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I32])
        name = "pthread_getspecific"
        declared = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(declared, [_load_key(builder)])

    return types.int64(), code


@register_jitable
def thread() -> Any:
    """Which of the threads of its lane this is."""
    return word(itself(), THREAD)


@register_jitable
def threads() -> Any:
    """How many threads a lane has."""
    return word(itself(), THREADS)


@register_jitable
def block() -> Any:
    """Which of the blocks of the launch this is."""
    return word(itself(), BLOCK)


@register_jitable
def is_leader() -> Any:
    """Whether this thread waits and signals for its lane."""
    return word(itself(), THREAD) == 0


@register_jitable
def rest(me: Any) -> None:
    """Now and then let others go first."""
    rests = word(me, RESTS)
    if rests != 0:
        chance = word(me, CHANCE) * 6364136223846793005 + 1442695040888963407
        set_word(me, CHANCE, chance)
        drawn = (chance >> 33) % rests
        if drawn == 0:
            nap(2000)
        elif drawn == 1:
            sched_yield()


@register_jitable
def join(value: Any) -> Any:
    """Every thread of the lane goes on when all have come, with the value of the leader."""
    me = itself()
    rest(me)
    barrier, turn = word(me, BARRIER), word(me, TURN) + 1
    set_word(me, TURN, turn)
    spoken = barrier + LINE * (1 + (turn & 1))
    if word(me, THREAD) == 0:
        set_word(spoken, 0, value)
    add_release(barrier, types.uint64(1))
    wanted = types.uint64(turn * word(me, THREADS))
    polls = 0
    while types.int64(load_acquire(barrier) - wanted) < 0:
        polls += 1
        give_way(polls)
    return word(spoken, 0)


get, put = elements.scalars(0, aligned=True)
get_apart, put_apart = elements.strided(0, aligned=True)
get_vector, put_vector = elements.plain_vectors()


@register_jitable
def no_reduce(
    kernel: Any, operands: Any, destinations: Any, sources: Any, length: Any, records: Any, ranks: Any, final: Any, held: Any
) -> None:  # fmt: skip
    """For a program that reduces nothing."""
