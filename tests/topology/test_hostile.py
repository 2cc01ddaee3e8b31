"""Topology files that mean harm, or are damaged at random: a topology, or one clear error in bounded time and memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.errors import AlgoccError, UsageError
from algocc.topology import MODELS, load, model, read, to_json

from ..damage import damaged_bytes, damaged_json, damaged_xml, is_clear, recoded  # noqa: TID252

DUMPS = [path.read_bytes() for path in sorted((Path(__file__).parent / "data").glob("*.xml"))]
JSON = [json.dumps(to_json(model(name))).encode() for name in ("dgx1", "hgx-h100:2", "torus:2x3")]
MATRIX = b"""\tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tSYS\tPIX\t0-23\t0
GPU1\tNV4\t X \tNV12\tNODE\t0-23\t0
GPU2\tSYS\tNV12\t X \tSYS\t24-47\t1
mlx5_0\tPIX\tNODE\tSYS\t X \t\t

Legend:
  X    = Self
"""
TEXT = [MATRIX, MATRIX.replace(b"\t", b"   ")]

HOSTILE = {
    "laughs": b'<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><system version="&b;"/>',
    "file": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><system version="&e;"/>',
    "deep XML": b"<system>" * 100_000,
    "deep JSON": b'{"format": "algocc topology 1", "nodes": ' + b"[" * 1_000_000,
    "long number": JSON[0].replace(b'"25"', b'"' + b"9" * 1_000_000 + b'"'),
    "long exponent": JSON[0].replace(b'"25"', b'"1e999999999"'),
    "long fraction": JSON[0].replace(b'"25"', b'"1/' + b"9" * 1_000_000 + b'"'),
    "infinite": JSON[0].replace(b'"25"', b'"inf"'),
    "not a number": JSON[0].replace(b'"25"', b'"nan"'),
    "wide": b"\t" + b"\t".join(b"GPU%d" % i for i in range(100_000)) + b"\nGPU0\tX\n",
    "many": b"\tGPU0\n" + b"GPU0\tX\n" * 300_000,
    "many links": MATRIX.replace(b"NV4", b"NV" + b"9" * 5000),
    "nothing": b"\0" * 1000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UsageError) as error:
            read(HOSTILE[name], "f")
        assert is_clear(error.value), error.value
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_topology_is_a_file_of_its_size(tmp_path: Path) -> None:
    with (tmp_path / "huge.xml").open("wb") as f:
        f.truncate(1 << 40)
    with pytest.raises(UsageError, match="1099511627776 bytes, at most 67108864 are read"):
        load(str(tmp_path / "huge.xml"))


ALL = [*DUMPS, *JSON, *TEXT]
FILES = st.one_of(
    damaged_bytes(TEXT), damaged_bytes(TEXT), damaged_bytes(ALL), damaged_xml(DUMPS), damaged_json(JSON), recoded(ALL)
)


@given(FILES)
@settings(max_examples=150)
def test_random_damage(data: bytes) -> None:
    try:
        t = read(data, "f")
        assert read(json.dumps(to_json(t)).encode(), "f") == t, "what is read is a topology like any other"
    except AlgoccError as error:
        assert is_clear(error)


@settings(max_examples=40)
@given(st.sampled_from(sorted(MODELS)), st.text("0123456789x:-. e", max_size=12) | st.integers(0, 10**30).map(str))
def test_names_of_models(name: str, shape: str) -> None:
    try:
        assert model(f"{name}:{shape}").n >= 1
    except AlgoccError as error:
        assert is_clear(error)
