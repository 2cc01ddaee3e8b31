"""Where in a file something was found, the errors that say so, and the notes on what was assumed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from algocc.errors import UsageError, legible, near


@dataclass(frozen=True)
class Place:
    """A line of a file and what stands there, as in `ring.xml:12: gpu 0 tb 1 step 3`."""

    file: str
    line: int = 0
    what: str = ""

    def at(self, line: int, what: str) -> Place:
        """Another place of the same file."""
        return Place(self.file, line, what)

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}" + (f": {legible(self.what)}" if self.what else "")

    def refuse(self, found: str, *, wanted: str = "", mend: str = "") -> NoReturn:
        """Raise the UsageError that says where, found, wanted and the mend."""
        text = f"{self}: {legible(found)}"
        text += f", wanted {legible(wanted)}" if wanted else ""
        raise UsageError(text + (f"; {mend}" if mend else ""))

    def unknown(self, kind: str, word: str, known: Iterable[str]) -> NoReturn:
        """Refuse a word that is none of the known ones."""
        known = list(known)
        found = f"unknown {kind} {legible(word)!r}{near(word[:100], known)}; known: {', '.join(known)}"
        raise UsageError(f"{self}: {legible(found, most=1000)}")


@dataclass
class Notes:
    """What was assumed or passed over: one note for each kind, with the first place and how often."""

    seen: dict[str, tuple[Place, int]] = field(default_factory=dict)

    def add(self, place: Place, text: str) -> None:
        """Say `text` of `place`; the same text again is only counted."""
        first, times = self.seen.get(text, (place, 0))
        self.seen[text] = first, times + 1

    def lines(self) -> list[str]:
        """The notes as text, in the order in which they arose."""
        return [
            f"{place}: {text}" + (f" (and {k - 1} times more)" if k > 1 else "")
            for text, (place, k) in self.seen.items()
        ]
