"""A schedule as what simulators take: operations of each rank, and which of its own each must wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from algocc.errors import UsageError
from algocc.exchange.from_schedule import cells_of, schedule_ops
from algocc.exchange.tasks import Cell
from algocc.table import Schedule

MANY = 1 << 60


@dataclass(frozen=True, slots=True)
class Job:
    """An operation of a rank.

    kind: send, recv, reduce or copy. peer: the other rank of a message; tag: which one of the pair it is.
    after: operations of the same rank that must be over first, as their numbers.
    """

    kind: str
    peer: int
    tag: int
    size: int
    step: int
    after: tuple[int, ...]


def jobs(s: Schedule, *, size: int, in_place: bool = False) -> list[list[Job]]:
    """The operations of every rank, in an order in which it could do them one by one.

    All can be done whether a send is over at once, or not before its receive has begun.
    size: bytes of the full vector.

    Raises UsageError for sizes that leave a chunk without a byte.
    """
    unit = s.collective.vector * s.collective.chunks
    if size < unit or size > 1 << 50:
        raise UsageError(f"{s.name}: size={size} bytes: wanted {unit}, a byte for each chunk, to 2^50")
    block = int(s.collective.sizes.max(initial=1))  # all are of one size
    out = []
    for rank_ops in schedule_ops(s, in_place=in_place, most_count=MANY, known=None).ops:
        mine: list[Job] = []
        writer: dict[Cell, int] = {}
        readers: dict[Cell, list[int]] = {}
        times: Counter[tuple[bool, int]] = Counter()
        for op in rank_ops:
            send = op.kind == "s"
            reads = cells_of(op.src, op.size) + (cells_of(op.dst, op.size) if op.kind == "re" else [])
            writes = cells_of(op.dst, op.size)
            arrived = len(mine)
            amount = -(-size * op.size * block // unit) if unit else 0
            tag = times[send, op.peer]
            times[send, op.peer] += 1
            waits = _waits(reads, [] if send else writes, writer, readers)
            # What is reduced, or comes where this rank still sends from in the same step, is put aside as it arrives: a
            # receive that waited for that send would wait for ever if sends wait for their receives.
            aside = op.kind == "rrc" or any(mine[i].kind == "send" and mine[i].step == op.round for i in waits)
            if op.peer >= 0:
                at_once = not send and aside
                mine.append(Job("send" if send else "recv", op.peer, tag, amount, op.round, () if at_once else waits))
                waits = (*waits, arrived)
            if op.kind in ("rrc", "re", "cpy") or (op.kind == "r" and aside):
                kind = "reduce" if op.kind in ("rrc", "re") else "copy"
                mine.append(Job(kind, -1, 0, amount, op.round, waits))
            at = len(mine) - 1
            for cell in reads:
                readers.setdefault(cell, []).append(at)
            for cell in writes:
                writer[cell], readers[cell] = at, []
        out.append(mine)
    return out


def _waits(
    reads: list[Cell], writes: list[Cell], writer: dict[Cell, int], readers: dict[Cell, list[int]]
) -> tuple[int, ...]:
    found = {writer[cell] for cell in reads + writes if cell in writer}
    found |= {reader for cell in writes for reader in readers.get(cell, [])}
    return tuple(sorted(found))
