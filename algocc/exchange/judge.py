"""The verdict on a file: the Report that a schedule gets, and what only a file has: slots, notes, unequal sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.exchange.tasks import Cell, Message, Work, topological
from algocc.exchange.values import NOTHING, Values
from algocc.place import Place
from algocc.program import Program
from algocc.table import Failure, chunk_name
from algocc.verifier import Report, summary, verify_program
from algocc.verifier.explain import MOST_VALUES, input_of, spell, who
from algocc.verifier.report import bounds_of


@dataclass(frozen=True)
class Verdict:
    """What holds of a file in one mode.

    report: as of a schedule; `steps` are rounds of messages that need one another.
    slots: of each connection, 0 where the format has none. least_slots: fewest that do, None if none will.
    unequal: output chunks that all ranks should hold alike, but add up in different orders: other bits on
        other ranks, though each is a right sum.
    notes: what the import assumed.
    """

    report: Report
    slots: int
    least_slots: int | None
    unequal: int
    notes: tuple[str, ...]

    @property
    def correct(self) -> bool:
        """The report's verdict."""
        return self.report.correct

    def to_json(self) -> dict[str, Any]:
        """The report's JSON, and the rest beside it."""
        return self.report.to_json() | {
            "slots": self.slots,
            "least_slots": self.least_slots,
            "unequal": self.unequal,
            "notes": list(self.notes),
        }


RESTATED = ("does not hold", "is not divided exactly once", "deadlock")
"""What a Program's failures begin with that are told in the file's own terms; a wrong sum has no average either."""


def fault_failures(faults: list[tuple[int, str, str, Any]]) -> list[Failure]:
    """Faults of form as the failures of a report."""
    return [Failure("form", None, rank, None, found, wanted, str(at)) for rank, found, wanted, at in faults]


def judge(
    work: Work, values: Values | None, program: Program | None, c: Collective, *, name: str, in_place: bool,
    idempotent: bool = False, most: int = 20,
) -> tuple[Report, int]:  # fmt: skip
    """The Report on settled tasks and their Program, and the number of unequal output chunks."""
    failures = fault_failures(work.faults + work.ambiguous)
    facts: dict[str, Any] = {
        "schedule": name, "collective": c.name, "n": c.n, "chunks": c.chunks, "in_place": in_place,
    }  # fmt: skip
    facts |= _volumes(work, c)
    unequal = 0
    if program is not None and values is not None:
        checked = verify_program(replace(program, collective=equal_chunks(c)), idempotent=idempotent, most=most)
        facts["program"] = checked
        failures += circles(work)
        failures += [f for f in checked.failures if not f.found.startswith(RESTATED)]
        if checked.deadlock_free and checked.outcome is not None:
            outcome = checked.outcome
            wrong = wrong_outputs(values, c, idempotent=idempotent)
            failures += _explained(work, values, c, wrong, most)
            facts["wrong"] = int((outcome.wrong < int(c.outputs.sum()) * c.chunks).sum())
            facts["needs_commutative"] = c.reduces and not outcome.ordered
            facts["needs_idempotent"] = outcome.idempotent and outcome.sets_right
            facts["depth"] = outcome.depth
            sums = {(rank, chunk_name(Buffer.OUTPUT, chunk)) for rank, chunk in wrong}
            failures += [
                f for f in checked.failures if f.found.startswith(RESTATED[1]) and (f.rank, f.chunk) not in sums
            ]
            if checked.correct and not wrong:
                unequal = len(unequal_outputs(values, c))
    return Report(**facts, correct=not failures, failures=failures[:most]), unequal


