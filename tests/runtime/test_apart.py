"""Programs whose peers touch only scratch: right in all interleavings, and nothing of others' inputs or outputs touched."""

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from algocc import exchange, testing
from algocc.catalog import algorithms
from algocc.collective import Buffer, all_reduce
from algocc.errors import AlgoccError, ScheduleError, UsageError
from algocc.lowering import lower
from algocc.program import check
from algocc.reference import run_program
from algocc.runtime import Threads, buffer_elements, count_wrong, expected, in_place_buffers, make_inputs
from algocc.runtime.apart import lower_apart, lower_pushed, replaces_in_place
from algocc.runtime.messages import between_nodes, messages
from algocc.runtime.rank import of_one_round, prelude, touching
from algocc.table import form_failures
from algocc.testing.generate import table
from algocc.verifier.interleavings import verify_program


def own_only(p):
    """No lane reads or writes the input or output of another rank."""
    for side in ("src", "dst"):
        lane = np.repeat(p.lane_rank[p.move_lane], np.diff(getattr(p, f"{side}_start")))
        far = getattr(p, f"{side}_rank") != lane
        if (getattr(p, f"{side}_buffer")[far] != Buffer.SCRATCH).any():
            return False
    return all(touching(p, r) == [] for r in range(p.n))


def no_reading_between(p, nodes):
    """Across nodes there are messages only: one destination in the receiver's scratch, which only that rank reads."""
    nodes = np.asarray(nodes)
    lane = np.repeat(p.lane_rank[p.move_lane], np.diff(p.src_start))
    assert (nodes[p.src_rank] == nodes[lane]).all()
    slots = {(m.target, m.slot) for m in messages(p, nodes.tolist())}
    assert len(slots) == len(messages(p, nodes.tolist()))
    for rank, buffer, chunk, reader in zip(p.src_rank, p.src_buffer, p.src_chunk, lane, strict=True):
        if buffer == Buffer.SCRATCH and (int(rank), int(chunk)) in slots:
            assert rank == reader


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_every_algorithm_in_all_interleavings(name):
    for n in (1, 3, 4):
        try:
            s = algorithms()[name](n)
        except UsageError:
            continue
        for in_place in (False, True):
            for nodes in ([0] * n, [r // 2 for r in range(n)], list(range(n))):
                p = lower_apart(s, in_place=in_place, nodes=nodes)
                check(p)
                report = verify_program(p, idempotent=s.collective.idempotent)
                assert report.correct, report.failures
                no_reading_between(p, nodes)
                assert len(set(nodes)) > 1 or own_only(p)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_correct_schedule(data):
    in_place = data.draw(st.booleans())
    s = data.draw(testing.schedules(4, in_place=in_place))
    nodes = data.draw(st.sampled_from([[0] * s.n, [r % 2 for r in range(s.n)], list(range(s.n))]))
    p = lower_apart(s, in_place=in_place, nodes=nodes)
    check(p)
    assert verify_program(p, idempotent=s.collective.idempotent).correct
    no_reading_between(p, nodes)


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_every_algorithm_that_writes_to_its_peers_and_reads_of_none(name):
    for n in (1, 2, 3, 4):
        try:
            s = algorithms()[name](n)
        except UsageError:
            continue
        for in_place in (False, True):
            p = lower_pushed(s, in_place=in_place)
            check(p)
            report = verify_program(p, idempotent=s.collective.idempotent)
            assert report.correct, report.failures
            owner = p.lane_rank[p.move_lane]
            assert (p.src_rank == np.repeat(owner, np.diff(p.src_start))).all()
            away = p.dst_rank != np.repeat(owner, np.diff(p.dst_start))
            assert (p.dst_buffer[away] == Buffer.SCRATCH).all()
            read = {(r, c + k) for r, b, c, m in zip(
                p.src_rank.tolist(), p.src_buffer.tolist(), p.src_chunk.tolist(),
                np.repeat(p.count, np.diff(p.src_start)).tolist(), strict=True,
            ) if b == Buffer.SCRATCH for k in range(m)}  # fmt: skip
            used = [max((c + 1 for r, c in read if r == rank), default=0) for rank in range(n)]
            assert p.scratch == max(used)  # no slot at the end that nobody reads
            assert set(zip(p.dst_rank[away].tolist(), p.dst_chunk[away].tolist(), strict=True)) <= read


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_programs_that_may_be_given_their_outputs_as_inputs(name):
    """Where `replaces_in_place` says so, the out-of-place program gives the same on aliased buffers."""
    for n in (2, 3, 4):
        try:
            s = algorithms()[name](n)
        except UsageError:
            continue
        p = lower_apart(s)
        c = s.collective
        if c.name in ("barrier", "send_recv") or not len(c.alias) or not replaces_in_place(p):
            continue
        count = 3 * c.chunks + 1
        data = make_inputs(c, count, "int32")
        try:
            inputs, outputs = in_place_buffers(c, count, "int32")
            with Threads(p, count=count, dtype="int32", tile_bytes=64) as threads:
                threads._buffers._shifts = None
                threads._buffers.bind = lambda i, o, bases: bases.__setitem__(
                    (slice(None), slice(0, 2)), [[a.ctypes.data, b.ctypes.data] for a, b in zip(i, o, strict=True)]
                )
                for _ in range(2):
                    for mine, theirs in zip(inputs, data, strict=True):
                        mine[:] = theirs
                    threads(inputs, outputs)
                    assert count_wrong(outputs, expected(c, data)) == 0
        except AlgoccError as error:
            assert "in place" in str(error) or "use a count divisible" in str(error)


def held(p, seed):
    """What the outputs hold after one run of the reference machine in some interleaving; an error if it reads too early."""
    try:
        return run_program(p, choose=random.Random(seed).choice)
    except ScheduleError as error:
        assert "before anyone writes it" in str(error)
        return None


def gives_the_same(p):
    """By brute force: on aliased buffers a Program leaves in each output what it leaves there out of place."""
    for seed in range(4):
        apart, aliased = held(p, seed), held(dataclasses.replace(p, in_place=True), seed)
        if apart is None or aliased is None:
            return False  # what nobody wrote is nobody's to read, though in place something is there
        if any(aliased[out] != value for out, value in apart.items() if value is not None):
            return False
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_replaces_in_place_does_by_brute_force(data):
    """Also of schedules that files are taken for, and of wrong ones, which read and write what they should not."""
    s = data.draw(testing.schedules(4))
    kind = data.draw(st.sampled_from(["own", "mutant", "msccl-xml", "mscclpp-json"]))
    if kind == "mutant":
        s = data.draw(testing.mutations(s, most=3))
        assume(not form_failures(s))
    elif kind != "own":
        try:
            f = exchange.read(exchange.export(s, kind, target="none")[""], "f")
        except UsageError:
            assume(False)
        p = data.draw(st.sampled_from([exchange.program, lambda f: lower_apart(exchange.schedule(f))]))(f)
    if kind in ("own", "mutant"):
        p = lower_apart(s)
    assume(len(s.collective.alias))
    if replaces_in_place(p):
        assert gives_the_same(p)


ALONE = {
    # copies of one rank with three chunks, as `from to count`: whether aliased buffers give the same
    "each in its place": ("i0 o0 3", True),
    "an output that was written": ("i0 o0 3; o0 s0 1; s0 o0 1", True),
    "an output that was not": ("o2 s0 1; i0 o0 3", False),
    "an output of which part was not": ("i0 o0 1; o0 s0 2; i1 o1 2", False),
    "an input whose place was written": ("i0 o1 1; i1 o0 1", False),
    "an input read before that": ("i1 s0 1; i0 o1 1; s0 o0 1", True),
    "an input while its place is written": ("i0 o1 2", False),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_replaces_in_place_case_by_case(case):
    """Of the Program of a file, which does what the file says whether it makes sense or not."""
    rows, same = ALONE[case]
    steps = "".join(
        f'<step s="{s}" type="cpy" srcbuf="{a[0]}" srcoff="{a[1]}" dstbuf="{b[0]}" dstoff="{b[1]}" cnt="{count}"/>'
        for s, (a, b, count) in enumerate(row.split() for row in rows.split("; "))
    )
    head = '<algo nchunksperloop="3" ngpus="1" coll="allreduce" inplace="0" outofplace="1"><gpu id="0" i_chunks="3" o_chunks="3" '
    text = f'{head} s_chunks="3"><tb id="0" send="-1" recv="-1" chan="0">{steps}</tb></gpu></algo>'
    p = exchange.program(exchange.read(text.encode(), case))
    assert replaces_in_place(p) == same == gives_the_same(p)


def test_a_move_that_writes_scratch_too():
    """Where scratch comes first among the destinations, its chunk is not the place that matters."""
    shifted = lower_apart(table("shift", all_reduce(1, chunks=3), 0, [(0, 0, 0, 0, Buffer.INPUT, 0, Buffer.OUTPUT, 1, 2)]))
    both = dict(dst_start=[0, 2], dst_rank=[0, 0], dst_buffer=[Buffer.SCRATCH, Buffer.OUTPUT], dst_chunk=[0, 1])
    p = dataclasses.replace(shifted, scratch=2, **{name: np.array(value) for name, value in both.items()})
    check(p)
    assert not replaces_in_place(p) and not gives_the_same(p)


def test_lanes_of_a_rank_are_not_in_order():
    """Two lanes that swap two chunks: each could overwrite what the other is still to read."""
    s = table("swap", all_reduce(1, chunks=2), 0, [(0, 0, 0, 0, 0, 0, 1, 1, 1), (0, 0, 0, 0, 0, 1, 1, 0, 1)])
    p = lower(s, lanes=2)
    assert p.lanes == 2 and not replaces_in_place(p)


def test_the_prelude_is_what_needs_no_one():
    p = lower_apart(algorithms()["one_shot"](4))
    assert [prelude(p, r) for r in range(4)] == [1, 1, 1, 1]
    assert prelude(lower_apart(algorithms()["two_shot"](4)), 1) >= 1


@pytest.mark.parametrize("name", ["hierarchical_all_reduce", "rail_aligned_all_reduce", "two_shot", "hierarchical_all_gather"])
def test_between_nodes_go_the_bytes_of_the_schedule(name):
    s = algorithms()[name](8, group=4) if "group" in algorithms()[name].parameters else algorithms()[name](8)
    nodes = [0] * 4 + [1] * 4
    count = 24 * s.collective.chunks
    m = s.matched()
    far = np.asarray(nodes)[m.rank] != np.asarray(nodes)[m.peer]
    stated = int(m.count[far].sum()) * count // s.collective.chunks
    assert between_nodes(lower_apart(s, nodes=nodes), nodes, count) == stated


def test_sizes_of_all_buffers_are_known():
    assert buffer_elements(algorithms()["two_shot"](3).collective, 7) == ([7] * 3, [7] * 3)


def test_what_is_of_one_round():
    """One exchange of inputs is; what reads a result of another rank is not."""
    found = {name: of_one_round(lower_apart(algorithms()[name](4))) for name in ("one_shot", "direct_gather", "two_shot", "ring")}
    assert found == {"one_shot": True, "direct_gather": True, "two_shot": False, "ring": False}
