"""Kernels compiled ahead for a GPU that need not be there: to PTX, and assembled; kept on disk for the next process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba import types

from algocc.errors import UsageError
from algocc.kernels import cuda, grid
from algocc.kernels.grid import Key
from algocc.kernels.operators import ELEMENTS, OPERATORS, kernel_of, refusal

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""Those that the tests compile for: A100, H100 and H200, B200."""

ENTRY = "algocc_lane"
"""Name of the kernel in every module."""

SOURCES = ("cpu.py", "cuda.py", "elements.py", "flagged.py", "grid.py", "lane.py", "layout.py", "multicast.py", "operators.py", "ptx.py",
           "straight.py", "wide.py")  # fmt: skip
"""The files that a kernel is made from."""

NEEDED = {"numba-cuda": "numba_cuda", "nvidia-cuda-nvcc": "nvidia", "nvidia-nvvm": "nvidia"}
"""Distributions that compiling takes, and a module of each."""


@dataclass(frozen=True)
class Assembled:
    """A kernel for one architecture.

    ptx: what NVVM made.
    cubin: what ptxas made of it.
    log: what ptxas said of registers and memory.
    """

    key: Key
    architecture: str
    ptx: str
    cubin: bytes
    log: str


def keys() -> list[Key]:
    """Operator and type of every kernel there is, the one that only copies first."""
    found: dict[Key, None] = {Key(None, None): None}
    for op in OPERATORS.values():
        for e in ELEMENTS.values():
            if refusal(op, e) is None:
                shared, kind = kernel_of(op, e)
                found[Key(shared.name, kind.name)] = None
    return list(found)


def missing() -> str | None:
    """What compiling lacks, with the command that mends it, or None."""
    for distribution, module in NEEDED.items():
        try:
            importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return f"{distribution} is not installed; pip install 'algocc[cuda]'"
        if importlib.util.find_spec(module) is None:
            return f"{distribution} has no module {module}; pip install --force-reinstall 'algocc[cuda]'"
    return None


def capability(architecture: str) -> tuple[int, int]:
    """The compute capability that an architecture is named for.

    >>> capability("sm_90"), capability("sm_100")
    ((9, 0), (10, 0))
    """
    digits = architecture.removeprefix("sm_")
    if not digits.isdigit() or len(digits) < 2:
        raise UsageError(f"unknown architecture {architecture!r}: wanted sm_ and a number, as in {ARCHITECTURES[0]}")
    return int(digits[:-1]), int(digits[-1])


def ptx(key: Key, architecture: str) -> str:
    """The PTX of a kernel, from disk if it is there.

    Raises UsageError if the packages that compile are missing.
    """
    return _kept(key, architecture, "ptx", lambda: _compile(key, architecture).encode()).decode()


def assembled(key: Key, architecture: str) -> Assembled:
    """A kernel ready to load, from disk if it is there.

    Raises UsageError if the packages that compile are missing, or ptxas refuses the PTX.
    """
    text = ptx(key, architecture)
    log: list[str] = []

    def make() -> bytes:
        cubin, said = assemble(text, architecture)
        log.append(said)
        return cubin

    cubin = _kept(key, architecture, "cubin", make)
    said = _kept(key, architecture, "log", lambda: log[0].encode() if log else assemble(text, architecture)[1].encode())
    return Assembled(key, architecture, text, cubin, said.decode())


def assemble(text: str, architecture: str) -> tuple[bytes, str]:
    """PTX as machine code, and what ptxas says of its resources.

    Raises UsageError if ptxas refuses it.
    """
    program = tool("ptxas")
    if program is None:
        raise UsageError("there is no ptxas; pip install 'algocc[cuda]'")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        done = subprocess.run(
            [program, f"-arch={architecture}", "-v", "-o", str(target), str(source)], capture_output=True, text=True
        )
        if done.returncode:
            raise UsageError(f"ptxas refuses the kernel for {architecture}: {done.stderr.strip()[:500]}")
        return target.read_bytes(), done.stdout + done.stderr


def disassemble(cubin: bytes) -> str | None:
    """Machine code as text, or None where there is no nvdisasm."""
    program = tool("nvdisasm")
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([program, "-c", file.name], capture_output=True, text=True, check=True).stdout


@functools.cache
def tool(name: str) -> str | None:
    """A program of the CUDA wheels, or of a toolkit on the path."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or [] if spec else []:
        for found in sorted(Path(folder).glob(f"*/bin/{name}")):
            if os.access(found, os.X_OK):
                return str(found)
    return shutil.which(name)


def folder() -> Path:
    """Where compiled kernels are kept: $ALGOCC_CUDA_CACHE, or a folder in the user's cache directory."""
    named = os.environ.get("ALGOCC_CUDA_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "algocc" / "cuda"


def _kept(key: Key, architecture: str, kind: str, make: Callable[[], bytes]) -> bytes:
    """A file of the cache, made if it is not there; a cache that can't be written is no error."""
    made_for = "" if key.form is None else "-" + hashlib.sha256(repr((key.form, key.size)).encode()).hexdigest()[:16]
    place = folder() / _versions() / f"{key.op or 'copy'}-{key.dtype or 'any'}{made_for}-{architecture}.{kind}"
    try:
        return place.read_bytes()
    except OSError:
        made = make()
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(made)
        os.replace(file.name, place)
    return made


def compilers() -> list[str]:
    """The packages that kernels are compiled with, and their versions."""
    names = ("numba", "llvmlite", "numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvcc")
    return [f"{name} {importlib.metadata.version(name)}" for name in names]


@functools.cache
def _versions() -> str:
    """A hash of everything that a kernel is made from: its source and the compilers."""
    reason = missing()
    if reason:
        raise UsageError(f"kernels for GPUs can't be compiled: {reason}")
    sources = [(Path(__file__).parent / name).read_text() for name in SOURCES]
    text = "\n".join([*sources, *compilers()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(key: Key, architecture: str) -> str:
    major, minor = capability(architecture)
    text: str = _library(key).get_asm_strs(cc=(major, minor, ""))[0]
    found = re.search(r"\.entry\s+(\S+)\(", text)
    assert found is not None, "a kernel has an entry"
    return text.replace(found[1], ENTRY)


@functools.lru_cache(maxsize=8)
def _library(key: Key) -> Any:
    """A kernel in LLVM's terms, the same for all architectures, from which NVVM makes PTX."""
    from numba.cuda import compiler
    from numba.cuda.cudadrv import nvvm

    body = grid.kernel(cuda, key, inline=_device)
    with _pretending(capability(ARCHITECTURES[0])):
        made = compiler.compile_cuda(
            body, types.void, (types.int64,), cc=capability(ARCHITECTURES[0]), nvvm_options={"opt": 3, "fma": 0}
        )
    library = made.library
    kernel = library.get_function(made.fndesc.llvm_func_name)
    compiler.kernel_fixup(kernel, False)
    nvvm.set_launch_bounds(kernel, (cuda.most_threads(key.op, key.dtype), 1))
    return library


def _device(function: Callable[..., Any]) -> Any:
    from numba import cuda as numba_cuda

    return numba_cuda.jit(device=True, forceinline=True)(function)


@contextlib.contextmanager
def _pretending(cc: tuple[int, int]) -> Iterator[None]:
    """Numba asks the current device for its capability, though nothing that it lowers to depends on it."""
    from numba.cuda import compiler, dispatcher

    class Device:
        compute_capability = cc

    before = [(module, module.get_current_device) for module in (compiler, dispatcher)]
    try:
        for module, _ in before:
            module.get_current_device = Device
        yield
    finally:
        for module, function in before:
            module.get_current_device = function
