"""The bounds table: laws for all n, brute-force searches for tiny n, the published values, the errors.

The searches share nothing with `algocc.bounds`: they walk all states that any schedule can reach.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from algocc.bounds import COLLECTIVES, MODEL, Bound, bound, canonical, edge_coloring_rounds
from algocc.collective import COLLECTIVES as DEFINED
from algocc.collective import collective
from algocc.errors import UsageError

UNIFORM = [name for name in COLLECTIVES if name != "all_to_all_v"]
SPREADING = [name for name in UNIFORM if name != "send_recv"]
NUMBERS = ("rounds", "sent", "received", "reduced", "reduced_total")

untimed = settings(deadline=None)
names = st.sampled_from(UNIFORM)
ranks = st.integers(1, 300)
ports = st.integers(1, 9)
blocks = st.integers(1, 60)


@st.composite
def matrices(draw: st.DrawFn, most: int = 6, count: int = 9) -> list[list[int]]:
    n = draw(st.integers(1, most))
    entry = st.integers(0, count) | st.just(0)
    return draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=n, max_size=n))


# Laws.


@untimed
@given(names, ranks, ranks, ports, blocks)
def test_more_ranks_are_never_cheaper(name: str, a: int, b: int, k: int, cut: int) -> None:
    few, many = (bound(name, n, ports=k, blocks=cut) for n in sorted((a, b)))
    for number in ("rounds", "volume", "reduced", "reduced_total"):
        assert getattr(few, number) <= getattr(many, number)


@untimed
@given(names, ranks, ports, ports, blocks)
def test_more_ports_never_take_more_rounds_and_change_no_volume(
    name: str, n: int, a: int, b: int, cut: int
) -> None:
    few, many = (bound(name, n, ports=k, blocks=cut) for k in sorted((a, b)))
    assert few.rounds >= many.rounds >= -(-few.rounds // max(a, b))
    assert [getattr(few, x) for x in NUMBERS[1:]] == [getattr(many, x) for x in NUMBERS[1:]]


@untimed
@given(names, ranks, ports, blocks, blocks)
def test_smaller_messages_never_take_fewer_rounds(name: str, n: int, k: int, a: int, b: int) -> None:
    few, many = (bound(name, n, ports=k, blocks=cut) for cut in sorted((a, b)))
    assert few.rounds <= many.rounds


@untimed
@given(names, ranks, ports)
def test_one_block_is_the_whole_vector(name: str, n: int, k: int) -> None:
    b = bound(name, n, ports=k)
    assert b == bound(name, n, ports=k, blocks=1) and hash(b) == hash(bound(name, n, ports=k, blocks=1))


@untimed
@given(names, ranks, ports, blocks)
def test_values_are_exact_and_explained(name: str, n: int, k: int, cut: int) -> None:
    b = bound(name, n, ports=k, blocks=cut)
    assert (b.collective, b.n, b.ports, b.blocks, b.model) == (name, n, k, cut, MODEL)
    assert type(b.rounds) is int
    for number in (*NUMBERS[1:], "volume"):
        value = getattr(b, number)
        assert type(value) is Fraction and value >= 0
        assert value.denominator > 0 and math.gcd(value.numerator, value.denominator) == 1
    assert b.volume in (b.sent, b.received) and b.volume >= b.sent and b.volume >= b.received
    assert b.reduced * n == b.reduced_total
    assert tuple(b.reasons) == NUMBERS and all(b.reasons.values())


@untimed
@given(names, ports, blocks)
def test_one_rank_has_nothing_to_do(name: str, k: int, cut: int) -> None:
    b = bound(name, 1, ports=k, blocks=cut)
    assert [getattr(b, number) for number in NUMBERS] == [0] * 5


@untimed
@given(st.sampled_from(SPREADING), st.integers(1, 64), st.integers(1, 12), st.sampled_from([-1, 0, 1]))
@example("all_reduce", 40, 1, -1)
@example("all_reduce", 40, 1, 0)
@example("all_reduce", 40, 1, 1)
@example("broadcast", 34, 2, 1)
def test_rounds_are_exact_around_powers(name: str, t: int, k: int, off: int) -> None:
    n = (k + 1) ** t + off
    if n >= 1:
        smallest = next(r for r in itertools.count() if (k + 1) ** r >= n)
        assert bound(name, n, ports=k).rounds == smallest
        assert smallest == (t + 1 if off == 1 else t - 1 if off == -1 and k == t == 1 else t)


@untimed
@given(st.integers(2, 10**15), ports, blocks, st.sampled_from(["broadcast", "reduce", "scan", "exscan"]))
def test_a_stream_is_the_smallest_sum_that_carries_all_blocks(n: int, k: int, cut: int, name: str) -> None:
    rounds, moved = 0, 0
    while moved < cut * (n - 1):
        moved += min(k * (k + 1) ** rounds, k * (n - 1))
        rounds += 1
    assert bound(name, n, ports=k, blocks=cut).rounds == rounds
    if k == 1:
        assert rounds == cut - 1 + (n - 1).bit_length()
    if cut == 1:
        assert rounds == bound(name, n, ports=k).rounds


@untimed
@given(names, st.integers(2, 300), ports, blocks)
def test_messages_of_the_rounds_can_carry_the_volume(name: str, n: int, k: int, cut: int) -> None:
    b = bound(name, n, ports=k, blocks=cut)
    assert Fraction(b.rounds * k, cut) >= b.volume


# Searches: what the best of all schedules needs.

Message = tuple[int, int, int]  # source, destination, block
State = tuple[tuple[int, ...], ...]  # [rank][block]: contributions that the rank has heard of, as bits
Moves = Callable[[State], Iterable[State]]


@dataclass(frozen=True)
class Task:
    """What each rank holds of each block and what it must hold, when a message carries one of `blocks` of m.

    Contributions heard of is less than a reduction holds (it forgets what is counted twice), so the fewest
    rounds or messages found here are a bound for reductions too.
    """

    start: State
    goal: State
    blocks: int

    def done(self, state: State) -> bool:
        return all(
            have & need == need
            for rank in zip(state, self.goal, strict=True)
            for have, need in zip(*rank, strict=True)
        )


def task(name: str, n: int, cut: int = 1) -> Task:
    """The task with each rank's vector, or each of n blocks, in `cut` parts.

    Each entry: blocks, what rank r holds of block i, what it must hold.
    """
    everyone = 2**n - 1
    holds: dict[str, tuple[int, Callable[[int, int], int], Callable[[int, int], int]]] = {
        "all_gather": (n, lambda r, i: r == i, lambda r, i: 1),
        "all_reduce": (1, lambda r, i: 1 << r, lambda r, i: everyone),
        "barrier": (1, lambda r, i: 1 << r, lambda r, i: everyone),
        "broadcast": (1, lambda r, i: r == 0, lambda r, i: 1),
        "exscan": (1, lambda r, i: 1 << r, lambda r, i: (1 << r) - 1),
        "gather": (n, lambda r, i: r == i, lambda r, i: r == 0),
        "reduce": (1, lambda r, i: 1 << r, lambda r, i: everyone * (r == 0)),
        "reduce_scatter": (n, lambda r, i: 1 << r, lambda r, i: everyone * (r == i)),
        "scan": (1, lambda r, i: 1 << r, lambda r, i: (2 << r) - 1),
        "scatter": (n, lambda r, i: r == 0, lambda r, i: r == i),
    }
    if name in ("all_to_all", "send_recv"):
        shift = [[int(b == (a + 1) % n) for b in range(n)] for a in range(n)]
        one = shift if name == "send_recv" else [[1] * n] * n
        return exchange([[cut * x for x in row] for row in one])
    parts, start, goal = holds[name]

    def table(of: Callable[[int, int], int]) -> State:
        return tuple(tuple(int(of(r, i)) for i in range(parts) for _ in range(cut)) for r in range(n))

    return Task(table(start), table(goal), parts * cut)


def exchange(counts: list[list[int]]) -> Task:
    """AllToAllV in messages of one unit."""
    ranks = range(len(counts))
    units = [(a, b) for a in ranks for b in ranks for _ in range(counts[a][b])]
    start = tuple(tuple(int(a == r) for a, _ in units) for r in ranks)
    goal = tuple(tuple(int(b == r) for _, b in units) for r in ranks)
    return Task(start, goal, max(map(sum, [*counts, *zip(*counts, strict=True)])))


def messages(state: State) -> list[Message]:
    """All (src, dst, block) that tell dst something."""
    ranks, parts = range(len(state)), range(len(state[0]))
    return [(a, b, i) for a in ranks for b in ranks for i in parts if state[a][i] & ~state[b][i]]


def after(state: State, sent: Iterable[Message]) -> State:
    """Every message carries what its source knew before the round."""
    new = [list(rank) for rank in state]
    for a, b, i in sent:
        new[b][i] |= state[a][i]
    return tuple(map(tuple, new))


def packings(offers: Sequence[Message], n: int, k: int) -> Iterator[list[Message]]:
    """All choices in which a rank sends and receives at most k, and to which none can be added."""
    out, into = [0] * n, [0] * n

    def choose(at: int, chosen: list[Message]) -> Iterator[list[Message]]:
        if at == len(offers):
            if not any(out[a] < k and into[b] < k for a, b, _ in set(offers) - set(chosen)):
                yield chosen
            return
        a, b, _ = offers[at]
        if out[a] < k and into[b] < k:
            out[a], into[b] = out[a] + 1, into[b] + 1
            yield from choose(at + 1, [*chosen, offers[at]])
            out[a], into[b] = out[a] - 1, into[b] - 1
        yield from choose(at + 1, chosen)

    return choose(0, [])


def block_rounds(n: int, k: int) -> Moves:
    """One round of messages of one block each."""
    return lambda state: {after(state, sent) for sent in packings(messages(state), n, k)}


def telling_rounds(n: int, k: int) -> Moves:
    """One round of messages of any size: each source tells all it knows."""
    choices = list(packings([(a, b, 0) for a, b in itertools.permutations(range(n), 2)], n, k))
    return lambda state: {
        after(state, [(a, b, i) for a, b, _ in choice for i in range(len(state[0]))]) for choice in choices
    }


def one_message(state: State) -> set[State]:
    return {after(state, [message]) for message in messages(state)}


def fewest(task: Task, moves: Moves) -> int:
    """Breadth first: the fewest moves from start to goal."""
    level, seen = {task.start}, {task.start}
    for depth in itertools.count():
        if any(map(task.done, level)):
            return depth
        level = {new for state in level for new in moves(state)} - seen
        seen |= level
    raise AssertionError


def busiest(task: Task, end: int) -> int:
    """The least x such that in some schedule no rank sends (end 0) or receives (end 1) more than x."""
    for x in itertools.count():
        todo = [(task.start, (0,) * len(task.start))]
        seen = set(todo)
        while todo:
            state, used = todo.pop()
            if task.done(state):
                return x
            for message in messages(state):
                rank = message[end]
                now = (*used[:rank], used[rank] + 1, *used[rank + 1 :])
                new = (after(state, [message]), now)
                if now[rank] <= x and new not in seen:
                    seen.add(new)
                    todo.append(new)
    raise AssertionError


@pytest.mark.parametrize("name", UNIFORM)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (4, 3)])
def test_rounds_against_all_schedules(name: str, n: int, k: int) -> None:
    """No schedule takes fewer rounds; to hear of everything takes no more."""
    assert fewest(task(name, n), telling_rounds(n, k)) == bound(name, n, ports=k).rounds


@pytest.mark.parametrize(("name", "k"), [("all_reduce", 1), ("broadcast", 1), ("scan", 1), ("broadcast", 2)])
def test_rounds_of_five_ranks_against_all_schedules(name: str, k: int) -> None:
    assert fewest(task(name, 5), telling_rounds(5, k)) == bound(name, 5, ports=k).rounds


CARRYING = [name for name in UNIFORM if name != "barrier"]
LARGE = {("all_to_all", 3, 2), ("reduce_scatter", 3, 2), ("all_to_all", 4, 1), ("reduce_scatter", 4, 1)}


def small_enough(*sizes: tuple[int, int]) -> list[tuple[str, int, int]]:
    """(name, n, cut) that a search can walk in a moment."""
    return [(name, n, cut) for n, cut in sizes for name in CARRYING if (name, n, cut) not in LARGE]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(("name", "n", "cut"), small_enough((2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)))
def test_rounds_of_blocks_against_all_schedules(name: str, n: int, cut: int, k: int) -> None:
    """The same where a message carries one block. AllReduce of 2 blocks on 3 ranks takes a round more."""
    t = task(name, n, cut)
    least = bound(name, n, ports=k, blocks=t.blocks).rounds
    assert fewest(t, block_rounds(n, k)) == least + ((name, n, cut, k) == ("all_reduce", 3, 2, 1))


@pytest.mark.parametrize(("name", "n", "cut"), small_enough((2, 1), (2, 2), (3, 1), (3, 2), (4, 1)))
def test_volume_against_all_schedules(name: str, n: int, cut: int) -> None:
    """Some schedule attains the bound on the busiest rank, up to whole blocks, and none beats it."""
    t, b = task(name, n, cut), bound(name, n)
    assert busiest(t, 0) == math.ceil(b.sent * t.blocks)
    assert busiest(t, 1) == math.ceil(b.received * t.blocks)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_messages_of_an_element_against_all_schedules(n: int) -> None:
    """One-way gossip: 2(n-1) messages for an AllReduce, n-1 for a block of the others."""
    assert fewest(task("all_reduce", n), one_message) == n * bound("all_reduce", n).sent == 2 * (n - 1)
    for name in ("broadcast", "reduce", "scan", "gather", "scatter", "all_gather"):
        blocks = n if name == "all_gather" else 1
        assert fewest(task(name, n), one_message) == blocks * (n - 1)


@settings(max_examples=40, deadline=None)
@given(matrices(most=3, count=2), st.integers(1, 3))
def test_edge_colouring_against_all_schedules(counts: list[list[int]], k: int) -> None:
    """Relays don't help: no schedule of one-unit messages takes fewer rounds than direct messages do."""
    moved = [[0 if a == b else x for b, x in enumerate(row)] for a, row in enumerate(counts)]
    assume(sum(map(sum, moved)) <= 5)
    n = len(counts)
    assert fewest(exchange(moved), block_rounds(n, k)) == edge_coloring_rounds(counts, ports=k)
    assert (
        fewest(exchange(moved), telling_rounds(n, k))
        >= bound("all_to_all_v", n, ports=k, counts=counts).rounds
    )


