"""Moves of everybody's same place, made of those that name every rank's; and memory that has one address for all.

before: `out[0], r1.out[0], r2.out[0] = in[0] + r1.in[0] + r2.in[0]` on rank 0
after:  `everybody's out[0] = everybody's in[0]`, reduced and copied by the switch between the devices

Which Moves these are follows from the Program, whatever its collective. They do what they did, but that the order in which
contributions are added up is the hardware's. A Move, or a side of it, that has no such form stays as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.kernels import layout as at
from algocc.kernels import multicast
from algocc.kernels.operators import Element, Operator, kernel_of
from algocc.program import Program
from algocc.runtime.cuda.arrays import Array
from algocc.runtime.cuda.driver import Driver
from algocc.runtime.geometry import shifts
from algocc.runtime.plan import Plan

Ints = NDArray[np.int64]

ALIGN = 256
"""Bytes that arrays in memory of all start at multiples of."""


def check_devices(p: Program, devices: Sequence[int], driver: Driver, *, processes: bool) -> None:
    """Raise UsageError unless every rank has a device of its own, and all are joined by a switch that reduces."""
    mend = "leave out multicast=True"
    if processes:
        raise UsageError(f"multicast: the devices of program {p.name} belong to different processes; {mend}")
    if p.n < 2:
        raise UsageError(f"multicast: program {p.name} has {p.n} rank, wanted 2 or more; {mend}")
    for rank, device in enumerate(devices):
        if device in devices[:rank]:
            raise UsageError(
                f"multicast: ranks {list(devices).index(device)} and {rank} are both on device {device}, wanted a device for "
                f"each; {mend}"
            )
        facts = driver.facts(device)
        if int(facts.architecture.removeprefix("sm_")) < multicast.SINCE:
            raise UsageError(
                f"multicast: device {device} ({facts.name}) is {facts.architecture}, wanted sm_{multicast.SINCE} or later; {mend}"
            )
        if not driver.multicast(device):
            raise UsageError(f"multicast: device {device} ({facts.name}) is at no switch that reduces (NVLink SHARP); {mend}")


def everywhere(p: Program, ready: Plan, op: Operator, e: Element, *, count: int) -> tuple[Plan, Ints]:
    """The tables with such operands, whose base is that of rank n, and the kind of each operand as in `layout`.

    Raises UsageError if no Move has any.
    """
    made_for = kernel_of(op, e)
    reads = (made_for[0].name, made_for[1].name) in multicast.FORMS
    moved = [shift or 0 for shift in shifts(p.collective, count)] if p.in_place else [None] * p.n
    moves, parts, operands, kinds = ready.moves.copy(), list[Ints](), list[Ints](), list[int]()
    words = 0
    for move in moves:
        targets, sources, pieces = move[[at.DESTINATIONS, at.SOURCES, at.PARTS_OF]].tolist()
        table = ready.parts[move[at.PART_START] :][: pieces * (1 + targets + sources)].reshape(pieces, 1 + targets + sources)
        records = ready.operands[move[at.OPERAND_START] // at.OPERAND_WORDS :][: targets + sources]
        to, of = ([(k, at.PLAIN) for k in side] for side in (range(targets), range(targets, targets + sources)))
        if not (np.append(table, ready.tile if ready.iterations > 1 else 0) * e.size % multicast.WORD).any():
            if sources == p.n and reads:
                of = _merged(of, records, table, moved)
            if sources == 1 or e.kind != "complex":
                to = _merged(to, records, table, moved)
        chosen = [k for k, _ in to + of]
        mine, kinds_here = records[chosen], [kind for _, kind in to + of]
        shared = np.array(kinds_here) == at.MULTICAST
        mine[shared, at.BASE] = 3 * p.n + mine[shared, at.BASE] % 3
        move[[at.DESTINATIONS, at.SOURCES]] = len(to), len(of)
        move[[at.PART_START, at.OPERAND_START]] = words, len(kinds) * at.OPERAND_WORDS
        parts.append(table[:, [0, *(1 + k for k in chosen)]].ravel())
        operands.append(mine)
        kinds += kinds_here
        words += len(parts[-1])
    if at.MULTICAST not in kinds:
        raise UsageError(
            f"multicast: no Move of program {p.name} can take or give the same place of all {p.n} ranks at once, by {op.name} of "
            f"{e.name}, at multiples of {multicast.WORD} bytes; use another schedule (two_shot), operator, type or count, or leave out "
            "multicast=True"
        )
    none = np.zeros(0, np.int64)
    return (
        replace(ready, moves=moves, parts=np.concatenate([none, *parts]),
                operands=np.concatenate([ready.operands[:0], *operands])),
        np.array(kinds, np.int64),
    )  # fmt: skip


def _merged(side: list[tuple[int, int]], records: Ints, table: Ints, moved: Sequence[int | None]) -> list[tuple[int, int]]:
    """The operands of a side of a Move, with their kinds: in the place of those that are one place of all ranks, one of them.

    moved: element of its output where each rank's input begins in place, where the program may call it by either name; else None.
    """
    alike: dict[tuple[int, ...], list[int]] = {}
    for k, _ in side:
        rank, buffer = divmod(int(records[k, at.BASE]), 3)
        offsets, shift = table[:, 1 + k], moved[rank]
        if buffer != Buffer.SCRATCH:
            alike.setdefault((buffer, *offsets.tolist()), []).append(k)
        if shift is not None and buffer == Buffer.OUTPUT:
            alike.setdefault((Buffer.INPUT, *(offsets - shift).tolist()), []).append(k)
    kind, gone = dict[int, int](), set[int]()
    for (buffer, *_), group in alike.items():
        named = [k for k in group if records[k, at.BASE] % 3 == buffer]
        if named and sorted(int(records[k, at.BASE]) // 3 for k in group) == list(range(len(moved))) and not gone & set(group):
            kind[named[0]] = at.MULTICAST
            gone |= set(group) - {named[0]}
    return [(k, kind.get(k, at.PLAIN)) for k, _ in side if k not in gone]


class Symmetric:
    """Memory that each rank has on its device, and that all have at one address, for as long as there are arrays in it.

    addresses: where it begins with each rank; everybody: where with all.
    """

    def __init__(self, driver: Driver, devices: Sequence[int], size: int) -> None:
        self.devices, self.size = list(devices), size
        self._driver = driver
        self.addresses, self.everybody, release = driver.symmetric(self.devices, size)
        self._end: weakref.finalize[..., Any] = weakref.finalize(self, release)
        self.streams = [driver.stream(device) for device in self.devices]
        for device, address, stream in zip(self.devices, self.addresses, self.streams, strict=True):
            driver.clear(device, address, size, stream)
            driver.synchronize(device, stream)

    def array(self, rank: int, begin: int, elements: int, e: Element) -> Array:
        """An array of a rank, so many bytes from the beginning."""
        return Array.within(
            self._driver, self.devices[rank], elements, e, address=self.addresses[rank] + begin, stream=self.streams[rank], owner=self
        )

    def alike(self, addresses: Ints, size: int) -> int | None:
        """The address that is everybody's of these of each rank; None unless all lie equally far in this memory."""
        begin = int(addresses[0]) - self.addresses[0]
        same = (addresses - np.array(self.addresses) == begin).all()
        return self.everybody + begin if same and 0 <= begin and begin + size <= self.size else None
