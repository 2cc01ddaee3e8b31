"""Memory for kernels: aligned, counted, and refused before the machine runs out."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError


def aligned(size: int, boundary: int = 128) -> NDArray[np.uint8]:
    """`size` zero bytes that start at a multiple of `boundary`."""
    memory = np.zeros(size + boundary, np.uint8)
    skip = -address(memory) % boundary
    return memory[skip : skip + size]


def address(array: NDArray[Any]) -> int:
    """Where an array starts."""
    return int(array.ctypes.data)


def available() -> int:
    """Bytes that can be had without swapping, as the system sees it."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**63 - 1


def check_memory(size: int, what: str) -> None:
    """Raise UsageError if `what`, of `size` bytes, can't be held."""
    free = available()
    if size > free:
        raise UsageError(
            f"{what} takes {readable(size)}, there are {readable(free)}; use fewer ranks or elements"
        )


def readable(size: int) -> str:
    """A number of bytes for people.

    >>> readable(3 << 20), readable(100)
    ('3.0 MiB', '100 B')
    """
    if size < 1024:
        return f"{size} B"
    value, unit = size / 1024, 0
    while value >= 1024 and unit < 5:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {'KMGTPE'[unit]}iB"
