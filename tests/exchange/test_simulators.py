"""What simulators and viewers read, read back by other means: it can all run, and is as much as the schedule says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc import catalog
from algocc.errors import AlgoccError, UsageError
from algocc.exchange import export
from algocc.model import PRESETS, Machine, cost
from algocc.table import Action, Schedule, layout
from algocc.testing import schedules
from algocc.verifier import verify


class Node(NamedTuple):
    """An operation of a rank as a trace has it: send, recv or calc; `after` are those of the rank that must be over."""

    kind: str
    peer: int
    tag: int
    size: int
    after: tuple[int, ...]


Trace = list[list[Node]]


@cache
def built() -> list[Schedule]:
    """The catalogue, each algorithm for several n."""
    found = []
    for name in catalog.algorithms():
        for n in (1, 2, 3, 4, 5, 8):
            try:
                found.append(catalog.build(name, n))
            except UsageError:
                continue
    return [s for s in found if of_one_size(s)]


def of_one_size(s: Schedule) -> bool:
    """Whether all blocks have as many elements."""
    return len(set(s.collective.sizes.tolist())) == 1


ANY = st.one_of(st.deferred(lambda: st.sampled_from(built())), schedules(4).filter(of_one_size))
UNIT = 1 << 10


def size_of(s: Schedule) -> int:
    """Bytes of a vector whose chunks have UNIT bytes."""
    return s.collective.vector * s.collective.chunks * UNIT


def goal(s: Schedule, in_place: bool) -> Trace:
    """GOAL as its grammar has it: `num_ranks`, a block for each rank, a label for each operation, `requires` lines."""
    text = export(s, "goal", size=size_of(s), in_place=in_place)[""].decode()
    head, *blocks = re.split(r"^rank (\d+) \{$", text, flags=re.M)
    assert head.split() == ["num_ranks", str(s.n)] and blocks[::2] == [str(r) for r in range(s.n)]
    out = []
    for block in blocks[1::2]:
        *lines, last = block.strip().split("\n")
        assert last == "}"
        found: dict[str, tuple[str, int, int, int]] = {}
        after = defaultdict(list)
        for line in lines:
            if m := re.fullmatch(r"(\w+) requires (\w+)", line):
                assert {m[1], m[2]} <= found.keys() and m[1] != m[2]
                after[m[1]].append(list(found).index(m[2]))
            elif m := re.fullmatch(r"(\w+): (send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)", line):
                assert m[1] not in found and f" {'to' if m[2] == 'send' else 'from'} " in line
                found[m[1]] = m[2], int(m[4]), int(m[5]), int(m[3])
            else:
                m = re.fullmatch(r"(\w+): calc (\d+)", line)
                assert m and m[1] not in found, line
                found[m[1]] = "calc", -1, 0, int(m[2])
        out.append([Node(*node, tuple(after[label])) for label, node in found.items()])
    return out


@cache
def chakra_node() -> Any:
    """A class for the Node of Chakra's et_def.proto, built by protobuf from the fields that matter here."""
    pb = pytest.importorskip("google.protobuf", reason="Chakra traces are decoded by protobuf, which is not here")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    assert pb
    f = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    attribute, node = file.message_type.add(name="AttributeProto"), file.message_type.add(name="Node")
    attribute.oneof_decl.add(name="value")
    attribute.field.add(name="name", number=1, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    for name, number, kind in (
        ("int32_val", 7, f.TYPE_INT32), ("int64_val", 9, f.TYPE_INT64), ("uint64_val", 13, f.TYPE_UINT64),
        ("bool_val", 27, f.TYPE_BOOL),
    ):  # fmt: skip
        attribute.field.add(name=name, number=number, type=kind, label=f.LABEL_OPTIONAL, oneof_index=0)
    for name, number, kind in (
        ("id", 1, f.TYPE_UINT64), ("type", 3, f.TYPE_INT32), ("start_time_micros", 6, f.TYPE_UINT64),
        ("duration_micros", 7, f.TYPE_UINT64),
    ):  # fmt: skip
        node.field.add(name=name, number=number, type=kind, label=f.LABEL_OPTIONAL)
    node.field.add(name="name", number=2, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    for name, number in (("ctrl_deps", 4), ("data_deps", 5)):
        node.field.add(name=name, number=number, type=f.TYPE_UINT64, label=f.LABEL_REPEATED)
    node.field.add(name="attr", number=10, type=f.TYPE_MESSAGE, label=f.LABEL_REPEATED,
                   type_name=".ChakraProtoMsg.AttributeProto")  # fmt: skip
    metadata = file.message_type.add(name="GlobalMetadata")
    metadata.field.add(name="version", number=1, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]


TYPES = {
    "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val",
    "is_cpu_op": "bool_val", "num_ops": "int64_val", "tensor_size": "uint64_val",
}  # fmt: skip
"""The member of AttributeProto that ASTRA-sim's feeder reads each attribute from."""


def chakra(s: Schedule, in_place: bool) -> Trace:
    """A Chakra trace as protobuf decodes it: nothing unknown in it, every attribute of the type that is read."""
    metadata, node_type = chakra_node()
    from google.protobuf import unknown_fields

    files = export(s, "chakra", size=size_of(s), in_place=in_place)
    assert list(files) == [f".{rank}.et" for rank in range(s.n)]
    out = []
    for rank, data in enumerate(files.values()):
        head, *messages = delimited(data)
        assert metadata.FromString(head).version == "0.0.4"
        mine = []
        for message in messages:
            node = node_type.FromString(message)
            assert not any(len(unknown_fields.UnknownFieldSet(part)) for part in (node, *node.attr))
            assert node.id == len(mine) and all(before < node.id for before in node.data_deps) and not node.ctrl_deps
            values = {a.name: getattr(a, TYPES[a.name]) for a in node.attr if a.WhichOneof("value") == TYPES[a.name]}
            assert len(values) == len(node.attr) and values["is_cpu_op"] is False
            kind = {4: "calc", 5: "send", 6: "recv"}[node.type]
            if kind == "calc":
                mine.append(Node(kind, -1, 0, values["tensor_size"], tuple(node.data_deps)))
                continue
            ends = values["comm_src"], values["comm_dst"]
            assert ends[kind == "recv"] == rank
            mine.append(Node(kind, ends[kind == "send"], values["comm_tag"], values["comm_size"], tuple(node.data_deps)))
        out.append(mine)
    return out


def delimited(data: bytes) -> list[bytes]:
    """Messages that each come after their length, in seven bits a byte."""
    out, at = [], 0
    while at < len(data):
        size = shift = 0
        while True:
            size |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                break
        assert at + size <= len(data)
        out.append(data[at : at + size])
        at += size
    return out


def replay(trace: Trace, *, eager: bool) -> int:
    """The most messages after each other if all goes as far as it can.

    eager: a send is over at once; if not, it is over when its receive has begun, as simulators have it for long messages.
    """
    depth: list[dict[int, int]] = [{} for _ in trace]
    begun: dict[tuple[int, int, int], dict[str, tuple[int, int, int]]] = defaultdict(dict)
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(trace):
            for i, node in enumerate(mine):
                if i in depth[rank] or not depth[rank].keys() >= set(node.after):
                    continue
                at = max((depth[rank][before] for before in node.after), default=0)
                if node.kind == "calc":
                    depth[rank][i] = at
                else:
                    pair = (rank, node.peer) if node.kind == "send" else (node.peer, rank)
                    ends = begun[*pair, node.tag]
                    if node.kind in ends:
                        continue
                    ends[node.kind] = rank, i, at
                    if eager and node.kind == "send":
                        depth[rank][i] = at
                    if len(ends) == 2:
                        over = 1 + max(start for _, _, start in ends.values())
                        for end, k, _ in ends.values():
                            depth[end].setdefault(k, over)
                moved = True
    assert [len(d) for d in depth] == [len(mine) for mine in trace], "something waits for ever"
    return max((d for done in depth for d in done.values()), default=0)


def longest_chain(s: Schedule) -> int:
    """The most messages that one value has come through, by the table alone."""
    places = layout(s)
    depth = np.zeros(places.total, np.int64)
    for a, b in zip(s.step_start[:-1].tolist(), s.step_start[1:].tolist(), strict=True):
        before, written = depth.copy(), set()
        for i in range(a, b):
            source = int(places.start[s.rank[i], s.buffer[i]] + s.chunk[i])
            target = int(places.start[s.peer[i], s.peer_buffer[i]] + s.peer_chunk[i])
            for k in range(int(s.count[i])):
                come = int(before[source + k]) + int(s.rank[i] != s.peer[i])
                adds = s.action[i] != Action.COPY or target + k in written
                depth[target + k] = max(int(depth[target + k]) if adds else 0, come)
                written.add(target + k)
    return int(depth.max(initial=0))


@given(ANY, st.booleans())
@settings(max_examples=150)
def test_traces(s: Schedule, in_place: bool) -> None:
    try:
        trace = goal(s, in_place)
    except AlgoccError as error:
        assert "races" in str(error) or "has no in-place form" in str(error)
        return
    ends = {kind: Counter[tuple[int, int, int, int]]() for kind in ("send", "recv")}
    for rank, mine in enumerate(trace):
        for node in mine:
            if node.kind != "calc":
                pair = (rank, node.peer) if node.kind == "send" else (node.peer, rank)
                ends[node.kind][*pair, node.tag, node.size] += 1
    assert ends["send"] == ends["recv"] and set(ends["send"].values()) <= {1}
    tags = Counter((src, dst) for src, dst, _, _ in ends["send"])
    assert all(tag < tags[src, dst] for src, dst, tag, _ in ends["send"]), "each tag of a pair once, from 0"

    t = s.matched()
    sent = Counter[tuple[int, int]]()
    for rank, peer, count in zip(t.rank.tolist(), t.peer.tolist(), t.count.tolist(), strict=True):
        if rank != peer:
            sent[rank, peer] += count * int(s.collective.sizes[0]) * UNIT
    traced = Counter[tuple[int, int]]()
    for src, dst, _, size in ends["send"]:
        traced[src, dst] += size
    assert traced == sent

    depth = replay(trace, eager=True)
    assert longest_chain(t) <= depth <= len(t.step_start) - 1
    assert replay(trace, eager=False) <= len(t.step_start) - 1


@given(ANY, st.booleans())
@settings(max_examples=60)
def test_chakra_says_the_same_as_goal(s: Schedule, in_place: bool) -> None:
    chakra_node()
    try:
        wanted = goal(s, in_place)
    except AlgoccError:
        return
    found = chakra(s, in_place)
    plain = [[node._replace(size=0) if node.kind == "calc" else node for node in mine] for mine in found]
    assert plain == [[node._replace(size=0) if node.kind == "calc" else node for node in mine] for mine in wanted]


def test_sums_take_as_long_as_they_are_large() -> None:
    """The ring adds up 3/4 of the vector on every rank; a byte takes 0.05 ns."""
    s = catalog.build("ring", 4)
    adds = [[node.size for node in mine if node.kind == "calc" and node.after] for mine in goal(s, True)]
    assert adds == [[-(-UNIT // 20)] * 3] * 4


def test_sizes_that_are_none() -> None:
    with pytest.raises(UsageError, match="size=3 bytes: wanted 4, a byte for each chunk"):
        export(catalog.build("ring", 4), "goal", size=3)


@given(ANY, st.sampled_from(["default", *PRESETS]), st.sampled_from([1, 1000, 64 << 20, 1 << 40]))
@settings(max_examples=100)
def test_timeline(s: Schedule, preset: str, size: int) -> None:
    machine = PRESETS.get(preset, Machine())
    try:
        timeline = json.loads(export(s, "perfetto", size=size, machine=machine)[""])
    except AlgoccError as error:
        assert "races" in str(error)
        return
    events = timeline["traceEvents"]
    total = float(cost(s).line(machine).at(size) * 10**6)
    assert timeline["otherData"]["microseconds"] == total
    kinds = Counter(e["ph"] for e in events)
    t = s.matched()
    away = int((t.rank != t.peer).sum())
    assert kinds == Counter({"M": 4 * s.n, "X": 2 * away, "s": away, "f": away, "i": len(t) - away}) + Counter()
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    near = 1e-9 * max(total, 1e-3)
    for e in events:
        if e["ph"] == "M":
            continue
        assert 0 <= e["ts"] <= total + near and (e["pid"], e["tid"]) in named
        if e["ph"] == "X":
            assert e["dur"] >= 0 and e["ts"] + e["dur"] <= total + near
            tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(b <= c + near for (_, b), (c, _) in zip(spans, spans[1:], strict=False)), "no two at once on a track"
    flows: dict[int, dict[str, Any]] = defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            assert e["ph"] not in flows[e["id"]]
            flows[e["id"]][e["ph"]] = e
            spans = tracks[e["pid"], e["tid"]]
            assert any(a - near <= e["ts"] <= b + near for a, b in spans), "a flow starts and ends within an event"
    assert all(len(pair) == 2 for pair in flows.values())


def test_messages_are_received_while_they_are_sent() -> None:
    """Rank 0 sends to seven others in turn, and each of them receives in that turn."""
    for name in ("direct_scatter", "direct_gather", "two_shot", "all_pairs_reduce_scatter", "binary_tree"):
        events = json.loads(export(catalog.build(name, 8), "perfetto")[""])["traceEvents"]
        sends = [(e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == 0]
        receives = [(e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == 1]
        assert sends == receives and sends


def test_graph(tmp_path: Path) -> None:
    """A node for each rank and step, an edge for each message, as Graphviz's own parser has it."""
    if not shutil.which("dot"):
        pytest.skip("no Graphviz: its `dot` reads the graph")
    for s in (catalog.build("ring", 4), catalog.build("binary_tree", 5), catalog.build("hierarchical_all_reduce", 6)):
        (tmp_path / "g.dot").write_bytes(export(s, "graphviz")[""])
        done = subprocess.run(["dot", "-Tdot_json", "g.dot"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        graph = json.loads(done.stdout)
        steps = len(s.step_start) - 1
        names = {o["_gvid"]: o["name"] for o in graph["objects"] if "label" in o and "." in o["name"]}
        assert sorted(names.values()) == sorted(f"{rank}.{step}" for rank in range(s.n) for step in range(steps + 1))
        found = Counter((names[e["tail"]], names[e["head"]]) for e in graph["edges"] if e.get("style") != "dotted")
        t = s.matched()
        rows = zip(t.step.tolist(), t.rank.tolist(), t.peer.tolist(), strict=True)
        assert found == Counter((f"{rank}.{step}", f"{peer}.{step + 1}") for step, rank, peer in rows if rank != peer)


def test_what_is_exported_is_what_was_verified() -> None:
    """The busiest rank of a trace sends what the report says it sends."""
    for s in built():
        if not s.collective.vector:
            continue
        report = verify(s, program=False)
        sent = [sum(node.size for node in mine if node.kind == "send") for mine in goal(s, False)]
        assert Fraction(max(sent), size_of(s)) == report.sent_max
