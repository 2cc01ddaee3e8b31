"""The reduction of a Move: n sources read once each, every destination written once.

The sources are folded from the left in the order of the Move, which fixes the bits of the result. Two sources, and four,
go to one destination, and to as many, in one pass over all of them. Other numbers go window by window: what has been
folded so far is held in the first-level cache, as are the results that other destinations are copied from.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from algocc.kernels import layout as at
from algocc.kernels.operators import combine, divide, truncate


def build(
    P: ModuleType, *, op: str, dtype: str, held: str, size: int, held_size: int, scales: bool, stamp: str
) -> Callable[..., Any]:
    """The reduction by `op` of elements `dtype`, for the target whose primitives are P.

    held, held_size: type and bytes of a partial result.
    scales: contributions are divided by the number of ranks before they are added.
    stamp: the source it is built from.
    """
    window = P.WINDOW // held_size
    truncates = op == "avg" and not scales

    def reduction(operands, destinations, sources, length, records, ranks, final, partial):
        """Reduce two sources or more.

        operands: the table of the addresses of destinations, then sources; length in elements.

        records: the operand records of the sources.
        final: 1 if this Move reduces the last contribution.
        partial: address of `P.WINDOW` bytes that only this lane uses.
        """
        P.built_from(stamp)
        done = 1  # destinations that are written as the sources are read
        if (sources == 2 or sources == 4) and sources == destinations and not truncates:
            done = sources
        step = length if done == destinations and (sources == 2 or sources == 4) and not truncates else window
        for start in range(0, length, max(step, 1)):
            n = min(step, length - start)
            w = P.word(operands, 0) + start * size
            a = P.word(operands, destinations) + start * size
            b = P.word(operands, destinations + 1) + start * size
            by_a = ranks if P.word(records, at.IS_FIRST) != 0 else 1
            by_b = ranks if P.word(records, at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1
            if sources == 2 and done == 2:
                x = P.word(operands, 1) + start * size
                for i in range(P.thread(), n, P.threads()):
                    u, v = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                    if scales:
                        u, v = divide(u, by_a), divide(v, by_b)
                    u = combine(op, u, v)
                    P.put_destination_0(dtype, w, i, u)
                    P.put_destination_1(dtype, x, i, u)
            elif sources == 2:
                for i in range(P.thread(), n, P.threads()):
                    u, v = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                    if scales:
                        u, v = divide(u, by_a), divide(v, by_b)
                    P.put_destination_0(dtype, w, i, combine(op, u, v))
            elif sources == 4:
                c, d = P.word(operands, destinations + 2) + start * size, P.word(operands, destinations + 3) + start * size
                by_c = ranks if P.word(records, 2 * at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1
                by_d = ranks if P.word(records, 3 * at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1
                if done == 4:
                    x = P.word(operands, 1) + start * size
                    y, z = P.word(operands, 2) + start * size, P.word(operands, 3) + start * size
                    for i in range(P.thread(), n, P.threads()):
                        s, t = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                        u, v = P.get_source(dtype, c, i), P.get_source(dtype, d, i)
                        if scales:
                            s, t, u, v = divide(s, by_a), divide(t, by_b), divide(u, by_c), divide(v, by_d)
                        s = combine(op, combine(op, combine(op, s, t), u), v)
                        P.put_destination_0(dtype, w, i, s)
                        P.put_destination_1(dtype, x, i, s)
                        P.put_destination_2(dtype, y, i, s)
                        P.put_destination_3(dtype, z, i, s)
                else:
                    for i in range(P.thread(), n, P.threads()):
                        s, t = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                        u, v = P.get_source(dtype, c, i), P.get_source(dtype, d, i)
                        if scales:
                            s, t, u, v = divide(s, by_a), divide(t, by_b), divide(u, by_c), divide(v, by_d)
                        P.put_destination_0(dtype, w, i, combine(op, combine(op, combine(op, s, t), u), v))
            else:
                for i in range(P.thread(), n, P.threads()):
                    u, v = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                    if scales:
                        u, v = divide(u, by_a), divide(v, by_b)
                    P.put_held(held, partial, i, combine(op, u, v))
                for s in range(2, sources):
                    b = P.word(operands, destinations + s) + start * size
                    by_b = ranks if P.word(records, s * at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1
                    if s < sources - 1:
                        for i in range(P.thread(), n, P.threads()):
                            u, v = P.get_held(held, partial, i), P.get_source(dtype, b, i)
                            if scales:
                                v = divide(v, by_b)
                            P.put_held(held, partial, i, combine(op, u, v))
                    else:
                        for i in range(P.thread(), n, P.threads()):
                            u, v = P.get_held(held, partial, i), P.get_source(dtype, b, i)
                            if scales:
                                v = divide(v, by_b)
                            P.put_destination_0(dtype, w, i, combine(op, u, v))
            if truncates and final != 0:
                for i in range(P.thread(), n, P.threads()):
                    P.put(dtype, w, i, truncate(P.get(dtype, w, i), ranks))
            for k in range(done, destinations):
                P.copy(P.word(operands, k) + start * size, w, n * size)

    reduction.__name__ = reduction.__qualname__ = f"reduction_{op}_{dtype}"
    return reduction
