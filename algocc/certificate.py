"""A certificate: a JSON value with which `proofs/check.py` confirms what `verify` says, without trusting algocc.

It holds the schedule, what the collective demands, what each step establishes, the claims, and for each lower bound
the theorem of `proofs/` that gives it with its instance. `docs/certificate-format.md` says what each key means. The
numbers of the bounds are those of `algocc.bounds`; the checker derives them again from what is demanded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from algocc.bounds import Bound
from algocc.collective import Buffer, Collective
from algocc.errors import ScheduleError
from algocc.table import COLUMNS, Action, Schedule
from algocc.verifier import Report, verify

FORMAT, VERSION = "algocc-certificate", 1
MEASURES = ("steps", "sent_max", "received_max", "reduced_max")
MOST_CONTRIBUTIONS = 1 << 20
"""Contributions in all values of the longest invariant that a certificate spells out."""

Place = tuple[int, int, int]
Content = tuple[int, ...]


def certify(s: Schedule, *, in_place: bool = False) -> dict[str, Any]:
    """The certificate of a correct schedule.

    Raises ScheduleError if it is wrong, UsageError if it has no in-place form.

    >>> from algocc.schedules.ring import ring
    >>> bound = certify(ring(4))["bounds"]["sent_max"]
    >>> bound["at_least"], bound["theorem"], bound["instance"]
    ('3/2', 'VolumeBounds.all_reduce_volume', {'ranks': 4, 'chunks': 4})
    """
    report = verify(s, in_place=in_place, program=False)
    if not report.correct:
        raise ScheduleError(f"{s.name} is wrong, so there is nothing to certify: {report.failures[0]}")
    return describe(s, report)


def describe(s: Schedule, report: Report) -> dict[str, Any]:
    """What a report says of a schedule of good form, as a certificate, true or not."""
    s, c = _plain(s.canonical()), s.collective
    alias = c.alias.tolist() if report.in_place else []
    return {
        "format": FORMAT,
        "version": VERSION,
        "collective": {
            "name": c.name,
            "chunks": c.chunks,
            "idempotent": c.idempotent,
            "inputs": _by_rank(c.sizes, c.input_start),
            "outputs": _by_rank(c.want, c.output_start),
            "sets": [list(map(list, items)) for items in _sets(c)],
            "alias": alias,
        },
        "schedule": {"name": s.name, "columns": {k: v.tolist() for k, v in s.columns.items() if k != "origin"}},
        "claims": {
            "mode": "in place" if report.in_place else "out of place",
            "correct": report.correct,
            "needs_commutative": report.needs_commutative,
            "needs_idempotent": report.needs_idempotent and c.idempotent,
            "steps": report.steps,
            "transfers": report.transfers,
            "ports": report.ports,
            "scratch": _scratch(s),
            "sent_max": str(report.sent_max),
            "received_max": str(report.received_max),
            "reduced_max": str(report.reduced_max),
            "bandwidth_optimal": report.bandwidth_optimal or not max(report.sent_max, report.received_max),
            "step_optimal": report.step_optimal or not report.steps,
        },
        "bounds": _bounds(c, report),
        "invariant": _invariant(s, in_place=report.in_place),
    }


def dumps(certificate: dict[str, Any]) -> str:
    """A certificate as text: a key of each part on a line."""

    def lines(value: Any, indent: str) -> str:
        if not isinstance(value, dict) or indent == "    " and "theorem" in value:
            return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else json.dumps(value)
        body = ",\n".join(f"{indent}  {json.dumps(k)}: {lines(v, indent + '  ')}" for k, v in value.items())
        return f"{{\n{body}\n{indent}}}"

    return lines(certificate, "") + "\n"


def _plain(s: Schedule) -> Schedule:
    """Steps without rows left out, so that the others are numbered from 0 without gaps."""
    step = np.unique(s.step, return_inverse=True)[1]
    return Schedule(s.name, s.collective, s.scratch, **(s.columns | {"step": step.astype(s.step.dtype)}))


def _by_rank(blocks: Any, start: Any) -> list[list[int]]:
    return [blocks[a:b].tolist() for a, b in zip(start[:-1], start[1:], strict=True)]


def _sets(c: Collective) -> list[list[tuple[int, int]]]:
    """The sets of a collective as (rank, input block), sorted."""
    ranks = np.searchsorted(c.input_start, c.set_items, side="right") - 1
    items = list(zip(ranks.tolist(), (c.set_items - c.input_start[ranks]).tolist(), strict=True))
    return [sorted(items[a:b]) for a, b in pairwise(c.set_start.tolist())]


def _scratch(s: Schedule) -> int:
    """Chunks of scratch that the schedule touches on some rank, up to the last one."""
    ends = [(s.chunk + s.count)[s.buffer == Buffer.SCRATCH], (s.peer_chunk + s.count)[s.peer_buffer == Buffer.SCRATCH]]
    return int(np.concatenate(ends).max(initial=0))


def _bounds(c: Collective, report: Report) -> dict[str, Any]:
    """For each measure the number in the report, the theorem behind it and its instance; None for a number of 0."""
    b = report.bound
    if b is None:
        return dict.fromkeys(MEASURES)
    numbers = {"steps": b.rounds, "sent_max": b.sent, "received_max": b.received, "reduced_max": b.reduced}
    reasons = _of_reductions(c, b) if c.reduces else _of_moves(c, b)
    return {
        measure: {"at_least": str(number), **reasons[measure]} if number else None for measure, number in numbers.items()
    }


def _of_moves(c: Collective, b: Bound) -> dict[str, Any]:
    """Every output is one block: what the busiest rank holds for others, or lacks."""
    moved = np.zeros((c.n, c.n), np.int64)  # units from rank to rank
    source = np.searchsorted(c.input_start, c.set_items[c.set_start[c.want]], side="right") - 1
    np.add.at(moved, (source, np.repeat(np.arange(c.n), c.outputs)), c.output_sizes)
    np.fill_diagonal(moved, 0)
    out, into = moved.sum(1), moved.sum(0)
    peers_out, peers_into = np.count_nonzero(moved, 1), np.count_nonzero(moved, 0)
    if peers_into.max() >= peers_out.max():
        steps = _rounds("all_to_one_rounds", int(peers_into.argmax()), int(peers_into.max()) + 1, b)
    else:
        steps = _rounds("informed_ranks", int(peers_out.argmax()), int(peers_out.max()) + 1, b)
    received = _must(c, "receive_inputs", b.received, int(into.argmax()))
    spread = c.name == "all_gather"  # each input is sent to many, so only all ranks together say how much is sent
    sent = _must(c, "receive_inputs", b.sent, None) if spread else _must(c, "send_inputs", b.sent, int(out.argmax()))
    return {"steps": steps, "sent_max": sent, "received_max": received, "reduced_max": None}


def _of_reductions(c: Collective, b: Bound) -> dict[str, Any]:
    """Some outputs are reductions: over all ranks, in Exscan over all but the last."""
    ranks = c.n - (c.name == "exscan")
    last = int(np.flatnonzero(c.outputs)[-1])  # the root of Reduce; it depends on every rank in any case
    first = int(last == 0)
    if c.name in ("all_reduce", "barrier"):
        instance = {"ranks": ranks, "chunks": c.vector * c.chunks}
        sent = received = {"theorem": "VolumeBounds.all_reduce_volume", "instance": instance}
    elif c.name == "reduce_scatter":
        sent = _must(c, "send_chunks", b.sent, first, ranks=ranks)
        received = _must(c, "send_chunks", b.received, None, ranks=ranks)
    else:
        sent = _must(c, "send_chunks", b.sent, first, ranks=ranks)
        received = _must(c, "receive_chunks", b.received, last, ranks=ranks)
    chunks = int(b.reduced_total * c.vector * c.chunks) // (ranks - 1)
    work = {"theorem": "WorkBounds.reduction_work", "instance": {"ranks": ranks, "chunks": chunks}}
    return {"steps": _rounds("all_to_one_rounds", last, c.n, b), "sent_max": sent, "received_max": received, "reduced_max": work}


def _must(c: Collective, what: str, share: Fraction, rank: int | None, **ranks: int) -> dict[str, Any]:
    """What a rank must send or receive; without a rank, what all must together."""
    count = int(share * c.vector * c.chunks * (c.n if rank is None else 1))
    return {"theorem": f"VolumeBounds.must_{what}", "instance": {**ranks, "rank": rank, what.split("_")[1]: count}}


def _rounds(theorem: str, rank: int, ranks: int, b: Bound) -> dict[str, Any]:
    """The rounds in which a rank can come to depend on so many ranks, or they on it."""
    return {"theorem": f"Rounds.{theorem}", "instance": {"rank": rank, "ranks": ranks, "ports": b.ports}}


def _invariant(s: Schedule, *, in_place: bool = False, most: int = MOST_CONTRIBUTIONS) -> dict[str, Any] | None:
    """What each place that a step writes holds after it, for a matched schedule.

    values: the distinct multisets: an earlier one, or None, and the input chunks, counted through all ranks, that it
        has besides. steps: for each step the values of the places written, by rank, buffer and chunk.
    None if the values have more than `most` contributions together, or something is read that was never written.
    """
    c = s.collective
    same, held = dict[Place, Place](), dict[Place, Content]()
    for rank, i, o in c.alias.tolist() if in_place else ():
        same |= {(rank, 0, i * c.chunks + j): (rank, 1, o * c.chunks + j) for j in range(c.chunks)}
    for rank, first in enumerate((c.input_start[:-1] * c.chunks).tolist()):
        for chunk in range(c.size(Buffer.INPUT, rank)):
            place = (rank, 0, chunk)
            held[same.get(place, place)] = (first + chunk,)
    values, number, total = list[list[int | None]](), dict[Content, int](), 0
    steps = []
    for rows in _steps(s):
        read = [
            (action, (*there[:2], there[2] + i), held.get(same.get(place := (*here[:2], here[2] + i), place)))
            for action, here, there, count in rows
            for i in range(count)
        ]
        part: dict[Place, Content] = {}  # the largest known one of what was reduced into each place
        for action, place, value in read:
            old = held.get(place) if action != Action.COPY else ()
            if value is None or old is None:
                return None
            held[place] = tuple(sorted(old + value))
            part[place] = max((p for p in (part.get(place, ()), old, value) if p in number), key=len, default=())
        for place in sorted(part):
            content = held[place]
            if content not in number:
                more = Counter(content) - Counter(part[place])
                values.append([number.get(part[place]), *sorted(more.elements())])
                number[content] = len(number)
                total += len(content)
        if total > most:
            return None
        steps.append([number[held[place]] for place in sorted(part)])
    return {"values": values, "steps": steps}


def _steps(s: Schedule) -> Iterator[list[tuple[int, Place, Place, int]]]:
    """The transfers of each step: action, source, destination, count."""
    table = zip(*(s.columns[name].tolist() for name in COLUMNS if name != "origin"), strict=True)
    for _, rows in groupby(table, key=lambda row: row[0]):
        yield [
            (action, (rank, buffer, chunk), (peer, peer_buffer, peer_chunk), count)
            for _, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count in rows
        ]
