"""The threads that run a plan: one a lane, the caller's own for lane 0, asleep between calls."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.errors import RunError, UsageError
from algocc.kernels import compiled, cpu
from algocc.kernels import layout as at
from algocc.program import Program
from algocc.runtime.memory import address, aligned, check_memory
from algocc.runtime.plan import Plan

Array = NDArray[Any]


class Team:
    """The memory and threads of one plan.

    block: the words of `kernels.layout` that the kernels start from.
    bases: addresses of input, output and scratch of each rank, those of scratch filled in; shape (n, 3).
    counters: signals so far, one counter in 16 words; shape (counters, 16).
    reports: what each lane says; shape (lanes, words).

    Raises UsageError if there is not the memory, or not the threads.
    """

    def __init__(self, program: Program, plan: Plan, *, size: int, reduction: int, timeout: float) -> None:
        lanes, n, counters = program.lanes, program.n, len(program.counter_total)
        local = -(-(8 * (at.ADDRESSES + plan.most_operands)) // at.LINE) * at.LINE + cpu.WINDOW
        scratch = -(-plan.scratch * size // at.LINE) * at.LINE
        lines = (at.WORKER + max(lanes, 1)) * at.LINE
        check_memory(
            n * program.sets * scratch + lanes * local + counters * at.LINE, f"scratch of {n} ranks for {program.name}"
        )
        self._scratch = aligned(n * program.sets * scratch)
        self._local = aligned(lanes * local)
        self._lines = aligned(lines).view(np.int64).reshape(-1, at.LINE // 8)
        self.counters = aligned(counters * at.LINE).view(np.uint64).reshape(-1, at.LINE // 8)
        self.reports = self._local.view(np.int64).reshape(lanes, local // 8)[:, : at.ADDRESSES]
        self.bases = np.zeros((n, 3), np.int64)
        self.bases[:, 2] = address(self._scratch) + np.arange(n) * program.sets * scratch
        starts = program.lane_start.astype(np.int64)
        self._tables = (starts, plan.moves, plan.parts, plan.operands, plan.waits, plan.signals)
        self.block = aligned(8 * at.BLOCK_WORDS).view(np.int64)
        for place, table in zip(
            (at.LANE_START, at.MOVES, at.PARTS, at.OPERANDS, at.WAITS, at.SIGNALS), self._tables, strict=True
        ):
            self.block[place] = address(table)
        self.block[at.TILE], self.block[at.SIZE], self.block[at.RANKS] = plan.tile, size, n
        self.block[at.SETS], self.block[at.SET_BYTES] = program.sets - 1, scratch
        self.block[at.REDUCTION], self.block[at.LANE] = reduction, compiled.lane_address()
        self.block[at.COUNTERS], self.block[at.LINES] = address(self.counters), address(self._lines)
        self.block[at.BASES] = address(self.bases)
        self.block[at.LOCAL], self.block[at.LOCAL_SIZE] = address(self._local), local
        self.block[at.TIMEOUT] = int(timeout * 1e9)
        self.block[at.POLLS] = POLLS if lanes <= processors() else POLLS_IF_CROWDED
        self.block[at.LANES], self.block[at.ABSENT] = lanes, -1
        self._start = address(self.block)
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._call = compiled.call()
        self._hire(program.name, lanes)

    def call(self, first: int, iterations: int) -> bool:
        """Run every lane for `iterations` tiles, the first of them number `first`; False if one gave up.

        Raises RunError if a thread was lost.
        """
        self.block[at.FIRST], self.block[at.ITERATIONS] = first, iterations
        if not self.errors:
            self._call(self._start)
        if self.errors:
            raise RunError(f"a thread ended: {self.errors[0]!r}") from self.errors[0]
        return not self._lines[at.ABORT, 0]

    def stop(self) -> None:
        """End all threads; the second time does nothing."""
        threads, self._threads = self._threads, []
        if not threads:
            return
        self._lines[at.STOP, 0] = 1
        self._lines[at.CALLS, 0] += 1
        for i in range(1, len(threads) + 1):
            _libc.sem_post(self._line(at.WORKER + i))
        for thread in threads:
            thread.join()

    def _hire(self, name: str, lanes: int) -> None:
        for line in (at.CALLER, *range(at.WORKER + 1, at.WORKER + lanes)):
            if _libc.sem_init(self._line(line), 0, 0):
                raise UsageError(
                    "this system has no unnamed semaphores (sem_init), which the threads sleep at"
                )
        serve = compiled.serve()
        for index in range(1, lanes):
            thread = threading.Thread(
                target=self._serve, args=(serve, index), name=f"{name} lane {index}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                self.stop()
                raise UsageError(
                    f"{name}: {lanes} lanes, of which only {index} got a thread: {error}"
                ) from error
            self._threads.append(thread)

    def _serve(self, serve: Any, index: int) -> None:
        try:
            serve(self._start, index)
        except BaseException as error:  # noqa: BLE001 (the caller raises it)
            self.errors.append(error)
            self._lines[at.ABORT, 0] = 1
            self._lines[at.DONE, 0] += 1 << 62
            _libc.sem_post(self._line(at.CALLER))

    def _line(self, line: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(address(self._lines) + line * at.LINE)


POLLS = 2000
"""Looks at a counter before the processor is given away, where every lane has a processor."""

POLLS_IF_CROWDED = 20
"""The same where lanes share processors."""

_libc = ctypes.CDLL(None)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
