"""Check a certificate of algocc without algocc: this file and the standard library are all it takes.

    python -I proofs/check.py cert.json

A certificate (docs/certificate-format.md) holds a schedule, what its collective demands, and claims. This program
replays the schedule on exact values, counts, compares every output with the multiset demanded, and evaluates
each lower bound from what is demanded, whatever the collective is called. It prints each claim with ok or FALSE.

Exit code: 0 every claim holds; 1 some claim is FALSE; 2 the file can't be used.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

FORMAT, VERSION = "algocc-certificate", 1
MOST_BYTES = 1 << 25  # of a file
MOST_CHUNKS = 1 << 20  # of all inputs, of all outputs, and of the scratch of a rank
MOST_MOVES = 1 << 22  # chunks that a schedule moves in all
MOST_VISITS = 1 << 25  # contributions looked at
TRUSTED = (
    "trusted: the statements of the theorems named, which Coq checks in proofs/*.v, not this program; the names\n"
    "of ranks and chunks do not matter to them. Programs, kernels and rounding are not spoken of."
)

MEASURES = ("steps", "sent_max", "received_max", "reduced_max")
COLUMNS = ("step", "action", "rank", "peer", "buffer", "chunk", "peer_buffer", "peer_chunk", "count")
COPY, REDUCE, PREREDUCE = 0, 1, 2
INPUT, OUTPUT, SCRATCH = 0, 1, 2
SHAPE = {
    "format": str,
    "version": int,
    "collective": {
        **{"name": str, "chunks": int, "idempotent": bool, "inputs": [[int]], "outputs": [[int]]},
        **{"sets": [[[int]]], "alias": [[int]]},
    },
    "schedule": {"name": str, "columns": dict.fromkeys(COLUMNS, [int])},
    "claims": {
        **{"mode": str, "correct": bool, "needs_commutative": bool, "needs_idempotent": bool},
        **{"steps": int, "transfers": int, "ports": int, "scratch": int},
        **{"sent_max": Fraction, "received_max": Fraction, "reduced_max": Fraction},
        **{"bandwidth_optimal": bool, "step_optimal": bool},
    },
    "bounds": {m: (None, {"at_least": Fraction, "theorem": str, "instance": {str: (None, int)}}) for m in MEASURES},
    "invariant": (None, {"values": [[(None, int)]], "steps": [[int]]}),
}
"""What a certificate looks like: [x] is a list of x, (None, x) null or x, {str: x} has any keys."""

Item = tuple[int, int]  # (rank, input block)
Place = tuple[int, int, int]  # (rank, buffer, chunk)
Value = tuple[Any, ...]  # (length, input chunk), or of a reduction (length, left, right); a length is (size, part)


class Unusable(Exception):
    """The file is not a certificate that this program can check (exit code 2)."""


class Wrong(Exception):
    """A claim is false, and why."""


class Verdict(NamedTuple):
    """What became of a claim: ok is None where a false one before it leaves nothing to check."""

    claim: str
    ok: bool | None
    text: str


def need(condition: object, message: str) -> None:
    if not condition:
        raise Unusable(message)


def show(value: Any) -> str:
    """A value in a message: short, and nothing in it that a terminal obeys."""
    text = f"a {type(value).__name__} of {len(value)}" if isinstance(value, (dict, list)) else ascii(value)
    return text if len(text) < 60 else f"{text[:56]}…{text[-1]}"


def fit(value: Any, shape: Any, where: str) -> Any:
    """`value`, fractions read, if it has the shape."""
    if isinstance(shape, tuple):
        return None if value is None else fit(value, shape[1], where)
    kind = str if shape is Fraction else type(shape) if isinstance(shape, (list, dict)) else shape
    if type(value) is not kind:
        raise Unusable(f"{where} is {show(value)}, wanted {kind.__name__}")
    if kind is list:
        return [fit(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value)]
    if kind is dict:
        keys = dict.fromkeys(value, shape[str]) if str in shape else shape
        odd = ", ".join(map(show, sorted(value.keys() ^ keys.keys())[:3]))
        need(not odd, f"{where}: {odd}: a key that is missing or unknown; wanted {', '.join(keys)}")
        return {key: fit(value[key], keys[key], f"{where}.{key}") for key in keys}
    if kind is int and not 0 <= value < 1 << 53:
        raise Unusable(f"{where} is {show(value)}, wanted 0 or more, below 2^53")
    if shape is Fraction:
        number = Fraction(value) if re.fullmatch("[0-9]{1,15}(/[1-9][0-9]{0,14})?", value) else None
        need(str(number) == value, f'{where} is {show(value)}, wanted "p/q" in lowest terms')
        return number
    return value


def read(text: str) -> dict[str, Any]:
    """A certificate of this version; it may still be false."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), "an object has one key twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"not JSON that can be read: {str(error)[:100]}") from None
    need(isinstance(value, dict) and value.get("format") == FORMAT, f"not a certificate: its format is not {FORMAT!r}")
    need(type(value.get("version")) is int and value["version"] == VERSION, f"its version is not {VERSION}")
    certificate: dict[str, Any] = fit(value, SHAPE, "$")
    return certificate


