"""The words of an invariant: "after s steps, chunk c on rank r holds the contributions of ranks …".

An invariant is written beside its rule and handed to `Steps.rule(…, invariant=…)`: a function of (rank, chunk, step,
n) that says what `chunk` on `rank` holds after `step` steps of the rule. It is `Holds(…)`, `FINISHED` or `ANYTHING`;
like the rule it works on ints and on symbols, and may branch on them. It speaks of the buffer that the rule writes;
a dict, as in `{"out": f, "scratch": g}`, speaks of several. `algocc prove` shows it true for every n.

    >>> def collected(rank, chunk, step, n):     # ring ReduceScatter: block b sets out from rank b + 1
    ...     hops = (rank - chunk - 1) % n
    ...     return Holds(up_to(rank, hops + 1 if hops <= step else 1, n))
    >>> shown(collected(rank=2, chunk=0, step=0, n=4), n=4, chunk=0), shown(collected(2, 0, 1, 4), 4, 0)
    ('chunk 0 of ranks {2}', 'chunk 0 of ranks {1, 2}')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Ranks = Callable[[Any], Any]
"""A set of ranks, as the question whether a rank is in it."""


class Word(Enum):
    """What an invariant may say besides `Holds`."""

    FINISHED = "what the collective wants in this place"
    ANYTHING = "anything, or nothing yet: it is not read before it is overwritten"


FINISHED, ANYTHING = Word.FINISHED, Word.ANYTHING


@dataclass(frozen=True)
class Holds:
    """The reduction of one input chunk of some ranks, each taken once.

    ranks: which ranks.
    of: which chunk of their inputs; if None, the one with the number of the place.
    """

    ranks: Ranks
    of: Any = None


Claim = Holds | Word
Invariant = Callable[..., Claim]
Invariants = Invariant | Mapping[str, Invariant] | None


def only(rank: Any) -> Ranks:
    """This rank alone."""
    return lambda p: p == rank


def everyone(p: Any) -> Any:
    """All ranks."""
    return p == p


def up_to(rank: Any, count: Any, n: Any) -> Ranks:
    """The `count` ranks around the ring that end with `rank`."""
    return lambda p: (rank - p) % n < count


def onward(rank: Any, count: Any, n: Any) -> Ranks:
    """The `count` ranks around the ring that begin with `rank`."""
    return lambda p: (p - rank) % n < count


def sharing(rank: Any, size: Any) -> Ranks:
    """The ranks of the aligned block of `size` neighbours that `rank` is in: those with the same high bits."""
    return lambda p: p // size == rank // size


def agreeing(rank: Any, size: Any) -> Ranks:
    """The ranks that leave the same remainder modulo `size` as `rank`: those with the same low bits."""
    return lambda p: p % size == rank % size


def shown(claim: Claim, n: int, chunk: int) -> str:
    """A claim about given numbers, in words."""
    if not isinstance(claim, Holds):
        return claim.value
    ranks = ", ".join(str(p) for p in range(n) if claim.ranks(p))
    return f"chunk {chunk if claim.of is None else claim.of} of ranks {{{ranks}}}"
