"""Calls of the CUDA driver, against NVIDIA's own header: what they pass, in which order, and what they leave behind."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algocc.errors import RunError, UsageError
from algocc.runtime.cuda import driver
from algocc.runtime.cuda.driver import CudaDriver

bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings, of the extra cuda, are not installed")


def header() -> str:
    spec = importlib.util.find_spec("nvidia")
    found = [f for place in (spec.submodule_search_locations or [] if spec else []) for f in Path(place).glob("*/include/cuda.h")]
    if not found:
        pytest.skip("NVIDIA's cuda.h, of the extra cuda, is not installed")
    return found[0].read_text(errors="replace")


SIZES = {
    "int": 4, "unsigned int": 4, "unsigned char": 1, "float": 4, "size_t": 8, "unsigned long long": 8, "CUdevice": 4, "CUdeviceptr": 8,
    "CUmemGenericAllocationHandle": 8, "CUipcMemHandle": 64,
}  # fmt: skip
"""Bytes of what is passed by its value."""


def prototypes() -> dict[str, list[str]]:
    """The types of the parameters of every function, by the name that the library exports it by."""
    text = re.sub(r"/\*.*?\*/", "", header(), flags=re.DOTALL)
    named = {a: b for a, b in re.findall(r"#define (cu\w+)\s+(?:__CUDA_API_PTSZ\()?(cu\w+)", text)}
    pointers = re.findall(r"typedef struct \w+ \*(\w+);", text)
    numbers = re.findall(r"typedef enum \w+ \{[^}]*\} (\w+);", text)
    found: dict[str, list[str]] = {}
    for name, parameters in re.findall(r"CUresult CUDAAPI (\w+)\(([^)]*)\);", text):
        types = [re.sub(r"\s*\w+(\[\])?$", r"\1", " ".join(p.split())) for p in parameters.split(",")]
        types = [re.sub(r"^const ", "", t) for t in types]
        types = ["void*" if t in pointers else "int" if re.sub("_enum$", "", t) in numbers else t.replace(" *", "*") for t in types]
        found.setdefault(named.get(name, name), types)
    return found


class Library:
    """What libcuda exports: each call is looked at, and handed to `does` under its name without a version.

    fails: names of functions, or numbers of calls, that say error 1.
    """

    def __init__(self, devices: int = 3) -> None:
        self.does, self.fails = Handles(devices), set[str | int]()
        self.known, self.called = prototypes(), list[str]()

    def __getattr__(self, name: str) -> Any:
        if name == "cuGetErrorString":
            return self.does.cuGetErrorString
        if name not in self.known:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            check(name, arguments, self.known[name])
            if name in self.fails or len(self.called) - 1 in self.fails:
                return 1
            plain = re.sub(r"_v\d$", "", name)
            do = getattr(self.does, plain, None)
            (do or partial(self.does.make, plain))(*arguments)
            return 0

        return call


def check(name: str, arguments: tuple[Any, ...], wanted: list[str]) -> None:
    """Whether arguments have the number and the sizes that are wanted."""
    assert len(arguments) == len(wanted), f"{name}: {len(arguments)} arguments, wanted {wanted}"
    for argument, type_ in zip(arguments, wanted, strict=True):
        behind = getattr(argument, "_obj", None)
        if type_.endswith(("*", "[]")):
            assert behind is not None or isinstance(argument, ctypes.c_void_p | ctypes.c_char_p | ctypes.Array), (name, type_)
            pointee = type_.removesuffix("*")
            if behind is not None and (pointee in SIZES or pointee.endswith("*")):
                assert ctypes.sizeof(behind) == SIZES.get(pointee, 8), (name, type_)
        else:
            size = 4 if isinstance(argument, int) else ctypes.sizeof(argument)
            assert behind is None and not isinstance(argument, ctypes.c_void_p), (name, type_)
            assert size == SIZES[type_], (name, type_)


class Handles:
    """What calls make and give back; no device computes. An assertion that fails is misuse, as the header tells it."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.live = defaultdict[str, set[int]](set)
        self.memory = dict[int, Any]()
        self.bound, self.members, self.maps = set[tuple[int, int]](), dict[int, list[int]](), dict[int, int]()
        self.place = dict[int, int]()  # device of each piece of memory
        self._next = 1 << 24

    def cuGetErrorString(self, code, text):
        text._obj.value = b"not to be"

    def new(self, kind: str) -> int:
        self._next += 1 << 24
        self.live[kind].add(self._next)
        return self._next

    def make(self, name: str, *arguments: Any) -> None:
        """What makes a handle, and nothing else."""
        kinds = {
            "cuDevicePrimaryCtxRetain": "context", "cuModuleLoadData": "module", "cuModuleGetFunction": "function", "cuStreamCreate": "stream",
            "cuEventCreate": "event", "cuStreamEndCapture": "graph", "cuGraphInstantiateWithFlags": "executable", "cuMemAlloc": "memory",
            "cuMemAddressReserve": "range", "cuMemHostGetDevicePointer": "host", "cuIpcOpenMemHandle": "memory",
        }  # fmt: skip
        if name in kinds:
            arguments[1 if name == "cuStreamEndCapture" else 0]._obj.value = self.new(kinds[name])

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices

    def cuDeviceGetName(self, name, size, device):
        name.value = b"a device"

    def cuDeviceTotalMem(self, size, device):
        size._obj.value = 80 << 30

    def cuDeviceGetAttribute(self, value, number, device):
        of = bindings.CUdevice_attribute
        value._obj.value = {
            of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9, of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
            of.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: 132, of.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: 1,
            of.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: 1,
        }[number.value]  # fmt: skip

    def cuDeviceCanAccessPeer(self, can, device, peer):
        can._obj.value = 1

    def cuMemHostAlloc(self, place, size, flags):
        memory = ctypes.create_string_buffer(size.value)
        place._obj.value = ctypes.addressof(memory)
        self.memory[place._obj.value] = memory

    def cuMemFree(self, place):
        self.live["memory"].remove(place.value)

    cuIpcCloseMemHandle = cuMemFree

    def cuGraphDestroy(self, graph):
        self.live["graph"].remove(graph.value)

    def cuPointerGetAttribute(self, value, number, place):
        of = bindings.CUpointer_attribute
        value._obj.value = {
            of.CU_POINTER_ATTRIBUTE_MEMORY_TYPE: int(bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE), of.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: 2
        }[number.value]  # fmt: skip

    def cuLaunchCooperativeKernel(self, kernel, *rest):
        *geometry, shared, stream, values = rest
        assert kernel.value in self.live["function"] and stream.value in self.live["stream"]
        assert [g.value for g in geometry] == [2, 1, 1, 32, 1, 1] and shared.value == 0
        assert ctypes.c_uint64.from_address(values[0]).value in self.live["memory"]

    # Memory that a switch reaches

    def cuMulticastGetGranularity(self, step, described, option):
        group = bindings.CUmulticastObjectProp(_ptr=ctypes.addressof(described._obj))
        assert group.numDevices == self.devices
        assert option.value == bindings.CUmulticastGranularity_flags.CU_MULTICAST_GRANULARITY_RECOMMENDED
        step._obj.value = 3 << 20

    def cuMemGetAllocationGranularity(self, step, described, option):
        assert option.value == bindings.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        self.looked_at(described)
        step._obj.value = 2 << 20

    def looked_at(self, described) -> Any:
        kind = bindings.CUmemAllocationProp(_ptr=ctypes.addressof(described._obj))
        assert kind.type == bindings.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        assert kind.location.type == bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        assert kind.requestedHandleTypes == 0 and 0 <= kind.location.id < self.devices
        return kind.location.id

    def cuMulticastCreate(self, switch, described):
        group = bindings.CUmulticastObjectProp(_ptr=ctypes.addressof(described._obj))
        assert (group.numDevices, group.handleTypes, group.flags) == (self.devices, 0, 0)
        assert group.size and group.size % (6 << 20) == 0
        self.size = group.size
        switch._obj.value = self.new("handle")
        self.members[switch._obj.value] = []

    def cuMulticastAddDevice(self, switch, device):
        assert device.value not in self.members[switch.value]
        self.members[switch.value].append(device.value)

    def cuMemCreate(self, memory, size, described, flags):
        assert size.value == self.size
        memory._obj.value = self.new("handle")
        self.place[memory._obj.value] = self.looked_at(described)

    def cuMemRelease(self, handle):
        self.live["handle"].remove(handle.value)

    def cuMemMap(self, place, size, offset, handle, flags):
        assert place.value in self.live["range"] and handle.value in self.live["handle"]
        assert place.value not in self.maps and size.value == self.size
        if handle.value in self.members:
            assert len(self.members[handle.value]) == self.devices, "a map that blocks"
        self.maps[place.value] = handle.value

    def cuMemUnmap(self, place, size):
        assert size.value == self.size
        del self.maps[place.value]

    def cuMemSetAccess(self, place, size, every, count):
        assert place.value in self.maps and count.value == self.devices == len(every)
        for k in range(count.value):
            one = bindings.CUmemAccessDesc(_ptr=ctypes.addressof(every[k]))
            assert one.location.type == bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE and one.location.id == k
            assert one.flags == bindings.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

    def cuMemAddressFree(self, place, size):
        assert place.value not in self.maps, "a range with memory in it"
        self.live["range"].remove(place.value)

    def cuMulticastBindMem(self, switch, offset, memory, of_memory, size, flags):
        assert len(self.members[switch.value]) == self.devices, "a bind that blocks"
        assert self.place[memory.value] in self.members[switch.value] and size.value == self.size
        self.bound.add((switch.value, self.place[memory.value]))

    def cuMulticastUnbind(self, switch, device, offset, size):
        assert switch.value in self.live["handle"] and size.value == self.size
        self.bound.remove((switch.value, device.value))

    def given_back(self) -> bool:
        """Whether no memory is left."""
        return not any((self.live["handle"], self.live["range"], self.live["memory"], self.maps, self.bound))


