"""Binary trees, pipelined: Broadcast, Reduce and AllReduce in logarithmic steps plus one for each chunk.

A rank sends to both of its children, or receives from both, in the same step.

Double tree: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 2009; NCCL 2.4.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.collective import all_reduce, broadcast, reduce
from algocc.decorator import schedule
from algocc.schedules.arithmetic import in_rank_order
from algocc.steps import Steps, Transfer


class Tree(NamedTuple):
    """A binary tree of ranks. All arrays have one entry a rank; a rank that does not exist is -1."""

    parent: NDArray[np.int64]
    children: NDArray[np.int64]
    depth: NDArray[np.int64]

    @property
    def height(self) -> int:
        """Steps from the root to the farthest leaf."""
        return int(self.depth.max())

    def relabel(self, ranks: NDArray[np.int64]) -> Tree:
        """The same tree with ranks[i] in the place of i."""
        name = np.append(ranks, -1)
        place = np.argsort(ranks)
        return Tree(name[self.parent[place]], name[self.children[:, place]], self.depth[place])


def tree(parents: list[int]) -> Tree:
    """The tree in which `parents[i]` is the parent of i, -1 for the root."""
    children = np.full((2, len(parents)), -1)
    depth = np.zeros(len(parents), np.int64)
    for i, parent in enumerate(parents):
        if parent >= 0:
            children[int(children[0, parent] >= 0), parent] = i
        while parent >= 0:
            depth[i], parent = depth[i] + 1, parents[parent]
    return Tree(np.array(parents), children, depth)


def in_order_tree(n: int) -> Tree:
    """Ranks in the order of a walk left, node, right, so the operands of a reduction stay in rank order.

    Counting from 1, the height of a node is the number of zeros at the end: odd numbers are the leaves.

    >>> in_order_tree(7).parent
    array([ 1,  3,  1, -1,  5,  3,  5])
    """
    parents = []
    for i in range(1, n + 1):
        bit = i & -i
        up = (i - bit) | 2 * bit
        parents.append((up if up <= n else i - bit) - 1)
    return tree(parents)


def pre_order_tree(n: int) -> Tree:
    """Ranks in the order of a walk node, left, right: rank 0 is the root, and subtrees are runs of ranks.

    >>> pre_order_tree(7).parent
    array([-1,  0,  1,  1,  0,  4,  4])
    """
    parents = [-1] * n
    todo = [(0, n)]
    while todo:
        root, size = todo.pop()
        left = size // 2
        for first, part in ((root + 1, left), (root + 1 + left, size - 1 - left)):
            if part:
                parents[first] = root
                todo.append((first, part))
    return tree(parents)


def two_trees(n: int) -> tuple[Tree, Tree]:
    """Two binary trees of the same ranks, such that no rank has children in both.

    The second is the mirror image of the first, or for odd n the first with every rank moved one on; either way
    the leaves, every second rank, change places with the inner nodes.

    >>> [t.parent.tolist() for t in two_trees(4)]
    [[1, 3, 1, -1], [-1, 2, 0, 2]]
    """
    first, r = in_order_tree(n), np.arange(n)
    return first, first.relabel((r + 1) % n if n % 2 else n - 1 - r)


def climb(rank: Any, step: Any, n: int, tree: Tree, chunks: int, first: int = 0) -> list[Transfer]:
    """Reduce chunk after chunk up the tree: the deepest ranks start, each level is a step behind the one below."""
    chunk = step - (tree.height - tree.depth[rank])
    moves = (tree.parent[rank] >= 0) & (0 <= chunk) & (chunk < chunks)
    return in_rank_order(rank, Transfer(tree.parent[rank], first + chunk, when=moves))


def descend(rank: Any, step: Any, n: int, tree: Tree, chunks: int, first: int = 0) -> list[Transfer]:
    """Copy chunk after chunk down the tree: the root starts, each level is a step behind the one above."""
    chunk = step - tree.depth[rank]
    moves = (0 <= chunk) & (chunk < chunks)
    return [
        Transfer(child[rank], first + chunk, when=moves & (child[rank] >= 0), action="copy")
        for child in tree.children
    ]


def climb_and_descend(rank: Any, step: Any, n: int, trees: tuple[Tree, ...], chunks: int) -> list[Transfer]:
    """AllReduce `chunks` chunks on each tree: a chunk goes down from the root as soon as it has come up."""
    return [
        t
        for i, tree in enumerate(trees)
        for t in climb(rank, step, n, tree, chunks, i * chunks)
        + descend(rank, step - tree.height, n, tree, chunks, i * chunks)
    ]


@schedule(collective="all_reduce", steps="2*floor_log(n) + chunks - 1", sent="min(n - 1, 3)")
def binary_tree(n: int, chunks: int = 8) -> Steps:
    """Binary-tree AllReduce: up an in-order tree to the root and down again, as a pipeline of chunks.

    Going up and going down overlap, so every inner rank sends 3m and every leaf m. Operands stay in rank order.
    """
    trees = (in_order_tree(n),)
    s = Steps(all_reduce(n, chunks=chunks))
    steps = 2 * trees[0].height + chunks - 1
    s.rule(partial(climb_and_descend, trees=trees, chunks=chunks), steps=steps if n > 1 else 0)
    return s


@schedule(collective="all_reduce", steps="2*floor_log(n) + chunks - 1", sent="min(n, 4)/2")
def double_binary_tree(n: int, chunks: int = 8) -> Steps:
    """Double-binary-tree AllReduce: half of the vector on each of two trees whose inner ranks differ.

    chunks: chunks of each half. A rank is inner in at most one of the trees, so it sends 3m/2 there and m/2 as
    a leaf of the other: 2m in all, close to the least there is, in logarithmic steps.
    """
    trees = two_trees(n)
    s = Steps(all_reduce(n, chunks=2 * chunks))
    steps = 2 * trees[0].height + chunks - 1
    s.rule(partial(climb_and_descend, trees=trees, chunks=chunks), steps=steps if n > 1 else 0)
    return s


@schedule(collective="broadcast", steps="floor_log(n) + chunks - 1", sent="min(n - 1, 2)")
def tree_broadcast(n: int, root: int = 0, chunks: int = 8) -> Steps:
    """Binary-tree Broadcast: every rank passes each chunk to both of its children as soon as it has it."""
    s = Steps(broadcast(n, root=root, chunks=chunks))
    turned = pre_order_tree(n).relabel((np.arange(n) + root) % n)
    s.rule(partial(descend, tree=turned, chunks=chunks), steps=turned.height + chunks - 1)
    return s


@schedule(collective="reduce", steps="floor_log(n) + chunks - 1", sent="1")
def tree_reduce(n: int, root: int = 0, chunks: int = 8) -> Steps:
    """Binary-tree Reduce: every rank adds each chunk of both of its children to its own and passes it on.

    With root 0 operands stay in rank order.
    """
    s = Steps(reduce(n, root=root, chunks=chunks))
    turned = pre_order_tree(n).relabel((np.arange(n) + root) % n)
    s.rule(partial(climb, tree=turned, chunks=chunks), steps=turned.height + chunks - 1)
    return s
