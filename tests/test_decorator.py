"""`@schedule`: what an Algorithm knows of itself, and errors that name it."""

from __future__ import annotations

import inspect
import re

import pytest

from algocc.collective import all_reduce, broadcast
from algocc.decorator import Algorithm, require, schedule
from algocc.errors import ScheduleError, UsageError
from algocc.steps import Steps


@schedule
def star(n, root=0, *, chunks=1):
    """The root sends to everyone.

    At once.
    """
    s = Steps(broadcast(n, root=root, chunks=chunks))
    with s.step():
        for rank in range(n):
            if rank != root:
                s.copy(src=root, dst=rank, chunk=0, count=chunks)
    return s


@schedule(name="pairs", collective="all_reduce", takes="n a power of two", steps="log2 n", sent="log2 n")
def doubling(n):
    require(n & (n - 1) == 0, "n a power of two")
    return Steps(all_reduce(n)).build()


def test_an_algorithm_knows_itself():
    assert isinstance(star, Algorithm)
    assert (star.name, star.doc, star.parameters) == (
        "star",
        "The root sends to everyone.",
        ("root", "chunks"),
    )
    assert re.search(r"test_decorator\.py:\d+$", star.where)
    assert (doubling.name, doubling.collective, doubling.takes) == ("pairs", "all_reduce", "n a power of two")
    assert (doubling.steps, doubling.sent, doubling.doc) == ("log2 n", "log2 n", "")


def test_it_makes_schedules():
    made = star(4, root=2, chunks=3)
    assert made.name == "star" and made.collective == broadcast(4, root=2, chunks=3)
    assert re.fullmatch(r"test_decorator\.py:\d+", made.source(len(made) - 1))


@pytest.mark.parametrize("n", [0, -1, 2.0, "4", None])
def test_n_must_be_a_number_of_ranks(n):
    with pytest.raises(UsageError) as error:
        star(n)
    assert str(error.value) == f"star: n={n!r}: the number of ranks is a whole number of 1 or more"


def test_unknown_parameters():
    with pytest.raises(UsageError) as error:
        star(4, rot=1)
    assert str(error.value) == "star: unknown parameter 'rot'; it takes: root, chunks"
    with pytest.raises(UsageError, match="pairs: unknown parameter 'k'; it takes: none"):
        doubling(4, k=1)


def test_missing_parameters():
    @schedule
    def needs(n, k):
        return Steps(all_reduce(n))

    with pytest.raises(UsageError, match=r"needs \(.*test_decorator\.py:\d+\): missing a required argument: 'k'"):
        needs(4)


def test_an_error_inside_says_which_algorithm_and_n():
    with pytest.raises(UsageError) as error:
        doubling(6)
    assert str(error.value) == "pairs: n=6: this algorithm takes n a power of two"
    with pytest.raises(UsageError, match="star: n=4: root=9: with n=4 a rank is one of 0..3"):
        star(4, root=9)

    @schedule
    def broken(n):
        raise ScheduleError("no")

    with pytest.raises(ScheduleError, match="broken: n=2: no"):
        broken(2)


@pytest.mark.parametrize("returned", [None, 3, all_reduce(2)])
def test_a_function_that_returns_no_schedule(returned):
    @schedule
    def forgetful(n):
        return returned

    with pytest.raises(UsageError) as error:
        forgetful(2)
    assert str(error.value) == (
        f"forgetful ({forgetful.where}) returned {type(returned).__name__}, wanted Steps or a Schedule: "
        "end the function with `return s`"
    )


def test_help_shows_what_the_function_says():
    assert inspect.getdoc(star) == "The root sends to everyone.\n\nAt once."


def test_a_slip_in_the_function_is_left_as_it_is():
    @schedule
    def slip(n):
        return undefined  # noqa: F821

    with pytest.raises(NameError):
        slip(2)


def test_numpy_numbers_of_ranks():
    import numpy as np

    from algocc.schedules.ring import ring

    assert ring(np.int64(3)) == ring(3)
