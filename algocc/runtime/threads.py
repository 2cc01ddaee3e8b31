"""Run a Program on CPU threads, one a lane, on the caller's own arrays."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Collective
from algocc.errors import RunError, UsageError
from algocc.kernels.compiled import reduction_address
from algocc.kernels.operators import Element, Operator, check_defined, element, operator
from algocc.program import Program, check
from algocc.runtime.buffers import Buffers
from algocc.runtime.geometry import buffer_elements, check_count, count_of, in_place_buffers
from algocc.runtime.memory import check_memory
from algocc.runtime.plan import plan
from algocc.runtime.report import describe
from algocc.runtime.team import Team

Arrays = Sequence[NDArray[Any] | None]

TILE_BYTES = 256 << 10
"""Bytes of a chunk that one iteration handles: what all ranks touch in it stays in the shared cache."""


class Threads:
    """A Program ready to run on CPU threads, as often as you like.

    program: what runs; one thread a lane, of which the caller's own is the first.
    count: elements of a unit block: of the whole vector for AllReduce, of each rank's part for AllGather.
    dtype: element type, as NumPy or ml_dtypes name it.
    op: reduction operator; not looked at if the collective reduces nothing.
    timeout: seconds that a lane waits for another before all give up.
    tile_bytes: bytes of each chunk that one iteration handles, chosen for the machine's caches if not given.

    Two threads that call one object take turns. Close it, or leave a `with`, to end its threads.

    Raises UsageError for a dtype, operator or count that can't be used, or more memory than there is; ScheduleError
    for a malformed program.

    >>> import numpy as np
    >>> from algocc.collective import all_gather
    >>> from algocc.lowering import lower
    >>> from algocc.steps import Steps
    >>> s = Steps(all_gather(2), name="exchange")
    >>> with s.step():
    ...     s.copy(src=0, dst=1, chunk=0)
    ...     s.copy(src=1, dst=0, chunk=1)
    >>> x = [np.array([1, 2], "float32"), np.array([3, 4], "float32")]
    >>> y = [np.zeros(4, "float32") for _ in range(2)]
    >>> with Threads(lower(s.build()), count=2) as exchange:
    ...     exchange(x, y)
    >>> y[1]
    array([1., 2., 3., 4.], dtype=float32)
    """

    def __init__(
        self, program: Program, *, count: int, dtype: Any = "float32", op: str = "sum", timeout: float = 30.0,
        tile_bytes: int | None = None,
    ) -> None:  # fmt: skip
        check(program)
        self.program = program
        self.count = check_count(program.collective, count)
        self.element = element(dtype)
        self.operator = operator(op)
        check_reduction(program.collective, self.operator, self.element)
        if not 0 < timeout < 1e9:
            raise UsageError(f"timeout={timeout}: wanted a number of seconds above 0")
        self.timeout = float(timeout)
        tile_bytes = TILE_BYTES if tile_bytes is None else tile_bytes
        if tile_bytes < 1:
            raise UsageError(f"tile_bytes={tile_bytes}: wanted 1 byte or more")
        ready = plan(program, count=self.count, element=self.element, tile_bytes=tile_bytes)
        reduction = reduction_address(self.operator, self.element) if ready.reduces else 0
        self._iterations = ready.iterations
        self._buffers = Buffers(program.collective, self.count, self.element, in_place=program.in_place)
        self._team = Team(program, ready, size=self.element.size, reduction=reduction, timeout=self.timeout)
        self._first = 0
        self._failed: str | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._end = weakref.finalize(self, self._team.stop)

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run once: read every rank's input, write every rank's output.

        inputs, outputs: an array for each rank, 1-D and contiguous, of exactly the elements that `buffer_elements`
        says; None will do where that is 0. In place, the two must share memory as `in_place_buffers` lays them out;
        out of place, outputs share memory with nothing.

        Raises UsageError for arrays that do not fit, naming the rank, or a closed object; RunError, naming the
        rank to look at, if a lane waits longer than the timeout, and ever after.
        """
        with self._lock:
            self._check_open()
            self._buffers.bind(inputs, outputs, self._team.bases)
            if not self._iterations or not self.program.lanes:
                return
            try:
                fine = self._team.call(self._first, self._iterations)
            except RunError as error:
                self._failed = str(error)
                raise
            if not fine:
                self._failed = describe(self.program, self._team.reports, self.timeout)
                raise RunError(self._failed)
            self._first = _wrapped(self._first + self._iterations)

    def close(self) -> None:
        """End the threads, after the call that is under way; a second time does nothing."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "failed" if self._failed else "open" if self._end.alive else "closed"
        return (
            f"<Threads {self.program.name}: {self.count} {self.element.name}, {self.operator.name}, {state}>"
        )

    def _check_open(self) -> None:
        if not self._end.alive:
            raise UsageError(f"{self!r}: it is closed; make a new one")
        if self._failed:
            raise RunError(f"{self!r}: an earlier call failed, make a new one; that was: {self._failed}")
        if os.getpid() != self._process:
            raise UsageError(f"{self!r}: it was made in another process, whose threads a fork does not copy")

    def _resume_at(self, iteration: int) -> None:
        """Go on as if `iteration` iterations had run, to test what years of running come to."""
        self._first = _wrapped(iteration)
        totals = self.program.counter_total.tolist()
        self._team.counters[:, 0] = [(iteration * total) % 2**64 for total in totals]


def run(program: Program, inputs: Arrays, *, op: str = "sum", timeout: float = 30.0) -> list[NDArray[Any]]:
    """Run a program once on arrays of any count; the outputs are new, the inputs unchanged.

    inputs: an array for each rank, as for `Threads`; dtype and count are theirs. A program made for in place works
    on copies.

    Raises as `Threads` and its call do, and UsageError if the inputs do not agree in dtype or count.
    """
    arrays = [np.zeros(0) if a is None else np.asarray(a) for a in inputs]
    c = program.collective
    if len(arrays) != c.n:
        raise UsageError(f"{c.name}: {len(arrays)} inputs, wanted one for each of {c.n} ranks")
    kinds = sorted({a.dtype.name for a, has in zip(arrays, c.inputs.tolist(), strict=True) if has})
    if len(kinds) > 1:
        raise UsageError(f"{c.name}: the ranks' inputs are of different dtypes: {', '.join(kinds)}")
    kind = element(kinds[0] if kinds else "float32")
    count = count_of(c, [int(a.size) for a in arrays])
    ins, outs = buffer_elements(c, count)
    check_memory(sum(outs) * kind.size + program.in_place * sum(ins) * kind.size, f"outputs of {c.name}")
    if program.in_place:
        given, outputs = in_place_buffers(c, count, kind.name)
        for mine, theirs in zip(given, arrays, strict=True):
            mine[:] = theirs if mine.size else mine
    else:
        given = [
            np.ascontiguousarray(a) if k else np.zeros(0, kind.numpy)
            for a, k in zip(arrays, ins, strict=True)
        ]
        outputs = [np.zeros(k, kind.numpy) for k in outs]
    with Threads(program, count=count, dtype=kind.name, op=op, timeout=timeout) as once:
        once(given, outputs)
    return outputs


def check_reduction(collective: Collective, op: Operator, e: Element) -> None:
    """Raise UsageError if the operator can't do what the collective asks of it on these elements."""
    if not collective.reduces:
        return
    check_defined(op, e)
    idempotent = op.idempotent or (e.kind == "bool" and operator(op.on_bool).idempotent)
    if collective.idempotent and not idempotent:
        raise UsageError(
            f"{collective.name} may reduce a contribution twice, which operator {op.name} does not bear; use land or max"
        )
    if op.name == "avg":
        for s in range(len(collective.set_start) - 1):
            items = collective.set_items[collective.set_start[s] : collective.set_start[s + 1]]
            ranks = np.searchsorted(collective.input_start, items, side="right") - 1
            if not np.array_equal(np.sort(ranks), np.arange(collective.n)):
                raise UsageError(
                    f"operator avg is not defined for {collective.name}: it divides by the number of ranks, and an "
                    f"output reduces {len(items)} contributions, not one of each of the {collective.n} ranks"
                )


def _wrapped(value: int) -> int:
    """`value` as a counter of 64 bits holds it, signed."""
    return (value + 2**63) % 2**64 - 2**63
