"""Collectives among ranks that each call for themselves: threads, processes of one node, or MPI."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from algocc.catalog import build
from algocc.collective import all_reduce, all_to_all_v
from algocc.decorator import Algorithm
from algocc.errors import RunError, UsageError
from algocc.kernels import compiled
from algocc.kernels import layout as at
from algocc.kernels.operators import Element, Operator, element, operator
from algocc.runtime.arrays import check_output, overlap, view, where
from algocc.runtime.choice import choose, parse, tuned
from algocc.runtime.geometry import buffer_elements, check_count, shifts
from algocc.runtime.join import meet
from algocc.runtime.made import built, digest_of, program_of
from algocc.runtime.node import CLOSED, FAILED, GAVE_UP, OPEN, Node, thread_nodes
from algocc.runtime.rank import Ready, Signature, State, disagreement, staging_of
from algocc.runtime.recall import Known, Memo, Prepared, shape_key
from algocc.runtime.report import describe
from algocc.runtime.threads import check_reduction
from algocc.steps import Steps
from algocc.table import Schedule

Array = NDArray[Any]

APART_UP_TO = 16 << 10
"""Bytes of the larger buffer up to which a call goes through scratch even if peers could reach the arrays: the copy costs
less than to wait for the last rank."""

MOST_PREPARED = 64
"""Calls that stay prepared, the last to be: every rank lets go of the same ones, since all prepare them in the same order.
It would not do to keep the latest used, as how a rank finds a call again depends on its arrays."""

MOST_SCRATCH = 256 << 20
"""Bytes of scratch that a rank keeps for them, about."""

MOST_MEMOS = 256
"""Arrays whose call is found again at once, and shapes that need no second look."""

BARRIER = ("barrier", 0, 0)

GRACE = 0.25
"""Seconds in which those who gave up say where they were."""


class Communicator:
    """One rank's end of a group that runs collectives together, in the same order on every rank.

    Made by `Communicator.threads`, `Communicator.join` or `Communicator.mpi`, or by `algocc.runtime.spawn`. Close it, or
    leave a `with`; an exception that leaves the `with` makes the others fail at once, naming this rank.

    rank, size: this rank, and the number of ranks.

    Arrays are anything with the buffer protocol or DLPack, of any shape; what is not contiguous is copied, and results are
    copied back. Peers read and write arrays of `empty` directly; on threads, any array. All calls return when the arrays
    may be used again. Two threads that call one communicator take turns; if ranks do so in different orders, that is a
    disagreement.

    checked: compare on every call what the ranks ask for, before anything moves; unchecked, what ranks that disagree
        get is undefined.
    timeout: seconds that a rank waits for another before the communicator fails.

    >>> import threading
    >>> def work(comm):
    ...     x = np.full(3, comm.rank + 1.0)
    ...     comm.all_reduce(x, out=x)
    ...     results[comm.rank] = x
    >>> results = {}
    >>> comms = Communicator.threads(2)
    >>> workers = [threading.Thread(target=work, args=(comm,)) for comm in comms]
    >>> for worker in workers: worker.start()
    >>> for worker in workers: worker.join()
    >>> results[1]
    array([3., 3., 3.])
    >>> for comm in comms: comm.close()
    """

    def __init__(
        self, node: Node, rank: int, size: int, *, timeout: float, checked: bool, kind: str, table: Any = None,
        outside: Any = None,
    ) -> None:  # fmt: skip
        self.rank, self.size, self.kind = rank, size, kind
        self.timeout, self.checked = timeout, checked
        self._node = node
        self._state = State(node, timeout)
        self._table = tuned() if table is None else table
        self._outside = outside
        self._prepared: dict[Any, Prepared] = {}
        self._latest: Prepared | None = None
        self._retired: list[Prepared] = []
        self._weight = 0
        self._memos: dict[tuple[str, int, int], Memo] = {}
        self._known: dict[Any, Known] = {}
        self._refusal: str | None = None
        self._lock = threading.Lock()
        self._enter = compiled.rank_call()
        self._end: weakref.finalize[..., Any] = weakref.finalize(self, _end, node, os.getpid())
        _all.add(self)

    # Making one

    @classmethod
    def threads(
        cls, n: int, *, timeout: float = 30.0, checked: bool = True, backend: str = "cpu",
        devices: int | Sequence[int] | None = None, protocol: str | None = None,
    ) -> list[Communicator]:  # fmt: skip
        """The communicators of n ranks in this process, one for each of n threads.

        backend: "cuda" for arrays on GPUs, see `algocc.runtime.cuda.CudaCommunicator`.
        devices: of the ranks then; if not given, one for each, or if there are fewer, device 0 for all.
        protocol: how ranks on GPUs tell each other of data, as for `CudaCommunicator`; "simple" if not given.
        """
        if check_backend(backend, protocol):
            from algocc.runtime.cuda.communicator import of_threads

            return of_threads(n, devices, timeout=timeout, checked=checked, protocol=protocol or "simple")
        check_size(n, timeout)
        nodes = thread_nodes(n, os.getpid())
        return [cls(nodes[r], r, n, timeout=timeout, checked=checked, kind="threads") for r in range(n)]

    @classmethod
    def join(
        cls, name: str, rank: int, n: int, *, timeout: float = 30.0, checked: bool = True, backend: str = "cpu",
        device: int | None = None, protocol: str | None = None,
    ) -> Communicator:  # fmt: skip
        """The communicator of the n processes of this machine that join under one name, each as another rank.

        backend: "cuda" for arrays on GPUs, and then `device` is this rank's, by default `rank` modulo their number.
        protocol: as for `threads`.

        Raises RunError, naming the ranks, if some do not come within the timeout; UsageError if the name is taken.
        """
        check_size(n, timeout)
        on_devices = check_backend(backend, protocol)
        node, table = meet(name, rank, range(n), timeout=timeout, note=tuned() if rank == 0 else None)
        comm = cls(node, rank, n, timeout=timeout, checked=checked, kind="processes", table=table)
        return on_device(comm, device, protocol) if on_devices else comm

    @classmethod
    def mpi(
        cls, comm: Any = None, *, node: int | None = None, timeout: float = 30.0, checked: bool = True,
        backend: str = "cpu", device: int | None = None, protocol: str | None = None,
    ) -> Communicator:  # fmt: skip
        """The communicator of the ranks of an mpi4py communicator: shared memory within a node, messages between.

        comm: MPI.COMM_WORLD if not given.
        node: the number of this rank's node, to pretend; ranks on one machine are a node if not given.
        backend, device, protocol: as for `join`.

        Raises UsageError if there is no mpi4py.
        """
        from algocc.runtime.messages import connect

        check_size(1, timeout)
        on_devices = check_backend(backend, protocol)
        here, outside, table = connect(comm, node, timeout)
        made = cls(
            here, outside.rank, outside.size, timeout=timeout, checked=checked, kind="mpi", table=table,
            outside=outside if outside.nodes > 1 else None,
        )  # fmt: skip
        return on_device(made, device, protocol) if on_devices else made

    # Collectives

    def all_reduce(self, x: Any, op: str = "sum", schedule: Any = "auto", out: Any = None) -> Any:
        """The reduction of all ranks' `x`, in `out` or a new array; in place if `out` is `x`."""
        memo = self._memos.get(("all_reduce", id(x), id(out)))
        if memo is not None and memo.fits(x, op, schedule, out):
            return self._again(memo)
        return self._do("all_reduce", x, out, op, schedule)

    def reduce_scatter(self, x: Any, op: str = "sum", schedule: Any = "auto", out: Any = None) -> Any:
        """Part `rank` of the reduction of all ranks' `x`, which is cut into `size` equal parts."""
        memo = self._memos.get(("reduce_scatter", id(x), id(out)))
        if memo is not None and memo.fits(x, op, schedule, out):
            return self._again(memo)
        return self._do("reduce_scatter", x, out, op, schedule)

    def all_gather(self, x: Any, schedule: Any = "auto", out: Any = None) -> Any:
        """All ranks' `x` one after the other, in rank order."""
        memo = self._memos.get(("all_gather", id(x), id(out)))
        if memo is not None and memo.fits(x, "sum", schedule, out):
            return self._again(memo)
        return self._do("all_gather", x, out, "sum", schedule)

    def broadcast(self, x: Any, root: int = 0, schedule: Any = "auto", out: Any = None) -> Any:
        """The root's `x` on every rank: in `x` itself, or in `out` if that is given; then `x` matters on the root only."""
        memo = self._memos.get(("broadcast", id(x), id(out)))
        if memo is not None and memo.fits(x, "sum", schedule, out, root):
            return self._again(memo)
        return self._do("broadcast", x, out, "sum", schedule, root)

    def reduce(
        self, x: Any, op: str = "sum", root: int = 0, schedule: Any = "auto", out: Any = None
    ) -> Any:
        """The reduction of all ranks' `x` on the root, None elsewhere."""
        return self._do("reduce", x, out, op, schedule, root)

    def scatter(self, x: Any = None, root: int = 0, schedule: Any = "auto", out: Any = None) -> Any:
        """Part `rank` of the root's `x`, which is cut into `size` equal parts. Ranks but the root must give `out`."""
        return self._do("scatter", x, out, "sum", schedule, root)

    def gather(self, x: Any, root: int = 0, schedule: Any = "auto", out: Any = None) -> Any:
        """All ranks' `x` one after the other on the root, None elsewhere."""
        return self._do("gather", x, out, "sum", schedule, root)

    def all_to_all(self, x: Any, schedule: Any = "auto", out: Any = None) -> Any:
        """Part `rank` of every rank's `x`, in rank order; `x` is cut into `size` equal parts."""
        memo = self._memos.get(("all_to_all", id(x), id(out)))
        if memo is not None and memo.fits(x, "sum", schedule, out):
            return self._again(memo)
        return self._do("all_to_all", x, out, "sum", schedule)

    def all_to_all_v(self, x: Any, counts: Any, schedule: Any = "auto", out: Any = None) -> Any:
        """As `all_to_all`, with parts of any size: rank i has `counts[i][j]` elements for rank j.

        counts: the whole matrix, or this rank's row of it, which costs an exchange of the rows.
        """
        counts = np.asarray(counts, np.int64)
        if counts.ndim == 1:
            counts = self.all_gather(np.ascontiguousarray(counts)).reshape(self.size, -1)
        if counts.shape != (self.size, self.size) or (counts < 0).any():
            raise UsageError(
                f"all_to_all_v: counts of shape {counts.shape}, wanted {self.size} rows of {self.size} numbers of 0 or more"
            )
        c = all_to_all_v(self.size, counts=counts.tolist())
        if schedule == "auto":
            s = Steps(c, name="direct_all_to_all_v")
            i, j = np.nonzero(counts * (1 - np.eye(self.size, dtype=np.int64)))
            if len(i):
                with s.step():
                    s.copy(src=i, dst=j, chunk=j, to=i)
            schedule = s.build()
        else:
            schedule = build(schedule, self.size, counts=counts.tolist())
        return self._do("all_to_all_v", x, out, "sum", schedule, unit=1)

    def scan(
        self, x: Any, op: str = "sum", schedule: Any = "auto", out: Any = None, exclusive: bool = False
    ) -> Any:
        """The reduction of the `x` of ranks 0 to this one; exclusive, to the one before, and None on rank 0."""
        return self._do("exscan" if exclusive else "scan", x, out, op, schedule)

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        memo = self._memos.get(BARRIER)
        if memo is not None:
            self._again(memo)
            return
        with self._lock:
            self._check_open()
            s, key = self._schedule(Steps(all_reduce(self.size), name="gate"))
            ready = self._prepare("barrier", s, 0, element("uint8"), operator("sum"), False, 0, key)
            self._enter_call(ready)
            self._memos[BARRIER] = Memo(None, None, "sum", "auto", 0, ready, self._side(ready, True), None, 0)

    def run(self, schedule: Any, x: Any = None, op: str = "sum", out: Any = None) -> Any:
        """Run a schedule of any collective: a name, an algorithm, or a Schedule for `size` ranks."""
        s = self._schedule(schedule)[0]
        return self._do(s.collective.name, x, out, op, s)

    def empty(self, shape: Any, dtype: Any = "float32") -> Array:
        """A new array that peers read and write without a copy; what it holds is anyone's guess."""
        self._check_open()
        kind = element(dtype)
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        size = int(np.prod(shape, dtype=np.int64))
        if size < 0 or any(k < 0 for k in shape):
            raise UsageError(f"empty: shape {shape}: wanted 0 or more in each dimension")
        memory = self._node.allocate(size * kind.size, f"array of shape {shape} and dtype {kind.name}")
        return memory[: size * kind.size].view(kind.numpy).reshape(shape)

    @property
    def control(self) -> Communicator:
        """The communicator of these ranks for arrays of the host: this one, but for one on GPUs."""
        return self

    @property
    def last_schedule(self) -> str:
        """Name of the schedule of the last call on new arrays."""
        return self._latest.schedule.name if self._latest is not None else ""

    # Ending one

    def abort(self, reason: str) -> None:
        """Make every other rank fail at once, naming this rank and the reason, and this communicator unusable."""
        if self._end.alive:
            self._node.leave(FAILED, reason)
            self._refusal = self._refusal or f"it was aborted: {reason}"
            if self._outside is not None:
                self._outside.abort(reason)

    def close(self) -> None:
        """Let go of everything, after the call under way; a second time does nothing. Arrays of `empty` live on."""
        with self._lock:
            if not self._end.alive:
                return
            for prepared in (*self._prepared.values(), *self._retired):
                self._node.keep(prepared)
            self._prepared.clear()
            self._retired.clear()
            self._memos.clear()
            self._known.clear()
            self._refusal = self._refusal or "it is closed; make a new one"
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._refusal is None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()

    def __repr__(self) -> str:
        state = "closed" if not self._end.alive else "failed" if self._refusal else "open"
        return f"<Communicator rank {self.rank} of {self.size}: {self.kind}, {state}>"

    # A call

    def _check_open(self) -> None:
        if self._refusal is not None:
            fault = UsageError if self._refusal.startswith("it ") else RunError
            raise fault(f"{self!r}: {self._refusal}")

    def _again(self, memo: Memo) -> Any:
        """The very call before, once more."""
        with self._lock:
            if self._refusal is not None:
                self._check_open()
            result = memo.result()
            side = memo.side
            if memo.fresh is not None:
                result = np.empty(*memo.fresh)
                side.point(memo.first, where(result))
            elif side.pointed is not memo:
                side.point(memo.first, memo.last, memo)
            if self._outside is not None:
                self._outside.call(self, memo.ready, memo.side)
                return result
            status = self._enter(side.start)
            if status != at.FINE:
                self._trouble(memo.ready, side, status)
            if self._retired:
                self._retired.clear()
            return result

    def _do(
        self, name: str, x: Any, out: Any, op: str, schedule: Any, root: int = 0, unit: int | None = None
    ) -> Any:
        """Look at the arrays, prepare the call or find it prepared, run it."""
        with self._lock:
            self._check_open()
            known = self._known.get(shape_key(name, x, out, op, schedule, root))
            if known is not None:
                found = self._like_before(known, name, x, out, op, schedule, root)
                if found is not None:
                    return found[0]
            return self._locked(name, x, out, op, schedule, root, unit)

    def _like_before(
        self, known: Known, name: str, x: Array, out: Array | None, op: str, schedule: Any, root: int
    ) -> tuple[Any] | None:  # fmt: skip
        """Run a call on new arrays of a shape that has been looked at; None if they lie otherwise."""
        if not x.flags.c_contiguous:
            return None
        first = last = where(x)
        result, fresh = out, None
        if out is None and name == "broadcast":
            if not x.flags.writeable:
                return None
            result = x
        elif out is None:
            fresh = known.fresh
            result = np.empty(*fresh)
            last = where(result)
        elif out is not x:
            last = where(out)
            apart = first + known.ins <= last or last + known.outs <= first
            if not out.flags.c_contiguous or not out.flags.writeable or known.in_place == apart:
                return None
            if known.in_place and first != last + known.shift:
                return None
        elif not known.in_place or known.shift or not x.flags.writeable:
            return None
        self._go(known.ready, first, known.ins, last, known.outs, name, x, out, op, schedule, root, fresh)
        return (result,)

    def _go(
        self, ready: Prepared, first: int, ins: int, last: int, outs: int, name: str, x: Any, out: Any, op: str,
        schedule: Any, root: int, fresh: Any, *, remember: bool = True,
    ) -> None:  # fmt: skip
        """Point the right program at the arrays and run it; remember the call if its arrays may come again."""
        self._latest = ready
        apart = self._apart(ready, first, ins, last, outs)
        side = ready.sides.get(apart) or self._side(ready, apart)
        side.point(first, last)
        if self._outside is None and not self._retired:
            status = self._enter(side.start)
            if status != at.FINE:
                self._trouble(ready, side, status)
        else:
            self._enter_call(ready, side)
        if remember and (fresh is None or side.apart):
            if len(self._memos) >= MOST_MEMOS:
                self._memos.clear()
            memo = Memo(x, out, op, schedule, root, ready, side, fresh, first, last, broadcast=name == "broadcast")
            self._memos[name, id(x), id(out)] = memo

    def _locked(
        self, name: str, x: Any, out: Any, op: str, schedule: Any, root: int, unit: int | None
    ) -> Any:  # fmt: skip
        n, rank = self.size, self.rank
        given, target = x, out
        if name == "broadcast" and out is None:
            target = x
        has_input = x is not None and not (name in ("broadcast", "scatter") and rank != root)
        a = view(x, f"{name}: x of rank {rank}") if has_input else None
        b = view(target, f"{name}: out of rank {rank}") if target is not None else None
        model = a if a is not None else b
        if model is None:
            raise UsageError(f"{name}: rank {rank} gives neither x nor out, so that the size can't be known")
        if name in ROOTED and not (isinstance(root, int | np.integer) and 0 <= root < n):
            raise UsageError(f"{name}: root={root}: with {n} ranks it is one of 0..{n - 1}")
        e, o = element(model.dtype), operator(op)
        count = self._count(name, model, a is None, schedule, unit)
        s, key = self._resolve(name, schedule, count * e.size, int(root))
        c = s.collective
        if c.reduces:
            check_reduction(c, o, e)
        ins, outs = (sizes[rank] for sizes in buffer_elements(c, count))
        if a is not None and a.size != ins:
            raise UsageError(f"{name}: x of rank {rank} has {a.size} elements, wanted {ins}")
        if a is None and ins:
            raise UsageError(f"{name}: rank {rank} has to give x, of {ins} elements")

        result: Any = None
        fresh = None
        if c.outputs[rank] or b is not None:
            if b is None:
                fresh = (self._shape(name, model, outs), e.numpy)
                b = np.empty(*fresh)
                result = b
            else:
                check_output(b, f"{name}: out of rank {rank}", e.numpy, outs)
                result = target
        source, back = a, b
        if a is not None and not a.flags.c_contiguous:
            source = np.ascontiguousarray(a)
        if b is not None and not b.flags.c_contiguous:
            back = source if b is a or target is x else np.empty(b.shape, b.dtype)
        in_place = out is None if name == "broadcast" else self._in_place(name, c, count, e, source, back)
        if name in ROOTED and source is not None and back is not None and not in_place:
            if overlap(where(source), source.nbytes, where(back), back.nbytes):
                source = source.copy()

        ready = self._prepare(name, s, count, e, o, in_place, int(root), key)
        first = where(source) if source is not None and source.size else 0
        last = where(back) if back is not None and back.size else 0
        if source is None and in_place:
            first = last
        plain = (source is a or a is None) and back is b and isinstance(given, np.ndarray)
        self._go(
            ready, first, ins * e.size, last, outs * e.size, name, given, out, op, schedule, int(root), fresh, remember=plain
        )
        if back is not None and b is not None and back is not b:
            b[...] = back.reshape(b.shape)
        if plain and unit is None and (name == "broadcast" and out is None or c.inputs[rank] and c.outputs[rank]):
            shift = (shifts(c, count)[rank] or 0) * e.size if in_place and name != "broadcast" else 0
            if len(self._known) >= MOST_MEMOS:
                self._known.clear()
            self._known[shape_key(name, x, out, op, schedule, root)] = Known(
                ready, schedule, in_place, shift, ins * e.size, outs * e.size, fresh
            )
        return result

    def _count(self, name: str, model: Array, from_output: bool, schedule: Any, unit: int | None) -> int:
        """Elements of a unit block, from the one array there is."""
        if unit is not None:
            return unit
        per = self.size if name in ("reduce_scatter", "all_to_all") or (name == "scatter" and not from_output) else 1
        if isinstance(schedule, Schedule):
            c = schedule.collective
            units = buffer_elements(c, 1)[1 if from_output else 0][self.rank]
            per = max(units, 1)
        if model.size % per:
            raise UsageError(
                f"{name}: {'out' if from_output else 'x'} of rank {self.rank} has {model.size} elements, "
                f"not a multiple of its {per} parts: {model.size % per} left over"
            )
        return model.size // per

    def _shape(self, name: str, model: Array, elements: int) -> tuple[int, ...]:
        """The shape of a new output."""
        shape, n = model.shape, self.size
        if model.size == elements and name not in ("all_gather", "gather"):
            return shape
        if name in ("all_gather", "gather"):
            return (n, *shape)
        if shape and shape[0] == n:
            return shape[1:]
        if shape and shape[0] % n == 0 and model.size == n * elements:
            return (shape[0] // n, *shape[1:])
        return (elements,)

    def _in_place(
        self, name: str, c: Any, count: int, e: Element, source: Array | None, back: Array | None
    ) -> bool:
        """Whether input and output share memory as the collective says; they may not in another way."""
        if source is None or back is None or name in ROOTED:
            return False
        a, b = where(source), where(back)
        if not overlap(a, source.nbytes, b, back.nbytes):
            return False
        shift = shifts(c, count)[self.rank] if len(c.alias) else None
        if shift is None or a != b + shift * e.size:
            wanted = "they may not" if shift is None else f"in place, x starts at element {shift} of out"
            raise UsageError(f"{name}: rank {self.rank}: x and out share memory; {wanted}")
        return True

    def _apart(self, ready: Prepared, first: int, ins: int, last: int, outs: int) -> bool:
        """Whether the call has to go through scratch."""
        if self._outside is not None or ready.size <= APART_UP_TO:
            return True
        node = self._node
        return not ((not ins or node.holds(first, ins)) and (not outs or node.holds(last, outs)))

    def _schedule(self, schedule: Any, **params: Any) -> tuple[Schedule, str]:
        """The Schedule that is meant, for as many ranks, and its digest."""
        if isinstance(schedule, Steps):
            schedule = schedule.build()
        if isinstance(schedule, Schedule):
            if schedule.n != self.size:
                raise UsageError(f"schedule {schedule.name} is for {schedule.n} ranks, this communicator has {self.size}")
            return schedule, digest_of(schedule)
        if not isinstance(schedule, str | Algorithm):
            raise UsageError(f"schedule={schedule!r}: wanted a name, an algorithm or a Schedule")
        return built(schedule, self.size, tuple(sorted(params.items())))

    def _resolve(self, name: str, schedule: Any, size: int, root: int) -> tuple[Schedule, str]:
        """The schedule of a call and its digest; it must do what the call asks for."""
        params: dict[str, Any] = {}
        if isinstance(schedule, str) and schedule == "auto":
            group = self._outside.group if self._outside is not None else 0
            per = self.size if name in ("all_gather", "gather", "reduce_scatter", "scatter", "all_to_all") else 1
            choice = choose(name, size * per, self.size, self._table, group)
            schedule, params = parse(choice, self.size, group)
        if name in ROOTED and not isinstance(schedule, Schedule):
            params["root"] = root
        s, key = self._schedule(schedule, **params)
        c = s.collective
        if c.name != name or (name in ROOTED and c.params.get("root", 0) != root):
            found = f"{c.name} root={c.params['root']}" if name in ROOTED and "root" in c.params else c.name
            raise UsageError(f"{name}: schedule {s.name} does {found}")
        return s, key

    def _prepare(
        self, name: str, s: Schedule, count: int, e: Element, o: Operator, in_place: bool, root: int, key: str,
    ) -> Prepared:  # fmt: skip
        op = o.name if s.collective.reduces else "none"
        wanted = (name, key, count, e.name, op, in_place, root)
        ready = self._prepared.get(wanted)
        if ready is not None:
            return ready
        check_count(s.collective, count)
        facts = (
            ("collective", name), ("count", str(count)), ("dtype", e.name), ("op", op), ("root", str(root)),
            ("in place", "yes" if in_place else "no"), ("schedule", s.name), ("program", key),
        )  # fmt: skip
        size = s.collective.vector * count * e.size
        staging, _ = staging_of(self._node.members, messages=self._outside is not None)
        weight = min(2 * size, staging // self.size)
        ready = Prepared(name, s, key, count, e, o, in_place, size, weight, Signature(facts), {})
        self._prepared[wanted] = ready
        self._weight += weight
        while len(self._prepared) > MOST_PREPARED or (self._weight > MOST_SCRATCH and len(self._prepared) > 1):
            self._retire(next(iter(self._prepared)))
        return ready

    def _retire(self, key: Any) -> None:
        """Let go of a prepared call. Its memory lives until the next call is over: then no rank can be in it any more.

        All ranks do this in the same call, since what they prepare is what they agree on; see `_disagree`.
        """
        ready = self._prepared.pop(key)
        self._weight -= ready.weight
        self._retired.append(ready)
        self._memos.clear()
        self._known.clear()

    def _disagree(self, message: str) -> NoReturn:
        """Raise, as all ranks do in this call, and start anew on all: what each has prepared may differ from now on."""
        for key in list(self._prepared):
            self._retire(key)
        raise UsageError(message)

    def _side(self, ready: Prepared, apart: bool) -> Ready:
        side = ready.sides.get(apart)
        if side is None:
            nodes = tuple(self._outside.node_of) if self._outside is not None else None
            program = program_of(ready.schedule, ready.key, ready.in_place, apart, nodes)
            side = ready.sides[apart] = Ready(
                program, self._state, self.rank, count=ready.count, e=ready.element, op=ready.operator,
                signature=ready.signature, apart=apart, checked=self.checked, outside=nodes or (),
            )  # fmt: skip
            if self._outside is not None:
                self._outside.prepare(side, ready.element)
        return side

    def _enter_call(self, ready: Prepared, side: Ready | None = None) -> None:
        """Run a prepared call; its arrays have been pointed at."""
        side = side or self._side(ready, True)
        if self._outside is not None:
            self._outside.call(self, ready, side)
        else:
            status = self._enter(side.start)
            if status != at.FINE:
                self._trouble(ready, side, status)
        self._retired.clear()

    # What can go wrong

    def _trouble(self, ready: Prepared, side: Ready, status: int) -> None:
        if status == at.OTHER_PROGRAM:  # the arrays of some rank can't be reached: all go through scratch
            other = self._side(ready, True)
            other.point(int(side.bases[self.rank, 0]), int(side.bases[self.rank, 1]))
            again = self._enter(other.start)
            if again != at.FINE:
                self._trouble(ready, other, again)
            return
        call = self._state.call
        if status == at.DISAGREES:
            import json

            node = self._node
            found = [(node.ranks[m], json.loads(node.shown(m, call))) for m in range(node.members)]
            self._disagree(disagreement(found, call))
        reason = self._reason(ready, side, status, call)
        self._refusal = f"an earlier call failed, make a new one; that was: {reason}"
        self._node.leave(GAVE_UP, reason)
        raise RunError(reason)

    def _reason(self, ready: Prepared, side: Ready, status: int, call: int) -> str:
        """Who is to blame for a call that did not end."""
        node = self._node
        what = f"call {call} ({ready.name}, {ready.count} {ready.element.name}, schedule {ready.schedule.name})"
        node.abort()
        report = node.reports[node.member]
        report[: at.ADDRESSES] = side.report
        report[at.STATUS] = status
        waiting = status in (at.NOT_ENTERED, at.NOT_LEFT)
        reached = node.records[:, call & 1, 0] if status == at.NOT_ENTERED else node.done
        late = [m for m in range(node.members) if (int(reached[m]) - call) % 2**64 >= 2**63] if waiting else []
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            lost = [m for m in range(node.members) if node.state[m] not in (OPEN, GAVE_UP)]
            if lost or all(node.reports[m, at.STATUS] for m in range(node.members)):
                break
            time.sleep(0.002)
        gone = [m for m in range(node.members) if node.state[m] not in (OPEN, GAVE_UP, CLOSED)]
        gone = gone or [m for m in late if node.state[m] == CLOSED]
        if gone:
            return f"{what}: " + "; ".join(str(node.lost(m)) for m in gone)
        if late:
            stuck = [node.ranks[m] for m in late if not node.reports[m, at.STATUS]] or [node.ranks[m] for m in late]
            verb = "did not come" if status == at.NOT_ENTERED else "did not finish"
            others = [m for m in late if node.state[m] == GAVE_UP]
            why = f"; rank {node.ranks[others[0]]} gave up before: {node.text(others[0])}" if others else ""
            return f"{what}: rank{'s' * (len(stuck) > 1)} {', '.join(map(str, stuck))} {verb} within {self.timeout:g} s{why}"
        reports = np.zeros((side.program.lanes, at.ADDRESSES), np.int64)
        for m in range(node.members):
            if node.reports[m, at.STATUS] in (at.TIMED_OUT, at.GAVE_UP):
                reports[node.ranks[m]] = node.reports[m, : at.ADDRESSES]
        if not (reports[:, at.STATUS] == at.TIMED_OUT).any():
            reports[self.rank, at.STATUS] = at.TIMED_OUT
        return f"{what}: {describe(side.program, reports, self.timeout)}"

    def _set_timeout(self, timeout: float) -> None:
        """Wait so long in calls that are yet to be prepared."""
        self.timeout = self._state.timeout = timeout

    def _resume_at(self, call: int, *, wait: bool = False) -> None:
        """Go on as if so many calls had been made, and so many tiles of each that is yet to be prepared: to test what years
        of running come to. All ranks do so before any goes on; `wait` for the others to come."""
        self._state.first = call
        self._state.words[at.CALL] = (call + 2**63) % 2**64 - 2**63
        self._node.records[self._node.member, :, 0] = [call % 2**64, (call - 1) % 2**64][:: 1 if call % 2 == 0 else -1]
        self._node.done[self._node.member] = call % 2**64
        while wait and (self._node.records[:, call & 1, 0] != call % 2**64).any():
            time.sleep(1e-4)


ROOTED = ("broadcast", "reduce", "scatter", "gather")


def check_size(n: int, timeout: float) -> None:
    """Raise UsageError for a number of ranks or seconds that can't be."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"n={n!r}: wanted 1 rank or more")
    if not 0 < timeout < 1e9:
        raise UsageError(f"timeout={timeout}: wanted a number of seconds above 0")


def check_backend(backend: str, protocol: str | None = None) -> bool:
    """Whether arrays are on GPUs; then there must be a driver.

    Raises UsageError for a backend that there is not, and for a protocol of GPUs without any.
    """
    if backend not in ("cpu", "cuda"):
        raise UsageError(f"backend={backend!r}: wanted 'cpu' or 'cuda'")
    if protocol is not None and backend != "cuda":
        raise UsageError(f"protocol={protocol!r}: it goes with backend='cuda'")
    if backend == "cuda":
        from algocc.runtime.cuda.driver import cuda

        cuda()
    return backend == "cuda"


def on_device(control: Communicator, device: int | None, protocol: str | None) -> Communicator:
    """The same ranks, for arrays on GPUs."""
    from algocc.runtime.cuda.communicator import of_processes

    return of_processes(control, device, protocol=protocol or "simple")


def _end(node: Node, process: int) -> None:
    """The end of a communicator in the process that made it."""
    if os.getpid() == process:
        node.leave(CLOSED)
        node.close()


_all: weakref.WeakSet[Communicator] = weakref.WeakSet()


def _forked() -> None:
    for comm in list(_all):
        comm._refusal = "it was made in another process; make a new one here"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
