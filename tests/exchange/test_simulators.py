"""What simulators read, read back here: messages pair up, nothing waits for ever, bytes are those of the report."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from algocc import catalog
from algocc.errors import UsageError
from algocc.exchange import export
from algocc.exchange.workload import jobs
from algocc.verifier import verify

SCHEDULES = [
    ("ring", 4),
    ("double_binary_tree", 5),
    ("bruck_all_to_all", 6),
    ("dissemination_barrier", 4),
    ("log_step_scan", 3),
]


@pytest.mark.parametrize("name, n", SCHEDULES)
def test_jobs_can_all_run(name: str, n: int) -> None:
    s = catalog.build(name, n)
    work = jobs(s, size=1 << 20)
    done: list[set[int]] = [set() for _ in work]
    there: set[tuple[int, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(work):
            for i, job in enumerate(mine):
                if i in done[rank] or not done[rank].issuperset(job.after):
                    continue
                if job.kind == "recv" and (job.peer, rank, job.tag) not in there:
                    continue
                if job.kind == "send":
                    there.add((rank, job.peer, job.tag))
                done[rank].add(i)
                moved = True
    assert [len(d) for d in done] == [len(mine) for mine in work]


def test_goal_of_a_ring() -> None:
    s = catalog.build("ring", 4)
    text = export(s, "goal", size=1 << 20)[""].decode()
    assert text.startswith("num_ranks 4\n\nrank 0 {\n") and text.count("}") == 4
    sent: Counter[int] = Counter()
    for block in text.split("rank ")[1:]:
        rank = int(block.split()[0])
        labels = re.findall(r"^l(\d+):", block, re.M)
        assert labels == [str(i) for i in range(len(labels))]
        for before in re.findall(r"requires l(\d+)", block):
            assert before in labels
        sent[rank] += sum(map(int, re.findall(r"send (\d+)b", block)))
    assert sent.most_common(1)[0][1] == verify(s).sent_max * (1 << 20)


def test_chakra_of_a_ring() -> None:
    s = catalog.build("ring", 4)
    files = export(s, "chakra", size=1 << 20)
    assert list(files) == [f".{rank}.et" for rank in range(4)]
    sends, receives = Counter[Any](), Counter[Any]()
    for rank, name in enumerate(files):
        messages = list(delimited(files[name]))
        assert fields(messages[0])[1] == [b"0.0.4"]
        for i, data in enumerate(messages[1:]):
            node = fields(data)
            assert node.get(1, [0]) == [i]
            assert all(before < i for before in varints(node.get(5, [b""])[0]))
            attributes = {a[1][0].decode(): next(v for k, (v, *_) in a.items() if k > 2) for a in map(fields, node[10])}
            assert attributes["is_cpu_op"] == 0
            if node[3][0] in (5, 6):
                key = tuple(attributes[f"comm_{k}"] for k in ("src", "dst", "tag", "size"))
                assert key[0 if node[3][0] == 5 else 1] == rank
                (sends if node[3][0] == 5 else receives)[key] += 1
    assert sends == receives
    assert sum(key[3] for key in sends if key[0] == 0) == verify(s).sent_max * (1 << 20)


def delimited(data: bytes) -> Any:
    while data:
        size, data = varint(data)
        yield data[:size]
        data = data[size:]


def varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for i, byte in enumerate(data):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, data[i + 1 :]
    raise ValueError("cut off")


def varints(data: bytes) -> list[int]:
    out = []
    while data:
        value, data = varint(data)
        out.append(value)
    return out


def fields(data: bytes) -> dict[int, list[Any]]:
    """A protobuf message: the values of each field, those of numbers as ints, others as bytes."""
    out: dict[int, list[Any]] = {}
    while data:
        key, data = varint(data)
        value: Any
        if key & 7 == 0:
            value, data = varint(data)
        else:
            size, data = varint(data)
            value, data = data[:size], data[size:]
        out.setdefault(key >> 3, []).append(value)
    return out


def test_timeline_and_graph() -> None:
    s = catalog.build("ring", 4)
    timeline = json.loads(export(s, "perfetto")[""])
    flows = Counter(e["ph"] for e in timeline["traceEvents"])
    assert flows["s"] == flows["f"] == verify(s).transfers
    graph = export(s, "graphviz")[""].decode()
    assert graph.count("[label=") == verify(s).transfers + 4 * (int(s.step[-1]) + 2)


def test_sizes_that_are_none() -> None:
    with pytest.raises(UsageError, match="size=3 bytes: wanted 4, a byte for each chunk"):
        export(catalog.build("ring", 4), "goal", size=3)
