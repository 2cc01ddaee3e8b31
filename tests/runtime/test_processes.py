"""Ranks that are processes: memory that all reach, arrays that they do not, ends of every kind, and nothing left behind."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from algocc.catalog import algorithms
from algocc.errors import RunError, UsageError
from algocc.runtime import count_wrong, expected, make_inputs
from algocc.runtime.communicator import APART_UP_TO, Communicator
from algocc.runtime.heap import Heap, nameless
from algocc.runtime.launch import spawn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are started by fork here")


def run(fn, n, *args, **options):
    return spawn(fn, n, *args, **{"start": "fork", "timeout": 20, **options})


def leftovers():
    """What this process and the system hold: descriptors, threads, names of shared memory and of sockets."""
    gc.collect()
    shm = {p.name for p in Path("/dev/shm").iterdir() if "algocc" in p.name}
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "algocc" in line}
    return len(os.listdir("/proc/self/fd")), threading.active_count(), shm, names


@pytest.mark.parametrize("n", [1, 2, 4])
def test_arrays_that_peers_reach_and_arrays_that_they_do_not(n):
    """All collectives with both, some ranks with the one and some with the other, around the bound of direct access."""

    def work(comm):
        r = comm.rank
        for count in (0, 1, 7, APART_UP_TO // 4 + 1, 100_003):
            plain, mine = np.arange(count, dtype=np.int32) + r, comm.empty(count, "int32")
            out, result = comm.empty(count, "int32"), np.zeros(count, np.int32)
            total = np.arange(count) * n + n * (n - 1) // 2
            for x, y in ((plain, result), (mine, out), (mine if r else plain, out), (mine, out if r else result)):
                mine[:], y[:] = plain, -1
                assert comm.all_reduce(x, out=y) is y
                assert (y == total).all() and (x == plain).all()
                gathered = comm.all_gather(x, out=comm.empty((n, count), "int32"))
                assert (gathered == np.arange(count) + np.arange(n)[:, None]).all()
                parts = comm.reduce_scatter(np.tile(x, n), out=y)
                assert (parts == total).all()
            mine[:] = plain
            comm.all_reduce(mine, out=mine)
            assert (mine == total).all()
            mine[:] = plain
            comm.broadcast(mine, root=n - 1)
            assert (mine == np.arange(count) + n - 1).all()
            swapped = comm.all_to_all(np.repeat(np.arange(n, dtype=np.int32), count), out=comm.empty(n * count, "int32"))
            assert (swapped == r).all()
        return True

    assert run(work, n) == [True] * n


def test_schedules_of_the_catalogue_on_both_kinds_of_memory():
    n = 3
    names = ["ring", "one_shot", "two_shot", "reduce_broadcast", "ring_reduce_scatter", "bruck_all_gather",
             "pairwise_all_to_all", "log_step_scan", "binomial_gather", "chain_broadcast"]  # fmt: skip
    made = [algorithms()[name](n) for name in names]

    def work(comm):
        wrong = []
        for s in made:
            c = s.collective
            for count in (2, 5003):
                data = make_inputs(c, count, "int32")
                wanted = expected(c, data)[comm.rank]
                for empty in (np.empty, comm.empty):
                    x = empty(data[comm.rank].size, np.int32)
                    x[:] = data[comm.rank]
                    out = empty(wanted.size, np.int32)
                    comm.run(s, x if c.inputs[comm.rank] else None, out=out if c.outputs[comm.rank] else None)
                    wrong.append(count_wrong([out], [wanted]) if c.outputs[comm.rank] else 0)
        return sum(wrong)

    assert run(work, n) == [0] * n


def add(comm, more):
    return comm.all_reduce(np.array([comm.rank])).item() + more


def test_processes_that_are_started_anew_import_the_function():
    assert spawn(add, 2, 5, start="spawn") == [6, 6]


def test_results_and_errors_come_back():
    with pytest.raises(RunError, match="^rank 1 failed: ZeroDivisionError: .* by zero\n(.*\n)*.*in work"):

        def work(comm):
            return 1 // (1 - comm.rank)

        run(work, 2)
    with pytest.raises(UsageError, match="start='no': wanted one of"):
        spawn(add, 2, start="no")


PARENT = """
import sys
import numpy as np
from algocc.runtime import spawn

def work(comm):
    import os
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: two threads' prints may run together
    while True:
        comm.all_reduce(np.ones(10))

