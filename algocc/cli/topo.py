"""`algocc topo`: the links of a machine, and how fast a collective on it can be at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import click

from algocc.cli import options, units
from algocc.cli.output import aligned, progress, say_json
from algocc.errors import UsageError, counted, near
from algocc.topology import BOUNDS, MODELS, Topology, TopologyBound, bound, load, to_json
from algocc.topology.all_to_all import Lengths
from algocc.topology.cuts import Cut
from algocc.topology.record import number

SHOWN = 12
"""Names of a cut's side, and links across it, before the rest is only counted; --json has all."""


class _Actions(click.Group):
    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = super().get_command(ctx, name)
        if found is None:
            known = list(self.commands)
            ctx.fail(f"unknown action {name!r}{near(name, known)}; one of {', '.join(known)}, as in `topo bound dgx1`")
        return found


def _nvlink(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    if value is None:
        return None
    found = number(value.removesuffix("GB/s").strip(), "--nvlink")
    if found <= 0:
        raise UsageError(f"--nvlink {value}: wanted GB/s above 0, as in 25")
    return found


_of_nvlink: Callable[..., Any] = click.option(
    "--nvlink", callback=_nvlink, metavar="GB/s", help="Of one NVLink and direction, where `nvidia-smi topo -m` is read."
)
_measure: Callable[..., Any] = click.option(
    "--nominal/--usable", default=True, show_default="nominal",
    help="Bandwidths of the data sheets, or those that NCCL and RCCL assume programs get.",
)  # fmt: skip


@click.group(
    "topo", cls=_Actions, invoke_without_command=True,
    help="The links of a machine, and what no schedule on it can beat. TOPOLOGY is a name, as in dgx1 or torus:4x4, "
    "an NCCL topology dump, what `nvidia-smi topo -m` prints, or JSON. Without an action: the names.",
)  # fmt: skip
@options.as_json
@click.pass_context
def topo_command(ctx: click.Context, as_json: bool) -> None:
    if ctx.invoked_subcommand is not None:
        return
    if as_json:
        say_json({"topologies": [{"name": k, "example": m.example, "doc": m.doc} for k, m in MODELS.items()]})
        return
    click.echo("topologies by name; `algocc topo show NAME` and `algocc topo bound NAME` take them, or a file")
    click.echo(aligned([(m.example, m.doc) for m in MODELS.values()]))


@topo_command.command("show", help="The nodes and links of a topology; --json prints a file that reads back.")
@click.argument("topology")
@_of_nvlink
@options.as_json
def show_topology(topology: str, nvlink: Fraction | None, as_json: bool) -> None:
    t = load(topology, nvlink=nvlink)
    if as_json:
        say_json(to_json(t))
        return
    switches = len(t.nodes) - t.n
    click.echo(f"{t.name}: {counted(t.n, 'rank')}, {counted(switches, 'switch')}, {counted(len(t.links), 'link')}; GB/s a direction")
    rows = [("link", "", "", "of", "nominal", "usable", "latency", "source"), *_rows(t)]
    click.echo(aligned([(f"{a} {way} {b}" if way else a, *rest) for a, way, b, *rest in rows]))
    ports = {t.ports[r] for r in t.ranks}
    click.echo(f"ports of a rank: {min(ports)}" + (f" to {max(ports)}" if len(ports) > 1 else ""))
    if missing := t.missing_pairs():
        names = [f"{t.nodes[t.ranks[a]].name}-{t.nodes[t.ranks[b]].name}" for a, b in missing if a < b or (b, a) not in missing]
        click.echo(f"no way without another rank: {len(missing)} of {t.n * (t.n - 1)} ordered pairs: {_few(names)}")
    for note in t.notes:
        click.echo(f"note: {note}")


def _rows(t: Topology) -> list[tuple[str, ...]]:
    """Of each link, or pair of equal ones there and back: its ends and what it is."""
    rows: list[tuple[str, ...]] = []
    seen: dict[Any, int] = {}
    for link in t.links:
        seen[link] = seen.get(link, 0) + 1
    for link, times in seen.items():
        back = link._replace(start=link.end, end=link.start)
        pairs = min(times, seen.get(back, 0))
        for way, many in (("<->", pairs if link.start < link.end else 0), ("->", times - pairs)):
            latency = units.time(link.latency) if link.latency else "-"
            usable = "-" if link.usable is None else _plain(link.usable)
            rows += many * [
                (t.nodes[link.start].name, way, t.nodes[link.end].name, f"{link.width} {link.kind}",
                 _plain(link.nominal), usable, latency, link.source)
            ]  # fmt: skip
    return rows


@topo_command.command("bound", help="What no schedule on a topology can beat, with the cut or dual that proves it.")
@click.argument("topology")
@click.option("--collective", "collectives", multiple=True, help="Only this one; repeatable.")
@click.option("--root", type=int, default=0, show_default=True, help="Of Broadcast, Reduce, Scatter and Gather.")
@click.option("-m", "--size", type=options.byte_count, help="Bytes of the full vector, as in 64M: prints times for it.")
@_measure
@_of_nvlink
@options.as_json
def bound_topology(
    topology: str, collectives: Sequence[str], root: int, size: int | None, nominal: bool, nvlink: Fraction | None,
    as_json: bool,
) -> None:  # fmt: skip
    t = load(topology, nvlink=nvlink)
    measure = "nominal" if nominal else "usable"
    names = collectives or tuple(BOUNDS)
    with progress(f"bounds of {t.name}", len(names)) as advance:
        found = []
        for name in names:
            found.append(bound(t, name, measure=measure, root=root))
            advance()
    if as_json:
        say_json({
            "topology": t.name, "ranks": t.n, "measure": measure, "notes": list(t.notes),
            "bounds": [_record(b, size) for b in found],
        })  # fmt: skip
        return
    ranks = counted(t.n, "rank")
    click.echo(f"{t.name}: {ranks}, {measure} bandwidths; no schedule is faster, m is the full vector, p = {t.n}")
    for b in found:
        click.echo(_say(b, size))
    for note in t.notes:
        click.echo(f"note: {note}")


def _say(b: TopologyBound, size: int | None) -> str:
    line = f"  {b.collective.ljust(14)}  at most {float(b.bandwidth):.2f} GB/s, m x {b.time} s/GB"
    line += f", {units.time(b.time * size / 10**9)} for {units.size(size)}" if size is not None else ""
    if b.attained:
        line += f": attained by {b.attained}"
        line += f", {b.trees} a rank" if b.trees else ""
    elif b.reached is not None and b.collective == "all_reduce":
        line += f"; RS+AG optimal is {float(1 / b.reached):.2f} GB/s, {float(b.reached / b.time):.4g} times as long"
    rows = [f"{b.why}"]
    if isinstance(b.proof, Cut):
        c = b.proof
        unit = "m" if b.collective in ("all_reduce", "broadcast", "reduce") else "m/p"
        links = counted(len(c.crossing), "link")
        rows.append(f"{c.demand} {unit} over {links} of {_plain(c.bandwidth)} GB/s in all: {_links(b, c)}")
        rows.append(f"inside: {_side(b.topology, c, True)}; outside: {_side(b.topology, c, False)}")
    elif isinstance(b.proof, Lengths):
        d = b.proof
        rows.append(f"sum of distances {d.distances}, sum of b times length {_plain(d.capacity)}: {d.how}")
    else:
        rows.append(f"{len(b.proof.groups)} groups, {_plain(b.proof.bandwidth)} GB/s into all of them together")
    return "\n".join([line, *(f"      {row}" for row in rows)])


def _record(b: TopologyBound, size: int | None) -> dict[str, Any]:
    t = b.topology
    found: dict[str, Any] = {
        "collective": b.collective,
        "root": b.root,
        "seconds_per_gb": str(b.time),
        "algbw": float(b.bandwidth),
        "why": b.why,
        "attained": b.attained,
        "reached_seconds_per_gb": None if b.reached is None else str(b.reached),
        "trees": b.trees,
    }
    if size is not None:
        found |= {"size": size, "seconds": float(b.time * size / 10**9)}
    if isinstance(b.proof, Cut):
        found["cut"] = {
            "inside": [t.nodes[i].name for i in b.proof.inside],
            "crossing": [{"from": t.nodes[k.start].name, "to": t.nodes[k.end].name}
                         for k in (t.links[e] for e in b.proof.crossing)],
            "demand": str(b.proof.demand),
            "bandwidth": str(b.proof.bandwidth),
        }  # fmt: skip
    elif isinstance(b.proof, Lengths):
        found["dual"] = {
            "lengths": list(b.proof.lengths),
            "distances": b.proof.distances,
            "capacity": str(b.proof.capacity),
        }
    else:
        found["partition"] = {
            "groups": [[t.nodes[i].name for i in group] for group in b.proof.groups],
            "bandwidth": str(b.proof.bandwidth),
        }
    return found


def _links(b: TopologyBound, c: Cut) -> str:
    return _few([b.topology.describe(b.topology.links[e]) for e in c.crossing])


def _side(t: Topology, c: Cut, inside: bool) -> str:
    members = set(c.inside)
    return _few([node.name for i, node in enumerate(t.nodes) if (i in members) == inside])


def _few(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _plain(value: Fraction) -> str:
    """Exactly, as a decimal where it is a short one."""
    short = f"{float(value):.6g}"
    return short if value.denominator > 1 and Fraction(short) == value else str(value)
