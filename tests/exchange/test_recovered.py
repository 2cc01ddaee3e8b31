"""From a file to a schedule: what has none says why, and what is assumed of lengths is said."""

from __future__ import annotations

import numpy as np
import pytest

from algocc.errors import UsageError
from algocc.exchange import export, program, read, schedule, verdict
from algocc.lowering import lower
from algocc.runtime import count_wrong, expected, make_inputs, run
from algocc.schedules.ring import ring
from algocc.verifier import verify


def xml(*ranks: str, coll: str = "allreduce", chunks: int = 2, scratch: int = 2, out: int | None = None) -> bytes:
    """An out-of-place file of one threadblock a rank, each between the two ranks; steps as `type src dst cnt`."""
    lines = [f'<algo name="x" nchunksperloop="{chunks}" ngpus="2" coll="{coll}" inplace="0" outofplace="1">']
    for rank, steps in enumerate(ranks):
        sizes = f'i_chunks="{chunks}" o_chunks="{chunks if out is None else out}" s_chunks="{scratch}"'
        lines.append(f'<gpu id="{rank}" {sizes}><tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">')
        for s, step in enumerate(steps.split("; ")):
            kind, src, dst, count = step.split()
            lines.append(
                f'<step s="{s}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" '
                f'dstoff="{dst[1:]}" cnt="{count}"/>'
            )
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"]).encode()


EXCHANGE = "s i0 i0 2; rrc i0 o0 2"


def test_a_chunk_in_the_place_of_another() -> None:
    """A file runs for counts that the chunks divide; its schedule for any, as nothing is held there in the end."""
    f = read(xml("s i0 i0 2; r o1 o1 1; re i0 o1 1; cpy o1 o0 1; rrc i1 o1 1", "s i0 i0 1; s i1 i1 1; rrc i0 o0 2"), "f")
    v = verdict(f)
    assert v.correct and v.notes[-1] == (
        "f:4: gpu 0 tb 0 step 1: a chunk takes the place of another, or is added to it: it runs only for counts divisible by 2"
    )
    s = schedule(f)
    assert verify(s).correct
    for count in (3, 6):
        inputs = make_inputs(f.collective, count, "int32")
        assert count_wrong(run(lower(s), inputs), expected(f.collective, inputs)) == 0
    assert count_wrong(run(program(f), inputs), expected(f.collective, inputs)) == 0
    with pytest.raises(UsageError, match="use a count divisible by 2"):
        run(program(f), make_inputs(f.collective, 3, "int32"))


def test_no_schedule_adds_chunks_of_other_lengths() -> None:
    """A sum that no output needs, of two parts of a block: nothing to a file, a wrong schedule."""
    f = read(xml("cpy i0 s0 1; re i1 s0 1; " + EXCHANGE, EXCHANGE), "f")
    assert verdict(f).correct and "or is added to it" in verdict(f).notes[-1]
    with pytest.raises(UsageError, match="f:4: gpu 0 tb 0 step 1: no schedule: it adds data of another length, which goes"):
        schedule(f)


def test_counts_of_alltoallv_are_not_guessed() -> None:
    steps = ("s i1 i1 1; cpy i0 o0 1; r o1 o1 1", "s i0 i0 1; cpy i1 o1 1; r o0 o0 1")
    f = read(xml(*steps, coll="alltoallv"), "f")
    assert verdict(f).correct and any("checked for equal counts" in note for note in verdict(f).notes)
    with pytest.raises(UsageError, match="no schedule: the counts of alltoallv are not in the file, and its blocks may be"):
        schedule(f)
    assert verify(schedule(read(xml(*steps, coll="alltoall"), "f"))).correct


@pytest.mark.parametrize("chunks, out, wanted", [(2, 3, "gpu 0 has o_chunks=3, wanted 2"), (3, 2, "gpu 0 has o_chunks=2, wanted 3")])
def test_buffers_of_other_lengths(chunks: int, out: int, wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted):
        read(xml("cpy i0 o0 1", "cpy i0 o0 1", chunks=chunks, out=out), "f")


def test_what_is_added_twice_is_said_once() -> None:
    f = read(xml(EXCHANGE + "; re i0 o0 1", EXCHANGE), "f")
    (failure,) = verdict(f).report.failures
    assert str(failure) == (
        "step 2, rank 0: out[0] holds {0,0,1}: rank 0 is added twice, at gpu 0 tb 0 step 2, wanted {0,1}; "
        "valid for idempotent operators (max, min, and, or) only (f:5: gpu 0 tb 0 step 2)"
    )
    assert verdict(f, idempotent=True).correct
    inputs = [np.array([3, 4], np.int32), np.array([1, 7], np.int32)]
    assert [out.tolist() for out in run(program(f), inputs, op="max")] == [[3, 7], [3, 7]]


def test_the_mode_is_that_of_the_file() -> None:
    for in_place in (False, True):
        for to in ("msccl-xml", "mscclpp-json"):
            f = read(export(ring(3), to, in_place=in_place)[""], "f")
            assert f.modes == (in_place,)
            assert program(f).in_place == verdict(f).report.in_place == in_place
            assert verdict(f, in_place=not in_place).notes[-1].endswith("is not a mode that the file declares")
