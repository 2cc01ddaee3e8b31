"""Schedules that are wrong, each in its own way; the line numbers are in the tests."""

import algocc
from algocc.collective import all_reduce


def nothing(n):
    algocc.Steps(all_reduce(n))


def far_rank(n):
    s = algocc.Steps(all_reduce(n))
    with s.step():
        s.reduce(src=0, dst=n, chunk=0)
    return s


def far_chunk(n):
    s = algocc.Steps(all_reduce(n))
    with s.step():
        s.reduce(src=0, dst=1, chunk=3)
    return s


def lonely(n):
    s = algocc.Steps(all_reduce(n))
    with s.step():
        s.send(rank=0, to=1, chunk=0)
    return s


def unwritten(n):
    s = algocc.Steps(all_reduce(n), load=False)
    with s.step():
        s.reduce(src=0, dst=1, chunk=0)
    return s


def outside(n):
    s = algocc.Steps(all_reduce(n))
    s.reduce(src=0, dst=1, chunk=0)
    return s


def halves(n):
    s = algocc.Steps(all_reduce(n))
    with s.step():
        s.reduce(src=0, dst=n / 2, chunk=0)
    return s


def fails(n):
    return all_reduce(n).nonsense


def bad_rule(n):
    s = algocc.Steps(all_reduce(n))
    s.rule(lambda rank, step, n: rank + 1, steps=1)
    return s


def doubling(n):
    """Right for powers of two."""
    print("a user's print does not get into the output")
    s = algocc.Steps(all_reduce(n))
    s.rule(lambda rank, step, n: ((rank + 2**step) % n, 0), steps=(n - 1).bit_length(), action="reduce")
    return s
