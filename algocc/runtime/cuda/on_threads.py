"""A device that is not there: the kernels of GPUs on CPU threads, behind the same calls as the driver's.

Every thread of every block is a thread of this process, so that a launch has the concurrency of a GPU, though not its
memory. Work is done when it is asked for; streams and events order nothing more than that.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from algocc.errors import RunError, UsageError
from algocc.kernels import block, grid
from algocc.kernels.layout import LINE
from algocc.kernels.ptx import Key
from algocc.runtime.cuda.driver import Bytes, Facts
from algocc.runtime.memory import address, aligned


@cache
def compiled(key: Key) -> Any:
    """The kernel for an operator and type: (words of a thread, parameter blocks) → None, without the interpreter's lock."""
    kernel = grid.build(grid.specialise(block, *key), inline=numba.njit(error_model="numpy"), stamp="")
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
    """

    def __init__(
        self, *, devices: int = 1, processors: int = 64, rests: int = 0, links: set[tuple[int, int]] | None = None,
        cooperative: bool = True, seed: int = 0,
    ) -> None:  # fmt: skip
        self._devices, self._processors, self._cooperative = devices, processors, cooperative
        self._rests, self._links, self._seed = rests, links, seed
        self._memory: dict[int, tuple[int, Bytes]] = {}
        self._keep: list[Any] = []
        self._kernels: list[Key] = []
        self._numbers = itertools.count(1)
        self._teams: dict[tuple[int, int, int], tuple[NDArray[np.int64], Bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._most = 0
        self._capture: list[tuple[Any, ...]] | None = None
        self._graphs: dict[int, list[tuple[Any, ...]]] = {}

    def count(self) -> int:
        return self._devices

    def facts(self, device: int) -> Facts:
        return Facts("CPU threads", "sm_90", self._processors, self._cooperative, 1 << 30)

    def allocate(self, device: int, size: int) -> int:
        memory = aligned(max(size, 1), 256)
        self._memory[address(memory)] = (device, memory)
        return address(memory)

    def free(self, device: int, address: int) -> None:
        del self._memory[address]

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
        self._launch([(kernel, blocks, threads, argument)])

    def launch_together(self, launches: list[tuple[int, int, int, int]]) -> None:
        """Launches of several devices at once, each (kernel, blocks, threads, argument)."""
        self._launch(launches)

    def _launch(self, launches: list[tuple[int, int, int, int]]) -> None:
        work = []
        for kernel, blocks, threads, argument in launches:
            words, _ = self._team(argument, blocks, threads)
            run = compiled(self._kernels[kernel])
            work += [(run, address(words) + 8 * block.SELF_WORDS * i, argument) for i in range(blocks * threads)]
        if self._pool is None or self._most < len(work):
            if self._pool is not None:
                self._pool.shutdown()
            self._pool, self._most = ThreadPoolExecutor(len(work), "block"), len(work)
        for done in [self._pool.submit(run, words, argument) for run, words, argument in work]:
            done.result()

    def _team(self, argument: int, blocks: int, threads: int) -> tuple[NDArray[np.int64], Bytes]:
        """The words of each thread, and the barriers of each block: a barrier's count goes on from launch to launch."""
        if (argument, blocks, threads) not in self._teams:
            words = aligned(8 * block.SELF_WORDS * blocks * threads).view(np.int64).reshape(blocks, threads, -1)
            barriers = aligned(blocks * block.BARRIER_LINES * LINE)
            words[:, :, block.THREAD] = np.arange(threads)
            words[:, :, block.THREADS] = threads
            words[:, :, block.BLOCK] = np.arange(blocks)[:, None]
            words[:, :, block.BARRIER] = (address(barriers) + np.arange(blocks) * block.BARRIER_LINES * LINE)[:, None]
            words[:, :, block.CHANCE] = np.random.default_rng(self._seed).integers(0, 2**62, (blocks, threads))
            words[:, :, block.RESTS] = self._rests
            self._teams[argument, blocks, threads] = words, barriers
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
