"""A lane made for one Program: straight code, in which every Move is its own, with nothing to decode.

The source is generated from the tables that the interpreter in `lane` reads, and compiled by the same primitives.
Constants of it are what `layout` calls counts, values, lags, totals and ordinals; addresses, offsets, lengths and the
places of counters are still words of the same tables, at constant places, read before the wait that they stand behind.
Lanes that differ only in those words share their code, so a ring has one lane whatever its number of ranks.

Meant for small calls: 16 bytes a thread at a time where operands lie alike, else element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from algocc.errors import UsageError
from algocc.kernels import flagged, multicast, wide
from algocc.kernels import layout as at
from algocc.kernels.lane import build_wait
from algocc.kernels.operators import ELEMENTS

MOST_MOVES = 64
"""Parts of Moves that are worth straight code, all kinds of lanes together: more do not stay in the instruction cache."""

MOST_OPERANDS = 16
"""Of one Move: their addresses are in registers."""


@dataclass(frozen=True)
class MoveForm:
    """A Move without what differs from lane to lane.

    parts: how many.
    advances, firsts: flags of each operand, destinations first, as in `layout`.
    kinds: what each operand is, as in `layout`; empty if all are plain memory.
    waits: (value, lag, total) each.
    signals: (ordinal, total) each.
    """

    destinations: int
    sources: int
    parts: int
    final: int
    advances: tuple[int, ...]
    firsts: tuple[int, ...]
    waits: tuple[tuple[int, int, int], ...]
    signals: tuple[tuple[int, int], ...]
    kinds: tuple[int, ...] = ()

    @property
    def lined(self) -> bool:
        """Whether operands are lines with flags."""
        return any(kind in at.LINED for kind in self.kinds)

    @property
    def reads_flags(self) -> bool:
        """Whether every thread waits for what it reads."""
        return any(kind in at.LINED for kind in self.kinds[self.destinations :])


Form = tuple[tuple[MoveForm, ...], ...]
"""The kinds of lanes of a Program, each the Moves of such a lane."""


def form(starts: NDArray[Any], moves: NDArray[Any], operands: NDArray[Any], waits: NDArray[Any], signals: NDArray[Any],
         *, name: str, operand_kinds: NDArray[Any] | None = None) -> tuple[Form, list[int]]:  # fmt: skip
    """The kinds of lanes of a Program, from its tables, and the kind of each lane.

    operand_kinds: what each operand is, as in `layout`; all are plain memory if not given.

    Raises UsageError if the Program `name` is too large for straight code.
    """
    kinds: dict[tuple[MoveForm, ...], int] = {}
    of = []
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        lane = tuple(_move(move, operands, waits, signals, operand_kinds) for move in moves[begin:end].tolist())
        of.append(kinds.setdefault(lane, len(kinds)))
    total = sum(max(1, move.parts) for lane in kinds for move in lane)
    widest = max((move.destinations + move.sources for lane in kinds for move in lane), default=0)
    for what, found, most in (("Moves", total, MOST_MOVES), ("operands in a Move", widest, MOST_OPERANDS)):
        if found > most:
            raise UsageError(
                f"program {name}: {found} {what} that differ, a generated kernel has at most {most}; use form='interpreted'"
            )
    return tuple(kinds), of


def _move(
    move: list[int], operands: NDArray[Any], waits: NDArray[Any], signals: NDArray[Any], operand_kinds: NDArray[Any] | None
) -> MoveForm:
    def records(table: NDArray[Any], start: int, count: int, words: int) -> NDArray[Any]:
        return table[start // words : start // words + count]

    width = move[at.DESTINATIONS] + move[at.SOURCES]
    mine = records(operands, move[at.OPERAND_START], width, at.OPERAND_WORDS).tolist()
    waiting = records(waits, move[at.WAIT_START], move[at.WAIT_COUNT], at.WAIT_WORDS).tolist()
    signalling = records(signals, move[at.SIGNAL_START], move[at.SIGNAL_COUNT], at.SIGNAL_WORDS).tolist()
    kinds = () if operand_kinds is None else tuple(records(operand_kinds, move[at.OPERAND_START], width, at.OPERAND_WORDS).tolist())
    return MoveForm(
        move[at.DESTINATIONS], move[at.SOURCES], move[at.PARTS_OF], move[at.FINAL],
        tuple(o[at.ADVANCES] for o in mine),
        tuple(o[at.IS_FIRST] for o in mine[move[at.DESTINATIONS] :]) if move[at.SOURCES] > 1 else (),
        tuple((w[at.VALUE], w[at.LAG], w[at.TOTAL]) for w in waiting),
        tuple((s[at.ORDINAL], s[at.SIGNAL_TOTAL]) for s in signalling), kinds if any(kinds) else (),
    )  # fmt: skip


def build(P: ModuleType, form: Form, *, op: str | None, dtype: str | None, size: int) -> Callable[..., Any]:
    """The lane for the target whose primitives are P: arguments and result as of `lane.build`.

    op, dtype: of the reduction, None if nothing is reduced.
    size: bytes of an element.
    """
    names: dict[str, Any] = {"P": P, "np": np, "wait_for": build_wait(P)}
    datapaths: dict[tuple[Any, ...], str] = {}
    for move in (move for lane in form for move in lane if move.parts):
        if _shape(move) not in datapaths:
            datapaths[_shape(move)] = f"data_{len(datapaths)}"
            make = flagged.build if move.lined else _build_multicast if move.kinds else _build_data
            names[f"data_{len(datapaths) - 1}"] = make(P, move, op=op, dtype=dtype, size=size)
    text = source(form, size=size, datapath=lambda move: datapaths[_shape(move)])
    exec(compile(text, "<a generated lane>", "exec"), names)
    made: Callable[..., Any] = names["lane"]
    return made


def _shape(move: MoveForm) -> tuple[Any, ...]:
    return move.destinations, move.sources, move.firsts, move.final, move.kinds


def source(form: Form, *, size: int, datapath: Callable[[MoveForm], str]) -> str:
    """The text of the lane; `datapath` names the function that moves the data of a Move."""
    text = [
        "def lane(block, index):",
        f"    local = P.word(block, {at.LOCAL}) + index * P.word(block, {at.LOCAL_SIZE})",
        f"    bases, counters, ranks = P.word(block, {at.BASES}), P.word(block, {at.COUNTERS}), P.word(block, {at.RANKS})",
        f"    tile, tiles, first = P.word(block, {at.TILE}), P.word(block, {at.ITERATIONS}), P.word(block, {at.FIRST})",
        f"    begin = P.word(P.word(block, {at.LANE_START}), index)",
        f"    move = P.word(block, {at.MOVES}) + {8 * at.MOVE_WORDS} * begin",
        f"    parts = P.word(block, {at.PARTS}) + 8 * P.word(move, {at.PART_START})",
        f"    operands = P.word(block, {at.OPERANDS}) + 8 * P.word(move, {at.OPERAND_START})",
        f"    waits = P.word(block, {at.WAITS}) + 8 * P.word(move, {at.WAIT_START})",
        f"    signals = P.word(block, {at.SIGNALS}) + 8 * P.word(move, {at.SIGNAL_START})",
        f"    kind, second = P.word(block, {at.KIND}), P.word(block, {at.SECOND})",
    ]
    for kind, lane in enumerate(form):
        text += [
            f"    if kind == {kind}:",
            "        t = 0",
            "        while t < tiles:",
            "            g, done = np.uint64(first) + np.uint64(t), t * tile",
            "            turn = np.int64(g & np.uint64(1)) * second",
            *("            " + line for line in _lane(lane, size, datapath)),
            "            t += 1",
        ]
    return "\n".join([*text, f"    return {at.FINE}", ""])


def _lane(lane: tuple[MoveForm, ...], size: int, datapath: Callable[[MoveForm], str]) -> list[str]:
    text = []
    part = operand = wait = signal = 0  # words before those of this Move
    for m, move in enumerate(lane):
        width = move.destinations + move.sources
        for p in range(move.parts):
            text.append(f"n{p} = min(tile, P.word(parts, {part}) - done)")
            for k in range(width):
                place = f"P.word(parts, {part + 1 + k})" + (" + done" if move.advances[k] else "")
                base = f"P.word(bases, P.word(operands, {operand + k * at.OPERAND_WORDS + at.BASE}))"
                lines = move.kinds and move.kinds[k] in at.LINED
                text.append(f"a{p}_{k} = {base} + ({place}) * {at.LL_LINE if lines else size}" + (" + turn" if lines else ""))
            part += 1 + width
        operand += width * at.OPERAND_WORDS
        if move.waits:
            text += ["stuck = 0", "if P.is_leader():"]
            for w, (value, lag, total) in enumerate(move.waits):
                want = f"(g - np.uint64({lag})) * np.uint64({total}) + np.uint64({value})"
                counter = f"counters + {at.LINE} * P.word(waits, {wait + at.COUNTER})"
                wait_for = f"stuck = wait_for(block, local, {counter}, {want}, begin + {m}, {w}, t)"
                text.append(f"    {'if stuck == 0: ' if w else ''}{wait_for}")
                wait += at.WAIT_WORDS
            text += ["stuck = P.join(stuck)", "if stuck != 0: return stuck"]
        if move.lined:
            text.append("stuck = 0")
        for p in range(move.parts):
            addresses = ", ".join(f"a{p}_{k}" for k in range(width))
            if move.lined:
                call = f"{datapath(move)}(({addresses}), n{p}, ranks, g, block, local, begin + {m}, {len(move.waits)}, t)"
                text.append(f"if stuck == 0: stuck = {call}")
            else:
                text.append(f"{datapath(move)}(({addresses}), n{p}, ranks)")
        if move.reads_flags:
            text += [
                "stuck = P.join(stuck)", "if stuck != 0:",
                f"    if P.is_leader(): P.set_word(local, {at.STATUS}, stuck)", "    return stuck",
            ]  # fmt: skip
        elif move.parts:
            text.append("P.join(0)")
        if move.signals:
            text.append("if P.is_leader():")
            for ordinal, total in move.signals:
                counter = f"counters + {at.LINE} * P.word(signals, {signal + at.COUNTER})"
                text.append(f"    P.store_release({counter}, g * np.uint64({total}) + np.uint64({ordinal}))")
                signal += at.SIGNAL_WORDS
    return text


def _build_data(P: ModuleType, move: MoveForm, *, op: str | None, dtype: str | None, size: int) -> Callable[..., Any]:
    """What a Move does with its data: (addresses of destinations, then sources; elements; ranks) → None."""
    copies = move.sources == 1
    name = f"uint{8 * min(size, 8)}" if copies or dtype is None else dtype  # a copy moves words
    unit = min(size, 8) if copies else size
    per = size // unit  # words of an element
    each = wide.VECTOR // unit

    @register_jitable(forceinline=True)
    def load_one(address, where):
        return P.get(name, address, where)

    @register_jitable(forceinline=True)
    def store_one(address, where, value):
        P.put(name, address, where, value)

    @register_jitable(forceinline=True)
    def load_vector(address, where):
        return P.get_vector(name, each, address + where)

    @register_jitable(forceinline=True)
    def store_vector(address, where, value):
        P.put_vector(name, each, address + where, value)

    width = move.destinations + move.sources
    one = _body(move, op, dtype, [load_one] * width, [store_one] * width)
    vector = _body(move, op, dtype, [load_vector] * width, [store_vector] * width)
    sweep = _sweep(P, width, unit, one, vector)
    may_stay = copies and move.destinations == 1  # in place, a chunk may be where it should

    @register_jitable(forceinline=True)
    def data(addresses, elements, ranks):
        length = max(0, elements) * per
        if may_stay and addresses[0] == addresses[1]:
            length = 0
        sweep(addresses, length, ranks)

    made: Callable[..., Any] = data
    return made


def _sweep(P: ModuleType, operands: int, unit: int, one: Any, vector: Any) -> Callable[..., Any]:
    """The way of the threads over so many words of `unit` bytes: (addresses; words; ranks) → None.

    one: does the word of a number; vector: does the 16 bytes at an offset in bytes.
    """
    mixed = _mixed(operands)
    shift = unit.bit_length() - 1
    each = wide.VECTOR // unit

    @register_jitable(forceinline=True)
    def sweep(addresses, length, ranks):
        thread, threads = P.thread(), P.threads()
        start = addresses[0]
        head, body = 0, 0  # words before the vectors, and in them
        if mixed(addresses) & (wide.VECTOR - 1) == 0 and start & (unit - 1) == 0:
            head = min(length, (-start & (wide.VECTOR - 1)) >> shift)
            body = (length - head) & -each
            where, end = (head << shift) + wide.VECTOR * thread, (head + body) << shift
            while where < end:
                vector(addresses, where, ranks)
                where += wide.VECTOR * threads
        i = thread
        while i < length - body:
            one(addresses, i if i < head else i + body, ranks)
            i += threads

    made: Callable[..., Any] = sweep
    return made


def _build_multicast(P: ModuleType, move: MoveForm, *, op: str | None, dtype: str | None, size: int) -> Callable[..., Any]:
    """The same where some operands are everybody's same place, which is accessed in words of `multicast.WORD` bytes or more.

    Offsets and lengths are multiples of such words. The fences stand between these accesses and those of others by which
    the same memory has another address.
    """
    copies = dtype is None or (move.sources == 1 and move.kinds[-1] == at.PLAIN)
    name, unit = ("uint32", multicast.WORD) if copies else (str(dtype), size)
    word = max(multicast.WORD, unit)

    def body(access: int, step: int) -> Any:
        """Accesses of so many bytes, at offsets that count `step` bytes."""
        each = access // unit
        get_all, put_all = P.everywhere(op, name, each)

        @register_jitable(forceinline=True)
        def load(address, where):
            return P.get_vector(name, each, address + where * step)

        @register_jitable(forceinline=True)
        def store(address, where, value):
            P.put_vector(name, each, address + where * step, value)

        @register_jitable(forceinline=True)
        def load_all(address, where):
            return get_all(address + where * step)

        @register_jitable(forceinline=True)
        def store_all(address, where, value):
            put_all(address + where * step, value)

        loads = [load_all if kind == at.MULTICAST else load for kind in move.kinds]
        stores = [store_all if kind == at.MULTICAST else store for kind in move.kinds]
        return _body(move, op, dtype, loads, stores)

    sweep = _sweep(P, move.destinations + move.sources, word, body(word, word), body(wide.VECTOR, 1))

    @register_jitable(forceinline=True)
    def data(addresses, elements, ranks):
        P.alias_fence()
        sweep(addresses, max(0, elements) * size // word, ranks)
        P.alias_fence()

    made: Callable[..., Any] = data
    return made


def _mixed(operands: int) -> Callable[..., Any]:
    """Bits in which addresses differ from the first."""

    @register_jitable(forceinline=True)
    def none(addresses):
        return 0

    def more(so_far: Any, k: int) -> Any:
        @register_jitable(forceinline=True)
        def mixed(addresses):
            return so_far(addresses) | (addresses[k] ^ addresses[0])

        return mixed

    found = none
    for k in range(1, operands):
        found = more(found, k)
    made: Callable[..., Any] = found
    return made


def _body(move: MoveForm, op: str | None, dtype: str | None, loads: Sequence[Any], stores: Sequence[Any]) -> Callable[..., Any]:
    """What one thread does at one place: every source read once, folded from the left, every destination written.

    loads, stores: how each operand is.
    """
    reduces = op is not None and dtype is not None and move.sources > 1
    scales = reduces and op == "avg" and ELEMENTS[str(dtype)].kind in ("float", "complex")
    truncates = reduces and op == "avg" and not scales and move.final != 0

    def source(k: int) -> Any:
        place, divided = move.destinations + k, bool(reduces and move.firsts[k])
        load = loads[place]

        @register_jitable(forceinline=True)
        def take(addresses, where, ranks):
            x = load(addresses[place], where)
            if scales:
                x = wide.divide_each(x, ranks if divided else 1)
            return x

        return take

    def folded(before: Any, take: Any) -> Any:
        @register_jitable(forceinline=True)
        def fold(addresses, where, ranks):
            x = before(addresses, where, ranks)
            return wide.fold(op, x, take(addresses, where, ranks))

        return fold

    def stored(before: Any, d: int) -> Any:
        place, may_be_source = move.destinations, not reduces and move.destinations > 1
        store = stores[d]

        @register_jitable(forceinline=True)
        def put(addresses, where, value):
            before(addresses, where, value)
            if not may_be_source or addresses[d] != addresses[place]:
                store(addresses[d], where, value)

        return put

    @register_jitable(forceinline=True)
    def nothing(addresses, where, value):
        return None

    total, put = source(0), nothing
    for k in range(1, move.sources):
        total = folded(total, source(k))
    for d in range(move.destinations):
        put = stored(put, d)

    @register_jitable(forceinline=True)
    def body(addresses, where, ranks):
        x = total(addresses, where, ranks)
        if truncates:
            x = wide.truncate_each(x, ranks)
        put(addresses, where, x)

    made: Callable[..., Any] = body
    return made
