"""Where the files are."""

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    """The folder of fixtures/ and public/."""
    return DATA
