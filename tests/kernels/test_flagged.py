"""Kernels with flags beside the data, compiled for GPUs that are not there: each flag and its data one access, every spin ends."""

import os
import re

import pytest

from algocc.kernels import audit, layout, ptx, report
from algocc.kernels.grid import Key

missing = ptx.missing()
pytestmark = pytest.mark.skipif(missing is not None, reason=f"kernels for GPUs are not compiled here: {missing}")

LL, LL128 = (Key("sum", "float32", report.pushed(kind), 4) for kind in (layout.LL, layout.LL128))
WIDE = Key("prod", "complex128", report.pushed(layout.LL), 16)


SAMPLE = [(LL, "sm_90"), (LL128, "sm_80")]
if "ALGOCC_SLOW" in os.environ:
    SAMPLE = [(key, architecture) for key in (LL, LL128, WIDE, *report.FLAGGED) for architecture in ptx.ARCHITECTURES]


@pytest.mark.parametrize(("key", "architecture"), SAMPLE)
def test_every_rule_holds(key, architecture):
    found = audit.audit(ptx.assembled(key, architecture))
    assert not found.findings
    assert found.spilled == found.stack == 0
    words = max(1, key.size // layout.PACKET)
    assert (found.line_loads, found.line_stores) == (2 * 3 * words, 3 * words)
    assert (found.acquires, found.releases) == (9, 6)  # three credits, and three signals of credits
    assert report.protocol_of(key) in ("ll", "ll128") and report.row(found)[2] == report.protocol_of(key)


@pytest.fixture(scope="module")
def texts():
    return {key: ptx.ptx(key, "sm_90") for key in (LL, LL128)}


def broken(key, text):
    """The rules that PTX breaks."""
    lines = audit.instructions(text)
    return {f.rule for f in [*audit.order(text), *audit._lines(key, lines)[2]]}


def each(text, pattern):
    """The text without one of the lines that match, for each of them."""
    for place in re.finditer(rf"\n[^\n]*{pattern}[^\n]*", text):
        yield text[: place.start()] + text[place.end() :]


def test_nothing_is_broken(texts):
    assert all(broken(key, text) == set() for key, text in texts.items())


@pytest.mark.parametrize(
    ("key", "of", "into"),
    [
        (LL, "ld.relaxed.sys.global.v2.u64", "ld.global.v2.u64"),  # may be moved out of the loop
        (LL, "ld.relaxed.sys.global.v2.u64", "ld.relaxed.gpu.global.v2.u64"),
        (LL, "st.relaxed.sys.global.v2.u64", "st.relaxed.sys.global.v4.u32"),  # words of 32 bits: a flag may overtake its data
        (LL128, "ld.relaxed.sys.global.u64", "ld.volatile.global.u64"),
        (LL128, "st.relaxed.sys.global.u64", "st.global.u64"),
    ],
)
def test_a_line_that_is_not_one_access_is_found(texts, key, of, into):
    changed = re.sub(rf"{re.escape(of)}( [^\n]*// line)", rf"{into}\1", texts[key])
    assert changed != texts[key]
    assert "a flag and the data beside it are one access" in broken(key, changed)


def test_a_relaxed_access_to_anything_else_is_found(texts):
    assert "data are plain, counters ordered" in broken(LL, texts[LL].replace("// line", ""))
    assert "data are plain, counters ordered" in broken(LL, texts[LL].replace("// abort", ""))


@pytest.mark.parametrize("key", [LL, LL128])
def test_a_spin_without_an_end_is_found(texts, key):
    deaf = [broken(key, text) for text in each(texts[key], r"ld\.relaxed[^\n]*// abort")]
    assert len(deaf) == 3 and all("every spin can be told to stop" in rules for rules in deaf)
    assert "every spin has a deadline" in broken(key, texts[key].replace("%globaltimer", "%clock64"))


@pytest.mark.parametrize("key", [LL, LL128])
def test_a_line_that_is_not_waited_for_is_found(texts, key):
    fewer = [broken(key, text) for text in each(texts[key], r"ld\.relaxed[^\n]*// line")]
    assert len(fewer) == 6 and all("lines" in rules for rules in fewer)
    assert sum("lines are waited for" in rules for rules in fewer) == 3


def test_a_line_that_is_stored_before_its_credit_is_found(texts):
    alone = [broken(LL, text) for text in each(texts[LL], r"\bbar\.(?!warp)")]
    assert any("acquire → barrier → data" in rules for rules in alone)
    assert any("data stored → barrier → release" in rules for rules in alone)


def test_a_barrier_of_a_team_is_none_of_the_block(texts):
    assert "bar.warp.sync" in texts[LL128] and "bar.warp.sync" not in texts[LL]
    bare = re.sub(r"\n[^\n]*\bbar(rier)?\.(?!warp)[^\n]*", "", texts[LL128])
    assert {"data stored → barrier → release", "acquire → barrier → data"} <= broken(LL128, bare)
