"""A Program on GPUs: ranks on devices, each lane of a rank as several blocks, one launch a device."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import RunError, UsageError
from algocc.kernels import layout as at
from algocc.kernels.multicast import WORD
from algocc.kernels.operators import element, operator
from algocc.program import Program, check
from algocc.runtime.cuda.arrays import Array, Seen
from algocc.runtime.cuda.cut import cut, kernel_of, traffic
from algocc.runtime.cuda.driver import Driver, cuda
from algocc.runtime.cuda.flags import check_protocol, check_teams, check_whole_lines, credits, lined
from algocc.runtime.cuda.given import check_sharing, look
from algocc.runtime.cuda.links import check_links, crosses, touching_arrays
from algocc.runtime.cuda.multicast import ALIGN as SYMMETRIC_ALIGN
from algocc.runtime.cuda.multicast import Symmetric, check_devices, everywhere
from algocc.runtime.cuda.pool import Pool
from algocc.runtime.cuda.sites import Site, fill, lay_out, local_bytes, placed, scratch_at, sites
from algocc.runtime.geometry import buffer_elements, check_count, shifts
from algocc.runtime.memory import readable
from algocc.runtime.report import describe
from algocc.runtime.threads import check_reduction

Ints = NDArray[np.int64]

MOST_HELD = 64
"""Calls not waited for whose arrays are kept; who enqueues more keeps their arrays himself."""


class Devices:
    """A Program ready to run on GPUs of this process, as often as you like; the shape of its call is that of `Threads`.

    program, count, dtype, op, timeout: as for `Threads`.
    devices: the device of each rank; a single number puts all ranks on one, which then emulates them.
    channels, threads, tile_bytes: how a call is cut, chosen by size if not given.
    form: "interpreted", one kernel for all programs, or "generated", one made for this program, for small ones.
    protocol: "simple", or "ll" or "ll128", which put flags beside what ranks write into each other's scratch, so that
        nothing but those flags is waited for; for generated kernels, and programs of `lower_pushed`.
    multicast: let the switch between the devices reduce and copy where the program names the same place of all ranks: arrays
        are then of `buffers`, and floats are not fixed to the bit (`bitwise`); for generated kernels.
    driver: what stands for the GPUs; the CUDA driver if not given.
    peers: the other processes, if each of the ranks is one: then all make, call and close theirs together, and each gives
        and gets the arrays of its own rank only. The program must touch nothing of a peer's but scratch (`lower_apart`).

    Calls are ordered: each begins when the one before is done, on whatever stream. A call is kept in memory of the devices,
    so that a graph of it can be launched again and again (`graph`).

    Raises UsageError, before anything is launched, for what can't be used: no driver, devices that do not exist or do not
    reach each other, more blocks than a device runs at the same time; ScheduleError for a malformed program.
    """

    def __init__(
        self, program: Program, *, count: int, dtype: Any = "float32", op: str = "sum", timeout: float = 30.0,
        devices: int | Sequence[int] = 0, channels: int | None = None, threads: int | None = None,
        tile_bytes: int | None = None, form: str | None = None, protocol: str = "simple", multicast: bool = False,
        driver: Driver | None = None, peers: Pool | None = None,
    ) -> None:  # fmt: skip
        check(program)
        form = check_protocol(protocol, form, multicast=multicast)
        if protocol != "simple":
            program = credits(program)
        self.program, self.protocol = program, protocol
        self.count = check_count(program.collective, count)
        self.element, self.operator = element(dtype), operator(op)
        check_reduction(program.collective, self.operator, self.element)
        if not 0 < timeout < 1e9:
            raise UsageError(f"timeout={timeout}: wanted a number of seconds above 0")
        self.timeout = float(timeout)
        self._peers = peers
        if peers is None:
            self._driver = cuda() if driver is None else driver
            self.devices = placed(devices, program.n, self._driver.count())
            check_links(program, self.devices, self._driver)
        else:
            self._driver, self.devices = peers.driver, [peers.device] * program.n
            if max(peers.ranks) >= program.n or (len(peers.ranks) < program.n and crosses(program, peers.ranks)):
                raise UsageError(f"program {program.name} is for {program.n} ranks, these are {peers.n} processes")
            if touching_arrays(program):
                raise UsageError(
                    f"program {program.name}: its lanes touch arrays of other processes; make it with `lower_apart`"
                )
        if multicast:
            check_devices(program, self.devices, self._driver, processes=peers is not None)
        if protocol == "ll128":
            check_whole_lines(program, self.devices if peers is None else None, self._driver)
        self._sites = sites(program, self.devices, None if peers is None else peers.ranks[peers.rank])
        self._here = [s for s in self._sites if s.here]
        self._ranks = [int(r) for s in self._here for r in s.ranks] if peers else list(range(program.n))
        facts = [self._driver.facts(s.device).processors for s in self._here]
        self._plan, self.shape = cut(
            program, self.count, self.operator, self.element, channels=channels, threads=threads, tile_bytes=tile_bytes,
            lanes=max(len(s.lanes) for s in self._sites), processors=min(facts) if peers is None else peers.processors,
        )  # fmt: skip
        operand_kinds, second = None, 0
        if protocol == "ll128":
            check_teams(self.shape.threads)
        if protocol != "simple":
            self._plan, operand_kinds, second = lined(program, self._plan, self.element, protocol)
        self._everywhere: set[int] = set()  # buffers that are accessed as everybody's
        if multicast and self._runs():
            self._plan, operand_kinds = everywhere(program, self._plan, self.operator, self.element, count=self.count)
            self._everywhere = set((self._plan.operands[operand_kinds == at.MULTICAST, at.BASE] % 3).tolist())
        self._symmetric: weakref.WeakSet[Symmetric] = weakref.WeakSet()
        self._key, self._kinds = kernel_of(program, self._plan, self.operator, self.element, form, operand_kinds)
        read = [kind for lane in self._key.form or () for move in lane for kind in move.kinds[move.destinations :]]
        self.bitwise = not (at.MULTICAST in read and self.element.kind == "float")
        self._second = second
        if self._runs():
            self._together(self._load)
        self._elements = buffer_elements(program.collective, self.count)
        self._shifts = shifts(program.collective, self.count) if program.in_place else [None] * program.n
        self._lock = threading.Lock()
        self._failed: str | None = None
        self._pending = False
        self._held: deque[tuple[Any, ...]] = deque(maxlen=MOST_HELD)
        self._bases = np.zeros((program.n + 1, 3), np.int64)
        self._shown: Ints | None = None
        self._memory: list[Callable[[], None]] = []
        self._end = weakref.finalize(self, _release, self._memory)
        self._lines: NDArray[np.uint8]
        self._lines, lines = self._driver.shared(at.LINE) if peers is None else (peers.abort_line, peers.lines)
        for s in self._here:
            s.stream = self._driver.stream(s.device)
            s.before, s.after = self._driver.event(s.device), self._driver.event(s.device)
        self._last: list[int] | None = None
        lay_out(self._sites, program, self._plan, self.shape, self.element)
        self._together(self._allocate)
        if peers is not None:  # everyone's memory is zeroed before anyone signals
            offsets = peers.exchange(self._here[0].arena.base - peers.address(0))
            for rank, begin, offset in zip(peers.ranks, peers.maps, offsets, strict=True):
                self._sites[rank].arena.base = begin + int(offset)
        self._scratch = scratch_at(self._sites, program.n, self._plan, self.shape, self.element)
        fill(
            self._driver, self._sites, program, self._plan, self.shape, self.element,
            kinds=self._kinds, timeout=self.timeout, lines=lines, second=self._second,
        )  # fmt: skip

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
            if len(self._here) != 1:
                raise UsageError(f"a graph is of one device, these ranks are on {len(self._here)}: call instead")
            site = self._here[0]
            seen = self._bind(inputs, outputs, [site.stream])
            self._settle()
            for s in seen:
                self._follow(site.device, site.stream, s)
            self._show([site.stream])
            self._driver.begin_capture(site.device, site.stream)
            if self._runs():
                self._launch([site.stream])
            noted = self._driver.end_capture(site.device, site.stream)
            return Graph(self, noted, self._bases.copy(), (*inputs, *outputs))

    def _replay(self, graph: int, bases: Ints, times: int) -> None:
        with self._lock:
            self._check_open()
            site = self._here[0]
            self._order([site.stream])
            self._bases[:] = bases
            self._show([site.stream])
            for _ in range(times):
                self._driver.launch_graph(site.device, graph, site.stream)
            self._driver.record(site.device, site.after, site.stream)
            self._last = [site.stream]
            self._pending = True

    def measure(self, graph: Graph, times: int) -> float:
        """Microseconds of each of so many launches of a graph, one after the other, by the device's clock."""
        site = self._here[0]
        begin, end = self._driver.event(site.device), self._driver.event(site.device)
        self._driver.record(site.device, begin, site.stream)
        graph(times)
        self._driver.record(site.device, end, site.stream)
        self.wait()
        return self._driver.elapsed(begin, end) * 1e3 / times

    @property
    def traffic(self) -> int:
        """Bytes that the Moves of a call read and write, counting each access."""
        return traffic(self._plan, self.element)

    def abort(self) -> None:
        """Make the lanes that wait give up; the object can't be used any more."""
        self._lines.view(np.uint64)[0] = 1

    def empty(self, rank: int, elements: int, *, skip: int = 0) -> Array:
        """A new array of zeros on the device of a rank, `skip` elements after an aligned address."""
        return Array(self._driver, self.devices[rank], elements, self.element.name, skip=skip)

    def buffers(self, *, skip: int = 0) -> tuple[list[Array], list[Array]]:
        """New inputs and outputs of the ranks that are here, zeroed; in place, as the program wants them."""
        ins, outs = self._elements
        inputs, outputs = [], []
        low = [min(0, shift or 0) for shift in self._shifts]
        sizes = [
            [ins[rank], outs[rank]] if shift is None else [max(shift + ins[rank], outs[rank]) - low[rank]]
            for rank, shift in enumerate(self._shifts)
        ]
        for rank, made in zip(self._ranks, self._arrays(sizes, skip), strict=True):
            shift = self._shifts[rank]
            if shift is not None:
                whole = made[0]
                made = [whole.part(shift - low[rank], ins[rank]), whole.part(-low[rank], outs[rank])]
            inputs.append(made[0])
            outputs.append(made[1])
        return inputs, outputs

    def _arrays(self, sizes: list[list[int]], skip: int) -> list[list[Array]]:
        """New arrays of so many elements for each of the ranks that are here; alike for all where a switch works on them."""
        if not self._everywhere:
            return [[self.empty(rank, elements, skip=skip) for elements in sizes[rank]] for rank in self._ranks]
        e = self.element
        room = -(-(skip + max(map(max, sizes))) * e.size // SYMMETRIC_ALIGN) * SYMMETRIC_ALIGN
        memory = Symmetric(self._driver, self.devices, max(map(len, sizes)) * room)
        self._symmetric.add(memory)
        return [
            [memory.array(rank, k * room + skip * e.size, elements, e) for k, elements in enumerate(sizes[rank])]
            for rank in self._ranks
        ]

    def close(self) -> None:
        """Give the memory back, after the calls under way; a second time does nothing."""
        with self._lock:
            if self._end.alive and self._pending:
                for site, stream in zip(self._here, self._last or self._given(None), strict=True):
                    self._driver.synchronize(site.device, stream)
            if self._end.alive and self._peers is not None and not self._peers.control._node.aborted:
                self._peers.control.barrier()  # nobody signals into this memory any more
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "failed" if self._failed else "open" if self._end.alive else "closed"
        where = f"device {self._here[0].device}" if len(self._here) == 1 else f"{len(self._here)} devices"
        return (
            f"<Devices {self.program.name}: {self.count} {self.element.name}, {self.operator.name}, "
            f"{self.program.n} ranks on {where}{'' if self.bitwise else ', not fixed to the bit'}, {state}>"
        )

    # What can be refused before anything is launched

    def _runs(self) -> bool:
        return bool(self._plan.iterations and self.program.lanes)

    def _together(self, work: Callable[[], None]) -> None:
        """Do something that all processes do, or fail together."""
        if self._peers is None:
            work()
        else:
            self._peers.together(work)

    def _load(self) -> None:
        for site in self._here:
            site.kernel = self._driver.kernel(site.device, self._key)
            self._check_fits(site)

    def _check_fits(self, site: Site) -> None:
        facts = self._driver.facts(site.device)
        if not facts.cooperative:
            raise UsageError(
                f"device {site.device} ({facts.name}) can't promise that all blocks of a launch run at the same time "
                "(cooperative launch), which lanes that wait for each other need"
            )
        blocks = len(site.lanes) * self.shape.channels
        each = self._driver.blocks(site.device, site.kernel, self.shape.threads)
        if blocks > each * facts.processors:
            raise UsageError(
                f"program {self.program.name}: device {site.device} ({facts.name}) runs {each * facts.processors} blocks of "
                f"{self.shape.threads} threads at the same time, {each} on each of {facts.processors} processors; "
                f"{len(site.lanes)} lanes in {self.shape.channels} channels are {blocks}: use fewer ranks on it, lanes, "
                "channels or threads"
            )

    def _allocate(self) -> None:
        """Memory for the arenas, zeroed."""
        driver, peers = self._driver, self._peers
        for s in self._here:
            device, size = s.device, s.arena.size
            if size > driver.facts(device).memory:
                raise UsageError(
                    f"program {self.program.name}: {readable(size)} of scratch and tables on device {device}; use fewer "
                    "channels or a smaller tile_bytes"
                )
            if peers is None:
                base = driver.allocate(device, size)
                self._memory.append(partial(driver.free, device, base))
            else:
                offset = peers.take(size)
                base = peers.address(offset)
                self._memory.append(partial(peers.give, offset, size))
            s.arena.base = base
            driver.clear(device, base, size, s.stream)
            driver.synchronize(device, s.stream)

    # Arrays

    def _bind(self, inputs: Sequence[Any], outputs: Sequence[Any], streams: Sequence[int]) -> list[Seen]:
        """Note the addresses of the arrays.

        Raises UsageError, naming the first rank whose arrays do not fit.
        """
        p, found = self.program, []
        stream_of = {s.device: stream for s, stream in zip(self._here, streams, strict=True)}
        for buffer, arrays in ((Buffer.INPUT, inputs), (Buffer.OUTPUT, outputs)):
            what = "input" if buffer == Buffer.INPUT else "output"
            if len(arrays) != len(self._ranks):
                wanted = f"one for each of {p.n} ranks" if self._peers is None else f"one, that of rank {self._ranks[0]}"
                raise UsageError(f"{p.collective.name}: {len(arrays)} {what}s, wanted {wanted}")
            for rank, array in zip(self._ranks, arrays, strict=True):
                device = self.devices[rank]
                seen = look(
                    array, self._driver, self.element, f"{p.collective.name}: the {what} of rank {rank}",
                    wanted=self._elements[buffer][rank], device=device, stream=stream_of[device],
                    writes=buffer == Buffer.OUTPUT,
                )  # fmt: skip
                self._bases[rank, buffer] = seen.address if seen else 0
                if seen:
                    found.append(seen)
        for shared in self._everywhere:
            self._bases[p.n, shared] = self._everybodys(shared)
        if self._everywhere and (self._bases[:, :2] % WORD).any():
            raise UsageError(f"multicast: arrays start at multiples of {WORD} bytes, some do not; take them from `buffers`")
        check_sharing(p.collective.name, self._bases, self._ranks, self._elements, self._shifts, self.element)
        return found

    def _everybodys(self, buffer: int) -> int:
        """Where everybody's inputs or outputs are at once.

        Raises UsageError unless they lie alike in memory that has such an address.
        """
        size = max(self._elements[buffer]) * self.element.size
        for memory in self._symmetric:
            found = memory.alike(self._bases[:-1, buffer], size)
            if found is not None:
                return found
        what = "inputs" if buffer == Buffer.INPUT else "outputs"
        raise UsageError(
            f"multicast: the {what} of the ranks do not lie alike in memory that all have at one address; take arrays from "
            "`buffers`, all of one call of it"
        )

    # Launching

    def _given(self, stream: Any) -> list[int]:
        """The stream of each site."""
        if stream is None:
            return [s.stream for s in self._here]
        streams = [stream] if isinstance(stream, int) or not isinstance(stream, Sequence) else list(stream)
        if len(streams) != len(self._here):
            used = [s.device for s in self._here]
            raise UsageError(f"{len(streams)} streams, wanted one for each of the devices {used}")
        return [int(getattr(s, "handle", s)) for s in streams]

    def _enqueue(self, streams: list[int], seen: Sequence[Seen]) -> None:
        """Work of this call after everything before it that matters, on every device before the host waits for any."""
        driver, both = self._driver, list(zip(self._here, streams, strict=True))
        self._order(streams)
        for site, stream in both:
            for s in seen:
                if s.device == site.device:
                    self._follow(site.device, stream, s)
        self._show(streams)
        if len(both) > 1:  # a peer may write here as soon as it begins
            for site, stream in both:
                driver.record(site.device, site.before, stream)
            for site, stream in both:
                for peer in self._here:
                    if peer is not site:
                        driver.wait(site.device, stream, peer.before)
        self._launch(streams)
        for site, stream in both:
            driver.record(site.device, site.after, stream)
        if len(both) > 1:  # a peer may read here until it ends
            for site, stream in both:
                for peer in self._here:
                    if peer is not site:
                        driver.wait(site.device, stream, peer.after)
        self._last = streams

    def _order(self, streams: list[int]) -> None:
        if self._last is not None and self._last != streams:
            for site, stream in zip(self._here, streams, strict=True):
                self._driver.wait(site.device, stream, site.after)

    def _follow(self, device: int, stream: int, seen: Seen) -> None:
        """What another library's stream writes is written before this call reads it."""
        if seen.stream is not None and seen.stream != stream:
            event = self._driver.event(device)
            self._driver.record(device, event, 0 if seen.stream == 1 else seen.stream)
            self._driver.wait(device, stream, event)

    def _show(self, streams: list[int]) -> None:
        """The addresses of the arrays, to every channel of every device, if they are others than last time."""
        if self._shown is not None and np.array_equal(self._shown, self._bases):
            return
        for c in range(self.shape.channels):
            self._bases[:-1, 2] = self._scratch[c]
            for site, stream in zip(self._here, streams, strict=True):
                self._driver.upload(site.device, site.arena.address(f"bases {c}"), self._bases, stream)
        self._bases[:, 2] = 0
        self._shown = self._bases.copy()

    def _launch(self, streams: list[int]) -> None:
        together = getattr(self._driver, "launch_together", None)
        work = [(s, len(s.lanes) * self.shape.channels, stream) for s, stream in zip(self._here, streams, strict=True)]
        if together is not None and len(work) > 1:  # a driver that does not return before the work is done
            together([(s.kernel, blocks, self.shape.threads, s.arena.address("blocks")) for s, blocks, _ in work])
            return
        for s, blocks, stream in work:
            if blocks:
                self._driver.launch(s.device, s.kernel, blocks, self.shape.threads, s.arena.address("blocks"), stream)

    # Ends

    def _settle(self) -> None:
        if not self._pending:
            return
        for site, stream in zip(self._here, self._last or self._given(None), strict=True):
            self._driver.synchronize(site.device, stream)
        self._pending = False
        self._held.clear()
        if self._lines.view(np.uint64)[0]:
            self._failed = self._why()
            raise RunError(self._failed)

    def _why(self) -> str:
        """The reports of the lanes of a channel that was stuck, in words."""
        reports = np.zeros((self.shape.channels, self.program.lanes, at.ADDRESSES), np.int64)
        for s in self._here:
            words = np.zeros((self.shape.channels, len(s.lanes), local_bytes(self._plan) // 8), np.int64)
            self._driver.download(s.device, s.arena.address("local"), words, s.stream)
            reports[:, s.lanes] = words[:, :, : at.ADDRESSES]
        late = (reports[:, :, at.STATUS] == at.TIMED_OUT).any(axis=1)
        gone = None if self._peers is None else self._peers.lost()
        if gone is not None:
            return f"program {self.program.name}: {gone}"
        if not late.any():
            who = "the host" if self._peers is None else "another rank, which says why"
            return f"program {self.program.name}: aborted by {who}"
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
        for s in self._here:
            lines = np.zeros((len(s.counters), self.shape.channels, at.LINE // 8), np.uint64)
            lines[:, :, 0] = totals[s.counters, None]
            self._driver.upload(s.device, s.arena.address("counters"), lines, s.stream)
            blocks = np.zeros((self.shape.channels * len(s.lanes), at.BLOCK_WORDS), np.int64)
            self._driver.download(s.device, s.arena.address("blocks"), blocks, s.stream)
            blocks[:, at.FIRST] = (iteration + 2**63) % 2**64 - 2**63
            self._driver.upload(s.device, s.arena.address("blocks"), blocks, s.stream)


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


def _release(memory: list[Callable[[], None]]) -> None:
    while memory:
        memory.pop()()
