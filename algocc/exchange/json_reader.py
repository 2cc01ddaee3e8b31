"""JSON as dicts and lists that know their lines, in bounded time and memory; every error has line and column."""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any

from algocc.place import Place

MOST_DEPTH = 24
MOST_VALUES = 3_000_000

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,18}|\d{19,20})(?![\d.eE])")
_WORDS = {"true": True, "false": False, "null": None}


class Object(dict[str, Any]):
    """A JSON object; `line` is where it starts, `lines` where each of its keys is."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.at, self.line, self.line_at = 0, 1, 0
        self.values = 0

    def fail(self, found: str) -> Any:
        column = self.at - self.line_at + 1
        Place(self.file, self.line).refuse(
            f"column {column}: {found}", wanted="JSON", mend="is the file complete, and is it a plan?"
        )

    def space(self) -> str:
        """Skip white space; the character that follows, or nothing."""
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        breaks = self.text.count("\n", self.at, match.end())
        if breaks:
            self.line += breaks
            self.line_at = self.text.rindex("\n", self.at, match.end()) + 1
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        self.values += 1
        if depth > MOST_DEPTH:
            self.fail(f"nested more than {MOST_DEPTH} deep")
        if self.values > MOST_VALUES:
            self.fail(f"more than {MOST_VALUES} values")
        c = self.space()
        if c == "{":
            return self.object(depth)
        if c == "[":
            return self.array(depth)
        if c == '"':
            return self.string()
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            shown = self.text[self.at : self.at + 20].split("\n")[0]
            return self.fail(f"{shown!r} is no value" if shown else "the file ends here")
        self.at = match.end()
        return int(match.group())

    def string(self) -> str:
        try:
            value, end = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            return str(self.fail(error.msg))
        self.at = end
        return str(value)

    def object(self, depth: int) -> Object:
        out = Object(self.line)
        self.at += 1
        if self.space() == "}":
            self.at += 1
            return out
        while True:
            if self.space() != '"':
                self.fail("a key in quotes is missing")
            line, key = self.line, self.string()
            if key in out:
                self.fail(f"a second key {key!r}, after that of line {out.lines[key]}")
            if self.space() != ":":
                self.fail(f"a colon is missing after {key!r}")
            self.at += 1
            out.lines[key] = line
            out[key] = self.value(depth + 1)
            if not self.more("}"):
                return out

    def array(self, depth: int) -> list[Any]:
        out: list[Any] = []
        self.at += 1
        if self.space() == "]":
            self.at += 1
            return out
        while True:
            out.append(self.value(depth + 1))
            if not self.more("]"):
                return out

    def more(self, end: str) -> bool:
        c = self.space()
        if c not in (",", end):
            self.fail(f"a comma or {end} is missing" if c else f"the file ends before {end}")
        self.at += 1
        return c == ","


def parse(data: bytes, file: str) -> Object:
    """The object that a JSON file holds.

    Raises UsageError, with line and column, for anything else.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        Place(file, data.count(b"\n", 0, error.start) + 1).refuse(f"not UTF-8: {error.reason}", wanted="JSON")
    reader = _Reader(text, file)
    if reader.space() != "{":
        shown = text[reader.at : reader.at + 20].split("\n")[0]
        reader.fail(f"{shown!r} is no JSON object")
    out = reader.value(0)
    if reader.space():
        reader.fail("something follows the end of the object")
    assert isinstance(out, Object)
    return out
