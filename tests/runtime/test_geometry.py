"""Chunks: whole, in order, of nearly equal length, and counted in 64 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algocc.collective import Buffer, all_reduce, all_to_all_v, gather, reduce_scatter
from algocc.errors import UsageError
from algocc.runtime import Threads, buffer_elements
from algocc.runtime.apart import lower_apart
from algocc.runtime.geometry import chunks, count_of
from algocc.steps import Steps
from algocc.testing import collectives


@given(collectives(), st.integers(0, 1000))
def test_chunks_cover_every_buffer(c, count):
    count = 1 if c.name == "barrier" else count
    for buffer, sizes in zip((Buffer.INPUT, Buffer.OUTPUT), buffer_elements(c, count), strict=True):
        start, offset, length = chunks(c, buffer, count)
        for rank, size in enumerate(sizes):
            mine = slice(start[rank], start[rank + 1])
            assert offset[mine].tolist() == (np.cumsum(length[mine]) - length[mine]).tolist()
            assert length[mine].sum() == size
            for block in length[mine].reshape(-1, c.chunks):
                assert block.max() - block.min() <= 1


def test_parts_of_a_block():
    """Part j of k of E elements is j·E // k to (j + 1)·E // k."""
    _, offset, length = chunks(all_reduce(1, chunks=4), Buffer.INPUT, 10)
    assert (offset.tolist(), length.tolist()) == ([0, 2, 5, 7], [2, 3, 2, 3])


def test_large_offsets_are_not_cut_to_32_bits():
    """Gather of 2048 · 2 MiB; 63 blocks of 102 million; and a product j·E that would not fit in 64 bits."""
    _, offset, _ = chunks(gather(2048), Buffer.OUTPUT, 524288)
    assert int(offset[1024]) * 4 == 2147483648
    _, offset, _ = chunks(reduce_scatter(64), Buffer.INPUT, 102_000_000)
    assert int(offset[63]) == 6426000000
    k = 10**6
    _, offset, length = chunks(all_reduce(1, chunks=k), Buffer.INPUT, 2**60 + 1)
    assert int(offset[k - 1]) == (k - 1) * (2**60 + 1) // k
    assert int(offset[-1] + length[-1]) == 2**60 + 1


def test_count_from_the_inputs():
    assert count_of(reduce_scatter(3), [6, 6, 6]) == 2
    assert count_of(all_to_all_v(2, counts=[[1, 1], [0, 0]]), [10, 0]) == 5
    assert count_of(gather(2), [0, 0]) == 0


def test_a_part_in_a_slot_of_another_length():
    """Chunk 0 of 3 elements in 2 has 1, chunk 1 has 2: a schedule that moves one into the other needs an even count."""
    s = Steps(all_reduce(2, chunks=2), name="crossed")
    with s.step():
        s.copy(src=0, dst=1, chunk=0, to=1, buffer="in")
    program = lower_apart(s.build())
    with pytest.raises(
        UsageError,
        match=r"step 1: with count=3, out\[1\] of rank 1 has 2 elements .*use a count divisible by 2",
    ) as caught:
        Threads(program, count=3)
    assert "test_geometry.py" in str(caught.value)
    Threads(program, count=4).close()
