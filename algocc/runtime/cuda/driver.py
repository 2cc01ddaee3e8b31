"""What the host asks of GPUs, as a protocol of few calls, and the CUDA driver behind them.

Addresses, streams, events and kernels are plain integers. Every call names the device it is for.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from algocc.errors import RunError, UsageError
from algocc.kernels.grid import Key
from algocc.kernels.ptx import ENTRY, assembled, missing

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Facts:
    """A device.

    architecture: as `sm_90`.
    processors: how many run blocks at the same time.
    cooperative: can promise that all blocks of a launch run at the same time.
    memory: bytes in all.
    """

    name: str
    architecture: str
    processors: int
    cooperative: bool
    memory: int


class Driver(Protocol):
    """Devices, memory, streams and launches."""

    def check_compiler(self) -> None:
        """Raise UsageError if kernels can't be compiled."""

    def count(self) -> int:
        """Number of devices."""

    def facts(self, device: int) -> Facts:
        """What a device is like."""

    def allocate(self, device: int, size: int) -> int:
        """Address of new memory, at a multiple of 256."""

    def free(self, device: int, address: int) -> None:
        """Give memory back."""

    def shared(self, size: int) -> tuple[Bytes, int]:
        """Memory of the host, zeroed, that every device reaches, and its address there; for as long as the process."""

    def upload(self, device: int, address: int, data: NDArray[Any], stream: int) -> None:
        """Host → device, in the order of the stream; the data may change when this returns."""

    def download(self, device: int, address: int, data: NDArray[Any], stream: int) -> None:
        """Device → host, in the order of the stream; there when this returns."""

    def clear(self, device: int, address: int, size: int, stream: int) -> None:
        """Zero memory, in the order of the stream."""

    def copy(self, device: int, to: int, source: int, size: int, stream: int) -> None:
        """Device → the same device, in the order of the stream."""

    def kernel(self, device: int, key: Key) -> int:
        """The kernel for an operator and type, loaded."""

    def blocks(self, device: int, kernel: int, threads: int) -> int:
        """Blocks of so many threads that one processor runs at the same time."""

    def launch(self, device: int, kernel: int, blocks: int, threads: int, argument: int, stream: int) -> None:
        """Start blocks that all run at the same time."""

    def stream(self, device: int) -> int:
        """A new stream."""

    def synchronize(self, device: int, stream: int) -> None:
        """Wait for all work of a stream."""

    def event(self, device: int) -> int:
        """A new event, that takes the time if it is recorded."""

    def record(self, device: int, event: int, stream: int) -> None:
        """The event is when all work of the stream so far is done."""

    def wait(self, device: int, stream: int, event: int) -> None:
        """Later work of the stream waits for an event, of any device."""

    def elapsed(self, begin: int, end: int) -> float:
        """Milliseconds between two events that have been."""

    def begin_capture(self, device: int, stream: int) -> None:
        """From now on the stream notes its work instead of doing it."""

    def end_capture(self, device: int, stream: int) -> int:
        """What was noted, as a graph to launch."""

    def launch_graph(self, device: int, graph: int, stream: int) -> None:
        """Do what a graph notes."""

    def reach(self, device: int, peer: int) -> bool:
        """Let a device touch a peer's memory; false if there is no way."""

    def whole_lines(self, device: int, peer: int) -> bool:
        """Whether a line of 128 bytes that a warp stores at once arrives at once: on the device itself, and over NVLink."""

    def multicast(self, device: int) -> bool:
        """Whether the device is at a switch that reduces and copies for all that are at it."""

    def symmetric(self, devices: Sequence[int], size: int) -> tuple[list[int], int, Callable[[], None]]:
        """New memory of as many bytes on each device, which all devices reach: where it is on each, the one address where all of
        it is at once, for `multimem`, and what gives it back."""

    def export(self, device: int, address: int) -> bytes:
        """A name of an allocation that another process can open; `address` is where it starts."""

    def open(self, device: int, handle: bytes) -> int:
        """Where an allocation of another process begins here, for kernels of a device."""

    def shut(self, device: int, address: int) -> None:
        """Let go of another process's allocation."""

    def register(self, memory: Bytes) -> int:
        """Where devices reach memory of the host that is there already, perhaps of several processes."""

    def unregister(self, memory: Bytes) -> None:
        """The opposite."""

    def owner(self, address: int) -> int | None:
        """The device whose memory an address is in, None if it is none's."""


_ATTRIBUTES = {"processors": 16, "major": 75, "minor": 76, "cooperative": 95}
_PORTABLE_AND_MAPPED = 0x01 | 0x02
_ALREADY_ENABLED = 704
_MEMORY_TYPE, _DEVICE_ORDINAL, _OF_DEVICE = 2, 9, 2
_NATIVE_ATOMICS = 3
_NON_BLOCKING = 1  # does not wait for the default stream
_RELAXED = 2
_LAZY_PEER_ACCESS = 1