# AllToAllV.


@untimed
@given(matrices(), ports)
def test_one_unit_messages_take_the_rounds_of_the_edge_colouring(counts: list[list[int]], k: int) -> None:
    n, unit = len(counts), max(map(sum, [*counts, *zip(*counts, strict=True)]))
    b = bound("all_to_all_v", n, ports=k, blocks=max(unit, 1), counts=counts)
    assert b.rounds == edge_coloring_rounds(counts, ports=k) == math.ceil(b.volume * unit / k)


@untimed
@given(matrices(), ports)
def test_direct_messages_attain_the_rounds_of_the_edge_colouring(counts: list[list[int]], k: int) -> None:
    """An edge colouring, built by alternating paths, needs as many colours as the heaviest row or column."""
    n, colours = len(counts), edge_coloring_rounds(counts)
    # ends[0][a][colour] is the rank that a sends to, ends[1][b][colour] the rank that b receives from
    ends: list[list[list[int | None]]] = [[[None] * colours for _ in range(n)] for _ in range(2)]
    for a, b in itertools.permutations(range(n), 2):
        for _ in range(counts[a][b]):
            free_a, free_b = ends[0][a].index(None), ends[1][b].index(None)
            path, side, here, colour = [], 1, b, free_a
            while (there := ends[side][here][colour]) is not None:
                path.append((side, here, there, colour))
                side, here, colour = 1 - side, there, free_a + free_b - colour
            for side, here, there, colour in path:
                ends[side][here][colour] = ends[1 - side][there][colour] = None
            for side, here, there, colour in path:
                swapped = free_a + free_b - colour
                ends[side][here][swapped], ends[1 - side][there][swapped] = there, here
            ends[0][a][free_a], ends[1][b][free_a] = b, a
    source, target = ends
    sent = Counter((a, b) for a in range(n) for b in source[a] if b is not None)
    assert sent == +Counter({(a, b): counts[a][b] for a, b in itertools.permutations(range(n), 2)})
    assert all(target[b][c] == a for a in range(n) for c, b in enumerate(source[a]) if b is not None)
    assert edge_coloring_rounds(counts, ports=k) == -(-colours // k)


@untimed
@given(st.integers(1, 6), ports, st.integers(1, 4))
def test_equal_counts_are_an_all_to_all(n: int, k: int, size: int) -> None:
    some = bound("all_to_all_v", n, ports=k, counts=[[size] * n] * n)
    same = bound("all_to_all", n, ports=k)
    assert [getattr(some, x) for x in NUMBERS] == [getattr(same, x) for x in NUMBERS]


@untimed
@given(st.integers(1, 6), ports, blocks)
def test_send_recv_is_an_all_to_all_v_of_its_pairs(n: int, k: int, cut: int) -> None:
    ring = [[int(b == (a + 1) % n) for b in range(n)] for a in range(n)]
    assert bound("send_recv", n, ports=k, blocks=cut, counts=ring) == bound(
        "send_recv", n, ports=k, blocks=cut
    )


def test_counts_set_units_reach_and_rounds() -> None:
    star = bound("all_to_all_v", 5, counts=[[4, 1, 1, 1, 1]] + [[0] * 5] * 4)
    assert (star.rounds, star.sent, star.received) == (3, Fraction(1, 2), Fraction(1, 8))
    assert star.reduced == star.reduced_total == 0
    kept = bound("all_to_all_v", 3, counts=np.diag([3, 1, 2]))
    assert kept.rounds == kept.volume == 0
    assert bound("all_to_all_v", 2, counts=[[0, 0], [0, 0]]).volume == 0
    assert edge_coloring_rounds(np.array([[7, 3], [2, 7]])) == 3
    assert edge_coloring_rounds([]) == 0


# The collectives as data, and the published table.


@pytest.mark.parametrize("name", CARRYING)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_volume_follows_from_what_outputs_want(name: str, n: int) -> None:
    """A rank receives what its outputs want of others, and sends what theirs want of it, once."""
    c = collective(name, n)
    sent, received = [Fraction(0)] * n, [Fraction(0)] * n
    needed = set()
    for rank in range(n):
        for block in range(int(c.outputs[rank])):
            others = {(r, i) for r, i in c.wanted(rank, block) if r != rank}
            received[rank] += Fraction(bool(others), c.vector)
            needed |= others
    for rank, _ in needed:
        sent[rank] += Fraction(1, c.vector)
    b = bound(name, n)
    assert b.sent >= max(sent) and b.received >= max(received)
    if name not in ("all_gather", "all_reduce", "reduce_scatter"):  # these move more, by the mean over ranks
        assert (b.sent, b.received) == (max(sent), max(received))


def test_names_are_those_of_the_collectives() -> None:
    assert sorted(COLLECTIVES) == sorted(DEFINED)


F = Fraction
TABLE: dict[
    str, list[tuple[int | Fraction, ...]]
] = {  # name: rounds with 1, 2, 3 ports; sent, received, reduced, reduced in all; on 8 ranks, then on 6
    "all_gather": [(3, 2, 2, F(7, 8), F(7, 8), 0, 0), (3, 2, 2, F(5, 6), F(5, 6), 0, 0)],
    "all_reduce": [(3, 2, 2, F(7, 4), F(7, 4), F(7, 8), 7), (3, 2, 2, F(5, 3), F(5, 3), F(5, 6), 5)],
    "all_to_all": [(3, 2, 2, F(7, 8), F(7, 8), 0, 0), (3, 2, 2, F(5, 6), F(5, 6), 0, 0)],
    "barrier": [(3, 2, 2, 0, 0, 0, 0), (3, 2, 2, 0, 0, 0, 0)],
    "broadcast": [(3, 2, 2, 1, 1, 0, 0), (3, 2, 2, 1, 1, 0, 0)],
    "exscan": [(3, 2, 2, 1, 1, F(3, 4), 6), (3, 2, 2, 1, 1, F(2, 3), 4)],
    "gather": [(3, 2, 2, F(1, 8), F(7, 8), 0, 0), (3, 2, 2, F(1, 6), F(5, 6), 0, 0)],
    "reduce": [(3, 2, 2, 1, 1, F(7, 8), 7), (3, 2, 2, 1, 1, F(5, 6), 5)],
    "reduce_scatter": [(3, 2, 2, F(7, 8), F(7, 8), F(7, 8), 7), (3, 2, 2, F(5, 6), F(5, 6), F(5, 6), 5)],
    "scan": [(3, 2, 2, 1, 1, F(7, 8), 7), (3, 2, 2, 1, 1, F(5, 6), 5)],
    "scatter": [(3, 2, 2, F(7, 8), F(1, 8), 0, 0), (3, 2, 2, F(5, 6), F(1, 6), 0, 0)],
    "send_recv": [(1, 1, 1, 1, 1, 0, 0), (1, 1, 1, 1, 1, 0, 0)],
}


@pytest.mark.parametrize("name", UNIFORM)
def test_published_values(name: str) -> None:
    for n, row in zip((8, 6), TABLE[name], strict=True):
        b = bound(name, n)
        assert tuple(bound(name, n, ports=k).rounds for k in (1, 2, 3)) == row[:3]
        assert (b.sent, b.received, b.reduced, b.reduced_total) == row[3:]


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
@pytest.mark.parametrize(
    ("n", "cut", "rounds"), [(2, 1, 1), (9, 1, 4), (16, 10, 13), (17, 10, 14), (1000, 64, 73)]
)
def test_published_rounds_of_blocks(name: str, n: int, cut: int, rounds: int) -> None:
    assert bound(name, n, blocks=cut).rounds == rounds == cut - 1 + math.ceil(math.log2(n))


def test_one_chunk_a_message_makes_the_ring_optimal() -> None:
    for n in range(2, 40):
        assert bound("all_gather", n, blocks=n).rounds == bound("reduce_scatter", n, blocks=n).rounds == n - 1
        assert bound("all_reduce", n, blocks=n).rounds == 2 * (n - 1)


def test_the_reason_is_the_argument_that_binds() -> None:
    cases = [("all_reduce", 1), ("broadcast", 2), ("all_reduce", 64)]
    reasons = [bound(name, 8, blocks=cut).reasons["rounds"] for name, cut in cases]
    assert reasons == [
        "data of one rank meets 8 ranks, at most 2 times as many after each round: ceil(log_2 8) = 3",
        "14 messages of m/2, of which round t moves at most 1 min(2^(t-1), 7)",
        "the busiest rank moves 7/4 m in messages of m/64, at most 1 a round",
    ]
    assert bound("all_reduce", 8).reasons["reduced_total"] == (
        "an output merges 8 contributions, which takes 7 binary reductions"
    )


# Names and errors.


@untimed
@given(st.sampled_from(COLLECTIVES), st.data())
def test_spelling_does_not_matter(name: str, data: st.DataObject) -> None:
    words = name.split("_")
    cased = [data.draw(st.sampled_from([w, w.upper(), w.title()])) for w in words]
    spelled = "".join(w + data.draw(st.sampled_from(["", "-", "_", " "])) for w in cased)
    assert canonical(spelled) == name == canonical(name)


@untimed
@given(st.text())
def test_other_names_are_an_error_that_lists_them_all(name: str) -> None:
    try:
        assert canonical(name) in COLLECTIVES
    except UsageError as error:
        assert repr(name) in str(error) and all(known in str(error) for known in COLLECTIVES)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("alreduce", "all_reduce"), ("bcast", "broadcast"), ("all2all", "all_to_all"), ("skan", "scan")],
)
def test_a_near_name_is_proposed(wrong: str, meant: str) -> None:
    with pytest.raises(
        UsageError, match=f"unknown collective '{wrong}'; did you mean .*{meant}.*; known: all_gather"
    ):
        bound(wrong, 4)


