"""What a launch runs: each block of threads is a lane, and finds its program in a parameter block of its own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from algocc.kernels import lane, straight, wide
from algocc.kernels import layout as at
from algocc.kernels.operators import ELEMENTS, Element, Operator, kernel_of


def specialise(P: ModuleType, op: str | None, dtype: str | None) -> ModuleType:
    """The primitives P and, made of them, the copy and the reduction by `op` of elements `dtype`, if any."""
    Q = ModuleType(f"{P.__name__}.{op}.{dtype}")
    Q.__dict__.update({name: value for name, value in vars(P).items() if not name.startswith("__")})
    Q.spread = wide.build_spread(P)  # type: ignore[attr-defined]
    Q.reduce = P.no_reduce  # type: ignore[attr-defined]
    if op is not None and dtype is not None:
        e = ELEMENTS[dtype]
        scales = op == "avg" and e.kind in ("float", "complex")
        Q.reduce = wide.build_reduce(P, op=op, dtype=dtype, size=e.size, scales=scales)  # type: ignore[attr-defined]
    return Q


def key_of(op: Operator, e: Element, *, reduces: bool) -> Key:
    """The interpreter that serves `op` on `e`; the one that copies if nothing is reduced."""
    if not reduces:
        return Key(None, None)
    op, e = kernel_of(op, e)
    return Key(op.name, e.name)


class Key(NamedTuple):
    """What a kernel is made for.

    op, dtype: of what it reduces; None if it only copies.
    form: of the Program that it is generated for, with `size`, the bytes of an element; without one, it interprets any.
    """

    op: str | None
    dtype: str | None
    form: straight.Form | None = None
    size: int = 0


def kernel(P: ModuleType, key: Key, *, inline: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of a key for the target whose primitives are P; `inline` as in `build`."""
    if key.form is None:
        Q = specialise(P, key.op, key.dtype)
        return build(Q, lane.build(Q, stamp=""), inline=inline)
    return build(P, straight.build(P, key.form, op=key.op, dtype=key.dtype, size=key.size), inline=inline)


def build(P: ModuleType, lane: Callable[..., Any], *, inline: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel that runs a lane, for the target whose primitives are P.

    inline: makes of the lane what the target compiles into its caller.
    """
    run = inline(lane)

    def kernel(blocks):
        """Run the lane of this block of threads; `blocks` is the address of a parameter block for each.

        The number of the next iteration is kept there, so that a launch can be repeated as it is.
        """
        block = blocks + 8 * at.BLOCK_WORDS * P.block()
        stuck = run(block, P.word(block, at.INDEX))
        stuck = P.join(stuck)
        if stuck == 0 and P.is_leader():
            first = np.uint64(P.word(block, at.FIRST)) + np.uint64(P.word(block, at.ITERATIONS))
            P.set_word(block, at.FIRST, np.int64(first))

    kernel.__qualname__ = "kernel"
    return kernel