@pytest.fixture
def opened(monkeypatch) -> tuple[CudaDriver, Library]:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    return CudaDriver(), library


def test_every_call_is_as_the_header_has_it(opened, monkeypatch):
    d, library = opened
    monkeypatch.setattr(driver, "assembled", lambda key, architecture: SimpleNamespace(cubin=b"\x7fELF"))
    facts, data = d.facts(1), np.zeros(8, np.uint8)
    assert (facts.name, facts.architecture, facts.processors, facts.cooperative) == ("a device", "sm_90", 132, True)
    stream, begin, end = d.stream(1), d.event(1), d.event(1)
    place = d.allocate(1, 64)
    d.upload(1, place, data, stream)
    d.clear(1, place, 64, stream)
    d.copy(1, place, place + 32, 32, stream)
    d.download(1, place, data, stream)
    kernel = d.kernel(1, None)
    d.blocks(1, kernel, 32)
    d.launch(1, kernel, 2, 32, place, stream)
    d.record(1, begin, stream)
    d.wait(1, stream, begin)
    d.elapsed(begin, end)
    d.begin_capture(1, stream)
    d.launch_graph(1, d.end_capture(1, stream), stream)
    assert d.reach(0, 1) and d.reach(1, 1) and d.multicast(0) and d.whole_lines(1, 1)
    d.whole_lines(0, 1)
    memory, _ = d.shared(256)
    assert memory.sum() == 0
    d.register(data)
    d.unregister(data)
    d.shut(2, d.open(2, d.export(1, place)))
    assert d.owner(place) == 2
    d.free(1, place)
    d.symmetric([0, 1, 2], 5)[2]()
    assert library.does.given_back()
    named = {name for name in re.findall(r"\bcu[A-Z]\w+", Path(driver.__file__).read_text())}
    assert named - set(library.called) == {"cuEventElapsedTime", "cuGetErrorString"}, "of older drivers; what names an error"