def equal_chunks(c: Collective) -> Collective:
    """The same with each chunk a block of its own: files of other tools know only chunks of equal length."""
    k = c.chunks
    part = np.arange(k)

    def spread(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        return (np.asarray(blocks)[:, None] * k + part).ravel()

    lengths = np.diff(c.set_start)
    items = [spread(c.set_items[a:b]).reshape(-1, k).T.ravel() for a, b in pairwise(c.set_start.tolist())]
    rank, i, o = c.alias.T
    return replace(
        c,
        inputs=c.inputs * k,
        outputs=c.outputs * k,
        want=spread(c.want),
        set_start=np.concatenate([[0], np.cumsum(np.repeat(lengths, k))]),
        set_items=np.concatenate([np.zeros(0, np.int64), *items]),
        alias=np.stack([np.repeat(rank, k), spread(i), spread(o)], axis=1),
        load=np.zeros((0, 3), np.int64),
        store=np.zeros((0, 3), np.int64),
        sizes=np.repeat(c.sizes, k),
        chunks=1,
    )


def misfits(work: Work, values: Values, c: Collective, *, copies: bool = True) -> Place | None:
    """Where a chunk is first added to one that may be longer or shorter, or with `copies` takes its place in an output.

    Parts of a block differ by an element where their number does not divide it.
    """

    def part(v: int) -> int:
        return values.like[v] % c.chunks

    for t, task in enumerate(work.tasks):
        for i, (read, made) in enumerate(zip(values.read[t], values.made[t], strict=True)):
            if len({part(v) for v in read if v != NOTHING}) > 1:
                return task.place
            for _, b, chunk in task.dsts if copies else ():
                if b == Buffer.OUTPUT and made != NOTHING and part(made) != (chunk + i) % c.chunks:
                    return task.place
    return None


def circles(work: Work) -> list[Failure]:
    """A failure for each circle of lanes that wait for each other."""
    stuck = set(range(len(work.tasks))) - set(topological(work))
    lane_of = {t: i for i, lane in enumerate(work.lanes) for t in lane}
    front = {i: next(t for t in lane if t in stuck) for i, lane in enumerate(work.lanes) if stuck & set(lane)}
    waits: dict[int, tuple[int, str]] = {}
    for e in work.edges:
        if e.before in stuck and e.after in stuck and front[lane_of[e.after]] == e.after:
            waits[lane_of[e.after]] = e.before, "waits for room from" if e.credit else "waits for"
    failures = []
    seen: set[int] = set()
    for lane in front:
        path = []
        while lane not in seen:
            seen.add(lane)
            path.append(lane)
            lane = lane_of[waits[lane][0]]
        if lane not in path:
            continue
        circle = path[path.index(lane) :]
        text = ", which ".join(_wait_text(work, front, lane_of, *waits[k]) for k in circle)
        at = work.tasks[front[circle[0]]]
        found = f"deadlock: {at.place.what} {text} again"
        rank = work.lane_rank[circle[0]]
        failures.append(Failure("program", at.step, rank, None, found, "no circle of waits", str(at.place)))
    return failures


def _wait_text(work: Work, front: dict[int, int], lane_of: dict[int, int], before: int, how: str) -> str:
    first = front[lane_of[before]]
    behind = "" if first == before else f", which comes after {work.tasks[first].place.what}"
    return f"{how} {work.tasks[before].place.what}{behind}"


def _volumes(work: Work, c: Collective) -> dict[str, Any]:
    """Steps, messages and volumes; the busiest rank as a fraction of the full vector."""
    sent, received, reduced = (np.zeros(c.n + 1, np.int64) for _ in range(3))  # a switch is the last
    peers: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    together: Counter[tuple[int, int, int]] = Counter()
    messages = rounds_of(work)
    for m, r in messages:
        together[r, m.src, m.dst] += m.size
        sent[m.src] += m.size
        received[m.dst] += m.size
        peers["out", r, m.src].add(m.dst)
        peers["in", r, m.dst].add(m.src)
    for rank, lane in zip(work.lane_rank, work.lanes, strict=True):
        reduced[rank] += sum(work.tasks[t].count * max(0, len(work.tasks[t].srcs) - 1) for t in lane)
    whole = max(1, c.vector * c.chunks)
    unit = int(c.sizes[0]) if len(c.sizes) else 1
    ports = max((len(to) for (_, _, rank), to in peers.items() if rank >= 0), default=0)
    switched = any(min(m.src, m.dst) < 0 for m, _ in messages)
    return {
        "steps": len({r for _, r in messages}),
        "transfers": len(messages),
        "ports": ports,
        "sent_max": Fraction(int(sent[:-1].max(initial=0)) * unit, whole),
        "received_max": Fraction(int(received[:-1].max(initial=0)) * unit, whole),
        "reduced_max": Fraction(int(reduced.max(initial=0)) * unit, whole),
        **({} if switched else bounds_of(c, ports, max(together.values(), default=0) * unit)),
    }


def rounds_of(work: Work) -> list[tuple[Message, int]]:
    """Each message with its round: the file's own numbers if they can be, else the earliest.

    What a task fetches comes a round before what it sends on.
    """
    order = topological(work)
    if _named(work, order):
        return [(m, m.round) for task in work.tasks for m in task.messages]
    rank = [0] * len(work.tasks)
    before: list[list[int]] = [[] for _ in work.tasks]
    for r, lane in zip(work.lane_rank, work.lanes, strict=True):
        for t in lane:
            rank[t] = r
        for a, b in pairwise(lane):
            before[b].append(a)
    for e in work.edges:
        if not e.credit:
            before[e.after].append(e.before)
    after = [0] * len(work.tasks)
    out = []
    for t in order:
        after[t] = max((after[b] for b in before[t]), default=0)
        messages = work.tasks[t].messages
        for way in (
            [m for m in messages if is_fetched(m, rank[t])],
            [m for m in messages if not is_fetched(m, rank[t])],
        ):
            out += [(m, after[t]) for m in way]
            after[t] += bool(way)
    return out


def is_fetched(m: Message, rank: int) -> bool:
    """Whether a message of a task of `rank` comes to it, rather than going from it."""
    return m.dst == rank and m.src != rank


def _named(work: Work, order: list[int]) -> bool:
    """Whether the file numbers its rounds, and each message comes in a later one than those its data came in."""
    arrived: dict[Cell, int] = {}
    for t in order:
        task = work.tasks[t]
        reads = [(r, b, chunk + i) for r, b, chunk in task.srcs for i in range(task.count)]
        least = max((arrived.get(cell, 0) for cell in reads), default=0)
        for m in task.messages:  # a rank may add what it fetches to what came in the same round
            of = [cell for cell in reads if cell[0] == m.src]
            if m.round < max((arrived.get(cell, 0) for cell in of), default=least):
                return False
        goes = {m.dst: m.round + 1 for m in task.messages}
        for r, b, chunk in task.dsts:
            arrived |= {(r, b, chunk + i): goes.get(r, least) for i in range(task.count)}
    return True


def wanted_inputs(c: Collective, rank: int, chunk: int) -> Counter[int]:
    """How often each input chunk, counted through all ranks, must be in an output chunk."""
    s = c.want[c.output_start[rank] + chunk // c.chunks]
    items = c.set_items[c.set_start[s] : c.set_start[s + 1]]
    return Counter((items * c.chunks + chunk % c.chunks).tolist())


def wrong_outputs(values: Values, c: Collective, *, idempotent: bool = False) -> list[tuple[int, int]]:
    """The (rank, output chunk) that do not hold what they should, in the order that was played."""
    wrong = []
    right: dict[tuple[int, int, int], bool] = {}
    idempotent = idempotent or c.idempotent
    for rank in range(c.n):
        for chunk in range(c.size(Buffer.OUTPUT, rank)):
            v = values.held.get((rank, int(Buffer.OUTPUT), chunk), NOTHING)
            key = (v, int(c.want[c.output_start[rank] + chunk // c.chunks]), chunk % c.chunks)
            if key not in right:
                right[key] = _is_right(values, v, wanted_inputs(c, rank, chunk), idempotent=idempotent)
            if not right[key]:
                wrong.append((rank, chunk))
    return wrong


def _is_right(values: Values, v: int, want: Counter[int], *, idempotent: bool) -> bool:
    """Whether a value holds each contribution as often as it is wanted; if `idempotent`, as often as it likes."""
    if v == NOTHING:
        return not want
    total = want.total()
    if values.weight[v] != total and not idempotent:
        return False
    held = values.contributions(v, most=max(MOST_VALUES, 2 * total))  # a right sum has fewer than twice `total` values
    return held is not None and (held.keys() == want.keys() if idempotent else held == want)


def unequal_outputs(values: Values, c: Collective) -> list[tuple[int, int]]:
    """The (set, part) that several outputs should hold alike and that are added up in more than one order."""
    orders: dict[tuple[int, int], set[int]] = defaultdict(set)
    for rank in range(c.n):
        for chunk in range(c.size(Buffer.OUTPUT, rank)):
            s = int(c.want[c.output_start[rank] + chunk // c.chunks])
            orders[s, chunk % c.chunks].add(values.held.get((rank, int(Buffer.OUTPUT), chunk), NOTHING))
    return sorted(key for key, found in orders.items() if len(found) > 1)


def _explained(work: Work, values: Values, c: Collective, wrong: list[tuple[int, int]], most: int) -> list[Failure]:
    """A failure for each of the first wrong outputs: what it holds, what it should, who wrote it last."""
    failures = []
    for rank, chunk in wrong[:most]:
        cell = (rank, int(Buffer.OUTPUT), chunk)
        v, writer = values.held.get(cell, NOTHING), values.writer.get(cell)
        task = work.tasks[writer] if writer is not None else None
        want = _items(c, wanted_inputs(c, rank, chunk))
        wanted = spell(want, want)
        if v == NOTHING:
            found = "was never written" if task is None else "was written with what nobody had written"
        else:
            inputs = values.contributions(v)
            if inputs is None:
                found = f"holds the wrong contributions, through more than {MOST_VALUES} reductions"
            else:
                held = _items(c, inputs)
                found, wanted = f"holds {spell(held, want)}", spell(want, want + held)
                extra = next((i for i, k in inputs.items() if k > max(1, want[input_of(c, i)])), None)
                if extra is not None:
                    task = work.tasks[values.added_twice(v, extra)]
                    found += f": {who(input_of(c, extra), want)} is added twice, at {task.place.what}"
                if held.keys() == want.keys():
                    wanted += "; valid for idempotent operators (max, min, and, or) only"
        failures.append(
            Failure(
                "data", task.step if task else None, rank, chunk_name(Buffer.OUTPUT, chunk), found, wanted,
                str(task.place) if task else None,
            )
        )  # fmt: skip
    return failures


def _items(c: Collective, inputs: Counter[int]) -> Counter[tuple[int, int]]:
    """Input chunks as (rank, chunk of it)."""
    return Counter({input_of(c, i): k for i, k in inputs.items()})


def verdict_text(v: Verdict) -> str:
    """The verdict in a few plain lines: the report's, and those that only a file has."""
    lines = [summary(v.report)]
    if v.slots:
        need = "no number of slots will do" if v.least_slots is None else f"runs with {v.least_slots} or more"
        lines.append(f"  slots       {v.slots} a connection; {need}")
    if v.unequal:
        lines.append(
            f"  bits        {v.unequal} output chunks are added up in another order on each rank: bits may differ"
        )
    return "\n".join(lines + [f"  note        {note}" for note in v.notes])
