"""Notice that the process of another member has ended, however it ended, without looking all the time.

A thread sleeps until the kernel says that one of the processes is gone (`pidfd_open`; it also tells of one that has ended
and waits for its parent), then notes it on the board. Where there is no pidfd it looks every tenth of a second.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from typing import TYPE_CHECKING

from algocc.errors import RunError

if TYPE_CHECKING:
    from algocc.runtime.node import Node


class Watch:
    """A thread that watches the other members of a node until it is stopped.

    Raises RunError, naming the rank, if one has ended already.
    """

    def __init__(self, node: Node) -> None:
        self._wake, self._stop = os.pipe()
        self._files: dict[int, int] = {}  # descriptor → member
        others = {m: pid for m, pid in enumerate(node.pids) if m != node.member}
        if hasattr(os, "pidfd_open"):
            for m, pid in others.items():
                try:
                    self._files[os.pidfd_open(pid)] = m
                except ProcessLookupError as error:
                    self._close()
                    raise RunError(f"rank {node.ranks[m]}: its process {pid} has ended") from error
                except OSError:
                    continue  # no permission: only the timeout will tell
            others = {}
        self._thread = threading.Thread(
            target=_watch, args=(weakref.ref(node), dict(self._files), self._wake, others),
            name=f"algocc watch of rank {node.ranks[node.member]}", daemon=True,
        )  # fmt: skip
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a second time does nothing."""
        if self._stop < 0:
            return
        os.write(self._stop, b"x")
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join()
        self._close()

    def _close(self) -> None:
        for fd in (*self._files, self._wake, self._stop):
            os.close(fd)
        self._files, self._wake, self._stop = {}, -1, -1


def _watch(node: weakref.ref[Node], files: dict[int, int], wake: int, others: dict[int, int]) -> None:
    poll = select.poll()
    for fd in (*files, wake):
        poll.register(fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll(100 if others else None)]
        if wake in ready:
            return
        for fd in ready:
            poll.unregister(fd)
        gone = [files[fd] for fd in ready] + [m for m, pid in others.items() if not _lives(pid)]
        this = node()
        if this is None:
            return
        for member in gone:
            others.pop(member, None)
            _note(this, member)
        del this


def _note(node: Node, member: int) -> None:
    from algocc.runtime.node import DIED, OPEN

    if node.state[member] == OPEN:
        node.state[member] = DIED
        node.abort()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
