"""What a collective demands, said for an unknown n: the built-in collectives as functions of rank and chunk.

`algocc.collective` says the same as arrays for a given n; the tests hold the two against each other. Every function
here works on ints and on unknown numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from algocc.collective import COLLECTIVES
from algocc.invariant import Holds, everyone, only
from algocc.symbolic.world import Unprovable


@dataclass(frozen=True)
class Task:
    """A collective for n ranks, its blocks cut into `chunks`.

    inputs, outputs: chunks of a rank.
    loaded: whether the load puts something into this chunk of the sink, of a rank.
    load_from: the input chunk that it puts there.
    finished: what this chunk must hold at the end where the rules work, of a rank.
    stored: the chunk where the rules work that the store takes to an output chunk; the same if None.
    work: chunks of scratch that an invariant speaks of by default, where the rules work there.
    source, sink: the buffers that a rule reads and writes if it names none.
    """

    name: str
    n: Any
    chunks: Any
    inputs: Callable[[Any], Any]
    outputs: Callable[[Any], Any]
    loaded: Callable[[Any, Any], Any]
    load_from: Callable[[Any, Any], Any]
    finished: Callable[[Any, Any], Holds]
    stored: Callable[[Any, Any], Any] | None = None
    work: Any = None
    source: str = "out"
    sink: str = "out"
    params: dict[str, Any] = field(default_factory=dict)


def all_reduce(n: Any, *, chunks: Any = 1) -> Task:
    return Task(
        "all_reduce", n, chunks, inputs=lambda r: chunks, outputs=lambda r: chunks,
        loaded=lambda r, c: (0 <= c) & (c < chunks), load_from=lambda r, c: c,
        finished=lambda r, c: Holds(everyone, of=c),
    )  # fmt: skip


def reduce_scatter(n: Any, *, chunks: Any = 1) -> Task:
    _whole("reduce_scatter", chunks)
    return Task(
        "reduce_scatter", n, 1, inputs=lambda r: n, outputs=lambda r: 1,
        loaded=lambda r, c: (0 <= c) & (c < n), load_from=lambda r, c: c,
        finished=lambda r, c: Holds(everyone, of=c), stored=lambda r, o: r,
        work=n, source="scratch", sink="scratch",
    )  # fmt: skip


def all_gather(n: Any, *, chunks: Any = 1) -> Task:
    _whole("all_gather", chunks)
    return Task(
        "all_gather", n, 1, inputs=lambda r: 1, outputs=lambda r: n,
        loaded=lambda r, c: c == r, load_from=lambda r, c: 0,
        finished=lambda r, c: Holds(only(c), of=0),
    )  # fmt: skip


def broadcast(n: Any, *, root: Any = 0, chunks: Any = 1) -> Task:
    return Task(
        "broadcast", n, chunks, inputs=lambda r: (r == root) * chunks, outputs=lambda r: chunks,
        loaded=lambda r, c: (r == root) & (0 <= c) & (c < chunks), load_from=lambda r, c: c,
        finished=lambda r, c: Holds(only(root), of=c), params={"root": root},
    )  # fmt: skip


def reduce(n: Any, *, root: Any = 0, chunks: Any = 1) -> Task:
    return Task(
        "reduce", n, chunks, inputs=lambda r: chunks, outputs=lambda r: (r == root) * chunks,
        loaded=lambda r, c: (0 <= c) & (c < chunks), load_from=lambda r, c: c,
        finished=lambda r, c: Holds(everyone, of=c), stored=lambda r, o: o,
        work=chunks, source="scratch", sink="scratch", params={"root": root},
    )  # fmt: skip


def scatter(n: Any, *, root: Any = 0, chunks: Any = 1) -> Task:
    _whole("scatter", chunks)
    return Task(
        "scatter", n, 1, inputs=lambda r: (r == root) * n, outputs=lambda r: 1,
        loaded=lambda r, c: (r == root) & (0 <= c) & (c < n), load_from=lambda r, c: c,
        finished=lambda r, c: Holds(only(root), of=c), stored=lambda r, o: r,
        work=n, source="scratch", sink="scratch", params={"root": root},
    )  # fmt: skip


def gather(n: Any, *, root: Any = 0, chunks: Any = 1) -> Task:
    _whole("gather", chunks)
    return Task(
        "gather", n, 1, inputs=lambda r: 1, outputs=lambda r: (r == root) * n,
        loaded=lambda r, c: c == r, load_from=lambda r, c: 0,
        finished=lambda r, c: Holds(only(c), of=0), stored=lambda r, o: o,
        work=n, source="scratch", sink="scratch", params={"root": root},
    )  # fmt: skip


def all_to_all(n: Any, *, chunks: Any = 1) -> Task:
    _whole("all_to_all", chunks)
    return Task(
        "all_to_all", n, 1, inputs=lambda r: n, outputs=lambda r: n,
        loaded=lambda r, c: c == r, load_from=lambda r, c: r,
        finished=lambda r, c: Holds(only(c), of=r), source="in",
    )  # fmt: skip


def scan(n: Any, *, chunks: Any = 1) -> Task:
    return Task(
        "scan", n, chunks, inputs=lambda r: chunks, outputs=lambda r: chunks,
        loaded=lambda r, c: (0 <= c) & (c < chunks), load_from=lambda r, c: c,
        finished=lambda r, c: Holds(lambda p: p <= r, of=c),
    )  # fmt: skip


def _whole(name: str, chunks: Any) -> None:
    """Chunk b * chunks + j of n blocks is a product of unknowns."""
    if not isinstance(chunks, int) or chunks != 1:
        raise Unprovable(f"{name} cut into {chunks} chunks a block: blocks in one piece only")


def _other(name: str) -> Callable[..., Task]:
    def refuse(*args: Any, **params: Any) -> Task:
        raise Unprovable(f"the collective {name} is not one of {', '.join(f.__name__ for f in _COVERED)}")

    return refuse


_COVERED = (all_reduce, reduce_scatter, all_gather, broadcast, reduce, scatter, gather, all_to_all, scan)
TASKS: dict[Callable[..., Any], Callable[..., Task]] = {
    constructor: next((f for f in _COVERED if f.__name__ == name), _other(name))
    for name, constructor in COLLECTIVES.items()
}
"""Each constructor of a collective, and what stands for it where n is unknown."""
