"""Which devices touch each other's memory, and whether they can: what the driver says, and then what a test write says."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np

from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.kernels import grid
from algocc.kernels import layout as at
from algocc.kernels.operators import element, operator
from algocc.program import Program
from algocc.runtime.cuda.driver import Driver

TEST_BYTES = 4096

_trusted: weakref.WeakKeyDictionary[Driver, set[tuple[int, int]]] = weakref.WeakKeyDictionary()
"""Pairs of devices whose link has been tried in this process."""


def touching(p: Program) -> list[tuple[int, int]]:
    """Ranks and the peers whose memory, or whose counters, their lanes touch."""
    lane_rank = p.lane_rank.astype(np.int64)
    owner = lane_rank[p.move_lane] if p.moves else np.zeros(0, np.int64)
    pairs = set()
    for start, peer in ((p.src_start, p.src_rank), (p.dst_start, p.dst_rank)):
        pairs |= set(zip(np.repeat(owner, np.diff(start)).tolist(), peer.tolist(), strict=True))
    used = np.unique(np.concatenate([p.wait_counter, p.signal_counter]))
    writer, waiter = lane_rank[p.counter_writer[used]], lane_rank[p.counter_waiter[used]]
    pairs |= set(zip(writer.tolist(), waiter.tolist(), strict=True))
    return sorted(pairs)


def touching_arrays(p: Program) -> bool:
    """Whether some lane reads or writes the input or output of another rank."""
    owner = p.lane_rank[p.move_lane] if p.moves else np.zeros(0, np.int64)
    return any(
        ((peer != np.repeat(owner, np.diff(start))) & (buffer != Buffer.SCRATCH)).any()
        for start, peer, buffer in ((p.src_start, p.src_rank, p.src_buffer), (p.dst_start, p.dst_rank, p.dst_buffer))
    )


def crosses(p: Program, ranks: Sequence[int]) -> bool:
    """Whether some lane touches both memory of these ranks and of others."""
    return any((rank in ranks) != (peer in ranks) for rank, peer in touching(p))


def check_links(p: Program, devices: Sequence[int], driver: Driver) -> None:
    """Raise UsageError unless every device reaches the memory that its lanes touch."""
    for rank, peer in touching(p):
        a, b = devices[rank], devices[peer]
        if not driver.reach(a, b):
            raise UsageError(
                f"program {p.name}: rank {rank} on device {a} touches memory of rank {peer} on device {b}, and there is "
                "no link between them (peer access); use devices that `nvidia-smi topo -p2p r` shows as OK, or another "
                "schedule"
            )
        trusted = _trusted.setdefault(driver, set())
        if a != b and (a, b) not in trusted:
            try_link(driver, a, b)
            trusted |= {(a, b), (b, a)}


def try_link(driver: Driver, a: int, b: int) -> None:
    """Write and read over the link of two devices, both ways, with the kernel that runs Programs.

    `can_access_peer` may say yes where writes get lost, behind some virtual machines and IOMMUs.

    Raises UsageError, naming the pair, if what arrives is not what was sent.
    """
    memory: list[tuple[int, int]] = []
    pattern = np.random.default_rng(a * 64 + b).integers(1, 256, TEST_BYTES).astype(np.uint8)
    back = np.zeros_like(pattern)

    def place(device: int, holds: bool) -> int:
        found = driver.allocate(device, TEST_BYTES)
        memory.append((device, found))
        driver.upload(device, found, pattern if holds else np.zeros_like(pattern), 0)
        return found

    try:
        for here, there in ((a, b), (b, a)):
            for what, source, to, owner in (
                ("writes to", place(here, True), place(there, False), there),
                ("reads from", place(there, True), place(here, False), here),
            ):
                copy_by_kernel(driver, here, to=to, source=source, size=TEST_BYTES)
                driver.download(owner, to, back, 0)
                if not np.array_equal(back, pattern):
                    raise UsageError(
                        f"device {here} {what} device {there} arrive wrong in {int((back != pattern).sum())} of {TEST_BYTES} "
                        "bytes, though the driver says that the devices reach each other (peer access); use other devices, "
                        "or look at ACS and the IOMMU settings"
                    )
    finally:
        for device, address in memory:
            driver.free(device, address)


def copy_by_kernel(driver: Driver, device: int, *, to: int, source: int, size: int) -> None:
    """Copy bytes as a lane does, by one Move of one block of threads; they are there when this returns."""
    key = grid.key_of(operator("sum"), element("uint8"), reduces=False)
    kernel = driver.kernel(device, key)
    operands = [0, 0, 0, 1, 0, 0]  # the bases 0 and 1, not moved on from tile to tile
    move = [0] * at.MOVE_WORDS
    move[at.DESTINATIONS] = move[at.SOURCES] = move[at.PARTS_OF] = 1
    tables = [[0, 1], move, [size, 0, 0], operands, [to, source, 0], [0] * (at.ADDRESSES + 2)]
    words = [at.LANE_START, at.MOVES, at.PARTS, at.OPERANDS, at.BASES, at.LOCAL]
    block = np.zeros(at.BLOCK_WORDS + sum(map(len, tables)), np.int64)
    base = driver.allocate(device, block.nbytes)
    begin = at.BLOCK_WORDS
    for word, table in zip(words, tables, strict=True):
        block[word] = base + 8 * begin
        block[begin : begin + len(table)] = table
        begin += len(table)
    block[at.ITERATIONS], block[at.TILE], block[at.SIZE], block[at.RANKS] = 1, size, 1, 1
    block[at.LOCAL_SIZE], block[at.LANES], block[at.ABSENT] = 8 * (at.ADDRESSES + 2), 1, -1
    try:
        driver.upload(device, base, block, 0)
        driver.launch(device, kernel, 1, 32, base, 0)
        driver.synchronize(device, 0)
    finally:
        driver.free(device, base)
