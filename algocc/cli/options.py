"""What commands take: numbers of ranks, sizes, parameters of schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import click

from algocc.errors import UsageError

MOST_RANKS = 1 << 20
"""Ranks beyond which a number is taken for a slip."""


def rank_count(text: str) -> int:
    """The number of ranks that -n gives."""
    text = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise UsageError(f"-n {text}: wanted a number of ranks, as in 8; verify also takes 2..64 and 2,4,8")
    if not 1 <= int(text) <= MOST_RANKS:
        raise UsageError(f"-n {text}: the number of ranks is a whole number of 1 to {MOST_RANKS}")
    return int(text)


def rank_counts(text: str) -> list[int]:
    """The numbers that -n gives where it takes several, in the order given.

    >>> rank_counts("8,2..5,3")
    [8, 2, 3, 4, 5]
    """
    found: list[list[int]] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first or (dots and not last):
            raise UsageError(f"-n {text}: wanted numbers of ranks, as in 8, 2..64 or 2,4,8")
        low = rank_count(first)
        high = rank_count(last) if dots else low
        if high < low:
            raise UsageError(f"-n {part}: a range goes up, as in {high}..{low}")
        found.append(list(range(low, high + 1)))
    return _distinct(found)


def _distinct(lists: Iterable[list[int]]) -> list[int]:
    """The numbers of all lists in the order given, each once."""
    return list(dict.fromkeys(chain.from_iterable(lists)))


def byte_count(text: str) -> int:
    """A number of bytes, with K, M, G, T, P or E for powers of 1024.

    >>> byte_count("64M"), byte_count("1.5KiB")
    (67108864, 1536)
    """
    found = re.fullmatch(r"(\d+)(\.\d+)?([KMGTPE]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"--size {text}: wanted a number of bytes, as in 4096, 64K, 64M or 1.5G")
    whole, part, unit = found.groups(default="")
    factor: int = 1024 ** " KMGTPE".index(unit.upper() or " ")
    return int(whole) * factor + int(float(part or 0) * factor)


def parameter(text: str) -> tuple[str, Any]:
    """`key=value` for the schedule; the value is JSON, or a plain word.

    >>> parameter("root=2"), parameter("shape=[2,4]"), parameter("way=up")
    (('root', 2), ('shape', [2, 4]), ('way', 'up'))
    """
    key, equals, word = text.partition("=")
    if not equals or not key.strip().isidentifier():
        raise UsageError(f"-p {text}: wanted key=value, as in root=2")
    if key.strip() == "n":
        raise UsageError(f"-p {text}: the number of ranks is no parameter: give it as -n {word.strip()}")
    try:
        return key.strip(), json.loads(word)
    except json.JSONDecodeError:
        return key.strip(), word


Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]

schedule: Wrapper = click.argument("schedule")
one_n: Wrapper = click.option(
    "-n", "n", type=rank_count, metavar="N", help="Number of ranks; a table has its own."
)  # fmt: skip
several_n: Wrapper = click.option(
    "-n", "ns", type=rank_counts, metavar="N", multiple=True, callback=lambda _, __, given: _distinct(given) or None,
    help="Number of ranks, a range 2..64 or a list 2,4,8; repeatable; a table has its own.",
)  # fmt: skip
params: Wrapper = click.option(
    "-p", "params", type=parameter, metavar="KEY=VALUE", multiple=True,
    help="A parameter of the schedule, as in root=2; repeatable.",
)  # fmt: skip
in_place: Wrapper = click.option("--in-place", is_flag=True, help="Inputs and outputs share memory.")
lanes: Wrapper = click.option(
    "--lanes", type=click.IntRange(min=1), default=1, show_default=True, help="Lanes of each rank."
)  # fmt: skip
as_json: Wrapper = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def device_numbers(text: str) -> list[int]:
    """The devices that --devices gives.

    >>> device_numbers("0,1,1")
    [0, 1, 1]
    """
    if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", text.strip()):
        raise UsageError(f"--devices {text}: wanted the device of each rank, as in 0,1,2,3, or one for all")
    return [int(part) for part in text.split(",")]


devices: Wrapper = click.option(
    "--devices", type=device_numbers, metavar="LIST",
    help="With cuda, the GPU of each rank, or one for all; if not given, one each, or all on GPU 0.",
)  # fmt: skip

protocol: Wrapper = click.option(
    "--protocol", type=click.Choice(("auto", "simple", "ll", "ll128")),
    help="With cuda, how ranks tell each other of data: by counters (simple, the default), or by flags beside it.",
)  # fmt: skip
