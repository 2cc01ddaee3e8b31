"""Two-tree Broadcast and Reduce: full bandwidth in logarithmic steps, each rank sending and receiving one chunk a step.

The ranks besides the root form two binary trees, such that no rank is inner in both; the root feeds them in turn,
even chunks to one, odd chunks to the other. Every edge is used in every second step, and which is its *colour*:
a rank's two incoming edges, one in each tree, get different colours, and so do its two outgoing edges.

Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.collective import broadcast, reduce
from algocc.decorator import schedule
from algocc.schedules.trees import two_trees
from algocc.steps import Steps


class Edges(NamedTuple):
    """Every edge of both trees, from parent to child, by place counted from the root.

    tree: 0 or 1. start: the step in which the edge carries the first chunk of its tree; then one every second step.
    """

    tree: NDArray[np.int64]
    parent: NDArray[np.int64]
    child: NDArray[np.int64]
    start: NDArray[np.int64]


def edges(n: int) -> Edges:
    """Each edge starts in the first step of its colour after the edge into its parent."""
    child = np.arange(1, n)
    trees = two_trees(n - 1)
    parents = [np.append(0, t.parent + 1) for t in trees]
    starts = []
    for t, parent, colour in zip(trees, parents, colours(parents), strict=True):
        start = np.full(n, -1)
        for place in 1 + np.argsort(t.depth):
            ready = start[parent[place]] + 1
            start[place] = ready + (ready + colour[place]) % 2
        starts.append(start[1:])
    parent = np.concatenate([p[1:] for p in parents])
    return Edges(np.repeat([0, 1], n - 1), parent, np.tile(child, 2), np.concatenate(starts))


def delay(n: int) -> int:
    """Steps until the first chunk of both trees is everywhere, at most 2 (floor(log2(n - 1)) + 1).

    >>> [delay(n) for n in (2, 3, 4, 8, 16)]
    [2, 4, 4, 6, 8]
    """
    return int(edges(n).start.max()) + 1


def colours(parents: list[NDArray[np.int64]]) -> list[list[int]]:
    """A colour for the edge into each place, in each tree.

    Edges that must differ form cycles and paths of even length, alternating between edges into one place and
    edges out of one place, so following each from end to end and alternating colours never fails.
    """
    n = len(parents[0])
    out: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for t in (0, 1):
        for child in range(1, n):
            out[parents[t][child]].append((t, child))
    colour = [[-1] * n, [-1] * n]
    for t in (0, 1):
        for child in range(1, n):
            todo = [(t, child, 0)] if colour[t][child] < 0 else []
            while todo:
                u, place, paint = todo.pop()
                colour[u][place] = paint
                siblings = [edge for edge in out[parents[u][place]] if edge != (u, place)]
                todo += [(v, p, 1 - paint) for v, p in [(1 - u, place), *siblings] if colour[v][p] < 0]
    return colour


@schedule(collective="broadcast", steps="delay(n) + 2*(chunks - 1)", sent="1")
def two_tree_broadcast(n: int, root: int = 0, chunks: int = 4) -> Steps:
    """Two-tree Broadcast: half of the vector down each of two trees, each rank inner in one, on alternate steps.

    chunks: chunks of each half. Every rank sends at most m and receives m, one chunk at a time.
    """
    s = Steps(broadcast(n, root=root, chunks=2 * chunks))
    if n == 1:
        return s
    e = edges(n)
    for step in range(delay(n) + 2 * (chunks - 1)):
        nth, odd = divmod(step - e.start, 2)
        now = (odd == 0) & (0 <= nth) & (nth < chunks)
        with s.step():
            chunk = (e.tree * chunks + nth)[now]
            s.copy(src=(root + e.parent[now]) % n, dst=(root + e.child[now]) % n, chunk=chunk)
    return s


@schedule(collective="reduce", steps="delay(n) + 2*(chunks - 1)", sent="1")
def two_tree_reduce(n: int, root: int = 0, chunks: int = 4) -> Steps:
    """Two-tree Reduce: the Broadcast backwards; half of the vector is added up on the way up each of two trees.

    chunks: chunks of each half.
    """
    s = Steps(reduce(n, root=root, chunks=2 * chunks))
    if n == 1:
        return s
    e = edges(n)
    for step in reversed(range(delay(n) + 2 * (chunks - 1))):
        nth, odd = divmod(step - e.start, 2)
        now = (odd == 0) & (0 <= nth) & (nth < chunks)
        with s.step():
            chunk = (e.tree * chunks + nth)[now]
            s.reduce(src=(root + e.child[now]) % n, dst=(root + e.parent[now]) % n, chunk=chunk)
    return s
