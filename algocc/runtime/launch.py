"""Run a function on n ranks, each a process or a thread with its own communicator, and gather what they return."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from algocc.errors import AlgoccError, RunError, UsageError
from algocc.runtime.communicator import Communicator, check_size

AFTER_A_FAILURE = 5.0
"""Seconds, besides the timeout, that the other ranks have to notice a failure before they are ended."""


def spawn(
    fn: Callable[..., Any], n: int, *args: Any, threads: bool = False, start: str = "spawn", timeout: float = 30.0,
    checked: bool = True,
) -> list[Any]:  # fmt: skip
    """What `fn(comm, *args)` returns on each of n ranks, in rank order.

    threads: ranks are threads of this process, not processes.
    start: how processes are made, as multiprocessing names it; `spawn` and `forkserver` need a function that can be
        imported, `fork` is fast and takes any, but must not be used in a process that runs other threads.
    timeout, checked: of the communicator.

    Raises RunError, naming every rank that failed of its own, if one raises, exits or is killed.

    >>> def work(comm):
    ...     return comm.all_reduce(np.array([comm.rank + 1])).tolist()
    >>> import numpy as np
    >>> spawn(work, 3, threads=True)
    [[6], [6], [6]]
    """
    check_size(n, timeout)
    if threads:
        return run_threads(fn, Communicator.threads(n, timeout=timeout, checked=checked), *args)
    return _processes(fn, n, args, start, timeout, checked)


def run_threads(fn: Callable[..., Any], comms: Sequence[Communicator], *args: Any) -> list[Any]:
    """What `fn(comm, *args)` returns for each communicator, each in a thread of its own; they are closed then.

    Raises RunError as `spawn`.
    """
    results: list[Any] = [None] * len(comms)
    errors: dict[int, BaseException] = {}
    first: list[int] = []

    def work(comm: Communicator) -> None:
        try:
            with comm:
                results[comm.rank] = fn(comm, *args)
        except BaseException as error:  # noqa: BLE001, B036 (raised again below)
            first.append(comm.rank)
            errors[comm.rank] = error

    workers = [threading.Thread(target=work, args=(c,), name=f"rank {c.rank}") for c in comms]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException:  # Ctrl-C, say: the ranks would go on without end
        for comm in comms:
            comm.abort("the caller was interrupted")
        raise
    if errors:
        failed = {rank: f"{type(error).__name__}: {error}" for rank, error in errors.items()}
        raise RunError(_told(failed, first)) from errors[first[0]]
    return results


def _processes(
    fn: Callable[..., Any], n: int, args: Sequence[Any], start: str, timeout: float, checked: bool
) -> list[Any]:
    if start not in multiprocessing.get_all_start_methods():
        raise UsageError(f"start={start!r}: wanted one of {', '.join(multiprocessing.get_all_start_methods())}")
    context: Any = multiprocessing.get_context(start)
    name = f"spawn-{os.getpid()}-{secrets.token_hex(6)}"
    pipes: dict[Connection, int] = {}
    workers = []
    try:
        for rank in range(n):
            mine, theirs = context.Pipe(duplex=False)
            pipes[mine] = rank
            worker = context.Process(
                target=_child, args=(theirs, name, rank, n, fn, args, timeout, checked), name=f"rank {rank}", daemon=True
            )
            worker.start()
            theirs.close()
            workers.append(worker)
        return _gathered(pipes, workers, timeout)
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
            worker.join()
            worker.close()
        for pipe in pipes:
            pipe.close()


def _gathered(pipes: dict[Connection, int], workers: Sequence[Any], timeout: float) -> list[Any]:
    """The results, once all have ended; after a failure the others have some time to notice."""
    results: dict[int, Any] = {}
    failed: dict[int, str] = {}
    first: list[int] = []
    open_pipes = dict(pipes)
    end = None
    while open_pipes:
        left = None if end is None else max(end - time.monotonic(), 0)
        ready = wait(list(open_pipes), left)
        if not ready:
            for rank in open_pipes.values():
                failed[rank] = "it did not end after the others had failed, and was ended"
            break
        for pipe in ready:
            rank = open_pipes.pop(pipe)  # type: ignore[call-overload]
            try:
                fine, value = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
            except (EOFError, OSError):
                workers[rank].join()
                code = workers[rank].exitcode
                fine, value = False, f"its process ended {f'with exit code {code}' if code >= 0 else f'by signal {-code}'}"
            if fine:
                results[rank] = value
            else:
                failed[rank] = value
                first.append(rank)
                end = end or time.monotonic() + timeout + AFTER_A_FAILURE
    if failed:
        raise RunError(_told(failed, first))
    for worker in workers:
        worker.join()
    return [results[rank] for rank in range(len(workers))]


def _end_with(parent: Any) -> None:
    """End this process when its parent has: no one would ever read its result."""
    wait([parent.sentinel])
    os._exit(1)


def _told(failed: dict[int, str], first: Sequence[int]) -> str:
    """One line for each rank that failed, the first to fail first."""
    order = [*first, *(rank for rank in sorted(failed) if rank not in first)]
    lines = []
    for rank in order:
        told, *rest = failed[rank].split("\n")
        lines += [f"rank {rank} failed: {told}", *(f"    {line}" for line in rest)]
    return "\n".join(lines)


def _child(
    pipe: Connection, name: str, rank: int, n: int, fn: Callable[..., Any], args: Sequence[Any], timeout: float,
    checked: bool,
) -> None:  # fmt: skip
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    try:
        with Communicator.join(name, rank, n, timeout=max(timeout, 60.0), checked=checked) as comm:
            comm._set_timeout(timeout)
            result = fn(comm, *args)
        message = pickle.dumps((True, result))
    except AlgoccError as error:
        message = pickle.dumps((False, f"{type(error).__name__}: {error}"))
    except BaseException as error:  # noqa: BLE001, B036 (the parent raises it)
        where = traceback.format_exception(error)
        message = pickle.dumps((False, f"{type(error).__name__}: {error}\n{''.join(where).rstrip()}"))
    pipe.send_bytes(message)
    pipe.close()
