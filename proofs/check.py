"""Check a certificate of algocc without algocc: this file and the standard library are all it takes.

    python -I proofs/check.py cert.json

A certificate (docs/certificate-format.md) holds a schedule, what its collective demands, and claims. This program
replays the schedule on exact values, counts, compares every output with the multiset demanded, evaluates each lower
bound from what is demanded, whatever the collective is called, and prints each claim with ok or FALSE.

Exit code: 0 every claim holds; 1 some claim is FALSE; 2 the file can't be used.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from typing import Any

FORMAT, VERSION = "algocc-certificate", 1
MOST_BYTES, MOST_VISITS = 1 << 25, 1 << 24  # of a file; contributions looked at
MOST_CHUNKS, MOST_MOVES = 1 << 20, 1 << 22  # of all inputs, of all outputs, of the scratch of a rank; that are moved
TRUSTED = """trusted: the statements of the theorems named (in proofs/*.v, where Coq checks their proofs), for which it
does not matter what ranks and chunks are called. Not spoken of: the Program that runs, kernels, rounding."""

SHARES = ("sent_max", "received_max", "reduced_max")
FLAGS = ("correct", "needs_commutative", "needs_idempotent", "bandwidth_optimal", "step_optimal")
COUNTS = ("steps", "transfers", "ports", "scratch")
COLUMNS = ("step", "action", "rank", "peer", "buffer", "chunk", "peer_buffer", "peer_chunk", "count")
SPOKEN = "rank {}, buffer {}, chunk {}"
COPY, REDUCE, PREREDUCE, INPUT, OUTPUT, SCRATCH = 0, 1, 2, 0, 1, 2
SHAPE = {
    "format": str,
    "version": int,
    "collective": {"name": str, "chunks": int, "idempotent": bool, "inputs": [[int]], "outputs": [[int]]}
    | {"sets": [[[int]]], "alias": [[int]]},
    "schedule": {"name": str, "columns": {column: [int] for column in COLUMNS}},
    "claims": {"mode": str, **dict.fromkeys(FLAGS, bool), **dict.fromkeys(COUNTS, int), **dict.fromkeys(SHARES, Fraction)},
    "bounds": {measure: (None, {"at_least": Fraction, "theorem": str, "instance": {str: (None, int)}})
               for measure in ("steps", *SHARES)},
    "invariant": (None, {"values": [[(None, int)]], "steps": [[int]]}),
}  # fmt: skip
"""What a certificate looks like: [x] is a list of x, (None, x) null or x, {str: x} has any keys."""

Item = tuple[int, int]  # (rank, input block)
Place = tuple[int, int, int]  # (rank, buffer, chunk)
Value = tuple[Any, ...]  # (length, input chunk), or of a reduction (length, left, right); a length is (size, part)
Given = dict[str, int | None]
Proved = tuple[Given, dict[str, Fraction]]
Verdict = tuple[str, bool | None, str]  # claim, whether it holds, why; None: a false one leaves nothing to check


class Wrong(Exception):
    """A claim is false, and why."""


def need(condition: object, message: str) -> None:
    """ValueError, for a file that can't be used, unless the condition holds."""
    if not condition:
        raise ValueError(message)


def plain(value: Any) -> str:
    """A value in a message: short, and nothing in it that a terminal obeys."""
    return re.sub("[^ -~]", "?", str(value)[:300])


def fit(value: Any, shape: Any, where: str) -> Any:
    """`value`, its fractions read, if it has the shape."""
    if isinstance(shape, tuple):
        return None if value is None else fit(value, shape[1], where)
    kind: Any = str if shape is Fraction else type(shape) if isinstance(shape, (list, dict)) else shape
    if type(value) is not kind or kind is int and not 0 <= value < 1 << 53:
        wanted = "a whole number, 0 or more, below 2^53" if kind is int else kind.__name__
        raise ValueError(f"{where} is {plain(value)[:60]}, wanted {wanted}")
    if kind is list:
        return [fit(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value)]
    if kind is dict:
        keys = dict.fromkeys(value, shape[str]) if str in shape else shape
        odd = sorted(value.keys() ^ keys.keys())
        need(not odd, f"{where}: the keys {plain(odd)[:60]} are missing or unknown; wanted {', '.join(keys)}")
        return {key: fit(value[key], keys[key], f"{where}.{key}") for key in keys}
    if shape is Fraction:
        lowest = re.fullmatch("[0-9]{1,15}(/[1-9][0-9]{0,14})?", value) and str(Fraction(value)) == value
        need(lowest, f'{where} is {plain(value)[:60]}, wanted "p/q" in lowest terms')
        return Fraction(value)
    return value


class Collective:
    """What is demanded, in blocks; `chunks` parts make a block, and input chunks are counted through all ranks."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.chunks, self.idempotent, self.alias = int(data["chunks"]), bool(data["idempotent"]), data["alias"]
        self.sizes, self.outputs = data["inputs"], data["outputs"]
        self.n, self.ports, self.visits = len(self.sizes), 1, MOST_VISITS
        need(self.n == len(self.outputs) >= 1 <= self.chunks, "collective: wanted 1 rank or more, and 1 chunk or more")
        chunks = max(sum(map(len, side)) for side in (self.sizes, self.outputs, [data["sets"]])) * self.chunks
        need(chunks <= MOST_CHUNKS, f"collective: too large: {chunks} chunks, wanted at most {MOST_CHUNKS}")
        self.first = [0, *accumulate(len(own) * self.chunks for own in self.sizes)]  # input chunk of each rank
        size_of = {(r, b): size for r, sizes in enumerate(self.sizes) for b, size in enumerate(sizes)}
        self.sets: list[Counter[Item]] = [Counter((*item,) for item in items) for items in data["sets"]]
        for i, items in enumerate(self.sets):
            need(items.keys() <= size_of.keys(), f"collective.sets[{i}] names no [rank, input block] that exists")
            need(len({size_of[x] for x in items}) == 1, f"collective.sets[{i}]: wanted blocks, and of one size")
        self.least = [min(items) for items in self.sets]  # the item by which a theorem calls a set
        size = [size_of[x] for x in self.least]
        need(all(s < len(size) for own in self.outputs for s in own), "collective.outputs names no set that exists")
        places = {(r, o): size[s] for r, own in enumerate(self.outputs) for o, s in enumerate(own)}
        pairs = {(row[0], row[1]): (row[0], row[2]) for row in self.alias if len(row) == 3}
        fine = len(pairs) == len({*pairs.values()}) == len(self.alias) and pairs.keys() <= size_of.keys()
        need(fine and all(size_of[a] == places.get(b) for a, b in pairs.items()),
             "collective.alias: wanted input blocks that each share memory with one output block of their size")  # fmt: skip
        loads = [sum(own) for own in self.sizes] + [sum(size[s] for s in own) for own in self.outputs]
        self.whole = max(1, max(loads) * self.chunks)  # the full vector; the unit is a chunk of a block of size 1
        self.amount = [of_one * self.chunks for of_one in size]  # of an output block that wants this set
        self.wants = [(r, s) for r, own in enumerate(self.outputs) for s in own]

    def spend(self, visits: int) -> None:
        self.visits -= visits
        need(self.visits >= 0, f"too large: more than {MOST_VISITS} contributions to look at")

    def named(self, name: str) -> str:
        """What the name says; Wrong if something else is spelled out."""
        ranks, n = range(self.n), self.n
        self.spend(n * n + sum(self.sets[s].total() for _, s in self.wants))
        rooted = self.sizes if name in ("broadcast", "scatter") else self.outputs
        root = next((r for r in ranks if rooted[r]), 0)
        used = Counter(x for _, s in self.wants for x in self.sets[s].elements())
        spare = {(r, b) for r in ranks for b in range(len(self.sizes[r]))} - used.keys()
        alias: list[list[int]] = []  # in place: an output is the own block that it wants, or the one of its number
        if name == "send_recv":
            fine = max(used.values(), default=1) == 1 == max((self.sets[s].total() for _, s in self.wants), default=1)
        elif name in DEMANDS:
            wants = [(r, o, want) for r in ranks for o, want in enumerate(DEMANDS[name](n, r, root))]
            fine = [(r, self.sets[s]) for r, s in self.wants] == [(r, Counter(want)) for r, _, want in wants]
            numbered = name in ("all_to_all", "all_to_all_v", "exscan")
            alias = [[r, b, o] for r, o, want in wants for q, b in ([(r, o)] if numbered else want) if q == r]
        else:
            return f"no name known here: it is what is spelled out, on {n} ranks"
        fine &= name == "all_to_all_v" or all(size == 1 for own in self.sizes for size in own)
        fine &= spare == ({(n - 1, 0)} if name == "exscan" else set()) and self.idempotent == (name == "barrier")
        if not fine or sorted(self.alias) not in ([], sorted(alias)):
            raise Wrong(f"{name} on {n} ranks demands something else than is spelled out")
        return f"{name} on {n} ranks, as spelled out"


# The sets that the outputs of rank r want, of n ranks.
DEMANDS: dict[str, Callable[[int, int, int], list[list[Item]]]] = {
    "all_reduce": lambda n, r, root: [[(i, 0) for i in range(n)]],
    "all_gather": lambda n, r, root: [[(i, 0)] for i in range(n)],
    "all_to_all": lambda n, r, root: [[(i, r)] for i in range(n)],
    "broadcast": lambda n, r, root: [[(root, 0)]],
    "exscan": lambda n, r, root: [[(i, 0) for i in range(r)]] if r else [],
    "reduce_scatter": lambda n, r, root: [[(i, r) for i in range(n)]],
    "scan": lambda n, r, root: [[(i, 0) for i in range(r + 1)]],
    "scatter": lambda n, r, root: [[(root, r)]],
}
DEMANDS |= {"barrier": DEMANDS["all_reduce"], "all_to_all_v": DEMANDS["all_to_all"]}
DEMANDS["reduce"] = lambda n, r, root: DEMANDS["all_reduce"](n, r, root) if r == root else []
DEMANDS["gather"] = lambda n, r, root: DEMANDS["all_gather"](n, r, root) if r == root else []


class Run:
    """A schedule, carried out step by step: what each place holds, and what that costs."""

    def __init__(self, c: Collective) -> None:
        self.c, k = c, c.chunks
        self.same = {(r, INPUT, i * k + j): (r, OUTPUT, o * k + j) for r, i, o in c.alias for j in range(k)}
        self.memory: dict[Place, Value] = {}
        for r, sizes in enumerate(c.sizes):
            for chunk in range(len(sizes) * k):
                size, part, place = sizes[chunk // k], chunk % k, (r, INPUT, chunk)
                self.memory[self.same.get(place, place)] = ((size, part * bool(size)), c.first[r] + chunk)
        self.steps = self.transfers = self.ports = self.scratch = 0
        self.volume = {share: [0] * c.n for share in SHARES}

    def step(self, step: int, rows: list[tuple[int, ...]]) -> list[Place]:
        """Take a step: all is read before anything is written. The places written; Wrong if it can't be taken."""
        moves: list[tuple[int, Place, Value]] = []
        partners: dict[tuple[str, int], set[int]] = {}
        for _, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count in rows:
            if max(rank, peer) >= self.c.n or action > PREREDUCE or not buffer <= SCRATCH >= peer_buffer > INPUT or not count:
                raise Wrong(f"step {step}: a row has a rank, action, buffer or count that does not exist, or writes an input")
            for r, b, end in ((rank, buffer, chunk + count), (peer, peer_buffer, peer_chunk + count)):
                self.scratch = max(self.scratch, end * (b == SCRATCH))
                if end > (MOST_CHUNKS if b == SCRATCH else len((self.c.sizes, self.c.outputs)[b][r]) * self.c.chunks):
                    raise Wrong(f"step {step}: {SPOKEN.format(r, b, end - 1)} does not exist")
            moved = 0
            for i in range(count):
                place = (rank, buffer, chunk + i)
                value = self.memory.get(self.same.get(place, place))
                if value is None:
                    raise Wrong(f"step {step}: {SPOKEN.format(*place)} is read before it is written")
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
                raise Wrong(f"step {step}: {SPOKEN.format(*place)} is written twice, and not by reductions only")
            actions[place] = action
            if action != COPY:
                old = self.memory.get(place)
                if old is None or old[0] != value[0]:
                    raise Wrong(f"step {step}: {SPOKEN.format(*place)} holds nothing, or another length, to reduce into")
                value = (value[0], old, value) if action == REDUCE else (value[0], value, old)
            self.memory[place] = value
        return sorted(actions)

    def follow(self, columns: dict[str, list[int]], invariant: dict[str, Any] | None) -> None:
        """Take all steps; after each, compare what was written with the invariant, if there is one."""
        need(len({len(column) for column in columns.values()}) == 1, "schedule.columns: wanted as many rows in each")
        need(sum(columns["count"]) <= MOST_MOVES, f"schedule: too large: more than {MOST_MOVES} chunks are moved")
        values: list[list[int]] = []
        for i, (base, *more) in enumerate(value or [None] for value in invariant["values"]) if invariant else ():
            need(None not in more and (base is None or base < i), f"invariant.values[{i}] adds to no earlier value")
            values.append(sorted([*(values[base] if base is not None else []), *more]))
            self.c.spend(len(values[i]))
        steps = [list(rows) for _, rows in groupby(zip(*columns.values(), strict=True), key=lambda row: row[0])]
        need(not invariant or len(invariant["steps"]) == len(steps), f"invariant: wanted {len(steps)} steps")
        for step, rows in enumerate(steps):
            need(rows[0][0] == step, f"schedule: step {rows[0][0]} comes where {step} should: wanted all from 0 in order")
            written = self.step(step, rows)
            said = invariant["steps"][step] if invariant else [None] * len(written)
            need(len(said) == len(written), f"invariant: step {step} writes {len(written)} chunks")
            for place, k in zip(written, said, strict=True):
                if k is not None and (k >= len(values) or sorted(self.leaves(self.memory[place])) != values[k]):
                    raise Wrong(f"after step {step}, {SPOKEN.format(*place)} does not hold what the invariant says")

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
                if (id(value), s, part) not in judged and c.amount[s]:
                    judged.add((id(value), s, part))
                    found = self.leaves(value) if value else []
                    wants = Counter({c.first[q] + b * c.chunks + part: times for (q, b), times in c.sets[s].items()})
                    c.spend(len(wants))
                    if Counter(found) != wants if not c.idempotent else set(found) != set(wants):
                        raise Wrong(f"{SPOKEN.format(r, OUTPUT, chunk)} does not hold what is wanted there")
                    unordered |= any(a >= b for a, b in pairwise(found))
                    repeated |= len(set(found)) < len(found)
        unordered &= any(items.total() > 1 for items in c.sets)  # else there is nothing to combine
        return {"correct": True, "needs_commutative": unordered, "needs_idempotent": repeated and c.idempotent}


def reduced(c: Collective, k: int) -> list[tuple[int, Item, int]]:
    """(rank, (0, b), amount) for each output that wants block b of the ranks 0..k-1, how often does not matter, and
    nothing else. With k = 1 (rank, item, amount): it wants one block, of any rank."""
    found = [(r, s, c.least[s]) for r, s in c.wants if len(c.sets[s]) == k]
    c.spend(k * len(found))
    return [(r, x, c.amount[s]) for r, s, x in found if k == 1 or c.sets[s].keys() == {(i, x[1]) for i in range(k)}]


def must(c: Collective, given: Given, share: str, what: str) -> Proved:
    """What a rank must send to others, or receive: each input, or chunk reduced over k ranks of which it is one, that
    they, or it, must end with. All ranks together: what is sent is received, so the busiest does the mean of either."""
    rank, k = given.get("rank"), 1 if what == "inputs" else max(2, given.get("ranks") or 0)
    lacks = {(q if share == "sent_max" else r, x): amount
             for r, x, amount in reduced(c, k) for q in (range(k) if k > 1 else [x[0]]) if q != r}  # fmt: skip
    total = sum(amount for (q, _), amount in lacks.items() if rank in (None, q))
    proved = dict.fromkeys(SHARES[:2], Fraction(total, c.n * c.whole)) if rank is None else {share: Fraction(total, c.whole)}
    return {"rank": rank, what: total, **({} if k == 1 else {"ranks": k})}, proved


def all_reduce_volume(c: Collective, given: Given) -> Proved:
    """If all n ranks must end with m chunks reduced over them, one sends, and one receives, 2(n-1)m/n chunks."""
    holders = {(x, r): amount for r, x, amount in reduced(c, c.n)}
    times = Counter(x for x, _ in holders)
    m = sum(amount for (x, r), amount in holders.items() if r == 0 and times[x] == c.n)
    return {"ranks": c.n, "chunks": m}, dict.fromkeys(SHARES[:2], Fraction(2 * (c.n - 1) * m, c.n * c.whole))


def reduction_work(c: Collective, given: Given) -> Proved:
    """m chunks reduced over k ranks, wherever they end, take (k-1)m reductions in all; some rank does the mean."""
    k = given.get("ranks") or 1
    m = sum({x: amount for _, x, amount in reduced(c, k)}.values())
    return {"ranks": k, "chunks": m}, {"reduced_max": Fraction((k - 1) * m, c.n * c.whole)}


def rounds(c: Collective, given: Given, into: bool) -> Proved:
    """If a rank depends on k ranks, itself one of them, or k ranks depend on it, then k <= (ports+1)^steps."""
    met = {rank := given.get("rank")}
    for r, s in c.wants:
        c.spend(len(c.sets[s]))
        met |= {q if into else r for q, _ in c.sets[s] if c.amount[s] and rank == (r if into else q)}
    least = next(t for t in range(c.n) if (c.ports + 1) ** t >= len(met))
    return {"rank": rank, "ranks": len(met), "ports": c.ports}, {"steps": Fraction(least)}


# For each theorem known: the instance that a collective is, given a rank or a number of ranks, and what it proves.
THEOREMS: dict[str, Callable[[Collective, Given], Proved]] = {
    "Rounds.all_to_one_rounds": lambda c, given: rounds(c, given, into=True),
    "Rounds.informed_ranks": lambda c, given: rounds(c, given, into=False),
    "VolumeBounds.all_reduce_volume": all_reduce_volume,
    "VolumeBounds.must_receive_chunks": lambda c, given: must(c, given, "received_max", "chunks"),
    "VolumeBounds.must_receive_inputs": lambda c, given: must(c, given, "received_max", "inputs"),
    "VolumeBounds.must_send_chunks": lambda c, given: must(c, given, "sent_max", "chunks"),
    "VolumeBounds.must_send_inputs": lambda c, given: must(c, given, "sent_max", "inputs"),
    "WorkBounds.reduction_work": reduction_work,
}


def bound(c: Collective, measure: str, said: dict[str, Any]) -> str:
    """Wrong unless the theorem says so of this collective."""
    theorem, given = said["theorem"], said["instance"]
    if theorem not in THEOREMS:
        raise Wrong(f"{plain(theorem)[:60]} is no theorem known here")
    instance, proved = THEOREMS[theorem](c, given)
    if given != instance or proved.get(measure) != said["at_least"]:
        raise Wrong(f"at least {said['at_least']} does not follow from {theorem}; its instance here is {instance}")
    return f"at least {said['at_least']}: {theorem}, {', '.join(f'{key}={value}' for key, value in given.items())}"


def check(text: str) -> list[Verdict]:
    """The verdict on each claim of a certificate; ValueError if it is none that can be used."""
    twice = "an object with one key twice"
    value = json.loads(text, object_pairs_hook=lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else twice)
    fine = isinstance(value, dict) and [value.get("format"), value.get("version")] == [FORMAT, VERSION]
    need(fine, f"not a certificate of format {FORMAT!r}, version {VERSION}")
    data = fit(value, SHAPE, "$")
    c, verdicts, least = Collective(data["collective"]), list[Verdict](), dict[str, Fraction]()
    run, found = Run(c), {"mode": "in place" if c.alias else "out of place"} | dict[str, Any]()

    def judge(claim: str, reason: Callable[..., str], *arguments: Any) -> bool:
        try:
            verdicts.append((claim, True, reason(*arguments)))
        except Wrong as error:
            verdicts.append((claim, False, str(error)))
        return verdicts[-1][1] is True

    def replayed() -> str:
        run.follow(data["schedule"]["columns"], data["invariant"])
        found.update({count: getattr(run, count) for count in COUNTS}, **run.judge())
        found.update({share: Fraction(max(run.volume[share]), c.whole) for share in SHARES})
        c.ports = max(1, run.ports)
        return f"{plain(data['schedule']['name'])}: outputs hold what they must; invariant: {'holds' if data['invariant'] else 'none'}"

    judge("collective", c.named, data["collective"]["name"])
    if judge("schedule", replayed):
        for measure, said in data["bounds"].items():
            if said and judge(f"bound on {measure}", bound, c, measure, said):
                least[measure] = said["at_least"]
        found["bandwidth_optimal"] = max(found[s] for s in SHARES[:2]) == max(least.get(s, 0) for s in SHARES[:2])
        found["step_optimal"] = run.steps == least.get("steps", 0)
    for claim, said in data["claims"].items():
        ok = said == found[claim] if claim in found else None
        verdicts.append((claim, ok, plain(said) if ok else f"{plain(said)}, found {found.get(claim, 'no reason')}"))
    return verdicts


def main(arguments: list[str]) -> int:
    """Check a file and print the verdicts; the exit code."""
    try:
        need(len(arguments) == 1, "wanted one certificate: python -I proofs/check.py cert.json")
        with open(arguments[0], "rb") as file:
            content = file.read(MOST_BYTES + 1)
        need(len(content) <= MOST_BYTES, f"too large: more than {MOST_BYTES} bytes")
        verdicts = check(content.decode())
        bad = sum(ok is not True for _, ok, _ in verdicts)
        for claim, ok, text in verdicts:
            print(f"{'?' if ok is None else 'ok' if ok else 'FALSE':6}{claim:23}{text}")
        result = f"{bad} of {len(verdicts)} claims do not hold" if bad else f"all {len(verdicts)} claims hold"
        print(f"{TRUSTED}\nverdict: {result}", flush=True)
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        print(f"{plain(' '.join(arguments))}: can't be used: {plain(error)}", file=sys.stderr)
        return 2
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
