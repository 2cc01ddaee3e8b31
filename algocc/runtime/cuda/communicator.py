"""Collectives on arrays of GPUs, among ranks that each call for themselves: threads of one process, or processes of a node.

The ranks agree on a call as those of the CPU do, over such a `Communicator`. Of threads the first then launches for all,
each rank on its device or several on one; processes launch for themselves, and reach each other's scratch by CUDA IPC.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from algocc.catalog import build
from algocc.collective import all_to_all_v
from algocc.errors import AlgoccError, RunError, UsageError
from algocc.kernels.operators import Element, Operator, element, operator
from algocc.program import Program
from algocc.runtime.apart import lower_apart, lower_pushed
from algocc.runtime.arrays import overlap
from algocc.runtime.choice import tuned
from algocc.runtime.communicator import MOST_PREPARED, ROOTED, Communicator, check_size
from algocc.runtime.cuda.arrays import Array, Seen, see
from algocc.runtime.cuda.between import Between
from algocc.runtime.cuda.driver import Driver, cuda
from algocc.runtime.cuda.flags import PROTOCOLS, fits
from algocc.runtime.cuda.host import Devices
from algocc.runtime.cuda.pool import Pool, exchange
from algocc.runtime.cuda.sites import placed
from algocc.runtime.geometry import buffer_elements, shifts
from algocc.runtime.made import program_of
from algocc.runtime.rank import Signature, disagreement
from algocc.runtime.threads import check_reduction
from algocc.table import Schedule

CHOICES = ("auto", *PROTOCOLS)
"""The protocols of a communicator."""

SMALL = 16 << 10
"""Bytes of the larger buffer up to which "auto" puts flags beside the data, where the schedule allows it."""

POOL_BYTES = 256 << 20
"""Device memory that processes share, if not said otherwise."""


@dataclass(frozen=True)
class Call:
    """What one rank asks for."""

    name: str
    schedule: Schedule
    key: str
    count: int
    element: Element
    operator: Operator
    in_place: bool
    root: int
    protocol: str
    x: Any
    out: Any
    stream: Any

    @property
    def signature(self) -> Signature:
        """What the ranks must agree on."""
        op = self.operator.name if self.schedule.collective.reduces else "none"
        return Signature((
            ("collective", self.name), ("count", str(self.count)), ("dtype", self.element.name), ("op", op),
            ("root", str(self.root)), ("in place", "yes" if self.in_place else "no"), ("schedule", self.schedule.name),
            ("protocol", self.protocol), ("program", self.key),
        ))  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes of the larger buffer of a rank."""
        return self.schedule.collective.vector * self.count * self.element.size

    def ready(self, simple: Callable[[], Program], **options: Any) -> Devices:
        """The program ready to run: as it is made for counters, or with flags beside the data.

        Raises UsageError if its protocol can't be had.
        """

        def open_(program: Program, protocol: str) -> Devices:
            return Devices(
                program, count=self.count, dtype=self.element.name, op=self.operator.name, protocol=protocol, **options
            )

        flagged = "ll" if self.protocol == "auto" and self.size <= SMALL else self.protocol
        if flagged in ("ll", "ll128"):
            program = lower_pushed(self.schedule, in_place=self.in_place)
            if self.protocol != "auto" or fits(program, self.count, self.operator, self.element):
                return open_(program, flagged)
        return open_(simple(), "simple")


class Group:
    """The ranks of one process: what they ask for, and the programs that were made ready."""

    def __init__(self, driver: Driver, devices: Sequence[int], timeout: float) -> None:
        self.driver, self.devices, self.timeout = driver, list(devices), timeout
        self.calls: list[Any] = [None] * len(devices)
        self.error: AlgoccError | None = None
        self.done = threading.Barrier(len(devices))
        self.left = 0
        self.prepared: OrderedDict[Any, Devices] = OrderedDict()

    def run(self) -> None:
        """Run what all ranks ask for, which is the same."""
        call: Call = self.calls[0]

        def make() -> Devices:
            return call.ready(
                lambda: program_of(call.schedule, call.key, call.in_place, False, None),
                devices=self.devices, timeout=self.timeout, driver=self.driver,
            )  # fmt: skip

        ready = kept(self.prepared, call.signature, make)
        streams: dict[int, Any] = {}
        for rank, (device, each) in enumerate(zip(self.devices, self.calls, strict=True)):
            if streams.setdefault(device, each.stream) != each.stream:
                raise UsageError(f"{call.name}: rank {rank} gives another stream than the ranks beside it on device {device}")
        given = [streams[device] for device in sorted(streams)]
        if any(s is None for s in given) and any(s is not None for s in given):
            raise UsageError(f"{call.name}: some ranks give a stream and others do not")
        ready([c.x for c in self.calls], [c.out for c in self.calls], stream=None if given[0] is None else given)

    def close(self) -> None:
        """Of the last rank that leaves."""
        for ready in self.prepared.values():
            ready.close()
        self.prepared.clear()


