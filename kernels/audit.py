"""What must hold of a compiled kernel, read from its PTX and machine code, with nothing run.

The rules of memory: data stored → barrier → one thread releases; one thread acquires → barrier → data touched; every
spin can be told to stop and has a deadline; data are never read through the cache that is not coherent; a flag and the data
beside it are stored, and loaded, by one instruction. And those of
speed: nothing spilled, no calls, 16-byte accesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from algocc.kernels import layout as at
from algocc.kernels import ptx
from algocc.kernels.cuda import most_threads
from algocc.kernels.grid import Key

REGISTERS = 65536
"""Of a processor; a block of as many threads as a kernel is compiled for must find its own there."""

LINE_ACCESS = {at.LL: r"relaxed\.sys\.global\.v2\.u64 .*// line$", at.LL128: r"relaxed\.sys\.global\.u64 .*// line$"}
"""How a flag and what is beside it are loaded and stored: words of 64 bits, each whole, that nothing moves or leaves out."""

ACQUIRES = 3
"""Looks of a wait: at its counter, at the abort flag, at its counter again. It can also release, the abort flag."""


TAGS = ("word", "line", "abort")
"""Marks of instructions on words of tables, on lines with flags, and on the abort flag where every thread looks at it."""


@dataclass(frozen=True)
class Finding:
    """A rule that does not hold: which, and where."""

    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.found}"


@dataclass(frozen=True)
class Audit:
    """What was found in a kernel for one architecture.

    line_loads, line_stores: of lines with flags.
    machine: counts of instructions of the machine code by kind; empty where there is no nvdisasm.
    findings: the rules that do not hold.
    """

    key: Key
    architecture: str
    registers: int
    spilled: int
    stack: int
    vector_loads: int
    vector_stores: int
    acquires: int
    releases: int
    line_loads: int
    line_stores: int
    barriers: int
    machine: dict[str, int]
    findings: tuple[Finding, ...]


@dataclass
class _Block:
    """Instructions that run one after the other; `after` are the blocks that may follow, and the branch taken."""

    instructions: list[str] = field(default_factory=list)
    after: list[tuple[int, str | None]] = field(default_factory=list)


def audit(kernel: ptx.Assembled) -> Audit:
    """Look at a kernel.

    Raises UsageError as `ptx.assembled`.
    """
    text, log = kernel.ptx, kernel.log
    waits, signals = _waits_and_signals(kernel.key)
    found = list(order(text, waits=waits > 0))
    registers, spilled, stack = resources(log)
    lines = instructions(text)
    loads, stores = (_count(lines, rf"{way}\.global\.v(4\.[a-z]32|2\.[a-z]64)") for way in ("ld", "st"))
    most = REGISTERS // most_threads(kernel.key.op, kernel.key.dtype)
    needed_loads, needed_stores = _vectors(kernel.key)
    line_loads, line_stores, lines_found = _lines(kernel.key, lines)
    found += lines_found + _everywhere(kernel.key, lines)
    acquires, releases = _count(lines, r"ld\.acquire\.sys\."), _count(lines, r"st\.release\.sys\.")
    found += [
        *_expect("registers", registers <= most, f"{registers} of a thread, wanted {most} or fewer"),
        *_expect("spills", spilled == 0 and stack == 0, f"{spilled} bytes spilled, {stack} of stack, wanted none"),
        *_expect(
            "vectors", loads >= needed_loads and stores >= needed_stores,
            f"{loads} loads, {stores} stores of 16 bytes, wanted {needed_loads} and {needed_stores}",
        ),
        *_expect("acquires", acquires >= ACQUIRES * waits, f"{acquires} at system scope, wanted {ACQUIRES * waits}"),
        *_expect("releases", releases >= signals + waits, f"{releases} at system scope, wanted {signals + waits}"),
        *_arithmetic(lines),
    ]  # fmt: skip
    code = ptx.disassemble(kernel.cubin)
    machine = machine_counts(code) if code is not None else {}
    if machine:
        divides = kernel.key.op == "avg"  # an exact division calls a routine of its own for rare operands
        found += [
            *_expect("calls", machine["CALL"] == 0 or divides, f"{machine['CALL']} calls in machine code, wanted none"),
            *_expect("local memory", machine["local"] == 0, f"{machine['local']} accesses, wanted none"),
            *_expect(
                "machine vectors", machine["LDG.128"] >= needed_loads and machine["STG.128"] >= needed_stores,
                f"{machine['LDG.128']} LDG and {machine['STG.128']} STG of 128 bits, wanted {needed_loads} and {needed_stores}",
            ),
            *_expect(
                "system scope", machine["STRONG.SYS"] >= acquires + releases + line_loads + line_stores,
                f"{machine['STRONG.SYS']} accesses, wanted the {acquires + releases + line_loads + line_stores} of the PTX",
            ),
            *_expect("fences", machine["MEMBAR"] >= releases, f"{machine['MEMBAR']} at system scope, wanted {releases}"),
        ]  # fmt: skip
    return Audit(
        kernel.key, kernel.architecture, registers, spilled, stack, loads, stores, acquires, releases,
        line_loads, line_stores, _count(lines, r"(bar|barrier)\.(?!warp)"), machine, tuple(found),
    )  # fmt: skip


def _vectors(key: Key) -> tuple[int, int]:
    """Loads and stores of 16 bytes that a kernel has at least."""
    if key.form is not None:  # of each kind of Move those of its operands
        moves = {(m.destinations, m.sources) for lane in key.form for m in lane if m.parts and not m.kinds}
        return sum(s for _, s in moves), sum(d for d, _ in moves)
    least = 5 if key.op is None else 7  # four and one of a copy, and of a reduction its first source and another
    return least, least


def _lines(key: Key, lines: list[str]) -> tuple[int, int, list[Finding]]:
    """Loads and stores of lines with flags, and what is wrong with them: of each kind of Move, a source is loaded until it is
    there, in a loop of its own, and a destination is stored, each by one instruction a word of it."""
    loads, stores = (_count(lines, rf"{way}\..*// line$") for way in ("ld", "st"))
    words = max(1, key.size // at.PACKET)
    sources, targets = _of_kinds(key, at.LINED)
    protocol = max((kind for lane in key.form or () for m in lane for kind in m.kinds if kind in at.LINED), default=at.PLAIN)
    shape = LINE_ACCESS.get(protocol, "(?!)")
    odd = [line for line in lines if line.endswith("// line") and not re.match(rf"(ld|st)\.{shape}", line)]
    found = [Finding("a flag and the data beside it are one access", f"`{line}`") for line in odd[:3]]
    found += _expect(
        "lines", loads >= 2 * words * sources and stores >= words * targets,
        f"{loads} loads and {stores} stores of lines, wanted {2 * words * sources} and {words * targets}",
    )  # fmt: skip
    spins = line_spins(lines)
    found += _expect("lines are waited for", len(spins) >= sources, f"{len(spins)} loops that load a line, wanted {sources}")
    return loads, stores, found


def _of_kinds(key: Key, wanted: tuple[int, ...]) -> tuple[int, int]:
    """Sources and destinations of some kinds, in the kinds of Moves that a kernel has."""
    moves = {(m.destinations, m.sources, m.firsts, m.final, m.kinds) for lane in key.form or () for m in lane if m.parts}
    return (
        sum(kind in wanted for targets, *_, kinds in moves for kind in kinds[targets:]),
        sum(kind in wanted for targets, *_, kinds in moves for kind in kinds[:targets]),
    )


def _everywhere(key: Key, lines: list[str]) -> list[Finding]:
    """What everybody has at one address is read and written by the instructions for that, in vectors and in single words."""
    sources, targets = _of_kinds(key, (at.MULTICAST,))
    loads, stores = _count(lines, r"multimem\.ld_reduce\.relaxed\.sys\."), _count(lines, r"multimem\.st\.relaxed\.sys\.")
    wanted = 2 * sources, 2 * targets
    found = f"{loads} loads and {stores} stores of multimem, wanted {wanted[0]} and {wanted[1]}"
    none_wanted = sources == targets == 0
    return _expect("everybody's", loads + stores == 0 if none_wanted else loads >= wanted[0] and stores >= wanted[1], found)


def line_spins(lines: list[str]) -> list[list[str]]:
    """The innermost loops that load a line: their instructions."""
    blocks = _blocks(lines)
    loops = _innermost(blocks, set(range(len(blocks))))
    found = [[line for i in loop for line in blocks[i].instructions] for loop in loops]
    return [loop for loop in found if any(line.startswith("ld.") and line.endswith("// line") for line in loop)]


def _innermost(blocks: list[_Block], kept: set[int]) -> Iterable[list[int]]:
    """The loops that have no other in them: without where it is entered, a loop falls into those inside."""
    before: dict[int, set[int]] = {i: set() for i in range(len(blocks))}
    for i, block in enumerate(blocks):
        for target, _ in block.after:
            before[target].add(i)
    for part in _cycles(blocks, kept):
        inside = set(part)
        heads = {i for i in part if before[i] - inside}
        yield from list(_innermost(blocks, inside - heads)) or [part]


def _waits_and_signals(key: Key) -> tuple[int, int]:
    """Places in a kernel that wait and that signal."""
    if key.form is None:
        return 1, 1
    moves = [move for lane in key.form for move in lane]
    return sum(len(move.waits) for move in moves), sum(len(move.signals) for move in moves)


def resources(log: str) -> tuple[int, int, int]:
    """Registers, bytes spilled and bytes of stack, as ptxas reports them.

    >>> resources("0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\\nUsed 40 registers")
    (40, 12, 0)
    """

    def total(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, log)))

    return total(r"Used (\d+) registers"), total(r"(\d+) bytes spill"), total(r"(\d+) bytes stack")


def machine_counts(code: str) -> dict[str, int]:
    """Instructions of interest in disassembled machine code."""
    # before sm_90, ptxas has routines of its own for what some threads of a warp do together
    together = set(re.findall(r"`\((\$__internal_\d+_\$__cuda_sm70_(?:warpsync|shflsync)\w*)\)", code))
    returns = len(re.findall(r"\bRET\b", code)) > len(together)
    patterns = {
        "LDG.128": r"\bLDG\.E\.128\b",
        "STG.128": r"\bSTG\.E\.128\b",
        "STRONG.SYS": r"\b(LDG|STG|LD|ST)\.[A-Z0-9.]*STRONG\.SYS\b",
        "MEMBAR": r"\bMEMBAR\.[A-Z.]*SYS\b",
        "CALL": r"\bCALL\b(?![^\n]*__cuda_sm70_(?:warp|shfl)sync)" if returns else r"(?!)",  # for sm_80, ptxas also spells jumps so, and then nothing returns
        "local": r"\b(LDL|STL)\b",
    }
    return {name: len(re.findall(pattern, code)) for name, pattern in patterns.items()}


def order(text: str, *, waits: bool = True) -> Iterable[Finding]:
    """Rules of memory that PTX breaks, on any path through it, of a kernel that `waits` or has nothing to wait for."""
    blocks = _blocks(instructions(text))
    leaders = _leader_predicates(blocks)

    dirty = _flow(blocks, lambda state, line: _is_data(line, "st") or (state and not _is_barrier(line)))
    unsure = _flow(blocks, lambda state, line: _is_acquire(line) or (state and not _is_barrier(line)))
    alone = _flow(blocks, lambda state, line: state, edge=lambda branch: branch in leaders, every=True)
    for number, block in enumerate(blocks):
        stored, acquired = dirty[number], unsure[number]
        for line in block.instructions:
            if _is_release(line):
                if stored:
                    yield Finding("data stored → barrier → release", f"no barrier on a path to `{line}`")
                if not alone[number]:
                    yield Finding("one thread releases", f"every thread may come to `{line}`")
            if _is_acquire(line) and not alone[number]:
                yield Finding("one thread acquires", f"every thread may come to `{line}`")
            if acquired and (_is_data(line, "ld") or _is_data(line, "st")):
                yield Finding("acquire → barrier → data", f"no barrier on a path to `{line}`")
            stored = _is_data(line, "st") or (stored and not _is_barrier(line))
            acquired = _is_acquire(line) or (acquired and not _is_barrier(line))
            unordered = re.match(r"(ld|st)\S*\.(volatile|relaxed|nc)\b", line) or re.match(r"ld\.global\.nc\b", line)
            if unordered and not line.endswith(("// line", "// abort")):
                yield Finding("data are plain, counters ordered", f"`{line}`")
            if re.match(r"(atom|red|call|brx)\b", line) or ".local" in line:
                yield Finding("no atomics, calls, tables of branches or local memory", f"`{line}`")

    yield from _aliases(blocks)
    loads = r"(ld\.(global|acquire|relaxed)|multimem\.ld_reduce)"
    quiet = {i for i, b in enumerate(blocks) if not any(re.match(loads, x) for x in b.instructions)}
    for loop in _cycles(blocks, quiet):
        yield Finding("every loop loads", f"none in the loop of {_opening(blocks, loop)}")
    for spin in line_spins(instructions(text)):
        if not any("%globaltimer" in line for line in spin):
            yield Finding("every spin has a deadline", f"no clock in the loop of `{spin[0]}`")
        if not any(line.startswith("ld.") and line.endswith("// abort") for line in spin):
            yield Finding("every spin can be told to stop", f"one flag in the loop of `{spin[0]}`")
    spins = 0
    for loop in _cycles(blocks, {i for i in range(len(blocks)) if alone[i]}):
        lines = [line for i in loop for line in blocks[i].instructions]
        if any(map(_is_acquire, lines)):
            spins += 1
            if not any("%globaltimer" in line for line in lines):
                yield Finding("every spin has a deadline", f"no clock in the loop of {_opening(blocks, loop)}")
            if sum(map(_is_acquire, lines)) < 2:
                yield Finding("every spin can be told to stop", f"one flag in the loop of {_opening(blocks, loop)}")
    if waits and not spins:
        yield Finding("a lane waits", "there is no loop that acquires")


def _aliases(blocks: list[_Block]) -> Iterable[Finding]:
    """Between memory at the address that is everybody's and the same at each one's own, on any path, stands a fence: a thread's
    own after the barrier or the beginning before, and before the barrier or the end after."""
    bounds = r"(bar|barrier)\.(?!warp)|ret\b|exit\b|st\.release"

    def entered(state: bool, line: str) -> bool:
        return not _is_fence(line) and (state or re.match(bounds, line) is not None)

    def touched(state: bool, line: str) -> bool:
        return line.startswith("multimem.") or (state and not _is_fence(line))

    early = _flow([_Block(["bar.begin"], [(1, None)]), *_shifted(blocks)], entered)[1:]
    late = _flow(blocks, touched)
    for number, block in enumerate(blocks):
        unfenced, dirty = early[number], late[number]
        for line in block.instructions:
            if line.startswith("multimem.") and unfenced:
                yield Finding("fence → everybody's memory", f"no fence.proxy.alias on a path to `{line}`")
            if re.match(bounds, line) and dirty:
                yield Finding("everybody's memory → fence", f"no fence.proxy.alias on a path to `{line}`")
            unfenced, dirty = entered(unfenced, line), touched(dirty, line)


def _shifted(blocks: list[_Block]) -> list[_Block]:
    """The blocks as they are numbered behind another."""
    return [_Block(block.instructions, [(target + 1, branch) for target, branch in block.after]) for block in blocks]


def _is_fence(line: str) -> bool:
    return line.startswith("fence.proxy.alias")


def instructions(text: str) -> list[str]:
    """The instructions and labels of the kernel, one a line, without comments but those in TAGS."""
    body = text[text.index(".entry") :]
    lines = []
    for raw in body[body.index("\n{") :].splitlines():
        line = re.sub(r"\s+", " ", raw).strip()
        if line.startswith(("//", ".", "{", "}")) or not line:
            continue
        code, _, comment = line.partition("//")
        lines.append(code.strip().rstrip(";") + (f" // {comment.strip()}" if comment.strip() in TAGS else ""))
    return lines


def _blocks(lines: list[str]) -> list[_Block]:
    blocks, labels = [_Block()], dict[str, int]()
    for line in lines:
        if re.fullmatch(r"\$?[\w$]+:", line):
            if blocks[-1].instructions:
                blocks.append(_Block())
            labels[line[:-1]] = len(blocks) - 1
            continue
        blocks[-1].instructions.append(line)
        if re.match(r"(@!?%\w+ )?bra\b|ret\b|(@!?%\w+ )?exit\b", line):
            blocks.append(_Block())
    for i, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else ""
        branch = re.match(r"(?:@(!?%\w+) )?bra(?:\.uni)? (\S+)", last)
        if branch:
            block.after.append((labels[branch[2]], branch[1]))
        if (not branch or branch[1]) and not re.match(r"ret\b|exit\b", last) and i + 1 < len(blocks):
            block.after.append((i + 1, _negated(branch[1]) if branch else None))
    return blocks


def _negated(predicate: str) -> str:
    return predicate[1:] if predicate.startswith("!") else "!" + predicate


def _leader_predicates(blocks: list[_Block]) -> set[str]:
    """Predicates that are true in thread 0 only, as branches write them."""
    mine, leaders = set[str](), set[str]()
    lines = [line for block in blocks for line in block.instructions]
    for _ in range(3):  # a copy may come before what it copies, in the text
        for line in lines:
            copied = re.match(r"(?:mov|cvt)\.\S+ (%\w+), (%[\w.]+)", line)
            if copied and (copied[2] == "%tid.x" or copied[2] in mine):
                mine.add(copied[1])
    for line in lines:
        compared = re.match(r"setp\.(eq|ne)\.\S+ (%\w+), (%\w+), 0$", line)
        if compared and compared[3] in mine:
            leaders.add(compared[2] if compared[1] == "eq" else "!" + compared[2])
    return leaders


def _flow(
    blocks: list[_Block], step: Callable[[bool, str], bool], *, edge: Callable[[str | None], bool] | None = None,
    every: bool = False,
) -> list[bool]:  # fmt: skip
    """For the beginning of each block, whether a fact holds there: on some path to it, or on every one.

    step: the fact after an instruction.
    edge: whether a branch makes it true.
    """
    state = [every] * len(blocks)
    state[0] = False
    changed = True
    while changed:
        changed = False
        arriving: list[list[bool]] = [[] for _ in blocks]
        for i, block in enumerate(blocks):
            value = state[i]
            for line in block.instructions:
                value = step(value, line)
            for target, branch in block.after:
                arriving[target].append(value or (edge is not None and edge(branch)))
        for i in range(1, len(blocks)):
            value = bool(arriving[i]) and (all(arriving[i]) if every else any(arriving[i]))
            changed |= value != state[i]
            state[i] = value
    return state


def _cycles(blocks: list[_Block], kept: set[int]) -> list[list[int]]:
    """The loops of the graph of some of the blocks: its strongly connected parts with an edge inside."""
    found, index, low, stack = [], dict[int, int](), dict[int, int](), list[int]()
    after = {i: [t for t, _ in blocks[i].after if t in kept] for i in kept}
    for root in sorted(kept):
        work = [(root, iter(after[root]))] if root not in index else []
        if work:
            index[root] = low[root] = len(index)
            stack.append(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(after[target])))
                    break
                if target in stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    if len(part) > 1 or node in after[node]:
                        found.append(part)
    return found


def _opening(blocks: list[_Block], loop: list[int]) -> str:
    return "`" + next((line for i in loop for line in blocks[i].instructions), "nothing") + "`"


def _is_barrier(line: str) -> bool:
    return re.match(r"(bar|barrier)\.(?!warp)", line) is not None


def _is_acquire(line: str) -> bool:
    return line.startswith("ld.acquire.sys.")


def _is_release(line: str) -> bool:
    return line.startswith("st.release.sys.")


def _is_data(line: str, way: str) -> bool:
    """An access to memory of the device that is no word of a table, no counter, and not the abort flag."""
    if line.endswith(("// word", "// abort")):
        return False
    return re.match(rf"(@!?%\w+ )?(multimem\.)?{way}(_reduce)?\.(?!param|release|acquire|local|shared)", line) is not None


def _arithmetic(lines: list[str]) -> list[Finding]:
    """Rounding as on a CPU: each operation for itself, to nearest, denormals kept."""
    wrong = [
        line
        for line in lines
        if re.match(r"(fma|mad)\S*\.f(16|32|64)", line)
        or re.search(r"\.(ftz|approx|full)\b", line.split(" ")[0])
        or re.match(r"(add|sub|mul|div)\.(?!rn)\S*f(16|32|64)", line)
        or re.match(r"(min|max)\.\S*f(16|32|64)", line)
    ]
    return [Finding("arithmetic as on a CPU", f"`{line}`") for line in wrong[:3]]


def _count(lines: list[str], pattern: str) -> int:
    return sum(re.match(pattern, line) is not None for line in lines)


def _expect(rule: str, holds: bool, found: str) -> list[Finding]:
    return [] if holds else [Finding(rule, found)]
