"""An MSCCL++ plan as values: gpus > threadblocks > operations, whatever year it was written in.

Keys and names of earlier years are renamed first (the tables of `plan_words`); then there is one shape to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from algocc.collective import Buffer
from algocc.errors import near
from algocc.exchange.json_reader import Object, parse
from algocc.exchange.msccl import BUFFERS
from algocc.exchange.msccl_types import MOST_CHUNKS
from algocc.exchange.plan_words import (
    CHANNEL_TYPES,
    COLLECTIVES,
    DEFAULTS,
    KEYS,
    OLD_CHANNEL_TYPES,
    OLD_KEYS,
    OLD_OPS,
    OPS,
    PROTOCOLS,
    OpType,
)
from algocc.place import Notes, Place

MOST_RANKS = 1 << 16


class Channel(NamedTuple):
    """One end of a channel: the `nth` of its kind from `rank` to `peer`."""

    rank: int
    peer: int
    kind: str
    nth: int

    @property
    def other(self) -> Channel:
        """The end at the peer."""
        return Channel(self.peer, self.rank, self.kind, self.nth)

    def __str__(self) -> str:
        return f"{self.kind} channel {self.nth} of rank {self.rank} to rank {self.peer}"


class Operand(NamedTuple):
    """Chunks of a buffer of some ranks: of one, or through a switch of a whole group."""

    ranks: tuple[int, ...]
    buffer: int
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of a threadblock."""

    name: str
    srcs: tuple[Operand, ...]
    dsts: tuple[Operand, ...]
    channels: tuple[Channel, ...]
    semaphores: tuple[int, ...]
    barrier: int
    depends: tuple[tuple[int, int], ...]
    place: Place
    round: int = -1
    swapped: bool = False

    @property
    def type(self) -> OpType:
        """What its name does."""
        return OPS[self.name]