@pytest.mark.parametrize("size", [1, 6 << 20, (6 << 20) + 1])
def test_memory_of_all_devices_is_one_range_each_and_one_of_everybody(opened, size):
    d, library = opened
    places, everybody, release = d.symmetric([0, 1, 2], size)
    assert len({*places, everybody}) == 4 and library.does.size == -(-size // (6 << 20)) * (6 << 20)
    assert [library.does.place[library.does.maps[place]] for place in places] == [0, 1, 2]
    assert library.does.maps[everybody] in library.does.members
    assert library.does.bound == {(library.does.maps[everybody], device) for device in range(3)}
    release()
    assert library.does.given_back()
    release()


def test_whichever_call_fails_nothing_is_left(opened):
    d, library = opened
    _, _, release = d.symmetric([0, 1, 2], 5)
    first = library.called.index("cuMulticastGetGranularity")
    names = library.called[first:]
    release()
    assert len(names) > 20
    for k, name in enumerate(names):
        library.fails = {len(library.called) + 1 + k}  # after cuCtxSetCurrent
        with pytest.raises(UsageError, match=rf"multicast: 5 bytes on each of devices \[0, 1, 2\] are not to be had: {name}: error 1"):
            d.symmetric([0, 1, 2], 5)
        assert library.does.given_back(), (k, name)


@pytest.mark.parametrize("fault", ["cuMulticastUnbind", "cuMemRelease"])
def test_what_can_not_be_undone_keeps_nothing_else(opened, fault):
    d, library = opened
    _, _, release = d.symmetric([0, 1, 2], 5)
    library.fails = {fault}
    with pytest.raises(RunError, match=f"{fault}: error 1"):
        release()
    assert not library.does.maps and not library.does.live["range"]
    library.fails = {fault, "cuMemSetAccess"}
    with pytest.raises(UsageError, match="cuMemSetAccess: error 1"):  # and not what came of it
        d.symmetric([0, 1, 2], 5)


def test_no_driver_and_no_device(monkeypatch):
    library = Library(devices=0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    with pytest.raises(UsageError, match="finds no device; look at CUDA_VISIBLE_DEVICES"):
        CudaDriver()
    library.fails = {"cuInit"}
    with pytest.raises(UsageError, match=r"does not start: error 1 \(not to be\)"):
        CudaDriver()
