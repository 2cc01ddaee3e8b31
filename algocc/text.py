"""Schedules as files: JSON, without loss, and a text that people read and write by hand.

`docs/schedule-format.md` gives the grammar of both. Reading never runs code, what it allocates is bounded by
the length of the file and the limits below, and what is wrong with a file is one UsageError that says where.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from algocc.collective import BUFFER_NAMES, COLLECTIVES, Buffer, Collective
from algocc.collective import from_json as collective_from_json
from algocc.collective import to_json as collective_to_json
from algocc.errors import AlgoccError, ScheduleError, UsageError, counted, near
from algocc.steps import BUFFERS, MOST_CELLS, MOST_STEPS, Steps
from algocc.table import COLUMNS, Action, Schedule, chunk_name

FORMAT, VERSION = "algocc-schedule", 1
MOST_BYTES = 1 << 28
"""Longest file that `read` takes."""
MOST_RANKS = 1 << 20
"""Most ranks of a collective in a file."""
MOST_BLOCKS = 1 << 26
"""Most blocks that a collective in a file may have in all where they grow with n²."""

Fail = Callable[[str], NoReturn]
"""Raises UsageError: where, then the message."""


# JSON


def to_json(schedule: Schedule) -> dict[str, Any]:
    """A JSON value that `from_json` reads back without loss, for any schedule, right or wrong."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": schedule.name,
        "collective": collective_to_json(schedule.collective),
        "scratch": schedule.scratch,
        "columns": {name: column.tolist() for name, column in schedule.columns.items()},
        "origins": list(schedule.origins),
    }


