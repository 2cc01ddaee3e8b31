"""The words of MSCCL XML as tables: step types, attributes, names of collectives."""

from __future__ import annotations

from typing import NamedTuple


class StepType(NamedTuple):
    """What a step does.

    pops: takes a message from the receive connection. pushes: puts its result on the send connection.
    reads: its source operand. writes: its destination. adds: its destination is also an operand.
    """

    pops: bool = False
    pushes: bool = False
    reads: bool = False
    writes: bool = False
    adds: bool = False

    @property
    def moves(self) -> bool:
        """Whether it handles data at all."""
        return self.pops or self.reads


STEP_TYPES = {
    "s": StepType(pushes=True, reads=True),
    "r": StepType(pops=True, writes=True),
    "rcs": StepType(pops=True, pushes=True, writes=True),
    "rrc": StepType(pops=True, reads=True, writes=True),
    "rrs": StepType(pops=True, pushes=True, reads=True),
    "rrcs": StepType(pops=True, pushes=True, reads=True, writes=True),
    "cpy": StepType(reads=True, writes=True),
    "re": StepType(reads=True, writes=True, adds=True),
    "nop": StepType(),
}


class Attribute(NamedTuple):
    """An attribute of an element.

    default: the value if it is missing; None if it must be there.
    least, most: of a number; text if `least` is None.
    """

    default: str | None = None
    least: int | None = None
    most: int = 2**63 - 1


MOST_CHUNKS = 1 << 20
"""Chunks of one buffer of one rank beyond which a number is taken for a slip."""

ATTRIBUTES = {
    "algo": {
        "name": Attribute("unnamed"),
        "proto": Attribute("Simple"),
        "nchannels": Attribute("1", 0, 1 << 16),
        "nchunksperloop": Attribute(None, 1, MOST_CHUNKS),
        "ngpus": Attribute(None, 1, 1 << 16),
        "coll": Attribute(None),
        "inplace": Attribute(None, 0, 1),
        "outofplace": Attribute("", 0, 1),
        "minBytes": Attribute("0", 0),
        "maxBytes": Attribute("0", 0),
    },
    "gpu": {
        "id": Attribute(None, 0, 1 << 16),
        "i_chunks": Attribute(None, 0, MOST_CHUNKS),
        "o_chunks": Attribute(None, 0, MOST_CHUNKS),
        "s_chunks": Attribute("0", 0, MOST_CHUNKS),
    },
    "tb": {
        "id": Attribute(None, 0, 1 << 16),
        "send": Attribute(None, -1, 1 << 16),
        "recv": Attribute(None, -1, 1 << 16),
        "chan": Attribute(None, -1, 1 << 16),
    },
    "step": {
        "s": Attribute(None, 0, 1 << 24),
        "type": Attribute(None),
        "srcbuf": Attribute(""),
        "srcoff": Attribute("-1", -1, MOST_CHUNKS),
        "dstbuf": Attribute(""),
        "dstoff": Attribute("-1", -1, MOST_CHUNKS),
        "cnt": Attribute("", 0, MOST_CHUNKS),
        "depid": Attribute("-1", -1, 1 << 16),
        "deps": Attribute("-1", -1, 1 << 24),
        "hasdep": Attribute("0", 0, 1),
        "round": Attribute("-1", -1, 1 << 24),
        "order": Attribute(""),
    },
}
"""By element. An empty default depends on the rest; whoever reads the attribute settles it.

`round` and `order` are algocc's own, which runtimes do not read: the schedule's step that a message is sent in, and
`order="pop"` where what arrives is the left operand of a reduction.
"""

QUIET = {"round", "order", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt"}
"""Attributes whose absence goes without a note: not needed, or missed by the steps that need them."""

UNREAD = {
    "algo": {"nthreadblocks", "maxcount", "nthreads", "redop"},
    "gpu": set(),
    "tb": set(),
    "step": set(),
}
"""Attributes that files in the wild carry and that mean nothing here."""

PROTOCOLS = ("Simple", "LL", "LL128")

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send_recv",
    "recv": "send_recv",
    "sendrecv": "send_recv",
}
"""What files write for `coll`, and the collective that it is here."""

MOST_CHANNEL = 31
CHILD = {"algo": "gpu", "gpu": "tb", "tb": "step", "step": ""}
