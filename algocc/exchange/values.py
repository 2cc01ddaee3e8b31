"""What the tasks compute, in one order: which contributions each chunk holds, and in which order they were added."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from algocc.collective import Collective
from algocc.exchange.memory import Memory
from algocc.exchange.tasks import Cell, Task, Work
from algocc.verifier.dataflow import COUNT_CAP
from algocc.verifier.explain import MOST_VALUES, contributions, first_double

NOTHING = -1


@dataclass
class Values:
    """Values by number: first the input chunks of all ranks, then reductions of two.

    operands: of each reduction, the two values. Addition commutes, so a + b and b + a are one value.
    maker: of each reduction, the task that did it first.
    weight: contributions in each value, with multiplicity, at most COUNT_CAP. like: an input chunk of the same length.
    held: what each cell of memory holds at the end. writer: the task that wrote it.
    read, made: for each task, and each chunk of it, the values it read and the one it made.
    unwritten: reads of what nobody wrote, as (task, cell).
    """

    inputs: int
    weight: list[int]
    like: list[int]
    operands: list[tuple[int, int]] = field(default_factory=list)
    maker: list[int] = field(default_factory=list)
    held: dict[Cell, int] = field(default_factory=dict)
    writer: dict[Cell, int] = field(default_factory=dict)
    read: list[list[tuple[int, ...]]] = field(default_factory=list)
    made: list[list[int]] = field(default_factory=list)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    def reduce(self, a: int, b: int, task: int) -> int:
        """The value a + b, as a task makes it; nothing if either is."""
        if a == NOTHING or b == NOTHING:
            return NOTHING
        key = (a, b) if a < b else (b, a)
        if key not in self._known:
            self._known[key] = len(self.weight)
            self.operands.append(key)
            self.maker.append(task)
            self.weight.append(min(self.weight[a] + self.weight[b], COUNT_CAP))
            self.like.append(self.like[a])
        return self._known[key]

    def of(self, reduction: int) -> tuple[int, int]:
        """The two values of a reduction."""
        return self.operands[reduction - self.inputs]

    def contributions(self, value: int, *, most: int = MOST_VALUES) -> Counter[int] | None:
        """How often each input chunk is in a value; None if more than `most` values are behind it."""
        return contributions(value, self.inputs, self.of, most=most)[1]

    def added_twice(self, value: int, extra: int) -> int:
        """The task that first added two values of which both hold input chunk `extra`, on the way to a value."""
        reductions, _ = contributions(value, self.inputs, self.of)
        return self.maker[first_double(reductions, self.of, extra, self.inputs) - self.inputs]


def play(work: Work, order: list[int], c: Collective, memory: Memory) -> Values:
    """The values of all tasks of `order`, run one after the other."""
    inputs = int(c.inputs.sum()) * c.chunks
    values = Values(inputs, [1] * inputs, list(range(inputs)))
    values.read = [[] for _ in work.tasks]
    values.made = [[] for _ in work.tasks]
    for rank in range(c.n):
        first = int(c.input_start[rank]) * c.chunks
        for chunk in range(int(c.inputs[rank]) * c.chunks):
            values.held[memory.home(rank, chunk)] = first + chunk
    for t in order:
        _run(t, work.tasks[t], values)
    return values


def _run(t: int, task: Task, values: Values) -> None:
    for i in range(task.count):
        read = tuple(values.held.get((r, b, chunk + i), NOTHING) for r, b, chunk in task.srcs)
        if not read:
            return
        made = read[0]
        for v in read[1:]:
            made = values.reduce(made, v, t)
        values.read[t].append(read)
        values.made[t].append(made)
        for r, b, chunk in task.dsts:
            values.held[r, b, chunk + i] = made
            values.writer[r, b, chunk + i] = t
