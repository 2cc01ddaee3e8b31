"""From what the command line names to a schedule: the user's code runs here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from algocc import catalog
from algocc.decorator import Algorithm
from algocc.errors import UsageError
from algocc.runtime.memory import available
from algocc.table import Schedule


def load(name: str) -> Algorithm:
    """As `catalog.load`; what the user's file prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        return catalog.load(name)


def build(algorithm: Algorithm, n: int, params: dict[str, Any]) -> Schedule:
    """As `catalog.build`; what the user's function prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        return catalog.build(algorithm, n, **params)


def ranks(algorithm: Algorithm, n: int | None) -> int:
    """n, or that of a table where -n is not given."""
    if n is not None:
        return n
    own = algorithm.takes.removeprefix("n = ")
    if not own.isdecimal():
        raise UsageError(f"{algorithm.name}: on how many ranks? Give -n, as in -n 8")
    return int(own)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """While the body runs, asking for more than 3/4 of the free memory is a MemoryError, not the end of the machine."""
    try:
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + available() // 4 * 3
        limit = limit if before[0] == resource.RLIM_INFINITY else min(before[0], limit)
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    except (ImportError, AttributeError, ValueError, OSError):
        yield  # no Linux: the system looks after itself
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
