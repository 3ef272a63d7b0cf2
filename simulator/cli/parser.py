"""argparse with one-line errors, and with overrides anywhere among the options."""

import argparse
import contextlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from simulator.errors import UserError, did_you_mean, nearest
from simulator.words import say

LINE_EVERY = 30.0  # Seconds between two lines of progress without a terminal.


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserErrors and accepts `key=value` before, between and after options.

    argparse's intermixed parsing accepts such arguments, but cannot handle subcommands, so only the parsers without
    subcommands use it."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)
        self._has_commands = False
        self._intermixing = False

    def add_subparsers(self, **options: Any) -> Any:
        self._has_commands = True
        return super().add_subparsers(**options)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - it has overloads
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> Any:
        if self._has_commands or self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            namespace, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False
        if unknown:
            self.error(f"unknown argument {unknown[0]}{self._meant(unknown[0], args or ())}")
        return namespace, unknown

    def _meant(self, word: str, args: Sequence[str]) -> str:
        """Suggests what to write for the unknown `word` of `args`."""
        known = self._option_string_actions
        if "--sbatch" not in known:
            return did_you_mean(word, known, "")
        if meant := _OF_SBATCH.get(word) or nearest(word, known, cutoff=0.9):
            return f", did you mean {meant}?"
        after = args[args.index(word) + 1 :] if word in args else ()
        flag = word
        if (
            after
            and "=" not in word + after[0]
            and after[0][0] != "-"
            and not Path(after[0]).exists()
        ):
            flag += f"{'=' if word.startswith('--') else ' '}{after[0]}"
        return f"; a flag of sbatch that submit does not have goes into --sbatch='{flag}'"

    def error(self, message: str) -> NoReturn:
        separator = "" if message.endswith("?") else ";"
        raise UserError(f"{self.prog}: {message}{separator} see {self.prog} --help")


_OF_SBATCH = {
    "-A": "--account",
    "-C": "--constraint",
    "-N": "--nodes",
    "-c": "--cpus-per-task",
    "-p": "--partition",
    "-q": "--qos",
    "-t": "--time",
}
"""Short flags of sbatch, with the options of `submit` that set the same."""


Execute = Callable[[argparse.Namespace], int]
"""A function that executes a command and returns the exit code. Its docstring is the description of the command and
ends with an example."""


class Argument(NamedTuple):
    name: str
    options: dict[str, Any]
    group: str | None = None


def arg(
    name: str, help: str | None = None, *, group: str | None = None, **options: Any
) -> Argument:
    """An argument of a command, such as `arg("--csv OUT", "write the table to OUT")`, with further options of
    `ArgumentParser.add_argument`, under the heading `group` of the help."""
    name, _, metavar = name.partition(" ")
    options |= {"metavar": metavar} if metavar else {}
    options |= {"default": []} if options.get("action") == "append" else {}
    return Argument(name, {"help": help, **options}, group)


def overrides(help: str) -> Argument:
    """The positional arguments `key.path=value`."""
    return arg("overrides key.path=value", help, nargs="*", default=[])


def runs_and_overrides(args: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """The run folders and the overrides of a command with both; argparse counts the overrides after
    several folders among the folders."""
    words = [*args.runs, *args.overrides]
    changes = [word for word in words if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in words if word not in changes]
    if not runs:
        raise UserError(f"simulator {args.command}: name a run's folder")
    return runs, changes


def config_arguments(required: bool = True) -> tuple[Argument, ...]:
    """The positional arguments of the commands that read a run's file: CONFIG [key.path=value ...]."""
    return (
        arg("config CONFIG", "a run's YAML file", nargs=None if required else "?"),
        overrides("values that replace the file's, read as YAML; key=null removes a key"),
    )


BY_HAND = (
    arg(
        "--coordinator HOST:PORT", "address where processes started by hand meet", group="processes"
    ),
    arg("--num-processes N", "number of processes started by hand", type=int, group="processes"),
    arg("--process-id I", "number of this process, from 0", type=int, group="processes"),
)
"""The arguments of a process that the user starts by hand."""
PROCESSES = (
    arg("--processes N", "start N local processes that form one run", type=int, group="processes"),
    *BY_HAND,
)
"""The arguments that start the processes of a run."""


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, because stdout has the results; yields a function (done, total) that updates it.
    Without a terminal, a line every half minute."""
    from rich.console import Console
    from rich.progress import Progress

    if not sys.stderr.isatty():
        last = time.monotonic()

        def line(count: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY:
                last = time.monotonic()
                say(f"{title}: {count} of {total}")

        yield line
        return
    # If stdout is a file or a pipe, Rich must not redirect it, or the results would appear on stderr too.
    shown = sys.stdout.isatty()
    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=shown) as bar:
        task = bar.add_task(title, total=None)
        yield lambda count, total: bar.update(task, completed=count, total=total)


class Command(NamedTuple):
    help: str
    execute: Execute | None
    arguments: tuple[Argument, ...] = ()
    commands: "dict[str, Command]" = {}  # noqa: RUF012 - never changed
    about: str = ""  # The description and the example of a command with subcommands.
    group: str = ""  # The heading under which the help lists a plugin's command.

    def add_to(self, subparsers: "argparse._SubParsersAction[CommandParser]", name: str) -> None:
        text = inspect.getdoc(self.execute) if self.execute else self.about
        description, _, example = (text or "").partition("\n\nexample: ")
        parser = subparsers.add_parser(
            name, help=self.help, description=description, epilog=f"example: {example}"
        )
        groups: dict[str | None, Any] = {None: parser}
        for argument, options, group in self.arguments:
            if group not in groups:
                groups[group] = parser.add_argument_group(group)
            groups[group].add_argument(argument, **options)
        if self.commands:
            inner = parser.add_subparsers(
                title="commands", metavar="COMMAND", dest=f"{name}_command", required=True
            )
            for each, command in self.commands.items():
                command.add_to(inner, each)
        else:
            parser.set_defaults(func=self.execute)


def command(help: str, *arguments: Argument, group: str = "") -> Callable[[Execute], Command]:
    """Make a command of a function that executes it. A plugin names the `group` of the help in
    which its command is listed: run, look, study, cluster, about or another."""
    return lambda execute: Command(help, execute, arguments, group=group)


def admitted_command(name: str, declared: object) -> Command:
    if not isinstance(declared, Command):
        raise TypeError(
            f"a function with @simulator.cli.parser.command is needed, not {declared!r}"
        )
    return declared
