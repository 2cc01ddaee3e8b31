"""Generated lanes: one kind for all lanes alike, nothing decoded, and the rules of memory in their PTX."""

import os
import re

import pytest

from algocc.errors import UsageError
from algocc.kernels import audit, layout, ptx, straight
from algocc.kernels.grid import Key
from algocc.kernels.operators import element
from algocc.lowering import lower
from algocc.runtime.plan import plan
from algocc.schedules.all_pairs import one_shot, two_shot
from algocc.schedules.ring import ring
from algocc.schedules.trees import binary_tree

missing = ptx.missing()
compiles = pytest.mark.skipif(missing is not None, reason=f"kernels for GPUs are not compiled here: {missing}")


def made(program, *, tile_bytes=1 << 20):
    ready = plan(program, count=60, element=element("float32"), tile_bytes=tile_bytes)
    return straight.form(program.lane_start, ready.moves, ready.operands, ready.waits, ready.signals, name=program.name)


@pytest.mark.parametrize("schedule", [ring(3), ring(5), one_shot(4), two_shot(4)])
def test_lanes_that_are_alike_share_their_code(schedule):
    form, kinds = made(lower(schedule))
    assert len(form) == 1 and set(kinds) == {0}


def test_a_tree_has_the_kinds_of_its_ranks():
    program = lower(binary_tree(5, chunks=1))
    form, kinds = made(program)
    assert 1 < len(form) <= 5 and len(kinds) == program.lanes and set(kinds) == set(range(len(form)))


def test_the_text_has_a_line_for_every_signal_and_wait_and_no_loop_but_that_of_tiles():
    program = lower(ring(4), in_place=True)
    form, _ = made(program, tile_bytes=64)
    text = straight.source(form, size=4, datapath=lambda move: "data")
    assert text.count("while") == len(form) and "for " not in text
    assert text.count("wait_for(") == sum(len(m.waits) for lane in form for m in lane) > 0
    assert text.count("store_release(") == sum(len(m.signals) for lane in form for m in lane) > 0
    assert text.count("data(") == sum(m.parts for lane in form for m in lane)
    decoded = (
        layout.DESTINATIONS,
        layout.SOURCES,
        layout.PARTS_OF,
        layout.WAIT_COUNT,
        layout.SIGNAL_COUNT,
        layout.FINAL,
    )
    assert not any(f"P.word(move, {word})" in text for word in decoded)


def test_a_program_too_large_is_refused():
    with pytest.raises(UsageError, match=r"program ring: \d+ Moves that differ, .* at most 64; use form='interpreted'"):
        made(lower(ring(80)))
    with pytest.raises(UsageError, match=r"program one_shot: 21 operands in a Move"):
        made(lower(one_shot(20)))


@compiles
@pytest.mark.parametrize(
    ("schedule", "architecture", "op", "dtype"),
    [
        (ring(4), "sm_90", "sum", "float32"),
        (two_shot(4), "sm_80", "sum", "bfloat16"),
        (one_shot(8), "sm_100", "avg", "float16"),
    ][:: 1 if "ALGOCC_SLOW" in os.environ else 3],
)
def test_every_rule_holds(schedule, architecture, op, dtype):
    form, _ = made(lower(schedule))
    found = audit.audit(ptx.assembled(Key(op, dtype, form, element(dtype).size), architecture))
    assert not found.findings
    assert found.spilled == found.stack == 0


@compiles
def test_order_of_accesses_is_checked_in_generated_code_too():
    form, _ = made(lower(ring(3)))
    text = ptx.ptx(Key("sum", "float32", form, 4), "sm_90")
    assert not list(audit.order(text))
    relaxed = text.replace("st.release.sys", "st.relaxed.sys")
    assert {f.rule for f in audit.order(relaxed)} >= {"data are plain, counters ordered"}
    bare = re.sub(r"\n[^\n]*bar\.[^\n]*", "", text)
    assert {f.rule for f in audit.order(bare)} >= {"data stored → barrier → release", "acquire → barrier → data"}
