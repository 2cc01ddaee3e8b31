"""The verdict on a schedule: is it right, what does it cost, what could no schedule beat, with reasons."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np

from algocc.bounds import Bound, bound
from algocc.collective import COLLECTIVES, Collective
from algocc.collective import collective as built_in
from algocc.errors import UsageError, counted, near
from algocc.lowering import lower
from algocc.program import Program
from algocc.table import Failure, Schedule, form_failures, layout
from algocc.verifier.dataflow import judge, trace
from algocc.verifier.explain import explain, explain_trouble
from algocc.verifier.interleavings import ProgramReport, verify_program
from algocc.verifier.order import Order, order, order_text

IDEMPOTENT = ("max", "min", "land", "lor", "band", "bor")
"""Operators that do not mind a contribution added twice."""
OPERATORS = ("sum", "prod", "avg", "lxor", "bxor", *IDEMPOTENT)


def is_idempotent(op: str | None) -> bool:
    """Whether an operator does not mind a contribution added twice; no operator in particular does mind.

    Raises UsageError for an unknown operator.

    >>> is_idempotent("max"), is_idempotent("sum"), is_idempotent(None)
    (True, False, False)
    """
    if op is not None and op not in OPERATORS:
        raise UsageError(f"unknown operator {op!r}{near(op, OPERATORS)}; known: {', '.join(OPERATORS)}")
    return op in IDEMPOTENT


@dataclass(frozen=True)
class Report:
    """What holds of a schedule, in one mode (in place or out of place).

    schedule, collective, n, chunks: what was verified; chunks are parts of each block.
    correct: every output holds exactly what it must, and nothing races, in the schedule and in its Program.
    failures: why not, the first ones; `wrong` counts the output chunks that are wrong.
    steps: steps in which a message is sent; copies within a rank are free.
    transfers: messages between ranks.
    ports: most peers that a rank sends to, or receives from, in one step.
    sent_max, received_max, reduced_max: the busiest rank, as a fraction of the full vector m.
    bound: what no schedule with as many ports can beat, None for a collective of your own.
    needs_commutative: contributions are not combined in rank order.
    needs_idempotent: a contribution is combined twice; right for max, min, and, or only.
    depth: most reductions in a row behind an output.
    program: the same for the lowered Program; None if it was not asked for, or the schedule is wrong.
    order: in what order contributions are combined; None if it was not asked for, or the schedule is wrong.
    order_text: the same in words.
    """

    schedule: str
    collective: str
    n: int
    chunks: int
    in_place: bool
    correct: bool
    failures: list[Failure]
    wrong: int = 0
    steps: int = 0
    transfers: int = 0
    ports: int = 0
    sent_max: Fraction = Fraction(0)
    received_max: Fraction = Fraction(0)
    reduced_max: Fraction = Fraction(0)
    message_max: Fraction = Fraction(0)
    bound: Bound | None = None
    bound_in_messages: Bound | None = None
    needs_commutative: bool = False
    needs_idempotent: bool = False
    depth: int = 0
    program: ProgramReport | None = None
    order: Order | None = None
    order_text: str = field(default="", repr=False)

    @property
    def bandwidth_optimal(self) -> bool:
        """Correct, and no schedule lets its busiest rank move less, counting its busier direction."""
        b = self.bound
        return self.correct and b is not None and max(self.sent_max, self.received_max) == b.volume

    @property
    def step_optimal(self) -> bool:
        """Correct, and no schedule with as many ports takes fewer steps."""
        return self.correct and self.bound is not None and self.steps == self.bound.rounds

    def _repr_html_(self) -> str:
        """What a notebook shows: a table. The drawing is built on this module, so it is loaded by name."""
        shown: str = import_module("algocc.draw.notebook").report_html(self)
        return shown

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values; fractions are strings "p/q" of the full vector m.

        smallest_n and counterexample are for `algocc.verifier.counterexample` to fill in.
        """
        b, p = self.bound, self.program
        return {
            "schedule": self.schedule,
            "collective": self.collective,
            "n": self.n,
            "chunks": self.chunks,
            "in_place": self.in_place,
            "steps": self.steps,
            "transfers": self.transfers,
            "ports": self.ports,
            "correct": self.correct,
            "wrong": self.wrong,
            "failures": [asdict(f) for f in self.failures],
            "smallest_n": None,
            "counterexample": None,
            "sent_max": str(self.sent_max),
            "received_max": str(self.received_max),
            "reduced_max": str(self.reduced_max),
            "sent_bound": str(b.sent) if b else None,
            "received_bound": str(b.received) if b else None,
            "reduced_bound": str(b.reduced) if b else None,
            "steps_bound": b.rounds if b else None,
            "message_max": str(self.message_max),
            "steps_bound_in_messages": self.bound_in_messages.rounds if self.bound_in_messages else None,
            "bandwidth_optimal": self.bandwidth_optimal,
            "step_optimal": self.step_optimal,
            "needs_commutative": self.needs_commutative,
            "needs_idempotent": self.needs_idempotent,
            "depth": self.depth,
            "order": {
                "bitwise_equal_across_ranks": self.order.same_on_all_ranks,
                "same_for_all_chunks": self.order.same_for_all_chunks,
                "orders": len(self.order.groups),
            }
            if self.order
            else None,
            "program": {
                "lanes": p.lanes,
                "moves": p.moves,
                "counters": p.counters,
                "scratch": p.scratch,
                "race_free": p.race_free,
                "deadlock_free": p.deadlock_free,
                "correct": p.correct,
            }
            if p
            else None,
        }


