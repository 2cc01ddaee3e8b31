"""The kernels compiled for CPU threads, each once a process and kept on disk for the next.

    python -m algocc.kernels.compiled        # all of them, so that no later call waits for a compiler
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import types

from algocc.kernels import cpu, gate, lane, reduction, team
from algocc.kernels.operators import ELEMENTS, OPERATORS, Element, Operator, kernel_of, refusal

_I64 = types.int64
_counts = {"compiled": 0, "found": 0}


@cache
def stamp() -> str:
    """A hash of the source of all kernels: Numba's cache looks at one file, a kernel comes from several."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _reduction(op: str, dtype: str) -> Any:
    e = ELEMENTS[dtype]
    body = reduction.build(
        cpu,
        op=op,
        dtype=e.name,
        size=e.size,
        held=e.held,
        held_size=ELEMENTS[e.held].size,
        scales=op == "avg" and e.kind in ("float", "complex"),
        stamp=stamp(),
    )
    return _native(body, types.void(*[_I64] * 8))


@cache
def _lane() -> Any:
    return _native(lane.build(cpu, stamp=stamp()), _I64(_I64, _I64))


def reduction_address(op: Operator, e: Element) -> int:
    """Address of the compiled reduction by `op` of elements `e`, void (int64 × 8)."""
    op, e = kernel_of(op, e)
    return int(_reduction(op.name, e.name).address)


def lane_address() -> int:
    """Address of the compiled lane, int64 (int64 block, int64 index)."""
    return int(_lane().address)


@cache
def serve() -> Any:
    """`team.build_serve`, compiled: (block, index) → None, without the interpreter's lock."""
    return _threaded(team.build_serve(cpu, stamp=stamp()), types.void(_I64, _I64))


@cache
def call() -> Any:
    """`team.build_call`, compiled: (block) → None, without the interpreter's lock."""
    return _threaded(team.build_call(cpu, stamp=stamp()), types.void(_I64))


@cache
def rank_call() -> Any:
    """`gate.build`, compiled: (block) → why it ended as in `layout`, without the interpreter's lock."""
    return _threaded(gate.build(cpu, stamp=stamp()), _I64(_I64))


@cache
def run_lane() -> Any:
    """`gate.build_part`, compiled: (block) → why it stopped as in `layout`, without the interpreter's lock."""
    return _threaded(gate.build_part(cpu, stamp=stamp()), _I64(_I64))


def compilations() -> dict[str, int]:
    """How many kernels this process has compiled, and how many it has found on disk."""
    return dict(_counts)


def _counted(kernel: Any, found: int) -> Any:
    _counts["found" if found else "compiled"] += 1
    return kernel


def _native(body: Callable[..., Any], signature: Any) -> Any:
    kernel = numba.cfunc(signature, cache=True, error_model="numpy")(body)
    return _counted(kernel, kernel.cache_hits)


def _threaded(body: Callable[..., Any], signature: Any) -> Any:
    kernel = numba.njit(signature, nogil=True, cache=True, error_model="numpy")(body)
    return _counted(kernel, sum(kernel.stats.cache_hits.values()))


def everything() -> None:
    """Compile what is not on disk yet: the lane, what calls it, and every reduction."""
    for kernel in (_lane, serve, call, rank_call, run_lane):
        kernel()
    for op in OPERATORS.values():
        for e in ELEMENTS.values():
            if refusal(op, e) is None:
                reduction_address(op, e)


if __name__ == "__main__":
    everything()
    print(compilations())
