"""A schedule whose names are an attack, and a real browser where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from algocc.collective import all_reduce
from algocc.steps import Steps
from algocc.table import Schedule

ATTACK = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>&amp;${data}$\\frac$\x1b[0m\ud800"
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture
def hostile() -> Schedule:
    """Its names try to be markup, scripts, formulae and escapes; it is wrong, so they are in the failure too."""
    s = Steps(all_reduce(3), name=ATTACK)
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
    made = s.build()
    return replace(made, origins=tuple(ATTACK for _ in made.origins))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Headless Chromium with an empty profile."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra `test`, is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """`open_page(html)`: the page, offline; in the end it must have said nothing on its console."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900}, offline=True)
    said: list[str] = []

    def opened(html: str) -> Any:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        return page

    yield opened
    context.close()
    assert said == []