@dataclass(frozen=True, slots=True)
class PlanGpu:
    """A rank: chunks of its buffers, its threadblocks, and the first value of its semaphores."""

    chunks: tuple[int, int, int]
    blocks: tuple[tuple[Op, ...], ...]
    semaphores: tuple[int, ...]
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan; `coll` as the file spells it, `window` the sizes in bytes it is meant for."""

    name: str
    coll: str
    protocol: str
    in_place: bool
    window: tuple[int, int]
    gpus: tuple[PlanGpu, ...]
    place: Place


@dataclass
class _Node:
    """An object of the file with its place; reads keys, refuses what they should not hold."""

    value: Object
    kind: str
    at: Place
    notes: Notes
    keys: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        old = OLD_KEYS.get(self.kind, {})
        for key in list(self.value):
            if key in old and old[key] not in self.value:
                self.notes.add(self.line(key), f"key {key!r} is read as {old[key]!r}, its name in newer plans")
                self.value.lines[old[key]] = self.value.lines[key]
                self.value[old[key]] = self.value.pop(key)
            elif key not in KEYS[self.kind]:
                self.line(key).refuse(
                    f"unknown key {key!r}{near(key, KEYS[self.kind])}",
                    mend=f"in the plans of 2024 to 2026 it has {', '.join(sorted(KEYS[self.kind]))}",
                )

    def line(self, key: str) -> Place:
        """Where a key stands."""
        return self.at.at(self.value.lines.get(key, self.value.line), self.at.what)

    def _get(self, key: str, kind: type, what: str, default: Any) -> Any:
        if key not in self.value:
            if default is None:
                self.at.refuse(f"the key {key!r} is missing")
            return default
        value = self.value[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.line(key).refuse(f"{key} is {_shown(value)}", wanted=what)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._get(key, str, "a string", default))

    def flag(self, key: str, default: bool | None = None) -> bool:
        return bool(self._get(key, bool, "true or false", default))

    def number(self, key: str, default: int | None = None, *, most: int = MOST_CHUNKS) -> int:
        value = int(self._get(key, int, "a whole number", default))
        if not 0 <= value <= most:
            self.line(key).refuse(f"{key} is {value}", wanted=f"0 to {most}")
        return value

    def numbers(self, key: str) -> list[int]:
        values = self._get(key, list, "a list of whole numbers", [])
        if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
            self.line(key).refuse(f"{key} is {_shown(values)}", wanted="a list of whole numbers")
        return list(values)

    def nodes(self, key: str, kind: str, what: str, *, need: bool = False) -> list[_Node]:
        values = self._get(key, list, "a list of objects", None if need else [])
        out = []
        for i, value in enumerate(values):
            if not isinstance(value, Object):
                self.line(key).refuse(f"{key}[{i}] is {_shown(value)}", wanted="an object")
            out.append(_Node(value, kind, self.at.at(value.line, what.format(i)), self.notes))
        return out

    def node(self, key: str, kind: str) -> _Node:
        value = self._get(key, Object, "an object", None)
        return _Node(value, kind, self.at.at(value.line, self.at.what), self.notes)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:40] + "…"


def read_plan(data: bytes, file: str, notes: Notes) -> Plan:
    """The plan that a JSON file holds.

    Raises UsageError naming file, line and key for whatever does not fit; what is assumed is noted.
    """
    value = parse(data, file)
    top = _Node(value, "plan", Place(file, value.line, "plan"), notes)
    for key, default in DEFAULTS.items():
        if key not in value:
            notes.add(top.at, f"key {key!r} is missing: taken as {default}")
    coll, protocol = top.text("collective"), top.text("protocol")
    if coll not in COLLECTIVES:
        top.line("collective").unknown("collective", coll, COLLECTIVES)
    if protocol not in PROTOCOLS:
        top.line("protocol").unknown("protocol", protocol, PROTOCOLS)
    top.flag("reuse_resources", False)
    top.flag("use_double_scratch_buffer", False)
    window = (
        top.number("min_message_size", 0, most=2**64 - 1),
        top.number("max_message_size", 2**64 - 1, most=2**64 - 1),
    )
    gpus = top.nodes("gpus", "gpu", "gpu {}", need=True)
    if not 1 <= len(gpus) <= MOST_RANKS:
        top.line("gpus").refuse(f"{len(gpus)} gpus", wanted=f"1 to {MOST_RANKS}")
    for i, g in enumerate(gpus):
        if g.number("id", most=MOST_RANKS) != i:
            g.line("id").refuse(f"id {g.number('id', most=MOST_RANKS)}", wanted=f"{i}, its place in the list")
    names = ("input_chunks", "output_chunks", "scratch_chunks")
    sizes = [tuple(g.number(name) for name in names) for g in gpus]
    return Plan(
        name=top.text("name"),
        coll=coll,
        protocol=protocol,
        in_place=top.flag("inplace"),
        window=window,
        gpus=tuple(_gpu(g, rank, sizes) for rank, g in enumerate(gpus)),
        place=top.at,
    )


class _Ends(NamedTuple):
    """What the operations of a gpu can name.

    channels: of each (kind, buffers) its ends in order. groups: of each switch its buffer and ranks.
    remote: the remote buffers, as (rank, buffer).
    """

    channels: dict[tuple[str, str, str], list[Channel]]
    groups: list[tuple[int, tuple[int, ...]]]
    remote: list[tuple[int, int]]


def _gpu(g: _Node, rank: int, sizes: list[tuple[int, ...]]) -> PlanGpu:
    ends = _ends(g, rank, len(sizes))
    semaphores = [s.number("init_value", 0) for s in g.nodes("semaphores", "semaphore", f"gpu {rank} semaphore {{}}")]
    blocks, channels = [], []
    for i, t in enumerate(g.nodes("threadblocks", "threadblock", f"gpu {rank} tb {{}}", need=True)):
        if t.number("id") != i:
            t.line("id").refuse(f"id {t.number('id')}", wanted=f"{i}, its place in the list")
        block = _Block(t, rank, i, ends, sizes, len(semaphores))
        blocks.append(
            tuple(op for o in t.nodes("ops", "op", f"gpu {rank} tb {i} op {{}}", need=True) for op in block.ops(o))
        )
        channels.append(max(map(len, block.channels.values()), default=0))
    return PlanGpu(sizes[rank], tuple(blocks), tuple(semaphores), tuple(channels))  # type: ignore[arg-type]


def _kind(node: _Node, key: str) -> str:
    word = node.text(key, "none")
    if word in OLD_CHANNEL_TYPES:
        node.notes.add(node.line(key), f"channel type {word!r} is read as {OLD_CHANNEL_TYPES[word]!r}, its newer name")
        word = OLD_CHANNEL_TYPES[word]
    if word not in CHANNEL_TYPES:
        node.line(key).unknown("channel type", word, CHANNEL_TYPES)
    return word


def _buffer(node: _Node, key: str) -> int:
    word = node.text(key)
    if len(word) != 1 or word not in BUFFERS:
        node.line(key).unknown("buffer", word, BUFFERS)
    return BUFFERS.index(word)


def _ends(g: _Node, rank: int, n: int) -> _Ends:
    out = _Ends({}, [], [])
    for c in g.nodes("channels", "channel", f"gpu {rank} channel {{}}"):
        kind = _kind(c, "channel_type")
        if kind == "switch":
            for group in c.nodes("rank_groups", "rank_group", c.at.what + " group {}"):
                ranks = tuple(group.numbers("ranks"))
                if not len(set(ranks)) == len(ranks) == group.number("size", len(ranks)) > 0 or max(ranks) >= n:
                    group.at.refuse(f"ranks {list(ranks)}", wanted=f"`size` ranks of 0..{n - 1}, each once")
                out.groups.append((_buffer(c, "buffer_type"), ranks))
            continue
        key = kind, c.text("srcbuff", ""), c.text("dstbuff", "")
        mine = out.channels.setdefault(key, [])
        for peer in c.numbers("connected_to"):
            if peer >= n or peer == rank:
                c.line("connected_to").refuse(f"connected to rank {peer}", wanted=f"another rank of 0..{n - 1}")
            nth = sum(end.peer == peer for end in mine)
            mine.append(Channel(rank, peer, " ".join(filter(None, key)), nth))
    for r in g.nodes("remote_buffers", "remote_buffer", f"gpu {rank} remote buffer {{}}"):
        peer = r.number("rank", most=MOST_RANKS)
        if peer >= n:
            r.line("rank").refuse(f"rank {peer}", wanted=f"0..{n - 1}")
        out.remote.append((peer, _buffer(r, "type")))
    return out


class _Block:
    """A threadblock being read: what its operations call channel 0, 1, … and buffer 0, 1, …"""

    def __init__(
        self, t: _Node, rank: int, index: int, ends: _Ends, sizes: list[tuple[int, ...]], semaphores: int
    ) -> None:
        self.rank, self.index, self.sizes, self.semaphores = rank, index, sizes, semaphores
        self.channels: dict[tuple[str, str, str], list[Channel]] = {}
        self.groups: list[tuple[int, tuple[int, ...]]] = []
        self.remote: dict[str, list[tuple[int, int]]] = {}
        self.number = 0
        for c in t.nodes("channels", "block_channel", t.at.what + " channel {}"):
            kind = _kind(c, "channel_type")
            key = kind, c.text("src", ""), c.text("dst", "")
            known: list[Any] = ends.groups if kind == "switch" else ends.channels.get(key, [])
            target: list[Any] = self.groups if kind == "switch" else self.channels.setdefault(key, [])
            for i in c.numbers("channel_ids"):
                target.append(
                    _pick(c, "channel_ids", known, i, f"{' '.join(filter(None, key))} channels of gpu {rank}")
                )
        for r in t.nodes("remote_buffer_refs", "reference", t.at.what + " remote buffer ref {}"):
            kind = _kind(r, "access_channel_type")
            self.remote.setdefault(kind, [])
            for i in r.numbers("remote_buffer_ids"):
                self.remote[kind].append(_pick(r, "remote_buffer_ids", ends.remote, i, f"remote buffers of gpu {rank}"))

    def ops(self, o: _Node) -> list[Op]:
        """The operations that an object stands for: one, or those inside a pipeline."""
        name = o.text("name")
        if name in OLD_OPS:
            o.notes.add(o.line("name"), f"operation {name!r} is read as {OLD_OPS[name]!r}, its newer name")
            name = OLD_OPS[name]
        if name not in OPS:
            o.line("name").unknown("operation", name, OPS)
        if name == "pipeline":
            context = o.node("iter_context", "iter_context")
            context.number("unit_size", most=2**32 - 1)
            context.number("num_chunks", 1)
            o.notes.add(o.at, "a pipeline is taken as one round of its operations")
            return [op for inner in o.nodes("ops", "op", o.at.what + "." + "{}", need=True) for op in self.ops(inner)]
        if "ops" in o.value:
            o.line("ops").refuse(f"operation {name!r} with operations inside", wanted="a pipeline")
        if "tbg_info" in o.value:
            o.notes.add(o.at, "tbg_info: threadblocks that share an operation are taken to do all of it each")
            o.node("tbg_info", "tbg_info")
        old = any(k in o.value for k in ("cnt", "o_cids", "i_cids", "srcs", "deps"))
        srcs, dsts, channels = self._old(o, name) if old else self._new(o, name)
        if name == "cpkt" and all(x.buffer != Buffer.SCRATCH for x in dsts):
            o.notes.add(o.line("name"), "operation 'cpkt' from packets is read as 'upkt', its newer name")
            name = "upkt"
        semaphores = o.numbers("semaphore_ids")
        for s in semaphores:
            if s >= self.semaphores:
                o.line("semaphore_ids").refuse(
                    f"semaphore {s}", wanted=f"one of the {self.semaphores} of gpu {self.rank}"
                )
        depends = tuple(
            (d.number("tb"), d.number("step")) for d in o.nodes("deps", "old_dependency", o.at.what + " dependency {}")
        )
        barrier = o.number("barrier_id", 0) if name == "barrier" else -1
        round = o.number("round", most=1 << 24) if "round" in o.value else -1
        swapped = o.text("order", "") == "pop"
        op = Op(
            name, tuple(srcs), tuple(dsts), tuple(channels), tuple(semaphores), barrier, depends, o.at, round, swapped
        )
        self._check(op, o)
        return [op]

    def _new(self, o: _Node, name: str) -> tuple[list[Operand], list[Operand], list[Channel]]:
        kind = _kind(o, "channel_type")
        sides = []
        for side in ("src_buff", "dst_buff"):
            sides.append([self._operand(x, kind) for x in o.nodes(side, "operand", o.at.what + f" {side}[{{}}]")])
        channels = []
        if OPS[name].signals or OPS[name].waits:
            mine = self.channels.get((kind, "", ""), [])
            ids = o.numbers("channel_ids")
            channels = [_pick(o, "channel_ids", mine, i, f"{kind} channels of the threadblock") for i in ids]
            if not channels:
                o.at.refuse(f"{name} on no channel", wanted="channel_ids")
        return sides[0], sides[1], channels

    def _operand(self, x: _Node, kind: str) -> Operand:
        index, size = x.number("index"), x.number("size", 1)
        if "switch_channel_id" in x.value:
            buffer, ranks = _pick(x, "switch_channel_id", self.groups, x.number("switch_channel_id"), "switch channels")
        elif "buffer_id" in x.value:
            peer, buffer = _pick(
                x, "buffer_id", self.remote.get(kind, []), x.number("buffer_id"), f"{kind} remote buffers"
            )
            ranks = (peer,)
        else:
            buffer, ranks = _buffer(x, "type"), (self.rank,)
        return Operand(ranks, buffer, index, size)

    def _old(self, o: _Node, name: str) -> tuple[list[Operand], list[Operand], list[Channel]]:
        """The operands of an operation in the form of 2024: `srcbuff`, `srcs`, `o_cids` and so on."""
        count, kind = o.number("cnt", 1), _kind(o, "channel_type")
        srcs: list[Operand] = []
        dsts: list[Operand] = []
        used = []
        for side, many, out in (("src", "srcs", srcs), ("dst", "dsts", dsts)):
            if f"{side}buff" in o.value:
                out.append(Operand((self.rank,), _buffer(o, f"{side}buff"), o.number(f"{side}off"), count))
            for x in o.nodes(many, "old_operand", o.at.what + f" {many}[{{}}]"):
                out.append(Operand((self.rank,), _buffer(x, "buff"), x.number("off"), count))
        for way, out in (("o", dsts), ("i", srcs)):
            if f"{way}_cids" not in o.value:
                continue
            buffers = o.node(f"{way}_buff", "old_buffers")
            key = kind, buffers.text("src"), buffers.text("dst")
            for use in o.nodes(f"{way}_cids", "old_channel_use", o.at.what + f" {way}_cids[{{}}]"):
                end = _pick(
                    use,
                    "id",
                    self.channels.get(key, []),
                    use.number("id"),
                    f"{' '.join(key)} channels of the threadblock",
                )
                used.append(end)
                if OPS[name].moves:
                    out.append(Operand((end.peer,), _buffer(buffers, "dst"), use.number("off", 0), count))
        return srcs, dsts, used if OPS[name].signals or OPS[name].waits else []

    def _check(self, op: Op, o: _Node) -> None:
        if op.type.moves and not (op.srcs and op.dsts):
            op.place.refuse(
                f"{op.name} with {len(op.srcs)} sources and {len(op.dsts)} destinations", wanted="some of both"
            )
        for x in op.srcs + op.dsts:
            for r in x.ranks:
                size = self.sizes[r][x.buffer]
                # in place, a plan may use the other buffer's name for the same memory
                if x.size < 1 or x.first + x.size > max(size, *(self.sizes[r][:2] if x.buffer < 2 else (0,))):
                    op.place.refuse(
                        f"{op.name} names buffer {BUFFERS[x.buffer]} of rank {r}, range {x.first}.."
                        f"{x.first + x.size - 1} of {size}",
                        wanted=f"chunks of 0..{size - 1}" if size else "another buffer: that one is empty",
                    )
        if op.type.reduces and len({x.size for x in op.srcs + op.dsts}) > 1:
            op.place.refuse(f"{op.name} of operands of different sizes", wanted="one size")
        if op.type.copies and len(op.srcs) not in (1, len(op.dsts)):
            op.place.refuse(
                f"{op.name} of {len(op.srcs)} sources to {len(op.dsts)} destinations", wanted="as many, or one source"
            )


def _pick(node: _Node, key: str, known: list[Any], i: int, what: str) -> Any:
    """The i-th of what is known, or a refusal."""
    if i >= len(known):
        node.line(key).refuse(
            f"{key} names number {i} of {len(known)} {what}", wanted=f"0..{len(known) - 1}" if known else "none"
        )
    return known[i]
