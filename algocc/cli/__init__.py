"""The command `algocc`.

Exit codes: 0 all is well; 1 a claim is false; 2 the input can't be used; 70 a bug in algocc; 130 interrupted;
141 nobody reads the output. With `--json` a command prints one JSON object on stdout, for an error
`{"error": …, "exit_code": …}`; the message of an error is on stderr in any case.

Each command is imported when it is called, so that `algocc --help` needs neither NumPy nor Numba.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from functools import partial
from importlib import import_module

import click

from algocc import __version__
from algocc.errors import AlgoccError, near

COMMANDS = {
    "list": ("algocc.cli.look", "The schedules that ship with algocc, by collective."),
    "show": ("algocc.cli.show", "What a schedule does step by step, or the Program that runs."),
    "draw": ("algocc.cli.draw", "A picture of a schedule, or a page to step through it."),
    "verify": ("algocc.cli.judge", "Prove a schedule right, and compare it with the lower bounds."),
    "prove": ("algocc.cli.prove", "Prove a schedule right for every number of ranks at once."),
    "bound": ("algocc.cli.judge", "What no schedule of a collective can beat, and why."),
    "topo": ("algocc.cli.topo", "A machine's links, and what no schedule on it can beat, with the cut that proves it."),
    "certify": ("algocc.cli.certify", "Write down why a schedule is right, for a checker that does not trust algocc."),
    "check": ("algocc.cli.certify", "Check such a certificate, independently."),
    "compare": ("algocc.cli.compare", "All algorithms of a collective in one table, and which is fastest for which sizes."),
    "run": ("algocc.cli.execute", "Verify a schedule, run it on CPU threads, check every element."),
    "bench": ("algocc.cli.bench", "Time a collective over a range of sizes, as nccl-tests does."),
    "tune": ("algocc.cli.tune", "Measure which schedule is fastest on this machine, for schedule=auto."),
    "import": ("algocc.cli.convert", "Read an MSCCL or MSCCL++ file, and keep it as a schedule."),
    "export": ("algocc.cli.convert", "Write a schedule for MSCCL, MSCCL++, a simulator, or a picture of it."),
    "doctor": ("algocc.cli.look", "What this machine has, and what an extra would add."),
}
"""The module of each command, and its line in the help."""

BUG = 70
INTERRUPTED = 130
UNREAD = 141


class Commands(click.Group):
    """The commands of the table above, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            ctx.fail(f"unknown command {name!r}{near(name, COMMANDS)}; one of {', '.join(COMMANDS)}")
        command = getattr(import_module(COMMANDS[name][0]), f"{name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="algocc")
def algocc() -> None:
    """Collective-communication algorithms: proved, compared with exact bounds, and run.

    SCHEDULE is a name of `algocc list`, file.py:function, or a table in file.json or file.txt.
    """


def main(args: list[str] | None = None) -> int:
    """Run one command, that of the process if no args are given; its exit code."""
    if args is None:
        args = sys.argv[1:]
        signal.signal(signal.SIGINT, partial(_interrupt, args))
    try:
        code = _invoke(args or ["--help"])
        sys.stdout.flush()
        return code
    except AlgoccError as error:
        return _fail(str(error), error.exit_code, args)
    except click.ClickException as error:
        ctx = getattr(error, "ctx", None)
        where = f"{ctx.command_path.removeprefix('algocc').strip()}: ".lstrip(": ") if ctx else ""
        hint = f" (`{ctx.command_path} --help` shows its options)" if ctx else ""
        return _fail(f"{where}{error.format_message()}{hint}", 2, args)
    except MemoryError as error:
        return _fail(f"not enough memory: {error or 'it is full'}; use fewer ranks, chunks or elements", 2, args)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED, args)
    except OSError as error:
        if error.errno == errno.EPIPE:
            _discard_output()
            return UNREAD
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT):
            return _bug(error, args)
        _discard_output()
        return _fail(f"the output can't be written: {error.strerror}", 2, args)
    except Exception as error:
        return _bug(error, args)


def _invoke(args: list[str]) -> int:
    try:
        with algocc.make_context("algocc", list(args)) as ctx:
            if "NO_COLOR" in os.environ:
                ctx.color = False
            return int(algocc.invoke(ctx) or 0)
    except click.exceptions.Exit as leave:
        return leave.exit_code


def _fail(message: str, code: int, args: list[str]) -> int:
    """Say what went wrong, on stderr, and with `--json` on stdout too."""
    try:
        if "--json" in args:
            print(json.dumps({"error": message, "exit_code": code}), flush=True)
        print(f"algocc: {message}", file=sys.stderr)
    except OSError:
        _discard_output()
    return code


def _interrupt(args: list[str], *_: object) -> None:
    """End at once: a KeyboardInterrupt that reaches a compiled function as it returns crashes the interpreter."""
    try:
        sys.stdout.flush()
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h\n")  # a progress bar hides the cursor
        _fail("interrupted", INTERRUPTED, args)
    except (RuntimeError, OSError, ValueError):
        pass  # it was being written to
    os._exit(INTERRUPTED)


def _bug(error: Exception, args: list[str]) -> int:
    if os.environ.get("ALGOCC_DEBUG"):
        raise error
    message = f"this is a bug in algocc: {type(error).__name__}: {error} (set ALGOCC_DEBUG=1 to see where)"
    return _fail(" ".join(message.split()), BUG, args)


def _discard_output() -> None:
    """Let nothing more be written to stdout, not even by the interpreter as it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