def verify(
    s: Schedule,
    *,
    in_place: bool = False,
    op: str | None = None,
    program: bool | Program = True,
    lanes: int = 1,
    reduction_order: bool = False,
    most: int = 20,
) -> Report:
    """Verify a schedule and the Program it is lowered to.

    in_place: inputs and outputs share memory as the collective says.
    op: the operator it is meant for; without one, or with sum, no contribution may be added twice.
    program: lower it and check all interleavings too, or check the Program given.
    lanes: lanes of each rank that it is lowered to.
    reduction_order: find out in what order contributions are combined.
    most: failures reported.

    Raises UsageError for an unknown operator, or in place for a collective that has no such form.

    >>> from algocc.schedules.ring import ring
    >>> r = verify(ring(4))
    >>> r.correct, r.steps, str(r.sent_max), str(r.bound.sent), r.bandwidth_optimal
    (True, 6, '3/2', '3/2', True)
    """
    idempotent = is_idempotent(op) or s.collective.idempotent
    c = s.collective
    if in_place and not len(c.alias):
        raise UsageError(f"{s.name}: {c.name} has no in-place form: no input shares memory with an output")
    facts: dict[str, Any] = {
        "schedule": s.name, "collective": c.name, "n": s.n, "chunks": c.chunks, "in_place": in_place,
    }  # fmt: skip
    failures = form_failures(s, most=most)
    if failures:
        return Report(**facts, correct=False, failures=failures[:most])
    s = s.matched()
    places = layout(s, in_place=in_place)
    t = trace(s, places, most=most)
    verdict = judge(s, places, t)
    wrong = verdict.wrong if not (idempotent and verdict.sets_right) else verdict.wrong[:0]
    failures = explain_trouble(s, t) + explain(s, places, t, wrong, most=most)
    whole = max(1, c.vector * c.chunks)
    report: dict[str, Any] = {
        **facts,
        "failures": failures[:most],
        "wrong": len(wrong),
        "steps": t.rounds,
        "transfers": t.messages,
        "ports": t.ports,
        "sent_max": Fraction(int(t.sent.max(initial=0)), whole),
        "received_max": Fraction(int(t.received.max(initial=0)), whole),
        "reduced_max": Fraction(int(t.reduced.max(initial=0)), whole),
        **bounds_of(c, t.ports, t.largest),
        "needs_commutative": c.reduces and not verdict.ordered,
        "needs_idempotent": verdict.idempotent and verdict.sets_right,
        "depth": verdict.depth,
    }
    if reduction_order and not failures:
        report["order"] = order(s, places, t, depth=verdict.depth)
        report["order_text"] = order_text(s, places, t, report["order"])
    checked = None
    if not failures and program:
        p = program if isinstance(program, Program) else lower(s, in_place=in_place, lanes=lanes)
        checked = verify_program(p, idempotent=idempotent, most=most)
        report["failures"] = checked.failures
    return Report(**report, correct=not report["failures"], program=checked)


