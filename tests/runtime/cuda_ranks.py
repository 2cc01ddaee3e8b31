"""What each rank of `test_cuda_ranks` does in a process of its own: `python -m mpi4py cuda_ranks.py TASK`, or by `spawn`.

The device is pretended: kernels run on CPU threads, over memory that the processes open from each other.
"""

import os
import sys

import numpy as np

from algocc.catalog import algorithms
from algocc.errors import RunError, UsageError
from algocc.runtime import Communicator, count_wrong, expected, make_inputs
from algocc.runtime.apart import lower_apart
from algocc.runtime.cuda import Devices, ThreadDriver
from algocc.runtime.cuda.communicator import of_processes
from algocc.runtime.cuda.pool import Pool
from algocc.runtime.messages import between_nodes
from algocc.schedules.all_pairs import two_shot
from algocc.schedules.ring import ring


def device_array(comm, values):
    array = comm.empty(len(values), values.dtype)
    array.set(values)
    return array


def collectives(comm):
    """The calls of a communicator, against what they mean, and all schedules of AllReduce by name."""
    n, r = comm.size, comm.rank
    for count in (0, 1, 1003):
        x = np.arange(count, dtype=np.int32) + r
        total = np.arange(count) * n + n * (n - 1) // 2
        d = device_array(comm, x)
        assert (comm.all_reduce(d).get() == total).all()
        assert comm.all_reduce(d, out=d, stream=5) is d
        comm.wait()
        assert (d.get() == total).all()
        d.set(x)
        assert (comm.all_gather(d).get().reshape(n, -1) == np.arange(count) + np.arange(n)[:, None]).all()
        assert (comm.reduce_scatter(device_array(comm, np.tile(x, n))).get() == total).all()
        comm.broadcast(d, root=n - 1)
        assert (d.get() == np.arange(count) + n - 1).all()
        d.set(x)
        reduced = comm.reduce(d, root=n - 1)
        assert reduced is None if r != n - 1 else (reduced.get() == total).all()
        whole = device_array(comm, np.repeat(np.arange(n, dtype=np.int32), count)) if r == 0 else None
        assert (comm.scatter(whole, out=comm.empty(count, "int32")).get() == r).all()
        assert (comm.all_to_all(device_array(comm, np.repeat(np.arange(n, dtype=np.int32), count))).get() == r).all()
    comm.barrier()
    for a in algorithms().values():
        if a.collective != "all_reduce":
            continue
        try:
            s = a(n)
        except UsageError:
            continue
        data = make_inputs(s.collective, 509, "int32")
        out = comm.run(s, device_array(comm, data[r]))
        assert count_wrong([out.get()], [expected(s.collective, data)[r]]) == 0, s.name


def disagreement(comm):
    """Told on every rank, and the communicator goes on."""
    x = device_array(comm, np.ones(102 if comm.rank == comm.size - 1 else 100, np.int32))
    try:
        comm.all_reduce(x)
    except UsageError as error:
        assert f"First to differ: rank {comm.size - 1}" in str(error), error
    else:
        raise AssertionError("no error")
    assert comm.all_reduce(device_array(comm, np.ones(3, np.int32))).get().tolist() == [comm.size] * 3


def back_to_back(comm):
    """Programs over one pool, hundreds of calls enqueued, graphs; the pool is whole again in the end."""
    pool, driver = comm._pool, comm.driver
    room = sum(size for _, size in pool._free)
    for schedule in (ring, two_shot):
        p = lower_apart(schedule(comm.size))
        data = make_inputs(p.collective, 1003, "int32")
        with Devices(p, count=1003, dtype="int32", peers=pool, threads=2, tile_bytes=256, channels=2, timeout=20) as run:
            (x,), (y,) = run.buffers()
            x.set(data[comm.rank])
            for _ in range(100):
                run([x], [y], stream=5)
            run.wait()
            assert count_wrong([y.get()], [expected(p.collective, data)[comm.rank]]) == 0
            y.set(np.zeros(1003, np.int32))
            run.graph([x], [y])(times=20)
            run.wait()
            assert count_wrong([y.get()], [expected(p.collective, data)[comm.rank]]) == 0
    assert sum(size for _, size in pool._free) == room
    assert len(driver._foreign) == comm.size - 1


def between(comm):
    """Every schedule across nodes, many tiles in several channels, twice; what leaves a node is counted to the byte."""
    n, r = comm.size, comm.rank
    for name in ("ring", "two_shot", "hierarchical_all_reduce", "all_pairs_all_gather", "ring_reduce_scatter"):
        s = algorithms()[name](n)
        c = s.collective
        for count in (1, 20_011):
            data = make_inputs(c, count, "int32")
            wanted = expected(c, data)[r]
            x, out = device_array(comm, data[r]), comm.empty(wanted.size, "int32")
            for _ in range(2):
                comm.run(s, x, out=out)
                assert count_wrong([out.get()], [wanted]) == 0, (name, count)
                out.set(np.zeros(wanted.size, np.int32))
            sent = next(reversed(comm._own.values())).sent_bytes
            stated = 2 * between_nodes(lower_apart(s, nodes=comm._outside.node_of), comm._outside.node_of, count) * 4
            assert comm.control.all_reduce(np.array([sent])).item() == stated, (name, count)


TASKS = {f.__name__: f for f in (collectives, disagreement, back_to_back, between)}


def on_fake(control, tasks, devices):
    """Run tasks on a communicator of GPUs that are not there, then see that all memory is given back."""
    driver = ThreadDriver(devices=devices, rests=50)
    with of_processes(control, None, pool_bytes=8 << 20, driver=driver) as comm:
        for task in tasks:
            TASKS[task](comm)
    assert not driver._foreign
    return len(driver._memory)


def pool_faults(control):
    """What one process can't do, all say."""
    told = []
    for size, device in ((1 << 20, 0), (1 << 20, control.rank)):
        try:
            Pool(control, ThreadDriver(), device, size).close()
            told.append("fine")
        except UsageError as error:
            told.append(str(error))
    pool = Pool(control, ThreadDriver(), 0, 64 << 10)
    for program in (lower_apart(ring(control.size)), lower_apart(ring(control.size + 1))):
        try:
            Devices(program, count=1 << 20, dtype="int32", peers=pool, threads=1)
        except UsageError as error:
            told.append(str(error))
    pool.close()
    return told


def dies(control):
    """A process that ends in the middle is named by the others, who wait in their kernels."""
    comm = of_processes(control, None, pool_bytes=8 << 20, driver=ThreadDriver())
    x = device_array(comm, np.ones(100, np.int32))
    comm.all_reduce(x, schedule="ring")
    comm.checked = False
    if comm.rank == 1:
        os._exit(3)
    try:
        comm.all_reduce(x, schedule="ring")
    except RunError as error:
        assert "rank 1" in str(error), error
        return
    raise AssertionError("no error")


if __name__ == "__main__":
    with Communicator.mpi(timeout=30) as control:
        on_fake(control, sys.argv[1:], control.size)
        if control.rank == 0:
            print(f"{' '.join(sys.argv[1:])} of {control.size} ranks is well", flush=True)
