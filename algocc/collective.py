"""What must hold before and after a collective, as data: a dozen ten-line values of one type, and yours.

A collective has *blocks*: the pieces in which its definition speaks (AllReduce has one block a rank, the
vector; AllGather one in and n out). A schedule may cut every block into `chunks` equal parts, so chunk
`b * chunks + j` of a buffer is part j of block b. All arrays here count blocks; `chunks` does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError, counted, near

Ints = NDArray[np.int64]


class Buffer(IntEnum):
    """The three buffers of a rank. The input is never written to (out of place)."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2


CHUNKS = 2**31 - 1
"""Chunks that a buffer can have: tables count them in 32 bits."""

BUFFER_NAMES = {Buffer.INPUT: "in", Buffer.OUTPUT: "out", Buffer.SCRATCH: "scratch"}


@dataclass(frozen=True, eq=False)
class Collective:
    """A pre- and a postcondition over blocks, and the customs that make schedules short to write.

    name: as in `COLLECTIVES`, or a name of your own.
    n: number of ranks, at least 1.
    inputs, outputs: blocks of each rank, shape (n,).
    want: for every output block, ranks in order, the index of the set it must reduce; shape (sum(outputs),).
    set_start, set_items: the sets: set s is `set_items[set_start[s]:set_start[s + 1]]`, input blocks counted
        through all ranks in order; a block named twice must be added twice.
    alias: rows (rank, input block, output block) that share memory in place; shape (·, 3).
    load: rows (rank, input block, block of the sink) that a schedule copies first, within each rank.
    store: rows (rank, block of the source, output block) that a schedule copies last, within each rank.
    source, sink: the buffers that a transfer reads and writes if it names none.
    work: blocks of scratch that `load` and `store` speak of, 0 where they mean the output.
    sizes: elements of each input block, in units of the count a call gives; shape (sum(inputs),).
    idempotent: a set is wanted, not a multiset (Barrier).
    chunks: parts that a schedule cuts each block into.
    params: what the constructor in `COLLECTIVES` was given besides n and chunks.

    >>> c = all_gather(3)
    >>> c.wanted(0, 2)          # block 2 of the output of rank 0: block 0 of the input of rank 2
    [(2, 0)]
    """

    name: str
    n: int
    inputs: Ints
    outputs: Ints
    want: Ints
    set_start: Ints
    set_items: Ints
    alias: Ints
    load: Ints = field(default_factory=lambda: _rows([]))
    store: Ints = field(default_factory=lambda: _rows([]))
    source: Buffer = Buffer.INPUT
    sink: Buffer = Buffer.OUTPUT
    work: int = 0
    sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    idempotent: bool = False
    chunks: int = 1
    params: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = int(self.inputs.sum())
        if not len(self.sizes):
            object.__setattr__(self, "sizes", np.ones(total, np.int64))
        for name in ("inputs", "outputs", "want", "set_start", "set_items", "alias", "load", "store", "sizes"):
            value = np.ascontiguousarray(getattr(self, name), np.int64)
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        _check(self, total)

    @cached_property
    def input_start(self) -> Ints:
        """Number of input blocks on the ranks before each rank, and in all; shape (n + 1,)."""
        return _offsets(self.inputs)

    @cached_property
    def output_start(self) -> Ints:
        """Number of output blocks on the ranks before each rank, and in all; shape (n + 1,)."""
        return _offsets(self.outputs)

    @cached_property
    def output_sizes(self) -> Ints:
        """Elements of each output block, in units of the count a call gives; shape (sum(outputs),)."""
        return self.sizes[self.set_items[self.set_start[self.want]]]

    @cached_property
    def vector(self) -> int:
        """The full vector m in units of the count a call gives: the largest input or output of any rank."""
        heaviest = 0
        for sizes, start in ((self.sizes, self.input_start), (self.output_sizes, self.output_start)):
            heaviest = max(heaviest, int(np.diff(_offsets(sizes)[start]).max(initial=0)))
        return heaviest

    def wanted(self, rank: int, block: int) -> list[tuple[int, int]]:
        """The multiset of (rank, input block) that output block `block` of `rank` must reduce, sorted."""
        s = self.want[self.output_start[rank] + block]
        items = self.set_items[self.set_start[s] : self.set_start[s + 1]]
        ranks = np.searchsorted(self.input_start, items, side="right") - 1
        return sorted(zip(ranks.tolist(), (items - self.input_start[ranks]).tolist(), strict=True))

    def buffer_sizes(self, scratch: int) -> Ints:
        """Chunks of the input, output and scratch of each rank, given those of scratch; shape (n, 3)."""
        return np.stack([self.inputs * self.chunks, self.outputs * self.chunks, np.full(self.n, scratch)], axis=1)

    def size(self, buffer: Buffer, rank: int) -> int:
        """Chunks of the input or output of `rank`."""
        return int((self.inputs if buffer == Buffer.INPUT else self.outputs)[rank]) * self.chunks

    def cut(self, chunks: int) -> Collective:
        """The same collective, each block cut into `chunks` parts."""
        if chunks < 1:
            raise UsageError(f"{self.name}: chunks={chunks}: a block is cut into at least 1 chunk")
        return replace(self, chunks=int(chunks))

    @property
    def reduces(self) -> bool:
        """Whether some output block combines several contributions."""
        return bool((np.diff(self.set_start) > 1).any())

    def same_task(self, other: Collective) -> bool:
        """Whether both demand the same of the same buffers, whatever they are called and cut into."""
        if not all(np.array_equal(getattr(self, a), getattr(other, a)) for a in ("inputs", "outputs", "sizes")):
            return False
        pairs = np.unique(self.want * np.int64(len(other.set_start)) + other.want)
        mine, theirs = self.sets(pairs // len(other.set_start)), other.sets(pairs % len(other.set_start))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def sets(self, which: Ints) -> tuple[Ints, Ints]:
        """The lengths of these sets, and their items one set after another, each set sorted."""
        lengths = np.diff(self.set_start)[which]
        ends = np.cumsum(lengths)
        at = np.arange(int(lengths.sum())) + np.repeat(self.set_start[:-1][which] - ends + lengths, lengths)
        owner, items = np.repeat(np.arange(len(which)), lengths), self.set_items[at]
        return lengths, items[np.lexsort((items, owner))]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collective):
            return NotImplemented
        return (
            self.same_task(other)
            and np.array_equal(self.alias, other.alias)
            and (self.name, self.chunks, self.idempotent) == (other.name, other.chunks, other.idempotent)
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        words = [self.name, f"n={self.n}", f"chunks={self.chunks}"]
        words += [f"{k}={json.dumps(v, separators=(',', ':'))}" for k, v in self.params.items()]
        return " ".join(words)


def _offsets(sizes: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _rows(rows: Iterable[Sequence[int]] | Ints) -> Ints:
    return np.asarray(list(rows) if not isinstance(rows, np.ndarray) else rows, np.int64).reshape(-1, 3)


def _check(c: Collective, total: int) -> None:
    where = f"collective {c.name}"
    if c.n < 1:
        raise UsageError(f"{where}: n={c.n}: a collective has at least 1 rank")
    if not hasattr(c.chunks, "__index__"):
        raise UsageError(f"{where}: chunks={c.chunks!r}: wanted a whole number")
    if c.chunks < 1:
        raise UsageError(f"{where}: chunks={c.chunks}: a block is cut into at least 1 chunk")
    for name, length in (("inputs", c.n), ("outputs", c.n), ("want", int(c.outputs.sum())), ("sizes", total)):
        found = getattr(c, name)
        if found.shape != (length,):
            raise UsageError(f"{where}: {name} has shape {found.shape}, wanted ({length},)")
        if found.min(initial=0) < 0:
            raise UsageError(f"{where}: {name} holds {found.min()}, wanted 0 or more")
    most = max(1, int(c.inputs.max(initial=0)), int(c.outputs.max(initial=0)), c.work)
    if c.chunks > CHUNKS // most:
        raise UsageError(f"{where}: chunks={c.chunks}: with {most} blocks a rank, at most {CHUNKS // most}")
    if c.set_start[0] or c.set_start[-1] != len(c.set_items):
        raise UsageError(f"{where}: set_start does not go from 0 to {len(c.set_items)}, the length of set_items")
    if len(c.want) and c.want.max() >= len(c.set_start) - 1:
        raise UsageError(f"{where}: want names set {c.want.max()}, there are {len(c.set_start) - 1}")
    if len(c.set_items) and not 0 <= c.set_items.min() <= c.set_items.max() < total:
        raise UsageError(f"{where}: a set names an input block outside 0..{total - 1}")
    sizes = np.diff(c.set_start)
    if (sizes < 1).any():
        raise UsageError(f"{where}: set {int(np.argmax(sizes < 1))} is empty: every output needs a contribution")
    first = np.repeat(c.sizes[c.set_items[c.set_start[:-1]]], sizes) if len(c.set_items) else c.set_items
    if (c.sizes[c.set_items] != first).any():
        raise UsageError(f"{where}: a set holds blocks of different sizes: they can't be reduced")
    for name, first_of, last_of in (
        ("alias", c.inputs, c.outputs),
        ("load", c.inputs, c.outputs if c.sink == Buffer.OUTPUT else np.full(c.n, c.work)),
        ("store", c.outputs if c.source == Buffer.OUTPUT else np.full(c.n, c.work), c.outputs),
    ):
        rank, first_block, last_block = getattr(c, name).T
        if len(rank) and (
            getattr(c, name).min() < 0
            or rank.max() >= c.n
            or (first_block >= first_of[rank]).any()
            or (last_block >= last_of[rank]).any()
        ):
            raise UsageError(f"{where}: a row of {name} names a rank or block that does not exist")
    rank, i, o = c.alias.T
    i, o = c.input_start[rank] + i, c.output_start[rank] + o
    shared = np.bincount(i).max(initial=0) > 1 or np.bincount(o).max(initial=0) > 1
    if shared or (c.sizes[i] != c.output_sizes[o]).any():
        raise UsageError(f"{where}: alias: in place an input block is one output block of the same size")


def _collective(
    name: str,
    n: int,
    *,
    inputs: Ints | int,
    outputs: Ints | int,
    sets: tuple[Any, Any],
    want: Any,
    **rest: Any,
) -> Collective:
    """Spell out scalars; `sets` is (items, lengths)."""
    items, lengths = sets
    for key in ("alias", "load", "store"):
        rest[key] = _rows(rest.get(key, []))
    return Collective(
        name=name,
        n=n,
        inputs=np.broadcast_to(np.asarray(inputs, np.int64), (n,)),
        outputs=np.broadcast_to(np.asarray(outputs, np.int64), (n,)),
        want=want,
        set_start=_offsets(np.asarray(lengths, np.int64)),
        set_items=items,
        **rest,
    )


def _ranks(name: str, n: int) -> Ints:
    if n < 1:
        raise UsageError(f"collective {name}: n={n}: a collective has at least 1 rank")
    return np.arange(n)


def check_rank(rank: int, n: int, what: str) -> int:
    """`rank`, or a UsageError that says what it was meant as."""
    if not hasattr(rank, "__index__"):
        raise UsageError(f"{what}={rank!r}: wanted a whole number")
    if not 0 <= rank < n:
        raise UsageError(f"{what}={rank}: with n={n} a rank is one of 0..{n - 1}")
    return int(rank)


def _stack(*columns: Any) -> Ints:
    return np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, 3)


def all_reduce(n: int, *, chunks: int = 1) -> Collective:
    """Every rank ends with the reduction of all vectors. One block a rank."""
    r = _ranks("all_reduce", n)
    one = _stack(r, 0, 0)
    return _collective(
        "all_reduce", n, inputs=1, outputs=1, sets=(r, np.array([n])), want=0 * r, chunks=chunks,
        alias=one, load=one, source=Buffer.OUTPUT,
    )  # fmt: skip


def reduce_scatter(n: int, *, chunks: int = 1) -> Collective:
    """Rank r ends with the reduction of block r of all inputs. n blocks in, one out."""
    r = _ranks("reduce_scatter", n)
    return _collective(
        "reduce_scatter", n, inputs=n, outputs=1, chunks=chunks,
        sets=(np.add.outer(r, r * n).ravel(), np.full(n, n)), want=r, alias=_stack(r, r, 0),
        load=_stack(r[:, None], r, r), store=_stack(r, r, 0),
        source=Buffer.SCRATCH, sink=Buffer.SCRATCH, work=n,
    )  # fmt: skip


def all_gather(n: int, *, chunks: int = 1) -> Collective:
    """Every rank ends with the inputs of all, in rank order. One block in, n out."""
    r = _ranks("all_gather", n)
    return _collective(
        "all_gather", n, inputs=1, outputs=n, sets=(r, np.ones(n)), want=np.tile(r, n), chunks=chunks,
        alias=_stack(r, 0, r), load=_stack(r, 0, r), source=Buffer.OUTPUT,
    )  # fmt: skip


def broadcast(n: int, *, root: int = 0, chunks: int = 1) -> Collective:
    """Every rank ends with the vector of the root, the only rank with an input."""
    r = _ranks("broadcast", n)
    root = check_rank(root, n, "root")
    one = _stack(root, 0, 0)
    return _collective(
        "broadcast", n, inputs=(r == root).astype(np.int64), outputs=1, sets=(np.zeros(1), np.ones(1)),
        want=0 * r, alias=one, load=one, source=Buffer.OUTPUT, chunks=chunks, params={"root": root},
    )  # fmt: skip


def reduce(n: int, *, root: int = 0, chunks: int = 1) -> Collective:
    """The root, the only rank with an output, ends with the reduction of all vectors."""
    r = _ranks("reduce", n)
    root = check_rank(root, n, "root")
    return _collective(
        "reduce", n, inputs=1, outputs=(r == root).astype(np.int64), sets=(r, np.array([n])),
        want=np.zeros(1), alias=_stack(root, 0, 0), load=_stack(r, 0, 0), store=_stack(root, 0, 0),
        source=Buffer.SCRATCH, sink=Buffer.SCRATCH, work=1, chunks=chunks, params={"root": root},
    )  # fmt: skip


def scatter(n: int, *, root: int = 0, chunks: int = 1) -> Collective:
    """Rank r ends with block r of the root, the only rank with inputs."""
    r = _ranks("scatter", n)
    root = check_rank(root, n, "root")
    return _collective(
        "scatter", n, inputs=n * (r == root), outputs=1, sets=(r, np.ones(n)), want=r,
        alias=_stack(root, root, 0), load=_stack(root, r, r), store=_stack(r, r, 0),
        source=Buffer.SCRATCH, sink=Buffer.SCRATCH, work=n, chunks=chunks, params={"root": root},
    )  # fmt: skip


def gather(n: int, *, root: int = 0, chunks: int = 1) -> Collective:
    """The root, the only rank with outputs, ends with the inputs of all, in rank order."""
    r = _ranks("gather", n)
    root = check_rank(root, n, "root")
    return _collective(
        "gather", n, inputs=1, outputs=n * (r == root), sets=(r, np.ones(n)), want=r,
        alias=_stack(root, 0, root), load=_stack(r, 0, r), store=_stack(root, r, r),
        source=Buffer.SCRATCH, sink=Buffer.SCRATCH, work=n, chunks=chunks, params={"root": root},
    )  # fmt: skip


def all_to_all(n: int, *, chunks: int = 1) -> Collective:
    """Block j of rank i ends as block i of rank j. n blocks in, n out."""
    r = _ranks("all_to_all", n)
    return _collective(
        "all_to_all", n, inputs=n, outputs=n, sets=(np.arange(n * n), np.ones(n * n)),
        want=np.add.outer(r, r * n).ravel(), alias=_stack(r[:, None], r, r), load=_stack(r, r, r), chunks=chunks,
    )  # fmt: skip


def all_to_all_v(n: int, *, counts: Sequence[Sequence[int]], chunks: int = 1) -> Collective:
    """As AllToAll, block j of rank i holding `counts[i][j]` units, 0 included. In place if counts are symmetric."""
    r = _ranks("all_to_all_v", n)
    size = np.asarray(counts)
    if size.shape != (n, n) or size.dtype.kind not in "iu" or (size < 0).any():
        raise UsageError(f"all_to_all_v: counts: wanted {n} rows of {n} whole numbers of 0 or more")
    size = size.astype(np.int64)
    return replace(
        all_to_all(n, chunks=chunks),
        name="all_to_all_v",
        sizes=size.ravel(),
        alias=_stack(r[:, None], r, r) if (size == size.T).all() else _rows([]),
        params={"counts": size.tolist()},
    )


def scan(n: int, *, chunks: int = 1) -> Collective:
    """Rank r ends with the reduction of the vectors of ranks 0..r."""
    r = _ranks("scan", n)
    one = _stack(r, 0, 0)
    i, j = np.tril_indices(n)
    return _collective(
        "scan", n, inputs=1, outputs=1, sets=(j, r + 1), want=r, alias=one, load=one, source=Buffer.OUTPUT,
        chunks=chunks,
    )  # fmt: skip


def exscan(n: int, *, chunks: int = 1) -> Collective:
    """Rank r > 0 ends with the reduction of the vectors of ranks 0..r-1; rank 0 has no output."""
    r = _ranks("exscan", n)
    i, j = np.tril_indices(n - 1)
    return _collective(
        "exscan", n, inputs=1, outputs=(r > 0).astype(np.int64), sets=(j, r[1:]), want=r[:-1],
        alias=_stack(r[1:], 0, 0), chunks=chunks,
    )  # fmt: skip


def barrier(n: int, *, chunks: int = 1) -> Collective:
    """Every rank ends with a token that has seen all ranks; how often does not matter."""
    return replace(all_reduce(n, chunks=chunks), name="barrier", idempotent=True)


def send_recv(n: int, *, pairs: Sequence[tuple[int, int]] | None = None, chunks: int = 1) -> Collective:
    """The next output block of each `dst` is the next input block of its `src`, for (src, dst) in `pairs`.

    Without `pairs`, every rank r sends to r + 1, around the ring.
    """
    r = _ranks("send_recv", n)
    pairs = [(int(i), (int(i) + 1) % n) for i in r] if pairs is None else [(int(a), int(b)) for a, b in pairs]
    for a, b in pairs:
        check_rank(a, n, "send_recv: src")
        check_rank(b, n, "send_recv: dst")
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    inputs, outputs = np.bincount(src, minlength=n), np.bincount(dst, minlength=n)
    item = np.empty(len(src), np.int64)
    item[np.argsort(src, kind="stable")] = np.arange(len(src))
    return _collective(
        "send_recv", n, inputs=inputs, outputs=outputs, sets=(item, np.ones(len(src))),
        want=np.argsort(dst, kind="stable"), chunks=chunks, params={"pairs": [list(p) for p in pairs]},
    )  # fmt: skip


def custom(
    name: str,
    *,
    inputs: Sequence[int],
    outputs: Sequence[Sequence[Sequence[tuple[int, int]]]],
    alias: Sequence[tuple[int, int, int]] = (),
    chunks: int = 1,
) -> Collective:
    """A collective of your own: `outputs[rank][block]` lists the (rank, input block) pairs it must reduce.

    inputs: number of input blocks of each rank; it also says how many ranks there are.
    alias: (rank, input block, output block) that share memory in place.

    >>> swap = custom("swap", inputs=[1, 1], outputs=[[[(1, 0)]], [[(0, 0)]]])
    >>> swap.wanted(0, 0)
    [(1, 0)]
    """
    n = len(inputs)
    if len(outputs) != n:
        raise UsageError(f"collective {name}: outputs of {counted(len(outputs), 'rank')}, inputs of {n}")
    start = _offsets(np.asarray(inputs, np.int64))
    sets = [block for rank in outputs for block in rank]
    for block in sets:
        for r, i in block:
            if not 0 <= r < n or not 0 <= i < inputs[r]:
                raise UsageError(f"collective {name}: an output wants block {i} of rank {r}, which does not exist")
    return _collective(
        name, n, inputs=np.asarray(inputs), outputs=np.array([len(rank) for rank in outputs]),
        sets=(np.array([start[r] + i for block in sets for r, i in block], np.int64), np.array([len(b) for b in sets])),
        want=np.arange(len(sets)), alias=np.asarray(alias, np.int64), chunks=chunks,
    )  # fmt: skip


COLLECTIVES: dict[str, Callable[..., Collective]] = {
    f.__name__: f
    for f in (
        all_reduce, reduce_scatter, all_gather, broadcast, reduce, scatter, gather,
        all_to_all, all_to_all_v, scan, exscan, barrier, send_recv,
    )
}  # fmt: skip


def collective(name: str, n: int, **params: Any) -> Collective:
    """The built-in collective called `name`.

    >>> str(collective("broadcast", 4, root=2))
    'broadcast n=4 chunks=1 root=2'
    """
    if name not in COLLECTIVES:
        raise UsageError(f"unknown collective {name!r}{near(name, COLLECTIVES)}; known: {', '.join(COLLECTIVES)}")
    try:
        return COLLECTIVES[name](n, **params)
    except TypeError as error:
        raise UsageError(f"collective {name}: {error}") from error


def to_json(c: Collective) -> dict[str, Any]:
    """A JSON value that `from_json` reads back without loss: by name where the name says it all."""
    known = COLLECTIVES.get(c.name)
    if known is not None:
        params = {**c.params, "chunks": c.chunks}
        if collective(c.name, c.n, **params) == c:
            return {"name": c.name, "n": c.n, **params}
    arrays = ("inputs", "outputs", "want", "set_start", "set_items", "alias", "load", "store", "sizes")
    scalars = ("name", "n", "work", "idempotent", "chunks", "params")
    return {
        **{k: getattr(c, k) for k in scalars},
        **{k: int(getattr(c, k)) for k in ("source", "sink")},
        **{k: getattr(c, k).tolist() for k in arrays},
    }


def from_json(value: dict[str, Any]) -> Collective:
    """The collective that `to_json` wrote.

    Raises UsageError for a key that is missing or unknown.
    """
    value = dict(value)
    if "want" not in value:
        try:
            name, n = value.pop("name"), value.pop("n")
        except KeyError as error:
            raise UsageError(f"collective: the key {error} is missing") from error
        return collective(name, n, **value)
    fields = Collective.__dataclass_fields__
    for key in value:
        if key not in fields:
            raise UsageError(f"collective: unknown key {key!r}{near(key, fields)}")
    for key in ("alias", "load", "store"):
        value[key] = _rows(value.get(key, []))
    arrays = ("inputs", "outputs", "want", "set_start", "set_items", "sizes")
    try:
        value |= {k: np.asarray(value[k], np.int64) for k in arrays}
        value |= {k: Buffer(value[k]) for k in ("source", "sink")}
        return Collective(**value)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"collective: {type(error).__name__}: {error}") from error
