"""The table of what compiled kernels use and hold to: `python -m algocc.kernels.report`."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from algocc.errors import AlgoccError, UsageError
from algocc.kernels import layout as at
from algocc.kernels import multicast, ptx
from algocc.kernels.audit import Audit, audit
from algocc.kernels.grid import Key
from algocc.kernels.operators import ELEMENTS
from algocc.kernels.straight import Form, MoveForm

COLUMNS = (
    "operator", "type", "protocol", "arch", "registers", "spilled", "ld.128", "st.128", "ld.line", "st.line", "acquire",
    "release", "barriers", "LDG.128", "STG.128", "SYS", "CALL", "verdict",
)  # fmt: skip

SAMPLE = tuple(
    Key(op, dtype)
    for op, dtype in (
        (None, None), ("sum", "float32"), ("sum", "bfloat16"), ("max", "float64"), ("sum", "uint8"), ("sum", "float8_e4m3fn"),
        ("prod", "complex64"), ("avg", "float16"), ("avg", "int64"),
    )
)  # fmt: skip
"""One kernel of each kind."""


def pushed(kind: int, n: int = 4) -> Form:
    """An all-pairs AllReduce of n ranks whose scratch is of a kind as in `layout`: one writes to all, then reduces what came."""
    others = n - 1
    credits = tuple((1, 2, 1) for _ in range(others))
    told = tuple((1, 1) for _ in range(others))
    return ((
        MoveForm(others, 1, 1, 0, (0,) * others + (1,), (), credits, (), (kind,) * others + (at.PLAIN,)),
        MoveForm(1, n, 1, 1, (1, 1) + (0,) * others, (1,) * n, (), told, (at.PLAIN,) * 2 + (kind,) * others),
    ),)  # fmt: skip


FLAGGED = tuple(
    Key(op, dtype, pushed(kind), ELEMENTS[dtype].size)
    for kind in (at.LL, at.LL128)
    for op, dtype in (("sum", "float32"), ("sum", "bfloat16"), ("max", "int8"), ("prod", "complex128"))
)
"""Generated kernels with flags beside the data."""


SWITCHED = tuple(
    Key(op, dtype, ((MoveForm(1, 1, 1, 1, (1, 1), (), ((1, 0, 1),), ((1, 1),), (at.MULTICAST,) * 2),),), ELEMENTS[dtype].size)
    for op, dtype in multicast.FORMS
)
"""Generated kernels that have a switch reduce and copy, one for all that it can."""


def protocol_of(key: Key) -> str:
    """How the data of a kernel are said to be there, or that a switch moves them."""
    kinds = {kind for lane in key.form or () for move in lane for kind in move.kinds}
    names = {at.LL: "ll", at.LL128: "ll128", at.MULTICAST: "switch"}
    return next((name for kind, name in names.items() if kind in kinds), "simple")


def row(a: Audit) -> tuple[str, ...]:
    """The cells of one kernel."""
    machine = [str(a.machine[k]) if a.machine else "?" for k in ("LDG.128", "STG.128", "STRONG.SYS", "CALL")]
    return (
        a.key.op or "copy", a.key.dtype or "any", protocol_of(a.key), a.architecture, str(a.registers), str(a.spilled + a.stack),
        str(a.vector_loads), str(a.vector_stores), str(a.line_loads),
        str(a.line_stores), str(a.acquires), str(a.releases), str(a.barriers), *machine,
        "holds" if not a.findings else "; ".join(map(str, a.findings[:2])),
    )  # fmt: skip


def audits(keys: Iterable[Key], architectures: Sequence[str], *, jobs: int = 1) -> Iterable[Audit]:
    """Compile, assemble and look, kernel after kernel; in so many processes, in the same order."""
    work = functools.partial(_audits_of, architectures=tuple(architectures))
    if jobs == 1:
        for key in keys:
            yield from work(key)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for found in pool.map(work, keys):
            yield from found


def _audits_of(key: Key, architectures: Sequence[str]) -> list[Audit]:
    able = [a for a in architectures if protocol_of(key) != "switch" or ptx.capability(a) >= divmod(multicast.SINCE, 10)]
    return [audit(ptx.assembled(key, architecture)) for architecture in able]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 if all holds, 1 if something does not, 2 if nothing can be compiled."""
    parser = argparse.ArgumentParser(prog="python -m algocc.kernels.report", description=__doc__)
    parser.add_argument("--arch", action="append", help="as in sm_90; may be repeated; all of them if not given")
    parser.add_argument("--sample", action="store_true", help="one kernel of each kind, not all")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile; 1 if not given")
    parser.add_argument("--json", metavar="FILE", help="write the table there too")
    options = parser.parse_args(arguments)
    keys = [*(SAMPLE if options.sample else ptx.keys()), *FLAGGED, *(SWITCHED[:: 6 if options.sample else 1])]
    architectures = options.arch or ptx.ARCHITECTURES
    rows, broken = [], 0
    line = "{:8} {:13} {:8} {:7} {:>9} {:>7} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7} {:>8} {:>7} {:>7} {:>3} {:>4}  {}"
    try:
        if options.jobs < 1:
            raise UsageError(f"--jobs {options.jobs}: wanted 1 or more")
        for architecture in architectures:
            ptx.capability(architecture)
        reason = ptx.missing()
        if reason:
            raise UsageError(reason)
        print(", ".join(ptx.compilers()))
        print(line.format(*COLUMNS), flush=True)
        for a in audits(keys, architectures, jobs=options.jobs):
            broken += bool(a.findings)
            rows.append(dict(zip(COLUMNS, row(a), strict=True)))
            print(line.format(*row(a)), flush=True)
    except AlgoccError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(rows)} kernels, {len(rows) - broken} hold, {broken} do not")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
