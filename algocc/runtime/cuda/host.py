"""A Program on GPUs: ranks on devices, each lane of a rank as several blocks, one launch a device.

A Program's lanes are few; a GPU wants hundreds of blocks. So a call is cut into *channels*: each runs the whole Program,
with counters and scratch of its own, on its own run of tiles of every chunk. What a tile computes does not depend on
any other tile, so neither does the result on the number of channels.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import RunError, UsageError
from algocc.kernels import grid
from algocc.kernels import layout as at
from algocc.kernels.cuda import most_threads
from algocc.kernels.operators import element, operator
from algocc.program import Program, check
from algocc.runtime.cuda.arrays import Array, Seen, see
from algocc.runtime.cuda.driver import Driver, cuda
from algocc.runtime.geometry import buffer_elements, check_count, shifts
from algocc.runtime.memory import readable
from algocc.runtime.plan import Plan, plan
from algocc.runtime.report import describe
from algocc.runtime.threads import check_reduction

Ints = NDArray[np.int64]

TILE_BYTES = 128 << 10
"""Most bytes of a chunk that a block handles before it signals."""

CHANNEL_BYTES = 16 << 10
"""Fewest bytes of a chunk that make it worth another channel."""

POLLS = 1000
"""Looks at a counter before a block looks at the clock."""

MOST_HELD = 64
"""Calls not waited for whose arrays are kept; who enqueues more keeps their arrays himself."""

ALIGN = 256
"""Bytes that regions of an arena start at multiples of."""


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


class Arena:
    """One piece of memory of a device, cut into regions before it is asked for."""

    def __init__(self) -> None:
        self.size = 0
        self.at: dict[str, int] = {}
        self.base = 0

    def add(self, name: str, size: int) -> None:
        """Reserve `size` bytes."""
        self.at[name] = self.size
        self.size += -(-size // ALIGN) * ALIGN

    def address(self, name: str) -> int:
        """Where a region is, once `base` is known."""
        return self.base + self.at[name]


class Devices:
    """A Program ready to run on GPUs of this process, as often as you like; the shape of its call is that of `Threads`.

    program, count, dtype, op, timeout: as for `Threads`.
    devices: the device of each rank; a single number puts all ranks on one, which then emulates them.
    channels, threads, tile_bytes: how a call is cut, chosen by size if not given.
    driver: what stands for the GPUs; the CUDA driver if not given.

    Calls are ordered: each begins when the one before is done, on whatever stream. A call is kept in memory of the devices,
    so that a graph of it can be launched again and again (`graph`).

    Raises UsageError, before anything is launched, for what can't be used: no driver, devices that do not exist or do not
    reach each other, more blocks than a device runs at the same time; ScheduleError for a malformed program.
    """

    def __init__(
        self, program: Program, *, count: int, dtype: Any = "float32", op: str = "sum", timeout: float = 30.0,
        devices: int | Sequence[int] = 0, channels: int | None = None, threads: int | None = None,
        tile_bytes: int | None = None, driver: Driver | None = None,
    ) -> None:  # fmt: skip
        check(program)
        self.program = program
        self.count = check_count(program.collective, count)
        self.element, self.operator = element(dtype), operator(op)
        check_reduction(program.collective, self.operator, self.element)
        if not 0 < timeout < 1e9:
            raise UsageError(f"timeout={timeout}: wanted a number of seconds above 0")
        self.timeout = float(timeout)
        self._driver = cuda() if driver is None else driver
        self.devices = _placed(devices, program.n, self._driver.count())
        self._used = sorted(set(self.devices))
        self._check_links()
        self._lane_device = np.array([self.devices[r] for r in program.lane_rank.tolist()], np.int64)
        longest = _longest(program, self.count, self.element.size)
        ready, self.shape = self._cut(longest, channels, threads, tile_bytes)
        self._plan = ready
        self._kernels = {}
        if self._runs():
            key = grid.key_of(self.operator, self.element, reduces=ready.reduces)
            self._kernels = {d: self._driver.kernel(d, key) for d in self._used}
            self._check_fits()
        self._elements = buffer_elements(program.collective, self.count)
        self._shifts = shifts(program.collective, self.count) if program.in_place else [None] * program.n
        self._lock = threading.Lock()
        self._failed: str | None = None
        self._pending = False
        self._held: deque[tuple[Any, ...]] = deque(maxlen=MOST_HELD)
        self._bases = np.zeros((program.n, 3), np.int64)
        self._shown: Ints | None = None
        self._memory: list[tuple[int, int]] = []
        self._end = weakref.finalize(self, _release, self._driver, self._memory)
        self._lines, lines = self._driver.shared(at.LINE)
        self._streams = {d: self._driver.stream(d) for d in self._used}
        self._before = {d: self._driver.event(d) for d in self._used}
        self._after = {d: self._driver.event(d) for d in self._used}
        self._last: dict[int, int] | None = None
        self._arenas = self._build(ready, lines)

    # Calling

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any], *, stream: Any = None) -> None:
        """Run once: read every rank's input, write every rank's output.

        inputs, outputs: for each rank an array on its device, as for `Threads`: an `Array`, or anything with
            `__cuda_array_interface__` or DLPack; None where there are no elements.
        stream: the stream to run on, a number or one for each device that is used; the call then returns when the work is
            on it, and `wait` says how it went. Without one, the call waits.

        Raises UsageError for arrays that do not fit, naming the rank, or a closed object; RunError, naming the rank to look
        at, if a lane waits longer than the timeout, and ever after.
        """
        with self._lock:
            self._check_open()
            streams = self._given(stream)
            seen = self._bind(inputs, outputs, streams)
            if not self._runs():
                return
            self._enqueue(streams, seen)
            self._pending = True
            self._held.append((*inputs, *outputs))
            if stream is None:
                self._settle()

    def wait(self) -> None:
        """Return when all calls are done.

        Raises RunError, naming the rank to look at, if one failed.
        """
        with self._lock:
            self._check_open()
            self._settle()

    def graph(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Graph:
        """A call on these arrays as a CUDA graph, which costs less to launch; ranks must be on one device.

        Raises UsageError as the call does, or if there are several devices.
        """
        with self._lock:
            self._check_open()
            if len(self._used) != 1:
                raise UsageError(f"a graph is of one device, these ranks are on {len(self._used)}: call instead")
            device = self._used[0]
            stream = self._streams[device]
            seen = self._bind(inputs, outputs, {device: stream})
            self._settle()
            for s in seen:
                self._follow(device, stream, s)
            self._show({device: stream})
            self._driver.begin_capture(device, stream)
            if self._runs():
                self._launch({device: stream})
            return Graph(self, self._driver.end_capture(device, stream), self._bases.copy(), (*inputs, *outputs))

    def _replay(self, graph: int, bases: Ints, times: int) -> None:
        with self._lock:
            self._check_open()
            device = self._used[0]
            stream = self._streams[device]
            self._order({device: stream})
            self._bases[:] = bases
            self._show({device: stream})
            for _ in range(times):
                self._driver.launch_graph(device, graph, stream)
            self._driver.record(device, self._after[device], stream)
            self._last = {device: stream}
            self._pending = True

    def measure(self, graph: Graph, times: int) -> float:
        """Microseconds of each of so many launches of a graph, one after the other, by the device's clock."""
        device = self._used[0]
        stream = self._streams[device]
        begin, end = self._driver.event(device), self._driver.event(device)
        self._driver.record(device, begin, stream)
        graph(times)
        self._driver.record(device, end, stream)
        self.wait()
        return self._driver.elapsed(begin, end) * 1e3 / times

    @property
    def traffic(self) -> int:
        """Bytes that the Moves of a call read and write, counting each access."""
        moves = self._plan.moves
        total = 0
        for move in moves.tolist():
            width = move[at.DESTINATIONS] + move[at.SOURCES]
            first, count = move[at.PART_START], move[at.PARTS_OF]
            lengths = self._plan.parts[first : first + count * (1 + width)].reshape(count, 1 + width)[:, 0]
            total += int(lengths.sum()) * width
        return total * self.element.size

    def abort(self) -> None:
        """Make the lanes that wait give up; the object can't be used any more."""
        self._lines.view(np.uint64)[0] = 1

    def empty(self, rank: int, elements: int, *, skip: int = 0) -> Array:
        """A new array of zeros on the device of a rank, `skip` elements after an aligned address."""
        return Array(self._driver, self.devices[rank], elements, self.element.name, skip=skip)

    def buffers(self, *, skip: int = 0) -> tuple[list[Array], list[Array]]:
        """New inputs and outputs of every rank, zeroed; in place, as the program wants them."""
        ins, outs = self._elements
        if not self.program.in_place:
            return [self.empty(r, n, skip=skip) for r, n in enumerate(ins)], [
                self.empty(r, n, skip=skip) for r, n in enumerate(outs)
            ]
        inputs, outputs = [], []
        for rank, shift in enumerate(self._shifts):
            if shift is None:
                inputs.append(self.empty(rank, ins[rank], skip=skip))
                outputs.append(self.empty(rank, outs[rank], skip=skip))
                continue
            low = min(0, shift)
            whole = self.empty(rank, max(shift + ins[rank], outs[rank]) - low, skip=skip)
            inputs.append(_part(whole, shift - low, ins[rank]))
            outputs.append(_part(whole, -low, outs[rank]))
        return inputs, outputs

    def close(self) -> None:
        """Give the memory back, after the calls under way; a second time does nothing."""
        with self._lock:
            if self._end.alive and self._pending:
                for device, stream in self._streams.items():
                    self._driver.synchronize(device, stream)
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "failed" if self._failed else "open" if self._end.alive else "closed"
        where = f"device {self._used[0]}" if len(self._used) == 1 else f"{len(self._used)} devices"
        return (
            f"<Devices {self.program.name}: {self.count} {self.element.name}, {self.operator.name}, "
            f"{self.program.n} ranks on {where}, {state}>"
        )

    # What can be refused before anything is launched

    def _runs(self) -> bool:
        return bool(self._plan.iterations and self.program.lanes)

    def _check_links(self) -> None:
        """Every device reaches the memory that its lanes touch, and the counters of the lanes they wake."""
        p = self.program
        lane_rank = p.lane_rank.astype(np.int64)
        owner = lane_rank[p.move_lane] if p.moves else np.zeros(0, np.int64)
        pairs = set()
        for start, peer in ((p.src_start, p.src_rank), (p.dst_start, p.dst_rank)):
            pairs |= set(zip(np.repeat(owner, np.diff(start)).tolist(), peer.tolist(), strict=True))
        pairs |= set(zip(lane_rank[p.counter_writer].tolist(), lane_rank[p.counter_waiter].tolist(), strict=True))
        for rank, peer in sorted(pairs):
            a, b = self.devices[rank], self.devices[peer]
            if not self._driver.reach(a, b):
                raise UsageError(
                    f"program {p.name}: rank {rank} on device {a} touches memory of rank {peer} on device {b}, and there is "
                    "no link between them (peer access); use devices that `nvidia-smi topo -p2p r` shows as OK, or another "
                    "schedule"
                )

    def _cut(
        self, longest: int, channels: int | None, threads: int | None, tile_bytes: int | None
    ) -> tuple[Plan, Shape]:
        p, size = self.program, self.element.size
        for name, value in (("channels", channels), ("threads", threads), ("tile_bytes", tile_bytes)):
            if value is not None and value < 1:
                raise UsageError(f"{name}={value}: wanted 1 or more")
        if channels is None:
            lanes = max(np.bincount(self._lane_device).tolist(), default=1) if p.lanes else 1
            room = min(self._driver.facts(d).processors for d in self._used) // max(1, lanes)
            channels = max(1, min(room, longest // CHANNEL_BYTES))
        if tile_bytes is None:
            tile_bytes = max(64, min(TILE_BYTES, -(-longest // channels)))
        ready = plan(p, count=self.count, element=self.element, tile_bytes=tile_bytes)
        channels = max(1, min(channels, ready.iterations))
        tiles = -(-ready.iterations // channels)
        channels = max(1, -(-ready.iterations // max(tiles, 1)))
        most = most_threads(*grid.key_of(self.operator, self.element, reduces=ready.reduces))
        if threads is None:
            threads = min(most, max(32, -(-ready.tile * size // 16 // 32) * 32))
        if threads > most:
            raise UsageError(f"threads={threads}: this kernel is compiled for at most {most} threads of a block")
        return ready, Shape(channels, threads, tiles)

    def _check_fits(self) -> None:
        for device in self._used:
            facts = self._driver.facts(device)
            lanes = int((self._lane_device == device).sum())
            blocks = lanes * self.shape.channels
            if not facts.cooperative:
                raise UsageError(
                    f"device {device} ({facts.name}) can't promise that all blocks of a launch run at the same time "
                    "(cooperative launch), which lanes that wait for each other need"
                )
            each = self._driver.blocks(device, self._kernels[device], self.shape.threads)
            if blocks > each * facts.processors:
                raise UsageError(
                    f"program {self.program.name}: device {device} ({facts.name}) runs {each * facts.processors} blocks of "
                    f"{self.shape.threads} threads at the same time, {each} on each of {facts.processors} processors; "
                    f"{lanes} lanes in {self.shape.channels} channels are {blocks}: use fewer ranks on it, lanes, channels "
                    "or threads"
                )

    # Memory

    def _build(self, ready: Plan, lines: int) -> dict[int, Arena]:
        """Every device's tables, counters, scratch and parameter blocks."""
        p, size, k = self.program, self.element.size, self.shape.channels
        local = -(-8 * (at.ADDRESSES + ready.most_operands) // at.LINE) * at.LINE
        scratch = -(-ready.scratch * size // ALIGN) * ALIGN
        counters = len(p.counter_total)
        device_of_counter = self._lane_device[p.counter_waiter] if counters else np.zeros(0, np.int64)
        parts = [_sliced(ready, c * self.shape.tiles * ready.tile, self.shape.tiles * ready.tile) for c in range(k)]
        tables = {
            "starts": p.lane_start.astype(np.int64), "moves": ready.moves, "operands": ready.operands,
        }  # fmt: skip
        arenas = {}
        for device in self._used:
            arena, lanes = Arena(), int((self._lane_device == device).sum())
            for name, table in tables.items():
                arena.add(name, table.nbytes)
            for c in range(k):
                arena.add(f"parts {c}", parts[c].nbytes)
                arena.add(f"waits {c}", ready.waits.nbytes)
                arena.add(f"signals {c}", ready.signals.nbytes)
                arena.add(f"bases {c}", 8 * 3 * p.n)
            arena.add("blocks", 8 * at.BLOCK_WORDS * lanes * k)
            arena.add("local", local * lanes * k)
            arena.add("counters", at.LINE * int((device_of_counter == device).sum()) * k)
            arena.add("scratch", scratch * self.devices.count(device) * k)
            arenas[device] = arena
        for device, arena in arenas.items():
            if arena.size > self._driver.facts(device).memory:
                raise UsageError(
                    f"program {p.name}: {readable(arena.size)} of scratch and tables on device {device}; use fewer channels "
                    "or a smaller tile_bytes"
                )
            arena.base = self._driver.allocate(device, arena.size)
            self._memory.append((device, arena.base))
            self._driver.clear(device, arena.base, arena.size, self._streams[device])

        place = np.zeros((counters, k), np.int64)  # address of each counter of each channel
        for device, arena in arenas.items():
            mine = np.flatnonzero(device_of_counter == device)
            place[mine] = arena.address("counters") + at.LINE * np.arange(len(mine) * k).reshape(len(mine), k)
        self._scratch = np.zeros((k, p.n), np.int64)
        for device, arena in arenas.items():
            mine = np.flatnonzero(np.array(self.devices) == device)
            self._scratch[:, mine] = arena.address("scratch") + scratch * np.arange(k * len(mine)).reshape(k, len(mine))
        self._local = local
        for device, arena in arenas.items():
            for name, table in tables.items():
                self._put(device, arena.address(name), table)
            for c in range(k):
                waits, signals = ready.waits.copy(), ready.signals.copy()
                if counters:
                    waits[:, at.COUNTER] = place[ready.waits[:, at.COUNTER], c] // at.LINE
                    signals[:, at.COUNTER] = place[ready.signals[:, at.COUNTER], c] // at.LINE
                self._put(device, arena.address(f"parts {c}"), parts[c])
                self._put(device, arena.address(f"waits {c}"), waits)
                self._put(device, arena.address(f"signals {c}"), signals)
            self._put(device, arena.address("blocks"), self._blocks(ready, device, arena, lines))
            self._driver.synchronize(device, self._streams[device])
        return arenas

    def _blocks(self, ready: Plan, device: int, arena: Arena, lines: int) -> Ints:
        """The parameter block of every block of threads of a device: channel after channel, lane after lane."""
        lanes = np.flatnonzero(self._lane_device == device)
        blocks = np.zeros((self.shape.channels, len(lanes), at.BLOCK_WORDS), np.int64)
        for word, value in (
            (at.ITERATIONS, self.shape.tiles), (at.TILE, ready.tile), (at.SIZE, self.element.size),
            (at.RANKS, self.program.n), (at.LANE_START, arena.address("starts")), (at.MOVES, arena.address("moves")),
            (at.OPERANDS, arena.address("operands")), (at.LOCAL_SIZE, self._local), (at.TIMEOUT, int(self.timeout * 1e9)),
            (at.POLLS, POLLS), (at.LINES, lines), (at.LANES, self.program.lanes), (at.ABSENT, -1),
        ):  # fmt: skip
            blocks[:, :, word] = value
        blocks[:, :, at.INDEX] = lanes
        for c in range(self.shape.channels):
            blocks[c, :, at.PARTS] = arena.address(f"parts {c}")
            blocks[c, :, at.WAITS] = arena.address(f"waits {c}")
            blocks[c, :, at.SIGNALS] = arena.address(f"signals {c}")
            blocks[c, :, at.BASES] = arena.address(f"bases {c}")
            mine = arena.address("local") + self._local * (c * len(lanes) + np.arange(len(lanes)))
            blocks[c, :, at.LOCAL] = mine - self._local * lanes  # where lane 0 would be
        return blocks.reshape(-1, at.BLOCK_WORDS)

    def _put(self, device: int, address: int, table: Ints) -> None:
        if table.size:
            self._driver.upload(device, address, np.ascontiguousarray(table), self._streams[device])

    # Arrays

    def _bind(self, inputs: Sequence[Any], outputs: Sequence[Any], streams: dict[int, int]) -> list[Seen]:
        """Note the addresses of the arrays.

        Raises UsageError, naming the first rank whose arrays do not fit.
        """
        p = self.program
        found = []
        for buffer, arrays in ((Buffer.INPUT, inputs), (Buffer.OUTPUT, outputs)):
            what = "input" if buffer == Buffer.INPUT else "output"
            if len(arrays) != p.n:
                raise UsageError(f"{p.collective.name}: {len(arrays)} {what}s, wanted one for each of {p.n} ranks")
            for rank, array in enumerate(arrays):
                seen = self._look(rank, buffer, what, array, streams[self.devices[rank]])
                self._bases[rank, buffer] = seen.address if seen else 0
                if seen:
                    found.append(seen)
        self._check_sharing()
        return found

    def _look(self, rank: int, buffer: Buffer, what: str, array: Any, stream: int) -> Seen | None:
        wanted, e = self._elements[buffer][rank], self.element
        if array is None and wanted == 0:
            return None
        seen = see(array, self._driver, e, stream)
        if seen is None:
            fault = f"is a {type(array).__name__}, wanted an array on a device (__cuda_array_interface__ or DLPack)"
        elif seen.dtype != e.name:
            fault = f"has dtype {seen.dtype}, wanted {e.name}"
        elif seen.elements != wanted:
            fault = f"has {seen.elements} elements, wanted {wanted}"
        elif not seen.contiguous:
            fault = "is not contiguous: a copy would not come back to you, make one yourself"
        elif buffer == Buffer.OUTPUT and not seen.writable:
            fault = "is read-only"
        elif wanted and seen.device != self.devices[rank]:
            where = "in no device's memory" if seen.device is None else f"on device {seen.device}"
            fault = f"is {where}, wanted it on device {self.devices[rank]}, where the rank runs"
        elif seen.address % (number := e.size // (2 if e.kind == "complex" else 1)):
            fault = f"starts at {seen.address:#x}, wanted a multiple of {number}"
        else:
            return seen
        raise UsageError(f"{self.program.collective.name}: the {what} of rank {rank} {fault}")

    def _check_sharing(self) -> None:
        """In place, aliased blocks are the same memory; nothing else that is written is shared."""
        size, name = self.element.size, self.program.collective.name
        spans = []
        for rank, shift in enumerate(self._shifts):
            first, last = self._bases[rank, :2].tolist()
            ins, outs = (size * self._elements[i][rank] for i in (0, 1))
            if shift is None:
                spans += [(first, first + ins, False, rank), (last, last + outs, True, rank)]
            elif first != last + shift * size:
                raise UsageError(
                    f"{name}: rank {rank}: this program works in place: its input must start at element {shift} of its "
                    "output, in the same memory; `buffers` makes such arrays"
                )
            else:
                spans.append((min(first, last), max(first + ins, last + outs), True, rank))
        end: dict[bool, tuple[int, int]] = {False: (-1, -1), True: (-1, -1)}
        for start, stop, writes, rank in sorted(s for s in spans if s[0] < s[1]):
            until, owner = max(end.values()) if writes else end[True]
            if start < until:
                raise UsageError(f"{name}: buffers of ranks {owner} and {rank} share memory that is written")
            end[writes] = max(end[writes], (stop, rank))

    # Launching

    def _given(self, stream: Any) -> dict[int, int]:
        if stream is None:
            return self._streams
        streams = [stream] if isinstance(stream, int) or not isinstance(stream, Sequence) else list(stream)
        if len(streams) != len(self._used):
            raise UsageError(f"{len(streams)} streams, wanted one for each of the devices {self._used}")
        return {d: int(getattr(s, "handle", s)) for d, s in zip(self._used, streams, strict=True)}

    def _enqueue(self, streams: dict[int, int], seen: Sequence[Seen]) -> None:
        """Work of this call after everything before it that matters, on every device before the host waits for any."""
        self._order(streams)
        for s in seen:
            if s.device is not None:
                self._follow(s.device, streams[s.device], s)
        self._show(streams)
        if len(self._used) > 1:  # a peer may write here as soon as it begins
            for d in self._used:
                self._driver.record(d, self._before[d], streams[d])
            for d in self._used:
                for peer in self._used:
                    if peer != d:
                        self._driver.wait(d, streams[d], self._before[peer])
        self._launch(streams)
        for d in self._used:
            self._driver.record(d, self._after[d], streams[d])
        if len(self._used) > 1:  # a peer may read here until it ends
            for d in self._used:
                for peer in self._used:
                    if peer != d:
                        self._driver.wait(d, streams[d], self._after[peer])
        self._last = dict(streams)

    def _order(self, streams: dict[int, int]) -> None:
        if self._last is not None and self._last != streams:
            for d in self._used:
                self._driver.wait(d, streams[d], self._after[d])

    def _follow(self, device: int, stream: int, seen: Seen) -> None:
        """What another library's stream writes is written before this call reads it."""
        if seen.stream is not None and seen.stream != stream:
            event = self._driver.event(device)
            self._driver.record(device, event, 0 if seen.stream == 1 else seen.stream)
            self._driver.wait(device, stream, event)

    def _show(self, streams: dict[int, int]) -> None:
        """The addresses of the arrays, to every channel of every device, if they are others than last time."""
        if self._shown is not None and np.array_equal(self._shown, self._bases):
            return
        for c in range(self.shape.channels):
            self._bases[:, 2] = self._scratch[c]
            for d, arena in self._arenas.items():
                self._driver.upload(d, arena.address(f"bases {c}"), self._bases, streams[d])
        self._bases[:, 2] = 0
        self._shown = self._bases.copy()

    def _launch(self, streams: dict[int, int]) -> None:
        together = getattr(self._driver, "launch_together", None)
        lanes = {d: int((self._lane_device == d).sum()) * self.shape.channels for d in self._used}
        if together is not None and len(self._used) > 1:  # a driver that does not return before the work is done
            together(
                [(self._kernels[d], lanes[d], self.shape.threads, self._arenas[d].address("blocks")) for d in self._used]
            )
            return
        for d in self._used:
            if lanes[d]:
                self._driver.launch(
                    d, self._kernels[d], lanes[d], self.shape.threads, self._arenas[d].address("blocks"), streams[d]
                )

    # Ends

    def _settle(self) -> None:
        if not self._pending:
            return
        for d, stream in (self._last or self._streams).items():
            self._driver.synchronize(d, stream)
        self._pending = False
        self._held.clear()
        if self._lines.view(np.uint64)[0]:
            self._failed = self._why()
            raise RunError(self._failed)

    def _why(self) -> str:
        """The reports of the lanes of a channel that was stuck, in words."""
        reports = np.zeros((self.shape.channels, self.program.lanes, at.ADDRESSES), np.int64)
        for d, arena in self._arenas.items():
            lanes = np.flatnonzero(self._lane_device == d)
            words = np.zeros((self.shape.channels, len(lanes), self._local // 8), np.int64)
            self._driver.download(d, arena.address("local"), words, self._streams[d])
            reports[:, lanes] = words[:, :, : at.ADDRESSES]
        late = (reports[:, :, at.STATUS] == at.TIMED_OUT).any(axis=1)
        if not late.any():
            return f"program {self.program.name}: aborted by the host"
        channel = int(np.argmax(late))
        text = describe(self.program, reports[channel], self.timeout)
        return text if self.shape.channels == 1 else f"{text}\n  in channel {channel} of {self.shape.channels}"

    def _check_open(self) -> None:
        if not self._end.alive:
            raise UsageError(f"{self!r}: it is closed; make a new one")
        if self._failed:
            raise RunError(f"{self!r}: an earlier call failed, make a new one; that was: {self._failed}")

    def _resume_at(self, iteration: int) -> None:
        """Go on as if every channel had run `iteration` iterations, to test what years of running come to."""
        totals = np.array([(iteration * t) % 2**64 for t in self.program.counter_total.tolist()], np.uint64)
        counters = len(totals)
        owner = self._lane_device[self.program.counter_waiter] if counters else np.zeros(0, np.int64)
        for d, arena in self._arenas.items():
            mine = totals[owner == d]
            lines = np.zeros((len(mine), self.shape.channels, at.LINE // 8), np.uint64)
            lines[:, :, 0] = mine[:, None]
            self._driver.upload(d, arena.address("counters"), lines, self._streams[d])
            blocks = np.zeros((self.shape.channels * int((self._lane_device == d).sum()), at.BLOCK_WORDS), np.int64)
            self._driver.download(d, arena.address("blocks"), blocks, self._streams[d])
            blocks[:, at.FIRST] = (iteration + 2**63) % 2**64 - 2**63
            self._driver.upload(d, arena.address("blocks"), blocks, self._streams[d])


class Emulated(Devices):
    """`Devices` with all ranks on one device."""

    def __init__(self, program: Program, *, count: int, device: int = 0, **options: Any) -> None:
        super().__init__(program, count=count, devices=device, **options)


class Graph:
    """A call noted as a CUDA graph. Launch it as often as you like; other calls may come between. It keeps its arrays."""

    def __init__(self, devices: Devices, graph: int, bases: Ints, arrays: tuple[Any, ...]) -> None:
        self._devices, self._graph, self._bases, self._arrays = devices, graph, bases, arrays

    def __call__(self, times: int = 1) -> None:
        """Run so many times, and return when the work is on the stream; `Devices.wait` says how it went."""
        self._devices._replay(self._graph, self._bases, times)


def _placed(devices: int | Sequence[int], n: int, there: int) -> list[int]:
    placed = [devices] * n if isinstance(devices, int) else [int(d) for d in devices]
    if len(placed) != n:
        raise UsageError(f"{len(placed)} devices, wanted one for each of {n} ranks, or a single number")
    for rank, device in enumerate(placed):
        if not 0 <= device < there:
            raise UsageError(f"rank {rank}: there is no device {device}; there are {there}, counted from 0")
    return placed


def _longest(program: Program, count: int, size: int) -> int:
    """Bytes of the longest chunk."""
    units = program.collective.sizes
    return -(-int(units.max(initial=0)) * count // program.collective.chunks) * size


def _sliced(ready: Plan, begin: int, length: int) -> Ints:
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


def _part(whole: Array, begin: int, elements: int) -> Array:
    """A run of the elements of an array, which lives as long as it does."""
    part = Array.__new__(Array)
    part.__dict__.update(whole.__dict__, size=elements, address=whole.address + begin * whole.element.size)
    part.__dict__["_whole"] = whole
    return part


def _release(driver: Driver, memory: list[tuple[int, int]]) -> None:
    while memory:
        driver.free(*memory.pop())
