"""Where ranks live: some ranks on one device of one process are a *site*, and all that they need lies in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from algocc.errors import UsageError
from algocc.kernels import layout as at
from algocc.kernels.operators import Element
from algocc.program import Program
from algocc.runtime.cuda.cut import Shape, sliced
from algocc.runtime.cuda.driver import Driver
from algocc.runtime.plan import Plan

Ints = NDArray[np.int64]

POLLS = 1000
"""Looks at a counter before a block looks at the clock."""

ALIGN = 256
"""Bytes that regions of an arena start at multiples of."""


class Arena:
    """One piece of memory of a device, cut into regions before it is asked for; `base` is where this process sees it."""

    def __init__(self) -> None:
        self.size = 0
        self.at: dict[str, int] = {}
        self.base = 0

    def add(self, name: str, size: int) -> None:
        """Reserve `size` bytes."""
        self.at[name] = self.size
        self.size += -(-size // ALIGN) * ALIGN

    def address(self, name: str) -> int:
        """Where a region is, once `base` is known."""
        return self.base + self.at[name]


@dataclass(eq=False)
class Site:
    """Ranks on one device, their lanes, and the counters that these wait for.

    device: its number in the process that owns the site.
    here: whether that is this process, which then launches it, on `stream` if the caller gives none.
    before, after: events around its latest launch.
    """

    device: int
    here: bool
    ranks: Ints
    lanes: Ints
    counters: Ints
    arena: Arena = field(default_factory=Arena)
    kernel: int = 0
    stream: int = 0
    before: int = 0
    after: int = 0


def placed(devices: int | Sequence[int], n: int, there: int) -> list[int]:
    """The device of each rank.

    Raises UsageError if they are not as many as ranks, or one is not there.
    """
    found = [devices] * n if isinstance(devices, int) else [int(d) for d in devices]
    if len(found) != n:
        raise UsageError(f"{len(found)} devices, wanted one for each of {n} ranks, or a single number")
    for rank, device in enumerate(found):
        if not 0 <= device < there:
            raise UsageError(f"rank {rank}: there is no device {device}; there are {there}, counted from 0")
    return found


def sites(p: Program, devices: Sequence[int], mine: int | None = None) -> list[Site]:
    """The sites of a program whose ranks are on these devices: of one process, or of one a rank, this one being `mine`."""
    keys = list(devices) if mine is None else list(range(p.n))
    found = []
    for key in sorted(set(keys)):
        ranks = np.flatnonzero(np.array(keys) == key)
        lanes = np.flatnonzero(np.isin(p.lane_rank, ranks))
        counters = np.flatnonzero(np.isin(p.counter_waiter, lanes))
        found.append(Site(devices[int(ranks[0])], mine is None or key == mine, ranks, lanes, counters))
    return found


def lay_out(all_sites: Sequence[Site], p: Program, ready: Plan, shape: Shape, e: Element) -> None:
    """Reserve in every site's arena its tables, counters, scratch and parameter blocks; the same in every process."""
    k = shape.channels
    for site in all_sites:
        add = site.arena.add
        add("starts", 8 * (p.lanes + 1))
        add("moves", ready.moves.nbytes)
        add("operands", ready.operands.nbytes)
        for c in range(k):
            add(f"parts {c}", ready.parts.nbytes)
            add(f"waits {c}", ready.waits.nbytes)
            add(f"signals {c}", ready.signals.nbytes)
            add(f"bases {c}", 8 * 3 * (p.n + 1))  # one more for everybody
        add("blocks", 8 * at.BLOCK_WORDS * len(site.lanes) * k)
        add("local", local_bytes(ready) * len(site.lanes) * k)
        add("counters", at.LINE * len(site.counters) * k)
        add("scratch", scratch_bytes(ready, e) * len(site.ranks) * k)


