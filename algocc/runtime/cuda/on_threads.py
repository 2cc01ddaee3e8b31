"""A device that is not there: the kernels of GPUs on CPU threads, behind the same calls as the driver's.

Every thread of every block is a thread of this process, so that a launch has the concurrency of a GPU, though not its
memory. Work is done when it is asked for; streams and events order nothing more than that. Memory of a device is a file
without a name, so that another process can open it, as CUDA IPC does.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from algocc.errors import RunError, UsageError
from algocc.kernels import block, grid
from algocc.kernels.grid import Key
from algocc.kernels.layout import LINE
from algocc.runtime.cuda.driver import Bytes, Facts
from algocc.runtime.heap import PAGE, mapped, nameless
from algocc.runtime.memory import address, aligned

MOST_THREADS = 6
"""Threads of a block, however many the host asks for: a kernel is right with any number, and cores are few."""


@cache
def compiled(key: Key) -> Any:
    """The kernel for an operator and type: (words of a thread, parameter blocks) → None, without the interpreter's lock."""
    kernel = grid.kernel(block, key, inline=numba.njit(error_model="numpy"))
    inner = numba.njit(error_model="numpy")(kernel)
    enter = block.enter

    def run(words, blocks):  # type: ignore[no-untyped-def]
        enter(words)
        inner(blocks)

    return numba.njit(types.void(types.int64, types.int64), nogil=True, error_model="numpy")(run)


