"""Writing schedules: what each way in gives, and errors that name the line."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest

from algocc.collective import Buffer, all_gather, all_reduce, broadcast, gather, reduce_scatter
from algocc.errors import UsageError
from algocc.reference import is_correct
from algocc.steps import Steps, Transfer
from algocc.table import Action

HERE = r"test_steps\.py:\d+: "


def ring_rule(rank, step, n):
    return (rank + 1) % n, (rank - step) % n


def by_rule(n: int) -> Steps:
    s = Steps(all_gather(n))
    s.rule(ring_rule, steps=n - 1)
    return s


def by_hand(n: int) -> Steps:
    s = Steps(all_gather(n))
    for step in range(n - 1):
        with s.step():
            for rank in range(n):
                s.copy(src=rank, dst=(rank + 1) % n, chunk=(rank - step) % n)
    return s


def by_arrays(n: int) -> Steps:
    s = Steps(all_gather(n))
    rank = np.arange(n)
    for step in range(n - 1):
        with s.step():
            s.copy(src=rank, dst=(rank + 1) % n, chunk=(rank - step) % n)
    return s


def by_messages(n: int) -> Steps:
    s = Steps(all_gather(n))
    for step in range(n - 1):
        with s.step():
            for rank in range(n):
                s.send(rank=rank, to=(rank + 1) % n, chunk=(rank - step) % n)
                s.recv(rank=rank, source=(rank - 1) % n, chunk=(rank - 1 - step) % n)
    return s


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_all_ways_in_give_the_same_table(n):
    tables = [way(n).build().canonical() for way in (by_rule, by_hand, by_arrays, by_messages)]
    assert all(is_correct(s) for s in tables)
    for name, column in tables[0].columns.items():
        if name != "origin":
            assert all(np.array_equal(column, s.columns[name]) for s in tables), name


def test_building_twice_gives_the_same():
    s = by_hand(3)
    assert s.build() == s.build()
    rooted = Steps(gather(3, root=1))
    assert len(rooted.build()) == len(rooted.build()) > 0


def test_load_and_store_are_the_first_and_last_step():
    s = Steps(reduce_scatter(3, chunks=2))
    with s.step():
        s.reduce(src=0, dst=1, chunk=2, count=2)
    made = s.build()
    assert made.step.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert made.scratch == 6
    assert [made.source(i) for i in (0, 6)] == ["load", "store"]
    assert re.fullmatch(r"test_steps\.py:\d+", made.source(3))
    assert (made.buffer[0], made.peer_buffer[0], made.count[0]) == (Buffer.INPUT, Buffer.SCRATCH, 6)
    assert (made.buffer[6], made.chunk[6], made.peer_buffer[6], made.peer_chunk[6]) == (
        Buffer.SCRATCH,
        4,
        Buffer.OUTPUT,
        0,
    )


def test_scratch_is_what_is_used():
    s = Steps(broadcast(2), load=False)
    with s.step():
        s.copy(src=0, dst=1, chunk=0, to=4, count=3, buffer="in", to_buffer="scratch")
    assert s.build().scratch == 7


def test_a_rule_may_skip_ranks_and_move_chunks():
    s = Steps(broadcast(4))
    s.rule(lambda rank, step, n: Transfer((rank + 2**step) % n, 0 * rank, when=rank < 2**step), steps=2)
    made = s.build()
    assert is_correct(made) and len(made) == 1 + 1 + 2


@pytest.mark.parametrize("kind", [bool, int])
def test_when_is_a_truth_and_no_index(kind):
    s = Steps(all_reduce(4), load=False)
    s.rule(lambda rank, step, n: Transfer(rank ^ 1, 0, when=(rank % 2).astype(kind)), steps=1)
    assert s.build().rank.tolist() == [1, 3]


def test_a_rule_of_several_transfers_a_rank():
    s = Steps(all_reduce(3))
    s.rule(lambda rank, step, n: [Transfer((rank + hop) % n, 0, action="reduce") for hop in (1, 2)], steps=1)
    made = s.build()
    assert is_correct(made) and set(made.action[3:].tolist()) == {Action.REDUCE}


def step_in_step(s):
    with s.step(), s.step():
        pass


def rule_in_step(s):
    with s.step():
        s.rule(ring_rule, steps=1)


def in_step(**bad):
    def write(s):
        with s.step():
            s.copy(**({"src": 0, "dst": 1, "chunk": 0} | bad))

    return write


def recv_in_step(**bad):
    def write(s):
        with s.step():
            s.recv(**({"rank": 0, "source": 1, "chunk": 0} | bad))

    return write


WHOLE = "ranks, chunks and counts are whole numbers or arrays of one shape: "


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda s: s.copy(src=0, dst=1, chunk=0), "a transfer outside a step: write it inside `with s.step():`"),
        (lambda s: s.send(rank=0, to=1, chunk=0), "a transfer outside a step: write it inside `with s.step():`"),
        (step_in_step, "a step inside a step: close the first one"),
        (rule_in_step, "a rule writes whole steps: call it outside `with s.step()`"),
        (in_step(src=0.5), WHOLE + "found float64 0.5"),
        (in_step(dst="1"), WHOLE + "found <U1 '1'"),
        (in_step(chunk=True), WHOLE + "found bool True"),
        (in_step(chunk=None), WHOLE + "found object None"),
        (in_step(count=[1.0, 2.0]), WHOLE + "found float64 [1.0, 2.0]"),
        (in_step(chunk=2**31), WHOLE + "found 2147483648, which does not fit in 32 bits"),
        (in_step(src=[0, 1], dst=[0, 1, 2]), WHOLE + "shape mismatch"),
        (in_step(buffer="input"), "buffer 'input'; did you mean in or out?; one of in, out, scratch"),
        (in_step(to_buffer="scrtch"), "buffer 'scrtch'; did you mean scratch?; one of in, out, scratch"),
        (recv_in_step(action="reduction"), "action 'reduction'; did you mean reduce or prereduce?; one of copy, reduce, prereduce"),
    ],
)  # fmt: skip
def test_errors_name_the_line_that_wrote_it(write, message):
    with pytest.raises(UsageError, match=HERE) as error:
        write(Steps(all_reduce(3)))
    assert str(error.value).split(": ", 1)[1].startswith(message)


@pytest.mark.parametrize(
    "said",
    [
        None,
        3,
        (1, 2, 3, 4, 5, 6, 7, 8, 9),
        (0.5, 1),
        ("a", "b"),
        Transfer(0, 0, count=1.5),
        [(1, 0.5)],
        Transfer(0, None),
    ],
)
def test_a_rule_that_returns_nonsense(said):
    def nonsense(rank, step, n):
        return said

    line = nonsense.__code__.co_firstlineno
    with pytest.raises(UsageError) as error:
        Steps(all_reduce(3)).rule(nonsense, steps=1)
    assert str(error.value).startswith(
        f"test_steps.py:{line}: a rule returns (peer, chunk), a Transfer of whole numbers or a list of them, found "
    )


def test_a_rule_whose_arrays_have_another_shape():
    with pytest.raises(UsageError, match=r"test_steps\.py:\d+"):
        Steps(all_reduce(3)).rule(lambda rank, step, n: (np.arange(7), 0), steps=1)


def test_an_error_in_a_step_leaves_no_step_open():
    s = Steps(all_reduce(2))
    with pytest.raises(UsageError), s.step():
        s.copy(src=0.5, dst=1, chunk=0)
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
    assert len(s.build()) == 3


def onward(rank, step, n):
    return (rank + 1) % n, 0


def to_all(rank, step, n):
    return [((rank + hop) % n, 0) for hop in range(1, n)]


@pytest.mark.parametrize(
    "n, rule, steps, error",
    [
        (1 << 20, onward, 1 << 20, "a rule for 1048576 steps and 1099511627776 transfers, wanted at most 16777216 and"),
        (1, onward, 1 << 24, "a rule for 16777216 steps and"),
        (1 << 16, to_all, 1, "all_reduce n=65536 chunks=1: a rule for 1 step and 4294901760 transfers, wanted at most"),
    ],
)  # fmt: skip
def test_a_rule_that_would_write_for_hours_is_refused_at_once(n, rule, steps, error):
    s = Steps(all_reduce(n))
    tracemalloc.start()
    with pytest.raises(UsageError, match=error):
        s.rule(rule, steps=steps)
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_a_rule_that_does_not_fit_fails_before_memory_is_full(monkeypatch):
    def full(*_):
        raise MemoryError

    s = Steps(all_reduce(1 << 12))
    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(MemoryError, match="1.7e\\+07 transfers of n=4096 do not fit"):
        s.rule(onward, steps=1 << 12)


def test_a_collective_that_is_too_large_for_any_schedule_is_refused():
    with pytest.raises(UsageError, match="^broadcast: chunks=1048577: wanted at most 1048576 chunks a block"):
        Steps(broadcast(4, chunks=(1 << 20) + 1))
    with pytest.raises(UsageError, match="1024 ranks, 1048576 chunks a block: 2147483648 chunks in all, wanted at most"):
        Steps(all_reduce(1 << 10, chunks=1 << 20))


def test_a_rule_that_decides_with_if_is_told_what_to_do():
    def one_way(rank, step, n):
        return (rank + 1, 0) if rank < n - 1 else (0, 0)

    s = Steps(all_reduce(4))
    with pytest.raises(UsageError, match=r"test_steps.py:\d+: a rule gets arrays.*np.where.*Transfer"):
        s.rule(one_way, steps=1)


def test_steps_of_no_collective():
    with pytest.raises(UsageError, match=r"test_steps.py:\d+: Steps\('all_reduce'\): wanted a collective"):
        Steps("all_reduce")
