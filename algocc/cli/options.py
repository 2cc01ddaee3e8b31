"""What commands take: numbers of ranks, sizes, parameters of schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import click

from algocc.errors import UsageError

MOST_RANKS = 1 << 20
"""Ranks beyond which a number is taken for a slip."""


class Ranks(click.ParamType):
    """A number of ranks; with `several`, also ranges a..b and lists of both, as a list in the order given."""

    name = "n"

    def __init__(self, *, several: bool = False) -> None:
        self.several = several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if not self.several:
            return _rank_count(value)
        return list(dict.fromkeys(n for part in value.split(",") for n in _ranks(part)))


def _ranks(part: str) -> range:
    first, dots, last = part.strip().partition("..")
    low = _rank_count(first)
    high = _rank_count(last) if dots else low
    if high < low:
        raise UsageError(f"-n {part}: a range goes up, as in {high}..{low}")
    return range(low, high + 1)


def _rank_count(text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise UsageError(f"-n {text}: wanted a number of ranks, as in 8; verify also takes 2..64 and 2,4,8")
    if not 1 <= int(text) <= MOST_RANKS:
        raise UsageError(f"-n {text}: the number of ranks is a whole number of 1 to {MOST_RANKS}")
    return int(text)


class Size(click.ParamType):
    """A number of bytes, with K, M, G or T for powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"(\d+|\d*\.\d+)([KMGTPE]?)(?:i?B)?", value.strip(), re.IGNORECASE)
        if not found:
            raise UsageError(f"--size {value}: wanted a number of bytes, as in 4096, 64K, 64M or 1.5G")
        number, unit = found.groups()
        factor = 1024 ** (" KMGTPE".index(unit.upper()) if unit else 0)
        return int(float(number) * factor) if "." in number else int(number) * factor


class Parameter(click.ParamType):
    """`key=value` for the schedule; the value is JSON, or a plain word."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        key, equals, word = value.partition("=")
        if not equals or not key.strip().isidentifier():
            raise UsageError(f"-p {value}: wanted key=value, as in root=2")
        try:
            return key.strip(), json.loads(word)
        except json.JSONDecodeError:
            return key.strip(), word


Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]

schedule: Wrapper = click.argument("schedule")
one_n: Wrapper = click.option("-n", "n", type=Ranks(), help="Number of ranks; a table has its own.")
several_n: Wrapper = click.option(
    "-n", "ns", type=Ranks(several=True), help="Number of ranks, a range 2..64 or a list 2,4,8; a table has its own."
)
params: Wrapper = click.option(
    "-p", "params", type=Parameter(), multiple=True, help="A parameter of the schedule, as in root=2; repeatable."
)
in_place: Wrapper = click.option("--in-place", is_flag=True, help="Inputs and outputs share memory.")
lanes: Wrapper = click.option("--lanes", type=click.IntRange(min=1), default=1, show_default=True, help="Lanes of each rank.")
as_json: Wrapper = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
