"""Find a schedule by name: the built-in ones, a function in a Python file, or a table in a file."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from algocc import text
from algocc.decorator import Algorithm
from algocc.errors import AlgoccError, UsageError, near
from algocc.table import Schedule


@cache
def algorithms() -> dict[str, Algorithm]:
    """Every algorithm that ships with algocc, by name.

    >>> algorithms()["ring"].collective
    'all_reduce'
    """
    package = importlib.import_module("algocc.schedules")
    found: dict[str, Algorithm] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Algorithm) and value.write.__module__ == module.__name__:
                found[value.name] = value
    return dict(sorted(found.items()))


def load(name: str) -> Algorithm:
    """The algorithm called `name`: a built-in one, `file.py:function`, or a table `file.json` or `file.txt`.

    Raises UsageError, naming the file and line, if there is none or it can't be used.

    >>> load("ring")(4)
    <Schedule ring: all_reduce n=4 chunks=4, 7 steps, 28 rows>
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), function)
    if name.endswith(".py"):
        return _from_file(Path(name), "")
    if "/" in name or Path(name).suffix in (".json", ".txt", ".algo"):
        return _table(Path(name))
    known = algorithms()
    if name not in known:
        raise UsageError(
            f"unknown schedule {name!r}{near(name, known) or '.'} `algocc list` shows all; your own is "
            "file.py:function, or a table in file.json or file.txt"
        )
    return known[name]


def _from_file(path: Path, function: str) -> Algorithm:
    module = _import(path)
    own = dict(_algorithms(module))
    if function == "" and len(own) == 1:
        return next(iter(own.values()))
    found = getattr(module, function, None) if function else None
    if isinstance(found, Algorithm):
        return found
    if callable(found):
        return Algorithm(name=function, collective="", write=found)
    what = f"no function {function!r}{near(function, own)}; " if function else ""
    if not own:
        raise UsageError(f"{path}: {what}no schedule in it: decorate a function of n with @algocc.schedule")
    raise UsageError(f"{path}: {what}schedules in it: {', '.join(own)}. Name one as {path}:function")


def _algorithms(module: ModuleType) -> Iterator[tuple[str, Algorithm]]:
    for name, value in vars(module).items():
        if isinstance(value, Algorithm) and value.write.__module__ == module.__name__:
            yield name, value


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    name = f"algocc_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except AlgoccError:
        raise
    except BaseException as error:  # noqa: B036  whatever the user's file does, it becomes one clear error
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(f"{_line(error, path)}: the file does not import: {_what(error)}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _what(error: BaseException) -> str:
    """An exception in one line."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {said}".split())


def _line(error: BaseException, path: Path) -> str:
    """The line of the user's file that an exception came through, or of the syntax error in it."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    return f"{path}:{frames[-1].lineno}" if frames else str(path)


def _table(path: Path) -> Algorithm:
    schedule = text.read(path)
    schedule = replace(schedule, name=schedule.name or path.stem)

    def write(n: int) -> Schedule:
        if n != schedule.n:
            raise UsageError(f"{path} is a table for n={schedule.n}")
        return schedule

    return Algorithm(name=schedule.name, collective=schedule.collective.name, write=write,
                     takes=f"n = {schedule.n}")  # fmt: skip


def build(algorithm: Algorithm | str, n: int, /, **params: Any) -> Schedule:
    """The schedule of an algorithm, or of what `load` finds by its name, for n ranks.

    Raises UsageError also where the function fails, naming the line in it.
    """
    algorithm = load(algorithm) if isinstance(algorithm, str) else algorithm
    try:
        return algorithm(n, **params)
    except (AlgoccError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        file = algorithm.where.rpartition(":")[0] or traceback.extract_tb(error.__traceback__)[-1].filename
        where = _line(error, Path(file))
        raise UsageError(f"{where}: {algorithm.name} failed for n={n}: {_what(error)}") from error
