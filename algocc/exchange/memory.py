"""Where the chunks that a file names are: in place, inputs and outputs are the same memory."""

from __future__ import annotations

from algocc.collective import Buffer, Collective
from algocc.exchange.tasks import Cell, Edge, Task, Work
from algocc.place import Place


class Memory:
    """From (rank, buffer, chunk) of a file to that of a Program.

    In place, an input chunk that is an output chunk becomes that output. What the collective knows nothing of (the
    `i` of a rank that has no input) is the output of that rank in place, else memory that nobody filled.

    scratch: chunks of scratch on each rank, growing with the strangers.
    """

    def __init__(self, c: Collective, scratch: int, in_place: bool) -> None:
        self.collective, self.in_place = c, in_place
        self._alias: dict[tuple[int, int], int] = {}
        self._named: dict[Cell, Cell] = {}
        for rank, i, o in c.alias.tolist() if in_place else ():
            for a, b in ((i * c.chunks + part, o * c.chunks + part) for part in range(c.chunks)):
                self._alias[rank, a] = b
                if c.inputs[rank] >= c.outputs[rank]:
                    self._named[rank, int(Buffer.OUTPUT), b] = rank, int(Buffer.INPUT), a
        self._extra: dict[Cell, Cell] = {}
        self._used = [scratch] * c.n

    @property
    def scratch(self) -> int:
        """Chunks of scratch that each rank needs."""
        return max(self._used)

    def cell(self, rank: int, buffer: int, chunk: int) -> Cell:
        """The place in a Program."""
        c = self.collective
        if buffer == Buffer.SCRATCH:
            return self._extra.get((rank, buffer, chunk), (rank, buffer, chunk))
        known = chunk < c.size(Buffer(buffer), rank)
        if buffer == Buffer.INPUT:
            if (rank, chunk) in self._alias:
                return rank, int(Buffer.OUTPUT), self._alias[rank, chunk]
            if not known and self.in_place and not c.inputs[rank] and chunk < c.size(Buffer.OUTPUT, rank):
                return rank, int(Buffer.OUTPUT), chunk
        if known and (rank, buffer, chunk) not in self._extra:
            return rank, int(buffer), chunk
        return self.extra(rank, buffer, chunk)

    def name(self, rank: int, buffer: int, chunk: int) -> Cell:
        """The place as files call it: in place what is both by the larger buffer of its rank, the input if they are equal.

        So do the compilers of MSCCL and MSCCL++; their runtimes are given both buffers, and would take either name.
        """
        cell = self.cell(rank, buffer, chunk)
        return self._named.get(cell, cell)

    def home(self, rank: int, chunk: int) -> Cell:
        """Where an input chunk comes in."""
        alias = self._alias.get((rank, chunk))
        return (rank, int(Buffer.INPUT), chunk) if alias is None else (rank, int(Buffer.OUTPUT), alias)

    def extra(self, rank: int, buffer: int, chunk: int) -> Cell:
        """From now on the place is one of scratch, of its own."""
        key = (rank, int(buffer), chunk)
        if key not in self._extra:
            self._extra[key] = rank, int(Buffer.SCRATCH), self._used[rank]
            self._used[rank] += 1
        return self._extra[key]


def settle(work: Work, c: Collective, in_place: bool) -> tuple[Work, Memory]:
    """The tasks with the places of a Program, split where these are not in a row.

    In place, an input that is written to though it is no output is worked on as a copy, loaded first. Out of place
    the caller's input must stay as it was: writing to it is a fault.
    """
    memory = Memory(c, work.scratch, in_place)
    out = Work(list(work.lane_rank), faults=list(work.faults), ambiguous=list(work.ambiguous))
    copies = _copied(work, memory, out)
    loads = {rank: [Task([k], [memory.extra(*k)], 1, 0, at) for k, at in of.items()] for rank, of in copies.items()}
    loaded: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for old, rank in zip(work.lanes, work.lane_rank, strict=True):
        lane: list[int] = []
        out.lanes.append(lane)
        for load in loads.get(rank, []) if rank not in loaded else []:
            loaded[rank] = out.add(lane, load)
        for t in old:
            first[t] = len(out.tasks)
            for part in _parts(work.tasks[t], memory):
                last[t] = out.add(lane, part)
    out.edges = [Edge(last[e.before], first[e.after], e.credit) for e in work.edges]
    for lane in out.lanes if loaded else []:
        touched = {cell for t in lane for cell in out.tasks[t].cells()}
        out.edges += [
            Edge(load, lane[0])
            for rank, load in loaded.items()
            if load not in lane and any(task.dsts[0] in touched for task in loads[rank])
        ]
    out.scratch = memory.scratch
    return out, memory


def _copied(work: Work, memory: Memory, out: Work) -> dict[int, dict[Cell, Place]]:
    """The inputs that are written to: by rank, those to copy first; out of place, faults."""
    copies: dict[int, dict[Cell, Place]] = {}
    for task in work.tasks:
        for r, b, chunk in task.dsts:
            for i in range(task.count if b == Buffer.INPUT else 0):
                if memory.cell(r, b, chunk + i)[1] != Buffer.INPUT:
                    continue
                if memory.in_place:
                    copies.setdefault(r, {}).setdefault((r, b, chunk + i), task.place)
                else:
                    found = f"in[{chunk + i}] is written to"
                    fault = (r, found, "the input as it was: out of place it is the caller's", task.place)
                    if fault[:2] not in [f[:2] for f in out.faults]:
                        out.faults.append(fault)
    return copies


def _parts(task: Task, memory: Memory) -> list[Task]:
    """A task as tasks whose operands are each in a row; the messages go with the first."""
    cells = [
        [[memory.cell(r, b, chunk + i) for r, b, chunk in side] for i in range(task.count)]
        for side in (task.srcs, task.dsts)
    ]
    if not task.srcs:
        return [Task([], [], 1, task.step, task.place)]
    begins = [0]
    for i in range(1, task.count):
        for side in cells:
            if any(b != (a[0], a[1], a[2] + 1) for a, b in zip(side[i - 1], side[i], strict=True)):
                begins.append(i)
                break
    parts = []
    for i, j in zip(begins, [*begins[1:], task.count], strict=True):
        parts.append(Task(cells[0][i], cells[1][i], j - i, task.step, task.place, task.messages if not i else ()))
    return parts
