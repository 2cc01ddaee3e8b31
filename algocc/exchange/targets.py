"""Who reads the files we write, and how much they take: a table of limits, and the check against it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from algocc.errors import UsageError, near
from algocc.exchange.msccl import Algo

MANY = 1 << 60
MOST_SHOWN = 5


class Target(NamedTuple):
    """A runtime of MSCCL XML.

    steps: of a threadblock. blocks: threadblocks of a rank. depends: highest threadblock that `depid` can name.
    scatter: how it spells ReduceScatter.
    """

    steps: int
    blocks: int
    depends: int
    scatter: str = "reducescatter"
    channel_blocks: int = 32
    channels: int = 32
    elements: int = 4096
    children: int = 1024
    chunks: int = 71
    slots: int = 8


TARGETS = {
    "rccl": Target(steps=64, blocks=64, depends=63),
    "msccl-executor": Target(steps=64, blocks=1024, depends=127),
    "msccl": Target(steps=256, blocks=216, depends=215, scatter="reduce_scatter"),
    "none": Target(MANY, MANY, MANY, channel_blocks=MANY, elements=MANY, children=MANY, chunks=MANY, slots=MANY),
}
"""Runtimes by name; `none` has no limits, for files that only algocc will read."""


def target(name: str) -> Target:
    """The target called `name`."""
    if name not in TARGETS:
        raise UsageError(f"unknown target {name!r}{near(name, TARGETS)}; known: {', '.join(TARGETS)}")
    return TARGETS[name]


def exceeded(algo: Algo, t: Target) -> list[str]:
    """Each limit of the target that the algorithm exceeds: where, how much, and what would help."""
    out = []

    def check(where: str, found: int, most: int, what: str, mend: str) -> None:
        if found > most:
            out.append(f"{where}: {found} {what}, the target takes {most}; {mend}")

    elements = 1
    fewer_blocks = "use fewer peers a rank, or fewer channels"
    fewer_steps = "use fewer chunks or ranks, more channels, or an algorithm of fewer steps"
    check("algo", len(algo.gpus), t.children, "ranks", "use fewer ranks")
    for rank, gpu in enumerate(algo.gpus):
        check(f"rank {rank}", len(gpu.blocks), t.blocks, "threadblocks", fewer_blocks)
        elements += 1 + len(gpu.blocks)
        on_channel = Counter(b.channel for b in gpu.blocks)
        for channel, blocks in sorted(on_channel.items()):
            check(f"rank {rank} channel {channel}", blocks, t.channel_blocks, "threadblocks", "use more channels")
        check(f"rank {rank}", max(on_channel, default=0) + 1, t.channels, "channels", "use fewer channels")
        for i, block in enumerate(gpu.blocks):
            elements += len(block.steps)
            check(f"rank {rank} threadblock {i}", len(block.steps), t.steps, "steps", fewer_steps)
            for j, step in enumerate(block.steps):
                where = f"rank {rank} threadblock {i} step {j}"
                check(where, step.count, t.chunks, "chunks at once", "use fewer chunks a block")
                if step.depends:
                    most = t.depends
                    check(where, step.depends[0], most, "as the threadblock it depends on", fewer_blocks)
    check("algo", elements, t.elements, "XML elements", fewer_steps)
    return out


def refuse(name: str, to: str, problems: list[str]) -> None:
    """Raise the UsageError that says what of a schedule is beyond a target, if anything is."""
    if problems:
        more = f" (and {len(problems) - MOST_SHOWN} more)" if len(problems) > MOST_SHOWN else ""
        raise UsageError(f"{name}: beyond the limits of {to}: " + "; ".join(problems[:MOST_SHOWN]) + more)
