"""How a call is cut: into channels, tiles and blocks of threads.

A Program's lanes are few; a GPU wants hundreds of blocks. So a call is cut into *channels*: each runs the whole Program,
with counters and scratch of its own, on its own run of tiles of every chunk. What a tile computes does not depend on
any other tile, so neither does the result on the number of channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError
from algocc.kernels import grid, straight
from algocc.kernels import layout as at
from algocc.kernels.cuda import most_threads
from algocc.kernels.operators import Element, Operator
from algocc.program import Program
from algocc.runtime.plan import Plan, plan

Ints = NDArray[np.int64]

TILE_BYTES = 128 << 10
"""Most bytes of a chunk that a block handles before it signals."""

CHANNEL_BYTES = 16 << 10
"""Fewest bytes of a chunk that make it worth another channel."""


@dataclass(frozen=True)
class Shape:
    """How a call is cut.

    channels: copies of the Program, each with a run of tiles.
    threads: of a block.
    tiles: that each channel handles.
    """

    channels: int
    threads: int
    tiles: int


def cut(
    program: Program, count: int, op: Operator, e: Element, *, lanes: int, processors: int, channels: int | None = None,
    threads: int | None = None, tile_bytes: int | None = None,
) -> tuple[Plan, Shape]:  # fmt: skip
    """The tables of a program and the shape of its calls, chosen by size where not given.

    lanes: most lanes on one device; processors: fewest of one.

    Raises UsageError for a shape that can't be.
    """
    if program.sets > 1:
        raise UsageError(f"program {program.name}: it has {program.sets} sets of scratch; a GPU runs those with one")
    for name, value in (("channels", channels), ("threads", threads), ("tile_bytes", tile_bytes)):
        if value is not None and value < 1:
            raise UsageError(f"{name}={value}: wanted 1 or more")
    longest = _longest(program, count, e.size)
    if channels is None:
        channels = max(1, min(processors // max(1, lanes), longest // CHANNEL_BYTES))
    if tile_bytes is None:
        tile_bytes = max(64, min(TILE_BYTES, -(-longest // channels)))
    ready = plan(program, count=count, element=e, tile_bytes=tile_bytes)
    channels = max(1, min(channels, ready.iterations))
    tiles = -(-ready.iterations // channels)
    channels = max(1, -(-ready.iterations // max(tiles, 1)))
    key = grid.key_of(op, e, reduces=ready.reduces)
    most = most_threads(key.op, key.dtype)
    if threads is None:
        threads = min(most, max(32, -(-ready.tile * e.size // 16 // 32) * 32))
    if threads > most:
        raise UsageError(f"threads={threads}: this kernel is compiled for at most {most} threads of a block")
    return ready, Shape(channels, threads, tiles)


def sliced(ready: Plan, begin: int, length: int) -> Ints:
    """The table of parts for a run of elements: every part cut to it, every operand but scratch moved to its start."""
    parts = ready.parts.copy()
    if begin == 0 and length >= ready.iterations * ready.tile:
        return parts
    for move in ready.moves.tolist():
        width = move[at.DESTINATIONS] + move[at.SOURCES]
        first, count = move[at.PART_START], move[at.PARTS_OF]
        records = ready.operands.reshape(-1, at.OPERAND_WORDS)[move[at.OPERAND_START] // at.OPERAND_WORDS :][:width]
        table = parts[first : first + count * (1 + width)].reshape(count, 1 + width)
        table[:, 0] = np.clip(table[:, 0] - begin, 0, length)
        table[:, 1:] += begin * records[:, at.ADVANCES]
    return parts


def traffic(ready: Plan, e: Element) -> int:
    """Bytes that the Moves of a call read and write, counting each access."""
    total = 0
    for move in ready.moves.tolist():
        width = move[at.DESTINATIONS] + move[at.SOURCES]
        first, count = move[at.PART_START], move[at.PARTS_OF]
        lengths = ready.parts[first : first + count * (1 + width)].reshape(count, 1 + width)[:, 0]
        total += int(lengths.sum()) * width
    return total * e.size


def _longest(program: Program, count: int, size: int) -> int:
    """Bytes of the longest chunk."""
    units = program.collective.sizes
    return -(-int(units.max(initial=0)) * count // program.collective.chunks) * size


def kernel_of(
    p: Program, ready: Plan, op: Operator, e: Element, form: str, operand_kinds: Ints | None = None
) -> tuple[grid.Key, Ints]:
    """The kernel that runs a program, and which kind of lane of it each lane is; `operand_kinds` as for `straight.form`.

    Raises UsageError for an unknown form, and for a program that is too large to be generated.
    """
    key = grid.key_of(op, e, reduces=ready.reduces)
    if form == "interpreted":
        return key, np.zeros(p.lanes, np.int64)
    if form != "generated":
        raise UsageError(f"form={form!r}: wanted 'interpreted' or 'generated'")
    made, kinds = straight.form(p.lane_start, ready.moves, ready.operands, ready.waits, ready.signals, name=p.name,
                                operand_kinds=operand_kinds)  # fmt: skip
    return key._replace(form=made, size=e.size), np.array(kinds, np.int64)
