"""What runs: lanes of Moves, synchronised by counters that only grow.

A Move is `dsts ← reduce(srcs)`: it waits until its counters have reached their values, reads each source once,
writes each destination once, then signals. A lane runs its Moves in order; a rank has one or more lanes, each a
CPU thread or a GPU threadblock.

A Program is one *iteration*: it handles one tile of every chunk. A run repeats it, tile after tile and call
after call, and iteration g (counted from 0 for as long as the program lives) finds every counter at
`g · total`, so nothing is ever reset. Tiles of the inputs and outputs are different memory in every iteration of a
call; scratch is the same memory again, so a Move may have to wait for the iteration before: that is a `lag`. With
several *sets* of scratch, used in turns, scratch is the same again so many iterations later, and so is the lag.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.errors import ScheduleError, counted
from algocc.table import chunk_name

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Program:
    """Lanes of Moves for one collective. Ragged lists are a start array and the items it delimits.

    name: that of the schedule.
    collective: what it does; `collective.chunks` cuts every block as in the schedule.
    in_place: inputs and outputs share memory as `collective.alias` says.
    scratch: scratch slots on each rank; a slot holds one tile of one chunk.
    lane_rank: rank of each lane, ascending; shape (lanes,).
    lane_start: first Move of each lane; shape (lanes + 1,).
    step: the step of the schedule that a Move comes from; shape (moves,), as are the next four.
    origin: the line of the schedule that a Move comes from, an index into `origins`.
    count: chunks that a Move handles, one after the other: chunk i of it is chunk + i of every operand.
    like: the input chunk, counted through all ranks, whose length the first chunk of the Move has.
    final: the Move reduces the last contribution into its chunks (an average of integers divides here); never set
        for a Move of one source.
    src_start: first source of each Move; sources are `src_rank`, `src_buffer`, `src_chunk`, and `src_first`, which
        is set if the source is one rank's contribution as it came in (an average of floats divides it when a Move
        of two sources or more reduces it; a Move of one source copies).
    dst_start: first destination of each Move; `dst_rank`, `dst_buffer`, `dst_chunk`.
    wait_start: first wait of each Move: until counter `wait_counter` has had its signal number `wait_value`, counted
        from 1, of this iteration, or of the one `wait_lag` iterations before.
    signal_start: first signal of each Move: `signal_counter` grows by one after the destinations are written.
    counter_writer: the only lane that signals a counter; shape (counters,).
    counter_waiter: the lane that waits for it.
    counter_total: signals of a counter in one iteration.
    sets: scratches that iterations use in turns, iteration g that of number g modulo `sets`; a power of 2, since g is
        counted in 64 bits.
    """

    name: str
    collective: Collective
    in_place: bool
    scratch: int
    lane_rank: Array
    lane_start: Array
    step: Array
    origin: Array
    origins: tuple[str, ...]
    count: Array
    like: Array
    final: Array
    src_start: Array
    src_rank: Array
    src_buffer: Array
    src_chunk: Array
    src_first: Array
    dst_start: Array
    dst_rank: Array
    dst_buffer: Array
    dst_chunk: Array
    wait_start: Array
    wait_counter: Array
    wait_value: Array
    wait_lag: Array
    signal_start: Array
    signal_counter: Array
    counter_writer: Array
    counter_waiter: Array
    counter_total: Array
    sets: int = 1

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self.collective.n

    @property
    def lanes(self) -> int:
        """Number of lanes of all ranks together."""
        return len(self.lane_rank)

    @property
    def moves(self) -> int:
        """Number of Moves of all lanes together."""
        return len(self.step)

    @cached_property
    def move_lane(self) -> Array:
        """The lane of each Move; shape (moves,)."""
        return np.repeat(np.arange(self.lanes), np.diff(self.lane_start))

    def source(self, move: int) -> str | None:
        """The source line that a Move comes from, where it is known."""
        origin = int(self.origin[move])
        return self.origins[origin] if 0 <= origin < len(self.origins) else None

    def __repr__(self) -> str:
        return f"<Program {self.name}: {self.collective}, {counted(self.lanes, 'lane')}, {counted(self.moves, 'move')}>"


def listing(p: Program) -> str:
    """The Program as text, a line a Move: `move: destinations = sources`, its waits before, its signals after.

    A chunk of another rank has that rank before it, as in `r2.out[0]`.
    """
    mode = "in place" if p.in_place else "out of place"
    lines = [
        f"program {p.name}: {p.collective}, {mode}; "
        f"{counted(p.lanes, 'lane')}, {counted(p.moves, 'move')}, {counted(len(p.counter_total), 'counter')}, "
        f"{counted(p.scratch, 'scratch slot')} a rank"
    ]
    for lane in range(p.lanes):
        rank = int(p.lane_rank[lane])
        lines.append(f"rank {rank} lane {lane}")
        for m in range(p.lane_start[lane], p.lane_start[lane + 1]):
            count = int(p.count[m])

            def operand(ranks: Array, buffers: Array, chunks: Array, i: int, rank: int = rank, count: int = count) -> str:
                peer = "" if ranks[i] == rank else f"r{ranks[i]}."
                return peer + chunk_name(int(buffers[i]), int(chunks[i]), count)

            srcs = [
                operand(p.src_rank, p.src_buffer, p.src_chunk, i) for i in range(p.src_start[m], p.src_start[m + 1])
            ]
            dsts = [
                operand(p.dst_rank, p.dst_buffer, p.dst_chunk, i) for i in range(p.dst_start[m], p.dst_start[m + 1])
            ]
            waits = [
                f"c{p.wait_counter[i]}>={p.wait_value[i]}" + ("'" * int(p.wait_lag[i]))
                for i in range(p.wait_start[m], p.wait_start[m + 1])
            ]
            signals = [f"c{c}" for c in p.signal_counter[p.signal_start[m] : p.signal_start[m + 1]].tolist()]
            text = f"  {m - p.lane_start[lane]}: "
            text += f"wait {' '.join(waits)}; " if waits else ""
            text += f"{', '.join(dsts)} = {' + '.join(srcs)}" if dsts else "nothing"
            text += f"; signal {' '.join(signals)}" if signals else ""
            lines.append(text)
    return "\n".join(lines)


def check(p: Program) -> None:
    """The validator of a Program's form, run after every pass in tests.

    Raises ScheduleError for ragged lists that do not fit, operands, lengths or counters out of range, Moves with no
    source for their destinations, writes to an input, or a counter with a second writer or a wrong total.
    """

    def fail(message: str) -> None:
        raise ScheduleError(f"program {p.name}: {message}")

    def ragged(name: str, count: int, items: tuple[str, ...]) -> None:
        start = getattr(p, name)
        if len(start) != count + 1 or start[0] != 0 or (np.diff(start) < 0).any():
            fail(f"{name} does not delimit {count} lists")
        for item in items:
            if len(getattr(p, item)) != start[-1]:
                fail(f"{item} has {len(getattr(p, item))} entries, {name} ends at {start[-1]}")

    ragged("lane_start", p.lanes, ("step", "origin", "count", "like", "final"))
    ragged("src_start", p.moves, ("src_rank", "src_buffer", "src_chunk", "src_first"))
    ragged("dst_start", p.moves, ("dst_rank", "dst_buffer", "dst_chunk"))
    ragged("wait_start", p.moves, ("wait_counter", "wait_value", "wait_lag"))
    ragged("signal_start", p.moves, ("signal_counter",))
    if (np.diff(p.lane_rank) < 0).any() or (p.lanes and not 0 <= p.lane_rank[0] <= p.lane_rank[-1] < p.n):
        fail(f"lanes are not in order of their ranks 0..{p.n - 1}")
    if p.moves and p.count.min() < 1:
        fail("a Move of no chunks")
    c = p.collective
    sizes = c.buffer_sizes(p.scratch)
    if ((np.diff(p.dst_start) > 0) != (np.diff(p.src_start) > 0)).any():
        fail("a Move has destinations without sources, or sources without destinations")
    for side in ("src", "dst"):
        rank, buffer, chunk = (getattr(p, f"{side}_{what}") for what in ("rank", "buffer", "chunk"))
        count = np.repeat(p.count, np.diff(getattr(p, f"{side}_start")))
        if len(rank) and not (0 <= rank.min() <= rank.max() < p.n and 0 <= buffer.min() <= buffer.max() <= 2):
            fail(f"a {side} names a rank or buffer that does not exist")
        beyond = (chunk < 0) | (chunk + count > sizes[rank, buffer])
        if beyond.any():
            i = int(np.argmax(beyond))
            fail(f"r{rank[i]}.{chunk_name(int(buffer[i]), int(chunk[i]), int(count[i]))} does not exist")
        if side == "dst" and (buffer == Buffer.INPUT).any():
            fail("a Move writes to an input")
    inputs = int(c.inputs.sum()) * c.chunks
    reads = np.diff(p.src_start) > 0
    if ((p.like < 0) | (p.like + p.count > inputs))[reads].any():
        fail(f"a Move is as long as an input chunk outside 0..{inputs - 1}")
    counters = len(p.counter_total)
    for item in (p.wait_counter, p.signal_counter):
        if len(item) and not 0 <= item.min() <= item.max() < counters:
            fail(f"a counter outside 0..{counters - 1}")
    signal_lane = np.repeat(p.move_lane, np.diff(p.signal_start))
    if (p.counter_writer[p.signal_counter] != signal_lane).any():
        fail("a counter is signalled by a lane that is not its writer")
    if (p.counter_waiter[p.wait_counter] != np.repeat(p.move_lane, np.diff(p.wait_start))).any():
        fail("a counter is waited for by a lane that is not its waiter")
    if (np.bincount(p.signal_counter, minlength=counters) != p.counter_total).any():
        fail("a counter's total is not the number of its signals")
    if p.sets < 1 or p.sets & (p.sets - 1):
        fail(f"{p.sets} sets of scratch, wanted a power of 2")
    if len(p.wait_lag) and not 0 <= p.wait_lag.min() <= p.wait_lag.max() <= p.sets:
        fail(f"a lag outside 0..{p.sets}")
    if len(p.wait_value) and ((p.wait_value < 1) | (p.wait_value > p.counter_total[p.wait_counter])).any():
        fail("a wait for a signal that is never given")
