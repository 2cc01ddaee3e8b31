"""What both formats become: lanes of tasks, and edges that say which task waits for which."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from algocc.place import Place

Cell = tuple[int, int, int]
"""(rank, buffer, first chunk), buffers as in `Buffer`."""


class Message(NamedTuple):
    """Chunks that go from one rank to another; a rank below 0 is a switch, a round below 0 is not known."""

    src: int
    dst: int
    size: int
    round: int


@dataclass(slots=True)
class Task:
    """One thing that a lane does: `dsts ← reduce(srcs)`, or nothing.

    count: chunks it handles, chunk i of them being first + i of every operand.
    step: the file's number for it.
    place: where the file says so.
    messages: what goes to another rank with it.
    """

    srcs: list[Cell]
    dsts: list[Cell]
    count: int
    step: int
    place: Place
    messages: tuple[Message, ...] = ()

    def cells(self) -> list[Cell]:
        """Every chunk that it reads or writes."""
        return [(r, b, chunk + i) for r, b, chunk in self.srcs + self.dsts for i in range(self.count)]


class Edge(NamedTuple):
    """Task `after` waits for task `before`.

    credit: it waits for room, not for data.
    """

    before: int
    after: int
    credit: bool = False


@dataclass
class Work:
    """A file as tasks.

    lane_rank: the rank of each lane, ascending.
    lanes: the tasks of each lane, in order, as indices into `tasks`.
    scratch: chunks of scratch on each rank, slots of connections included.
    queues: of each connection, the tasks that put a message in and take it out, in order.
    faults: what no run could mend, as (rank, found, wanted, place): the tasks are not a whole Program then.
    ambiguous: faults in spite of which the tasks are whole, in one of several orders.
    """

    lane_rank: list[int] = field(default_factory=list)
    lanes: list[list[int]] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    scratch: int = 0
    queues: list[list[tuple[int, int]]] = field(default_factory=list)
    faults: list[tuple[int, str, str, Place]] = field(default_factory=list)
    ambiguous: list[tuple[int, str, str, Place]] = field(default_factory=list)

    def lane(self, rank: int) -> list[int]:
        """A new lane of a rank, after all others."""
        self.lane_rank.append(rank)
        self.lanes.append([])
        return self.lanes[-1]

    def add(self, lane: list[int], task: Task) -> int:
        """Put a task at the end of a lane; its index."""
        self.tasks.append(task)
        lane.append(len(self.tasks) - 1)
        return len(self.tasks) - 1


def topological(work: Work) -> list[int]:
    """The tasks in an order in which they can run; fewer than all if some wait in a circle."""
    left = [0] * len(work.tasks)
    after: list[list[int] | None] = [None] * len(work.tasks)  # a list for each would be most of the time
    for lane in work.lanes:
        for a, b in pairwise(lane):
            after[a] = [b]
            left[b] = 1
    for a, b, _ in work.edges:
        left[b] += 1
        following = after[a]
        if following is None:
            after[a] = [b]
        else:
            following.append(b)
    order = [t for t, k in enumerate(left) if not k]
    for t in order:  # grows as we go
        for b in after[t] or ():
            left[b] -= 1
            if not left[b]:
                order.append(b)
    return order