try:
    spawn(work, 2, threads=THREADS, **({} if THREADS else {"start": "fork"}))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("threads", "how"), [(True, signal.SIGINT), (False, signal.SIGINT), (False, signal.SIGKILL)])
def test_ranks_end_with_their_caller(threads, how):
    """Ctrl-C and kill -9 of the process that called `spawn`: ranks that never return of their own do not go on."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.replace("THREADS", str(threads))], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as parent:  # fmt: skip
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        time.sleep(0.1)
        parent.send_signal(how)
        assert parent.wait(20) == (0 if how == signal.SIGINT else -how)
        assert parent.stdout.read() == ("interrupted\n" if how == signal.SIGINT else "")
    end = time.monotonic() + 10
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(pid):
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def how_it_ends(comm, how, told):
    comm.all_reduce(np.ones(1000), schedule="two_shot")
    if comm.rank == 1:
        time.sleep(0.02)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            os._exit(3)
        if how == "leave":
            sys.exit(4)
        if how == "raise":
            raise ValueError("boom")
        if how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "middle":  # dead with its lane begun: it has entered, and signals nothing
            node, call = comm._node, comm._state.call + 1
            record = node.records[1, call & 1]
            record[1:] = node.records[1, (call - 1) & 1, 1:]
            record[0] = call
            os.kill(os.getpid(), signal.SIGKILL)
    texts = []
    for _ in range(2):
        try:
            comm.all_reduce(np.ones(1000), schedule="two_shot")
        except RunError as error:
            texts.append(str(error))
    (told / f"{comm.rank}").write_text("\n".join(texts))


@pytest.mark.parametrize(("how", "named", "parent"), [
    ("kill", r"rank 1: its process \d+ has ended", "rank 1 failed: its process ended by signal 9"),
    ("exit", r"rank 1: its process \d+ has ended", "rank 1 failed: its process ended with exit code 3"),
    ("leave", "rank 1: SystemExit: 4", "rank 1 failed: SystemExit: 4"),
    ("raise", "rank 1: ValueError: boom", "rank 1 failed: ValueError: boom"),
    ("stop", "rank 1 did not come within 2 s", "rank 1 failed: it did not end after the others"),
    ("middle", r"rank 1: its process \d+ has ended", "rank 1 failed: its process ended by signal 9"),
])  # fmt: skip
def test_a_rank_that_ends_is_named_by_all_others_and_nothing_is_left(how, named, parent, tmp_path, monkeypatch):
    from algocc.runtime import launch as module

    monkeypatch.setattr(module, "AFTER_A_FAILURE", 0.5)
    before = leftovers()

    def work(comm):
        how_it_ends(comm, how, tmp_path)
        if how == "stop":
            raise RunError("seen")  # so that the parent ends the stopped one

    begin = time.monotonic()
    with pytest.raises(RunError, match=parent):
        run(work, 3, timeout=2 if how == "stop" else 200)
    assert time.monotonic() - begin < 150  # it is heard of, not waited for
    for rank in ("0", "2"):
        first, again = (tmp_path / rank).read_text().split("\n")
        import re

        assert re.search(r"^call 2 \(all_reduce, 1000 float64, schedule two_shot\): " + named, first)
        assert "an earlier call failed, make a new one; that was: call 2" in again
    assert leftovers() == before


def test_ranks_that_do_not_come_or_do_not_fit_are_named():
    with pytest.raises(RunError, match=r"join 'alone': ranks 1, 2 did not come within 0.1 s"):
        Communicator.join("alone", 0, 3, timeout=0.1)
    with pytest.raises(RunError, match=r"join 'alone': rank 0 did not come within 0.1 s"):
        Communicator.join("alone", 1, 3, timeout=0.1)
    with pytest.raises(UsageError, match="rank 3 of 3: wanted one of 0..2"):
        Communicator.join("alone", 3, 3, timeout=0.1)
    told = []

    def other(rank, n):
        try:
            Communicator.join("odd", rank, n, timeout=2).close()
        except (RunError, UsageError) as error:
            told.append(str(error))

    threads = [threading.Thread(target=other, args=args) for args in ((0, 2), (1, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == ["join 'odd': rank 1 came for 3 ranks, wanted 2 different ones"] * 2


def test_a_name_that_is_taken():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(f"\0algocc/{os.getuid()}/taken")
        with pytest.raises(UsageError, match="join 'taken': the name is taken by another communicator"):
            Communicator.join("taken", 0, 2, timeout=0.1)


def test_one_that_fails_while_it_joins_is_named_by_all(monkeypatch):
    """Rank 1 gets no memory: everybody is told, nobody waits for the timeout."""
    from algocc.runtime import join as module

    def work_rank(rank, told):
        if rank == 1:
            def none(what):
                raise UsageError(f"{what}: no memory")
            module.Heap = none
        begin = time.monotonic()
        try:
            Communicator.join(name, rank, 3, timeout=20)
        except RunError as error:
            assert time.monotonic() - begin < 10
            os.write(told, f"{error}\n".encode())

    name = f"vote-{os.getpid()}"
    read, write = os.pipe()
    children = []
    for rank in range(3):
        child = os.fork()
        if child == 0:
            try:
                work_rank(rank, write)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as lines:
        found = lines.read().splitlines()
    assert found == [f"join '{name}': rank 1: rank 1 of {name}: no memory"] * 3


def test_two_hundred_come_and_go():
    def cycles(comm):
        def held():
            gc.collect()
            status = Path("/proc/self/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0]), len(os.listdir("/proc/self/fd")), threading.active_count()

        middle = None
        for k in range(200):
            with Communicator.join(f"{name}-{k}", comm.rank, 2, timeout=20) as inner:
                inner.all_reduce(np.ones(1000))
                inner.empty(1 << 16)[:] = 1
            if k == 100:
                middle = held()
        after = held()
        assert after[1:] == middle[1:]
        assert after[0] - middle[0] < 4096, (middle, after)

    name = f"cycle-{os.getpid()}"
    before = leftovers()
    run(cycles, 2)
    assert leftovers() == before


def test_memory_of_arrays_comes_back():
    def work(comm):
        comm.all_reduce(np.ones(10))
        comm.all_reduce(np.ones(10))
        before = comm._node.in_use()
        for _ in range(20):
            a = comm.empty(1 << 20, "uint8")
            view = a[5:].reshape(-1)
            del a
            assert comm._node.in_use() >= before + (1 << 20)
            view[:] = 1
            del view
        assert comm._node.in_use() == before
        kept = comm.empty(1000)
        kept[:] = 3
        comm.close()
        assert (kept == 3).all()
        with pytest.raises(UsageError, match="closed"):
            comm.empty(3)

    run(work, 2)


def test_too_much_memory_is_refused_with_numbers():
    def work(comm):
        with pytest.raises(UsageError, match=r"array of shape \(70368744177664,\) .* takes 256.0 TiB, there are .*iB"):
            comm.empty(1 << 46)

    run(work, 1)


def test_a_heap_hands_out_and_takes_back():
    gc.collect()
    fds = len(os.listdir("/proc/self/fd"))
    heap = Heap("test")
    rng = np.random.default_rng(2)
    held = []
    for k in range(500):
        size = int(rng.integers(0, 200_000))
        piece = heap.allocate(size, "piece")
        assert piece.size >= size and heap.holds(piece.ctypes.data, piece.size) and piece.ctypes.data % 128 == 0
        piece[:] = k % 256
        held.append((piece, k % 256))
        if rng.random() < 0.6:
            piece, value = held.pop(int(rng.integers(len(held))))
            assert (piece == value).all()
        del piece
    assert all((piece == value).all() for piece, value in held)
    del held
    assert heap.in_use() == 0 and heap._free == [(0, heap.size)]
    del heap
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_system_without_shared_memory_is_named(monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(UsageError, match="board: the system gives no shared memory: No space left on device"):
        nameless(4096, "board")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_a_rank_is_refused():
    comm = Communicator.join(f"fork-{os.getpid()}", 0, 1)
    child = os.fork()
    if child == 0:
        try:
            comm.barrier()
        except UsageError as error:
            os._exit(7 if "made in another process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    comm.barrier()
    comm.close()


def test_random_delays_of_processes():
    """As the threads' test of the gate: arrays change right before a call and right after."""

    def work(comm):
        rng = np.random.default_rng(comm.rank)
        for size in (4, APART_UP_TO):
            x, out, plain = comm.empty(size, "int64"), comm.empty(size, "int64"), np.zeros(size, np.int64)
            for k in range(60):
                if rng.random() < 0.2:
                    time.sleep(rng.random() * 1e-3)
                for a, b in ((x, x), (x, out), (plain, plain)):
                    a[:] = k * 10 + comm.rank
                    comm.all_reduce(a, out=b)
                    assert (b == 30 * k + 3).all()
                    a[:] = b[:] = -1

    run(work, 3)