class ThreadDriver:
    """Devices of CPU threads.

    devices: how many.
    processors: blocks that a device runs at the same time.
    rests: one in so many arrivals at a barrier is late; 0 for none.
    links: pairs of devices that reach each other; all if not given.
    lies: pairs of which that is said, though what the first writes to the second's memory gets lost.
    threads: most of a block.
    tears: pairs whose link may tear a line of 128 bytes.
    apart: devices that are at no switch that reduces.
    architecture: that is told of all.
    """

    def __init__(
        self, *, devices: int = 1, processors: int = 64, rests: int = 0, links: set[tuple[int, int]] | None = None,
        lies: set[tuple[int, int]] | None = None, tears: set[tuple[int, int]] | None = None, cooperative: bool = True,
        seed: int = 0, threads: int = MOST_THREADS, apart: set[int] | None = None, architecture: str = "sm_90",
    ) -> None:  # fmt: skip
        self._devices, self._processors, self._cooperative = devices, processors, cooperative
        self._rests, self._links, self._seed = rests, links, seed
        self._most_threads = threads
        self._lies, self._tears, self._apart = lies or set(), tears or set(), apart or set()
        self._architecture = architecture
        self._memory: dict[int, tuple[int, Bytes]] = {}
        self._files: dict[int, int] = {}
        self._foreign: dict[int, Bytes] = {}
        self._keep: list[Any] = []
        self._kernels: list[Key] = []
        self._numbers = itertools.count(1)
        self._teams: dict[tuple[int, int, int], tuple[NDArray[np.int64], Bytes, Bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._most = 0
        self._capture: list[tuple[Any, ...]] | None = None
        self._graphs: dict[int, list[tuple[Any, ...]]] = {}

    def check_compiler(self) -> None:
        return None

    def count(self) -> int:
        return self._devices

    def facts(self, device: int) -> Facts:
        return Facts("CPU threads", self._architecture, self._processors, self._cooperative, 1 << 30)

    def allocate(self, device: int, size: int) -> int:
        fd, memory = _file(max(size, 1))
        begin = address(memory)
        self._memory[begin], self._files[begin] = (device, memory), fd
        return begin

    def free(self, device: int, address: int) -> None:
        os.close(self._files.pop(address))
        del self._memory[address]  # last: from here on the address may be another thread's

    def shared(self, size: int) -> tuple[Bytes, int]:
        memory = aligned(size)
        self._keep.append(memory)
        return memory, address(memory)

    def upload(self, device: int, address: int, data: NDArray[Any], stream: int) -> None:
        if data.nbytes:
            self._at(device, address, data.nbytes)[:] = data.reshape(-1).view(np.uint8)

    def download(self, device: int, address: int, data: NDArray[Any], stream: int) -> None:
        if data.nbytes:
            data.reshape(-1).view(np.uint8)[:] = self._at(device, address, data.nbytes)

    def clear(self, device: int, address: int, size: int, stream: int) -> None:
        if size:
            self._at(device, address, size)[:] = 0

    def copy(self, device: int, to: int, source: int, size: int, stream: int) -> None:
        self._at(device, to, size)[:] = self._at(device, source, size)

    def kernel(self, device: int, key: Key) -> int:
        compiled(key)
        if key not in self._kernels:
            self._kernels.append(key)
        return self._kernels.index(key)

    def blocks(self, device: int, kernel: int, threads: int) -> int:
        return 1

    def launch(self, device: int, kernel: int, blocks: int, threads: int, argument: int, stream: int) -> None:
        if self._capture is not None:
            self._capture.append((device, kernel, blocks, threads, argument, stream))
            return
        lost = {peer for a, peer in self._lies if a == device}
        kept = [(memory, memory.copy()) for owner, memory in self._memory.values() if owner in lost]
        self._launch([(kernel, blocks, threads, argument)])
        for memory, before in kept:
            memory[:] = before

    def launch_together(self, launches: list[tuple[int, int, int, int]]) -> None:
        """Launches of several devices at once, each (kernel, blocks, threads, argument)."""
        self._launch(launches)

    def _launch(self, launches: list[tuple[int, int, int, int]]) -> None:
        work = []
        for kernel, blocks, threads, argument in launches:
            threads = min(threads, self._most_threads)
            words = self._team(argument, blocks, threads)[0]
            run = compiled(self._kernels[kernel])
            work += [(run, address(words) + 8 * block.SELF_WORDS * i, argument) for i in range(blocks * threads)]
        if self._pool is None or self._most < len(work):
            if self._pool is not None:
                self._pool.shutdown()
            self._pool, self._most = ThreadPoolExecutor(len(work), "block"), len(work)
        for done in [self._pool.submit(run, words, argument) for run, words, argument in work]:
            done.result()

    def _team(self, argument: int, blocks: int, threads: int) -> tuple[NDArray[np.int64], Bytes, Bytes]:
        """The words of each thread, and the barriers of each block and team, whose counts go on from launch to launch."""
        if (argument, blocks, threads) not in self._teams:
            words = aligned(8 * block.SELF_WORDS * blocks * threads).view(np.int64).reshape(blocks, threads, -1)
            barriers = aligned(blocks * block.BARRIER_LINES * LINE)
            words[:, :, block.THREAD] = np.arange(threads)
            words[:, :, block.THREADS] = threads
            words[:, :, block.BLOCK] = np.arange(blocks)[:, None]
            words[:, :, block.BARRIER] = (address(barriers) + np.arange(blocks) * block.BARRIER_LINES * LINE)[:, None]
            number = np.arange(blocks * threads).reshape(blocks, threads)
            teams = aligned(blocks * threads * block.TEAM_LINES * LINE)
            first = number - np.arange(threads) % block.TEAM
            words[:, :, block.TEAM_BARRIER] = address(teams) + first * block.TEAM_LINES * LINE
            words[:, :, block.CHANCE] = np.random.default_rng(self._seed).integers(0, 2**62, (blocks, threads))
            words[:, :, block.RESTS] = self._rests
            self._teams[argument, blocks, threads] = words, barriers, teams
        return self._teams[argument, blocks, threads]

    def stream(self, device: int) -> int:
        return next(self._numbers)

    def synchronize(self, device: int, stream: int) -> None:
        if self._capture is not None:
            raise RunError("synchronize: the stream is being captured")

    def event(self, device: int) -> int:
        return next(self._numbers)

    def record(self, device: int, event: int, stream: int) -> None:
        return None

    def wait(self, device: int, stream: int, event: int) -> None:
        return None

    def elapsed(self, begin: int, end: int) -> float:
        return 0.0

    def begin_capture(self, device: int, stream: int) -> None:
        self._capture = []

    def end_capture(self, device: int, stream: int) -> int:
        graph = next(self._numbers)
        self._graphs[graph], self._capture = self._capture or [], None
        return graph

    def launch_graph(self, device: int, graph: int, stream: int) -> None:
        for launch in self._graphs[graph]:
            self.launch(*launch)

    def reach(self, device: int, peer: int) -> bool:
        return device == peer or self._links is None or (device, peer) in self._links

    def whole_lines(self, device: int, peer: int) -> bool:
        return device == peer or (device, peer) not in self._tears

    def multicast(self, device: int) -> bool:
        return device not in self._apart

    def symmetric(self, devices: Sequence[int], size: int) -> tuple[list[int], int, Callable[[], None]]:
        row = next(i for i in range(1, len(block.members)) if not block.members[i, 0])
        places = [self.allocate(device, size) for device in devices]
        block.members[row, : 1 + len(places)] = [len(places), *places]

        def release() -> None:
            block.members[row] = 0
            for device, place in zip(devices, places, strict=True):
                self.free(device, place)

        return places, row << block.PLACE_BITS, release

    def export(self, device: int, address: int) -> bytes:
        if address not in self._files:
            raise UsageError(f"device {device}: {address:#x} does not begin an allocation, so it can't be shared")
        where = f"{os.getpid()} {self._files[address]} {len(self._memory[address][1])}"
        return where.encode().ljust(64, b"\0")

    def open(self, device: int, handle: bytes) -> int:
        process, fd, size = map(int, handle.rstrip(b"\0").split())
        try:
            own = os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR)
        except OSError as error:
            raise UsageError(f"device {device}: memory of process {process} can't be opened: {error.strerror}") from error
        try:
            memory = np.frombuffer(mapped(own, size, "memory of another process"), np.uint8)
        finally:
            os.close(own)
        self._foreign[address(memory)] = memory
        return address(memory)

    def shut(self, device: int, address: int) -> None:
        del self._foreign[address]

    def register(self, memory: Bytes) -> int:
        return address(memory)

    def unregister(self, memory: Bytes) -> None:
        return None

    def owner(self, address: int) -> int | None:
        for begin, (device, memory) in self._memory.items():
            if begin <= address < begin + len(memory):
                return device
        return None

    def _at(self, device: int, where: int, size: int) -> Bytes:
        for begin, (owner, memory) in self._memory.items():
            if begin <= where and where + size <= begin + len(memory):
                if owner != device:
                    raise RunError(f"{where:#x} is memory of device {owner}, not of {device}")
                return memory[where - begin : where - begin + size]
        raise UsageError(f"{where:#x} is no memory of a device")


def _file(size: int) -> tuple[int, Bytes]:
    """Memory in a file without a name, and its descriptor."""
    fd = nameless(-(-size // PAGE) * PAGE, "a device on CPU threads")
    return fd, np.frombuffer(mapped(fd, size, "a device on CPU threads"), np.uint8)
