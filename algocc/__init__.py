"""Write a collective-communication algorithm as a schedule; get it proved, measured against exact bounds, and run.

    >>> import algocc
    >>> report = algocc.verify(algocc.load("ring")(4))
    >>> report.correct, report.bandwidth_optimal
    (True, True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algocc.bounds import bound
    from algocc.catalog import algorithms, load
    from algocc.collective import COLLECTIVES, Collective, custom
    from algocc.decorator import Algorithm, require, schedule
    from algocc.errors import AlgoccError, RunError, ScheduleError, UsageError
    from algocc.lowering import lower
    from algocc.program import Program, listing
    from algocc.runtime import Communicator, run
    from algocc.steps import Steps, Transfer
    from algocc.table import Failure, Schedule
    from algocc.verifier import Report, summary, verify

_HOME = {
    "algocc.bounds": ("bound",),
    "algocc.catalog": ("algorithms", "load"),
    "algocc.collective": ("COLLECTIVES", "Collective", "custom"),
    "algocc.decorator": ("Algorithm", "require", "schedule"),
    "algocc.errors": ("AlgoccError", "RunError", "ScheduleError", "UsageError"),
    "algocc.lowering": ("lower",),
    "algocc.program": ("Program", "listing"),
    "algocc.runtime": ("Communicator", "run"),
    "algocc.steps": ("Steps", "Transfer"),
    "algocc.table": ("Failure", "Schedule"),
    "algocc.verifier": ("Report", "summary", "verify"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "COLLECTIVES", "Algorithm", "AlgoccError", "Collective", "Communicator", "Failure", "Program", "Report", "RunError", "Schedule",
    "ScheduleError", "Steps", "Transfer", "UsageError", "algorithms", "bound", "custom", "listing", "load",
    "lower", "require", "run", "schedule", "summary", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for, so that `import algocc` costs nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module 'algocc' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
