"""An MSCCL XML file as values: algo > gpu > threadblock > step, each checked where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from algocc.errors import near
from algocc.exchange.msccl_types import (
    ATTRIBUTES,
    CHILD,
    COLLECTIVES,
    MOST_CHANNEL,
    PROTOCOLS,
    QUIET,
    STEP_TYPES,
    UNREAD,
    StepType,
)
from algocc.place import Notes, Place
from algocc.xml_tree import Element, parse

BUFFERS = "ios"
"""Letters of the buffers, in the order of `Buffer`."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a threadblock; `src` and `dst` are (buffer, chunk), None where its type does not use them.

    swapped: the operands of its reduction are the other way round, the message first.
    """

    kind: str
    src: tuple[int, int] | None
    dst: tuple[int, int] | None
    count: int
    depends: tuple[int, int] | None
    announces: bool
    round: int
    place: Place
    swapped: bool = False

    @property
    def type(self) -> StepType:
        """What its kind does."""
        return STEP_TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Block:
    """A threadblock: its steps, the ranks it sends to and receives from (-1 for none), its channel."""

    send: int
    recv: int
    channel: int
    steps: tuple[Step, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Gpu:
    """A rank: chunks of its input, output and scratch, and its threadblocks."""

    chunks: tuple[int, int, int]
    blocks: tuple[Block, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Algo:
    """A whole file.

    coll: as the file spells it. loop: chunks that the vector is cut into (`nchunksperloop`).
    modes: the modes its header declares, True for in place.
    window: sizes in bytes that it is meant for; 0 as the upper one is no limit.
    """

    name: str
    protocol: str
    channels: int
    loop: int
    coll: str
    modes: tuple[bool, ...]
    window: tuple[int, int]
    gpus: tuple[Gpu, ...]
    place: Place


def read_xml(data: bytes, file: str, notes: Notes) -> Algo:
    """The algorithm that an XML file holds.

    Raises UsageError naming file, line and element for whatever does not fit; what is assumed is noted.
    """
    root = parse(data, file)
    at = Place(file, root.line, f"<{root.tag}>")
    if root.tag != "algo":
        at.refuse(f"the root is <{root.tag}>", wanted="<algo>, as MSCCL writes it")
    head = _Reader(root, at.at(root.line, "algo"), notes)
    n = head.number("ngpus")
    protocol, coll = head.text("proto"), head.text("coll")
    if protocol not in PROTOCOLS:
        head.at.unknown("proto", protocol, PROTOCOLS)
    if coll not in COLLECTIVES:
        head.at.unknown("coll", coll, COLLECTIVES)
    in_place = head.number("inplace") == 1
    out = head.text("outofplace")
    if not out:
        notes.add(head.at, f"outofplace is missing: taken as {int(not in_place)}, the opposite of inplace")
    modes = ((True,) if in_place else ()) + ((False,) if (head.number("outofplace") if out else not in_place) else ())
    if not modes:
        head.at.refuse('inplace="0" and outofplace="0": it is for no mode', wanted="one of them to be 1")
    channels = head.number("nchannels")
    window = head.number("minBytes"), head.number("maxBytes")
    if window[1] and window[1] < window[0]:
        head.at.refuse(f"maxBytes {window[1]} is less than minBytes {window[0]}")
    found = len(root.children)
    if found != n:
        head.at.refuse(
            f"ngpus={n}, but there are {found} <gpu> elements", wanted=f"ngpus={found} or {n} <gpu> elements"
        )
    gpus = [_Reader(e, at.at(e.line, "gpu"), notes) for e in root.children]
    order = _dense(gpus, "id", "gpu")
    sizes = [tuple(g.number(f"{letter}_chunks") for letter in BUFFERS) for g in order]
    algo = Algo(
        name=head.text("name"),
        protocol=protocol,
        channels=channels,
        loop=head.number("nchunksperloop"),
        coll=coll,
        modes=modes,
        window=window,
        gpus=tuple(_gpu(g, rank, n, sizes[rank], notes) for rank, g in enumerate(order)),
        place=head.at,
    )
    used = {b.channel for g in algo.gpus for b in g.blocks if b.send >= 0 or b.recv >= 0}
    if used and max(used) >= channels:
        notes.add(head.at, f"nchannels={channels}, but channel {max(used)} is used: nchannels is not relied on")
    return algo


class _Reader:
    """The attributes of an element, read against the table; every element is checked as a whole first."""

    def __init__(self, element: Element, at: Place, notes: Notes) -> None:
        self.element, self.at, self.notes = element, at, notes
        tag = at.what.split()[-1] if at.what else element.tag
        if element.tag != tag:
            at.refuse(f"<{element.tag}>", wanted=f"<{tag}>", mend=near(element.tag, [tag]).lstrip("; "))
        self.known = ATTRIBUTES[tag]
        missing = [k for k in self.known if k not in element.attributes]
        for name in element.attributes:
            if name in self.known:
                continue
            hint = near(name, missing)
            if hint and name not in UNREAD[tag]:
                at.refuse(f"unknown attribute {name!r}{hint}")
            notes.add(at, f"attribute {name!r} of <{tag}> is not read")
        for name in missing:
            default = self.known[name].default
            if default is None:
                at.refuse(f"the attribute {name!r} is missing", mend=f"known: {', '.join(self.known)}")
            if default and name not in QUIET:
                notes.add(at, f"attribute {name!r} of <{tag}> is missing: taken as {default}")
        children = CHILD[tag]
        for child in element.children:
            if child.tag != children:
                at.at(child.line, f"<{child.tag}> inside <{tag}>").refuse(
                    "an unknown element", wanted=f"<{children}> only" if children else "none inside a step"
                )

    def text(self, name: str) -> str:
        """The attribute, or its default."""
        return self.element.attributes.get(name, self.known[name].default or "")

    def number(self, name: str) -> int:
        """The attribute as a number within its limits."""
        text, a = self.text(name), self.known[name]
        assert a.least is not None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and a.least <= int(text) <= a.most):
            self.at.refuse(f"{name}={text!r}", wanted=f"a whole number of {a.least} to {a.most}")
        return int(text)


def _dense(readers: list[_Reader], name: str, what: str) -> list[_Reader]:
    """Elements in the order of their ids, which must be 0, 1, 2, …, each once."""
    by_id: dict[int, _Reader] = {}
    for r in readers:
        i = r.number(name)
        if i in by_id:
            r.at.refuse(f"a second {what} with {name}={i}, after that of line {by_id[i].at.line}")
        if i >= len(readers):
            r.at.refuse(f"{name}={i} among {len(readers)} {what} elements", wanted=f"0..{len(readers) - 1}, each once")
        by_id[i] = r
    return [by_id[i] for i in range(len(readers))]


def _gpu(g: _Reader, rank: int, n: int, sizes: tuple[int, ...], notes: Notes) -> Gpu:
    at = g.at.at(g.element.line, f"gpu {rank}")
    blocks = _dense([_Reader(e, at.at(e.line, f"gpu {rank} tb"), notes) for e in g.element.children], "id", "tb")
    lengths = [len(b.element.children) for b in blocks]
    return Gpu(
        (sizes[0], sizes[1], sizes[2]),
        tuple(_block(b, rank, i, n, sizes, lengths, notes) for i, b in enumerate(blocks)),
        at,
    )


def _block(
    b: _Reader, rank: int, index: int, n: int, sizes: tuple[int, ...], lengths: list[int], notes: Notes
) -> Block:
    at = b.at.at(b.element.line, f"gpu {rank} tb {index}")
    peers = []
    for side in ("send", "recv"):
        peer = b.number(side)
        if peer == rank:
            at.refuse(f"{side}={peer} is the rank itself", wanted="another rank, or -1")
        if peer >= n:
            at.refuse(f"{side}={peer}", wanted=f"a rank of 0..{n - 1}, or -1")
        peers.append(peer)
    channel = b.number("chan")
    if max(peers) >= 0 and not 0 <= channel <= MOST_CHANNEL:
        at.refuse(f"chan={channel}", wanted=f"0..{MOST_CHANNEL} for a tb that sends or receives")
    steps = []
    for i, e in enumerate(b.element.children):
        r = _Reader(e, at.at(e.line, f"gpu {rank} tb {index} step"), notes)
        if r.number("s") != i:
            r.at.refuse(f"s={r.number('s')}", wanted=f"{i}: the steps of a tb are numbered from 0 in order")
        steps.append(_step(r, f"gpu {rank} tb {index} step {i}", peers, sizes, lengths))
    return Block(peers[0], peers[1], channel, tuple(steps), at)


def _step(r: _Reader, what: str, peers: list[int], sizes: tuple[int, ...], lengths: list[int]) -> Step:
    at = r.at.at(r.element.line, what)
    r.at = at
    kind = r.text("type")
    if kind not in STEP_TYPES:
        at.unknown("step type", kind, STEP_TYPES)
    t = STEP_TYPES[kind]
    for uses, peer, side in ((t.pushes, peers[0], "send"), (t.pops, peers[1], "recv")):
        if uses and peer < 0:
            at.refuse(f"type {kind!r} in a tb with {side}=-1", wanted=f"a {side} peer")
    if t.moves and not r.text("cnt"):
        at.refuse("the attribute 'cnt' is missing")
    count = r.number("cnt") if r.text("cnt") else 0
    if t.moves and count < 1:
        at.refuse(f"cnt={count}", wanted="1 or more")
    src = _operand(r, "src", count, sizes, at) if t.reads else None
    dst = _operand(r, "dst", count, sizes, at) if t.writes else None
    block, step = r.number("depid"), r.number("deps")
    if (block < 0) != (step < 0):
        at.refuse(f"depid={block} with deps={step}", wanted="both, or both -1")
    if block >= len(lengths):
        at.refuse(f"depid={block}", wanted=f"a tb of 0..{len(lengths) - 1} of the same gpu, or -1")
    if block >= 0 and step >= lengths[block]:
        at.refuse(f"depid={block} deps={step}", wanted=f"a step of 0..{lengths[block] - 1} of that tb")
    depends = (block, step) if block >= 0 else None
    swapped = r.text("order") == "pop"
    return Step(kind, src, dst, count, depends, r.number("hasdep") == 1, r.number("round"), at, swapped)


def _operand(r: _Reader, side: str, count: int, sizes: tuple[int, ...], at: Place) -> tuple[int, int]:
    letter = r.text(f"{side}buf")
    for name in (f"{side}buf", f"{side}off"):
        if name not in r.element.attributes:
            at.refuse(f"the attribute {name!r} is missing, which type {r.text('type')!r} needs")
    if letter not in BUFFERS or len(letter) != 1:
        at.unknown(f"{side}buf", letter, BUFFERS)
    buffer, first = BUFFERS.index(letter), r.number(f"{side}off")
    if first < 0 or first + count > sizes[buffer]:
        last = first + count - 1
        at.refuse(
            f"{side} is buffer {letter}, range {first}..{last} of {sizes[buffer]}",
            wanted=f"chunks of 0..{sizes[buffer] - 1}" if sizes[buffer] else "another buffer: that one is empty",
            mend=f"mend {side}off, cnt, or {letter}_chunks of the gpu",
        )
    return buffer, first
