"""The caller's arrays: are they what a program needs, and where do they lie."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.errors import UsageError
from algocc.kernels.operators import Element
from algocc.runtime.geometry import buffer_elements, shifts
from algocc.runtime.memory import address

Arrays = Sequence[NDArray[Any] | None]


def _nothing() -> None:
    return None


class Buffers:
    """What the arrays of one collective, count and type must be like."""

    def __init__(self, collective: Collective, count: int, e: Element, *, in_place: bool) -> None:
        self._name = collective.name
        self._n = collective.n
        self._element = e
        self._dtype = e.numpy
        self._elements = buffer_elements(collective, count)
        self._last: list[Callable[[], object]] = []
        self._shifts = shifts(collective, count) if in_place else [None] * collective.n

    def bind(self, inputs: Arrays, outputs: Arrays, bases: NDArray[np.int64]) -> None:
        """Write the addresses of the arrays into `bases`, shape (n, 3); that of scratch is left alone.

        The arrays of the call before, if they are the very same objects, are not looked at again.

        Raises UsageError, naming the first rank whose arrays do not fit.
        """
        if self._are_last(inputs, outputs):
            return
        self._last = []
        for buffer, arrays in ((Buffer.INPUT, inputs), (Buffer.OUTPUT, outputs)):
            if len(arrays) != self._n:
                what = "inputs" if buffer == Buffer.INPUT else "outputs"
                raise UsageError(
                    f"{self._name}: {len(arrays)} {what}, wanted one for each of {self._n} ranks"
                )
            for rank, array in enumerate(arrays):
                bases[rank, buffer] = self._address(rank, buffer, array)
        self._check_sharing(bases)
        self._last = [_nothing if a is None else weakref.ref(a) for a in (*inputs, *outputs)]

    def _are_last(self, inputs: Arrays, outputs: Arrays) -> bool:
        n = self._n
        if len(self._last) != 2 * n or len(inputs) != n or len(outputs) != n:
            return False
        for arrays, last, sizes in (
            (inputs, self._last[:n], self._elements[0]),
            (outputs, self._last[n:], self._elements[1]),
        ):
            for array, ref, size in zip(arrays, last, sizes, strict=True):
                if array is None:
                    if size:
                        return False
                elif ref() is not array or array.size != size or not array.flags.c_contiguous:
                    return False
        return all(a is None or a.flags.writeable for a in outputs)

    def _address(self, rank: int, buffer: Buffer, array: NDArray[Any] | None) -> int:
        wanted = self._elements[buffer][rank]
        if array is None and wanted == 0:
            return 0
        fault = None
        if not isinstance(array, np.ndarray):
            fault = f"is a {type(array).__name__}, wanted a NumPy array"
        elif array.dtype != self._dtype:
            fault = f"has dtype {array.dtype}, wanted {self._dtype}"
        elif array.ndim != 1:
            fault = f"has {array.ndim} dimensions, wanted 1: pass a.reshape(-1), which is a view if a is contiguous"
        elif array.size != wanted:
            fault = f"has {array.size} elements, wanted {wanted}"
        elif not array.flags.c_contiguous:
            fault = "is not contiguous: a copy would not come back to you, make one yourself"
        elif buffer == Buffer.OUTPUT and not array.flags.writeable:
            fault = "is read-only"
        if fault is not None or array is None:
            what = "input" if buffer == Buffer.INPUT else "output"
            raise UsageError(f"{self._name}: the {what} of rank {rank} {fault}")
        return address(array)

    def _check_sharing(self, bases: NDArray[np.int64]) -> None:
        """In place, aliased blocks are the same memory; nothing else that is written is shared."""
        size = self._element.size
        spans = []
        for rank, shift in enumerate(self._shifts):
            first, last = int(bases[rank, 0]), int(bases[rank, 1])
            ins, outs = (size * self._elements[i][rank] for i in (0, 1))
            if shift is None:
                spans.append((first, first + ins, False, rank))
                spans.append((last, last + outs, True, rank))
                continue
            if first != last + shift * size:
                raise UsageError(
                    f"{self._name}: rank {rank}: this program works in place: its input must start at element {shift} "
                    "of its output, in the same memory; in_place_buffers makes such arrays"
                )
            spans.append((min(first, last), max(first + ins, last + outs), True, rank))
        read, written = (-1, -1), (-1, -1)  # where the spans so far end, and of which rank
        for start, stop, writes, rank in sorted(spans):
            if start == stop:
                continue
            end, owner = max(read, written) if writes else written
            if start < end:
                raise UsageError(
                    f"{self._name}: buffers of ranks {owner} and {rank} share memory that is written"
                    if owner != rank
                    else f"{self._name}: rank {rank}: its input and output share memory; lower the schedule in place"
                )
            if writes:
                written = max(written, (stop, rank))
            else:
                read = max(read, (stop, rank))
