"""Kernels compiled for GPUs that are not there: what is in the PTX and the machine code, and in what order."""

import os
import re

import pytest

from algocc.errors import UsageError
from algocc.kernels import audit, ptx, report
from algocc.kernels.grid import Key

missing = ptx.missing()
compiles = pytest.mark.skipif(missing is not None, reason=f"kernels for GPUs are not compiled here: {missing}")

SAMPLE = [("sm_90", Key("sum", "float32")), ("sm_80", Key("sum", "float32")), ("sm_100", Key("sum", "float32"))]
if "ALGOCC_SLOW" in os.environ:
    SAMPLE = [(architecture, key) for key in ptx.keys() for architecture in ptx.ARCHITECTURES]
"""One kernel for every architecture; all of them if asked for, which takes long."""


@compiles
@pytest.mark.parametrize(("architecture", "key"), SAMPLE)
def test_every_rule_holds(architecture, key):
    found = audit.audit(ptx.assembled(key, architecture))
    assert not found.findings
    assert found.spilled == found.stack == 0
    assert found.acquires == 3 and found.releases >= 2


@pytest.fixture(scope="module")
def text():
    if missing is not None:
        pytest.skip(f"kernels for GPUs are not compiled here: {missing}")
    return ptx.ptx(Key("sum", "float32"), "sm_90")


def broken(text):
    """The rules that PTX breaks."""
    return {f.rule for f in audit.order(text)}


def without(text, pattern, which):
    """The text without some of the lines that match."""
    places = list(re.finditer(rf"\n[^\n]*{pattern}[^\n]*", text))
    for place in [places[i] for i in sorted(which, reverse=True)]:
        text = text[: place.start()] + text[place.end() :]
    return text


def test_order_of_accesses(text):
    assert broken(text) == set()


def test_a_missing_barrier_is_found(text):
    barriers = range(len(re.findall(r"bar\.", text)))
    assert broken(without(text, r"bar\.", barriers)) >= {"data stored → barrier → release", "acquire → barrier → data"}
    alone = [broken(without(text, r"bar\.", [i])) for i in barriers]
    assert {"data stored → barrier → release"} in alone  # the one before the signals


def test_a_relaxed_counter_is_found(text):
    assert "data are plain, counters ordered" in broken(text.replace("ld.acquire.sys", "ld.relaxed.sys"))
    assert "data are plain, counters ordered" in broken(text.replace("st.release.sys", "st.volatile"))
    assert "a lane waits" in broken(text.replace("ld.acquire.sys", "ld.acquire.gpu"))


def test_a_spin_without_a_deadline_or_a_load_is_found(text):
    assert "every spin has a deadline" in broken(text.replace("%globaltimer", "%clock64"))
    loop = re.search(r"\n(\$L\w+):\n", text)[1]
    assert "every loop loads" in broken(text.replace(f"\n{loop}:\n", f"\n{loop}:\n\tbra.uni {loop};\n"))


def test_a_flag_that_every_thread_looks_at_is_found(text):
    assert broken(text.replace("%tid.x", "%ntid.x")) >= {"one thread acquires", "one thread releases"}


def test_data_by_the_wrong_cache_are_found(text):
    assert "data are plain, counters ordered" in broken(text.replace("ld.global.v4", "ld.global.nc.v4"))


@pytest.mark.parametrize(
    ("of", "into"),
    [("add.rn.f32", "add.f32"), ("add.rn.f32", "add.rn.ftz.f32"), ("add.rn.f32", "fma.rn.f32"), ("add.rn.f32", "max.f32")],
)
def test_arithmetic_that_differs_from_the_cpu_is_found(text, of, into):
    changed = ptx.Assembled(Key("sum", "float32"), "sm_90", text.replace(of, into), b"", "")
    lines = audit.instructions(changed.ptx)
    assert audit._arithmetic(lines) and not audit._arithmetic(audit.instructions(text))


