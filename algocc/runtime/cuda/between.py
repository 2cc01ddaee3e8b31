"""GPUs of several nodes: within a node over CUDA IPC, between nodes by MPI, which the host drives Move by Move.

The Program and its messages are those of `runtime.messages`. A lane runs up to a Move that needs or sends messages; the
kernel ends, the host receives or sends, and launches the lane from there on. All channels stop at the same Move, so one
stop serves them all. MPI is given addresses of the device if it takes them, else pinned memory that is copied to and from.
"""

from __future__ import annotations

import ctypes
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from algocc.collective import Buffer
from algocc.errors import RunError, UsageError
from algocc.kernels import layout as at
from algocc.runtime.apart import lower_apart
from algocc.runtime.communicator import Communicator
from algocc.runtime.cuda.host import Devices
from algocc.runtime.cuda.pool import Pool
from algocc.runtime.cuda.sites import blocks
from algocc.runtime.geometry import chunks
from algocc.runtime.messages import Message, stops
from algocc.runtime.rank import without_messages
from algocc.table import Schedule

AWARE_VARIABLE = "ALGOCC_CUDA_AWARE_MPI"
"""1 or 0: whether MPI takes addresses of devices, whatever it says itself."""

TAG = 18
PAUSE = 20e-6


def takes_device_memory(mpi: Any) -> bool:
    """Whether this MPI sends from and receives into the memory of devices, as it says (`MPIX_Query_cuda_support`)."""
    said = os.environ.get(AWARE_VARIABLE)
    if said is not None:
        if said not in ("0", "1"):
            raise UsageError(f"{AWARE_VARIABLE}={said}: wanted 0 or 1")
        return said == "1"
    try:
        query = ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return False
    return bool(query())


