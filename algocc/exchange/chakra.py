"""Chakra execution traces, the input of ASTRA-sim: for each rank a file of protobuf messages, each after its length."""

from __future__ import annotations

from algocc.exchange.workload import Job, jobs
from algocc.table import Schedule

VERSION = "0.0.4"
COMP, SEND, RECV = 4, 5, 6
"""Types of node."""
ID, NAME, TYPE, DATA_DEPS, DURATION, ATTR = 1, 2, 3, 5, 7, 10
"""Fields of Node. Attributes have a name (1) and one of these values."""
INT32, INT64, UINT64, BOOL = 7, 9, 13, 27
VARINT, BYTES = 0, 2
"""Wire types of protobuf."""


def to_chakra(s: Schedule, *, size: int, in_place: bool = False) -> list[bytes]:
    """The trace of each rank, for vectors of `size` bytes; the file of rank r is called `prefix.r.et`."""
    out = []
    for rank, mine in enumerate(jobs(s, size=size, in_place=in_place)):
        messages = [_bytes(1, VERSION.encode())]
        messages += [_node(i, job, rank) for i, job in enumerate(mine)]
        out.append(b"".join(_varint(len(m)) + m for m in messages))
    return out


def _node(i: int, job: Job, rank: int) -> bytes:
    if job.peer >= 0:
        kind = SEND if job.kind == "send" else RECV
        src, dst = (rank, job.peer) if kind == SEND else (job.peer, rank)
        name = f"{job.kind} step {job.step} {src} -> {dst}"
        attributes = [
            _attribute("comm_size", INT64, job.size),
            _attribute("comm_src", INT32, src),
            _attribute("comm_dst", INT32, dst),
            _attribute("comm_tag", INT32, job.tag),
        ]
    else:
        kind, name = COMP, f"{job.kind} step {job.step}"
        attributes = [_attribute("num_ops", INT64, job.size), _attribute("tensor_size", UINT64, job.size)]
    attributes.append(_attribute("is_cpu_op", BOOL, 0))
    parts = [_number(ID, i), _bytes(NAME, name.encode()), _number(TYPE, kind)]
    if job.after:
        parts.append(_bytes(DATA_DEPS, b"".join(map(_varint, job.after))))
    parts.append(_number(DURATION, 0))
    return b"".join(parts + [_bytes(ATTR, a) for a in attributes])


def _attribute(name: str, kind: int, value: int) -> bytes:
    return _bytes(1, name.encode()) + _number(kind, value)


def _varint(value: int) -> bytes:
    """A whole number of 0 or more, seven bits a byte, the lowest first.

    >>> _varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value
