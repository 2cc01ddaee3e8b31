"""Level 5: in what order contributions are combined, and what that means for rounded sums.

A value's expression is a tree of its contributions. All operators that algocc runs commute to the bit, so two
trees that differ only by swapped operands give equal results; trees that differ otherwise need not, with
floating-point numbers. Trees are told apart by giving equal ones one number.

Rounding bound: a sum by a tree of depth k differs from the exact one by at most γ_k Σ|x_i|, with
γ_k = k u / (1 - k u) and u the unit roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2002, §4.2).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.collective import Collective
from algocc.errors import counted
from algocc.table import Layout, Schedule
from algocc.verifier.dataflow import Trace, held_values

Array = NDArray[Any]

UNIT_ROUNDOFF = {
    "float16": Fraction(1, 2**11),
    "bfloat16": Fraction(1, 2**8),
    "float32": Fraction(1, 2**24),
    "float64": Fraction(1, 2**53),
}


class Order(NamedTuple):
    """How the outputs of a correct schedule combine their contributions.

    same_on_all_ranks: outputs that should be equal are combined alike, so they are equal to the bit.
    same_for_all_chunks: the ranks are combined alike in every chunk, so that an element's bits depend neither on its
        place in the vector nor on the vector's length.
    depth: most additions in a row, 0 if nothing is combined.
    groups: for each distinct tree of ranks, the first output with it and the number of outputs, most common first.
    """

    same_on_all_ranks: bool
    same_for_all_chunks: bool
    depth: int
    groups: list[tuple[int, int]]


def order(s: Schedule, places: Layout, t: Trace, *, depth: int) -> Order:
    """The order of the reductions of a correct, matched schedule; `depth` as `judge` found it."""
    c = s.collective
    held = held_values(places, t)
    inputs = int(c.inputs.sum()) * c.chunks
    exact = _number(t.left, t.right, np.arange(inputs))[held]
    wish = c.want[np.arange(len(held)) // c.chunks] * c.chunks + np.arange(len(held)) % c.chunks
    first = np.full(len(c.set_start) * c.chunks, -1)
    first[wish[::-1]] = exact[::-1]
    reduced = np.diff(c.set_start)[wish // c.chunks] > 1
    rank = np.searchsorted(c.input_start * c.chunks, np.arange(inputs), side="right") - 1
    by_rank = _number(t.left, t.right, rank)[held[reduced]]
    _, where, outputs = np.unique(by_rank, return_index=True, return_counts=True)
    at = np.flatnonzero(reduced)[where]
    groups = sorted(zip(at.tolist(), outputs.tolist(), strict=True), key=lambda g: (-g[1], g[0]))
    return Order(
        same_on_all_ranks=bool((first[wish] == exact).all()),
        same_for_all_chunks=_one_tree_each(c, wish[reduced] // c.chunks, by_rank),
        depth=depth,
        groups=groups,
    )


def _one_tree_each(c: Collective, sets: Array, tree: Array) -> bool:
    """Whether outputs that combine the same ranks have the same tree."""
    block_rank = np.searchsorted(c.input_start, c.set_items, side="right") - 1
    ranks_of: dict[int, tuple[int, ...]] = {}
    seen: dict[tuple[int, ...], int] = {}
    for s, number in np.unique(np.stack([sets, tree]), axis=1).T.tolist():
        if s not in ranks_of:
            ranks_of[s] = tuple(sorted(block_rank[c.set_start[s] : c.set_start[s + 1]].tolist()))
        if seen.setdefault(ranks_of[s], number) != number:
            return False
    return True


@njit(cache=True, nogil=True)
def _number(left, right, leaf):
    """A number for each value; equal for trees that are equal up to swapped operands, with leaves as labelled."""
    inputs = len(leaf)
    out = np.empty(inputs + len(left), np.int64)
    out[:inputs] = leaf
    size = 16
    while size < 2 * len(left) + 16:
        size *= 2
    low = np.full(size, -1, np.int64)
    high = np.empty(size, np.int64)
    number = np.empty(size, np.int64)
    for i in range(len(left)):
        a, b = out[left[i]], out[right[i]]
        if a > b:
            a, b = b, a
        slot = (a * 1000003 + b * 7919) % size
        while low[slot] >= 0 and (low[slot] != a or high[slot] != b):
            slot = (slot + 1) % size
        if low[slot] < 0:
            low[slot], high[slot], number[slot] = a, b, inputs + i
        out[inputs + i] = number[slot]
    return out


def expression(c: Collective, t: Trace, value: int) -> str:
    """A value as people write it, `r0 + r1` for the contributions of ranks, the longer chain on the left.

    Sums of a chain lose their brackets: ((r0 + r1) + r2) + r3 is r0 + r1 + r2 + r3.
    """
    inputs = int(c.inputs.sum()) * c.chunks
    start = c.input_start * c.chunks
    done: dict[int, str] = {}
    stack = [value]
    while stack:
        v = stack.pop()
        if v < inputs:
            done[v] = f"r{int(np.searchsorted(start, v, side='right')) - 1}"
            continue
        a, b = int(t.left[v - inputs]), int(t.right[v - inputs])
        if a in done and b in done:
            if b >= inputs and a < inputs:
                a, b = b, a
            done[v] = f"{done[a]} + {f'({done[b]})' if b >= inputs else done[b]}"
        else:
            stack += [v, *(x for x in (a, b) if x not in done)]
    return done[value]


def gamma(k: int, dtype: str) -> Fraction:
    """γ_k for a type: the relative error bound of k roundings in a row.

    >>> float(gamma(3, "float32"))
    1.788139663...e-07
    """
    u = UNIT_ROUNDOFF[dtype]
    return k * u / (1 - k * u)


def order_text(s: Schedule, places: Layout, t: Trace, o: Order, *, most: int = 8) -> str:
    """The order of the reductions in a few lines: verdicts, bounds against other orders, and the trees."""
    c = s.collective
    contributions = int(np.diff(c.set_start).max(initial=1))
    pairwise = (contributions - 1).bit_length()
    lines = [
        f"  equal on all ranks to the bit     {'yes' if o.same_on_all_ranks else 'NO: ranks combine in different orders'}",
        f"  the same wherever an element is   {'yes' if o.same_for_all_chunks else 'no: it depends on its chunk'}",
        "  the same in every run             yes: the program fixes the order",
        f"  additions in a row                {o.depth}; one after another {contributions - 1}, pairwise {pairwise}",
    ]
    for dtype in ("float32", "bfloat16"):
        if o.depth * UNIT_ROUNDOFF[dtype] < 1:
            bound = f"{float(gamma(o.depth, dtype)):.2e} Σ|x|"
            lines.append(f"  rounding error, {dtype:<9}         at most {bound}")
    held = held_values(places, t)
    for output, count in o.groups[:most]:
        rank = int(np.searchsorted(c.output_start * c.chunks, output, side="right")) - 1
        chunk = output - int(c.output_start[rank]) * c.chunks
        text = expression(c, t, int(held[output]))
        text = text if len(text) < 100 else text[:97] + "…"
        lines.append(f"  {counted(count, 'chunk')} as rank {rank} out[{chunk}]: {text}")
    if len(o.groups) > most:
        lines.append(f"  … {len(o.groups) - most} other orders")
    return "\n".join(lines)
