"""Which schedule serves a call if the caller names none: a table by collective, ranks and size, measured or shipped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from algocc.errors import UsageError

Rows = list[tuple[int, str]]
"""(most bytes of the larger buffer, or 0 for any size; schedule, its parameters after it as in `name radix=n`)."""

SHIPPED: dict[str, Rows] = {
    "all_reduce": [(16 << 10, "one_shot"), (0, "two_shot")],
    "reduce_scatter": [(0, "all_pairs_reduce_scatter")],
    "all_gather": [(0, "all_pairs_all_gather")],
    "broadcast": [(0, "knomial_broadcast radix=n")],
    "reduce": [(0, "knomial_reduce radix=n")],
    "scatter": [(0, "direct_scatter")],
    "gather": [(0, "direct_gather")],
    "all_to_all": [(0, "direct_all_to_all")],
    "scan": [(0, "log_step_scan")],
    "exscan": [(0, "log_step_exscan")],
}
"""For ranks that share memory: as few steps as can be, since a step costs more than the bytes."""

BETWEEN_NODES: dict[str, Rows] = {
    "all_reduce": [(16 << 10, "recursive_doubling"), (0, "hierarchical_all_reduce group=group")],
    "reduce_scatter": [(0, "hierarchical_reduce_scatter group=group")],
    "all_gather": [(0, "hierarchical_all_gather group=group")],
    "broadcast": [(0, "binomial_broadcast")],
    "reduce": [(0, "binomial_reduce")],
    "scatter": [(0, "binomial_scatter")],
    "gather": [(0, "binomial_gather")],
    "all_to_all": [(0, "two_level_all_to_all group=group")],
}
"""For ranks on several nodes; group is the ranks of a node, where all have as many and in order."""


def table_file() -> Path:
    """Where `algocc tune` writes its table: $ALGOCC_TUNING, or a file in the user's cache directory."""
    named = os.environ.get("ALGOCC_TUNING")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "algocc" / "tuning.json"


@cache
def tuned() -> Mapping[str, Mapping[str, Rows]]:
    """The table of `algocc tune`, by number of ranks, then collective; empty if there is none.

    Raises UsageError if the file is there and makes no sense.
    """
    path = table_file()
    try:
        raw = json.loads(path.read_text())
        return {
            str(int(n)): {c: [(int(most), str(name)) for most, name in rows] for c, rows in table.items()}
            for n, table in raw["ranks"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a table of `algocc tune` ({type(error).__name__}); delete it or tune again") from error


def choose(collective: str, size: int, n: int, table: Mapping[str, Mapping[str, Rows]], group: int = 0) -> str:
    """The schedule for a larger buffer of `size` bytes; bounds are inclusive.

    table: as `tuned` gives it.
    group: ranks of a node, 0 if all share memory.

    >>> choose("all_reduce", 8, 4, {}), choose("all_reduce", 1 << 20, 4, {})
    ('one_shot', 'two_shot')
    """
    rows = table.get(str(n), {}).get(collective) if not group else BETWEEN_NODES.get(collective)
    rows = rows or SHIPPED.get(collective, [])
    for most, name in rows:
        if size <= most or most == 0:
            return name
    if not rows:
        raise UsageError(f"no schedule is known for {collective}: name one")
    return rows[-1][1]


def parse(choice: str, n: int, group: int = 0) -> tuple[str, dict[str, Any]]:
    """The name and parameters of a choice; `n` (2 for a single rank, as a radix must be) and `group` stand for their values.

    >>> parse("knomial_reduce radix=n", 8)
    ('knomial_reduce', {'radix': 8})
    """
    name, *words = choice.split()
    known = {"n": max(n, 2), "group": group}
    params = {}
    for word in words:
        key, _, value = word.partition("=")
        params[key] = known[value] if value in known else json.loads(value)
    return name, params