class Between:
    """A schedule made ready for one rank of several nodes; made, called and closed by all ranks together.

    control: all ranks; pool: those of this node.
    sent_bytes: that this rank has sent to other nodes.
    """

    def __init__(
        self, schedule: Schedule, control: Communicator, pool: Pool, *, count: int, dtype: str, op: str, in_place: bool,
        timeout: float,
    ) -> None:  # fmt: skip
        outside = control._outside
        self._control, self._pool, self._outside, self._timeout = control, pool, outside, timeout
        full = lower_apart(schedule, in_place=in_place, nodes=outside.node_of)
        self._devices = run = Devices(
            without_messages(full, outside.node_of), count=count, dtype=dtype, op=op, timeout=timeout, peers=pool
        )  # fmt: skip
        self._stops = stops(full, control.rank, outside.node_of)
        lengths = chunks(full.collective, Buffer.INPUT, count).length
        self._length = {
            m: int(lengths[int(full.like[m.move]) + m.part]) for s in self._stops for m in (*s.receive, *s.send)
        }
        self._stride = run._plan.scratch // max(1, full.scratch) * run.element.size
        self._aware = takes_device_memory(outside._mpi)
        self._place = {m: i for i, m in enumerate(self._length)}
        size = 0 if self._aware else len(self._place) * run.shape.channels * self._stride
        self._pinned = pool.driver.shared(max(size, 1))[0]
        self._tiles_done = 0
        self.sent_bytes = 0
        self._worker = ThreadPoolExecutor(1, "launch")

    def __call__(self, inputs: list[Any], outputs: list[Any], *, stream: Any = None) -> None:
        """Run once, and wait for the end.

        Raises as `Devices`, and RunError if a message does not come or is not taken within the timeout.
        """
        run = self._devices
        with run._lock:
            run._check_open()
            (number,) = streams = run._given(stream)
            seen = run._bind(inputs, outputs, streams)
            if not run._runs():
                return
            run._order(streams)
            for s in seen:
                run._follow(run._here[0].device, number, s)
            run._show(streams)
            try:
                for t in range(run.shape.tiles):
                    self._tile(t, number)
            except RunError as error:
                run._failed = run._failed or str(error)
                run.abort()
                raise
            self._tiles_done += run.shape.tiles
            run._last, run._pending = streams, True
            run._settle()

    def wait(self) -> None:
        """For the sake of those that do not wait by themselves."""
        self._devices.wait()

    def abort(self) -> None:
        """Make the lanes that wait give up."""
        self._devices.abort()

    def close(self) -> None:
        """Give the memory back."""
        self._worker.shutdown()
        self._devices.close()

    def _tile(self, t: int, stream: int) -> None:
        sends: list[Any] = []
        done = 0
        for stop in self._stops:
            if stop.move > done:
                self._lane(t, done, t, stop.move, stream, sends)
                done = stop.move
            requests = [(m, c, self._receive(m, c, t)) for m in stop.receive for c in range(self._devices.shape.channels)]
            for m, c, request in requests:
                if request is not None:
                    self._wait(request, sends, f"rank {m.source} sent nothing")
                    self._put(m, c, t, stream)
            if stop.send:
                self._lane(t, done, t, done + 1, stream, sends)
                done += 1
                for m in stop.send:
                    sends += [s for c in range(self._devices.shape.channels) if (s := self._send(m, c, t, stream)) is not None]
        self._lane(t, done, t + 1, 0, stream, sends)
        for request in sends:
            self._wait(request, sends, "a message was not taken")

    def _lane(self, tile: int, move: int, last_tile: int, last_move: int, stream: int, sends: list[Any]) -> None:
        """Run the lane of this rank from a Move of a tile to another; what was sent goes on meanwhile."""
        run, driver = self._devices, self._pool.driver
        (site,) = run._here
        words = blocks(
            site, run.program, run._plan, run.shape, run.element,
            kinds=run._kinds, timeout=self._timeout, lines=self._pool.lines,
        )  # fmt: skip
        words[:, at.FIRST] = self._tiles_done
        words[:, at.BEGIN_TILE], words[:, at.BEGIN_MOVE] = tile, move
        words[:, at.ITERATIONS], words[:, at.END_MOVE] = last_tile, last_move
        driver.upload(site.device, site.arena.address("blocks"), words, stream)

        def launch() -> None:
            run._launch([stream])
            driver.synchronize(site.device, stream)

        launched = self._worker.submit(launch)
        while not launched.done():
            for request in sends:
                request.Test()
            time.sleep(PAUSE)
        launched.result()
        if run._lines.view(np.uint64)[0]:
            raise RunError(run._why())

    def _piece(self, message: Message, slot: int, channel: int, t: int) -> tuple[int, int]:
        """Address and bytes of a message in a slot of a channel's scratch."""
        run = self._devices
        tile = run._plan.tile
        length = min(tile, self._length[message] - (channel * run.shape.tiles + t) * tile)
        return int(run._scratch[channel, self._control.rank]) + slot * self._stride, max(length, 0) * run.element.size

    def _memory(self, message: Message, channel: int, address: int, size: int) -> Any:
        """What MPI is given: the piece itself, or its place in pinned memory."""
        if self._aware:
            return self._outside._mpi.memory.fromaddress(address, size)
        begin = (self._place[message] * self._devices.shape.channels + channel) * self._stride
        return self._pinned[begin : begin + size]

    def _send(self, message: Message, channel: int, t: int, stream: int) -> Any:
        address, size = self._piece(message, message.own, channel, t)
        if not size:
            return None
        memory = self._memory(message, channel, address, size)
        if not self._aware:
            self._pool.driver.download(self._pool.device, address, memory, stream)
        self.sent_bytes += size
        return self._outside._comm.Isend([memory, self._outside._mpi.BYTE], dest=message.target, tag=TAG)

    def _receive(self, message: Message, channel: int, t: int) -> Any:
        address, size = self._piece(message, message.slot, channel, t)
        if not size:
            return None
        memory = self._memory(message, channel, address, size)
        return self._outside._comm.Irecv([memory, self._outside._mpi.BYTE], source=message.source, tag=TAG)

    def _put(self, message: Message, channel: int, t: int, stream: int) -> None:
        """What has come, to the device."""
        if not self._aware:
            address, size = self._piece(message, message.slot, channel, t)
            memory = self._memory(message, channel, address, size)
            self._pool.driver.upload(self._pool.device, address, memory, stream)

    def _wait(self, request: Any, sends: list[Any], late: str) -> None:
        end = time.monotonic() + self._timeout
        while not request.Test():
            for other in sends:
                other.Test()
            if time.monotonic() > end:
                raise RunError(self._pool.lost() or f"{late} within {self._timeout:g} s")
            if self._devices._lines.view(np.uint64)[0]:
                raise RunError(self._pool.lost() or "another rank of this node has given up, and says why")
            os.sched_yield()
