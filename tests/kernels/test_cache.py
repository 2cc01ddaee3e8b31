"""Compiled kernels are kept on disk: a second process compiles nothing, and a change of any source is noticed."""

import os
import subprocess
import sys

CODE = """
import sys
from algocc.kernels import compiled
from algocc.kernels.operators import element, operator
if sys.argv[1:]:
    compiled.stamp = lambda: sys.argv[1]
compiled.lane_address(), compiled.serve(), compiled.call()
for op, dtype in (("sum", "float32"), ("max", "bfloat16"), ("prod", "int8")):
    compiled.reduction_address(operator(op), element(dtype))
print(compiled.compilations())
"""


def kernels(tmp_path, *stamp):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *stamp],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def test_a_second_process_compiles_nothing(tmp_path):
    assert kernels(tmp_path) == "{'compiled': 6, 'found': 0}"
    assert kernels(tmp_path) == "{'compiled': 0, 'found': 6}"
    assert kernels(tmp_path, "another source") == "{'compiled': 6, 'found': 0}"


def test_every_reduction_has_its_own_files(tmp_path):
    """Numba numbers the kernels of one function; two processes could give one number to two operators."""
    kernels(tmp_path)
    names = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert names == {f"{module}.{name}" for module, name in (
        ("lane", "lane"), ("team", "serve"), ("team", "call"), ("reduction", "reduction_sum_float32"),
        ("reduction", "reduction_max_bfloat16"), ("reduction", "reduction_prod_uint8"),
    )}  # fmt: skip
