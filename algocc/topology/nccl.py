"""NCCL's and RCCL's topology dumps, NCCL_TOPO_DUMP_FILE, as a Topology.

    system > cpu > pci > … > gpu > nvlink | xgmi | c2c
                              nic > net

The PCI device of a GPU or NIC and that GPU or NIC are one node. All NVSwitches of a dump are one node. PCIe links run
from each device to the one above it. Usable bandwidths are what NCCL and RCCL assume.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NoReturn

from algocc.errors import UsageError
from algocc.place import Place
from algocc.topology.models import NETWORK_HOP, NVLINK_HOP
from algocc.topology.value import Link, Node, Topology, both
from algocc.xml_tree import Element, parse

PCI_HOP = Fraction(1, 10**6)
DEEPEST = 32
MOST_LINKS_IN_BUNDLE = 1024

_PCIE = {  # GT/s: (nominal GB/s of a lane, with the code's overhead; NCCL's figure, 0.1 Gb/s)
    "2.5": (Fraction(2, 8), 15),
    "5": (Fraction(4, 8), 30),
    "8": (Fraction(128, 130), 60),
    "16": (2 * Fraction(128, 130), 120),
    "32": (4 * Fraction(128, 130), 240),
    "64": (8 * Fraction(242, 256), 480),
}
_NVLINK = (  # compute capability at least; GB/s of a link, nominal and as NCCL assumes
    (100, 50, "40.1"), (90, 25, "20.6"), (87, 25, "20"), (86, "14.0625", "12"), (80, 25, "20"), (70, 25, "20"),
    (60, 20, "18"),
)  # fmt: skip
_XGMI = (  # pattern of gcn; GB/s of a link, nominal and as RCCL assumes
    (r"gfx94.|94\d", 64, 48), (r"gfx90a|910", 50, 36), (r"(gfx)?90[68]", 46, 24),
)  # fmt: skip
_SOCKET = {"arm64": 6, "aarch64": 6, "ppc64": 32, "AuthenticAMD": 16, "  Shanghai  ": 6, "CentaurHauls": 6}
_INTEL = ((0xCF, 40), (0x8F, 22), (0x55, 10), (0, 6))  # model at least; GB/s between sockets
_GPU, _NVSWITCH, _BRIDGE = "0x03", "0x0680", "0x068001"


@dataclass
class _Reader:
    file: str
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    busids: dict[str, tuple[int, int]] = field(default_factory=dict)  # to node and line
    gpus: list[tuple[Element, int, int]] = field(default_factory=list)  # with its node and its CPU's
    names: dict[str, int] = field(default_factory=dict)  # to lines

    def add(self, e: Element, what: str, name: str, kind: str) -> int:
        if (line := self.names.get(name)) is not None:
            Place(self.file, e.line, what).refuse(f"{name} is on line {line} already", wanted="each once")
        self.names[name] = e.line
        self.nodes.append(Node(name, kind) if kind else Node(name))
        return len(self.nodes) - 1

    def need(self, e: Element, what: str, key: str, wanted: str) -> str:
        found = e.attributes.get(key)
        if found is None:
            Place(self.file, e.line, what).refuse(f"no attribute {key!r}", wanted=wanted)
        return found

    def number(self, e: Element, what: str, key: str, wanted: str, least: int, most: int) -> int:
        text = self.need(e, what, key, wanted)
        if not re.fullmatch(r"[+-]?\d{1,9}", text) or not least <= int(text) <= most:
            Place(self.file, e.line, what).refuse(f"{key}={text!r}", wanted=f"{wanted}, {least} to {most}")
        return int(text)

    def refuse(self, e: Element, what: str, found: str, wanted: str) -> NoReturn:
        Place(self.file, e.line, what).refuse(found, wanted=wanted)


def read(data: bytes, file: str) -> Topology:
    """The topology of a dump; GPUs are the ranks, in the order of their rank, or of dev where none is given.

    Raises UsageError with file, line, node and attribute.
    """
    root = parse(data, file, depth=DEEPEST, outline="system > cpu > pci > gpu > nvlink")
    if root.tag != "system":
        Place(file, root.line).refuse(f"<{root.tag}>", wanted="<system version=…>, an NCCL topology dump")
    r = _Reader(file)
    version = r.number(root, "system", "version", "a version", 0, 2**31)
    if version not in (1, 2):
        r.refuse(root, "system", f"version={version}", "1, or 2 of RCCL")
    cpus: list[tuple[Element, int]] = []
    for cpu in _children(r, root, "system", "cpu"):
        what = f"cpu numaid={cpu.attributes.get('numaid')}"
        numa = r.number(cpu, what, "numaid", "a NUMA node", -1, 1 << 16)
        at = r.add(cpu, what, f"cpu{numa}", "cpu")
        cpus.append((cpu, at))
        for child in _children(r, cpu, what, "pci", "nic"):
            _device(r, child, at, at)
    for i, (one, start) in enumerate(cpus):
        width = Fraction(_between_sockets(r, one))
        for j, (_, end) in enumerate(cpus):
            if i != j:
                why = "between sockets, as NCCL assumes"
                r.links.append(Link(start, end, width, width, PCI_HOP, "socket", 1, why))
    _fabric(r)
    if not r.gpus:
        Place(file, root.line, "system").refuse("no <gpu> in it", wanted="at least one, as GPUs are the ranks")
    return _ordered(r)


def _children(r: _Reader, e: Element, what: str, *tags: str) -> list[Element]:
    """The children of these tags; others are noted."""
    for other in {child.tag: None for child in e.children if child.tag not in tags}:
        r.notes[f"<{other}> inside <{e.tag}> is passed over"] = None
    return [child for child in e.children if child.tag in tags]


def _device(r: _Reader, e: Element, above: int, cpu: int) -> None:
    """A PCI device and what is below it, or a NIC that is on no PCI bus."""
    if e.tag == "nic":
        _nic(r, e, above, None)
        return
    busid = e.attributes.get("busid")
    what = f"pci busid={busid}"
    key = _busid(r, e, what, "busid")
    if key in r.busids:
        r.refuse(e, what, f"busid={busid!r} is that of line {r.busids[key][1]} too", "each once")
    children = _children(r, e, what, "pci", "gpu", "nic")
    gpus = [c for c in children if c.tag == "gpu"]
    nics = [c for c in children if c.tag == "nic"]
    if len(gpus) > 1:
        r.refuse(gpus[1], what, "two <gpu> in one <pci>", "one")
    if gpus:
        gpu = f"gpu dev={gpus[0].attributes.get('dev')}"
        number = r.number(gpus[0], gpu, "rank" if "rank" in gpus[0].attributes else "dev", "a number", 0, 1 << 20)
        node = r.add(gpus[0], gpu, f"gpu{number}", "")
        r.gpus.append((gpus[0], node, cpu))
    elif nics:
        node = _nic(r, nics[0], None, key)
        for more in nics[1:]:
            _nic(r, more, node, None)
    else:
        node = r.add(e, what, f"pci {key}", "pci")
    r.busids[key] = node, e.line
    r.links += _pcie(r, e, what, node, above)
    for child in children:
        if child.tag == "pci":
            _device(r, child, node, cpu)


def _busid(r: _Reader, e: Element, what: str, key: str) -> str:
    text = r.need(e, what, key, "a PCI address, as in 0000:1b:00.0").strip().lower()
    if not re.fullmatch(r"[0-9a-f]{1,8}:[0-9a-f]{2,4}:[0-9a-f]{2}(\.[0-9a-f])?", text):
        r.refuse(e, what, f"{key}={text!r}", "a PCI address, as in 0000:1b:00.0")
    return text


def _pcie(r: _Reader, e: Element, what: str, node: int, above: int) -> tuple[Link, Link]:
    width = r.number(e, what, "link_width", "a number of PCIe lanes", 0, 64)
    if width == 0:
        r.notes["a link_width of 0 is taken as 16, as NCCL does"] = None
        width = 16
    text = r.need(e, what, "link_speed", "GT/s, as in '16 GT/s'")
    found = re.match(r"(\d+(?:\.5)?)(?:\.0)? GT/s", text)
    speed = found[1] if found else ""
    if speed not in _PCIE:
        if text and not text.lower().startswith("unknown"):
            known = ", ".join(_PCIE)
            r.refuse(e, what, f"link_speed={text!r}", f"one of {known} GT/s")
        r.notes["an unknown link_speed is taken as 8 GT/s, as NCCL does"] = None
        speed = "8"
    lane, figure = _PCIE[speed]
    why = f"PCIe {speed} GT/s x{width}; NCCL assumes {float(Fraction(width * figure, 80)):g}"
    return both(node, above, width * lane, Fraction(width * figure, 80), latency=PCI_HOP, kind="PCIe", source=why)


def _nic(r: _Reader, e: Element, above: int | None, busid: str | None) -> int:
    """A NIC, with a node for the network behind each of its ports."""
    nets = _children(r, e, "nic", "net")
    if above is None or not nets:
        node = r.add(e, "nic", f"nic {busid or e.line}", "nic")
        above = node if above is None else above
    for net in nets:
        name = r.need(net, "net", "name", "the name of a port")
        what = f"net name={name}"
        speed = r.number(net, what, "speed", "Mb/s", 1, 10**9)
        port = r.add(net, what, f"net {name}" + (f" {net.attributes['port']}" if f"net {name}" in r.names else ""), "net")
        width = Fraction(speed, 8000)
        why = f"a port of {speed} Mb/s"
        r.links += both(above, port, width, width, latency=NETWORK_HOP, kind="network", source=why)
    return above


def _between_sockets(r: _Reader, e: Element) -> int:
    """GB/s from this CPU to another one, as NCCL assumes."""
    what = f"cpu numaid={e.attributes.get('numaid')}"
    arch = r.need(e, what, "arch", "x86_64, arm64 or ppc64")
    if arch in _SOCKET:
        return _SOCKET[arch]
    if arch != "x86_64":
        r.refuse(e, what, f"arch={arch!r}", "x86_64, arm64 or ppc64")
    vendor = r.need(e, what, "vendor", "GenuineIntel or AuthenticAMD")
    if vendor in _SOCKET:
        return _SOCKET[vendor]
    if vendor != "GenuineIntel":
        r.refuse(e, what, f"vendor={vendor!r}", "GenuineIntel, AuthenticAMD or CentaurHauls")
    family = r.number(e, what, "familyid", "the family of the CPU", 0, 1 << 16)
    kind = r.number(e, what, "modelid", "the model of the CPU", 0, 1 << 16)
    return next(width for least, width in _INTEL if family == 6 and kind >= least) if family == 6 else 6


def _fabric(r: _Reader) -> None:
    """NVLink, xGMI and C2C links of all GPUs."""
    bundles: dict[tuple[int, int, str, Fraction, Fraction, str], int] = {}
    switch: int | None = None
    for gpu, node, cpu in r.gpus:
        what = f"gpu dev={gpu.attributes.get('dev')}"
        for e in _children(r, gpu, what, "nvlink", "xgmi", "c2c"):
            count = r.number(e, f"{what} {e.tag}", "count", "a number of links", 1, MOST_LINKS_IN_BUNDLE)
            if e.tag == "c2c":
                each = Fraction(r.number(e, f"{what} c2c", "bw", "MB/s", 1, 10**9), 1000)
                r.links += both(node, cpu, each * count, each * count, kind="C2C", width=count, source="bw of the dump")
                continue
            target = r.need(e, f"{what} {e.tag}", "target", "the PCI address of the other end")
            where = f"{what} {e.tag} target={target}"
            tclass = r.need(e, where, "tclass", "0x03… for a GPU or 0x068000 for an NVSwitch").lower()
            nominal, usable, why = _per_link(r, gpu, e, what)
            kind = "xGMI" if e.tag == "xgmi" else "NVLink"
            if tclass.startswith(_GPU):
                other = r.busids.get(_busid(r, e, where, "target"))
                if other is None or not any(other[0] == at for _, at, _ in r.gpus):
                    r.refuse(e, where, "no GPU has that busid", "the busid of a <pci> with a <gpu>")
                if other[0] == node:
                    r.refuse(e, where, "a link from a GPU to itself", "another GPU")
                ends = [(node, other[0])]
            elif tclass.startswith(_BRIDGE):
                ends = [(node, cpu), (cpu, node)]
            elif tclass.startswith(_NVSWITCH):
                if switch is None:
                    switch = r.add(e, where, "nvswitch", "nvswitch")
                ends = [(node, switch), (switch, node)]
            else:
                r.refuse(e, where, f"tclass={tclass!r}", "0x03… for a GPU or 0x068000 for an NVSwitch")
            for start, end in ends:
                key = start, end, kind, nominal, usable, why
                bundles[key] = bundles.get(key, 0) + count
    for (start, end, kind, nominal, usable, why), width in bundles.items():
        if (end, start, kind, nominal, usable, why) not in bundles:
            names = f"{r.nodes[start].name} to {r.nodes[end].name}"
            r.notes[f"{kind} from {names} is not listed in the other direction: taken as one-way"] = None
        r.links.append(Link(start, end, nominal * width, usable * width, NVLINK_HOP, kind, width, why))


def _per_link(r: _Reader, gpu: Element, e: Element, what: str) -> tuple[Fraction, Fraction, str]:
    """GB/s of one NVLink or xGMI link of this GPU, nominal and usable, and why."""
    if e.tag == "nvlink":
        sm = r.number(gpu, what, "sm", "the compute capability, as in 80", 1, 999)
        for least, nominal, usable in _NVLINK:
            if sm >= least:
                why = f"NVLink of sm {sm}: {nominal} a link; NCCL assumes {usable}"
                return Fraction(nominal), Fraction(usable), why
        r.refuse(gpu, what, f"sm={sm}", "60 or more: the first GPUs with NVLink")
    gcn = r.need(gpu, what, "gcn", "the architecture, as in 910 or gfx90a").lower()
    for pattern, full, part in _XGMI:
        if re.fullmatch(pattern, gcn):
            return Fraction(full), Fraction(part), f"xGMI of gcn {gcn}: {full} a link; RCCL assumes {part}"
    r.refuse(gpu, what, f"gcn={gcn!r}", "one of 906, 908, 910, gfx90a, 94x and gfx94x, whose xGMI is known")


def _ordered(r: _Reader) -> Topology:
    """The topology with its GPUs first, by number."""
    gpus = sorted((node for _, node, _ in r.gpus), key=lambda node: int(r.nodes[node].name.removeprefix("gpu")))
    mine = set(gpus)
    order = gpus + [i for i in range(len(r.nodes)) if i not in mine]
    place = {old: new for new, old in enumerate(order)}
    links = tuple(link._replace(start=place[link.start], end=place[link.end]) for link in r.links)
    try:
        return Topology(r.file, tuple(r.nodes[i] for i in order), links, tuple(r.notes))
    except UsageError as error:
        raise UsageError(f"{r.file}: {error}") from error
