"""Hypothesis profiles: no deadlines (the first call of a kernel compiles it); in CI the same examples every time."""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
