"""Collectives are what their definitions say, read back as they were written, and refuse what makes no sense."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algocc.bounds import canonical
from algocc.collective import (
    COLLECTIVES,
    Buffer,
    Collective,
    all_gather,
    all_reduce,
    all_to_all_v,
    barrier,
    collective,
    custom,
    from_json,
    reduce_scatter,
    send_recv,
    to_json,
)
from algocc.errors import UsageError
from algocc.testing import collectives

BLOCK = 2  # elements of a block


def whole(x):
    return [x.sum(0)] * len(x)


def prefix(x):
    return [x[: r + 1].sum(0) for r in range(len(x))]


def prefix_before(x):
    return [np.zeros(0), *[x[:r].sum(0) for r in range(1, len(x))]]


def only(rank, n, value):
    return [value if r == rank else np.zeros(0) for r in range(n)]


# Inputs of every rank → outputs of every rank, in the words of NumPy. x[r] is the input of rank r where all have
# one of the same size; `blocks` says how many blocks each rank puts in.
DEFINITIONS = {
    "all_reduce": (lambda n, root: [1] * n, lambda x, n, root: whole(np.array(x))),
    "barrier": (lambda n, root: [1] * n, lambda x, n, root: whole(np.array(x))),
    "reduce_scatter": (lambda n, root: [n] * n, lambda x, n, root: np.array(x).sum(0).reshape(n, BLOCK)),
    "all_gather": (lambda n, root: [1] * n, lambda x, n, root: [np.concatenate(x)] * n),
    "broadcast": (lambda n, root: [int(r == root) for r in range(n)], lambda x, n, root: [x[root]] * n),
    "reduce": (lambda n, root: [1] * n, lambda x, n, root: only(root, n, np.array(x).sum(0))),
    "scatter": (
        lambda n, root: [n * (r == root) for r in range(n)],
        lambda x, n, root: x[root].reshape(n, BLOCK),
    ),
    "gather": (lambda n, root: [1] * n, lambda x, n, root: only(root, n, np.concatenate(x))),
    "all_to_all": (
        lambda n, root: [n] * n,
        lambda x, n, root: np.array(x).reshape(n, n, BLOCK).transpose(1, 0, 2).reshape(n, -1),
    ),
    "scan": (lambda n, root: [1] * n, lambda x, n, root: prefix(np.array(x))),
    "exscan": (lambda n, root: [1] * n, lambda x, n, root: prefix_before(np.array(x))),
    "send_recv": (lambda n, root: [1] * n, lambda x, n, root: [x[r - 1] for r in range(n)]),
}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_collective_is_its_definition(name, n):
    blocks, define = DEFINITIONS[name]
    for root in range(n) if name in ("broadcast", "reduce", "scatter", "gather") else [0]:
        c = collective(name, n, **({"root": root} if root else {}))
        assert c.inputs.tolist() == blocks(n, root)
        rng = np.random.default_rng(n)
        x = [rng.integers(0, 100, k * BLOCK) for k in c.inputs.tolist()]
        for rank, want in enumerate(define(x, n, root)):
            assert int(c.outputs[rank]) * BLOCK == len(want)
            for block in range(int(c.outputs[rank])):
                parts = [x[r][i * BLOCK : (i + 1) * BLOCK] for r, i in c.wanted(rank, block)]
                assert sum(parts).tolist() == want[block * BLOCK : (block + 1) * BLOCK].tolist()


def test_every_collective_is_tested():
    assert set(DEFINITIONS) | {"all_to_all_v"} == set(COLLECTIVES)


@given(st.data(), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_all_to_all_v_moves_what_the_counts_say(data, n):
    row = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    counts = data.draw(st.lists(row, min_size=n, max_size=n))
    c = all_to_all_v(n, counts=counts)
    for rank in range(n):
        for block in range(n):
            assert c.wanted(rank, block) == [(block, rank)]
            assert c.output_sizes[rank * n + block] == counts[block][rank]
    symmetric = np.array_equal(counts, np.transpose(counts))
    assert len(c.alias) == (n * n if symmetric else 0)
    sent, received = np.sum(counts, axis=1), np.sum(counts, axis=0)
    assert c.vector == max(sent.max(), received.max())


@given(st.data(), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_send_recv_pairs_blocks_in_order(data, n):
    rank = st.integers(0, n - 1)
    pairs = data.draw(st.lists(st.tuples(rank, rank), max_size=8))
    c = send_recv(n, pairs=pairs)
    sent, received = [0] * n, [0] * n
    for a, b in pairs:
        assert c.wanted(b, received[b]) == [(a, sent[a])]
        sent[a] += 1
        received[b] += 1
    assert (c.inputs.tolist(), c.outputs.tolist()) == (sent, received)


@given(collectives(5))
@settings(max_examples=100, deadline=None)
def test_in_place_one_block_is_one_block_of_its_size(c):
    for rank, i, o in c.alias.tolist():
        assert c.sizes[c.input_start[rank] + i] == c.output_sizes[c.output_start[rank] + o]
    assert (
        len({(r, i) for r, i, _ in c.alias.tolist()})
        == len({(r, o) for r, _, o in c.alias.tolist()})
        == len(c.alias)
    )


@given(collectives(4))
@settings(max_examples=100, deadline=None)
def test_json_reads_back_without_loss(c):
    text = json.dumps(to_json(c))
    assert from_json(json.loads(text)) == c
    again = from_json(json.loads(text))
    assert (again.params, again.load.tolist(), again.store.tolist()) == (
        c.params,
        c.load.tolist(),
        c.store.tolist(),
    )
    assert (again.source, again.sink, again.work) == (c.source, c.sink, c.work)


@given(collectives(4))
@settings(max_examples=30, deadline=None)
def test_a_block_is_cut_into_chunks(c):
    halves = c.cut(2)
    assert halves.same_task(c) and halves.chunks == 2 and (halves == c) == (c.chunks == 2)
    for rank in range(c.n):
        assert halves.size(Buffer.INPUT, rank) == 2 * c.inputs[rank]
        assert halves.size(Buffer.OUTPUT, rank) == 2 * c.outputs[rank]


def test_the_same_task_under_another_name():
    mine = custom("mine", inputs=[1, 1], outputs=[[[(1, 0), (0, 0)]], [[(0, 0), (1, 0)]]])
    assert mine.same_task(all_reduce(2)) and mine != all_reduce(2)
    assert not mine.same_task(all_gather(2)) and not mine.same_task(all_reduce(3))
    twice = custom("mine", inputs=[1, 1], outputs=[[[(1, 0), (0, 0)]], [[(0, 0), (0, 0), (1, 0)]]])
    assert not twice.same_task(mine)
    assert mine.__eq__("mine") is NotImplemented


def test_size_and_text():
    c = reduce_scatter(3, chunks=2)
    assert (c.vector, c.reduces, all_gather(3).reduces) == (3, True, False)
    assert str(c) == "reduce_scatter n=3 chunks=2"
    assert str(all_to_all_v(2, counts=[[1, 2], [3, 4]])) == "all_to_all_v n=2 chunks=1 counts=[[1,2],[3,4]]"
    with pytest.raises(ValueError, match="read-only"):
        c.want[0] = 1


def test_names_however_spelled():
    assert (
        canonical("ReduceScatter")
        == canonical("reduce-scatter")
        == canonical("reduce_scatter")
        == "reduce_scatter"
    )
    with pytest.raises(UsageError, match="unknown collective 'allredcue'; did you mean all_reduce"):
        canonical("allredcue")


C = all_reduce(2)
NONSENSE = {
    "collective all_reduce: n=0: a collective has at least 1 rank": lambda: all_reduce(0),
    "collective all_reduce: chunks=0: a block is cut into at least 1 chunk": lambda: all_reduce(2, chunks=0),
    "all_reduce: chunks=-1: a block is cut into at least 1 chunk": lambda: C.cut(-1),
    "root=3: with n=3 a rank is one of 0..2": lambda: collective("broadcast", 3, root=3),
    "root=-1: with n=3 a rank is one of 0..2": lambda: collective("gather", 3, root=-1),
    "send_recv: dst=4: with n=2 a rank is one of 0..1": lambda: send_recv(2, pairs=[(0, 4)]),
    "all_to_all_v: counts: wanted 2 rows of 2 whole numbers": lambda: all_to_all_v(2, counts=[[1, 2]]),
    "all_to_all_v: counts: wanted 1 rows of 1 whole numbers": lambda: all_to_all_v(1, counts=[[-1]]),
    "all_to_all_v: counts: wanted 1 rows of 1 whole": lambda: all_to_all_v(1, counts=[[0.5]]),  # type: ignore[list-item]
    "unknown collective 'allreduce'; did you mean all_reduce": lambda: collective("allreduce", 2),
    "collective broadcast: broadcast() got an unexpected keyword argument 'rot'": lambda: collective("broadcast", 2, rot=1),
    "collective mine: outputs of 1 rank, inputs of 2": lambda: custom("mine", inputs=[1, 1], outputs=[[]]),
    "collective mine: an output wants block 1 of rank 0, which does not exist":
        lambda: custom("mine", inputs=[1], outputs=[[[(0, 1)]]]),
    "collective mine: set 0 is empty": lambda: custom("mine", inputs=[1], outputs=[[[]]]),
    "collective mine: a row of alias names a rank or block that does not exist":
        lambda: custom("mine", inputs=[1], outputs=[[[(0, 0)]]], alias=[(0, 0, 1)]),
    "collective mine: alias: in place an input block is one output block":
        lambda: custom("mine", inputs=[1], outputs=[[[(0, 0)], [(0, 0)]]], alias=[(0, 0, 0), (0, 0, 1)]),
    "collective all_to_all_v: alias: in place an input block is one output block of the same size":
        lambda: replace(all_to_all_v(2, counts=[[0, 1], [2, 0]]), alias=[[0, 1, 1]]),
    "collective all_reduce: want names set 1, there are 1": lambda: replace(C, want=np.array([0, 1])),
    "collective all_reduce: want has shape (1,), wanted (2,)": lambda: replace(C, want=np.array([0])),
    "collective all_reduce: inputs holds -1, wanted 0 or more":
        lambda: replace(C, inputs=np.array([3, -1]), alias=C.alias[:0], load=C.load[:0]),
    "collective all_reduce: a set names an input block outside 0..1": lambda: replace(C, set_items=np.array([0, 2])),
    "collective all_reduce: a set holds blocks of different sizes": lambda: replace(C, sizes=np.array([1, 2])),
    "collective: the key 'n' is missing": lambda: from_json({"name": "all_reduce"}),
    "collective: unknown key 'wants'; did you mean want": lambda: from_json({**custom_json(), "wants": 1}),
    "collective: KeyError: 'inputs'": lambda: from_json({k: v for k, v in custom_json().items() if k != "inputs"}),
}  # fmt: skip


def custom_json():
    return to_json(custom("mine", inputs=[1], outputs=[[[(0, 0)]]]))


@pytest.mark.parametrize("message", NONSENSE)
def test_nonsense_is_refused_with_a_reason(message):
    with pytest.raises(UsageError) as error:
        NONSENSE[message]()
    assert str(error.value).startswith(message)


def test_a_changed_built_in_is_written_in_full():
    changed = replace(barrier(3), idempotent=False)
    assert "want" in to_json(changed) and "want" not in to_json(barrier(3))
    assert from_json(to_json(changed)) == changed


def test_collectives_are_not_hashed():
    with pytest.raises(TypeError):
        hash(C)
    assert isinstance(C, Collective)


@pytest.mark.parametrize("chunks", [2.5, "2", None, 0, -1, 10**12])
def test_chunks_are_a_number_that_can_be_counted(chunks):
    with pytest.raises(UsageError, match=f"^collective all_reduce: chunks={chunks!r}: "):
        all_reduce(4, chunks=chunks)
