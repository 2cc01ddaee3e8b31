"""XML as a tree with line numbers, in bounded time and memory: no document types, no entities, no deep nesting."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from algocc.place import Place

MOST_ELEMENTS = 1_000_000
MOST_ATTRIBUTES = 64


@dataclass(slots=True)
class Element:
    """An element: its tag, attributes, children and the line it starts on."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)


def parse(data: bytes, file: str, *, depth: int = 8, outline: str = "algo > gpu > tb > step") -> Element:
    """The root of an XML file whose elements nest at most `depth` deep, as in `outline`.

    Raises UsageError, with line and column, for what is not well-formed, or beyond the limits above.
    """
    root = Element("", {}, 0)
    stack = [root]
    elements = 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def here() -> Place:
        return Place(file, parser.CurrentLineNumber)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        if elements > MOST_ELEMENTS:
            here().refuse(f"more than {MOST_ELEMENTS} elements", wanted=f"fewer, in {outline}")
        if len(stack) > depth:
            here().refuse(f"elements nested more than {depth} deep", wanted=outline)
        if len(attributes) > MOST_ATTRIBUTES:
            here().refuse(f"<{tag}> has {len(attributes)} attributes", wanted=f"at most {MOST_ATTRIBUTES}")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def no_document_type(*_: object) -> None:
        here().refuse("a document type or entity declaration", wanted="plain elements", mend="remove <!DOCTYPE …>")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = no_document_type
    parser.EntityDeclHandler = no_document_type
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        what = f"column {error.offset + 1}: not well-formed XML: {expat.ErrorString(error.code)}"
        inside = next((e for e in reversed(stack) if e.tag), None)
        what += f", inside <{inside.tag}> of line {inside.line}" if inside else ""
        Place(file, error.lineno).refuse(what, mend="is the file complete, and is it XML?")
    except (ValueError, LookupError) as error:
        Place(file).refuse(f"not readable as XML: {error}")
    return root.children[0]
