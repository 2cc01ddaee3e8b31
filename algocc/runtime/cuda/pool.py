"""Memory of one process's device that its peers in other processes map: one allocation, handed out in pieces.

A handle of CUDA IPC names a whole allocation, so there is one, and a piece is an offset in it. The ranks talk over a
`Communicator` of the CPU, whose abort line the devices map too: when one process ends, or gives up, the lanes of all do.
"""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import AlgoccError, UsageError
from algocc.kernels import layout as at
from algocc.runtime.communicator import Communicator
from algocc.runtime.cuda.driver import Driver
from algocc.runtime.cuda.links import TEST_BYTES, copy_by_kernel
from algocc.runtime.memory import readable

BOUNDARY = 256
PAGE = 4096
"""Bytes of the host that a device maps at least."""


class Pool:
    """What one rank has of the device memory of all; made, and closed, by all ranks together.

    control: the ranks, which must be processes of one node.
    ranks: what each is called in the Programs that run here; 0, 1, … if they are all there are.
    maps: where each one's allocation begins, as this process sees it.
    lines: address of the abort line for kernels.
    """

    def __init__(
        self, control: Communicator, driver: Driver, device: int, size: int, *, ranks: Sequence[int] | None = None
    ) -> None:  # fmt: skip
        self.ranks = list(range(control.size)) if ranks is None else list(ranks)
        self.control, self.driver, self.device, self.rank, self.n = control, driver, device, control.rank, control.size
        self.maps: list[int] = []
        self._free = [(0, size)]
        self._base = 0
        self._board = control._node._bytes[:PAGE]
        facts: dict[str, Any] = {}

        def make() -> None:
            if not 0 <= device < driver.count():
                raise UsageError(f"there is no device {device}; there are {driver.count()}, counted from 0")
            self._base = driver.allocate(device, size)
            facts["handle"] = driver.export(device, self._base).hex()
            facts["processors"] = driver.facts(device).processors
            self.lines = driver.register(self._board)

        self.together(make)
        told = self.exchange(facts)
        self.processors = min(t["processors"] for t in told)

        def reach() -> None:
            for rank, other in enumerate(told):
                try:
                    mine = rank == self.rank
                    self.maps.append(self._base if mine else driver.open(device, bytes.fromhex(other["handle"])))
                except UsageError as error:
                    raise UsageError(f"memory of rank {rank}: {error}") from error

        self.together(reach)
        self._try_writes()

    def _try_writes(self) -> None:
        """Every rank writes its number into the memory of every other, which looks whether it came."""
        marks = np.full(TEST_BYTES, 1 + self.rank % 255, np.uint8)
        if self.n * TEST_BYTES > self._free[0][1] // 2:
            return
        own = self.take(TEST_BYTES)
        board = self.take(self.n * TEST_BYTES)
        self.driver.upload(self.device, self._base + own, marks, 0)
        boards = [int(offset) for offset in self.exchange(board)]

        def write() -> None:
            for rank in range(self.n):
                to = self.maps[rank] + boards[rank] + self.rank * TEST_BYTES
                copy_by_kernel(self.driver, self.device, to=to, source=self._base + own, size=TEST_BYTES)

        self.together(write)
        found = np.zeros((self.n, TEST_BYTES), np.uint8)
        self.driver.download(self.device, self._base + board, found, 0)

        def look() -> None:
            for rank in range(self.n):
                if (found[rank] != 1 + rank % 255).any():
                    raise UsageError(f"what rank {rank} writes to its device memory does not arrive, though it can be opened")

        self.together(look)
        self.give(own, TEST_BYTES)
        self.give(board, self.n * TEST_BYTES)

    # Among the ranks

    def exchange(self, value: Any) -> list[Any]:
        """A JSON value of each rank."""
        return exchange(self.control, value)

    def together(self, work: Any) -> None:
        """Do something on every rank.

        Raises UsageError on all if it raises one on some, naming the first.
        """
        fault = None
        try:
            work()
        except AlgoccError as error:
            fault = str(error)
        for rank, told in enumerate(self.exchange(fault)):
            if told is not None:
                raise UsageError(told if self.n == 1 else f"rank {rank}: {told}")

    def lost(self) -> str | None:
        """Which ranks have gone, in words."""
        node = self.control._node
        told = [node.lost(m) for m in range(node.members) if m != node.member]
        return "; ".join(text for text in told if text) or None

    # Pieces

    def take(self, size: int) -> int:
        """The offset of a piece.

        Raises UsageError if there is no room.
        """
        size = max(-(-size // BOUNDARY), 1) * BOUNDARY
        for i, (begin, room) in enumerate(self._free):
            if room >= size:
                self._free[i : i + 1] = [(begin + size, room - size)] if room > size else []
                return begin
        raise UsageError(
            f"no {readable(size)} left of the device memory that ranks share; make the communicator with a larger pool_bytes"
        )

    def give(self, offset: int, size: int) -> None:
        """Take a piece back."""
        insort(self._free, (offset, max(-(-size // BOUNDARY), 1) * BOUNDARY))
        joined: list[tuple[int, int]] = []
        for begin, room in self._free:
            if joined and sum(joined[-1]) == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + room)
            else:
                joined.append((begin, room))
        self._free = joined

    def address(self, offset: int) -> int:
        """Where a piece of this rank is."""
        return self._base + offset

    @property
    def abort_line(self) -> NDArray[np.uint8]:
        """The word that lanes look at."""
        return self._board[: at.LINE]

    def close(self, *, failed: bool = False) -> None:
        """Give the memory back once nobody uses it: mappings first, then what they map.

        failed: the ranks do not talk any more; what a peer maps then lives until that one ends.
        """
        if not self._base:
            return
        if not failed:
            self.control.barrier()
        for rank, there in enumerate(self.maps):
            if rank != self.rank:
                self.driver.shut(self.device, there)
        if not failed:
            self.control.barrier()
        self.driver.unregister(self._board)
        self.driver.free(self.device, self._base)
        self._base, self.maps = 0, []


def exchange(control: Communicator, value: Any) -> list[Any]:
    """A JSON value of each rank, on every rank."""
    raw = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.array(control.all_gather(np.array([len(raw)], np.int64))).reshape(-1)
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(raw)] = raw
    every = np.array(control.all_gather(padded)).reshape(control.size, -1)
    return [json.loads(bytes(row[:length])) for row, length in zip(every, lengths.tolist(), strict=True)]
