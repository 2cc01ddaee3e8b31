"""The ranks of one node: memory that all of them reach, and a board on which each one says how it fares.

The board holds the gate of `kernels.gate` and, for each member, whether it is still there, where it waits, and a text. It
is zeroed before anyone sees it, and no line has two writers, but for the abort line, of which any writer says the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from algocc.kernels import layout as at
from algocc.runtime.heap import Heap, Window
from algocc.runtime.memory import address, aligned, check_memory

OPEN, CLOSED, FAILED, DIED, GAVE_UP = range(5)
"""How a member fares: it failed by itself, its process ended, or it gave up since another did not go on."""

TEXT_LINES = 8
"""Lines of a member's text; the first word is its length."""


def board_bytes(members: int) -> int:
    """Bytes of the board of so many members."""
    return (at.ABORT_LINES + (5 + TEXT_LINES) * members) * at.LINE


class Node:
    """What one member has of its node.

    member: which one it is; members: how many they are; ranks: the rank of each.
    maps: where each member's memory begins, as this process sees it.
    pids: the process of each member.
    """

    def __init__(
        self, board: NDArray[np.uint8], member: int, ranks: Sequence[int], maps: Sequence[int], pids: Sequence[int]
    ) -> None:
        self.member, self.members, self.ranks, self.pids = member, len(ranks), list(ranks), list(pids)
        self.maps = np.array(maps, np.int64)
        self._bytes = board
        lines = board.view(np.uint64).reshape(-1, at.LINE // 8)
        first, m = at.ABORT_LINES, self.members
        self.lines_address = address(board)
        self.gate_address = self.lines_address + first * at.LINE
        self._abort = lines[0]
        self.records = lines[first : first + 2 * m].reshape(m, 2, -1)
        self.done = lines[first + 2 * m : first + 3 * m, 0]
        self.state = lines[first + 3 * m : first + 4 * m, 0]
        self.reports = lines[first + 4 * m : first + 5 * m].view(np.int64)
        self._texts = lines[first + 5 * m :].reshape(m, -1)

    def allocate(self, size: int, what: str) -> NDArray[np.uint8]:
        """`size` bytes, at least as aligned as a line, that all members reach."""
        raise NotImplementedError

    def holds(self, first: int, size: int) -> bool:
        """Whether all members reach the `size` bytes from address `first`."""
        raise NotImplementedError

    @property
    def aborted(self) -> bool:
        """Whether some member has failed."""
        return bool(self._abort[0])

    def abort(self) -> None:
        """Let no one wait any longer."""
        self._abort[0] = 1

    def leave(self, state: int, text: str = "") -> None:
        """Say that this member does not come any more, and why; but for an orderly end nobody waits any longer."""
        if self.state[self.member] == OPEN:
            self.say(self.member, text)
            self.state[self.member] = state
            if state != CLOSED:
                self.abort()

    def say(self, member: int, text: str) -> None:
        """Put a text on the board."""
        raw = text.encode()[: (at.LINE * TEXT_LINES) - 8]
        place = self._texts[member]
        ctypes.memmove(address(place) + 8, raw, len(raw))
        place[0] = len(raw)

    def text(self, member: int) -> str:
        """What a member has said."""
        place = self._texts[member]
        return ctypes.string_at(address(place) + 8, int(place[0])).decode(errors="replace")

    def shown(self, member: int, call: int) -> str:
        """The text of the record that a member showed for a call."""
        record = self.records[member, call & 1].view(np.int64)
        start = int(self.maps[member] + record[at.TEXT_AT])
        return ctypes.string_at(start + 8, int(ctypes.c_int64.from_address(start).value)).decode(errors="replace")

    def lost(self, member: int) -> str | None:
        """Why a member does not come any more, or None if it may."""
        state, rank = int(self.state[member]), self.ranks[member]
        if state == DIED:
            return f"rank {rank}: its process {self.pids[member]} has ended"
        if state == FAILED:
            return f"rank {rank}: {self.text(member)}"
        return f"rank {rank} has closed the communicator" if state == CLOSED else None

    def keep(self, memory: object) -> None:
        """Let `memory`, which others may still read, live as long as they may."""

    def close(self) -> None:
        """Let go of what is not memory."""


class ThreadNode(Node):
    """A member whose fellows are threads of the same process: they reach all memory there is."""

    def __init__(self, board: NDArray[np.uint8], member: int, members: int, pid: int, kept: list[object]) -> None:
        super().__init__(board, member, range(members), [0] * members, [pid] * members)
        self._kept = kept

    def keep(self, memory: object) -> None:
        self._kept.append(memory)

    def allocate(self, size: int, what: str) -> NDArray[np.uint8]:
        check_memory(size, what)
        return aligned(size)

    def holds(self, first: int, size: int) -> bool:
        return True


class ProcessNode(Node):
    """A member whose fellows are other processes: they reach what lies in its heap."""

    def __init__(
        self, board: Window, heap: Heap, windows: Sequence[Window | None], member: int, ranks: Sequence[int],
        pids: Sequence[int],
    ) -> None:  # fmt: skip
        self._heap, self._windows = heap, windows
        memory = np.frombuffer(board._map, np.uint8, board_bytes(len(ranks)))
        super().__init__(memory, member, ranks, [heap.start if w is None else w.start for w in windows], pids)
        from algocc.runtime.watch import Watch

        self._watch = Watch(self) if self.members > 1 else None

    def allocate(self, size: int, what: str) -> NDArray[np.uint8]:
        return self._heap.allocate(size, what)

    def holds(self, first: int, size: int) -> bool:
        return self._heap.holds(first, size)

    def in_use(self) -> int:
        """Bytes of the heap that are handed out."""
        return self._heap.in_use()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()


def thread_nodes(members: int, pid: int) -> list[Node]:
    """A new node of threads."""
    board, kept = aligned(board_bytes(members)), list[object]()
    return [ThreadNode(board, m, members, pid, kept) for m in range(members)]
