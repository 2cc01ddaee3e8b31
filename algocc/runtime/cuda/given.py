"""The caller's arrays on devices: are they what a program needs, and where do they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.kernels.operators import Element
from algocc.runtime.cuda.arrays import Seen, see
from algocc.runtime.cuda.driver import Driver

Ints = NDArray[np.int64]


def look(
    array: Any, driver: Driver, e: Element, what: str, *, wanted: int, device: int, stream: int, writes: bool
) -> Seen | None:
    """An array that fits: `wanted` elements of type `e` in one piece on a device; None for none where none is wanted.

    Raises UsageError, beginning with `what`, for one that does not.
    """
    if array is None and wanted == 0:
        return None
    seen = see(array, driver, e, stream)
    if seen is None:
        fault = f"is a {type(array).__name__}, wanted an array on a device (__cuda_array_interface__ or DLPack)"
    elif seen.dtype != e.name:
        fault = f"has dtype {seen.dtype}, wanted {e.name}"
    elif seen.elements != wanted:
        fault = f"has {seen.elements} elements, wanted {wanted}"
    elif not seen.contiguous:
        fault = "is not contiguous: a copy would not come back to you, make one yourself"
    elif writes and not seen.writable:
        fault = "is read-only"
    elif wanted and seen.device != device:
        where = "in no device's memory" if seen.device is None else f"on device {seen.device}"
        fault = f"is {where}, wanted it on device {device}, where the rank runs"
    elif seen.address % (number := e.size // (2 if e.kind == "complex" else 1)):
        fault = f"starts at {seen.address:#x}, wanted a multiple of {number}"
    else:
        return seen
    raise UsageError(f"{what} {fault}")


def check_sharing(
    name: str, bases: Ints, ranks: Sequence[int], elements: tuple[list[int], list[int]], moved: Sequence[int | None], e: Element
) -> None:  # fmt: skip
    """In place, aliased blocks are the same memory; nothing else that is written is shared.

    moved: element of its output where each rank's input starts in place, None where they are apart.
    """
    spans = []
    for rank in ranks:
        shift = moved[rank]
        first, last = bases[rank, :2].tolist()
        ins, outs = (e.size * elements[i][rank] for i in (Buffer.INPUT, Buffer.OUTPUT))
        if shift is None:
            spans += [(first, first + ins, False, rank), (last, last + outs, True, rank)]
        elif first != last + shift * e.size:
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
