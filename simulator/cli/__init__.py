"""Floor 8: the commands of `simulator`.

A command is a function with the command's name in the module that GROUPS names, or an entry point of
`simulator.commands`; `parser.command` declares its arguments. The function parses, calls and prints. The modules at
the top of a file are quick to import, so that `simulator --help` is quick; functions import other modules when they
are called.

Exit codes: 0 done; 1 a failure of the program or of the computation; 2 the user's mistake; 3 stopped early, can be
continued. Ctrl-C outside of a run gives 130, a closed pipe 141, as shells expect."""

import argparse
import contextlib
import errno
import gc
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from simulator.cli.parser import Command, CommandParser, admitted_command
from simulator.cluster.mpi import offer_library
from simulator.errors import UserError, did_you_mean
from simulator.files import ending
from simulator.registry import Registry, UnusablePart
from simulator.stopwatch import Stopwatch
from simulator.words import say, version_of

GROUPS: dict[str, dict[str, str]] = {
    "run": {
        "run": "run",
        "resume": "run",
        "init": "case",
        "check": "case",
        "explain": "case",
        "plan": "plan",
    },
    "look": {
        "status": "look",
        "analyze": "look",
        "verify": "look",
        "unpack": "look",
        "environment": "look",
    },
    "study": {"sweep": "sweep"},
    "cluster": {"submit": "run"},
}
"""The core's commands in the order of the help, each with its module in this package."""
COMMANDS = Registry[Command](
    "simulator.commands",
    {
        name: f"simulator.cli.{module}:{name}_command"
        for group in GROUPS.values()
        for name, module in group.items()
    },
    admitted_command,
)
GONE = {
    "merge": "open_run(RUN).to_xarray().isel(time=-1).to_netcdf('out.nc') in Python writes a snapshot as one file",
    "bench fft": "scripts/bench_fft.py of the sources times the transforms of every backend",
    "completion": "simulator --help lists the commands, simulator COMMAND --help its options",
    "analyze --halos": "simulator halos RUN finds halos and cores",
    "devices": "simulator doctor [CONFIG] shows processes, devices and the part of a field on each",
}
"""The commands of version 0.1 that are gone, each with its replacement."""


def build_parser(commands: Iterable[str] = COMMANDS) -> CommandParser:
    parser = CommandParser(
        prog="simulator",
        usage="simulator [-h] [--version] COMMAND ...",
        description="Pseudo-spectral simulations of fluids and self-gravitating matter in a periodic box.",
        epilog="example: simulator check configs/taylor_green.yaml",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    # The help lists the commands by group instead.
    subparsers = parser.add_subparsers(
        prog="simulator", metavar="COMMAND", dest="command", required=True, help=argparse.SUPPRESS
    )
    groups: dict[str, str] = dict.fromkeys(GROUPS, "")
    for name in commands:
        command = COMMANDS[name]
        command.add_to(subparsers, name)
        group = command.group or next(g for g, names in GROUPS.items() if name in names)
        groups[group] = f"{groups.get(group, '')}\n  {name:12}{command.help}"
    for group, lines in groups.items():
        parser.description = (
            f"{parser.description}\n\n{group}:{lines}" if lines else parser.description
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    spent = Stopwatch()
    # Imports and traces make many objects and little garbage: looking for it took a tenth of a short
    # run.
    gc.set_threshold(100_000, 50, 100)
    arguments = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = _warn
    # Python sets a stream that the caller has closed (`>&-`) to None
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - stays open
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            # the name of a file need not be valid text
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _dispatch(arguments, spent)
    except BaseException as error:
        code = _report(error)
    return _flushed(code)


_show_warning = warnings.showwarning


def _warn(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Say a warning about an installed package in one line, and any other as Python does."""
    if issubclass(category, UnusablePart):
        _say(f"warning: {message}", 0)
    else:
        _show_warning(message, category, *place)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _report(error: BaseException) -> int:
    """Say on stderr why the command ended. Returns the exit code."""
    if isinstance(error, BrokenPipeError):
        return _stdout_failed(error)
    # Errors of writing to a file name the file, so that only `print` raises these without a name.
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        return _stdout_failed(error)
    if (known := ending(error)) is not None:
        return _say(known[1], known[0])
    names = ", ".join(name for name in os.environ if name.startswith("JAX_"))
    if isinstance(error, ValueError) and names and _while_importing_jax(error):
        return _say(f"JAX refuses its environment ({error}); correct or unset one of {names}", 2)
    say("".join(traceback.format_exception(error)).rstrip())
    return 1


def _while_importing_jax(error: BaseException) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "jax"
        for frame in frames
    )


def _flushed(code: int) -> int:
    """Write what stdout still holds. Returns `code`, or the exit code for a stdout that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _stdout_failed(error)
    return code


def _stdout_failed(error: OSError) -> int:
    """Send the rest of stdout nowhere, so that the flush at exit does not fail again. Returns the
    exit code."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader has closed the pipe
        return 141
    return _say(f"standard output: {error.strerror}", 1)


def _dispatch(arguments: list[str], spent: Stopwatch) -> int:
    first = arguments[0] if arguments else ""
    # A subcommand is the second word; an option may stand anywhere.
    options = (word for word in arguments[2:] if word.startswith("-"))
    for name in (first, *(f"{first} {word}" for word in (*arguments[1:2], *options))):
        if name in GONE:
            raise UserError(f"simulator {name}: this command is gone; {GONE[name]}")
    if first and not first.startswith("-") and first not in COMMANDS:
        meant = did_you_mean(first, COMMANDS)
        raise UserError(f"simulator: unknown command {first!r}{meant} known: {', '.join(COMMANDS)}")
    if first == "--version":
        print(f"simulator {version_of()}")
        return 0
    # A command needs only its own module; --help needs all modules.
    commands = (first,) if first in COMMANDS else COMMANDS
    try:
        args = build_parser(commands).parse_args(arguments)
    except SystemExit as exit:  # --help
        return exit.code if isinstance(exit.code, int) else 0
    args.arguments = arguments
    args.spent = spent
    offer_library(os.environ)
    return args.func(args)


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr may be on a full disk too
        say(message)
    return code
