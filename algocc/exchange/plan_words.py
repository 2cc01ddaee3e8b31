"""The words of MSCCL++ plans as tables: operations, keys, and what they were called over the years."""

from __future__ import annotations

from typing import NamedTuple


class OpType(NamedTuple):
    """What an operation does.

    copies: each source goes to the destination of the same number. reduces: all sources are reduced into each one.
    signals, waits: on its channels. takes: which of its sources are packets, which carry their own flags: all of them,
        or the rest after the first. gives: which of its destinations are: all, or the remote ones.
    """

    copies: bool = False
    reduces: bool = False
    signals: bool = False
    waits: bool = False
    takes: str = ""
    gives: str = ""

    @property
    def packets(self) -> bool:
        """Whether it handles packets."""
        return bool(self.takes or self.gives)

    @property
    def moves(self) -> bool:
        """Whether it handles data."""
        return self.copies or self.reduces


OPS = {
    "nop": OpType(),
    "barrier": OpType(),
    "flush": OpType(),
    "put": OpType(copies=True),
    "pws": OpType(copies=True, signals=True),
    "pwsf": OpType(copies=True, signals=True),
    "get": OpType(copies=True),
    "copy": OpType(copies=True),
    "signal": OpType(signals=True),
    "rlxsignal": OpType(signals=True),
    "wait": OpType(waits=True),
    "rlxwait": OpType(waits=True),
    "re": OpType(reduces=True),
    "res": OpType(reduces=True),
    "rre": OpType(reduces=True),
    "rres": OpType(reduces=True),
    "ppkt": OpType(copies=True, gives="all"),
    "rppkt": OpType(copies=True, takes="all", gives="all"),
    "cpkt": OpType(copies=True, gives="all"),
    "upkt": OpType(copies=True, takes="all"),
    "repkt": OpType(reduces=True, takes="rest"),
    "respkt": OpType(reduces=True, takes="rest", gives="remote"),
    "recpkt": OpType(reduces=True, takes="rest", gives="remote"),
    "recspkt": OpType(reduces=True, takes="rest", gives="remote"),
    "glres": OpType(reduces=True),
    "gstore": OpType(copies=True),
    "gstorepkt": OpType(copies=True, gives="all"),
    "pipeline": OpType(),
    "sem_acquire": OpType(),
    "sem_release": OpType(),
}

OLD_OPS = {
    "rs": "res",
    "rrc": "rre",
    "rrcs": "rres",
    "rspkt": "respkt",
    "rpkt": "repkt",
    "tpkt": "cpkt",
    "ucpkt": "upkt",
}
"""Names of before 2026, and what they are now."""

CHANNEL_TYPES = ("memory", "port", "switch", "none")
OLD_CHANNEL_TYPES = {"sm": "memory", "proxy": "port", "nvls": "switch"}

OLD_KEYS = {
    "plan": {"colletive": "collective"},
    "gpu": {"inputChunks": "input_chunks", "outputChunks": "output_chunks", "scratchChunks": "scratch_chunks"},
    "channel": {
        "type": "channel_type", "connectedTo": "connected_to", "buff": "buffer_type", "rankGroups": "rank_groups",
    },
    "threadblock": {},
    "block_channel": {"ctype": "channel_type", "cids": "channel_ids", "buff": "buffer_type"},
    "op": {"ctype": "channel_type"},
}  # fmt: skip
"""Keys of before 2026 by what they are in, and what they are now."""

KEYS = {
    "plan": {
        "name", "collective", "protocol", "inplace", "gpus", "reuse_resources", "num_threads_per_block",
        "use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size",
    },
    "gpu": {
        "id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers",
        "semaphores", "chunkGroups",
    },
    "channel": {"channel_type", "connected_to", "buffer_type", "rank_groups", "srcbuff", "dstbuff"},
    "rank_group": {"size", "ranks"},
    "remote_buffer": {"rank", "type", "access_channel_types"},
    "semaphore": {"init_value"},
    "threadblock": {"id", "ops", "channels", "remote_buffer_refs"},
    "block_channel": {"channel_type", "channel_ids", "buffer_type", "src", "dst"},
    "reference": {"access_channel_type", "remote_buffer_ids"},
    "op": {
        "name", "src_buff", "dst_buff", "channel_ids", "channel_type", "reduce_op", "tbg_info", "barrier_id",
        "num_threadblocks", "nthread_blocks", "semaphore_ids", "iter_context", "ops", "tb_id", "buffer_id",
        "round", "order",  # algocc's own, as in its XML
        # until 2024
        "src", "dst", "srcbuff", "srcoff", "dstbuff", "dstoff", "srcs", "dsts", "cnt", "deps",
        "o_buff", "i_buff", "o_cids", "i_cids",
    },
    "operand": {"type", "index", "size", "buffer_id", "switch_channel_id"},
    "old_operand": {"buff", "off"},
    "old_channel_use": {"id", "off"},
    "old_buffers": {"src", "dst"},
    "old_dependency": {"tb", "step"},
    "iter_context": {"unit_size", "num_chunks"},
    "tbg_info": {"tb_id", "tbg_size"},
}  # fmt: skip
"""What each kind of object may hold."""

DEFAULTS = {
    "reuse_resources": "false",
    "num_threads_per_block": "1024",
    "use_double_scratch_buffer": "false",
    "buffer_alignment": "16",
    "min_message_size": "0",
    "max_message_size": "2^64 - 1",
}
"""Keys of a plan that may be missing, with the value the executor takes."""

COLLECTIVES = (
    "allreduce",
    "allgather",
    "reducescatter",
    "reduce",
    "broadcast",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
)
PROTOCOLS = ("Simple", "LL")
