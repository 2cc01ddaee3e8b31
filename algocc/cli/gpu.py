"""What `--backend cuda` means on the command line."""

from __future__ import annotations

from typing import Any

from algocc.errors import UsageError, counted


def place(n: int, devices: list[int] | None) -> list[int]:
    """The GPU of each rank.

    Raises UsageError if there is no driver, what compiles is not installed, or a device is not there.
    """
    from algocc.runtime.cuda.communicator import spread
    from algocc.runtime.cuda.driver import cuda
    from algocc.runtime.cuda.sites import placed

    driver = cuda()
    driver.check_compiler()
    there = driver.count()
    given = spread(n, there) if devices is None else devices[0] if len(devices) == 1 else devices
    return placed(given, n, there)


def on_devices(places: list[int]) -> str:
    """Where the ranks are, in words."""
    from algocc.runtime.cuda.driver import cuda

    used = sorted(set(places))
    name = cuda().facts(used[0]).name
    if len(used) == 1 and len(places) > 1:
        return f"one GPU ({name}), which emulates them all"
    return f"{counted(len(used), 'GPU')} ({name})"


def check_devices(devices: list[int] | None, backend: str | None, protocol: str | None = None) -> None:
    """Raise UsageError for devices, or a protocol of them, that no GPU is asked for with."""
    for option, value in (("--devices", devices), ("--protocol", protocol)):
        if value is not None and backend != "cuda":
            raise UsageError(f"{option}: it goes with --backend cuda")


def kernel(op: str | None, dtype: str, reduces: bool, capability: str) -> dict[str, Any]:
    """The kernel that runs a Program, compiled and assembled for a compute capability, and what is wrong with it.

    Raises UsageError if the packages that compile are missing.
    """
    from algocc.kernels import grid, ptx
    from algocc.kernels.audit import audit
    from algocc.kernels.operators import element, operator

    architecture = f"sm_{capability}"
    ptx.capability(architecture)
    reason = ptx.missing()
    if reason:
        raise UsageError(f"--backend cuda: the kernel can't be compiled: {reason}")
    found = audit(ptx.assembled(grid.key_of(operator(op or "sum"), element(dtype), reduces=reduces), architecture))
    return {
        "architecture": architecture,
        "operator": op or "sum" if reduces else "copy",
        "dtype": dtype,
        "registers": found.registers,
        "spilled_bytes": found.spilled + found.stack,
        "loads_128": found.vector_loads,
        "stores_128": found.vector_stores,
        "findings": [str(f) for f in found.findings],
    }


def kernel_line(facts: dict[str, Any]) -> str:
    """The kernel in one line."""
    verdict = "; ".join(facts["findings"]) or "keeps all rules of memory order and arithmetic"
    return (
        f"  kernel      {facts['operator']} {facts['dtype']} for {facts['architecture']}: {facts['registers']} registers, "
        f"{facts['spilled_bytes']} bytes spilled; {verdict}"
    )
