"""Exact lower bounds on rounds, volume and reduction work, for every collective, rank count and port count.

Volumes and work are Fractions of m, the full vector, never floats. m is one rank's vector in AllReduce,
Broadcast, Reduce, Scan, Exscan and SendRecv; n blocks of m/n in AllGather, ReduceScatter, Gather, Scatter and
AllToAll; the largest input or output of any rank in AllToAllV.

Each number is a bound of its own: a schedule that attains one may have to miss another. AllToAll in the
fewest rounds, say, sends more than the least volume.

Sources: Bruck, Ho, Kipnis, Upfal and Weathersby 1997 (rounds, k ports); Bar-Noy and Ho 1999 (Broadcast of
many blocks, k ports); Harary and Schwenk 1974 (one-way gossip takes 2n-2 calls); Patarasuk and Yuan 2009
(AllReduce volume); König 1916 (a bipartite multigraph needs as many edge colours as its largest degree).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from operator import index
from typing import NamedTuple, SupportsIndex

from algocc.errors import UsageError, counted, near

MODEL = (
    "semigroup, point to point: in a round a rank sends at most `ports` messages and receives at most "
    "`ports`, reading the state before the round; a message carries at most m/blocks, each word of it a "
    "reduction of contributions to one element (no coding); only ranks reduce (no switch reduction)"
)

Counts = Iterable[Iterable[SupportsIndex]]


@dataclass(frozen=True)
class Bound:
    """What no schedule of a collective can beat; `reasons` says why, a sentence for each of the five numbers.

    >>> b = bound("all_reduce", 6)
    >>> b.rounds, str(b.sent), str(b.reduced), str(b.reduced_total)
    (3, '5/3', '5/6', '5')
    >>> print(b.reasons["rounds"])
    data of one rank meets 6 ranks, at most 2 times as many after each round: ceil(log_2 6) = 3
    """

    collective: str
    n: int
    ports: int
    blocks: int
    rounds: int  # no schedule takes fewer
    sent: Fraction  # of m, by some rank, at least
    received: Fraction  # of m, by some rank, at least
    reduced: Fraction  # work of some rank, at least; 1 is a binary reduction of each element of m
    reduced_total: Fraction  # work of all ranks together, at least
    reasons: dict[str, str] = field(compare=False, repr=False)
    model: str = field(default=MODEL, repr=False)

    @property
    def volume(self) -> Fraction:
        """The busiest direction of the busiest rank.

        >>> str(bound("gather", 8).volume)
        '7/8'
        """
        return max(self.sent, self.received)


Share = tuple[int, int]  # (a, b) is a + b/n, for n >= 2
_NONE, _WHOLE, _BLOCK, _OTHERS, _TWICE = (0, 0), (1, 0), (0, 1), (1, -1), (2, -2)


class _Row(NamedTuple):
    """A collective: shares of m that the busiest rank sends, receives and reduces, and why."""

    sent: Share
    why_sent: str
    received: Share
    why_received: str
    reduced: Share = _NONE
    streams: bool = False  # all of m goes from one rank to each other one, or from each other one into one
    reach: int | None = None  # ranks that meet data of one rank, itself included, if not all n


_MEAN = "ranks send and receive the same in all, so the busiest at least 1/n of it: "
_GOSSIP = f"{_MEAN}an element takes n-1 messages until one rank holds its result, then n-1 to the other ranks"
_OUT = "each rank holds n-1 blocks, or contributions to them, for other ranks"
_IN = "each rank lacks n-1 blocks of its output"
_FROM_0, _INTO_LAST = "each element of rank 0 leaves it", "rank n-1 lacks part of each element of its output"

_TABLE = {
    "all_gather": _Row(_OTHERS, f"{_MEAN}each rank receives n-1 blocks", _OTHERS, _IN),
    "all_reduce": _Row(_TWICE, _GOSSIP, _TWICE, _GOSSIP, _OTHERS, streams=True),
    "all_to_all": _Row(_OTHERS, _OUT, _OTHERS, _IN),
    "all_to_all_v": _Row(
        _NONE, "heaviest row: what leaves that rank", _NONE, "heaviest column: what enters it"
    ),
    "barrier": _Row(_NONE, "a token carries no data", _NONE, "a token carries no data"),
    "broadcast": _Row(
        _WHOLE, "each element leaves the root", _WHOLE, "each other rank receives m", streams=True
    ),
    "exscan": _Row(_WHOLE, _FROM_0, _WHOLE, _INTO_LAST, (1, -2), streams=True),
    "gather": _Row(_BLOCK, "each other rank's block leaves it", _OTHERS, "the root lacks n-1 blocks"),
    "reduce": _Row(
        _WHOLE, "each other rank's m leaves it", _WHOLE, "the root lacks part of each element", _OTHERS, True
    ),
    "reduce_scatter": _Row(_OTHERS, _OUT, _OTHERS, f"{_MEAN}each rank sends n-1 blocks", _OTHERS),
    "scan": _Row(_WHOLE, _FROM_0, _WHOLE, _INTO_LAST, _OTHERS, streams=True),
    "scatter": _Row(_OTHERS, "n-1 blocks leave the root", _BLOCK, "each other rank receives its block"),
    "send_recv": _Row(_WHOLE, "m leaves its source", _WHOLE, "m enters another rank", reach=2),
}

COLLECTIVES = tuple(_TABLE)
_REASONED = ("rounds", "sent", "received", "reduced", "reduced_total")
_NOTHING = (Fraction(0), Fraction(0), Fraction(0), Fraction(0))


def canonical(name: str) -> str:
    """The name in `COLLECTIVES`, whatever its case, hyphens, underscores and spaces.

    Raises UsageError with the nearest names.

    >>> canonical("AllReduce"), canonical("all-to-all")
    ('all_reduce', 'all_to_all')
    """
    plain = str(name).lower().translate(dict.fromkeys(map(ord, "-_ ")))
    for known in COLLECTIVES:
        if plain == known.replace("_", ""):
            return known
    raise UsageError(
        f"unknown collective {name!r}{near(plain, COLLECTIVES)}; known: {', '.join(COLLECTIVES)}"
    )


def bound(
    collective: str, n: int, *, ports: int = 1, blocks: int | None = None, counts: Counts | None = None
) -> Bound:
    """The lower bounds of a collective, in any spelling `canonical` knows, on n ranks.

    ports: messages that a rank can send, and receive, in a round.
    blocks: m is cut into so many, and a message carries at most one; 1 if None.
    counts: what rank i (row) holds for rank j (column), n x n; AllToAllV needs it. SendRecv takes it too;
        without it, each source sends one vector to another rank and no rank is in two pairs of one kind.

    On one rank everything is 0. Raises UsageError for an unknown name or an argument out of range.

    >>> bound("broadcast", 9, blocks=4).rounds, bound("broadcast", 9, blocks=4, ports=2).rounds
    (7, 4)
    >>> b = bound("all_to_all_v", 3, counts=[[1, 5, 0], [0, 0, 2], [3, 0, 0]])
    >>> b.rounds, str(b.sent), str(b.received)
    (1, '5/6', '5/6')
    """
    name = canonical(collective)
    n, ports = _positive("n", n), _positive("ports", ports)
    blocks = 1 if blocks is None else _positive("blocks", blocks)
    row = _TABLE[name]
    sent, received, reduced = (a + Fraction(b, n) for a, b in (row.sent, row.received, row.reduced))
    reach = row.reach or n
    if counts is not None and name in ("all_to_all_v", "send_recv"):
        row = _TABLE["all_to_all_v"]
        sent, received, reach = _counted(name, _matrix(counts), n)
    elif counts is not None:
        raise UsageError(f"bound of {name}: counts are given, only all_to_all_v and send_recv have any")
    elif name == "all_to_all_v":
        raise UsageError(f"bound of {name}: no counts; give {n} rows of {n}, what rank i holds for rank j")
    if n == 1:
        reasons = dict.fromkeys(_REASONED, "one rank has it all")
        return Bound(name, n, ports, blocks, 0, *_NOTHING, reasons)
    total = n * reduced
    rounds, why_rounds = _rounds(reach, max(sent, received), ports, blocks, row.streams)
    merges = f"an output merges {total + 1} contributions, which takes {total} binary reductions"
    mean = f"the busiest rank does at least 1/{n} of all the work"
    works = (mean, merges) if total else ("no output needs any",) * 2
    reasons = dict(zip(_REASONED, (why_rounds, row.why_sent, row.why_received, *works), strict=True))
    return Bound(name, n, ports, blocks, rounds, sent, received, reduced, total, reasons)


def edge_coloring_rounds(counts: Counts, *, ports: int = 1) -> int:
    """Rounds of an AllToAllV in one-unit messages: its heaviest row or column over ports, rounded up.

    Not fewer: each unit off the diagonal leaves its source and enters its destination. Not more: by König the
    bipartite multigraph of sources and destinations has an edge colouring with as many colours as its
    heaviest row or column; a colour is what one port of every rank does in one round.

    >>> edge_coloring_rounds([[9, 2, 2], [1, 0, 3], [1, 1, 0]])
    5
    >>> edge_coloring_rounds([[0, 5], [1, 0]], ports=2)
    3
    """
    rows, columns = _moved(_matrix(counts))
    return -(-max(map(sum, rows + columns), default=0) // _positive("ports", ports))


def _ceil_log(x: int, base: int) -> int:
    """The least t >= 0 with base**t >= x, for base >= 2.

    >>> _ceil_log(2**40, 2), _ceil_log(2**40 + 1, 2)
    (40, 41)
    """
    t, power = 0, 1
    while power < x:
        t, power = t + 1, power * base
    return t


def _stream_rounds(n: int, ports: int, blocks: int) -> int:
    """Rounds to bring m from one of n >= 2 ranks to each other one, or from each other one into one.

    Let k = ports. The n-1 other ranks receive blocks * (n-1) messages or more. In round t at most (k+1)**(t-1)
    ranks hold anything, and each sends k messages; n-1 ranks receive, k each. So in T rounds

        blocks * (n-1) <= sum over t = 1..T of min(k (k+1)**(t-1), k (n-1)).

    The first e = ceil(log_{k+1}(n-1)) terms sum to (k+1)**e - 1, each later one is k (n-1); solve for T. With
    one port that is blocks - 1 + ceil(log_2 n), with one block ceil(log_{k+1} n).

    Into one rank, n-1 ranks send all of m, k messages each a round, to ranks that can pass it on in the rounds
    left: (k+1)**(T-t) of them, that receive k messages each. The same sum, backwards.

    >>> _stream_rounds(8, 1, blocks=5), _stream_rounds(9, 2, blocks=5)
    (7, 4)
    """
    e = _ceil_log(n - 1, ports + 1)
    early: int = ((ports + 1) ** e - 1) // (n - 1)
    return e - (early - blocks) // ports


def _rounds(reach: int, volume: Fraction, ports: int, blocks: int, streams: bool) -> tuple[int, str]:
    """The strongest of the arguments that apply, and its sentence; of equals, the simplest."""
    k = ports
    spread, loaded = _ceil_log(reach, k + 1), -(-blocks * volume // k)
    met = f"data of one rank meets {counted(reach, 'rank')}, at most {k + 1} times as many after each round"
    options = [
        (spread, f"{met}: ceil(log_{k + 1} {reach}) = {spread}"),
        (loaded, f"the busiest rank moves {volume} m in messages of m/{blocks}, at most {k} a round"),
    ]
    if streams:
        carried = f"{counted(blocks * (reach - 1), 'message')} of m/{blocks}"
        why = f"{carried}, of which round t moves at most {k} min({k + 1}^(t-1), {reach - 1})"
        options.append((_stream_rounds(reach, ports, blocks), why))
    return max(options, key=lambda option: option[0])


def _counted(name: str, counts: list[list[int]], n: int) -> tuple[Fraction, Fraction, int]:
    """Shares sent and received, and the most ranks that one rank sends to or receives from, itself included."""
    if len(counts) != n:
        raise UsageError(f"bound of {name}: counts of {len(counts)} ranks, wanted n={n} rows of {n}")
    rows, columns = _moved(counts)
    m = max(map(sum, [*counts, *zip(*counts, strict=True)])) or 1
    degree = max(sum(map(bool, line)) for line in rows + columns)
    return Fraction(max(map(sum, rows)), m), Fraction(max(map(sum, columns)), m), degree + 1


def _moved(counts: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Rows and columns without the diagonal: what a rank keeps doesn't travel."""
    rows = [[0 if i == j else count for j, count in enumerate(row)] for i, row in enumerate(counts)]
    return rows, [list(column) for column in zip(*rows, strict=True)]


def _matrix(counts: Counts) -> list[list[int]]:
    try:
        rows = [[index(count) for count in row] for row in counts]
    except TypeError as error:
        raise UsageError(f"counts: {error}, wanted a square matrix of whole numbers, a row a rank") from error
    for i, row in enumerate(rows):
        if len(row) != len(rows):
            raise UsageError(f"counts: row {i} has {len(row)} entries, wanted {len(rows)}, as there are rows")
        if min(row) < 0:
            raise UsageError(f"counts: row {i}, column {row.index(min(row))} is {min(row)}, wanted 0 or more")
    return rows


def _positive(what: str, value: SupportsIndex) -> int:
    try:
        number = index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise UsageError(f"bound: {what}={value!r}, wanted a whole number of 1 or more")
    return number
