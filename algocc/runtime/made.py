"""Schedules and Programs, each made once for all ranks of a process that call for them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from algocc.catalog import build, load
from algocc.collective import to_json
from algocc.decorator import Algorithm
from algocc.lowering import lower
from algocc.program import Program, check
from algocc.runtime.apart import lower_apart, replaces_in_place
from algocc.table import Schedule

_guard = threading.RLock()
_programs: OrderedDict[Any, Program] = OrderedDict()
_schedules: OrderedDict[Any, tuple[Schedule, str]] = OrderedDict()
_digests: dict[int, tuple[weakref.ref[Schedule], str]] = {}
MOST_KEPT = 256


def _kept(store: OrderedDict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    with _guard:
        if key in store:
            store.move_to_end(key)
            return store[key]
        value = store[key] = make()
        if len(store) > MOST_KEPT:
            store.popitem(last=False)
        return value


def digest(s: Schedule) -> str:
    """A hash of all that a schedule does."""
    h = hashlib.blake2b(digest_size=8)
    h.update(json.dumps([to_json(s.collective), s.scratch], default=int).encode())
    for column, values in s.columns.items():
        if column != "origin":
            h.update(np.ascontiguousarray(values).tobytes())
    return h.hexdigest()


def digest_of(s: Schedule) -> str:
    """`digest`, computed once for a schedule."""
    with _guard:
        known = _digests.get(id(s))
        if known is None or known[0]() is not s:
            if len(_digests) > MOST_KEPT:
                _digests.clear()
            known = _digests[id(s)] = weakref.ref(s), digest(s)
        return known[1]


def built(schedule: str | Algorithm, n: int, params: tuple[tuple[str, Any], ...]) -> tuple[Schedule, str]:
    """The Schedule of an algorithm for n ranks, without a root where it takes none, and its digest."""
    def make() -> tuple[Schedule, str]:
        algorithm = load(schedule) if isinstance(schedule, str) else schedule
        given = dict(params)
        if "root" in given and "root" not in algorithm.parameters:
            given.pop("root")
        s = build(algorithm, n, **given)
        return s, digest_of(s)

    made: tuple[Schedule, str] = _kept(_schedules, (schedule, n, params), make)
    return made


def program_of(s: Schedule, key: str, in_place: bool, apart: bool, nodes: Sequence[int] | None) -> Program:
    """The Program of a schedule with digest `key`: apart, peers touch only scratch, and none of other `nodes`."""

    def make() -> Program:
        if not apart:
            p = lower(s, in_place=in_place)
        else:
            p = lower_apart(s, nodes=nodes)
            if in_place and not replaces_in_place(p):
                p = lower_apart(s, in_place=True, nodes=nodes)
        check(p)
        return p

    with contextlib.suppress(TypeError):
        made: Program = _kept(_programs, (key, s.name, in_place, apart, nodes), make)
        return made
    return make()
