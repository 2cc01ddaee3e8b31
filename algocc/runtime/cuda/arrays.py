"""Arrays in the memory of a device: ours, and those of other libraries by `__cuda_array_interface__` or DLPack."""

from __future__ import annotations

import ctypes
import math
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError
from algocc.kernels.operators import Element, element
from algocc.runtime.cuda.driver import Driver

_WITHOUT_LETTERS: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(np.uint16), "float8_e4m3fn": np.dtype(np.uint8), "float8_e5m2": np.dtype(np.uint8),
}  # fmt: skip
"""Types of ml_dtypes that `__cuda_array_interface__` has no letters for, and what they go as."""


class Array:
    """Elements of one type in the memory of a device, freed with the object; `stream` is what it is copied on."""

    _whole: object = None

    def __init__(self, driver: Driver, device: int, elements: int, dtype: Any, *, skip: int = 0) -> None:
        self.device, self.size, self.element = device, elements, element(dtype)
        self._driver = driver
        base = driver.allocate(device, (elements + skip) * self.element.size)
        self.address = base + skip * self.element.size
        self.stream = driver.stream(device)
        self._end = weakref.finalize(self, driver.free, device, base)
        driver.clear(device, base, (elements + skip) * self.element.size, self.stream)
        driver.synchronize(device, self.stream)

    @classmethod
    def within(
        cls, driver: Driver, device: int, elements: int, e: Element, *, address: int, stream: int, owner: object
    ) -> Array:  # fmt: skip
        """An array in memory of `owner`, which lives as long."""
        made = cls.__new__(cls)
        made.device, made.size, made.element = device, elements, e
        made._driver, made.address, made.stream, made._whole = driver, address, stream, owner
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array for other libraries; a type that they have no letters for as an integer."""
        kind = _WITHOUT_LETTERS.get(self.element.name, self.element.numpy)
        return {"shape": (self.size,), "typestr": kind.str, "data": (self.address, False), "strides": None, "version": 3}

    def set(self, values: NDArray[Any]) -> None:
        """Copy from the host."""
        if values.shape != (self.size,) or values.dtype != self.element.numpy:
            raise UsageError(
                f"an array of {values.dtype} {values.shape} for one of {self.element.name} ({self.size},) on device {self.device}"
            )
        self._driver.upload(self.device, self.address, np.ascontiguousarray(values), self.stream)

    def get(self) -> NDArray[Any]:
        """A copy on the host."""
        values = np.zeros(self.size, self.element.numpy)
        self._driver.download(self.device, self.address, values, self.stream)
        return values

    def part(self, begin: int, elements: int) -> Array:
        """A run of its elements, in the same memory, which lives as long as either does."""
        if not 0 <= begin <= begin + elements <= self.size:
            raise UsageError(f"elements {begin} to {begin + elements} of an array of {self.size}")
        address = self.address + begin * self.element.size
        return Array.within(
            self._driver, self.device, elements, self.element, address=address, stream=self.stream, owner=self
        )

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<Array of {self.size} {self.element.name} on device {self.device}>"


@dataclass(frozen=True)
class Seen:
    """What of an array matters here.

    dtype: name of the element type, None if it is none that is known.
    stream: the stream that writes it, None if nothing is known of one.
    """

    address: int
    elements: int
    dtype: str | None
    contiguous: bool
    writable: bool
    device: int | None
    stream: int | None = None


def see(array: Any, driver: Driver, e: Element, stream: int) -> Seen | None:
    """An array as its library describes it; None if it is no array of a device.

    stream: that it will be used on; a library that speaks DLPack makes it wait for the array.
    e: the type that is wanted: libraries pass one that they have no letters for as an integer.
    """
    if isinstance(array, Array):
        return Seen(array.address, array.size, array.element.name, True, True, array.device)
    described = getattr(array, "__cuda_array_interface__", None)
    if described is not None:
        return _interface(described, driver, e)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        kind, device = array.__dlpack_device__()
        if int(kind) == _DL_CUDA:
            return _dlpack(array.__dlpack__(stream=stream or _DL_DEFAULT_STREAM), int(device))
    return None


def _interface(described: dict[str, Any], driver: Driver, e: Element) -> Seen:
    shape = tuple(described["shape"])
    kind = np.dtype(described["typestr"])
    name = e.name if kind == _WITHOUT_LETTERS.get(e.name) else kind.name
    strides = described.get("strides")
    packed = strides is None or tuple(strides) == _packed(shape, kind.itemsize)
    address, read_only = described["data"]
    return Seen(
        int(address), math.prod(shape), name, packed, not read_only, driver.owner(int(address)), described.get("stream")
    )


def _packed(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))


# DLPack: the part of its header that describes a tensor

_DL_CUDA = 2
_DL_DEFAULT_STREAM = 1
_DL_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def _dlpack(capsule: Any, device: int) -> Seen:
    """Look into a capsule, which frees what it holds when it goes: the caller's array keeps the memory."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    packed = not tensor.strides or all(
        extent == 1 or tensor.strides[i] == stride
        for i, (extent, stride) in enumerate(zip(shape, _packed(shape, 1), strict=True))
    )
    kind = _DL_KINDS.get(tensor.code)
    name = None if kind is None or tensor.lanes != 1 else "bool" if kind == "bool" else f"{kind}{tensor.bits}"
    return Seen(int(tensor.data or 0) + tensor.byte_offset, math.prod(shape), name, packed, True, device)
