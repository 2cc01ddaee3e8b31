"""`@schedule`: turns a function that writes steps into a named algorithm."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from algocc.errors import AlgoccError, UsageError
from algocc.steps import Steps
from algocc.table import Schedule

Writer = Callable[..., "Steps | Schedule"]
LISTS = re.compile(r"^(Pairs|Counts|[Ss]equence|[Ii]terable|[Ll]ist|[Tt]uple)\b")
"""Annotations of parameters that are lists."""
NESTED = re.compile(r"^(Pairs|Counts)\b")
"""Those of lists of lists of whole numbers."""


@dataclass(frozen=True)
class Algorithm:
    """A schedule for every n: call it with the number of ranks and its own parameters.

    name: what it is called on the command line.
    collective: the name of the collective it does.
    write: the decorated function.
    takes: the condition on n in words, empty if any n will do.
    steps, sent: formulae in n for the catalogue, as text.
    """

    name: str
    collective: str
    write: Writer
    takes: str = ""
    steps: str = ""
    sent: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.write.__doc__)  # for help(): what the algorithm is

    @property
    def doc(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.write) or "").split("\n", 1)[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters besides n."""
        return tuple(inspect.signature(self.write).parameters)[1:]

    @property
    def where(self) -> str:
        """File and line of the function, or what it is if no file has it."""
        code = getattr(getattr(self.write, "func", self.write), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.write)

    def __call__(self, n: int, **params: Any) -> Schedule:
        """The schedule for n ranks.

        Raises UsageError if n is less than 1, the algorithm can't take it, a parameter is unknown, missing or not the
        number that it is annotated as, or the function returns no schedule or one for another n; the message says which.
        """
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
            raise UsageError(f"{self.name}: n={n!r}: the number of ranks is a whole number of 1 or more")
        n = int(n)
        for key in params:
            if key not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise UsageError(f"{self.name}: unknown parameter {key!r}; it takes: {known}")
            self._check_whole(key, params[key])
        try:
            inspect.signature(self.write).bind(n, **params)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{self.name} ({self.where}): {error}; a schedule is a function of n and its parameters"
            ) from error
        try:
            made = self.write(n, **params)
        except AlgoccError as error:
            raise type(error)(f"{self.name}: n={n}: {error}") from error
        if isinstance(made, Steps):
            made.name = made.name or self.name
            made = made.build()
        if not isinstance(made, Schedule):
            raise UsageError(
                f"{self.name} ({self.where}) returned {type(made).__name__}, wanted Steps or a Schedule: "
                "end the function with `return s`"
            )
        if made.n != n:
            raise UsageError(f"{self.name} ({self.where}): n={n}: returned a schedule for n={made.n}")
        return made

    def _check_whole(self, parameter: str, value: Any) -> None:
        """Raise UsageError if the parameter is annotated as an int or a list and the value is none."""
        wanted = inspect.signature(self.write).parameters[parameter].annotation
        if LISTS.search(str(wanted)):
            nested = bool(NESTED.search(str(wanted)))
            whole = nested or "int" in str(wanted)
            if value is not None and not _is_list(value, 1 + nested, whole):
                form = f"as in {parameter}=[[0,1],[1,0]]" if nested else f"as in {parameter}=[2,4]"
                what = "lists of whole numbers" if nested else "a list of whole numbers" if whole else "a list"
                raise UsageError(f"{self.name}: {parameter}={value!r:.60}: wanted {what}, {form}")
            return
        if wanted not in (int, "int", int | None, "int | None") or (value is None and wanted not in (int, "int")):
            return
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise UsageError(f"{self.name}: {parameter}={value!r}: wanted a whole number")


@overload
def schedule(write: Writer, /) -> Algorithm: ...
@overload
def schedule(
    *, name: str = "", collective: str = "", takes: str = "", steps: str = "", sent: str = ""
) -> Callable[[Writer], Algorithm]: ...
def schedule(write: Writer | None = None, /, **about: str) -> Algorithm | Callable[[Writer], Algorithm]:
    """Make an algorithm of a function of n that returns `Steps` (or a Schedule).

    >>> from algocc.collective import all_reduce
    >>> @schedule
    ... def exchange(n):
    ...     s = Steps(all_reduce(n))
    ...     with s.step():
    ...         for rank in range(n):
    ...             for peer in range(n):
    ...                 if peer != rank:
    ...                     s.reduce(src=rank, dst=peer, chunk=0)
    ...     return s
    >>> exchange(3)
    <Schedule exchange: all_reduce n=3 chunks=1, 2 steps, 9 rows>
    """

    def wrap(function: Writer) -> Algorithm:
        facts = {"name": function.__name__, "collective": "", **about}
        return Algorithm(write=function, **facts)

    return wrap if write is None else wrap(write)


def _is_list(value: Any, depth: int, whole: bool) -> bool:
    """Whether a value is a list, of lists if the depth is 2, of whole numbers of 64 bits if `whole`."""
    if isinstance(value, np.ndarray):
        return value.ndim == depth and (not whole or value.dtype.kind in "iu")
    if depth and not isinstance(value, str | bytes) and isinstance(value, Iterable):
        return not (whole and isinstance(value, Sequence)) or all(_is_list(v, depth - 1, whole) for v in value)
    is_number = hasattr(value, "__index__") and not isinstance(value, bool)
    return not depth and is_number and -(2**63) <= value.__index__() < 2**63


def require(condition: bool, wanted: str) -> None:
    """For algorithms that can't take every n: raise UsageError saying which n they take."""
    if not condition:
        raise UsageError(f"this algorithm takes {wanted}")

