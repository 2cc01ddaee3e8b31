"""Schedules that share every block among them: side by side, in stripes, in segments one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, lcm

import numpy as np

from algocc.algebra.remap import Part, Places, assemble, check_count, phases, places_of, starts
from algocc.collective import Buffer
from algocc.errors import UsageError
from algocc.table import Schedule


def refine(s: Schedule, k: int) -> Schedule:
    """Chunks → each of them as k chunks, which still travel together.

    Valid when k is at least 1.
    """
    check_count("refine", "k", k)
    s = s.matched()
    c = s.collective.cut(s.collective.chunks * k)
    starts(c, s.scratch * k, f"refine({s.name}, {k})")
    longer = {key: getattr(s, key).astype(np.int64) * k for key in ("chunk", "peer_chunk", "count")}
    return replace(s, collective=c, scratch=s.scratch * k, **longer)


def beside(*schedules: Schedule) -> Schedule:
    """Schedules for one collective → all of them side by side, each on its own parts of every block.

    A block is cut into as many parts as all of them cut it into together, and each takes as many as it has
    chunks, the first ones first. So the share of each is its number of chunks: see `striped` for shares of
    your choice.

    Valid when all do the same.
    """
    return _overlay(f"beside({', '.join(s.name for s in schedules)})", schedules, [0] * len(schedules))


def striped(schedules: Sequence[Schedule], weights: Sequence[int]) -> Schedule:
    """Schedules for one collective → `beside`, with shares of every block in proportion to the weights.

    Valid when all do the same, and there is a weight of 1 or more for each.
    """
    name = f"striped({', '.join(s.name for s in schedules)})"
    if len(weights) != len(schedules):
        raise UsageError(f"{name}: {len(weights)} weights for {len(schedules)} schedules, wanted one each")
    for weight in weights:
        check_count(name, "weight", weight)
    cuts = [s.collective.chunks for s in schedules]
    unit = lcm(*(k // gcd(k, w) for k, w in zip(cuts, weights, strict=True)))
    parts = [refine(s, unit * w // k) for s, k, w in zip(schedules, cuts, weights, strict=True)]
    return replace(beside(*parts), name=name)


def instances(s: Schedule, k: int) -> Schedule:
    """A schedule → k copies of it side by side, each on a k-th of every block: `beside(s, …, s)`.

    Valid when k is at least 1.
    """
    check_count("instances", "k", k)
    return _overlay(f"instances({s.name}, {k})", [s] * k, [0] * k)


def pipelined(s: Schedule, k: int, *, every: int | None = 1) -> Schedule:
    """A schedule → the same on k segments of every block, each starting `every` steps after the last.

    `every=None` takes the shortest interval at which no rank sends or receives more messages in a step than
    it does in the busiest step of the schedule. Local copies at the beginning and the end are done for all
    segments at once.

    Valid for any schedule, k at least 1 and every at least 0, since segments have nothing in common.
    """
    check_count("pipelined", "k", k)
    s = s.matched()
    if every is None:
        every = _interval(s, k)
    check_count("pipelined", "every", every, least=0)
    return _overlay(f"pipelined({s.name}, {k})", [s] * k, [i * every for i in range(k)])


def _interval(s: Schedule, k: int) -> int:
    sent = np.flatnonzero(s.rank != s.peer)
    head, body, _ = phases(s)
    busy = np.zeros((body, 2 * s.n), np.int64)
    np.add.at(busy, (s.step[sent] - head, s.rank[sent]), 1)
    np.add.at(busy, (s.step[sent] - head, s.peer[sent] + s.n), 1)
    for every in range(1, body):
        together = np.zeros((body + (k - 1) * every, 2 * s.n), np.int64)
        for i in range(k):
            together[i * every : i * every + body] += busy
        if together.max() <= busy.max():
            return every
    return max(body, 1)


def _overlay(name: str, schedules: Sequence[Schedule], delays: Sequence[int]) -> Schedule:
    """Each schedule on its own parts of every block, its messages beginning so many steps later."""
    if not schedules:
        raise UsageError(f"{name}: no schedule, wanted at least one")
    schedules = [s.matched() for s in schedules]
    c = schedules[0].collective
    for s in schedules[1:]:
        if not s.collective.same_task(c) or s.collective.idempotent != c.idempotent:
            raise UsageError(
                f"{name}: {s.name} does {s.collective}, {schedules[0].name} does {c}: wanted the same of all"
            )
    chunks = sum(s.collective.chunks for s in schedules)
    spans = [phases(s) for s in schedules]
    opening = max(head for head, _, _ in spans)
    closing = opening + max(delay + body for delay, (_, body, _) in zip(delays, spans, strict=True))
    parts, first, scratch = [], 0, 0
    for s, delay, (head, body, tail) in zip(schedules, delays, spans, strict=True):
        k, p = s.collective.chunks, places_of(s)
        split = p.chunk // k * chunks + first + p.chunk % k
        chunk = np.where(p.buffer == Buffer.SCRATCH, p.chunk + scratch, split)
        steps = [np.arange(head), opening + delay + np.arange(body), closing + np.arange(tail)]
        parts.append(Part(s, Places(p.rank, p.buffer, chunk), np.concatenate(steps)))
        first += k
        scratch += s.scratch
    return assemble(name, c.cut(chunks), scratch, parts)
