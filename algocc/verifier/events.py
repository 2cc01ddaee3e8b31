"""Every write of a chunk as an event, and the events that it depends on: what there is to follow or to blame."""

from __future__ import annotations

from collections import Counter

import numpy as np

from algocc.collective import Buffer
from algocc.table import Layout, Schedule


class Events:
    """Every write of a chunk of a matched schedule of good form, in order. Inputs count as the first events.

    inputs: input chunks, which are events 0 to inputs - 1; write i is event inputs + i.
    row, part, place: of each write, the row, the chunk of the row, and the location that it writes.
    needs: of each write, the event whose value it reads and, if it reduces, the one it reduces into; -1 for none.
    over: of each write, the event that wrote its place before; -1 for none.
    last: the event that wrote each place last.
    writers: the events that write a place in a step.
    holds: what events hold, as far as `contributions` was asked for.
    """

    def __init__(self, s: Schedule, places: Layout) -> None:
        c = s.collective
        self.s = s
        self.row: list[int] = []
        self.part: list[int] = []
        self.place: list[int] = []
        self.needs: list[tuple[int, ...]] = []
        self.over: list[int] = []
        self.inputs = int(c.inputs.sum()) * c.chunks
        inputs = places.alias[places.chunks_of(Buffer.INPUT)].tolist()
        self.last: dict[int, int] = {place: i for i, place in enumerate(inputs)}
        self.writers: dict[tuple[int, int], list[int]] = {}
        self.holds: dict[int, Counter[int]] = {}
        source = places.start[s.rank, s.buffer] + s.chunk
        target = places.start[s.peer, s.peer_buffer] + s.peer_chunk
        for first, last in zip(s.step_start[:-1].tolist(), s.step_start[1:].tolist(), strict=True):
            read = [
                [self.last.get(int(places.alias[source[row] + i]), -1) for i in range(s.count[row])]
                for row in range(first, last)
            ]
            for row, values in zip(range(first, last), read, strict=True):
                for i, value in enumerate(values):
                    place = int(places.alias[target[row] + i])
                    self.over.append(self.last.get(place, -1))
                    old = (self.over[-1],) if s.action[row] else ()
                    event = self.inputs + len(self.row)
                    self.row.append(row)
                    self.part.append(i)
                    self.place.append(place)
                    self.needs.append((value, *old))
                    self.last[place] = event
                    self.writers.setdefault((int(s.step[row]), place), []).append(event)

    def of(self, row: int, part: int) -> int:
        """The event of a part of a row."""
        counts = np.cumsum(self.s.count)
        return self.inputs + int(counts[row]) - int(self.s.count[row]) + part

    def slice(self, events: list[int]) -> list[int]:
        """These events and all that they depend on, in order, without the inputs."""
        seen = set(events)
        todo = list(events)
        while todo:
            event = todo.pop()
            if event >= self.inputs:
                for before in self.needs[event - self.inputs]:
                    if before >= 0 and before not in seen:
                        seen.add(before)
                        todo.append(before)
        return sorted(event for event in seen if event >= self.inputs)

    def held(self, event: int) -> Counter[int]:
        """The input chunks behind an event, each as often as it is in it; `contributions` was asked for it."""
        return self.holds[event] if event >= self.inputs else Counter([event])

    def contributions(self, events: list[int]) -> None:
        """Fill in what these events, a slice, hold."""
        for event in events:
            if event not in self.holds:
                held: Counter[int] = Counter()
                for before in self.needs[event - self.inputs]:
                    if before >= 0:
                        held += self.held(before)
                self.holds[event] = held