WANTED = "wanted a square matrix of whole numbers, a row a rank"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bound("scan", 0), "bound: n=0, wanted a whole number of 1 or more"),
        (lambda: bound("scan", 2.0), "bound: n=2.0, wanted a whole number of 1 or more"),  # type: ignore[arg-type]
        (lambda: bound("scan", 2, ports=0), "bound: ports=0, wanted a whole number of 1 or more"),
        (lambda: bound("scan", 2, blocks=0), "bound: blocks=0, wanted a whole number of 1 or more"),
        (
            lambda: edge_coloring_rounds([[0]], ports=-1),
            "bound: ports=-1, wanted a whole number of 1 or more",
        ),
        (
            lambda: bound("scan", 2, counts=[[0]]),
            "bound of scan: counts are given, only all_to_all_v and send_recv have any",
        ),
        (
            lambda: bound("alltoallv", 2),
            "bound of all_to_all_v: no counts; give 2 rows of 2, what rank i holds for rank j",
        ),
        (
            lambda: bound("all_to_all_v", 3, counts=[[0]]),
            "bound of all_to_all_v: counts of 1 ranks, wanted n=3 rows of 3",
        ),
        (
            lambda: edge_coloring_rounds([[0, 1], [2]]),
            "counts: row 1 has 1 entries, wanted 2, as there are rows",
        ),
        (
            lambda: edge_coloring_rounds([[0, 1], [-2, 0]]),
            "counts: row 1, column 0 is -2, wanted 0 or more",
        ),
        (
            lambda: edge_coloring_rounds([[0.5]]),  # type: ignore[list-item]
            f"counts: 'float' object cannot be interpreted as an integer, {WANTED}",
        ),
    ],
)
def test_errors_say_what_was_found_and_wanted(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        call()


def test_a_bound_is_a_value() -> None:
    b = bound("gather", 4)
    assert b == bound("Gather", 4) != bound("gather", 5) and len({b, bound("gather", 4)}) == 1
    with pytest.raises(AttributeError):
        b.rounds = 0  # type: ignore[misc]
    assert isinstance(b, Bound)
