"""What fits into a picture, and in which words the rest is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from algocc.errors import UsageError
from algocc.table import Schedule

MOST_RANKS = 64
"""Ranks that a picture can show."""
MOST_WRITES = 20_000
"""Chunks moved in a whole schedule beyond which it is not followed."""
MOST_ARROWS = 2_000
"""Arrows in one picture."""
MOST_STEPS = 64
"""Steps in one picture."""
MOST_CELLS = 4_096
"""Cells in the heat map of one step."""


class View(NamedTuple):
    """What is asked for: the first and the last step, and the numbers of the chunks written; None and empty for all."""

    steps: tuple[int, int] | None = None
    chunks: Collection[int] = ()


def check_size(s: Schedule) -> None:
    """Raise UsageError for a schedule that no picture can show."""
    if s.n > MOST_RANKS:
        raise UsageError(f"{s.name}: {s.n} ranks: a picture shows at most {MOST_RANKS}; draw it for a smaller n")
    writes = int(np.maximum(s.count, 1).sum(dtype=np.int64))
    if writes > MOST_WRITES or len(s.step_start) > MOST_WRITES:
        raise UsageError(
            f"{s.name}: it moves {writes} chunks in {len(s.step_start) - 1} steps, and a picture follows at most "
            f"{MOST_WRITES}; draw it for fewer ranks or chunks"
        )


class Move(NamedTuple):
    """What of a write decides whether it is drawn."""

    step: int
    chunk: int
    local: bool


def fitting(
    s: Schedule, moves: Sequence[Move], view: View, wrong: int | None
) -> tuple[range, tuple[int, ...], list[str]]:
    """The steps shown, which of the moves are drawn, and what is left out in words.

    wrong: the step that goes wrong, which is only left out if other steps are asked for.

    Raises UsageError for a step or chunk that does not exist, or a step that has too much in it.
    """
    count = len(s.step_start) - 1
    first, last = view.steps or (0, count - 1)
    if view.steps and not 0 <= first <= last < count:
        raise UsageError(f"--step {first}..{last}: {s.name} has steps 0..{count - 1}")
    known = {move.chunk for move in moves}
    for chunk in view.chunks:
        if chunk not in known:
            raise UsageError(f"--chunk {chunk}: {s.name} writes to no such chunk; to {_list(known)}")
    wanted = [i for i, m in enumerate(moves) if first <= m.step <= last and (not view.chunks or m.chunk in view.chunks)]
    left_out = []
    if len(wanted) > MOST_ARROWS and any(moves[i].local for i in wanted):
        wanted = [i for i in wanted if not moves[i].local]
        left_out.append("what is copied within a rank is not shown")
    arrows = Counter(moves[i].step for i in wanted)
    shown = _prefix(s.name, arrows, first, last)
    if wrong is not None and not view.steps and wrong not in shown:
        shown = _prefix(s.name, arrows, max(0, wrong - len(shown) // 2), last)
        shown = shown if wrong in shown else _prefix(s.name, arrows, wrong, last)
    if len(shown) < count:
        which = f"only step {shown.start} is" if len(shown) == 1 else f"only {shown.start}..{shown.stop - 1} are"
        left_out.append(f"of steps 0..{count - 1}, {which} shown; --step chooses others")
    if view.chunks:
        left_out.append(f"only transfers into chunk {_list(view.chunks)} are shown; what ranks hold is that of all")
    return shown, tuple(i for i in wanted if moves[i].step in shown), left_out


def _prefix(name: str, arrows: Counter[int], first: int, last: int) -> range:
    """As many steps from the first on as fit into one picture."""
    end, room = first, MOST_ARROWS
    while end <= last and end - first < MOST_STEPS and arrows[end] <= room:
        room -= arrows[end]
        end += 1
    if room == MOST_ARROWS and end <= last and arrows[end] > room:
        raise UsageError(
            f"{name}: step {end} alone moves {arrows[end]} chunks, and a picture shows at most {MOST_ARROWS}; "
            "choose some with --chunk, or draw it for fewer ranks or chunks"
        )
    return range(first, end)


def _list(numbers: Collection[int]) -> str:
    shown = sorted(numbers)
    return ", ".join(map(str, shown[:12])) + (f", … {shown[-1]}" if len(shown) > 12 else "")