def bound_of(c: Collective, *, ports: int = 1, blocks: int = 1) -> Bound | None:
    """The lower bounds of a collective in messages of 1/blocks, None where only its owner knows what it is."""
    if c.name not in COLLECTIVES or not built_in(c.name, c.n, **c.params).same_task(c):
        return None
    if c.name == "send_recv":
        counts = np.zeros((c.n, c.n), np.int64)
        np.add.at(counts, tuple(np.array(c.params["pairs"], np.int64).reshape(-1, 2).T), 1)
        return bound(c.name, c.n, ports=ports, blocks=blocks, counts=counts.tolist())
    return bound(c.name, c.n, ports=ports, blocks=blocks, counts=c.params.get("counts"))


def bounds_of(c: Collective, ports: int, largest: int) -> dict[str, Fraction | Bound | None]:
    """The fields of a Report about the bounds of a schedule that has so many ports, and `largest` units in a message."""
    whole, ports = max(1, c.vector * c.chunks), max(1, ports)
    return {
        "message_max": Fraction(largest, whole),
        "bound": bound_of(c, ports=ports),
        "bound_in_messages": bound_of(c, ports=ports, blocks=max(1, whole // max(1, largest))),
    }


def summary(r: Report) -> str:
    """The report in a few plain lines.

    >>> from algocc.schedules.ring import ring
    >>> print(summary(verify(ring(4))))
    ring: all_reduce on 4 ranks, 4 chunks, out of place
      correct     yes, proved for every input, and for every interleaving of 4 lanes, 16 moves
      steps       6, bound 2; in messages of 1/4, bound 6: optimal
      sent        3/2 of the vector by the busiest rank, bound 3/2: optimal
      received    3/2 of the vector by the busiest rank, bound 3/2: optimal
      reduced     3/4 of the vector by the busiest rank, bound 3/4: optimal
      operator    must commute
    """
    mode = "in place" if r.in_place else "out of place"
    ports = f", {r.ports} ports" if r.ports > 1 else ""
    ranks, chunks = counted(r.n, "rank"), counted(r.chunks, "chunk")
    lines = [f"{r.schedule}: {r.collective} on {ranks}, {chunks}{ports}, {mode}"]
    if r.correct:
        proved = "yes, proved for every input"
        if r.program:
            lanes, moves = counted(r.program.lanes, "lane"), counted(r.program.moves, "move")
            proved += f", and for every interleaving of {lanes}, {moves}"
        lines.append(f"  correct     {proved}")
    else:
        count = f": {counted(r.wrong, 'output chunk')} {'is' if r.wrong == 1 else 'are'} wrong" if r.wrong else ""
        lines.append(f"  correct     NO{count}")
        lines += [f"    {f}" for f in r.failures]
    if r.steps or r.correct:
        b = r.bound
        lines.append(f"  steps       {r.steps}{_against(r.steps, b.rounds if b else None, r.correct)}{_in_messages(r)}")
        for name, value, least in (
            ("sent", r.sent_max, b.sent if b else None),
            ("received", r.received_max, b.received if b else None),
            ("reduced", r.reduced_max, b.reduced if b else None),
        ):
            lines.append(f"  {name:<11} {value} of the vector by the busiest rank{_against(value, least, r.correct)}")
    needs = [
        word
        for word, needed in (("commute", r.needs_commutative), ("be idempotent", r.needs_idempotent))
        if needed
    ]
    if needs:
        lines.append(f"  operator    must {' and '.join(needs)}")
    if r.order:
        lines += ["  order of reductions", r.order_text]
    return "\n".join(lines)


def _in_messages(r: Report) -> str:
    """What is left of the bound on steps if messages may be no larger than those of the schedule, where that says more."""
    b, small = r.bound, r.bound_in_messages
    if not b or not small or small.rounds == b.rounds:
        return ""
    return f"; in messages of {r.message_max}{_against(r.steps, small.rounds, r.correct)}"


def _against(value: Fraction | int, least: Fraction | int | None, correct: bool) -> str:
    """A cost against its bound; what is wrong is never optimal."""
    if least is None:
        return ", no bound is known"
    if value == least:
        return f", bound {least}" + (": optimal" if correct else "")
    ratio = f" ({float(value / least):.4g} times)" if least and isinstance(value, Fraction) else ""
    return f", bound {least}{ratio}"


