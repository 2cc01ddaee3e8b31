"""Sizes, times and rates, as people write and read them."""

from __future__ import annotations

import re
from fractions import Fraction

import click

from algocc.errors import UsageError

NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)"
UNITS = {"": 0, "s": 0, "ms": 3, "us": 6, "µs": 6, "ns": 9, "ps": 12}
SCALES = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12}
"""Powers of ten: of parts of a second, of bytes or bits."""


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    """The value of an option that takes seconds."""
    return None if value is None else _amount(param.opts[0], value, "seconds, as in 5e-6 or 5us")


def per_byte(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    """The value of an option that takes seconds for a byte, or a rate."""
    if value is None:
        return None
    found = re.fullmatch(rf"{NUMBER} *([kKMGT]?)([Bb])/s", value.strip())
    if found and (rate := Fraction(found[1])):
        return (8 if found[3] == "b" else 1) / (rate * Fraction(10) ** SCALES[found[2]])
    return _amount(param.opts[0], value, "seconds for a byte, as in 4e-11 or 40ps, or a rate, as in 25GB/s or 200Gb/s")


def _amount(option: str, value: str, wanted: str) -> Fraction:
    """Seconds, exactly as written; the units are seconds and parts of them."""
    found = re.fullmatch(rf"{NUMBER} *(s|ms|us|µs|ns|ps|)", value.strip())
    if not found:
        raise UsageError(f"{option} {value}: wanted {wanted}, 0 or more")
    return Fraction(found[1]) / Fraction(10) ** UNITS[found[2]]


def size(m: Fraction | float) -> str:
    """Bytes for people.

    >>> size(Fraction(100)), size(Fraction(3 * 2**19)), size(Fraction(1000000, 7))
    ('100', '1.5M', '139.5K')
    """
    value = float(m)
    for unit in ("", "K", "M", "G", "T", "P"):
        if value < 1023.95 or unit == "P":
            break
        value /= 1024
    return f"{value:.4g}{unit}"


def time(seconds: Fraction | float) -> str:
    """Seconds for people.

    >>> time(Fraction(5, 10**6)), time(0), time(Fraction(1, 3))
    ('5 us', '0 us', '333.3 ms')
    """
    value = float(seconds)
    for scale, unit in ((1e-6, "us"), (1e-3, "ms"), (1.0, "s")):
        if value < 999.95 * scale or unit == "s":
            break
    return f"{value / scale:.4g} {unit}"


def rate(seconds: Fraction) -> str:
    """Seconds a byte, as bytes a second.

    >>> rate(Fraction(1, 25 * 10**9)), rate(Fraction(0))
    ('1/(25 GB/s)', '0')
    """
    return f"1/({float(1 / seconds) / 1e9:.4g} GB/s)" if seconds else "0"