class CudaCommunicator(Communicator):
    """One rank's end of a group on GPUs; made by the makers of `Communicator` with `backend="cuda"`.

    Arrays are those of `empty`, or anything on this rank's device with `__cuda_array_interface__` or DLPack; a result that
    no `out` is given for is a new flat array. With a stream (a number, or an object with a `handle`) a call returns when
    its work is on it, and `wait` says how it went; without one it waits.

    device: of this rank.
    protocol: "simple", or "ll" or "ll128", as for `Devices`, of every call; "auto", "ll" for small ones of schedules that it
        is there for. The ranks must have the same.
    """

    def __init__(
        self, control: Communicator, driver: Driver, device: int, timeout: float, *, group: Group | None = None,
        pool: Pool | None = None, protocol: str = "simple",
    ) -> None:  # fmt: skip
        self.protocol = protocol
        self.rank, self.size, self.kind = control.rank, control.size, "cuda"
        self.timeout, self.checked = timeout, control.checked
        self._control, self.driver, self.device = control, driver, device
        self._group, self._pool = group, pool
        self._outside, self._table = control._outside, tuned()
        self._calls = 0
        self._refusal: str | None = None
        self._lock = threading.Lock()
        self._own: OrderedDict[Any, Devices | Between] = OrderedDict()
        self._end = weakref.finalize(self, control.close)
        self._last = ""

    @property
    def control(self) -> Communicator:
        return self._control

    @property
    def last_schedule(self) -> str:
        return self._last

    # Collectives

    def all_reduce(self, x: Any, op: str = "sum", schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("all_reduce", x, out, op, schedule, stream=stream)

    def reduce_scatter(self, x: Any, op: str = "sum", schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("reduce_scatter", x, out, op, schedule, stream=stream)

    def all_gather(self, x: Any, schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("all_gather", x, out, "sum", schedule, stream=stream)

    def broadcast(self, x: Any, root: int = 0, schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("broadcast", x, out, "sum", schedule, root, stream=stream)

    def reduce(
        self, x: Any, op: str = "sum", root: int = 0, schedule: Any = "auto", out: Any = None, stream: Any = None
    ) -> Any:
        return self._call("reduce", x, out, op, schedule, root, stream=stream)

    def scatter(self, x: Any = None, root: int = 0, schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("scatter", x, out, "sum", schedule, root, stream=stream)

    def gather(self, x: Any, root: int = 0, schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("gather", x, out, "sum", schedule, root, stream=stream)

    def all_to_all(self, x: Any, schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        return self._call("all_to_all", x, out, "sum", schedule, stream=stream)

    def all_to_all_v(self, x: Any, counts: Any, schedule: Any = "auto", out: Any = None, stream: Any = None) -> Any:
        """As `all_to_all`, with parts of any size; `counts` is the whole matrix, which the host knows."""
        matrix = np.asarray(counts, np.int64).tolist()
        all_to_all_v(self.size, counts=matrix)  # raises for what is no such matrix
        made = build("colored_all_to_all_v" if schedule == "auto" else schedule, self.size, counts=matrix)
        return self._call("all_to_all_v", x, out, "sum", made, unit=1, stream=stream)

    def scan(
        self, x: Any, op: str = "sum", schedule: Any = "auto", out: Any = None, exclusive: bool = False, stream: Any = None
    ) -> Any:
        return self._call("exscan" if exclusive else "scan", x, out, op, schedule, stream=stream)

    def run(self, schedule: Any, x: Any = None, op: str = "sum", out: Any = None, stream: Any = None) -> Any:
        s = self._schedule(schedule)[0]
        return self._call(s.collective.name, x, out, op, s, stream=stream)

    def barrier(self) -> None:
        """Return when all ranks have called it, and what they have enqueued is done."""
        self.wait()
        self.control.barrier()

    def wait(self) -> None:
        """Return when all calls are done.

        Raises RunError, naming the rank to look at, if one failed.
        """
        self._check_open()
        try:
            for ready in (self._group.prepared if self._group else self._own).values():
                ready.wait()
        except RunError as error:
            self._fail(error)
            raise

    def empty(self, shape: Any, dtype: Any = "float32") -> Any:
        """A new array on the device of this rank, zeroed and flat."""
        self._check_open()
        return Array(self.driver, self.device, int(np.prod(shape, dtype=np.int64)), dtype)

    # Ending one

    def abort(self, reason: str) -> None:
        self._refusal = self._refusal or f"it was aborted: {reason}"
        self.control.abort(reason)

    def close(self) -> None:
        with self._lock:
            if not self._end.alive:
                return
            failed = self._refusal is not None
            if self._group is not None:
                self._group.left += 1
                if self._group.left == self.size:
                    self._group.close()
            for ready in self._own.values():
                ready.close()
            if self._pool is not None:
                self._pool.close(failed=failed)
                if self._pool.control is not self.control:
                    self._pool.control.close()
            self._refusal = self._refusal or "it is closed; make a new one"
            self._end()

    # A call

    def _call(
        self, name: str, x: Any, out: Any, op: str, schedule: Any, root: int = 0, unit: int | None = None, *,
        stream: Any = None,
    ) -> Any:  # fmt: skip
        with self._lock:
            self._check_open()
            call = self._ask(name, x, out, op, schedule, root, unit, stream)
            if self._group is not None:
                self._group.calls[self.rank] = call
            self._calls += 1
            self._agree(call)
            self._last = call.schedule.name
            try:
                if self._group is None:
                    self._launch(call)
                else:
                    self._together(self._group)
            except RunError as error:
                self._fail(error)
                raise
            return call.out

    def _ask(
        self, name: str, x: Any, out: Any, op: str, schedule: Any, root: int, unit: int | None, stream: Any
    ) -> Call:  # fmt: skip
        """The call that is meant.

        Raises UsageError, naming this rank, for arguments that can't be.
        """
        n, rank = self.size, self.rank
        if name in ROOTED and not (isinstance(root, int | np.integer) and 0 <= root < n):
            raise UsageError(f"{name}: root={root}: with {n} ranks it is one of 0..{n - 1}")
        target = x if name == "broadcast" and out is None else out
        has_input = x is not None and not (name in ("broadcast", "scatter") and rank != root)
        a = self._see(x, f"{name}: x of rank {rank}", stream) if has_input else None
        b = self._see(target, f"{name}: out of rank {rank}", stream) if target is not None else None
        model = a or b
        if model is None:
            raise UsageError(f"{name}: rank {rank} gives neither x nor out, so that the size can't be known")
        e, o = element(model.dtype), operator(op)
        count = self._count(name, SimpleNamespace(size=model.elements), a is None, schedule, unit)  # type: ignore[arg-type]
        s, key = self._resolve(name, schedule, count * e.size, int(root))
        c = s.collective
        check_reduction(c, o, e)
        ins, outs = (sizes[rank] for sizes in buffer_elements(c, count))
        if a is None and ins:
            raise UsageError(f"{name}: rank {rank} has to give x, of {ins} elements")
        if target is None and c.outputs[rank]:
            target = self.empty(outs, e.name)
        in_place = out is None if name == "broadcast" else self._shares(name, s, count, e, a, b)
        return Call(
            name, s, key, count, e, o, in_place, int(root), self.protocol, x if ins else None, target, stream
        )

    def _see(self, array: Any, what: str, stream: Any) -> Seen:
        number = int(getattr(stream, "handle", stream) or 0)
        seen = see(array, self.driver, element("uint8"), number)
        if seen is None:
            raise UsageError(
                f"{what} is a {type(array).__name__}, wanted an array on a device (__cuda_array_interface__ or DLPack)"
            )
        return seen

    def _shares(self, name: str, s: Schedule, count: int, e: Element, a: Seen | None, b: Seen | None) -> bool:
        """Whether input and output share memory as the collective says; they may not in another way."""
        if a is None or b is None or not overlap(a.address, a.elements * e.size, b.address, b.elements * e.size):
            return False
        c = s.collective
        shift = shifts(c, count)[self.rank] if len(c.alias) and name not in ROOTED else None
        if shift is None or a.address != b.address + shift * e.size:
            wanted = "they may not" if shift is None else f"in place, x starts at element {shift} of out"
            raise UsageError(f"{name}: rank {self.rank}: x and out share memory; {wanted}")
        return True

    def _agree(self, call: Call) -> None:
        """Raise UsageError on every rank if the ranks do not ask for the same."""
        signature = call.signature
        if not self.checked and self._group is None:
            return
        numbers = np.array(self.control.all_gather(np.array([signature.number], np.int64)))
        if (numbers != signature.number).any():
            found = exchange(self.control, signature.facts)
            raise UsageError(disagreement(list(enumerate(found)), self._calls))

    def _together(self, group: Group) -> None:
        """The first of the ranks of a process launches for all."""
        if self.rank == 0:
            group.error = None
            try:
                group.run()
            except AlgoccError as error:
                group.error = error
        group.done.wait()
        if group.error is not None:
            raise type(group.error)(str(group.error))

    def _launch(self, call: Call) -> None:
        pool = self._pool
        assert pool is not None, "processes share one"

        def make() -> Devices | Between:
            if self._outside is not None:
                return Between(
                    call.schedule, self.control, pool, count=call.count, dtype=call.element.name,
                    op=call.operator.name, in_place=call.in_place, timeout=self.timeout,
                )  # fmt: skip
            return call.ready(
                lambda: lower_apart(call.schedule, in_place=call.in_place), timeout=self.timeout, peers=pool
            )

        kept(self._own, call.signature, make)([call.x], [call.out], stream=call.stream)

    def _fail(self, error: RunError) -> None:
        self._refusal = self._refusal or f"an earlier call failed, make a new one; that was: {error}"
        self.control.abort(str(error))


def kept(store: OrderedDict[Any, Any], key: Any, make: Any) -> Any:
    """The program of a call, made ready if it is not; the one that was not used for longest goes."""
    if key not in store:
        store[key] = make()
    store.move_to_end(key)
    if len(store) > MOST_PREPARED:
        store.popitem(last=False)[1].close()
    return store[key]


def of_threads(
    n: int, devices: int | Sequence[int] | None, *, timeout: float, checked: bool, driver: Driver | None = None,
    protocol: str = "simple",
) -> list[Communicator]:
    """The communicators of n ranks of this process, for `Communicator.threads`."""
    check_size(n, timeout)
    check_choice(protocol)
    driver = driver or cuda()
    where = placed(spread(n, driver.count()) if devices is None else devices, n, driver.count())
    group = Group(driver, where, timeout)
    controls = Communicator.threads(n, timeout=timeout, checked=checked)
    return [CudaCommunicator(c, driver, where[c.rank], timeout, group=group, protocol=protocol) for c in controls]


def of_processes(
    control: Communicator, device: int | None, *, pool_bytes: int | None = None, driver: Driver | None = None, protocol: str = "simple"
) -> Communicator:  # fmt: skip
    """The communicator of one of the processes of a node, for `Communicator.join` and `mpi`."""
    check_choice(protocol)
    if protocol in ("ll", "ll128") and control._outside is not None:
        raise UsageError(f"protocol={protocol!r}: between nodes the host sends messages; use 'simple' or 'auto'")
    driver = driver or cuda()
    outside, local, ranks = control._outside, control, None
    if outside is not None:  # those of a node reach each other's memory
        mine = outside.node_of[control.rank]
        ranks = [rank for rank, node in enumerate(outside.node_of) if node == mine]
        local = Communicator.mpi(outside._comm.Split(mine, control.rank), node=0, timeout=control.timeout)
    number = local.rank % driver.count() if device is None else device
    pool = Pool(local, driver, number, pool_bytes or POOL_BYTES, ranks=ranks)
    return CudaCommunicator(control, driver, number, control.timeout, pool=pool, protocol=protocol)


def check_choice(protocol: str) -> None:
    """Raise UsageError for a protocol that there is not."""
    if protocol not in CHOICES:
        raise UsageError(f"protocol={protocol!r}: wanted one of {', '.join(map(repr, CHOICES))}")


def spread(n: int, there: int) -> int | list[int]:
    """A device for each rank if there are as many, else device 0 for all, which emulates them."""
    return list(range(n)) if n <= there else 0
