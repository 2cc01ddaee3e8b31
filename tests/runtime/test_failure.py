"""A rank that never comes, a cycle of waits, a thread that is lost: an error that names it, and nothing after."""

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from algocc.collective import all_reduce
from algocc.errors import RunError, UsageError
from algocc.kernels import compiled
from algocc.kernels import layout as at
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import Threads
from algocc.runtime.apart import lower_apart
from algocc.schedules.ring import ring
from algocc.steps import Steps


def exchange() -> Program:
    """Two ranks, each reducing what the other has put in its scratch, then a round that waits for it."""
    s = Steps(all_reduce(2, chunks=2), name="exchange")
    with s.step():
        s.reduce(src=0, dst=1, chunk=1)
        s.reduce(src=1, dst=0, chunk=0)
    with s.step():
        s.copy(src=0, dst=1, chunk=0)
        s.copy(src=1, dst=0, chunk=1)
    return lower_apart(s.build())


def arrays(n, count):
    return [np.ones(count, np.float32) for _ in range(n)], [np.zeros(count, np.float32) for _ in range(n)]


@pytest.mark.parametrize("absent", [0, 1, 2, 3])
def test_a_rank_that_never_comes_is_named(absent):
    with Threads(lower(ring(4)), count=100, timeout=0.2) as threads:
        threads(*arrays(4, 100))
        threads._team.block[at.ABSENT] = absent
        with pytest.raises(RunError) as caught:
            threads(*arrays(4, 100))
        lines = str(caught.value).splitlines()
        assert lines[0] == f"program ring: no progress within 0.2 s; stuck: rank {absent}"
        assert len(lines) == 4
        after = (absent + 1) % 4
        waits = next(line for line in lines if f"rank {after} (lane {after}) in step 2 (ring.py:" in line)
        assert f"waits for rank {absent} (lane {absent}): counter " in waits
        assert waits.endswith("to go")


def test_a_cycle_of_waits_is_named():
    """Each rank waits for the other's first signal before it gives its own: well formed, and stuck."""
    p = exchange()
    counter = [int(np.flatnonzero(p.counter_waiter == lane)[0]) for lane in (0, 1)]
    first = p.lane_start[:-1]
    waits = [[] for _ in range(p.moves)]
    for lane in (0, 1):
        waits[first[lane]] = [counter[lane]]
    starts = np.concatenate([[0], np.cumsum([len(w) for w in waits])])
    stuck = replace(
        p,
        wait_start=starts,
        wait_counter=np.array(counter),
        wait_value=np.array([1, 1]),
        wait_lag=np.array([0, 0]),
    )
    with Threads(stuck, count=8, timeout=0.1) as threads, pytest.raises(RunError) as caught:
        threads(*arrays(2, 8))
    lines = str(caught.value).splitlines()
    assert lines[0] == "program exchange: no progress within 0.1 s; stuck: ranks 0, 1"
    assert len(lines) == 3
    for rank in (0, 1):
        begin = f"  rank {rank} (lane {rank}) in step 1 (test_failure.py:"
        end = f", move 0, iteration 0: waits for rank {1 - rank} (lane {1 - rank}): counter {counter[rank]} is at 0, wanted 1, 1 to go"
        assert any(line.startswith(begin) and line.endswith(end) for line in lines)


def test_after_a_failure_nothing_runs():
    with Threads(exchange(), count=8, timeout=0.05) as threads:
        threads._team.block[at.ABSENT] = 1
        with pytest.raises(RunError, match="stuck: rank 1"):
            threads(*arrays(2, 8))
        threads._team.block[at.ABSENT] = -1
        with pytest.raises(
            RunError, match=r"an earlier call failed, make a new one; that was: .*stuck: rank 1"
        ):
            threads(*arrays(2, 8))
        assert repr(threads) == "<Threads exchange: 8 float32, sum, failed>"


def test_many_lanes_all_return_when_one_is_late():
    before = threading.active_count()
    with Threads(lower(ring(6), lanes=3), count=1000, timeout=0.1, tile_bytes=64) as threads:
        threads._team.block[at.ABSENT] = 7
        with pytest.raises(RunError, match=r"stuck: rank 2\n"):
            threads(*arrays(6, 1000))
    assert threading.active_count() == before


def test_an_exception_in_a_worker_reaches_the_caller(monkeypatch):
    def broken(block, index):
        raise ValueError(f"lane {index} broke")

    monkeypatch.setattr(compiled, "serve", lambda: broken)
    with Threads(exchange(), count=8, timeout=5) as threads:
        with pytest.raises(RunError, match="a thread ended: ValueError"):
            threads(*arrays(2, 8))
        with pytest.raises(RunError, match="an earlier call failed"):
            threads(*arrays(2, 8))


def test_no_threads_left_to_be_had(monkeypatch):
    before = threading.active_count()
    start = threading.Thread.start

    def limited(self):
        if threading.active_count() >= before + 2:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(UsageError, match="ring: 5 lanes, of which only 3 got a thread"):
        Threads(lower(ring(5)), count=8)
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_does_not_copy_threads():
    with Threads(exchange(), count=8) as threads:
        child = os.fork()
        if child == 0:
            try:
                threads(*arrays(2, 8))
            except UsageError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_process_that_forgets_to_close_ends():
    code = """
import numpy as np
from algocc.lowering import lower
from algocc.runtime import Threads
from algocc.runtime.apart import lower_apart
from algocc.schedules.ring import ring
t = Threads(lower(ring(4)), count=8)
t([np.ones(8, np.float32)] * 4, [np.zeros(8, np.float32) for _ in range(4)])
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
