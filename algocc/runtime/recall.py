"""What is remembered of calls, so that the next like them is found at once: of one shape, on like arrays, on the very same."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from algocc.kernels.operators import Element, Operator
from algocc.runtime.rank import Ready, Signature
from algocc.table import Schedule


@dataclass(eq=False)
class Prepared:
    """A call of one shape, and the programs for it, by whether peers touch only scratch.

    weight: about how much scratch a rank keeps for it, in bytes; the same on every rank, whatever its arrays are.
    """

    name: str
    schedule: Schedule
    key: str
    count: int
    element: Element
    operator: Operator
    in_place: bool
    size: int
    weight: int
    signature: Signature
    sides: dict[bool, Ready]


@dataclass(eq=False)
class Known:
    """What was found out about arrays of one shape; `schedule` is kept so that its id stays its own."""

    ready: Prepared
    schedule: Any
    in_place: bool
    shift: int
    ins: int
    outs: int
    fresh: Any


def shape_key(name: str, x: Any, out: Any, op: str, schedule: Any, root: int) -> Any:
    """What `Known` is found by; None, which nothing is, for what is not NumPy's."""
    if type(x) is not np.ndarray or not (out is None or type(out) is np.ndarray):
        return None
    named = schedule if isinstance(schedule, str) else id(schedule)
    if out is None or out is x:
        return name, x.shape, x.dtype, op, named, root, out is x
    return name, x.shape, x.dtype, op, named, root, out.shape, out.dtype


class Memo:
    """A call, to be found again by the very same arguments. Arrays are held weakly."""

    def __init__(
        self, x: Any, out: Any, op: str, schedule: Any, root: int, ready: Prepared, side: Ready, fresh: Any, first: Any,
        last: int = 0, *, broadcast: bool = False,
    ) -> None:  # fmt: skip
        self.op, self.schedule, self.root = op, schedule, root
        self.ready, self.side, self.fresh = ready, side, fresh
        self.first, self.last = first, last
        self._x = _nothing if x is None else weakref.ref(x)
        self._out = _nothing if out is None else weakref.ref(out)
        self.result = self._x if broadcast and out is None else self._out
        self._size = x.size if x is not None else 0
        self._dtype = x.dtype if x is not None else None
        self._strides = x.strides if x is not None else None

    def fits(self, x: Any, op: Any, schedule: Any, out: Any, root: int = 0) -> bool:
        """Whether a call is the same as this one, arrays and all."""
        return (
            self._x() is x
            and self._out() is out
            and self.op == op
            and (self.schedule is schedule or (isinstance(schedule, str) and self.schedule == schedule))
            and self.root == root
            and x is not None
            and x.size == self._size
            and x.dtype is self._dtype
            and x.strides == self._strides
        )


def _nothing() -> None:
    return None
