"""Threads that sleep between calls: the caller wakes them, runs lane 0 itself and waits for the others."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from algocc.kernels import layout as at


def build_serve(P: ModuleType, *, stamp: str) -> Callable[..., Any]:
    """The life of a worker; `stamp` is the source it is built from."""

    def serve(block, index):
        """Run lane `index` once a call until told to stop."""
        P.built_from(stamp)
        lines, workers = P.word(block, at.LINES), P.word(block, at.LANES) - 1
        calls, mine = lines + at.LINE * at.CALLS, lines + at.LINE * (at.WORKER + index)
        seen = np.uint64(0)
        while True:
            P.sleep_until(calls, seen + np.uint64(1), mine, P.word(block, at.POLLS))
            if P.load_acquire(lines + at.LINE * at.STOP) != 0:
                return
            seen += np.uint64(1)
            if P.word(block, at.ABSENT) != index:
                P.run_lane(P.word(block, at.LANE), block, index)
            before = P.add_release(lines + at.LINE * at.DONE, np.uint64(1))
            if before + np.uint64(1) == seen * np.uint64(workers):
                P.sem_post(lines + at.LINE * at.CALLER)

    serve.__qualname__ = "serve"
    return serve


def build_call(P: ModuleType, *, stamp: str) -> Callable[..., Any]:
    """One call of all lanes; `stamp` is the source it is built from."""

    def call(block):
        """Run every lane of the program at `block` once; the lanes report to their own memory."""
        P.built_from(stamp)
        lines, lanes = P.word(block, at.LINES), P.word(block, at.LANES)
        calls = P.load_acquire(lines + at.LINE * at.CALLS) + np.uint64(1)
        P.store_release(lines + at.LINE * at.CALLS, calls)
        for index in range(1, lanes):
            P.sem_post(lines + at.LINE * (at.WORKER + index))
        if P.word(block, at.ABSENT) != 0:
            P.run_lane(P.word(block, at.LANE), block, 0)
        if lanes > 1:
            P.sleep_until(
                lines + at.LINE * at.DONE, calls * np.uint64(lanes - 1), lines + at.LINE * at.CALLER,
                P.word(block, at.POLLS),
            )  # fmt: skip

    call.__qualname__ = "call"
    return call
