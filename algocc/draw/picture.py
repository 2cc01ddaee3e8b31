"""A scene as the bytes of a file, by the end of its name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from algocc.draw import figure
from algocc.draw.page import page
from algocc.draw.scene import Scene
from algocc.errors import UsageError

FORMS = (".svg", ".html", ".png", ".pdf")
"""How the name of a picture ends."""


def check_name(path: Path, *, where: str) -> None:
    """Raise UsageError, early, for a name that says no form, or if there is nothing to draw with."""
    if path.suffix.lower() not in FORMS:
        raise UsageError(f"{where} {path}: the name ends in {path.suffix or 'nothing'}, wanted one of {', '.join(FORMS)}")
    if not can_draw():
        raise UsageError(f"{where} {path} needs matplotlib, which is not installed: pip install 'algocc[plot]'")


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        return find_spec("matplotlib") is not None
    except ValueError:  # it is there, but not as a package
        return False


def picture(scene: Scene, form: str) -> bytes:
    """The picture as a file; form: one of `FORMS`."""
    if form.lower() == ".html":
        return page(scene).encode()
    return figure.image(scene, form.lower().removeprefix("."))
