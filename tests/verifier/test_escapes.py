"""What public checkers were seen to let through (the nine of docs/verification.md), each caught, for the right reason.

Concepts that are not ours are written with what we have: a queue of eight slots is scratch with counters that give
credit, a channel is a counter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from algocc import reference
from algocc.catalog import algorithms
from algocc.collective import (
    Buffer,
    Collective,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce_scatter,
    send_recv,
)
from algocc.errors import ScheduleError, UsageError
from algocc.lowering import lower
from algocc.program import Program, check, listing
from algocc.steps import Steps
from algocc.table import Schedule
from algocc.verifier import Report, verify, verify_program

IN, OUT, SCRATCH = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH
Place = tuple[int, int, int]
"""(rank, buffer, chunk)."""


@dataclass(frozen=True)
class Move:
    """A Move as a test writes it; waits are (counter, value) or (counter, value, lag)."""

    dst: Place | None = None
    srcs: tuple[Place, ...] = ()
    waits: tuple[tuple[int, ...], ...] = ()
    signals: tuple[int, ...] = ()
    like: int = 0


def program(c: Collective, lanes: Sequence[Sequence[Move]], *, scratch: int = 0, in_place: bool = False) -> Program:
    """A Program with one lane a rank."""
    moves = [m for lane in lanes for m in lane]
    lane_of = [i for i, lane in enumerate(lanes) for _ in lane]
    counters = 1 + max((x for m in moves for x in (*m.signals, *(w[0] for w in m.waits))), default=-1)
    writer, waiter = np.zeros(counters, np.int32), np.zeros(counters, np.int32)
    for lane, m in zip(lane_of, moves, strict=True):
        writer[list(m.signals)] = lane
        waiter[[w[0] for w in m.waits]] = lane

    def starts(sizes: list[int]) -> Any:
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def column(rows: list[Any], i: int) -> Any:
        return np.array([row[i] for row in rows], np.int64)

    srcs = [p for m in moves for p in m.srcs]
    dsts = [m.dst for m in moves if m.dst]
    waits = [(*w, 0)[:3] for m in moves for w in m.waits]
    zeros = np.zeros(len(moves), np.int64)
    return Program(
        name="by hand", collective=c, in_place=in_place, scratch=scratch,
        lane_rank=np.arange(c.n), lane_start=starts([len(lane) for lane in lanes]),
        step=zeros, origin=zeros - 1, origins=(), count=zeros + 1,
        like=np.array([m.like for m in moves], np.int64), final=np.array([len(m.srcs) > 1 for m in moves]),
        src_start=starts([len(m.srcs) for m in moves]),
        src_rank=column(srcs, 0), src_buffer=column(srcs, 1), src_chunk=column(srcs, 2),
        src_first=np.array([p[1] == IN for p in srcs], bool),
        dst_start=starts([m.dst is not None for m in moves]),
        dst_rank=column(dsts, 0), dst_buffer=column(dsts, 1), dst_chunk=column(dsts, 2),
        wait_start=starts([len(m.waits) for m in moves]),
        wait_counter=column(waits, 0), wait_value=column(waits, 1), wait_lag=column(waits, 2),
        signal_start=starts([len(m.signals) for m in moves]),
        signal_counter=np.array([x for m in moves for x in m.signals], np.int64),
        counter_writer=writer, counter_waiter=waiter,
        counter_total=np.bincount([x for m in moves for x in m.signals], minlength=counters),
    )  # fmt: skip


def only(r: Report) -> str:
    """The one failure of a report."""
    assert not r.correct
    assert len(r.failures) == 1, r.failures
    return str(r.failures[0])


def test_1_a_two_operand_reduce_with_the_offset_of_the_other_operand() -> None:
    """Accepted by the public tools: a reduce whose local offset differs from the remote one gets one offset."""

    def exchange(local: Any) -> Schedule:
        r = np.arange(2)
        s = Steps(reduce_scatter(2), load=False)
        with s.step():
            s.copy(src=r, dst=r, chunk=r if local is None else local, to=0, buffer="in", to_buffer="out")
        with s.step():
            s.reduce(src=1 - r, dst=r, chunk=r, to=0, buffer="in", to_buffer="out")
        return s.build()

    assert verify(exchange(None)).correct
    failure = str(verify(exchange(0)).failures[0])
    assert "rank 1: out[0] holds {r0.in[1],r1.in[0]}, wanted {r0.in[1],r1.in[1]}" in failure
    # The same in what runs: rank 1 adds its own in[0] to the in[1] of rank 0.
    p = lower(exchange(None))
    assert "out[0] = in[1] + r0.in[1]" in listing(p)
    q = replace(p, src_chunk=np.where((p.src_rank == 1) & (np.arange(len(p.src_rank)) == p.src_start[1]), 0, p.src_chunk))
    assert "out[0] = in[0] + r0.in[1]" in listing(q)
    report = verify_program(q)
    assert [str(f) for f in report.failures] == [
        "rank 1: out[0] does not hold what the collective wants, wanted the exact multiset"
    ]


@pytest.mark.parametrize("instances", [2, 4])
def test_2_halving_doubling_replicated_over_interleaved_instances(instances: int) -> None:
    """Accepted by the public tools: instance i takes chunks i, i + k, …, but runs of chunks stay runs."""
    s = algorithms()["rabenseifner"](4)
    assert verify(s).correct and s.count[s.rank != s.peer].max() > 1
    k = instances
    wide = all_reduce(4, chunks=s.collective.chunks * k)
    moved = s.rank != s.peer
    parts = [
        replace(
            s.rows(moved), collective=wide, chunk=s.chunk[moved] * k + i, peer_chunk=s.peer_chunk[moved] * k + i
        )
        for i in range(k)
    ]  # fmt: skip
    load = replace(s.rows(~moved), collective=wide, count=s.count[~moved] * k)
    columns = {name: np.concatenate([part.columns[name] for part in (load, *parts)]) for name in s.columns}
    order = np.argsort(columns["step"], kind="stable")
    interleaved = replace(load, **{name: column[order] for name, column in columns.items()})
    report = verify(interleaved)
    assert not report.correct and {f.level for f in report.failures} <= {"race", "data", "form"}
    text = " ".join(map(str, report.failures))
    assert "is added twice" in text or "is written twice" in text or "does not exist" in text
    assert verify(s.instances(k)).correct, "as the algebra does it"


def test_3_an_in_place_all_to_all_staged_through_scratch() -> None:
    """Accepted by the public tools: ranks write what others have yet to read; wrong in nearly every order."""
    r, j = (x.ravel() for x in np.indices((3, 3)))
    s = Steps(all_to_all(3), load=False)
    with s.step():
        s.copy(src=r, dst=r, chunk=j, buffer="in", to_buffer="scratch")
    with s.step():
        s.copy(src=r, dst=j, chunk=j, to=r, buffer="scratch", to_buffer="out")
    made = s.build()
    assert verify(made).correct and verify(made, in_place=True).correct, "as steps it is right, and so is what we make of it"
    # What was made for buffers apart, run where they are one.
    p = replace(lower(made), in_place=True)
    report = verify_program(p)
    assert not report.correct and not report.race_free and report.deadlock_free
    assert "with nothing to order it after" in str(report.failures[0])
    rng = random.Random(0)
    orders = [reference.is_right(p, reference.run_program(p, choose=rng)) for _ in range(60)]
    assert orders.count(False) > 50


def queues(order: str, slots: int = 8, messages: int = 16) -> Program:
    """Both ranks send 16 chunks to each other through `slots` slots; a message needs a slot that is free again."""
    c = send_recv(2, pairs=[(0, 1), (1, 0)], chunks=messages)
    data, credit = (0, 1), (2, 3)  # counters by sender, by receiver
    lanes = []
    for rank in (0, 1):
        peer = 1 - rank

        def send(k: int, rank: int = rank, peer: int = peer) -> Move:
            # Message k waits for the receipt of message k - slots, which may be of the iteration before.
            free = (credit[peer], k - slots + 1) if k >= slots else (credit[peer], k - slots + 1 + messages, 1)
            return Move((peer, SCRATCH, k % slots), ((rank, IN, k),), (free,), (data[rank],), rank * messages + k)

        def recv(k: int, rank: int = rank, peer: int = peer) -> Move:
            at = ((rank, SCRATCH, k % slots),)
            return Move((rank, OUT, k), at, ((data[peer], k + 1),), (credit[rank],), peer * messages + k)

        todo = {"s": iter(range(messages)), "r": iter(range(messages))}
        lanes.append([(send if what == "s" else recv)(next(todo[what])) for what in order])
    return program(c, lanes, scratch=slots)


def test_4_sixteen_sends_before_the_first_receive() -> None:
    """Accepted by the public MSCCL tools: with eight slots a connection both ranks block, each for the other."""
    report = verify_program(queues("s" * 16 + "r" * 16))
    assert not report.deadlock_free and report.race_free
    text = str(report.failures[0])
    assert "deadlock: rank 0 lane 0 move 8" in text and "rank 1 lane 1 move 8" in text and "for the first again" in text
    with pytest.raises(ScheduleError, match="deadlock"):
        reference.run_program(queues("s" * 16 + "r" * 16))
    assert verify_program(queues("s" * 8 + "r" * 8 + "s" * 8 + "r" * 8)).correct
    assert verify_program(queues("s" * 16 + "r" * 16, slots=16)).correct


def test_5_a_broadcast_that_reaches_no_one_or_only_the_root() -> None:
    """Accepted by the public tools: an empty in-place Broadcast, and one that only copies at rank 0."""
    empty = Steps(broadcast(2), load=False)
    assert only(verify(empty.build(), in_place=True)) == "rank 1: out[0] was never written, wanted {0}"
    root = Steps(broadcast(2), load=False)
    with root.step():
        root.copy(src=0, dst=0, chunk=0, buffer="in")
    for in_place in (False, True):
        assert only(verify(root.build(), in_place=in_place)) == "rank 1: out[0] was never written, wanted {0}"


def test_6_a_contribution_counted_twice() -> None:
    """Accepted by the public MSCCL tools, whose check has a bit for each contribution."""
    s = Steps(all_reduce(3), name="dissemination")
    for hop in (1, 2):
        with s.step():
            s.reduce(src=np.arange(3), dst=(np.arange(3) + hop) % 3, chunk=0)
    report = verify(s.build())
    assert "out[0] holds {0,0,1,2}: rank 0 is added twice, at rank 0 out[0]" in str(report.failures[0])
    assert "valid for idempotent operators (max, min, and, or) only" in str(report.failures[0])
    assert report.needs_idempotent and verify(s.build(), op="max", program=False).correct


def test_7_an_in_place_reduce_scatter_that_asks_the_source_where_its_output_is() -> None:
    """Accepted by the public tools: in place, the output of rank r is its block r, not that of the sender."""

    def exchange(block: Any) -> Schedule:
        src, dst = np.nonzero(~np.eye(3, dtype=bool))
        s = Steps(reduce_scatter(3), load=False)
        with s.step():
            s.copy(src=np.arange(3), dst=np.arange(3), chunk=np.arange(3), to=0, buffer="in", to_buffer="out")
        with s.step():
            s.reduce(src=src, dst=dst, chunk=block(src, dst), to=0, buffer="in", to_buffer="out")
        return s.build()

    assert verify(exchange(lambda src, dst: dst), in_place=True).correct
    wrong = verify(exchange(lambda src, dst: src), in_place=True)
    assert wrong.wrong == 3
    text = str(wrong.failures[0])
    assert "rank 0: out[0] holds {r0.in[0],r1.in[1],r2.in[2]}, wanted {r0.in[0],r1.in[0],r2.in[0]}" in text


def test_8a_a_plan_that_does_nothing() -> None:
    """Accepted by the public MSCCL++ tools."""
    report = verify(Steps(all_reduce(2), load=False).build())
    assert [str(f) for f in report.failures] == [f"rank {r}: out[0] was never written, wanted {{0,1}}" for r in (0, 1)]
    in_place = verify(Steps(all_reduce(2), load=False).build(), in_place=True)
    assert [str(f) for f in in_place.failures] == [f"rank {r}: out[0] holds {{{r}}}, wanted {{0,1}}" for r in (0, 1)]
    idle = program(all_reduce(2), [[], []])
    assert [str(f) for f in verify_program(idle).failures] == [
        f"rank {r}: out[0] does not hold what the collective wants, wanted the exact multiset" for r in (0, 1)
    ]


def test_8b_a_wait_before_its_signal_on_both_ranks() -> None:
    """Accepted by the public MSCCL++ tools."""

    def exchange(wait_first: bool) -> Program:
        lanes = []
        for r in (0, 1):
            own = Move((r, OUT, r), ((r, IN, 0),), like=r)
            put = Move((1 - r, OUT, r), ((r, IN, 0),), signals=(r,), like=r)
            wait = Move(waits=((1 - r, 1),))
            lanes.append([own, wait, put] if wait_first else [own, put, wait])
        return program(all_gather(2), lanes)

    assert verify_program(exchange(False)).correct
    report = verify_program(exchange(True))
    assert not report.deadlock_free
    text = str(report.failures[0])
    assert "deadlock: rank 0 lane 0 move 1" in text and "for rank 1 lane 1 move 1" in text and "no circle of waits" in text


def test_8c_signals_on_one_channel_matched_by_waits_on_two() -> None:
    """Accepted by the public MSCCL++ tools: two signals on channel 0, waits on channels 0 and 1."""
    put = Move((1, OUT, 0), ((0, IN, 0),), signals=(0, 0))
    own = Move((0, OUT, 0), ((0, IN, 0),))
    right = program(broadcast(2), [[own, put], [Move(waits=((0, 2),))]])
    assert verify_program(right).correct
    wrong = program(broadcast(2), [[own, put], [Move(waits=((0, 1),)), Move(waits=((1, 1),))]])
    with pytest.raises(ScheduleError, match="a wait for a signal that is never given"):
        check(wrong)
    report = verify_program(wrong)
    assert not report.correct and "never given" in str(report.failures[0])


def test_8d_a_cross_rank_put_that_nothing_waits_for() -> None:
    """Accepted by the public MSCCL++ tools: rank 0 puts, and rank 1 uses what is there."""

    def put(waits: tuple[tuple[int, int], ...], signals: tuple[int, ...]) -> Program:
        # Rank 1 must not be overtaken by the next call either: counter 1 says that its slot is free.
        own = Move((0, OUT, 0), ((0, IN, 0),))
        send = Move((1, SCRATCH, 0), ((0, IN, 0),), ((1, 1, 1),), signals)
        return program(
            broadcast(2), [[own, send], [Move((1, OUT, 0), ((1, SCRATCH, 0),), waits, (1,))]], scratch=1
        )  # fmt: skip

    assert verify_program(put(((0, 1),), (0,))).correct
    # The order that happens to be played does not matter: it is a race in each.
    report = verify_program(put((), ()))
    assert not report.correct and not report.race_free and report.deadlock_free
    assert any("with nothing to order it after" in str(f) for f in report.failures)


def test_8e_scratch_that_nobody_wrote() -> None:
    """Accepted by the public MSCCL++ tools."""
    s = Steps(broadcast(2))
    with s.step():
        s.copy(src=0, dst=1, chunk=0, buffer="scratch", to_buffer="out")
    text = str(verify(s.build()).failures[0])
    assert "rank 0: scratch[0] is read by rank 1, but nothing was written there" in text
    p = program(broadcast(2), [[Move((0, OUT, 0), ((0, IN, 0),)), Move((1, OUT, 0), ((0, SCRATCH, 0),))], []], scratch=1)
    report = verify_program(p)
    assert report.race_free and "rank 0: scratch[0] is read by rank 0 lane 0 move 1" in str(report.failures[0])
    assert "before anything was written there" in str(report.failures[0])


def test_9_plans_beyond_the_limits_of_the_executor() -> None:
    """Emitted by the public tools without a warning: more steps than a threadblock takes, too high a `depid`."""
    write_xml = pytest.importorskip("algocc.exchange.write_xml")
    assert write_xml.to_msccl_xml(algorithms()["ring"](8), to="rccl")
    with pytest.raises(UsageError, match=r"steps, the target takes 64"):
        write_xml.to_msccl_xml(algorithms()["ring"](34), to="rccl")
    limits = pytest.importorskip("algocc.exchange.targets").TARGETS
    assert (limits["msccl-executor"].steps, limits["msccl-executor"].depends) == (64, 127)
    write_plan = pytest.importorskip("algocc.exchange.write_plan")
    with pytest.raises(UsageError, match=r"operations, the target takes 64.*19 channels, the target takes 16"):
        write_plan.to_mscclpp_json(algorithms()["one_shot"](20), protocol="LL")
