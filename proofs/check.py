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
TRUSTED = """\
trusted: the statements of the theorems named (proofs/*.v; Coq checks their proofs, this program does not), for which
it does not matter what ranks and chunks are called. Not spoken of: the Program that runs, kernels, rounding."""

MEASURES = ("steps", "sent_max", "received_max", "reduced_max")
COLUMNS = ("step", "action", "rank", "peer", "buffer", "chunk", "peer_buffer", "peer_chunk", "count")
COPY, REDUCE, PREREDUCE = 0, 1, 2
INPUT, OUTPUT, SCRATCH = 0, 1, 2
SHAPE = {
    "format": str,
    "version": int,
    "collective": {
        **{"name": str, "chunks": int, "idempotent": bool},
        **{"inputs": [[int]], "outputs": [[int]], "sets": [[[int]]], "alias": [[int]]},
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
    """The file is not a certificate that this program can check."""


class Wrong(Exception):
    """A claim is false, and why."""


class Verdict(NamedTuple):
    """What became of a claim; ok is None where a false one before it leaves nothing to check."""

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
    """`value`, its fractions read, if it has the shape."""
    if isinstance(shape, tuple):
        return None if value is None else fit(value, shape[1], where)
    kind = str if shape is Fraction else type(shape) if isinstance(shape, (list, dict)) else shape
    if type(value) is not kind or kind is int and not 0 <= value < 1 << 53:
        raise Unusable(f"{where} is {show(value)}, wanted {kind.__name__}{', 0 or more, below 2^53' * (kind is int)}")
    if kind is list:
        return [fit(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value)]
    if kind is dict:
        keys = dict.fromkeys(value, shape[str]) if str in shape else shape
        odd = sorted(map(show, value.keys() ^ keys.keys()))
        need(not odd, f"{where}: {', '.join(odd[:3])}: missing or unknown; wanted {', '.join(keys)}")
        return {key: fit(value[key], keys[key], f"{where}.{key}") for key in keys}
    if shape is Fraction:
        number = Fraction(value) if re.fullmatch("[0-9]{1,15}(/[1-9][0-9]{0,14})?", value) else None
        need(str(number) == value, f'{where} is {show(value)}, wanted "p/q" in lowest terms')
        return number
    return value


def read(text: str) -> dict[str, Any]:
    """A certificate of this version, true or false."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), "an object has one key twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"not JSON that can be read: {str(error)[:100]}") from None
    need(isinstance(value, dict) and value.get("format") == FORMAT, f"no certificate: its format is not {FORMAT!r}")
    need(type(value.get("version")) is int and value["version"] == VERSION, f"its version is not {VERSION}")
    certificate: dict[str, Any] = fit(value, SHAPE, "$")
    return certificate


class Collective:
    """What is demanded, in blocks; `chunks` parts make a block, and input chunks are counted through all ranks."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.chunks: int = data["chunks"]
        self.idempotent: bool = data["idempotent"]
        self.sizes: list[list[int]] = data["inputs"]
        self.outputs: list[list[int]] = data["outputs"]
        self.alias: list[list[int]] = data["alias"]
        self.sets: list[Counter[Item]] = [Counter(tuple(item) for item in items) for items in data["sets"]]  # type: ignore[misc]
        self.n = len(self.sizes)
        self.visits = MOST_VISITS
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
        size = [size_of[min(items)] for items in self.sets]
        need(all(s < len(size) for own in self.outputs for s in own), "collective.outputs names no set that exists")
        places = {(r, o): size[s] for r, own in enumerate(self.outputs) for o, s in enumerate(own)}
        need(all(len(row) == 3 for row in self.alias), "collective.alias: wanted [rank, input block, output block]")
        pairs = {(r, i): (r, o) for r, i, o in self.alias}
        once = len(pairs) == len(set(pairs.values())) == len(self.alias) and pairs.keys() <= size_of.keys()
        once = once and all(size_of[a] == places.get(b) for a, b in pairs.items())
        need(once, "collective.alias: wanted input blocks that each share memory with an output block of their size")
        loads = [sum(own) for own in self.sizes] + [sum(size[s] for s in own) for own in self.outputs]
        self.whole = max(1, max(loads) * self.chunks)  # the full vector; the unit is a chunk of a block of size 1
        self.amount = [size * self.chunks for size in size]  # of an output block that wants this set

    def spend(self, visits: int) -> None:
        self.visits -= visits
        need(self.visits >= 0, f"too large: more than {MOST_VISITS} contributions to look at")

    def named(self, name: str) -> str:
        """What the name says; Wrong if something else is spelled out."""
        ranks, n = range(self.n), self.n
        self.spend(n * n)
        rooted = self.sizes if name in ("broadcast", "scatter") else self.outputs
        root = next((r for r in ranks if rooted[r]), 0)
        wants = [demanded(name, n, root, r) for r in ranks]
        used = Counter(x for own in self.outputs for s in own for x in self.sets[s].elements())
        spare = {(r, b) for r in ranks for b in range(len(self.sizes[r]))} - used.keys()
        if name == "send_recv":
            fine = max(used.values(), default=1) == 1 and all(self.sets[s].total() == 1 for own in self.outputs for s in own)
        elif wants[0] is None:
            return f"no name known here: it is what is spelled out, on {n} ranks"
        else:
            fine = all([self.sets[s] for s in own] == [*map(Counter, w)] for own, w in zip(self.outputs, wants, strict=True))
        fine &= name == "all_to_all_v" or all(size == 1 for own in self.sizes for size in own)
        fine &= spare == ({(n - 1, 0)} if name == "exscan" else set()) and self.idempotent == (name == "barrier")
        if not fine:
            raise Wrong(f"{name} on {n} ranks demands something else than is spelled out")
        return f"{name} on {n} ranks, as spelled out"


def demanded(name: str, n: int, root: int, r: int) -> list[list[Item]] | None:
    """The sets that the outputs of rank r want in a collective of this name; None if it is not known."""
    firsts, mine, at_root = [(i, 0) for i in range(n)], [(i, r) for i in range(n)], int(r == root)
    gathered, each_mine = [[x] for x in firsts], [[x] for x in mine]
    known: dict[str, list[list[Item]]] = {
        **{"all_reduce": [firsts], "barrier": [firsts], "reduce": [firsts] * at_root, "reduce_scatter": [mine]},
        **{"all_gather": gathered, "gather": gathered * at_root, "all_to_all": each_mine, "all_to_all_v": each_mine},
        **{"broadcast": [[(root, 0)]], "scatter": [[(root, r)]], "scan": [firsts[: r + 1]], "exscan": [firsts[:r]] if r else []},
    }
    return known.get(name)


def spoken(place: Place) -> str:
    return f"rank {place[0]}, {('in', 'out', 'scratch')[place[1]]}[{place[2]}]"


class Run:
    """A schedule, carried out step by step: what each place holds, and what that costs."""

    def __init__(self, c: Collective) -> None:
        k = c.chunks
        self.c = c
        self.same = {(r, INPUT, i * k + j): (r, OUTPUT, o * k + j) for r, i, o in c.alias for j in range(k)}
        self.memory: dict[Place, Value] = {}
        for r, sizes in enumerate(c.sizes):
            for chunk in range(len(sizes) * k):
                size = sizes[chunk // k]
                length = (size, chunk % k) if size else (0, 0)
                self.memory[self.at((r, INPUT, chunk))] = (length, c.first[r] + chunk)
        self.steps = self.transfers = self.ports = self.scratch = 0
        self.volume = {measure: [0] * c.n for measure in MEASURES[1:]}

    def at(self, place: Place) -> Place:
        """The place that stands for the memory of a place."""
        return self.same.get(place, place)

    def step(self, step: int, rows: list[tuple[int, ...]]) -> list[Place]:
        """Take a step: all is read before anything is written. The places written; Wrong if it can't be taken."""
        moves: list[tuple[int, Place, Value]] = []
        partners: dict[tuple[str, int], set[int]] = {}
        for _, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count in rows:
            if max(rank, peer) >= self.c.n or action > PREREDUCE or max(buffer, peer_buffer) > SCRATCH or count < 1:
                raise Wrong(f"step {step}: a row names a rank, an action, a buffer or a count that does not exist")
            for r, b, end in ((rank, buffer, chunk + count), (peer, peer_buffer, peer_chunk + count)):
                room = MOST_CHUNKS if b == SCRATCH else len((self.c.sizes, self.c.outputs)[b][r]) * self.c.chunks
                self.scratch = max(self.scratch, end * (b == SCRATCH))
                if end > room:
                    raise Wrong(f"step {step}: {spoken((r, b, end - 1))} does not exist")
            if peer_buffer == INPUT:
                raise Wrong(f"step {step}: {spoken((peer, INPUT, peer_chunk))} is written, an input")
            moved = 0
            for i in range(count):
                value = self.memory.get(self.at((rank, buffer, chunk + i)))
                if value is None:
                    raise Wrong(f"step {step}: {spoken((rank, buffer, chunk + i))} is read before it is written")
                moves.append((action, (peer, peer_buffer, peer_chunk + i), value))
                moved += value[0][0]
            self.volume["reduced_max"][peer] += moved * (action != COPY)
            if rank != peer:
                self.transfers += 1
                self.volume["sent_max"][rank] += moved
                self.volume["received_max"][peer] += moved
                partners.setdefault(("to", rank), set()).add(peer)
                partners.setdefault(("from", peer), set()).add(rank)
        self.steps += bool(partners)
        self.ports = max([self.ports, *map(len, partners.values())])
        actions: dict[Place, int] = {}
        for action, place, value in moves:
            if place in actions and COPY in (action, actions[place]):
                raise Wrong(f"step {step}: {spoken(place)} is written twice, and not by reductions only")
            actions[place] = action
            if action != COPY:
                old = self.memory.get(place)
                if old is None or old[0] != value[0]:
                    raise Wrong(f"step {step}: {spoken(place)} holds nothing, or another length, to reduce into")
                value = (value[0], old, value) if action == REDUCE else (value[0], value, old)
            self.memory[place] = value
        return sorted(actions)

    def leaves(self, value: Value) -> list[int]:
        """The input chunks reduced into a value, in the order of the reduction."""
        found, stack = [], [value]
        while stack:
            node = stack.pop()
            if len(node) == 2:
                found.append(node[1])
            else:
                self.c.spend(1)
                stack += (node[2], node[1])
        return found

    def judge(self) -> dict[str, bool]:
        """Compare every output with the multiset that it wants; Wrong at the first that differs."""
        c, unordered, repeated = self.c, False, False
        judged: set[tuple[int, int, int]] = set()
        for r, own in enumerate(c.outputs):
            for chunk in range(len(own) * c.chunks):
                value, s, part = self.memory.get((r, OUTPUT, chunk)), own[chunk // c.chunks], chunk % c.chunks
                if (id(value), s, part) not in judged:
                    judged.add((id(value), s, part))
                    found = self.leaves(value) if value else []
                    wants = Counter({c.first[q] + b * c.chunks + part: times for (q, b), times in c.sets[s].items()})
                    c.spend(len(wants))
                    if Counter(found) != wants if not c.idempotent else set(found) != set(wants):
                        raise Wrong(f"{spoken((r, OUTPUT, chunk))} does not hold what is wanted there")
                    unordered |= any(a >= b for a, b in zip(found, found[1:], strict=False))
                    repeated |= len(set(found)) < len(found)
        reduces = any(items.total() > 1 for items in c.sets)
        return {"needs_commutative": unordered and reduces, "needs_idempotent": repeated and c.idempotent}


def follow(run: Run, columns: dict[str, list[int]], invariant: dict[str, Any] | None) -> str:
    """Take all steps of a schedule; after each, compare what it wrote with the invariant, if there is one."""
    need(len(set(map(len, columns.values()))) == 1, "schedule.columns: wanted as many rows in each")
    need(sum(columns["count"]) <= MOST_MOVES, f"schedule: too large: more than {MOST_MOVES} chunks are moved")
    values: list[list[int]] = []
    for i, (base, *more) in enumerate(value or [None] for value in invariant["values"]) if invariant else ():
        need(None not in more and (base is None or base < i), f"invariant.values[{i}] adds to no earlier value")
        values.append(sorted([*(values[base] if base is not None else []), *more]))
        run.c.spend(len(values[i]))
    taken = -1
    for taken, (step, rows) in enumerate(groupby(zip(*columns.values(), strict=True), key=lambda row: row[0])):
        need(step == taken, f"schedule: step {step} comes where step {taken} should: wanted all from 0, in order")
        written = run.step(step, list(rows))
        said = invariant["steps"][step : step + 1] if invariant else [[None] * len(written)]
        if [*map(len, said)] != [len(written)]:
            raise Wrong(f"invariant: step {step} writes {len(written)} chunks, and that many values were wanted")
        for place, k in zip(written, said[0], strict=True):
            if k is not None and (k >= len(values) or sorted(run.leaves(run.memory[place])) != values[k]):
                raise Wrong(f"invariant: after step {step}, {spoken(place)} holds something else")
    if invariant and len(invariant["steps"]) != taken + 1:
        raise Wrong(f"invariant: {len(invariant['steps'])} steps, the schedule has {taken + 1}")
    return "as the invariant says after each step, and " if invariant else ""


def bound(c: Collective, theorem: str, given: dict[str, int | None], ports: int) -> tuple[dict[str, Any], dict[str, Fraction]]:
    """The instance of a theorem that this collective is, and what it proves; `given` picks a rank, or how many ranks.

    Chunks are reduced over k ranks where an output wants block b of the ranks 0..k-1, how often does not matter, and
    nothing else; inputs are the same with k = 1 and any rank. Without a rank, all ranks together: as what is sent is
    received, the busiest sends, and receives, the mean.
    """
    n, rank, k = c.n, given.get("rank"), 1 if theorem.endswith("_inputs") else given.get("ranks") or 0
    c.spend(sum(len(c.sets[s]) for _, s in c.wanted()))
    if theorem in ("Rounds.all_to_one_rounds", "Rounds.one_to_all_rounds"):  # one rank depends on all of these, or they on it
        pairs = {(r, q) for r, s in c.wanted() for q, _ in c.sets[s]}
        met = {rank, *(q for r, q in pairs if r == rank)} if "to_one" in theorem else {rank, *(r for r, q in pairs if q == rank)}
        rounds = next(t for t in range(n) if (ports + 1) ** t >= len(met))
        return {"ports": ports, "rank": rank, "ranks": len(met)}, {"steps": Fraction(rounds)}
    held = [(r, min(c.sets[s]), c.amount[s]) for r, s in c.wanted() if is_block(c.sets[s], k)]
    size = {x: amount for _, x, amount in held}
    if theorem == "WorkBounds.reduction_work":
        total = sum(size.values())
        return {"ranks": k, "chunks": total}, {"reduced_max": Fraction((k - 1) * total, n * c.whole)}
    if theorem == "VolumeBounds.all_reduce_volume":
        total = sum(size[x] for x, times in Counter(x for x, _ in {(x, r) for r, x, _ in held}).items() if times == n == k)
        return {"ranks": n, "chunks": total}, dict.fromkeys(("sent_max", "received_max"), Fraction(2 * (n - 1) * total, n * c.whole))
    over = lambda x: range(k) if k > 1 else [x[0]]
    sides = {
        "VolumeBounds.must_send": ("sent_max", {(q, x) for r, x, _ in held for q in over(x) if q != r}),
        "VolumeBounds.must_receive": ("received_max", {(r, x) for r, x, _ in held for q in over(x) if q != r}),
    }
