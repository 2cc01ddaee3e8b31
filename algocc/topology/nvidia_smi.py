"""The matrix of `nvidia-smi topo -m`, with tabs as it comes or spaces as it is pasted, as a Topology.

The text says how devices are joined and by how many NVLinks, not how fast: the figures here are assumed, and each link
says so. GPUs with more NVLinks in their row than any GPU has share them through an NVSwitch. PIX, PXB, PHB, NODE and SYS
say what two devices meet at: each group that meets at one place gets a node there, in a tree. Between two
GPUs with NVLinks the text hides that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from algocc.errors import UsageError, counted, near
from algocc.place import Place
from algocc.topology.models import NVLINK_HOP
from algocc.topology.nccl import PCI_HOP
from algocc.topology.value import Link, Node, Topology, both

LEVELS = {"PIX": "pci", "PXB": "pci", "PHB": "cpu", "NODE": "cpu", "SYS": "cpu"}
"""What two devices meet at, the nearest first, and what that is."""
MOST_NVLINKS = 18
NVLINK = Fraction(25), Fraction(20)
PCIE = 32 * Fraction(128, 130), Fraction(24)
SOCKET = Fraction(16), Fraction(16)
MOST_DEVICES = 512


def looks_like(text: str) -> bool:
    """Whether a text has the header of the matrix."""
    return any(line.split()[:1] == ["GPU0"] for line in _plain(text).splitlines()[:200])


def read(text: str, file: str, *, nvlink: Fraction | None = None) -> Topology:
    """The topology of the text; GPUs are the ranks.

    nvlink: GB/s of a link and direction, in place of the assumed 25 (usable 20), which is that of V100 to H100.
    Raises UsageError with file, line, row and column.

    >>> four = read("GPU0 GPU1 CPU Affinity\\nGPU0 X NV2 0-7\\nGPU1 NV2 X 0-7\\n", "two.txt")
    >>> [(four.describe(k), str(k.nominal), k.source) for k in four.links][:1]
    [('gpu0 -> gpu1', '50', '2 NVLinks of 25 GB/s, assumed')]
    """
    names, lines, cells = _matrix(_plain(text), file)
    gpus = [i for i, name in enumerate(names) if re.fullmatch(r"GPU\d+", name)]
    nodes = [Node(names[i].lower()) for i in gpus]
    place = {i: at for at, i in enumerate(gpus)}
    for i, name in enumerate(names):
        if i not in place:
            place[i] = len(nodes)
            nodes.append(Node(name, "nic"))
    links = list(_nvlinks(nodes, place, cells, gpus, nvlink))
    links += _pcie(nodes, place, cells)
    speed = f"{nvlink} GB/s was given" if nvlink else "25 GB/s (usable 20) is assumed, as of V100, A100 and H100"
    notes = [f"nvidia-smi does not say how fast a link is: for each NVLink {speed}"]
    notes += ["PCIe of generation 4 x16 is assumed, and 16 GB/s between CPUs"] if len(links) and any(
        link.kind != "NVLink" for link in links
    ) else []
    return Topology(file, tuple(nodes), tuple(links), tuple(notes))


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


def _matrix(text: str, file: str) -> tuple[list[str], list[int], dict[tuple[int, int], str]]:
    """The names of the columns, the lines of their rows, and the cells off the diagonal."""
    names: list[str] = []
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not names:
            if words[:1] == ["GPU0"]:
                names = words[: words.index("CPU")] if "CPU" in words else words
                if len(names) > MOST_DEVICES:
                    Place(file, number).refuse(f"{len(names)} columns", wanted=f"at most {MOST_DEVICES}")
                if len(set(names)) < len(names):
                    twice = next(name for name in names if names.count(name) > 1)
                    Place(file, number, "header").refuse(f"two columns {twice}", wanted="each once")
            continue
        if words and words[0].rstrip(":").lower() in ("legend", "nic"):
            break
        if words:
            where = Place(file, number, f"row {words[0]}")
            if words[0] not in names:
                where.unknown("device", words[0], names)
            if words[0] in rows:
                where.refuse(f"it is on line {rows[words[0]][0]} too", wanted="each row once")
            if len(words) <= len(names):
                where.refuse(f"{len(words) - 1} cells", wanted=f"{len(names)}, one for each column")
            rows[words[0]] = number, words[1 : len(names) + 1]
    if not names:
        Place(file).refuse("no header with GPU0", wanted="what `nvidia-smi topo -m` prints")
    for name in names:
        if name not in rows:
            Place(file).refuse(f"no row {name}", wanted="a row for each column", mend="is the text complete?")
    return names, [rows[name][0] for name in names], _cells(names, rows, file)


def _cells(names: list[str], rows: dict[str, tuple[int, list[str]]], file: str) -> dict[tuple[int, int], str]:
    cells: dict[tuple[int, int], str] = {}
    for i, name in enumerate(names):
        line, words = rows[name]
        for j, word in enumerate(words):
            where = Place(file, line, f"row {name}, column {names[j]}")
            word = {"SOC": "SYS"}.get(word, word)
            if (word == "X") != (i == j):
                where.refuse(repr(word), wanted="X where a device meets itself, and nowhere else")
            if i == j:
                continue
            known = (*LEVELS, "NV1")
            if word not in LEVELS and not re.fullmatch(r"NV[1-9]\d?", word):
                where.refuse(f"{word!r}{near(word, known)}", wanted=f"X, NV#, {', '.join(LEVELS)}")
            if (j, i) in cells and cells[j, i] != word:
                where.refuse(f"{word}, but {cells[j, i]} the other way round", wanted="the same")
            cells[i, j] = word
    return cells


def _nvlinks(
    nodes: list[Node], place: dict[int, int], cells: dict[tuple[int, int], str], gpus: list[int], each: Fraction | None
) -> Iterable[Link]:
    counts = {pair: int(word[2:]) for pair, word in cells.items() if word.startswith("NV")}
    nominal, usable = (each, None) if each else NVLINK
    switch = None
    for i in gpus:
        row = {j: counts[i, j] for j in gpus if (i, j) in counts}
        if sum(row.values()) > MOST_NVLINKS:
            width = max(row.values())
            if switch is None:
                switch = len(nodes)
                nodes.append(Node("nvswitch", "nvswitch"))
            yield from _bundle(place[i], switch, width, nominal, usable)
        else:
            for j, width in row.items():
                other = sum(counts.get((j, k), 0) for k in gpus)
                if other > MOST_NVLINKS:
                    raise UsageError(
                        f"{nodes[place[i]].name}: {sum(row.values())} NVLinks in its row, which are direct, but "
                        f"{other} in that of {nodes[place[j]].name}, which go to a switch; wanted the same kind"
                    )
                yield _bundle(place[i], place[j], width, nominal, usable)[0]


def _bundle(start: int, end: int, width: int, nominal: Fraction, usable: Fraction | None) -> tuple[Link, Link]:
    why = f"{counted(width, 'NVLink')} of {float(nominal):g} GB/s, assumed"
    return both(
        start, end, width * nominal, width * usable if usable else None,
        latency=NVLINK_HOP, kind="NVLink", width=width, source=why,
    )  # fmt: skip


def _pcie(nodes: list[Node], place: dict[int, int], cells: dict[tuple[int, int], str]) -> Iterable[Link]:
    """A tree: at each level, what meets there gets a node, one level after the other."""
    group = {i: i for i in place}
    tops = dict(place)  # of each group, the node at its top

    def top(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for level, kind in LEVELS.items():
        before = {i: top(i) for i in group}
        for (i, j), word in cells.items():
            if word == level:
                group[top(i)] = top(j)
        merged: dict[int, dict[int, None]] = {}
        for i in group:
            merged.setdefault(top(i), {})[before[i]] = None
        for now, parts in merged.items():
            if len(parts) < 2:
                continue
            node = len(nodes)
            nodes.append(Node(f"{level.lower()}{sum(n.name.startswith(level.lower()) for n in nodes)}", kind))
            for part in parts:
                between = nodes[tops[part]].kind == "cpu"
                nominal, usable = SOCKET if between else PCIE
                why = "16 GB/s between CPUs, assumed" if between else "PCIe of generation 4 x16, assumed"
                yield from both(
                    tops[part], node, nominal, usable,
                    latency=PCI_HOP, kind="socket" if between else "PCIe", source=why,
                )  # fmt: skip
            tops[now] = node