def test_kernels_take_one_argument_and_share_no_name(text):
    assert re.search(rf"\.entry {ptx.ENTRY}\(\s*\.param \.u64 \w+\s*\)", text)
    assert ".shared" not in text and ".local" not in text


def test_compiled_once(text, monkeypatch, tmp_path):
    """The second time from disk; a folder that can't be written is no error."""
    monkeypatch.setenv("ALGOCC_CUDA_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(ptx, "_compile", lambda key, architecture: made.append(key) or text)
    assert ptx.ptx(Key("max", "int8"), "sm_90") == ptx.ptx(Key("max", "int8"), "sm_90") == text
    assert len(made) == 1
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALGOCC_CUDA_CACHE", str(tmp_path / "file"))
    assert ptx.ptx(Key("max", "int8"), "sm_90") == text
    assert len(made) == 2


@compiles
def test_report(monkeypatch, capsys):
    monkeypatch.setattr(report, "SAMPLE", (Key("sum", "float32"),))
    monkeypatch.setattr(report, "FLAGGED", report.FLAGGED[:1])
    monkeypatch.setattr(report, "SWITCHED", report.SWITCHED[:1])
    wanted = r"sum +float32 +simple +sm_90 .* holds\nsum +float32 +ll +sm_90 .* holds\nsum +uint32 +switch +sm_90 .* holds\n3 kernels, 3 hold, 0 do not"
    for jobs in ("1", "2"):
        assert report.main(["--sample", "--arch", "sm_90", "--jobs", jobs]) == 0
        assert re.search(wanted, capsys.readouterr().out)
    assert report.main(["--jobs", "0"]) == 2
    assert "--jobs 0: wanted 1 or more" in capsys.readouterr().err
    with pytest.raises(UsageError, match="ptxas refuses the kernel for sm_90"):
        ptx.assemble("nonsense", "sm_90")


def test_without_the_packages_there_is_a_reason(monkeypatch, capsys):
    monkeypatch.setattr(ptx, "missing", lambda: "numba-cuda is not installed; pip install 'algocc[cuda]'")
    assert report.main(["--sample"]) == 2
    assert "numba-cuda is not installed; pip install 'algocc[cuda]'" in capsys.readouterr().err
    ptx._versions.cache_clear()
    with pytest.raises(UsageError, match="kernels for GPUs can't be compiled: numba-cuda is not installed"):
        ptx.ptx(Key("sum", "float32"), "sm_90")
    ptx._versions.cache_clear()


def test_architectures():
    assert report.main(["--arch", "hopper"]) == 2
    with pytest.raises(UsageError, match="unknown architecture 'hopper': wanted sm_ and a number, as in sm_80"):
        ptx.capability("hopper")


def test_every_pair_that_is_defined_has_a_kernel():
    keys = ptx.keys()
    assert keys[0] == Key(None, None) and len(keys) == len(set(keys)) > 80
    assert Key("sum", "uint32") in keys and Key("sum", "int32") not in keys


def test_machine_code_is_counted():
    code = "LDG.E.128 R4 ;\n LDG.E.64.STRONG.SYS R2 ;\n ST.E.64.STRONG.SYS ;\n MEMBAR.ALL.SYS ;\n STL [R1] ;\n CALL.REL.NOINC ;"
    assert audit.machine_counts(code) == {
        "LDG.128": 1, "STG.128": 0, "STRONG.SYS": 2, "MEMBAR": 1, "CALL": 0, "local": 1,
    }  # fmt: skip
    assert audit.machine_counts(code + "\n RET.REL.NODEC ;")["CALL"] == 1
    team = "CALL.REL.NOINC `($__internal_1_$__cuda_sm70_warpsync) ;\n RET.REL.NODEC R6 `(algocc_lane) ;\n"
    assert audit.machine_counts(team)["CALL"] == 0
    assert audit.machine_counts(team + code + "\n RET.REL.NODEC ;")["CALL"] == 1
