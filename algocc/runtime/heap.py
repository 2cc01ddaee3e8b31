"""Memory of one process that others map too: one sparse file without a name, handed out in pieces.

A file without a name (`memfd_create`, or one unlinked as soon as it is made) can't be left behind, however its processes
end. It is as long as all memory that the machine has, but holds pages only where a piece is in use.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from bisect import insort
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError
from algocc.runtime.memory import address, check_memory, readable

PAGE = mmap.PAGESIZE
LINE = 128
HUGE = 1 << 16
"""Bytes from which a piece has pages of its own."""


def nameless(size: int, what: str) -> int:
    """The descriptor of a new file of `size` bytes, all zero, none of them stored yet.

    Raises UsageError if the system refuses.
    """
    try:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create(f"algocc {what}", os.MFD_CLOEXEC)
        else:
            fd, path = tempfile.mkstemp(prefix="algocc-")
            os.unlink(path)
        os.ftruncate(fd, size)
    except OSError as error:
        raise UsageError(f"{what}: the system gives no shared memory: {error.strerror}") from error
    return fd


def mapped(fd: int, size: int, what: str) -> mmap.mmap:
    """The file as memory of this process.

    Raises UsageError if there is no address space for it.
    """
    try:
        return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{what}: {readable(size)} of address space, which this process may not have: {error}; raise `ulimit -v`"
        ) from error


def capacity() -> int:
    """Bytes of a heap: all memory of the machine, in whole pages."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        total = 1 << 36
    return -(-total // HUGE) * HUGE


class Heap:
    """The memory of one rank. `start` is its address in this process, `fd` what another process maps."""

    def __init__(self, what: str) -> None:
        self.size = capacity()
        self.fd = nameless(self.size, what)
        try:
            self._map = mapped(self.fd, self.size, what)
        except UsageError:
            os.close(self.fd)
            raise
        self.start = address(np.frombuffer(self._map, np.uint8, 1))
        self._free = [(0, self.size)]  # (offset, size), sorted
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, os.close, self.fd)

    def allocate(self, size: int, what: str) -> NDArray[np.uint8]:
        """`size` bytes, given back when no array refers to them any more; what they hold is anyone's guess.

        Raises UsageError, saying how much there is, if there is not enough.
        """
        boundary = PAGE if size >= HUGE else LINE
        size = max(-(-size // boundary), 1) * boundary
        check_memory(size, what)
        with self._lock:
            self._take_back()
            offset = self._take(size, boundary, what)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, offset, size)
        except OSError as error:
            self._returned.append((offset, size))
            raise UsageError(f"{what}: no {readable(size)} of shared memory left: {error.strerror}") from error
        piece = np.frombuffer(self._map, np.uint8, size, offset)
        weakref.finalize(piece, self._returned.append, (offset, size)).atexit = False
        return piece

    def holds(self, first: int, size: int) -> bool:
        """Whether `size` bytes from address `first` lie here."""
        return self.start <= first and first + size <= self.start + self.size

    def in_use(self) -> int:
        """Bytes handed out."""
        with self._lock:
            self._take_back()
            return self.size - sum(size for _, size in self._free)

    def _take(self, size: int, boundary: int, what: str) -> int:
        for i, (begin, room) in enumerate(self._free):
            skip = -begin % boundary
            if room >= skip + size:
                rest = [(begin, skip), (begin + skip + size, room - skip - size)]
                self._free[i : i + 1] = [piece for piece in rest if piece[1]]
                return begin + skip
        raise UsageError(f"{what}: no {readable(size)} in one piece; let go of some arrays of this communicator")

    def _take_back(self) -> None:
        while self._returned:
            offset, size = self._returned.popleft()
            first, last = -(-offset // PAGE) * PAGE, (offset + size) // PAGE * PAGE
            if size >= HUGE and hasattr(mmap, "MADV_REMOVE"):
                try:
                    self._map.madvise(mmap.MADV_REMOVE, first, last - first)
                except OSError:
                    pass  # the pages stay, and are used again
            insort(self._free, (offset, size))
            i = self._free.index((offset, size))
            for k in (i, i - 1):
                if 0 <= k < len(self._free) - 1 and sum(self._free[k]) == self._free[k + 1][0]:
                    self._free[k : k + 2] = [(self._free[k][0], self._free[k][1] + self._free[k + 1][1])]


class Window:
    """Another process's heap, mapped here."""

    def __init__(self, fd: int, what: str) -> None:
        try:
            self._map = mapped(fd, os.fstat(fd).st_size, what)
        finally:
            os.close(fd)
        self._bytes: NDArray[Any] = np.frombuffer(self._map, np.uint8, 1)
        self.start = address(self._bytes)