def from_json(value: Any, *, source: str = "<json>") -> Schedule:
    """The schedule that `to_json` wrote; `source` is what errors call the file.

    Raises UsageError naming the key, column and row, what was found and what was wanted.
    """
    fail = _at(source)
    keys = ("format", "version", "name", "collective", "scratch", "columns", "origins")
    if _typed(value, dict, "the file", fail).get("format") != FORMAT:
        fail(f"format is {_brief(value.get('format'))}, wanted {FORMAT!r}")
    if type(value.get("version")) is not int or value["version"] != VERSION:
        fail(f"version is {_brief(value.get('version'))}, wanted {VERSION}: this algocc reads no other")
    _keys(value, keys, "", fail)
    _keys(_typed(value["columns"], dict, "columns", fail), COLUMNS, "columns.", fail)
    name = _typed(value["name"], str, "name", fail)
    c = _collective(value["collective"], fail)
    scratch = _whole(value["scratch"], "scratch", fail, least=0)
    _bounded(c, scratch, fail)
    origins = _typed(value["origins"], list, "origins", fail)
    for i, line in enumerate(origins):
        _typed(line, str, f"origins[{i}]", fail)
    columns = {
        key: _column(value["columns"][key], f"columns.{key}", np.iinfo(dtype), fail)
        for key, dtype in COLUMNS.items()
    }
    rows = len(columns["step"])
    for key, column in columns.items():
        if len(column) != rows:
            fail(f"columns.{key} has {counted(len(column), 'row')}, columns.step has {rows}: wanted as many in all")
    step = columns["step"]
    for bad, wanted in (
        (np.diff(step, prepend=0) < 0, "steps in order from 0"),
        (step >= MOST_STEPS, f"less than {MOST_STEPS}"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            after = f" after {step[row - 1]}" if row else ""
            fail(f"columns.step[{row}] is {step[row]}{after}, wanted {wanted}")
    return Schedule(name, c, scratch, **columns, origins=tuple(origins))


def dumps(schedule: Schedule) -> str:
    """`to_json` as text, one column a line."""

    def lines(value: dict[str, Any], indent: str) -> str:
        body = (f"{indent}  {json.dumps(key)}: {item}" for key, item in value.items())
        return "{\n" + ",\n".join(body) + f"\n{indent}}}"

    value = to_json(schedule)
    flat = {key: json.dumps(item) for key, item in value.items() if key != "columns"}
    flat["columns"] = lines(
        {key: json.dumps(item, separators=(",", ":")) for key, item in value["columns"].items()}, "  "
    )
    return lines({key: flat[key] for key in value}, "") + "\n"


def loads(text: str, *, source: str = "<json>") -> Schedule:
    """The schedule that `dumps` wrote.

    Raises UsageError as `from_json`, and for text that is no JSON with its line and column.
    """
    try:
        value = _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{source}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not JSON that can be read: {error}") from None
    return from_json(value, source=source)


def dump(schedule: Schedule, path: str | PathLike[str]) -> None:
    """Write `dumps` to a file, or `format` if its name ends in .txt or .algo."""
    path = Path(path)
    text = format(schedule) if path.suffix in (".txt", ".algo") else dumps(schedule)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def load(path: str | PathLike[str]) -> Schedule:
    """The schedule in a JSON file; as `read`, whatever the file is called."""
    return loads(_contents(Path(path)), source=Path(path).name)


def read(path: str | PathLike[str]) -> Schedule:
    """The schedule in a file: JSON if it is called .json, text if .txt or .algo, else what it looks like.

    Raises UsageError if there is no such file or it holds no schedule.
    """
    path = Path(path)
    text = _contents(path)
    as_json = path.suffix == ".json" or (path.suffix not in (".txt", ".algo") and text.lstrip()[:1] == "{")
    return (loads if as_json else parse)(text, source=path.name)


def _contents(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(f"{path}: longer than {MOST_BYTES} bytes: too long for a schedule")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8: wanted a text file") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} comes twice")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number here")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number)


def _at(where: str) -> Fail:
    def fail(message: str) -> NoReturn:
        raise UsageError(f"{where}: {message}")

    return fail


def _brief(value: Any) -> str:
    if type(value) is int and value.bit_length() > 64:
        return "a number of more than 64 bits"
    if value is None:
        return "missing or null"
    return (
        "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r:.60}"
    )


def _typed(value: Any, kind: type, what: str, fail: Fail) -> Any:
    if type(value) is not kind:
        names = {
            dict: "an object",
            list: "a list",
            str: "a text in quotes",
            int: "a whole number",
            bool: "true or false",
        }
        fail(f"{what} is {_brief(value)}, wanted {names[kind]}")
    return value


def _keys(value: dict[str, Any], wanted: Iterable[str], where: str, fail: Fail) -> None:
    wanted = list(wanted)
    for key in value:
        if key not in wanted:
            fail(f"unknown key {where}{key:.60}{near(key, wanted)}; known: {', '.join(wanted)}")
    for key in wanted:
        if key not in value:
            fail(f"the key {where}{key} is missing")


def _whole(value: Any, what: str, fail: Fail, *, least: int = -(2**31), most: int = 2**31 - 1) -> int:
    if not least <= _typed(value, int, what, fail) <= most:
        fail(f"{what} is {_brief(value)}, wanted {least}..{most}")
    return int(value)


def _column(values: Any, what: str, limits: Any, fail: Fail) -> NDArray[np.int64]:
    """A list of whole numbers within the limits."""
    if set(map(type, _typed(values, list, what, fail))) - {int}:
        row = next(row for row, value in enumerate(values) if type(value) is not int)
        fail(f"{what}[{row}] is {_brief(values[row])}, wanted a whole number")
    low, high = int(limits.min), int(limits.max)
    if values and not low <= min(values) <= max(values) <= high:
        row = next(row for row, value in enumerate(values) if not low <= value <= high)
        fail(f"{what}[{row}] is {_brief(values[row])}, wanted {low}..{high}")
    return np.array(values, np.int64)


# Collectives from files


def _collective(value: Any, fail: Fail) -> Collective:
    """As `collective.from_json`, for a value that nobody vouches for."""
    _typed(value, dict, "collective", fail)
    _typed(value.get("name"), str, "collective.name", fail)
    if "want" in value:
        _check_arrays(value, fail)
    else:
        name = value["name"]
        if name not in COLLECTIVES:
            fail(f"unknown collective {name:.60}{near(name, COLLECTIVES)}; known: {', '.join(COLLECTIVES)}")
        takes = ("name", *inspect.signature(COLLECTIVES[name]).parameters)
        for key in value:
            if key not in takes:
                known = ", ".join(takes[1:])
                fail(f"collective {name}: unknown parameter {key:.60}{near(key, takes)}; it takes {known}")
        n = _whole(value.get("n"), f"collective {name}: n", fail, least=1, most=MOST_RANKS)
        for key in ("chunks", "root"):
            if key in value:
                _whole(value[key], f"collective {name}: {key}", fail)
        if name in _SQUARE and n * n > MOST_BLOCKS:
            fail(f"collective {name}: n={n} makes {n * n} blocks, wanted at most {MOST_BLOCKS}")
    try:
        return collective_from_json(value)
    except AlgoccError as error:
        fail(str(error))
    except (TypeError, ValueError, IndexError, KeyError, OverflowError, AttributeError) as error:
        fail(f"collective {value['name']:.60}: {error}")


_SQUARE = ("reduce_scatter", "all_gather", "all_to_all", "all_to_all_v", "scan", "exscan")
"""Collectives whose blocks, or whose sets, grow with n²."""


def _check_arrays(value: dict[str, Any], fail: Fail) -> None:
    """The types of a collective that is spelled out, and what its own checks take for granted."""
    numbers = ("inputs", "outputs", "want", "set_start", "set_items", "sizes")
    triples = ("alias", "load", "store")
    scalars = {
        "n": int,
        "work": int,
        "chunks": int,
        "source": int,
        "sink": int,
        "idempotent": bool,
        "params": dict,
    }
    _keys(value, ("name", *scalars, *numbers, *triples), "collective.", fail)
    for key, kind in scalars.items():
        _typed(value[key], kind, f"collective.{key}", fail)
        if kind is int:
            _whole(value[key], f"collective.{key}", fail, least=0)
    limits = np.iinfo(np.int32)
    array = {key: _column(value[key], f"collective.{key}", limits, fail) for key in numbers if key != "sizes"}
    array["sizes"] = _column(value["sizes"], "collective.sizes", np.iinfo(np.int64), fail)
    for key in triples:
        for i, row in enumerate(_typed(value[key], list, f"collective.{key}", fail)):
            if len(_column(row, f"collective.{key}[{i}]", limits, fail)) != 3:
                fail(f"collective.{key}[{i}] has {len(row)} entries, wanted 3")
            if min(row) < 0:
                fail(f"collective.{key}[{i}] is {row}, wanted 0 or more")
    for key, entry in array.items():
        if entry.min(initial=0) < 0:
            fail(f"collective.{key} holds {entry.min()}, wanted 0 or more")
    for key, length, why in (
        ("inputs", value["n"], "n"),
        ("outputs", value["n"], "n"),
        ("want", int(array["outputs"].sum()), "the outputs of all ranks"),
        ("sizes", int(array["inputs"].sum()), "the inputs of all ranks"),
    ):
        if len(array[key]) != length:
            fail(f"collective.{key} has {len(array[key])} entries, wanted {length}, {why}")
    start = array["set_start"]
    if not len(start) or start[0] or start[-1] != len(array["set_items"]) or (np.diff(start) < 0).any():
        fail(
            f"collective.set_start does not rise from 0 to {len(array['set_items'])}, the length of set_items"
        )


def _bounded(c: Collective, scratch: int, fail: Fail) -> None:
    held = max(int(c.inputs.max()), int(c.outputs.max())) * c.chunks
    if held >= 2**31:
        fail(f"{c}: a rank holds {held} chunks, which do not fit in 32 bits")
    total = (int(c.inputs.sum()) + int(c.outputs.sum())) * c.chunks + c.n * scratch
    if total > MOST_CELLS:
        fail(f"{c} with {scratch} chunks of scratch: {total} chunks in all, wanted at most {MOST_CELLS}")


# Text


def format(schedule: Schedule) -> str:
    """The schedule as text that `parse` reads back as `schedule.canonical()`, but for the source lines.

    Raises ScheduleError if a message has no partner, or a row names what the text has no word for.

    >>> from algocc.collective import all_reduce
    >>> s = Steps(all_reduce(2, chunks=2), name="exchange")
    >>> with s.step():
    ...     s.reduce(src=0, dst=1, chunk=1)
    ...     s.reduce(src=1, dst=0, chunk=0)
    >>> print(format(s.build()))
    schedule exchange
    collective all_reduce n=2 chunks=2
    load
    step  # 1
      0: send out[1] to 1; reduce out[0] from 1
      1: send out[0] to 0; reduce out[1] from 0
    <BLANKLINE>
    """
    s = schedule.canonical()
    c = s.collective
    _check_words(s)
    name = (
        s.name
        if re.fullmatch(r"[\w.+,()=/:-]+(?: [\w.+,()=/:-]+)*", s.name, re.ASCII)
        else json.dumps(s.name)
    )
    lines = [f"schedule {name}", f"collective {_header(c)}"]
    if s.scratch != _scratch(c, s.columns):
        lines.append(f"scratch {s.scratch}")
    customs = _customs(c)
    last = len(s.step_start) - 2
    expected = 0
    for step in np.unique(s.step).tolist():
        rows = s.rows(np.arange(s.step_start[step], s.step_start[step + 1]))
        word = next(
            (w for w, own in customs.items() if step == (0 if w == "load" else last) and _same(rows, own)),
            "step",
        )
        gap = f" {step}" if step != expected and word == "step" else ""
        if step != expected and word != "step":
            lines += ["step"] * (step - expected)
        lines.append(f"{word}{gap}" if word != "step" or gap else f"step  # {step}")
        if word == "step":
            lines += _entries(rows)
        expected = step + 1
    return "\n".join(lines) + "\n"


def _header(c: Collective) -> str:
    value = collective_to_json(c)
    if "want" in value:
        return json.dumps(value)
    words = [value.pop("name")] + [
        f"{key}={json.dumps(item, separators=(',', ':'))}" for key, item in value.items()
    ]
    return " ".join(words)


def _check_words(s: Schedule) -> None:
    limits = {
        "action": (0, int(Action.PREREDUCE)), "rank": (0, 2**31), "peer": (0, 2**31),
        "buffer": (0, 2), "peer_buffer": (0, 2), "chunk": (0, 2**31), "peer_chunk": (0, 2**31),
        "count": (1, 2**31),
    }  # fmt: skip
    for key, (low, high) in limits.items():
        column = getattr(s, key)
        bad = np.flatnonzero((column < low) | (column > high))
        if len(bad):
            row = int(bad[0])
            found = f"step {s.step[row]}, rank {s.rank[row]}: {key} {column[row]}"
            raise ScheduleError(f"schedule {s.name}: {found} can't be written as text, wanted {low} or more")


def _customs(c: Collective) -> dict[str, Schedule]:
    """The rows of the collective's `load` and `store`, where it has some."""
    both = Steps(c).build()
    return {word: both.rows(both.origin == i).canonical() for i, word in enumerate(both.origins)}


def _same(a: Schedule, b: Schedule) -> bool:
    return all(
        np.array_equal(a.columns[key], b.columns[key]) for key in COLUMNS if key not in ("step", "origin")
    )


def _scratch(c: Collective, columns: dict[str, Any]) -> int:
    """Chunks of scratch where a schedule does not say: what it uses, and what the collective works on."""
    used = [
        int(
            (columns[chunk] + columns["count"].astype(np.int64))[columns[buffer] == Buffer.SCRATCH].max(
                initial=0
            )
        )
        for buffer, chunk in (("buffer", "chunk"), ("peer_buffer", "peer_chunk"))
    ]
    return max(*used, c.work * c.chunks)


_VERBS = ("copy", "reduce", "prereduce")
_RECEIVES = ("recv", "reduce", "prereduce")


def _entries(rows: Schedule) -> Iterator[str]:
    """One line for each rank: what it sends, then what it receives and does by itself, in its own order."""
    said: dict[int, tuple[list[str], list[str]]] = {}
    for row in zip(*(column.tolist() for column in rows.columns.values()), strict=True):
        _, action, rank, peer, buffer, chunk, peer_buffer, peer_chunk, count, _ = row
        source, target = chunk_name(buffer, chunk, count), chunk_name(peer_buffer, peer_chunk, count)
        here = said.setdefault(peer, ([], []))[1]
        if rank == peer:
            here.append(f"{_VERBS[action]} {source} {'into' if action else 'to'} {target}")
        else:
            here.append(f"{_RECEIVES[action]} {target} from {rank}")
            said.setdefault(rank, ([], []))[0].append(f"send {source} to {peer}")
    for rank, (sends, others) in sorted(said.items()):
        yield f"  {rank}: {'; '.join(sends + others)}"


def parse(text: str, *, source: str = "<text>") -> Schedule:
    """The schedule that a text says: matched and in canonical order, or two-sided as it stands if a message
    has no partner, for the verifier to report. Every row keeps `source` and its line as its origin.

    Raises UsageError with file and line, what was found and what was wanted.

    >>> parse("collective all_reduce n=2\\nload\\nstep\\n  0: send [0] form 1")
    Traceback (most recent call last):
    algocc.errors.UsageError: <text>:4: 'send [0] form 1': found 'form'; wanted to
    """
    reader = _Reader(source)
    for number, line in enumerate(text.split("\n"), 1):
        reader.line(number, line)
    return reader.schedule()


class _Reader:
    """A text being read, line by line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.name: str | None = None
        self.collective: Collective | None = None
        self.scratch: int | None = None
        self.step = -1
        self.open = False  # entries may follow: the last word was `step`
        self.rows: list[tuple[int, ...]] = []
        self.origins: list[str] = []
        self.customs: dict[str, Schedule] = {}

    def line(self, number: int, line: str) -> None:
        where = f"{self.source}:{number}"
        fail = _at(where)
        label = _LABEL.match(line)
        if label:
            return self.entries(label, where, fail)
        word = _WORD.match(line)
        assert word is not None
        if not word[1]:
            return None
        if word[1] not in _WORDS:
            fail(
                f"found {word[1]!r:.60}{near(word[1], _WORDS)}; wanted {', '.join(_WORDS)} or `rank: entries`"
            )
        if word[1] in ("load", "store", "step") and self.collective is None:
            fail(f"found {word[1]!r} before the line `collective …`")
        if word[1] in ("schedule", "collective", "scratch") and self.step >= 0:
            fail(f"found {word[1]!r} after the first step: it belongs above")
        getattr(self, f"read_{word[1]}")(word[2], where, fail)
        return None

    def read_schedule(self, rest: str, where: str, fail: Fail) -> None:
        if self.name is not None:
            fail("found a second line `schedule …`, wanted one schedule a file")
        if not rest.startswith('"'):
            self.name = _bare(rest)
            return
        self.name, end = _value(rest, 0, "schedule", fail)
        if _bare(rest[end:]):
            fail(f"schedule: found {_bare(rest[end:])!r:.60} after the name, wanted nothing")

    def read_collective(self, rest: str, where: str, fail: Fail) -> None:
        if self.collective is not None:
            fail("found a second line `collective …`, wanted one")
        if rest.startswith("{"):
            value, end = _value(rest, 0, "collective", fail)
        else:
            name = re.match(r"[^\s#]*", rest)[0]  # type: ignore[index]
            if not name:
                fail("collective: found no name, wanted as in `collective all_reduce n=4`")
            value, end = {"name": name}, len(name)
            while pair := _PAIR.match(rest, end):
                if pair[1] in value:
                    fail(f"collective {name}: {pair[1]} is given twice")
                value[pair[1]], end = _value(rest, pair.end(), f"collective {name}: {pair[1]}", fail)
            if _bare(rest[end:]):
                fail(f"collective {name:.60}: found {_bare(rest[end:])!r:.60}, wanted as in `n=4 chunks=2`")
        self.collective = _collective(value, fail)
        _bounded(self.collective, 0, fail)

    def read_scratch(self, rest: str, where: str, fail: Fail) -> None:
        self.scratch = self.number(_bare(rest), "scratch", fail)

    def read_step(self, rest: str, where: str, fail: Fail) -> None:
        step = self.number(_bare(rest), "step", fail) if _bare(rest) else self.step + 1
        if step <= self.step:
            fail(f"found step {step} after step {self.step}, wanted {self.step + 1} or more")
        self.begin(step, fail)
        self.open = True

    def read_load(self, rest: str, where: str, fail: Fail) -> None:
        self.custom("load", rest, where, fail)

    def read_store(self, rest: str, where: str, fail: Fail) -> None:
        self.custom("store", rest, where, fail)

    def custom(self, word: str, rest: str, where: str, fail: Fail) -> None:
        """A step of the collective's own local copies."""
        assert self.collective is not None
        if _bare(rest):
            fail(f"found {_bare(rest)!r:.60} after {word!r}, wanted nothing")
        self.customs = self.customs or _customs(self.collective)
        if word not in self.customs:
            fail(f"{self.collective.name} has no {word}: leave the line out")
        self.begin(self.step + 1, fail)
        self.open = False
        columns = [self.customs[word].columns[name].tolist() for name in list(COLUMNS)[1:-1]]
        self.rows += [(self.step, *row, self.origin(where)) for row in zip(*columns, strict=True)]

    def begin(self, step: int, fail: Fail) -> None:
        if step >= MOST_STEPS:
            fail(f"found step {step}, wanted less than {MOST_STEPS}")
        self.step = step

    def entries(self, label: re.Match[str], where: str, fail: Fail) -> None:
        if not self.open or self.collective is None:
            fail("found entries of a rank outside a step, wanted a line `step` above")
        rank = self.number(label[1], "rank", fail)
        n = self.collective.n
        if rank >= n:
            fail(f"found rank {rank}, wanted one of 0..{n - 1}")
        origin = self.origin(where)
        for entry in label[2].split("#", 1)[0].split(";"):
            words = entry.split()
            if words:
                self.rows.append((self.step, *self.entry(rank, words, fail), origin))

    def entry(self, rank: int, words: list[str], fail: Fail) -> tuple[int, ...]:
        """action … count of one entry."""
        assert self.collective is not None
        c = self.collective
        said = f"{' '.join(words)!r:.80}"
        verb = words[0]
        if verb not in _PREPOSITIONS:
            fail(f"{said}: found {verb!r:.60}{near(verb, _PREPOSITIONS)}; wanted {', '.join(_PREPOSITIONS)}")
        joins = _PREPOSITIONS[verb]
        if len(words) != 4:
            like = f"{verb} out[0] {joins[0]} {_LIKE[joins[0]]}"
            fail(f"{said}: found {len(words)} words, wanted 4 as in `{like}`")
        place, join, target = words[1:]
        if join not in joins:
            fail(f"{said}: found {join!r:.60}{near(join, joins)}; wanted {' or '.join(joins)}")
        local = verb == "copy" or join == "into"
        buffer, chunk, count = self.place(place, c.source if local or verb == "send" else c.sink, said, fail)
        if local:
            to_buffer, to_chunk, to_count = self.place(target, c.sink, said, fail)
            if count != to_count:
                fail(f"{said}: found {place} of {counted(count, 'chunk')} and {target} of {to_count}, wanted as many")
            return _VERBS.index(verb), rank, rank, buffer, chunk, to_buffer, to_chunk, count
        peer = self.number(target, f"{said}: rank", fail)
        if peer >= c.n:
            fail(f"{said}: found rank {peer}, wanted one of 0..{c.n - 1}")
        if peer == rank:
            fail(f"{said}: found the rank itself, wanted another rank, or as in `copy out[0] to out[1]`")
        action = Action.SEND if verb == "send" else Action.RECV + _RECEIVES.index(verb)
        return action, rank, peer, buffer, chunk, -1, -1, count

    def place(self, word: str, default: int, said: str, fail: Fail) -> tuple[int, int, int]:
        """Buffer, first chunk and count of `out[3]`, `out[0:4]` or `[3]`."""
        found = _PLACE.fullmatch(word)
        if found is None:
            fail(f"{said}: found {word!r:.60}, wanted a chunk or a range as in `out[3]` or `out[0:4]`")
        if found[1] and found[1] not in BUFFERS:
            fail(
                f"{said}: found buffer {found[1]!r:.60}{near(found[1], BUFFERS)}; wanted {', '.join(BUFFERS)}"
            )
        first = self.number(found[2], f"{said}: chunk", fail)
        end = first + 1 if found[3] is None else self.number(found[3], f"{said}: chunk", fail)
        if end <= first:
            fail(f"{said}: found {word}, which is empty, wanted as in {word.split(':')[0]}:{first + 1}]")
        return int(BUFFERS[found[1]]) if found[1] else int(default), first, end - first

    def number(self, word: str, what: str, fail: Fail) -> int:
        if not re.fullmatch("[0-9]+", word):
            fail(f"{what}: found {word!r:.60}, wanted a whole number")
        digits = word.lstrip("0") or "0"
        if len(digits) > 10 or int(digits) >= 2**31:
            fail(f"{what}: found {word:.60}, which does not fit in 32 bits")
        return int(digits)

    def origin(self, where: str) -> int:
        if not self.origins or self.origins[-1] != where:
            self.origins.append(where)
        return len(self.origins) - 1

    def schedule(self) -> Schedule:
        fail = _at(self.source)
        if self.collective is None:
            fail("no line `collective …`: wanted one as in `collective all_reduce n=4`")
        table = np.array(self.rows, np.int64).reshape(-1, len(COLUMNS)).T
        columns = dict(zip(COLUMNS, table, strict=True))
        scratch = _scratch(self.collective, columns) if self.scratch is None else self.scratch
        _bounded(self.collective, scratch, fail)
        s = Schedule(self.name or "", self.collective, scratch, **columns, origins=tuple(self.origins))
        try:
            return s.canonical()
        except ScheduleError:
            return s


_WORDS = ("schedule", "collective", "scratch", "load", "step", "store")
_WORD = re.compile(r"[^\S\n]*([^\s#]*)\s*(.*)", re.DOTALL)
_LABEL = re.compile(r"\s*([0-9]+)\s*:(.*)", re.DOTALL)
_PAIR = re.compile(r"\s*([A-Za-z_]\w*)=")
_PLACE = re.compile(r"(\w*)\[([0-9]+)(?::([0-9]+))?\]", re.ASCII)
_PREPOSITIONS = {
    "send": ("to",), "recv": ("from",), "reduce": ("from", "into"), "prereduce": ("from", "into"),
    "copy": ("to",),
}  # fmt: skip
_LIKE = {"to": "1", "from": "1", "into": "out[1]"}
assert set(BUFFER_NAMES.values()) == set(BUFFERS)


def _bare(rest: str) -> str:
    return rest.split("#", 1)[0].strip()


def _value(rest: str, at: int, what: str, fail: Fail) -> tuple[Any, int]:
    """The JSON value at a place of a line, and where it ends."""
    try:
        return _JSON.raw_decode(rest, at)
    except json.JSONDecodeError as error:
        fail(f"{what}: not JSON: {error.msg} at {rest[error.pos : error.pos + 20]!r}")
    except (ValueError, RecursionError) as error:
        fail(f"{what}: not JSON that can be read: {error}")
