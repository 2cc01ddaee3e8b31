"""A Topology as JSON, without loss: nodes by name, exact numbers as text."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

from algocc.errors import UsageError
from algocc.topology.value import RANK, Link, Node, Topology

FORMAT = "algocc topology 1"


def to_json(t: Topology) -> dict[str, Any]:
    """The record of a topology.

    >>> from algocc.topology.models import model
    >>> to_json(model("ring:3"))["links"][0]
    {'from': 'r0', 'to': 'r1', 'nominal': '1', 'usable': '1', 'source': 'unit links'}
    """
    return {
        "format": FORMAT,
        "name": t.name,
        "nodes": [{"name": node.name, "kind": node.kind} for node in t.nodes],
        "links": [_link(t, link) for link in t.links],
        **({"notes": list(t.notes)} if t.notes else {}),
    }


def _link(t: Topology, link: Link) -> dict[str, Any]:
    found: dict[str, Any] = {
        "from": t.nodes[link.start].name,
        "to": t.nodes[link.end].name,
        "nominal": str(link.nominal),
    }
    if link.usable is not None:
        found["usable"] = str(link.usable)
    if link.latency:
        found["latency"] = str(link.latency)
    plain = Link(0, 1, link.nominal)
    for key in ("kind", "width", "source"):
        if getattr(link, key) != getattr(plain, key):
            found[key] = getattr(link, key)
    return found


def from_json(value: Any, file: str = "topology") -> Topology:
    """The topology of a record.

    Raises UsageError, naming node or link and attribute.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        found = value.get("format") if isinstance(value, dict) else type(value).__name__
        raise UsageError(f"{file}: format {found!r:.80}, wanted {FORMAT!r:.80}")
    known = {"format", "name", "nodes", "links", "notes"}
    if more := set(value) - known:
        raise UsageError(f"{file}: unknown attribute {min(more)!r:.80}; known: {', '.join(sorted(known))}")
    nodes = []
    for i, given in enumerate(_list(value, "nodes", file)):
        where = f"{file}: node {i}"
        _keys(given, {"name", "kind"}, where)
        nodes.append(Node(_text(given, "name", where), _text(given, "kind", where, RANK)))
    place = {node.name: i for i, node in enumerate(nodes)}
    links = []
    for i, given in enumerate(_list(value, "links", file)):
        where = f"{file}: link {i}"
        _keys(given, {"from", "to", "nominal", "usable", "latency", "kind", "width", "source"}, where)
        ends: list[int] = []
        for key in ("from", "to"):
            name = _text(given, key, where)
            if name not in place:
                raise UsageError(f"{where}: {key}={name!r:.80}: no node has that name")
            ends.append(place[name])
        width = given.get("width", 1)
        if type(width) is not int or not 1 <= width < 2**31:
            raise UsageError(f"{where}: width={_short(width)}: wanted a number of links, 1 or more")
        links.append(
            Link(
                ends[0], ends[1], number(given.get("nominal"), f"{where}: nominal"),
                number(given["usable"], f"{where}: usable") if given.get("usable") is not None else None,
                number(given.get("latency", "0"), f"{where}: latency"),
                _text(given, "kind", where, "link"), width, _text(given, "source", where, ""),
            )
        )  # fmt: skip
    notes = value.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise UsageError(f"{file}: notes: wanted a list of text")
    try:
        return Topology(_text(value, "name", file, file), tuple(nodes), tuple(links), tuple(notes))
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def loads(text: str, file: str) -> Topology:
    """The topology of a JSON text.

    Raises UsageError.
    """
    try:
        return from_json(json.loads(text), file)
    except json.JSONDecodeError as error:
        raise UsageError(f"{file}:{error.lineno}: not JSON: {error.msg} at column {error.colno}") from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{file}: not usable as JSON: {error}") from error


def number(value: Any, where: str) -> Fraction:
    """An exact number from `25`, `"25"`, `"12.5"`, `"1/3"` or `"6e-7"`.

    Raises UsageError for anything else, NaN and infinity included.
    """
    text = str(value) if type(value) in (int, float, str) else ""
    if len(text) <= 64 and re.fullmatch(r"[+-]?\d+(/[1-9]\d*|(\.\d+)?([eE][+-]?\d{1,2})?)", text):
        return Fraction(text)
    raise UsageError(f"{where}={_short(value)}: wanted a number, as in 25, 12.5 or \"1/3\"")


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a very large number"
    return text if len(text) <= 40 else text[:40] + "…"


def _list(value: dict[str, Any], key: str, where: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        raise UsageError(f"{where}: {key}: {'missing' if found is None else _short(found)}, wanted a list")
    return found


def _keys(given: Any, known: set[str], where: str) -> None:
    if not isinstance(given, dict):
        raise UsageError(f"{where}: {_short(given)}, wanted an object with {', '.join(sorted(known))}")
    if more := set(given) - known:
        raise UsageError(f"{where}: unknown attribute {_short(min(more))}; known: {', '.join(sorted(known))}")


def _text(given: dict[str, Any], key: str, where: str, default: str | None = None) -> str:
    found = given.get(key, default)
    if not isinstance(found, str):
        raise UsageError(f"{where}: {key}: {'missing' if found is None else _short(found)}, wanted text")
    return found
