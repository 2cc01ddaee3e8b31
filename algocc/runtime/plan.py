"""A Program made ready for one count and type: the tables that the kernels read.

Every Move becomes a *part* for each of its chunks, with its length and the place of each operand in elements. In
iteration t a lane handles elements `t * tile` to `(t + 1) * tile` of every part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.kernels import layout as at
from algocc.kernels.operators import Element
from algocc.program import Program
from algocc.runtime.geometry import chunks
from algocc.table import chunk_name

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """Tables as in `kernels.layout`, without addresses.

    iterations: tiles that cover the longest part.
    tile: elements of a tile.
    scratch: elements of scratch on each rank.
    most_operands: of any one Move.
    reduces: some Move has two sources or more.
    """

    iterations: int
    tile: int
    scratch: int
    most_operands: int
    reduces: bool
    moves: Ints
    parts: Ints
    operands: Ints
    waits: Ints
    signals: Ints


class _Operands(NamedTuple):
    """The operands of all Moves, destinations before sources, as the kernels number them; shape (·,) each.

    start: first operand of each Move, and their number; shape (moves + 1,).
    """

    start: Ints
    rank: Array
    buffer: Array
    chunk: Array
    first: Array


def plan(program: Program, *, count: int, element: Element, tile_bytes: int) -> Plan:
    """The tables of a program, in tiles of at most about `tile_bytes`.

    Raises UsageError if a Move moves a chunk through one of another length for this count.
    """
    operands = _operands(program)
    width = np.diff(operands.start)
    parts_of = np.where(width > 0, program.count, 0)
    move = np.repeat(np.arange(program.moves), parts_of)  # of each part
    nth = _within(parts_of)
    length = chunks(program.collective, Buffer.INPUT, count).length[program.like[move] + nth]

    line = max(1, 64 // element.size)
    longest = int(length.max(initial=0))
    tile = line * max(1, min(tile_bytes // 64, -(-longest // line)))
    iterations = -(-longest // tile)

    part = np.repeat(np.arange(len(move)), width[move])  # of each cell: an operand of a part
    operand = operands.start[move[part]] + _within(width[move])
    offset = _place(program, operands, move, nth, length, part, operand, count, tile)

    stride = tile
    keep = np.ones(len(move), bool)
    if iterations == 1 and len(move):
        keep = ~_joined(operands.buffer[operand], offset, length, part, nth, width[move])
        length = np.add.reduceat(length, np.flatnonzero(keep))
        tile = int(length.max())
    else:
        length = length[keep]
    kept = move[keep]
    start = np.cumsum(1 + width[kept]) - (1 + width[kept])
    parts = np.zeros(int((1 + width[kept]).sum()), np.int64)
    parts[start] = length
    body = np.ones(len(parts), bool)
    body[start] = False
    parts[body] = offset[keep[part]]

    parts_of = np.bincount(kept, minlength=program.moves)
    part_start = np.zeros(program.moves, np.int64)
    part_start[kept[::-1]] = start[::-1]
    moves = _moves(program, width, parts_of, part_start, operands.start)
    return Plan(
        iterations=iterations,
        tile=tile,
        scratch=program.scratch * stride,
        most_operands=int(width.max(initial=0)),
        reduces=bool((moves[:, at.SOURCES] > 1).any()),
        moves=moves,
        parts=parts,
        operands=_table(
            operands.rank.astype(np.int64) * 3 + operands.buffer,
            operands.first,
            operands.buffer != Buffer.SCRATCH,
        ),
        waits=_table(
            program.wait_counter,
            program.wait_value,
            program.wait_lag,
            program.counter_total[program.wait_counter],
        ),
        signals=_table(
            program.signal_counter,
            _ordinal(program.signal_counter),
            program.counter_total[program.signal_counter],
        ),
    )


def _operands(p: Program) -> _Operands:
    targets, sources = np.diff(p.dst_start), np.diff(p.src_start)
    start = np.concatenate([[0], np.cumsum(targets + sources)]).astype(np.int64)
    where_dst = np.repeat(start[:-1], targets) + _within(targets)
    where_src = np.repeat(start[:-1] + targets, sources) + _within(sources)
    total = int(start[-1])

    def both(dst: Array, src: Array) -> Array:
        out = np.zeros(total, np.int64)
        out[where_dst], out[where_src] = dst, src
        return out

    return _Operands(
        start,
        both(p.dst_rank, p.src_rank),
        both(p.dst_buffer, p.src_buffer),
        both(p.dst_chunk, p.src_chunk),
        both(np.zeros(len(p.dst_rank)), p.src_first),
    )


def _place(
    p: Program, operands: _Operands, move: Ints, nth: Ints, length: Ints, part: Ints, operand: Ints, count: int,
    tile: int,
) -> Ints:  # fmt: skip
    """Elements before each cell in its buffer. A tile of scratch is a slot, whatever the length of the chunk."""
    chunk = operands.chunk[operand] + nth[part]
    offset = chunk * tile
    for buffer in (Buffer.INPUT, Buffer.OUTPUT):
        cells = np.flatnonzero(operands.buffer[operand] == buffer)
        geometry = chunks(p.collective, buffer, count)
        index = geometry.start[operands.rank[operand[cells]]] + chunk[cells]
        offset[cells] = geometry.offset[index]
        wrong = geometry.length[index] != length[part[cells]]
        if wrong.any():
            cell = int(cells[np.argmax(wrong)])
            m = int(move[part[cell]])
            name = chunk_name(int(buffer), int(chunk[cell]))
            raise UsageError(
                f"program {p.name}: step {p.step[m]}: with count={count}, {name} of rank {operands.rank[operand[cell]]} "
                f"has {geometry.length[index[np.argmax(wrong)]]} elements and would hold a chunk of "
                f"{length[part[cell]]} ({p.source(m)}); use a count divisible by {p.collective.chunks}"
            )
    return offset


def _joined(buffer: Array, offset: Ints, length: Ints, part: Ints, nth: Ints, width: Ints) -> Array:
    """Parts that go on where the part before ends, in all operands: before → after, one part instead of two.

    Valid when a call is one iteration: then it does not matter which tile an element belongs to.
    """
    before = np.maximum(np.arange(len(part)) - width[part], 0)
    goes_on = (buffer != Buffer.SCRATCH) & (offset == offset[before] + length[part[before]])
    start = np.cumsum(width) - width
    joined: Array = (nth > 0) & np.logical_and.reduceat(goes_on, start)
    return joined


def _moves(p: Program, width: Ints, parts_of: Ints, part_start: Ints, start: Ints) -> Ints:
    sources = np.diff(p.src_start)
    return _table(
        width - sources, sources, parts_of, part_start, start[:-1] * at.OPERAND_WORDS,
        np.diff(p.wait_start), p.wait_start[:-1] * at.WAIT_WORDS,
        np.diff(p.signal_start), p.signal_start[:-1] * at.SIGNAL_WORDS, p.final,
        order=(
            at.DESTINATIONS, at.SOURCES, at.PARTS_OF, at.PART_START, at.OPERAND_START,
            at.WAIT_COUNT, at.WAIT_START, at.SIGNAL_COUNT, at.SIGNAL_START, at.FINAL,
        ),
    )  # fmt: skip


def _table(*columns: Array, order: tuple[int, ...] | None = None) -> Ints:
    """Records of int64, column i being `columns[i]`, or `order[i]` if given."""
    table = np.zeros((len(columns[0]), len(columns)), np.int64)
    for i, column in enumerate(columns):
        table[:, order[i] if order else i] = column
    return table


def _within(counts: Array) -> Ints:
    """0, 1, … for each of the lists that `counts` gives the lengths of."""
    ends = np.cumsum(counts)
    within: Ints = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return within


def _ordinal(counter: Array) -> Ints:
    """Which of the signals of its counter each one is, from 1."""
    order = np.argsort(counter, kind="stable")
    groups = np.bincount(counter) if len(counter) else np.zeros(0, np.int64)
    out = np.empty(len(counter), np.int64)
    out[order] = _within(groups) + 1
    return out
