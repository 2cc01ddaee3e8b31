"""Recursive doubling and halving: hypercube algorithms, where step t exchanges with the rank that differs in one bit.

They want a power of two of ranks, or of a larger radix. AllReduce takes any number: the ranks are first *folded*,
runs of neighbours onto the lowest of them, which leads; the others get the result back at the end.

Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005;
Ruefenacht, Bull and Booth, "Generalisation of recursive doubling for AllReduce", Parallel Computing 2017.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from algocc.collective import all_gather, all_reduce, reduce_scatter
from algocc.decorator import require, schedule
from algocc.invariant import ANYTHING, FINISHED, Claim, Holds, Invariant, agreeing, only, sharing
from algocc.schedules.arithmetic import ceil_div, floor_log, floor_power, in_rank_order, listed
from algocc.steps import Rule, Steps, Transfer

# n ranks as p runs of neighbours, the longer runs first.


def leader(run: Any, n: int, p: int) -> Any:
    """The lowest rank of a run."""
    size, longer = divmod(n, p)
    return np.minimum(run * (size + 1), run * size + longer)


def run_of(rank: Any, n: int, p: int) -> Any:
    """The run that a rank is in."""
    size, longer = divmod(n, p)
    return np.maximum(rank // (size + 1), (rank - longer) // size)


def to_leader(rank: Any, step: Any, n: int, p: int, chunks: int) -> list[Transfer]:
    """The others of a run send the whole vector to their leader."""
    place = rank - leader(run_of(rank, n, p), n, p)
    return [Transfer(rank - i, 0, count=chunks, when=place == i) for i in range(1, ceil_div(n, p))]


def from_leader(rank: Any, step: Any, n: int, p: int, chunks: int) -> list[Transfer]:
    """The leader sends the whole vector to the others of its run."""
    run = run_of(rank, n, p)
    leads = rank == leader(run, n, p)
    return [
        Transfer(rank + i, 0, count=chunks, when=leads & (run_of(rank + i, n, p) == run))
        for i in range(1, ceil_div(n, p))
    ]


def among_leaders(rank: Any, step: Any, n: int, p: int, rule: Rule) -> list[Transfer]:
    """The p leaders do what `rule` says for p ranks."""
    run = run_of(rank, n, p)
    leads = rank == leader(run, n, p)
    return [t._replace(peer=leader(t.peer, n, p), when=t.when & leads) for t in listed(rule(run, step, p))]


def of_leaders(rank: Any, chunk: Any, step: Any, n: Any, p: Any, invariant: Invariant) -> Claim:
    """What `invariant` says of p ranks holds of the p leaders, each with the contributions of its run."""
    run = run_of(rank, n, p)
    if rank != leader(run, n, p):
        return ANYTHING
    said = invariant(run, chunk, step, p)
    return Holds(lambda q: said.ranks(run_of(q, n, p)), of=said.of) if isinstance(said, Holds) else said


def own(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """A rank has its own contribution."""
    return Holds(only(rank))


def all_finished(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """Everything is finished."""
    return FINISHED


def folded(s: Steps, p: int, *phases: tuple[Rule, int, str, Invariant]) -> Steps:
    """Write the phases, each (rule, steps, action, invariant), for p leaders: fold first and unfold last if p < n."""
    ends = {"p": p, "chunks": s.collective.chunks}
    s.rule(partial(to_leader, **ends), steps=int(p < s.n), action="reduce", invariant=partial(of_leaders, p=p, invariant=own))
    for rule, steps, action, invariant in phases:
        phase = partial(of_leaders, p=p, invariant=invariant)
        s.rule(partial(among_leaders, p=p, rule=rule), steps=steps, action=action, invariant=phase)
    s.rule(partial(from_leader, **ends), steps=int(p < s.n), invariant=all_finished)
    return s


def exchange(rank: Any, step: Any, n: int) -> list[Transfer]:
    """Recursive doubling: swap whole vectors at distance 2^step and add; then 2^(step+1) neighbours agree."""
    return in_rank_order(rank, Transfer(rank ^ 2**step, 0))


def agreed(rank: Any, chunk: Any, step: Any, n: Any, radix: int = 2) -> Claim:
    """After s steps a rank has the contributions of its block of radix^s neighbours."""
    return Holds(sharing(rank, radix**step))


def exchange_all(rank: Any, step: Any, n: int, radix: int) -> list[Transfer]:
    """Recursive multiplying: the `radix` ranks that differ in digit `step` all swap vectors, nearest first."""
    reach = radix**step
    digit = rank // reach % radix
    return [
        Transfer(rank + hop * reach, 0, when=(0 <= digit + hop) & (digit + hop < radix), action=action)
        for distance in range(1, radix)
        for hop, action in ((distance, "prereduce"), (-distance, "reduce"))
    ]


def kept(rank: Any, halvings: Any, n: int) -> Any:
    """First of the n / 2^halvings chunks that a rank still works on: bit i of the rank picks the half in halving i."""
    return sum((i < halvings) * (rank // 2**i % 2) * (n // 2 ** (i + 1)) for i in range(floor_log(n)))


def halve(rank: Any, step: Any, n: int) -> list[Transfer]:
    """Recursive halving: at distance 2^step, send the half that the peer keeps; it adds it to its own."""
    peer = rank ^ 2**step
    return in_rank_order(rank, Transfer(peer, kept(peer, step + 1, n), count=n // 2 ** (step + 1)))


def unhalve(rank: Any, step: Any, n: int) -> Transfer:
    """The time reversal of `halve`: give the peer the half that it lacks."""
    halvings = floor_log(n) - step
    return Transfer(rank ^ 2 ** (halvings - 1), kept(rank, halvings, n), count=n // 2**halvings)


def halved(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """After s halvings a rank works on n / 2^s chunks, and has the contributions of its block of 2^s neighbours."""
    place = chunk - kept(rank, step, n)
    return Holds(sharing(rank, 2**step)) if (0 <= place) & (place < n // 2**step) else ANYTHING


def unhalved(rank: Any, chunk: Any, step: Any, n: Any) -> Claim:
    """After s steps a rank has all that it worked on after as many halvings as are not undone, finished."""
    halvings = floor_log(n) - step
    place = chunk - kept(rank, halvings, n)
    return FINISHED if (0 <= place) & (place < n // 2**halvings) else ANYTHING


def halve_by_distance(rank: Any, step: Any, n: int) -> Transfer:
    """Recursive halving, farthest first: send the peer at distance n / 2^(step+1) the blocks of its side."""
    side = n // 2 ** (step + 1)
    peer = rank ^ side
    return Transfer(peer, peer // side * side, count=side)


def halved_by_distance(rank: Any, block: Any, step: Any, n: Any) -> Claim:
    """After s steps a rank works on the blocks of its n / 2^s neighbours; they hold the ranks that differ by multiples."""
    side = n // 2**step
    return Holds(agreeing(rank, side)) if block // side == rank // side else ANYTHING


def double_by_distance(rank: Any, step: Any, n: int) -> Transfer:
    """Recursive doubling, nearest first: send the peer at distance 2^step all blocks of one's own side."""
    side = 2**step
    return Transfer(rank ^ side, rank // side * side, count=side)


def doubled_by_distance(rank: Any, block: Any, step: Any, n: Any) -> Claim:
    """After s steps a rank has the blocks of its 2^s neighbours."""
    return FINISHED if block // 2**step == rank // 2**step else ANYTHING


@schedule(
    collective="all_reduce",
    steps="floor_log(n) + 2*(n > floor_power(n))",
    sent="floor_log(n) + (n > floor_power(n))",
)
def recursive_doubling(n: int) -> Steps:
    """Recursive-doubling AllReduce: pairs at distance 1, 2, 4, … swap whole vectors and add.

    After step t every 2^(t+1) neighbours agree, so log2 n steps do: the least there is, for log2 n vectors sent.
    n that is no power of two is folded onto one, which takes two more steps. Operands stay in rank order.
    """
    return folded(Steps(all_reduce(n)), floor_power(n), (exchange, floor_log(n), "reduce", agreed))


@schedule(
    collective="all_reduce",
    steps="floor_log(n, radix) + 2*(n > floor_power(n, radix))",
    sent="(radix - 1)*floor_log(n, radix) + ceil_div(n, floor_power(n, radix)) - 1",
)
def recursive_multiplying(n: int, radix: int = 4) -> Steps:
    """Recursive-multiplying AllReduce: as recursive doubling, in groups of `radix` that all swap vectors.

    log_radix n steps of radix - 1 messages a rank: fewer steps for ranks that have the ports. n that is no power
    of the radix is folded onto one. Operands stay in rank order.
    """
    require(radix >= 2, "a radix of 2 or more")
    phase = partial(exchange_all, radix=radix), floor_log(n, radix), "reduce", partial(agreed, radix=radix)
    return folded(Steps(all_reduce(n)), floor_power(n, radix), phase)


@schedule(
    collective="all_reduce",
    steps="2*floor_log(n) + 2*(n > floor_power(n))",
    sent="2 - 2/floor_power(n) + (n > floor_power(n))",
)
def rabenseifner(n: int) -> Steps:
    """Rabenseifner's AllReduce: ReduceScatter by recursive halving, then AllGather by recursive doubling.

    Pairs at distance 1, 2, 4, … split what they still work on: each keeps one half and sends the other. After
    log2 n steps every rank holds one finished chunk, and the same pairs backwards hand the chunks around.
    Bandwidth optimal for powers of two; any other n is folded onto one. Operands stay in rank order.
    """
    p = floor_power(n)
    halvings = floor_log(n)
    phases = (halve, halvings, "reduce", halved), (unhalve, halvings, "copy", unhalved)
    return folded(Steps(all_reduce(n, chunks=p)), p, *phases)


@schedule(collective="reduce_scatter", takes="n a power of two", steps="d", sent="(n - 1)/n")
def recursive_halving_reduce_scatter(n: int) -> Steps:
    """Recursive-halving ReduceScatter: pairs at distance n/2, n/4, …, 1 send the blocks of the other side.

    What a rank works on halves in every step, until its own block is left. Bandwidth optimal in log2 n steps.
    """
    require(n == floor_power(n), "n a power of two")
    s = Steps(reduce_scatter(n))
    s.rule(halve_by_distance, steps=floor_log(n), action="reduce", invariant=halved_by_distance)
    return s


@schedule(collective="all_gather", takes="n a power of two", steps="d", sent="(n - 1)/n")
def recursive_doubling_all_gather(n: int) -> Steps:
    """Recursive-doubling AllGather: pairs at distance 1, 2, 4, … swap all they have.

    What a rank has doubles in every step. Bandwidth optimal in log2 n steps.
    """
    require(n == floor_power(n), "n a power of two")
    s = Steps(all_gather(n))
    s.rule(double_by_distance, steps=floor_log(n), invariant=doubled_by_distance)
    return s
