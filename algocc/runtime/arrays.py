"""What callers pass: anything with the buffer protocol or DLPack, seen as a flat array of a known element type."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError

Array = NDArray[Any]


def view(x: Any, what: str) -> Array:
    """`x` as an array on the same memory.

    Raises UsageError for what has no memory to share, or is on another device.
    """
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (list, tuple, int, float, complex, bool, str)) or x is None:
        raise UsageError(f"{what} is a {type(x).__name__}, wanted an array: NumPy, buffer protocol or DLPack")
    if hasattr(x, "__dlpack_device__") and tuple(x.__dlpack_device__())[0] != 1:
        raise UsageError(f"{what} is on another device {tuple(x.__dlpack_device__())}, wanted memory of the CPU")
    if hasattr(x, "__array_interface__"):
        return np.asarray(x)
    try:
        return np.asarray(memoryview(x))
    except TypeError:
        pass
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except Exception as error:  # whatever the other library raises
            raise UsageError(f"{what}: DLPack gives no array of it: {type(error).__name__}: {error}") from error
    raise UsageError(f"{what} is a {type(x).__name__}, wanted an array: NumPy, buffer protocol or DLPack")


def check_output(a: Array, what: str, dtype: np.dtype[Any], size: int) -> None:
    """Raise UsageError if `a` can't take `size` elements of `dtype`."""
    if a.dtype != dtype:
        raise UsageError(f"{what} has dtype {a.dtype}, wanted {dtype}, that of the input")
    if a.size != size:
        raise UsageError(f"{what} has {a.size} elements, wanted {size}")
    if not a.flags.writeable:
        raise UsageError(f"{what} is read-only")


_DATA = 16
"""Where CPython keeps the address of an array's first element in the array object; looked up below before it is used."""

_word = ctypes.c_size_t.from_address
_probe = np.zeros(3, np.int8)
_direct = _word(id(_probe) + _DATA).value == _probe.__array_interface__["data"][0]


def where(a: Array) -> int:
    """The address of the first element."""
    if _direct and type(a) is np.ndarray:
        return _word(id(a) + _DATA).value
    address: int = a.__array_interface__["data"][0]
    return address


def overlap(a: int, a_bytes: int, b: int, b_bytes: int) -> bool:
    """Whether two pieces of memory share a byte."""
    return a_bytes > 0 and b_bytes > 0 and a < b + b_bytes and b < a + a_bytes
