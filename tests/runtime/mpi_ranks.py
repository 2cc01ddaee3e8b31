"""What each rank of `test_messages` does under mpiexec: `python -m mpi4py mpi_ranks.py TASK`. It prints a line when all is well."""

import sys

import numpy as np

from algocc.catalog import algorithms
from algocc.errors import RunError, UsageError
from algocc.runtime import count_wrong, expected, make_inputs
from algocc.runtime.communicator import APART_UP_TO, Communicator


def collectives(comm):
    """All collectives against what they demand, then each one's schedules by name."""
    n, r = comm.size, comm.rank
    for count in (0, 1, n - 1, APART_UP_TO + 3):
        x = np.arange(count, dtype=np.int32) + r
        total = np.arange(count) * n + n * (n - 1) // 2
        y = x.copy()
        assert (comm.all_reduce(x) == total).all()
        assert comm.all_reduce(y, out=y) is y and (y == total).all()
        assert (comm.all_gather(x) == np.arange(count) + np.arange(n)[:, None]).all()
        assert (comm.reduce_scatter(np.tile(x, n)) == total).all()
        for root in (0, n - 1):
            b = x.copy()
            comm.broadcast(b, root=root)
            assert (b == np.arange(count) + root).all()
            reduced = comm.reduce(x, root=root)
            assert reduced is None if r != root else (reduced == total).all()
            part = comm.scatter(np.repeat(np.arange(n, dtype=np.int32), count) if r == root else None, root=root,
                                out=np.empty_like(x))  # fmt: skip
            assert (part == r).all()
            gathered = comm.gather(x, root=root)
            assert gathered is None if r != root else (gathered[n - 1] == np.arange(count) + n - 1).all()
        assert (comm.all_to_all(np.repeat(np.arange(n), count)) == r).all()
        assert (comm.scan(x)[:1] == r * (r + 1) // 2).all()
    counts = [[(i + 2 * j) % 3 for j in range(n)] for i in range(n)]
    out = np.empty(sum(row[r] for row in counts), np.int64)
    comm.all_to_all_v(np.repeat(np.arange(n) + 100 * r, counts[r]), counts, out=out)
    assert (out == np.repeat(100 * np.arange(n) + r, [row[r] for row in counts])).all()
    comm.barrier()
    for a in algorithms().values():
        try:
            s = a(n)
        except UsageError:
            continue
        c = s.collective
        if c.name == "barrier":
            continue
        for count in (1, 5003):
            data = make_inputs(c, count, "int32")
            wanted = expected(c, data)[r]
            out = np.zeros(wanted.size, np.int32) if c.outputs[r] else None
            comm.run(s, data[r] if c.inputs[r] else None, out=out)
            assert out is None or count_wrong([out], [wanted]) == 0, (s.name, count)


def volume(comm):
    """What leaves a node is what the schedule says, to the byte, tile after tile."""
    group = comm.size // 2
    for name, params in (("hierarchical_all_reduce", {"group": group}), ("two_shot", {}), ("hierarchical_all_gather", {"group": group})):
        s = algorithms()[name](comm.size, **params)
        m = s.matched()
        c = s.collective
        count = 1 << 20
        node = np.asarray(comm._outside.node_of)
        far = (node[m.rank] != node[m.peer]) & (m.rank == comm.rank)
        stated = int(m.count[far].sum()) * (count // c.chunks) * 4
        before = comm._outside.sent_bytes
        comm.run(s, np.ones(count, np.float32))
        found = comm._outside.sent_bytes - before
        assert found == stated, (name, found, stated)
        everyone = comm.all_reduce(np.array([found])).item()
        if comm.rank == 0:
            print(f"{name}: {everyone} bytes between nodes")


def disagreement(comm):
    with_one_more = np.ones(1002 if comm.rank == comm.size - 1 else 1000)
    try:
        comm.all_reduce(with_one_more)
    except UsageError as error:
        listed = ", ".join(f"{r}:{1002 if r == comm.size - 1 else 1000}" for r in range(comm.size))
        assert f"count {listed}. First to differ: rank {comm.size - 1}" in str(error), error
    else:
        raise AssertionError("no error")
    assert comm.all_reduce(np.ones(3))[0] == comm.size


def late(comm):
    """A rank that never comes is an error on all others within the timeout."""
    from mpi4py import MPI

    comm.barrier()
    if comm.rank != 1:
        try:
            comm.all_reduce(np.ones(100))
        except RunError as error:
            assert "did not come within 0.5 s" in str(error) or "gave up" in str(error), error
        else:
            raise AssertionError("no error")
    MPI.COMM_WORLD.barrier()


TASKS = {f.__name__: f for f in (collectives, volume, disagreement, late)}

if __name__ == "__main__":
    for task in sys.argv[1:]:
        with Communicator.mpi(timeout=0.5 if task == "late" else 30) as comm:
            TASKS[task](comm)
            if comm.rank == 0:
                print(f"{task} of {comm.size} ranks is well", flush=True)