_MULTICAST_SUPPORTED = 132
_PINNED, _DEVICE, _READ_AND_WRITE, _RECOMMENDED = 1, 1, 3, 1


class _Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("device", ctypes.c_int)]


class _Access(ctypes.Structure):
    _fields_ = [("where", _Location), ("how", ctypes.c_int)]


class _Flags(ctypes.Structure):
    _fields_ = [
        ("compressed", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)
    ]  # fmt: skip


class _Allocation(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int), ("handles", ctypes.c_int), ("where", _Location), ("windows", ctypes.c_void_p), ("flags", _Flags)
    ]  # fmt: skip


class _Group(ctypes.Structure):
    _fields_ = [
        ("devices", ctypes.c_uint), ("size", ctypes.c_size_t), ("handles", ctypes.c_ulonglong), ("flags", ctypes.c_ulonglong)
    ]  # fmt: skip


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class CudaDriver:
    """The CUDA driver, called directly, in each device's primary context, which it shares with other libraries.

    Raises UsageError if there is no driver or no device.
    """

    def __init__(self) -> None:
        try:
            self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UsageError(
                f"no CUDA driver: {error}; install NVIDIA's driver, or run on algocc.runtime.Threads"
            ) from error
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._kernels: dict[tuple[int, Key], int] = {}
        code = self._cuda.cuInit(0)
        if code:
            raise UsageError(f"the CUDA driver does not start: {self._text(code)}; `nvidia-smi` may say more")
        if self.count() == 0:
            raise UsageError("the CUDA driver finds no device; look at CUDA_VISIBLE_DEVICES")

    def check_compiler(self) -> None:
        reason = missing()
        if reason:
            raise UsageError(f"kernels can't be compiled: {reason}")

    def count(self) -> int:
        count = ctypes.c_int()
        self._do("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def facts(self, device: int) -> Facts:
        name = ctypes.create_string_buffer(100)
        self._do("cuDeviceGetName", name, len(name), ctypes.c_int(device))
        memory = ctypes.c_size_t()
        self._do("cuDeviceTotalMem_v2", ctypes.byref(memory), ctypes.c_int(device))
        value = {what: self._attribute(device, number) for what, number in _ATTRIBUTES.items()}
        return Facts(
            name.value.decode(errors="replace"),
            f"sm_{value['major']}{value['minor']}",
            value["processors"],
            bool(value["cooperative"]),
            memory.value,
        )

    def allocate(self, device: int, size: int) -> int:
        self._enter(device)
        address = ctypes.c_uint64()
        code = self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        if code:
            raise UsageError(f"device {device}: {size} bytes of memory are not to be had: {self._text(code)}")
        return address.value

    def free(self, device: int, address: int) -> None:
        self._enter(device)
        self._do("cuMemFree_v2", ctypes.c_uint64(address))

    def shared(self, size: int) -> tuple[Bytes, int]:
        self._enter(0)
        host, there = ctypes.c_void_p(), ctypes.c_uint64()
        self._do(
            "cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE_AND_MAPPED)
        )
        self._do("cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, ctypes.c_uint(0))
        assert host.value is not None, "an address"
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host.value))
        memory[:] = 0
        return memory, there.value

    def upload(self, device: int, address: int, data: NDArray[Any], stream: int) -> None:
        if not data.nbytes:
            return
        self._enter(device)
        self._do(
            "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), _place(data), ctypes.c_size_t(data.nbytes),
            ctypes.c_void_p(stream),
        )  # fmt: skip
        self.synchronize(device, stream)

    def download(self, device: int, address: int, data: NDArray[Any], stream: int) -> None:
        if not data.nbytes:
            return
        self._enter(device)
        self._do(
            "cuMemcpyDtoHAsync_v2", _place(data), ctypes.c_uint64(address), ctypes.c_size_t(data.nbytes),
            ctypes.c_void_p(stream),
        )  # fmt: skip
        self.synchronize(device, stream)

    def clear(self, device: int, address: int, size: int, stream: int) -> None:
        if not size:
            return
        self._enter(device)
        self._do(
            "cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        )

    def copy(self, device: int, to: int, source: int, size: int, stream: int) -> None:
        self._enter(device)
        self._do(
            "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size),
            ctypes.c_void_p(stream),
        )  # fmt: skip

    def kernel(self, device: int, key: Key) -> int:
        if (device, key) not in self._kernels:
            image = assembled(key, self.facts(device).architecture).cubin
            self._enter(device)
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self._do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
            self._do("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(ENTRY.encode()))
            self._kernels[device, key] = int(function.value or 0)
        return self._kernels[device, key]

    def blocks(self, device: int, kernel: int, threads: int) -> int:
        self._enter(device)
        count = ctypes.c_int()
        self._do(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), ctypes.c_void_p(kernel),
            ctypes.c_int(threads), ctypes.c_size_t(0),
        )  # fmt: skip
        return count.value

    def launch(self, device: int, kernel: int, blocks: int, threads: int, argument: int, stream: int) -> None:
        self._enter(device)
        value = ctypes.c_uint64(argument)
        values = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        u = ctypes.c_uint
        self._do(
            "cuLaunchCooperativeKernel", ctypes.c_void_p(kernel), u(blocks), u(1), u(1), u(threads), u(1), u(1), u(0),
            ctypes.c_void_p(stream), values,
        )  # fmt: skip

    def stream(self, device: int) -> int:
        self._enter(device)
        stream = ctypes.c_void_p()
        self._do("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return int(stream.value or 0)

    def synchronize(self, device: int, stream: int) -> None:
        self._enter(device)
        self._do("cuStreamSynchronize", ctypes.c_void_p(stream))

    def event(self, device: int) -> int:
        self._enter(device)
        event = ctypes.c_void_p()
        self._do("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return int(event.value or 0)

    def record(self, device: int, event: int, stream: int) -> None:
        self._enter(device)
        self._do("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def wait(self, device: int, stream: int, event: int) -> None:
        self._enter(device)
        self._do("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))

    def elapsed(self, begin: int, end: int) -> float:
        milliseconds = ctypes.c_float()
        name = "cuEventElapsedTime_v2" if hasattr(self._cuda, "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        self._do(name, ctypes.byref(milliseconds), ctypes.c_void_p(begin), ctypes.c_void_p(end))
        return milliseconds.value

    def begin_capture(self, device: int, stream: int) -> None:
        self._enter(device)
        self._do("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(_RELAXED))

    def end_capture(self, device: int, stream: int) -> int:
        self._enter(device)
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        self._do("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        self._do("cuGraphDestroy", graph)
        return int(ready.value or 0)

    def launch_graph(self, device: int, graph: int, stream: int) -> None:
        self._enter(device)
        self._do("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def reach(self, device: int, peer: int) -> bool:
        if device == peer:
            return True
        can = ctypes.c_int()
        self._do("cuDeviceCanAccessPeer", ctypes.byref(can), ctypes.c_int(device), ctypes.c_int(peer))
        if not can.value:
            return False
        self._enter(peer)
        theirs = self._contexts[peer]
        self._enter(device)
        code = self._cuda.cuCtxEnablePeerAccess(theirs, ctypes.c_uint(0))
        return code in (0, _ALREADY_ENABLED)

    def whole_lines(self, device: int, peer: int) -> bool:
        if device == peer:
            return True
        native = ctypes.c_int()  # atomics of the link itself: NVLink has them, PCIe does not
        self._do(
            "cuDeviceGetP2PAttribute", ctypes.byref(native), ctypes.c_int(_NATIVE_ATOMICS), ctypes.c_int(device), ctypes.c_int(peer)
        )
        return bool(native.value)

    def multicast(self, device: int) -> bool:
        return bool(self._attribute(device, _MULTICAST_SUPPORTED))

    def symmetric(self, devices: Sequence[int], size: int) -> tuple[list[int], int, Callable[[], None]]:
        undo: list[tuple[str, tuple[Any, ...]]] = []

        def release() -> None:
            first: RunError | None = None
            while undo:  # whatever one of them says, the others' memory is given back
                name, arguments = undo.pop()
                try:
                    self._do(name, *arguments)
                except RunError as error:
                    first = first or error
            if first is not None:
                raise first

        try:
            return *self._symmetric(devices, size, undo), release
        except RunError as error:
            with suppress(RunError):  # what went wrong first is what to tell
                release()
            raise UsageError(f"multicast: {size} bytes on each of devices {list(devices)} are not to be had: {error}") from error

    def _symmetric(self, devices: Sequence[int], size: int, undo: list[tuple[str, tuple[Any, ...]]]) -> tuple[list[int], int]:
        """`undo` gets the call that takes each step back."""
        self._enter(devices[0])
        every = (_Access * len(devices))(*[_Access(_Location(_DEVICE, d), _READ_AND_WRITE) for d in devices])
        group = _Group(len(devices), size, 0, 0)
        step = ctypes.c_size_t()
        self._do("cuMulticastGetGranularity", ctypes.byref(step), ctypes.byref(group), ctypes.c_int(_RECOMMENDED))
        kinds = [_Allocation(_PINNED, 0, _Location(_DEVICE, d), None, _Flags()) for d in devices]
        unit = step.value
        for kind in kinds:
            self._do("cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(kind), ctypes.c_int(_RECOMMENDED))
            unit = math.lcm(unit, step.value)
        group.size = -(-max(size, 1) // unit) * unit
        length = ctypes.c_size_t(group.size)

        def mapped(handle: ctypes.c_uint64) -> int:
            place = ctypes.c_uint64()
            zero = ctypes.c_uint64(0)
            self._do("cuMemAddressReserve", ctypes.byref(place), length, ctypes.c_size_t(unit), zero, zero)
            undo.append(("cuMemAddressFree", (place, length)))
            self._do("cuMemMap", place, length, ctypes.c_size_t(0), handle, zero)
            undo.append(("cuMemUnmap", (place, length)))
            self._do("cuMemSetAccess", place, length, every, ctypes.c_size_t(len(devices)))
            return place.value

        switch = ctypes.c_uint64()
        self._do("cuMulticastCreate", ctypes.byref(switch), ctypes.byref(group))
        undo.append(("cuMemRelease", (switch,)))
        for device in devices:
            self._do("cuMulticastAddDevice", switch, ctypes.c_int(device))
        places = []
        for device, kind in zip(devices, kinds, strict=True):
            memory = ctypes.c_uint64()
            self._do("cuMemCreate", ctypes.byref(memory), length, ctypes.byref(kind), ctypes.c_uint64(0))
            undo.append(("cuMemRelease", (memory,)))
            places.append(mapped(memory))
            self._do(
                "cuMulticastBindMem", switch, ctypes.c_size_t(0), memory, ctypes.c_size_t(0), length, ctypes.c_uint64(0)
            )
            undo.append(("cuMulticastUnbind", (switch, ctypes.c_int(device), ctypes.c_size_t(0), length)))
        return places, mapped(switch)

    def export(self, device: int, address: int) -> bytes:
        self._enter(device)
        handle = _Handle()
        code = self._cuda.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address))
        if code:
            raise UsageError(f"device {device}: its memory can't be shared with other processes: {self._text(code)}")
        return bytes(handle)

    def open(self, device: int, handle: bytes) -> int:
        self._enter(device)
        address = ctypes.c_uint64()
        code = self._cuda.cuIpcOpenMemHandle_v2(
            ctypes.byref(address), _Handle.from_buffer_copy(handle), ctypes.c_uint(_LAZY_PEER_ACCESS)
        )
        if code:
            raise UsageError(f"device {device}: memory of another process can't be opened: {self._text(code)}")
        return address.value

    def shut(self, device: int, address: int) -> None:
        self._enter(device)
        self._do("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def register(self, memory: Bytes) -> int:
        self._enter(0)
        there = ctypes.c_uint64()
        self._do(
            "cuMemHostRegister_v2", _place(memory), ctypes.c_size_t(memory.nbytes), ctypes.c_uint(_PORTABLE_AND_MAPPED)
        )
        self._do("cuMemHostGetDevicePointer_v2", ctypes.byref(there), _place(memory), ctypes.c_uint(0))
        return there.value

    def unregister(self, memory: Bytes) -> None:
        self._enter(0)
        self._do("cuMemHostUnregister", _place(memory))

    def owner(self, address: int) -> int | None:
        kind, device = ctypes.c_uint(), ctypes.c_int()
        if self._cuda.cuPointerGetAttribute(ctypes.byref(kind), ctypes.c_int(_MEMORY_TYPE), ctypes.c_uint64(address)):
            return None
        if kind.value != _OF_DEVICE:
            return None
        self._do("cuPointerGetAttribute", ctypes.byref(device), ctypes.c_int(_DEVICE_ORDINAL), ctypes.c_uint64(address))
        return device.value

    def _attribute(self, device: int, number: int) -> int:
        found = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(found), ctypes.c_int(number), ctypes.c_int(device))
        return found.value

    def _enter(self, device: int) -> None:
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
            self._contexts[device] = context
        self._do("cuCtxSetCurrent", self._contexts[device])

    def _do(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise RunError(f"{name}: {self._text(code)}")

    def _text(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        return f"error {code}" + (f" ({text.value.decode()})" if text.value else "")


def _place(data: NDArray[Any]) -> ctypes.c_void_p:
    assert data.flags.c_contiguous, "copies are of contiguous memory"
    return ctypes.c_void_p(data.ctypes.data)


@cache
def cuda() -> CudaDriver:
    """The driver of this process.

    Raises UsageError if there is none, or no device.
    """
    return CudaDriver()