def local_bytes(ready: Plan) -> int:
    """Bytes of the memory of a lane."""
    return -(-8 * (at.ADDRESSES + ready.most_operands) // at.LINE) * at.LINE


def scratch_bytes(ready: Plan, e: Element) -> int:
    """Bytes of scratch of a rank in one channel."""
    return -(-ready.scratch * e.size // ALIGN) * ALIGN


def scratch_at(all_sites: Sequence[Site], n: int, ready: Plan, shape: Shape, e: Element) -> Ints:
    """Where the scratch of each rank is, by channel; shape (channels, n)."""
    place = np.zeros((shape.channels, n), np.int64)
    for site in all_sites:
        nth = np.arange(shape.channels * len(site.ranks)).reshape(shape.channels, -1)
        place[:, site.ranks] = site.arena.address("scratch") + scratch_bytes(ready, e) * nth
    return place


def fill(
    driver: Driver, all_sites: Sequence[Site], p: Program, ready: Plan, shape: Shape, e: Element, *,
    kinds: Ints, timeout: float, lines: int, second: int = 0,
) -> None:  # fmt: skip
    """Write the tables of the sites that are here. All arenas have their base, and those here are zeroed."""
    place = np.zeros((len(p.counter_total), shape.channels), np.int64)  # address of each counter of each channel
    for site in all_sites:
        nth = np.arange(len(site.counters) * shape.channels).reshape(-1, shape.channels)
        place[site.counters] = site.arena.address("counters") + at.LINE * nth
    for site in all_sites:
        if not site.here:
            continue

        def put(name: str, table: Ints, site: Site = site) -> None:
            if table.size:
                driver.upload(site.device, site.arena.address(name), np.ascontiguousarray(table), site.stream)

        put("starts", p.lane_start.astype(np.int64))
        put("moves", ready.moves)
        put("operands", ready.operands)
        for c in range(shape.channels):
            waits, signals = ready.waits.copy(), ready.signals.copy()
            if len(place):
                waits[:, at.COUNTER] = place[ready.waits[:, at.COUNTER], c] // at.LINE
                signals[:, at.COUNTER] = place[ready.signals[:, at.COUNTER], c] // at.LINE
            run = shape.tiles * ready.tile
            put(f"parts {c}", sliced(ready, c * run, run))
            put(f"waits {c}", waits)
            put(f"signals {c}", signals)
        put("blocks", blocks(site, p, ready, shape, e, kinds=kinds, timeout=timeout, lines=lines, second=second))
        driver.synchronize(site.device, site.stream)


def blocks(
    site: Site, p: Program, ready: Plan, shape: Shape, e: Element, *, kinds: Ints, timeout: float, lines: int, second: int = 0
) -> Ints:  # fmt: skip
    """The parameter block of every block of threads of a site: channel after channel, lane after lane."""
    arena, lanes, local = site.arena, site.lanes, local_bytes(ready)
    table = np.zeros((shape.channels, len(lanes), at.BLOCK_WORDS), np.int64)
    for word, value in (
        (at.ITERATIONS, shape.tiles), (at.TILE, ready.tile), (at.SIZE, e.size), (at.RANKS, p.n),
        (at.LANE_START, arena.address("starts")), (at.MOVES, arena.address("moves")),
        (at.OPERANDS, arena.address("operands")), (at.LOCAL_SIZE, local), (at.TIMEOUT, int(timeout * 1e9)),
        (at.POLLS, POLLS), (at.LINES, lines), (at.LANES, p.lanes), (at.ABSENT, -1), (at.SECOND, second),
    ):  # fmt: skip
        table[:, :, word] = value
    table[:, :, at.INDEX] = lanes
    table[:, :, at.KIND] = kinds[lanes]
    for c in range(shape.channels):
        table[c, :, at.PARTS] = arena.address(f"parts {c}")
        table[c, :, at.WAITS] = arena.address(f"waits {c}")
        table[c, :, at.SIGNALS] = arena.address(f"signals {c}")
        table[c, :, at.BASES] = arena.address(f"bases {c}")
        mine = arena.address("local") + local * (c * len(lanes) + np.arange(len(lanes)))
        table[c, :, at.LOCAL] = mine - local * lanes  # where lane 0 would be
    return table.reshape(-1, at.BLOCK_WORDS)
