"""`algocc prove`: is it right for every number of ranks?"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from algocc.cli import options, source
from algocc.cli.output import progress, say_json, say_verdict
from algocc.errors import UsageError

if TYPE_CHECKING:
    from algocc.symbolic.proof import Proof


@click.command(
    "prove",
    help="Prove a schedule right for every number of ranks, from the invariants beside its rules. "
    "Exit code 0: proved; 1: false, with a number of ranks for which it is; 2: neither.",
)
@options.schedule
@options.params
@click.option("--timeout", type=float, default=20, show_default=True, help="Seconds for one question to the solver.")
@options.as_json
def prove_command(schedule: str, params: tuple[tuple[str, Any], ...], timeout: float, as_json: bool) -> int:
    if find_spec("z3") is None:
        raise UsageError("prove: z3 is not installed: pip install 'algocc[prove]'")
    from algocc.symbolic.proof import prove

    algorithm = source.load(schedule)
    with progress(f"proving {algorithm.name}"):
        proof = prove(algorithm, timeout=timeout, **dict(params))
    if as_json:
        say_json(proof.to_json())
    else:
        say_verdict(_told(proof))
    return proof.exit_code


def _told(p: Proof) -> str:
    """A proof, or why there is none, as people read it."""
    from algocc.symbolic.proof import ASSUMED

    lines = [f"{p.schedule}: {p.collective or 'a schedule'}, for {p.domain}"]
    for phase, group in groupby(p.obligations, key=lambda o: o.phase):
        lines.append(f"  {phase}")
        for o in group:
            where = ", ".join(f"{name}={value}" for name, value in o.example.items())
            lines.append(f"    {o.status:7}  {o.name}: {o.statement}" + (f"; not for {where}" if where else ""))
    lines += _verdict(p)
    if p.status == "proved":
        lines += ["assumed:", *(f"  - {what}" for what in ASSUMED)]
    return "\n".join(lines)


def _verdict(p: Proof) -> list[str]:
    wrong = p.counterexample
    if p.status == "proved":
        steps = f", and takes {p.steps} steps for n ≥ 2" if p.steps else ""
        return [
            f"PROVED for {p.domain}: {p.schedule} leaves in every output exactly what {p.collective} wants, each",
            f"contribution once; no step has a race or reads what is not there{steps}",
        ]
    if wrong is None:
        return [f"NOT PROVED, and not disproved either: {p.reason}"]
    at = ", ".join(f"{name}={value}" for name, value in {"n": wrong.n, **wrong.params}.items())
    if wrong.of == "invariant":
        return [f"WRONG invariant for {at}: {wrong.reason}", "(the schedule itself is right for all n that were tried)"]
    return [f"WRONG for {at}: {wrong.reason}"]
