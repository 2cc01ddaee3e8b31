"""Second pass of lowering: what another rank would fetch is written to it by the Move that makes it.

before: `out[0] = in[0] + r1.in[0]` on rank 0, then `out[0] = r0.out[0]` on rank 1
after:  `out[0], r1.out[0] = in[0] + r1.in[0]` on rank 0

So an all-pairs ReduceScatter and AllGather become one Move a chunk that reads n sources and writes n destinations,
and a step of a ring the classic receive-reduce-copy-send. Each message goes between the same two ranks as before, and
what is written is not read again.

Valid when the Move that fetches has one source, written last by a Move of the rank that holds it, and nothing in
between reads or writes the places that it writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algocc.lowering.fuse import Moves

Array = NDArray[Any]


def push(m: Moves) -> Moves:
    """The same Moves, those that only fetch joined with those that make what they fetch, where that is valid."""
    locations = int(m.start[-1, 2]) + m.scratch
    rank = np.searchsorted(m.start[:, 0], np.arange(locations), side="right") - 1
    into = _joined(m.src_start, m.src, m.dst_start, m.dst, rank)
    kept = np.flatnonzero(into < 0)
    makers = np.where(into < 0, np.arange(len(into)), into)
    owner = np.repeat(makers, np.diff(m.dst_start))
    order = np.argsort(owner, kind="stable")
    dst_start = np.searchsorted(owner[order], np.append(kept, len(into)))
    keep_src = np.repeat(into < 0, np.diff(m.src_start))
    sizes = np.diff(m.src_start)[kept]
    return m._replace(
        row=m.row[kept],
        like=m.like[kept],
        final=m.final[kept],
        src_start=np.concatenate([[0], np.cumsum(sizes)]),
        src=m.src[keep_src],
        src_first=m.src_first[keep_src],
        dst_start=dst_start,
        dst=m.dst[order],
    )


@njit(cache=True, nogil=True)
def _joined(src_start, src, dst_start, dst, rank):
    """For each Move the one that takes over its writes, -1 if it stays."""
    moves = len(src_start) - 1
    into = np.full(moves, -1, np.int32)
    writer = np.full(len(rank), -1, np.int32)  # the Move that wrote a location last
    touched = np.full(len(rank), -1, np.int32)  # the Move that read or wrote it last
    for m in range(moves):
        a = src[src_start[m]]
        maker = writer[a] if src_start[m + 1] - src_start[m] == 1 else -1
        joins = maker >= 0 and rank[dst[dst_start[maker]]] == rank[a] and rank[dst[dst_start[m]]] != rank[a]
        for i in range(dst_start[m], dst_start[m + 1]):
            joins &= touched[dst[i]] <= maker and writer[dst[i]] != maker
        if joins:
            into[m] = maker
            for i in range(dst_start[m], dst_start[m + 1]):
                writer[dst[i]] = touched[dst[i]] = maker
            continue
        for i in range(src_start[m], src_start[m + 1]):
            touched[src[i]] = m
        for i in range(dst_start[m], dst_start[m + 1]):
            writer[dst[i]] = touched[dst[i]] = m
    return into
