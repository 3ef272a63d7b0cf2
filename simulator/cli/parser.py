"""argparse with one-line errors, and with overrides anywhere among the options."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from simulator.errors import UserError, did_you_mean

EXECUTES = "Python files that the configuration names are executed, with your permissions."
"""Part of the help of commands that do so without looking as if they did."""


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserErrors and accepts `key=value` before, between and after options.

    The latter is argparse's intermixed parsing, which cannot handle subcommands.
    """

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
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        if self._has_commands or self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            namespace, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False
        if unknown:
            meant = did_you_mean(unknown[0], self._option_string_actions, "")
            self.error(f"unknown argument {unknown[0]}{meant}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        separator = "" if message.endswith("?") else ";"
        raise UserError(f"{self.prog}: {message}{separator} see {self.prog} --help")


class ShowVersion(argparse.Action):
    """The option --version. Metadata of packages is read only if it is given."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(
            option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"{parser.prog} {program_version()}")
        parser.exit()


def program_version() -> str:
    """The version of the installed program; "unknown" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("simulator")
    except PackageNotFoundError:
        return "unknown"


def unknown_command(name: str, known: Sequence[str]) -> UserError:
    """The error for a command that does not exist, with a similar name."""
    return UserError(
        f"simulator: unknown command {name!r}{did_you_mean(name, known)} known: {', '.join(known)}"
    )


def with_output(overrides: Sequence[str], output: str | None) -> list[Any]:
    """The overrides with that of `--output DIR`, which replaces `output.directory=DIR`."""
    from simulator.config.overrides import text_override

    if output is None:
        return list(overrides)
    kept = [override for override in overrides if not override.startswith("output.directory=")]
    return [*kept, text_override("output.directory", output)]


def add_config_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """The positional arguments of every command that reads a run's file: CONFIG [key.path=value ...]."""
    parser.add_argument("config", metavar="CONFIG", nargs=None if required else "?", help="a run's YAML file")
    parser.add_argument(
        "overrides",
        metavar="key.path=value",
        nargs="*",
        default=[],
        help="values that replace the file's, read as YAML; key=null removes a key",
    )
