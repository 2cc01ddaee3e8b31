"""The primitives of a kernel on a CPU where a lane is several threads, as it is on a GPU.

The same names as in `cuda`, so that the code that runs on a GPU runs here too, under real concurrency, with threads that
rest at a barrier for a moment at random. A thread finds out who it is from a few words that it was handed (`enter`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding
import numpy as np
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
    load_relaxed,
    nap,
    or_release,
    sched_yield,
    set_word,
    store_relaxed,
    store_release,
    word,
)  # fmt: skip
from algocc.kernels.layout import LINE
from algocc.kernels.wide import fold

WINDOW = 0
"""Partial results stay in registers."""

# The words of a thread
THREAD = 0
THREADS = 1
BLOCK = 2
BARRIER = 3  # address of the lines of the block: arrivals, then what the threads say in each of three turns
TURN = 4
CHANCE = 5  # state of a random number
RESTS = 6  # one in so many arrivals at a barrier is late; 0 for none
TEAM_BARRIER = 7  # address of the lines of the team: arrivals, then what its last thread says in even turns, and in odd ones
TEAM_TURN = 8
SELF_WORDS = 16

BARRIER_LINES = 4
TEAM_LINES = 3

TEAM = 3
"""Threads that share a line: fewer than on a GPU, and no power of two."""

__all__ = [
    "TEAM", "WINDOW", "alias_fence", "block", "built_from", "clock", "enter", "everywhere", "get", "get_apart", "get_some", "get_vector", "give_way",
    "is_leader", "join", "load_acquire", "load_line", "load_relaxed", "load_share", "no_reduce", "put", "put_apart", "put_some",
    "put_vector", "say", "set_word", "store_line", "store_relaxed", "store_release", "store_share", "thread", "threads", "word",
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
def _drawn(me: Any, below: Any) -> Any:
    """A random number from 0 on."""
    chance = word(me, CHANCE) * 6364136223846793005 + 1442695040888963407
    set_word(me, CHANCE, chance)
    return (chance >> 33) % below


@register_jitable
def rest(me: Any) -> None:
    """Now and then let others go first."""
    rests = word(me, RESTS)
    if rests != 0:
        drawn = _drawn(me, rests)
        if drawn == 0:
            nap(2000)
        elif drawn == 1:
            sched_yield()


@register_jitable
def join(value: Any) -> Any:
    """Every thread of the lane goes on when all have come: with 0 if all bring it, else 1 if one brings that, else 2."""
    me = itself()
    rest(me)
    barrier, turn = word(me, BARRIER), word(me, TURN) + 1
    set_word(me, TURN, turn)
    if word(me, THREAD) == 0:  # all have read this before they came to the turn before
        set_word(barrier + LINE * (1 + (turn + 1) % 3), 0, 0)
    spoken = barrier + LINE * (1 + turn % 3)
    if value != 0:
        or_release(spoken, types.uint64(value))
    _arrive(barrier, turn * word(me, THREADS))
    said = word(spoken, 0)
    return 2 - (said & 1) if said != 0 else 0


@register_jitable
def _arrive(barrier: Any, wanted: Any) -> None:
    add_release(barrier, types.uint64(1))
    polls = 0
    while types.int64(load_acquire(barrier) - types.uint64(wanted)) < 0:
        polls += 1
        give_way(polls)


# Lines with flags


@register_jitable
def load_line(address: Any) -> Any:
    """The two words of a line of 16 bytes, each whole."""
    return load_relaxed(address), load_relaxed(address + 8)


@register_jitable
def store_line(address: Any, first: Any, second: Any) -> None:
    """Write the two words of a line of 16 bytes, each whole; here in either order, and others may run between."""
    me = itself()
    chance = word(me, CHANCE) & 1
    store_relaxed(address + 8 * chance, second if chance else first)
    rest(me)
    store_relaxed(address + 8 * (1 - chance), first if chance else second)


@register_jitable
def say(value: Any) -> Any:
    """Every thread of the team goes on when all have come, with the value of the last of them."""
    me = itself()
    rest(me)
    barrier, turn = word(me, TEAM_BARRIER), word(me, TEAM_TURN) + 1
    set_word(me, TEAM_TURN, turn)
    spoken = barrier + LINE * (1 + (turn & 1))
    if word(me, THREAD) % TEAM == TEAM - 1:
        set_word(spoken, 0, value)
    _arrive(barrier, turn * TEAM)
    return word(spoken, 0)


@register_jitable
def load_share(address: Any, last: Any) -> Any:
    """This thread's word of a line that the team loads at once: none is older than that of the last thread."""
    if last:
        found = load_acquire(address)
        say(0)
        return found
    say(0)
    return load_relaxed(address)


@register_jitable
def store_share(address: Any, value: Any, last: Any) -> None:
    """Write this thread's word of a line that the team stores at once: whoever sees that of the last thread sees all."""
    if last:
        say(0)
        store_release(address, value)
    else:
        store_relaxed(address, value)
        say(0)


get, put = elements.scalars(0, aligned=True)
get_apart, put_apart = elements.strided(0, aligned=True)
get_some, put_some = elements.bounded(0, aligned=True)
get_vector, put_vector = elements.plain_vectors()


# Everybody's same place: an address whose highest bits say which row of `members`, and the others how far into their memory

PLACE_BITS = 48
MOST_MEMBERS = 16
members = np.zeros((1 << 8, 1 + MOST_MEMBERS), np.int64)
"""Of each piece of memory that has such addresses, how many have it, and where it begins with each."""
llvmlite.binding.add_symbol("algocc_members", members.ctypes.data)


@intrinsic
def _members(typing: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = "algocc_members"
        table = builder.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(builder.module, _I64, name)
            table.linkage = "external"
        return builder.ptrtoint(table, _I64)

    return types.int64(), code


@register_jitable
def _member(address: Any, k: Any) -> Any:
    """Where the k-th member has what is at an address of everybody's."""
    row = _members() + 8 * (1 + MOST_MEMBERS) * (address >> PLACE_BITS)
    return word(row, 1 + k) + (address & ((1 << PLACE_BITS) - 1))


@register_jitable
def _sharing(address: Any) -> Any:
    return word(_members() + 8 * (1 + MOST_MEMBERS) * (address >> PLACE_BITS), 0)


@register_jitable
def alias_fence() -> None:
    """Between accesses to memory by one address, and by another that it has."""


def everywhere(op: str | None, dtype: str, n: int) -> tuple[Any, Any]:
    """Load n neighbouring elements reduced over everybody, from a random member on, and store them to everybody: (address) → value,
    and (address, value)."""

    @register_jitable
    def load_all(address):
        me = itself()
        rest(me)
        count = _sharing(address)
        first = _drawn(me, count)
        x = get_vector(dtype, n, _member(address, first))
        for k in range(1, count):
            x = fold(op, x, get_vector(dtype, n, _member(address, (first + k) % count)))
        return x

    @register_jitable
    def store_all(address, value):
        for k in range(_sharing(address)):
            put_vector(dtype, n, _member(address, k), value)

    return load_all, store_all


@register_jitable
def no_reduce(
    kernel: Any, operands: Any, destinations: Any, sources: Any, length: Any, records: Any, ranks: Any, final: Any, held: Any
) -> None:  # fmt: skip
    """For a program that reduces nothing."""
