"""Files with something wrong in them, as hypothesis strategies: bytes that change, and values that nobody expects."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

NUMBERS = ["-1", "0", "1", "7", "255", str(2**31), str(2**64), "9" * 5000, "-0", "+1", "1e400", "1.5", "NaN", "Infinity",
           "0x10", "1_000", "٣", " 1 ", "true"]  # fmt: skip
WORDS = ["", "\x7f", "\n", "é" * 3, "x" * 100_000, "a\u202eb", "😀", "i", "o", "s", "nop", "put", "LL", "-"]
LEAVES = [None, True, False, [], {}, [[]], [[[[]]]] * 2, 0, -1, 1, 2**31, 2**63, 2**200, 1.5, float("nan"), float("inf"),
          -0.0, *WORDS, *NUMBERS]  # fmt: skip


@st.composite
def damaged_bytes(draw: Draw, seeds: list[bytes]) -> bytes:
    """A seed with bytes changed, cut and repeated, digits swapped, in another encoding, or that of another file."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for kind in draw(st.lists(st.sampled_from(["byte", "cut", "repeat", "digit", "digit", "end", "swap"]), min_size=1, max_size=4)):
        if len(data) < 2:
            break
        place = st.integers(0, len(data) - 1)
        a, b = sorted((draw(place), draw(place)))
        digits = [i for i, c in enumerate(data) if 48 <= c < 58]
        if kind == "byte":
            data[a] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[a : min(b, a + 40)]
        elif kind == "repeat":
            data[a:a] = data[b : b + 60]
        elif kind == "digit" and digits:
            data[draw(st.sampled_from(digits))] = draw(st.integers(48, 57))
        elif kind == "end":
            del data[b:]
        elif kind == "swap":
            other = draw(st.sampled_from(seeds))
            data[a:] = other[min(a, len(other)) :]
    return bytes(data)


@st.composite
def recoded(draw: Draw, seeds: list[bytes]) -> bytes:
    """A seed in an encoding that nobody announced, behind a mark that means another, or with NULs in it."""
    data = draw(st.sampled_from(seeds))
    encoding = draw(st.sampled_from(["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037", "utf-7"]))
    mark = draw(st.sampled_from([b"", b"", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\0", b"\x1f\x8b"]))
    text = data.decode("utf-8", "replace").encode(encoding, "replace")
    return bytes(mark + (text if draw(st.booleans()) else data.replace(b"1", b"\0")))


@st.composite
def damaged_xml(draw: Draw, seeds: list[bytes]) -> bytes:
    """A well-formed file whose attributes and elements are changed, left out, repeated and moved."""
    root = ET.fromstring(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        parents = {child: parent for parent in root.iter() for child in parent}
        e = draw(st.sampled_from(list(root.iter())))
        keys = sorted(e.attrib)
        what = draw(st.sampled_from(["set", "set", "set", "drop", "rename", "remove", "repeat", "move", "tag", "text"]))
        if what == "set" and keys:
            value = draw(st.sampled_from([*NUMBERS, *WORDS, *e.attrib.values()]))
            e.set(draw(st.sampled_from(keys)), "".join(c for c in value if c >= " "))
        elif what in ("drop", "rename") and keys:
            value = e.attrib.pop(draw(st.sampled_from(keys)))
            if what == "rename":
                e.set(draw(st.sampled_from([*keys, "extra"])), value)
        elif what in ("remove", "repeat", "move") and e in parents:
            if what != "repeat":
                parents[e].remove(e)
            if what != "remove":
                target = draw(st.sampled_from(list(root.iter())))
                target.insert(draw(st.integers(0, len(target))), deepcopy(e))
        elif what == "tag":
            e.tag = draw(st.sampled_from(["step", "gpu", "x", e.tag * 50]))
        elif what == "text":
            e.text = draw(st.sampled_from([w for w in WORDS if w.isprintable()]))
    return ET.tostring(root)


@st.composite
def damaged_json(draw: Draw, seeds: list[bytes]) -> bytes:
    """JSON, or nearly, whose values are replaced, left out and repeated; keys may come twice."""
    root = json.loads(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        inner = [x for x in _inside(root) if x]
        if not inner:
            break
        x = draw(st.sampled_from(inner))
        key = draw(st.sampled_from(sorted(x) if isinstance(x, dict) else range(len(x))))
        what = draw(st.sampled_from(["set", "set", "set", "drop", "repeat", "rename"]))
        if what == "drop":
            del x[key]
        elif what == "set":
            x[key] = deepcopy(draw(st.sampled_from(LEAVES)))
        elif what == "repeat" and isinstance(x, list):
            x.insert(draw(st.integers(0, len(x))), deepcopy(x[key]))
        elif what == "rename" and isinstance(x, dict):
            x[draw(st.sampled_from([*sorted(x), "extra", key.upper()]))] = x.pop(key)
    text = json.dumps(root, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    if draw(st.integers(0, 9)) == 0 and ":" in text:
        text = text.replace("{", '{"name": "again", "name": "and again", ', 1)
    return text.encode()


def _inside(x: Any) -> list[Any]:
    """All dicts and lists in a value, itself first."""
    found, todo = [], [x]
    while todo:
        here = todo.pop()
        if isinstance(here, dict | list):
            found.append(here)
            todo += here.values() if isinstance(here, dict) else here
    return found


def is_clear(error: BaseException) -> bool:
    """Whether what an error says can be shown to somebody: one short paragraph of characters that print."""
    said = str(error)
    return 0 < len(said) < 2000 and all(c.isprintable() for line in said.split("\n") for c in line)
