"""The reduction of a Move: n sources read once each, every destination written once, partial results held close by.

The sources are folded from the left in the order of the Move, which fixes the bits of the result.
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
    both = not dtype.startswith("complex")  # to two destinations at once: an element is one store to each

    def reduction(operands, destinations, sources, length, records, ranks, final, partial):
        """Reduce two sources or more.

        operands: the table of the addresses of destinations, then sources; length in elements.

        records: the operand records of the sources.
        final: 1 if this Move reduces the last contribution.
        partial: address of `P.WINDOW` bytes that only this lane uses.
        """
        P.built_from(stamp)
        target = P.word(operands, 0)
        for start in range(0, length, window):
            n = min(window, length - start)
            out = target + start * size
            a = P.word(operands, destinations) + start * size
            by_a = ranks if P.word(records, at.IS_FIRST) != 0 else 1
            for s in range(1, sources):
                b = P.word(operands, destinations + s) + start * size
                by_b = ranks if P.word(records, s * at.OPERAND_WORDS + at.IS_FIRST) != 0 else 1
                if both and s == 1 and s == sources - 1 and destinations == 2:
                    second = P.word(operands, 1) + start * size
                    for i in range(P.thread(), n, P.threads()):
                        x, y = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                        if scales:
                            x, y = divide(x, by_a), divide(y, by_b)
                        x = combine(op, x, y)
                        P.put_destination(dtype, out, i, x)
                        P.put_destination(dtype, second, i, x)
                elif s == 1 and s == sources - 1:
                    for i in range(P.thread(), n, P.threads()):
                        x, y = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                        if scales:
                            x, y = divide(x, by_a), divide(y, by_b)
                        P.put_destination(dtype, out, i, combine(op, x, y))
                elif s == 1:
                    for i in range(P.thread(), n, P.threads()):
                        x, y = P.get_source(dtype, a, i), P.get_source(dtype, b, i)
                        if scales:
                            x, y = divide(x, by_a), divide(y, by_b)
                        P.put_held(held, partial, i, combine(op, x, y))
                elif s < sources - 1:
                    for i in range(P.thread(), n, P.threads()):
                        x, y = P.get_held(held, partial, i), P.get_source(dtype, b, i)
                        if scales:
                            y = divide(y, by_b)
                        P.put_held(held, partial, i, combine(op, x, y))
                else:
                    for i in range(P.thread(), n, P.threads()):
                        x, y = P.get_held(held, partial, i), P.get_source(dtype, b, i)
                        if scales:
                            y = divide(y, by_b)
                        P.put_destination(dtype, out, i, combine(op, x, y))
            if truncates and final != 0:
                for i in range(P.thread(), n, P.threads()):
                    P.put(dtype, out, i, truncate(P.get(dtype, out, i), ranks))
            done = 2 if both and sources == 2 and destinations == 2 and not truncates else 1
            for d in range(done, destinations):
                P.copy(P.word(operands, d) + start * size, out, n * size)

    reduction.__name__ = reduction.__qualname__ = f"reduction_{op}_{dtype}"
    return reduction
