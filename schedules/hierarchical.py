"""Hierarchical algorithms: fast links within groups of ranks, as in a node, and slow ones between the groups.

Rank = group number * size + place. The ranks of one place in all groups are a *rail*: where each has its own
network port, messages between groups that stay on a rail use all ports at once and meet no one else's.

Jia et al., "Highly scalable deep learning training system with mixed-precision: training ImageNet in four minutes",
arXiv:1807.11205 (leaders); Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
hierarchy", MLSys 2019 (shards).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from algocc.collective import all_gather, all_reduce, reduce_scatter
from algocc.decorator import require, schedule
from algocc.schedules.all_pairs import from_owners, to_owners
from algocc.schedules.arithmetic import ceil_log, square
from algocc.schedules.circulant import gather_in, hand_out
from algocc.schedules.groups import Place, along
from algocc.schedules.recursive import folded
from algocc.schedules.ring import collect, collected, spread, spread_so_far
from algocc.steps import Rule, Steps


def group_size(n: int, group: int | None) -> int:
    """The size of a group: as given, or the largest divisor of n up to its square root.

    >>> group_size(12, None), group_size(12, 4)
    (3, 4)
    """
    size = int(group or square(n)[0])
    require(size >= 1 and n % size == 0, f"n a multiple of group={size}")
    return size


def levels(n: int, size: int, within: Place, between: Place) -> tuple[Any, Any]:
    """A function for each level that lifts a rule to it: to the ranks of every group, and to every rail."""

    def in_groups(rule: Rule) -> Rule:
        return partial(along, rule=rule, size=size, stride=1, place=within)

    def on_rails(rule: Rule) -> Rule:
        return partial(along, rule=rule, size=n // size, stride=size, place=between)

    return in_groups, on_rails


def shards(n: int, size: int) -> tuple[Any, Any]:
    """AllReduce: shard i, of n / size chunks, belongs to place i of every group, and one chunk of it to each group."""
    groups = n // size

    def shard(rank: Any, chunk: Any, count: Any) -> list[tuple[Any, Any]]:
        return [(chunk * groups, count * groups)]

    def part_of_shard(rank: Any, chunk: Any, count: Any) -> list[tuple[Any, Any]]:
        return [(rank % size * groups + chunk, count)]

    return levels(n, size, shard, part_of_shard)


def columns(n: int, size: int) -> tuple[Any, Any]:
    """ReduceScatter and AllGather: block r belongs to rank r, so the blocks of place i in all groups lie apart."""

    def column(rank: Any, chunk: Any, count: Any) -> list[tuple[Any, Any]]:
        return [(group * size + chunk, count) for group in range(n // size)]

    def one(rank: Any, chunk: Any, count: Any) -> list[tuple[Any, Any]]:
        return [(chunk * size + rank % size, count)]

    return levels(n, size, column, one)


@schedule(
    collective="all_reduce",
    takes="n a multiple of group",
    steps="2*(group_size(n, group) > 1) + 2*(n/group_size(n, group) - 1)",
    sent="2*(n - 1)/n",
)
def hierarchical_all_reduce(n: int, group: int | None = None) -> Steps:
    """Hierarchical AllReduce: ReduceScatter within groups, ring AllReduce of each shard between them, AllGather.

    group: ranks of a group; if not given, the largest divisor of n up to its square root.
    Within a group all pairs talk in one step. Only 2(n/group - 1)/n of the vector leave a rank for another group.
    """
    size = group_size(n, group)
    in_groups, on_rails = shards(n, size)
    s = Steps(all_reduce(n, chunks=n))
    s.rule(in_groups(to_owners), steps=int(size > 1))
    s.rule(on_rails(collect), steps=n // size - 1, action="reduce")
    s.rule(on_rails(spread), steps=n // size - 1)
    s.rule(in_groups(from_owners), steps=int(size > 1))
    return s


@schedule(
    collective="all_reduce",
    takes="n a multiple of group",
    steps="2*(group_size(n, group) > 1) + 2*ceil_log(n/group_size(n, group))",
    sent="2*(n - 1)/n",
)
def rail_aligned_all_reduce(n: int, group: int | None = None) -> Steps:
    """Rail-aligned AllReduce: as the hierarchical one, with a circulant graph on each rail in place of a ring.

    A rail is one switch away from all of its ranks, so logarithmic steps between groups cost nothing in volume.
    """
    size = group_size(n, group)
    in_groups, on_rails = shards(n, size)
    s = Steps(all_reduce(n, chunks=n))
    s.rule(in_groups(to_owners), steps=int(size > 1))
    s.rule(on_rails(gather_in), steps=ceil_log(n // size), action="reduce")
    s.rule(on_rails(hand_out), steps=ceil_log(n // size))
    s.rule(in_groups(from_owners), steps=int(size > 1))
    return s


@schedule(
    collective="all_reduce",
    takes="n a multiple of group",
    steps="2*(group_size(n, group) > 1) + 2*(n/group_size(n, group) - 1)",
    sent="group_size(n, group) - 1 + 2*(1 - group_size(n, group)/n)",
)
def leader_all_reduce(n: int, group: int | None = None) -> Steps:
    """Leader AllReduce: every group reduces to its first rank, the leaders do a ring AllReduce, and broadcast it.

    For one network port a group. The leader sends the whole vector to its group: 2m - 2m·group/n between groups,
    (group - 1)m within.
    """
    size = group_size(n, group)
    leaders = n // size
    s = Steps(all_reduce(n, chunks=leaders))
    return folded(s, leaders, (collect, leaders - 1, "reduce", collected), (spread, leaders - 1, "copy", spread_so_far))


@schedule(
    collective="reduce_scatter",
    takes="n a multiple of group",
    steps="(group_size(n, group) > 1) + n/group_size(n, group) - 1",
    sent="(n - 1)/n",
)
def hierarchical_reduce_scatter(n: int, group: int | None = None) -> Steps:
    """Hierarchical ReduceScatter: first within groups, all pairs at once, then a ring on each rail.

    group: ranks of a group; if not given, the largest divisor of n up to its square root.
    """
    size = group_size(n, group)
    in_groups, on_rails = columns(n, size)
    s = Steps(reduce_scatter(n))
    s.rule(in_groups(to_owners), steps=int(size > 1))
    s.rule(on_rails(collect), steps=n // size - 1, action="reduce")
    return s


@schedule(
    collective="all_gather",
    takes="n a multiple of group",
    steps="(group_size(n, group) > 1) + n/group_size(n, group) - 1",
    sent="(n - 1)/n",
)
def hierarchical_all_gather(n: int, group: int | None = None) -> Steps:
    """Hierarchical AllGather: a ring on each rail, then all pairs within each group.

    group: ranks of a group; if not given, the largest divisor of n up to its square root.
    """
    size = group_size(n, group)
    in_groups, on_rails = columns(n, size)
    s = Steps(all_gather(n))
    s.rule(on_rails(spread), steps=n // size - 1)
    s.rule(in_groups(from_owners), steps=int(size > 1))
    return s