class Budget:
    """How many more contributions may be looked at."""

    def __init__(self) -> None:
        self.left = MOST_VISITS

    def spend(self, visits: int) -> None:
        self.left -= visits
        need(self.left >= 0, f"too large: more than {MOST_VISITS} contributions to look at")

    def leaves(self, value: Value) -> list[int]:
        """The input chunks reduced into a value, in the order of the reduction."""
        found, stack = [], [value]
        while stack:
            node = stack.pop()
            if len(node) == 2:
                found.append(node[1])
                continue
            self.spend(1)
            stack += (node[2], node[1])
        return found


class Collective:
    """What is demanded, in blocks; `chunks` parts make a block, and input chunks are counted through all ranks."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.chunks: int = data["chunks"]
        self.idempotent: bool = data["idempotent"]
        self.sizes: list[list[int]] = data["inputs"]
        self.outputs: list[list[int]] = data["outputs"]
        self.alias: list[list[int]] = data["alias"]
        self.sets = [Counter(tuple(item) for item in items) for items in data["sets"]]
        self.n = len(self.sizes)
        need(self.n == len(self.outputs) >= 1 <= self.chunks, "collective: wanted 1 rank or more, and 1 chunk or more")
        blocks = max(sum(map(len, side)) for side in (self.sizes, self.outputs))
        need(blocks * self.chunks <= MOST_CHUNKS, f"collective: too large: more than {MOST_CHUNKS} chunks")
        self.first = [0]  # number of the first input chunk of each rank
        for sizes in self.sizes:
            self.first.append(self.first[-1] + len(sizes) * self.chunks)
        size_of = {(r, b): size for r, sizes in enumerate(self.sizes) for b, size in enumerate(sizes)}
        for i, items in enumerate(self.sets):
            need(items.keys() <= size_of.keys(), f"collective.sets[{i}] names no [rank, input block] that exists")
            need(len({size_of[x] for x in items}) == 1, f"collective.sets[{i}]: wanted blocks, and of one size")
        set_size = [size_of[min(items)] for items in self.sets]
        need(all(s < len(set_size) for own in self.outputs for s in own), "collective.outputs names no set that exists")
        places = {(r, o): set_size[s] for r, own in enumerate(self.outputs) for o, s in enumerate(own)}
        need(all(len(row) == 3 for row in self.alias), "collective.alias: wanted [rank, input block, output block]")
        pairs = [((r, i), (r, o)) for r, i, o in self.alias]
        alike = all(a in size_of and b in places and size_of[a] == places[b] for a, b in pairs)
        need(alike and len(dict(pairs)) == len({b for _, b in pairs}) == len(pairs),
             "collective.alias: an input block shares memory with one output block, of its size")  # fmt: skip
        loads = [sum(own) for own in self.sizes] + [sum(set_size[s] for s in own) for own in self.outputs]
        self.whole = max(1, max(loads) * self.chunks)  # the full vector; the unit is a chunk of a block of size 1
        self.amount = [size * self.chunks for size in set_size]  # of an output block that wants this set

    def named(self, name: str, budget: Budget) -> str:
        """What the name says of the collective; Wrong if something else is demanded than it says."""
        everyone, n = range(self.n), self.n
        if name == "send_recv":
            wants = Counter(x for own in self.outputs for s in own for x in self.sets[s].elements())
            fine = all(self.sets[s].total() == 1 for own in self.outputs for s in own) and not self.alias
            fine &= wants == Counter((r, b) for r in everyone for b in range(len(self.sizes[r])))
        elif name in DEMANDS:
            budget.spend(n * n)
            rooted = self.sizes if name in ("broadcast", "scatter") else self.outputs
            root = next((r for r in everyone if rooted[r]), 0)
            blocks = n if name in ("reduce_scatter", "scatter", "all_to_all", "all_to_all_v") else 1
            wants_of = [DEMANDS[name](n, root, r) for r in everyone]
            fine = all([self.sets[s] for s in own] == [*map(Counter, w)] for own, w in zip(self.outputs, wants_of, strict=True))
            fine &= all(len(s) == (blocks if rooted is self.outputs or r == root else 0) for r, s in enumerate(self.sizes))
            # In place an output is the own block that it wants; in these three it is the input block of its number.
            by_number = name in ("all_to_all", "all_to_all_v", "exscan")
            shared = [
                [r, b, o] for r, wants in enumerate(wants_of) for o, want in enumerate(wants)
                for q, b in ([(r, o)] if by_number else want) if q == r
            ]  # fmt: skip
            fine &= sorted(self.alias) in ([], shared)
        else:
            return f"no name that is known here; it is what is spelled out, on {n} ranks"
        fine &= name == "all_to_all_v" or all(size == 1 for own in self.sizes for size in own)
        if not fine or self.idempotent != (name == "barrier"):
            raise Wrong(f"{name} on {n} ranks demands something else than is spelled out")
        return f"{name} on {n} ranks is what is spelled out"


def _whole(n: int) -> list[Item]:
    return [(i, 0) for i in range(n)]


DEMANDS: dict[str, Any] = {
    "all_reduce": lambda n, root, r: [_whole(n)],
    "barrier": lambda n, root, r: [_whole(n)],
    "reduce_scatter": lambda n, root, r: [[(i, r) for i in range(n)]],
    "all_gather": lambda n, root, r: [[x] for x in _whole(n)],
    "broadcast": lambda n, root, r: [[(root, 0)]],
    "reduce": lambda n, root, r: [_whole(n)] if r == root else [],
    "scatter": lambda n, root, r: [[(root, r)]],
    "gather": lambda n, root, r: [[x] for x in _whole(n)] if r == root else [],
    "all_to_all": lambda n, root, r: [[(i, r)] for i in range(n)],
    "all_to_all_v": lambda n, root, r: [[(i, r)] for i in range(n)],
    "scan": lambda n, root, r: [_whole(r + 1)],
    "exscan": lambda n, root, r: [_whole(r)] if r else [],
}
"""The sets that the outputs of rank r want, by the name of the collective."""


def spoken(place: Place) -> str:
    return f"rank {place[0]}, {('in', 'out', 'scratch')[place[1]]}[{place[2]}]"


class Run:
    """A schedule, carried out: what each place holds, and what that cost. Wrong where a step can't be taken."""

    def __init__(self, c: Collective, columns: dict[str, list[int]], invariant: dict[str, Any] | None, budget: Budget) -> None:
        need(len(set(map(len, columns.values()))) == 1, "schedule.columns: wanted as many rows in each")
        need(sum(columns["count"]) <= MOST_MOVES, f"schedule: too large: more than {MOST_MOVES} chunks are moved")
        self.c, self.budget, k = c, budget, c.chunks
        self.memory: dict[Place, Value] = {}
        self.same = {(r, INPUT, i * k + j): (r, OUTPUT, o * k + j) for r, i, o in c.alias for j in range(k)}
        for r, sizes in enumerate(c.sizes):
            for chunk in range(len(sizes) * k):
                size, part = sizes[chunk // k], chunk % k
                self.memory[self.at((r, INPUT, chunk))] = ((size, part if size else 0), c.first[r] + chunk)
        self.steps = self.transfers = self.ports = self.scratch = 0
        self.volume = {m: [0] * c.n for m in MEASURES[1:]}
        self.held: list[list[int]] = []  # the values of the invariant
        self.seen: dict[int, tuple[Value, int]] = {}  # those found, by id; the value is kept so that its id stays its own
        for i, (base, *more) in enumerate(value or [None] for value in invariant["values"] if invariant) if invariant else ():
            need(None not in more and (base is None or base < i), f"invariant.values[{i}] is made of no earlier value")
            self.held.append(sorted((self.held[base] if base is not None else []) + more))
            budget.spend(len(self.held[-1]))
        rows = list(zip(*(columns[key] for key in COLUMNS), strict=True))
        taken = [list(of_step) for _, of_step in groupby(rows, key=lambda row: row[0])]
        need([rows[0] for rows in taken] == list(range(len(taken))) or all(
            rows[0][0] == i for i, rows in enumerate(taken)), "schedule: wanted steps in order from 0, none left out")
