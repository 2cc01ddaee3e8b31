"""Whatever is wrong with a file: file, line, element, what was found, what was wanted, and a hint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from algocc.errors import UsageError
from algocc.exchange import load, read, verdict

RING = (Path(__file__).parent / "data/fixtures/ar_ring_n3_ok.xml").read_text()
PLAN = (Path(__file__).parent / "data/public/test~execution-files~allreduce_packet.json__7ca31e2a.json").read_text()

XML = {
    # (what is replaced, by what): the error
    ('coll="allreduce"', 'coll="allreduec"'): "f:1: algo: unknown coll 'allreduec'; did you mean allreduce or ",
    ('coll="allreduce"', 'coll="custom"'): "f:1: algo: unknown coll 'custom'",
    (
        'proto="Simple"',
        'proto="simple"',
    ): "f:1: algo: unknown proto 'simple'; did you mean Simple?; known: Simple, LL, LL128",
    ('ngpus="3"', 'ngpus="three"'): "f:1: algo: ngpus='three', wanted a whole number of 1 to 65536",
    ('ngpus="3"', 'ngpus="99999999999999999999"'): "f:1: algo: ngpus='99999999999999999999', wanted a whole number",
    ('inplace="1" ', 'inplace="0" '): 'f:1: algo: inplace="0" and outofplace="0": it is for no mode',
    ('nchunksperloop="3" ', ""): "f:1: algo: the attribute 'nchunksperloop' is missing",
    (
        'nchunksperloop="3"',
        'nchunkperloop="3"',
    ): "f:1: algo: unknown attribute 'nchunkperloop'; did you mean nchunksperloop?",
    ('nchunksperloop="3"', 'nchunksperloop="4"'): "f:1: algo: gpu 0 has i_chunks=3, wanted 4 for allreduce of 3 ranks",
    ('<gpu id="1"', '<gpu id="0"'): "f:11: gpu: a second gpu with id=0, after that of line 2",
    ('<gpu id="1"', '<gpu id="7"'): "f:11: gpu: id=7 among 3 gpu elements, wanted 0..2, each once",
    ('i_chunks="3"', 'i_chunks="2000000"'): "f:2: gpu: i_chunks='2000000', wanted a whole number of 0 to 1048576",
    ('send="1"', 'send="0"'): "f:3: gpu 0 tb 0: send=0 is the rank itself, wanted another rank, or -1",
    ('send="1"', 'send="3"'): "f:3: gpu 0 tb 0: send=3, wanted a rank of 0..2, or -1",
    ('chan="0"', 'chan="32"'): "f:3: gpu 0 tb 0: chan=32, wanted 0..31 for a tb that sends or receives",
    ('recv="2"', 'recv="-1"'): "f:5: gpu 0 tb 0 step 1: type 'rrs' in a tb with recv=-1, wanted a recv peer",
    ('s="1" type', 's="2" type'): "f:5: gpu 0 tb 0 step: s=2, wanted 1: the steps of a tb are numbered from 0 in order",
    ('srcoff="0"', 'srcof="0"'): "f:4: gpu 0 tb 0 step: unknown attribute 'srcof'; did you mean srcoff?",
    ('srcbuf="i"', 'srcbuf="x"'): "f:4: gpu 0 tb 0 step 0: unknown srcbuf 'x'; known: i, o, s",
    ('srcbuf="i"', 'srcbuf="s"'): "f:4: gpu 0 tb 0 step 0: src is buffer s, range 0..0 of 0, wanted another buffer: ",
    ('cnt="1"', 'cnt="0"'): "f:4: gpu 0 tb 0 step 0: cnt=0, wanted 1 or more",
    ('cnt="1" ', ""): "f:4: gpu 0 tb 0 step 0: the attribute 'cnt' is missing",
    ('depid="-1"', 'depid="5"'): "f:4: gpu 0 tb 0 step 0: depid=5 with deps=-1, wanted both, or both -1",
    ('depid="-1" deps="-1"', 'depid="5" deps="0"'): "f:4: gpu 0 tb 0 step 0: depid=5, wanted a tb of 0..0 of the same",
    ('depid="-1" deps="-1"', 'depid="0" deps="9"'): "f:4: gpu 0 tb 0 step 0: depid=0 deps=9, wanted a step of 0..4 of",
    ("<step ", "<stpe "): "f:4: <stpe> inside <tb>: an unknown element, wanted <step> only",
    ("</algo>", "</algo><x/>"): "f:29: column 8: not well-formed XML: junk after document element",
}

JSON = {
    ('"collective"', '"colective"'): "f:3: plan: unknown key 'colective'; did you mean collective",
    ('"allreduce"', '"allredcue"'): "f:3: plan: unknown collective 'allredcue'; did you mean allreduce",
    ('"LL"', '"LL128"'): "f:4: plan: unknown protocol 'LL128'",
    ('"inplace": true', '"inplace": "yes"'): "f:5: plan: inplace is yes, wanted true or false",
    ('"ppkt"', '"ppkg"'): "gpu 0 tb 0 op 0: unknown operation 'ppkg'; did you mean ppkt",
    ('"buffer_id": 0', '"buffer_id": 3'): "buffer_id names number 3 of 1 memory remote buffers, wanted 0..0",
    ('"connected_to": [', '"connected_to": [ 9, '): "connected to rank 9, wanted another rank of 0..1",
    ('"index": 2', '"index": 4'): "ppkt names buffer i of rank 0, range 4..5 of 4, wanted chunks of 0..3",
    ('"size": 2', '"sise": 2'): "unknown key 'sise'; did you mean size",
    ('"id": 0', '"id": 1'): "gpu 0: id 1, wanted 0, its place in the list",
    ('"input_chunks": 4', '"input_chunks": -4'): "gpu 0: input_chunks is -4, wanted 0 to 1048576",
    ('"input_chunks": 4', '"input_chunks": 4.5'): "column 23: '4.5,' is no value",
    ('"input_chunks": 4', '"input_chunks": 4, "input_chunks": 4'): "a second key 'input_chunks', after that of line 10",
    ("{", "["): "column 1: '[' is no JSON object",
    ('"gpus": [', '"gpus": {'): "column 5: a key in quotes is missing",
}


def changed(text: str, old: str, new: str) -> bytes:
    assert old in text, old
    return text.replace(old, new, 1).encode()


@pytest.mark.parametrize("change", XML, ids=lambda c: c[1])
def test_xml(change: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as error:
        read(changed(RING, *change), "f")
    assert str(error.value).startswith(XML[change]), error.value


@pytest.mark.parametrize("change", JSON, ids=lambda c: c[1])
def test_json(change: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as error:
        read(changed(PLAN, *change), "f")
    assert re.match(r"f:\d+: ", str(error.value))
    assert JSON[change] in str(error.value), error.value


def test_another_root() -> None:
    with pytest.raises(UsageError, match="f:1: <graph>: the root is <graph>, wanted <algo>, as MSCCL writes it"):
        read(b"<graph/>", "f")


def test_missing_optional_attributes_are_noted() -> None:
    text = RING.replace(' minBytes="0" maxBytes="0"', "").replace(' outofplace="0"', "").replace(' hasdep="0"', "")
    notes = verdict(read(text.encode(), "f")).notes
    assert notes == (
        "f:1: algo: attribute 'minBytes' of <algo> is missing: taken as 0",
        "f:1: algo: attribute 'maxBytes' of <algo> is missing: taken as 0",
        "f:1: algo: outofplace is missing: taken as 0, the opposite of inplace",
        "f:4: gpu 0 tb 0 step: attribute 'hasdep' of <step> is missing: taken as 0 (and 14 times more)",
    )


def test_unread_attributes_are_noted() -> None:
    text = RING.replace('coll="allreduce"', 'coll="allreduce" nthreadblocks="4" colour="red"')
    notes = verdict(read(text.encode(), "f")).notes
    assert "f:1: algo: attribute 'nthreadblocks' of <algo> is not read" in notes
    assert "f:1: algo: attribute 'colour' of <algo> is not read" in notes


def test_no_such_file() -> None:
    with pytest.raises(UsageError, match="No such file"):
        load("nowhere.xml")
