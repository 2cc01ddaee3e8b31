"""The caller's arrays: what does not fit is refused, and the message names the rank."""

import numpy as np
import pytest

from algocc.catalog import algorithms
from algocc.collective import custom
from algocc.errors import UsageError
from algocc.lowering import lower
from algocc.runtime import Threads, in_place_buffers, run
from algocc.schedules.ring import ring


def arrays(n=3, count=6):
    return [np.ones(count, np.float32) for _ in range(n)], [np.zeros(count, np.float32) for _ in range(n)]


def read_only(a):
    a.setflags(write=False)
    return a


FAULTS = [
    (1, np.zeros(6), "the output of rank 2 has dtype float64, wanted float32"),
    (1, np.zeros(5, np.float32), "the output of rank 2 has 5 elements, wanted 6"),
    (1, np.zeros((2, 3), np.float32), "the output of rank 2 has 2 dimensions, wanted 1: pass a.reshape"),
    (1, np.zeros(12, np.float32)[::2], "the output of rank 2 is not contiguous"),
    (1, read_only(np.zeros(6, np.float32)), "the output of rank 2 is read-only"),
    (1, [0.0] * 6, "the output of rank 2 is a list, wanted a NumPy array"),
    (1, None, "the output of rank 2 is a NoneType"),
    (0, np.zeros(6, ">f4"), "the input of rank 2 has dtype >f4, wanted float32"),
    (
        0,
        np.zeros((3, 4), np.float32).T.reshape(-1, copy=False) if False else np.zeros((3, 2), np.float32).T,
        "the input of rank 2 has 2 dim",
    ),
]


@pytest.mark.parametrize(("side", "array", "message"), FAULTS)
def test_arrays_that_do_not_fit(side, array, message):
    with Threads(lower(ring(3)), count=6) as threads:
        both = arrays()
        threads(*both)
        both[side][2] = array
        with pytest.raises(UsageError, match=message):
            threads(*both)
        threads(*arrays())


def test_one_array_a_rank():
    with Threads(lower(ring(3)), count=6) as threads:
        inputs, outputs = arrays()
        with pytest.raises(UsageError, match="2 inputs, wanted one for each of 3 ranks"):
            threads(inputs[:2], outputs)
        with pytest.raises(UsageError, match="4 outputs, wanted one for each of 3 ranks"):
            threads(inputs, [*outputs, outputs[0]])


def test_read_only_inputs_and_one_input_for_all():
    with Threads(lower(ring(3)), count=6) as threads:
        same = read_only(np.ones(6, np.float32))
        _, outputs = arrays()
        threads([same] * 3, outputs)
        assert outputs[1].tolist() == [3.0] * 6


def test_an_array_that_became_read_only_since_the_last_call():
    with Threads(lower(ring(3)), count=6) as threads:
        inputs, outputs = arrays()
        threads(inputs, outputs)
        outputs[0].setflags(write=False)
        with pytest.raises(UsageError, match="rank 0 is read-only"):
            threads(inputs, outputs)


def test_memory_that_is_shared_and_written():
    memory = np.zeros(20, np.float32)
    with Threads(lower(ring(3)), count=6) as threads:
        inputs, outputs = arrays()
        with pytest.raises(
            UsageError, match="rank 1: its input and output share memory; lower the schedule in place"
        ):
            threads([inputs[0], memory[:6], inputs[2]], [outputs[0], memory[3:9], outputs[2]])
        with pytest.raises(UsageError, match="buffers of ranks 0 and 2 share memory that is written"):
            threads(inputs, [memory[:6], outputs[1], memory[5:11]])
        threads(inputs, [memory[:6], memory[6:12], memory[12:18]])


def test_in_place_lies_where_the_alias_says():
    """AllGather: the input is the rank's block of its output; equal pointers are refused but for rank 0."""
    program = lower(algorithms()["ring_all_gather"](4), in_place=True)
    inputs, outputs = in_place_buffers(program.collective, 5, "int32")
    with Threads(program, count=5, dtype="int32") as threads:
        for rank, array in enumerate(inputs):
            array[:] = rank
        threads(inputs, outputs)
        assert all(out.tolist() == np.repeat(np.arange(4), 5).tolist() for out in outputs)
        with pytest.raises(
            UsageError, match="rank 1: this program works in place: its input must start at element 5 of"
        ):
            threads([out[:5] for out in outputs], outputs)
    with Threads(lower(algorithms()["ring_reduce_scatter"](3), in_place=True), count=2) as threads:
        inputs, outputs = in_place_buffers(threads.program.collective, 2, "float32")
        assert all(np.shares_memory(inputs[r][2 * r : 2 * r + 2], outputs[r]) for r in range(3))
        with pytest.raises(UsageError, match="rank 0: this program works in place"):
            threads(inputs, [np.zeros(2, np.float32) for _ in range(3)])


def test_layouts_that_in_place_does_not_have():
    swap = custom("swap", inputs=[2, 1], outputs=[[[(0, 0)], [(1, 0)]], []], alias=[(0, 0, 1), (0, 1, 0)])
    with pytest.raises(UsageError, match="swap: rank 0: the aliased blocks are in another order in place"):
        in_place_buffers(swap, 3, "int8")
    half = custom("half", inputs=[2, 1], outputs=[[[(0, 0)], [(1, 0)]], []], alias=[(0, 0, 0)])
    with pytest.raises(
        UsageError, match="half: rank 0: in place, blocks would share memory that are not aliased"
    ):
        in_place_buffers(half, 3, "int8")


def test_no_array_where_there_is_nothing():
    program = lower(algorithms()["binomial_broadcast"](3, root=1))
    outputs = [np.zeros(4, np.int16) for _ in range(3)]
    with Threads(program, count=4, dtype="int16") as threads:
        threads([None, np.arange(4, dtype=np.int16), np.zeros(0, np.int16)], outputs)
    assert [out.tolist() for out in outputs] == [[0, 1, 2, 3]] * 3
    found = run(program, [None, np.arange(4, dtype=np.int16), None])
    assert [out.tolist() for out in found] == [[0, 1, 2, 3]] * 3
    with Threads(program, count=0) as threads:
        threads([None] * 3, [None] * 3)


def test_run_says_which_ranks_differ():
    program = lower(ring(4))
    sizes = (1002, 1000, 1000, 1000)
    with pytest.raises(
        UsageError,
        match="the ranks' inputs differ in count; rank:elements are 0:1002, 1:1000, 2:1000, 3:1000",
    ):
        run(program, [np.ones(size, np.float32) for size in sizes])
    with pytest.raises(UsageError, match="different dtypes: float32, float64"):
        run(program, [np.ones(4), np.ones(4, np.float32), np.ones(4), np.ones(4)])
    with pytest.raises(UsageError, match="3 inputs, wanted one for each of 4 ranks"):
        run(program, [np.ones(4)] * 3)
    scatter = lower(algorithms()["ring_reduce_scatter"](4))
    with pytest.raises(
        UsageError, match="the input of rank 0 has 73 elements, not a multiple of its 4 units: 1 left over"
    ):
        run(scatter, [np.ones(73)] * 4)


def test_more_memory_than_there_is(monkeypatch):
    from algocc.runtime import memory

    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(
        UsageError, match=r"outputs of all_reduce takes 3\.9 KiB, there are 1000 B; use fewer ranks or"
    ):
        run(lower(ring(2)), [np.zeros(500, np.float32)] * 2)
    with pytest.raises(UsageError, match="scratch of 2 ranks for ring takes"):
        Threads(lower(ring(2)), count=500)
