"""What a file claims to do: from its collective's name and its chunk counts to a Collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from algocc.collective import COLLECTIVES as BUILT_IN
from algocc.collective import Collective, collective
from algocc.errors import UsageError, counted
from algocc.exchange.msccl import Algo
from algocc.exchange.msccl_types import COLLECTIVES
from algocc.place import Notes, Place
from algocc.table import Schedule

WIDE = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")
"""Collectives with a block for each rank on some rank."""
MOST_OUTPUTS = 1 << 22
"""Chunks of all ranks together beyond which a file is not looked at."""


class Traffic(NamedTuple):
    """Which ranks send, which receive, and who sends to whom."""

    senders: set[int]
    receivers: set[int]
    pairs: list[tuple[int, int]]


def claim(algo: Algo, notes: Notes) -> Collective:
    """The collective that an MSCCL XML file claims to be."""
    traffic = Traffic(set(), set(), [])
    for rank, gpu in enumerate(algo.gpus):
        for block in gpu.blocks:
            if any(s.type.pushes for s in block.steps):
                traffic.senders.add(rank)
                traffic.pairs.append((rank, block.send))
            if any(s.type.pops for s in block.steps):
                traffic.receivers.add(rank)
    return meaning(algo.coll, [g.chunks[:2] for g in algo.gpus], traffic, algo.place, notes, loop=algo.loop)


def meaning(
    coll: str, chunks: Sequence[tuple[int, int]], traffic: Traffic, at: Place, notes: Notes, *, loop: int | None = None
) -> Collective:
    """The collective that `coll` names for ranks with these (input, output) chunks.

    loop: chunks of the whole vector, where the file says so.

    Raises UsageError for counts that are not those of the collective. A count of 0 is taken as in place.
    """
    n, name = len(chunks), COLLECTIVES[coll]
    most = max(n if name in WIDE else 1, loop or 0, *(max(pair) for pair in chunks))
    if n * most > MOST_OUTPUTS:
        at.refuse(f"{n} ranks of {most} chunks", wanted=f"at most {MOST_OUTPUTS} chunks in all")
    c = _unit(name, coll, n, traffic, at, notes)
    per_block = _parts(c, chunks, loop, at)
    c = c.cut(per_block)
    for rank, (i, o) in enumerate(chunks):
        for found, blocks, what in ((i, c.inputs, "i_chunks"), (o, c.outputs, "o_chunks")):
            want = int(blocks[rank]) * per_block
            if found not in (want, 0) and not (want == 0 and found <= c.vector * per_block):
                at.refuse(
                    f"gpu {rank} has {what}={found}",
                    wanted=f"{want} for {coll} of {counted(n, 'rank')} and {counted(per_block, 'chunk')} a block, or 0",
                )
    return c


def _unit(name: str, coll: str, n: int, traffic: Traffic, at: Place, notes: Notes) -> Collective:
    """The collective with one chunk a block; a root is not in the file, so who sends and receives must tell."""
    if name in ("broadcast", "scatter", "reduce", "gather"):
        others = traffic.receivers if name in ("broadcast", "scatter") else traffic.senders
        roots = sorted(set(range(n)) - others)
        root = roots[0] if roots else 0
        sure = "" if len(roots) == 1 else ", though the messages do not tell it"
        notes.add(at, f"the root of {coll} is not in the file: taken as rank {root}{sure}")
        return collective(name, n, root=root)
    if name == "send_recv":
        pairs = sorted(set(traffic.pairs))
        if not pairs:
            at.refuse("no rank sends anything", wanted=f"messages: who sends to whom in {coll} is taken from them")
        notes.add(at, f"who sends to whom in {coll} is not in the file: taken from the messages, {pairs}")
        return collective(name, n, pairs=pairs)
    if coll == "alltoallv":
        notes.add(at, "the counts of alltoallv are not in the file: checked for equal counts")
    assert name in BUILT_IN
    return collective(name, n)


def _parts(c: Collective, chunks: Sequence[tuple[int, int]], loop: int | None, at: Place) -> int:
    """Chunks of each block, from the largest buffer that the collective has."""
    if loop is not None:
        if loop % c.vector:
            at.refuse(
                f"nchunksperloop={loop}",
                wanted=f"a multiple of {c.vector}, the blocks of {c.name} on {counted(c.n, 'rank')}"
            )
        return loop // c.vector
    found = max(max(pair) for pair in chunks)
    blocks = max(int(c.inputs.max()), int(c.outputs.max()))
    if found % blocks or not found:
        at.refuse(f"buffers of {found} chunks", wanted=f"a multiple of {blocks}, the blocks of {c.name} on {c.n} ranks")
    return found // blocks


def check_meaning(s: Schedule, read: Callable[[], Collective]) -> None:
    """Raise UsageError if what is read of a file written for a schedule is another collective.

    Formats do not say the root of a Broadcast, nor the pairs of SendRecv: they must be plain from the messages.
    """
    try:
        found = read()
        taken = f"a reader takes it for {found}"
    except UsageError as error:
        found, taken = None, f"a reader can't tell: {error}"
    if found is None or not found.same_task(s.collective) or found.chunks != s.collective.chunks:
        raise UsageError(
            f"{s.name}: the format has no room for what {s.collective} says besides its name: {taken}; give "
            "the schedule another root or other pairs"
        )
