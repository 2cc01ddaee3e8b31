"""Files that mean harm, or are broken at random: a clear error in bounded time and memory, or a verdict."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.errors import AlgoccError, UsageError
from algocc.exchange import read, verdict
from algocc.exchange.files import MOST_BYTES

from ..damage import damaged_bytes, damaged_json, damaged_xml, is_clear, recoded  # noqa: TID252

DATA = Path(__file__).parent / "data"
SEEDS = [
    (DATA / name).read_bytes()
    for name in (
        "fixtures/ar_ring_n3_ok.xml",
        "fixtures/ar_n2_two_tb_ok.xml",
        "fixtures/rs_n2_inplace_coll_spelled_with_underscore.xml",
        "public/test~execution-files~allreduce_packet.json__7ca31e2a.json",
        "public/test~execution-files~sendrecv.json__7bedb250.json",
        "public/test~execution-files~allreduce_nvls_2.json__6830e158.json",
    )
]

XML, JSON = [s for s in SEEDS if s[:1] == b"<"], [s for s in SEEDS if s[:1] != b"<"]

LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>
<algo name="&c;"/>"""
EXTERNAL = b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><algo name="&e;"/>'

HOSTILE = {
    LAUGHS: "f:2: a document type or entity declaration, wanted plain elements",
    EXTERNAL: "f:1: a document type or entity declaration",
    b"<algo>" * 100_000: "f:1: elements nested more than 8 deep",
    b"[" * 1_000_000: "f:1: column 1: ",
    b'{"a":' * 1_000_000: "nested more than 24 deep",
    b"<algo " + b" ".join(b'a%d="1"' % i for i in range(1000)) + b"/>": "f:1: <algo> has 1000 attributes",
    b"<algo": "not well-formed XML",
    b"\xff\xfe<\x00a\x00": "f:1: not UTF-8",
    b"\x00\x01\x02": "f:1: column 1: ",
    b"{\xff}": "f:1: not UTF-8",
    b'{"name": ' + b"9" * 100_000 + b"}": "is no value",
    b"{": "a key in quotes is missing",
    b'{"a": "\x01"}': "Invalid control character",
    b"   \n ": "the file is empty",
    b'<?xml version="1.0" encoding="klingon"?><algo/>': "unknown encoding",
    b" " * (MOST_BYTES + 1): "more than 64 MiB",
    re.sub(rb'"ranks": *\[[^]]*\]', b'"ranks": []', SEEDS[5]): "ranks [], wanted `size` ranks of 0..1, each once",
    json.dumps({"name": "s", "collective": "sendrecv", "protocol": "Simple", "inplace": False, "gpus": [
        {"id": i, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 0, "threadblocks": [], "channels": [],
         "remote_buffers": []} for i in range(2)]}).encode(): "no rank sends anything, wanted messages",
}


@pytest.mark.parametrize("data", HOSTILE, ids=lambda d: repr(d[:20]))
def test_hostile(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UsageError) as error:
            read(data, "f")
        assert HOSTILE[data] in str(error.value), error.value
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_huge_counts_are_refused_before_memory_is_asked_for() -> None:
    text = SEEDS[0].replace(b'"3"', b'"1048576"')
    with pytest.raises(UsageError):
        read(text, "f")


def test_huge_but_legal_work_is_refused() -> None:
    head = '<algo name="x" proto="LL" nchannels="1" nchunksperloop="1000000" ngpus="1" coll="allreduce" inplace="1"'
    step = '<step s="{}" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1000000" depid="-1" deps="-1"/>'
    body = "".join(step.format(i) for i in range(100))
    gpu = '<gpu id="0" i_chunks="1000000" o_chunks="0" s_chunks="1000000"><tb id="0" send="-1" recv="-1" chan="0">'
    f = read(f"{head}>{gpu}{body}</tb></gpu></algo>".encode(), "f")
    with pytest.raises(
        UsageError, match="f: 200000000 chunks read and written, wanted at most 16777216: it is too large"
    ):
        verdict(f)


def test_many_ranks_of_nothing() -> None:
    gpus = "".join(f'<gpu id="{i}" i_chunks="0" o_chunks="0" s_chunks="0"/>' for i in range(20_000))
    head = '<algo proto="LL" nchannels="1" nchunksperloop="20000" ngpus="20000" coll="alltoall" inplace="0"'
    with pytest.raises(
        UsageError, match="f:1: algo: 20000 ranks of 20000 chunks, wanted at most 4194304 chunks in all"
    ):
        read(f"{head}>{gpus}</algo>".encode(), "f")


FILES = st.one_of(damaged_bytes(SEEDS), damaged_xml(XML), damaged_json(JSON), recoded(SEEDS))


@given(FILES, st.booleans())
@settings(max_examples=200)
def test_random_damage(data: bytes, in_place: bool) -> None:
    """Whatever is changed in a file: a verdict, or one clear error."""
    try:
        verdict(read(data, "f"), in_place=in_place)
    except AlgoccError as error:
        assert is_clear(error)
