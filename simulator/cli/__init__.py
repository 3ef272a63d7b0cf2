"""Floor 8: the commands of `simulator`.

A command is one module here, named in COMMANDS, with `add_parser(subparsers)` and `execute(args) -> exit code`. Its
imports at the top are light, so that `simulator --help` is quick; heavy modules are imported in `execute`.

Exit codes: 0 done; 1 a failure of the program or of the computation; 2 the user's mistake; 3 stopped early and can
be continued. Ctrl-C outside of a run gives 130, a closed pipe 141, as shells expect.
"""

import importlib
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence

from simulator.cli.parser import CommandParser, ShowVersion, unknown_command
from simulator.errors import RunFailure, UserError

COMMANDS = (
    "run",
    "resume",
    "check",
    "explain",
    "init",
    "cite",
    "docs",
    "completion",
    "sweep",
    "plan",
    "submit",
    "status",
    "plot",
    "movie",
    "report",
    "render",
    "analyze",
    "verify",
    "devices",
    "doctor",
    "bench",
    "validate",
)


def build_parser(commands: Sequence[str] = COMMANDS) -> CommandParser:
    """The parser of the whole program, with the given commands."""
    parser = CommandParser(
        prog="simulator",
        description="Pseudo-spectral simulations of fluids and self-gravitating matter in a periodic box.",
        epilog="example: simulator check configs/taylor_green.yaml",
    )
    parser.add_argument("--version", action=ShowVersion, help="print the version and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in commands:
        importlib.import_module(f"simulator.cli.{command}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    began = time.monotonic()
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):  # None if the caller has closed it (`>&-`)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - stays open
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # names of files and variables may not be valid text
    # XLA's warnings about its compile cache mean nothing to a user. It reads this when JAX is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        code = _dispatch(arguments, began)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _say(error, 2)
    except RunFailure as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except BrokenPipeError:
        # The reader of the output has closed it; the flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if _raised_by_import_of_jax(error):
            names = ", ".join(name for name in os.environ if name.startswith("JAX_"))
            return _say(f"JAX refuses its environment ({error}); correct or unset one of {names}", 2)
        traceback.print_exc()
        return 1


def _dispatch(arguments: list[str], began: float) -> int:
    first = arguments[0] if arguments else ""
    if first and not first.startswith("-") and first not in COMMANDS:
        raise unknown_command(first, COMMANDS)
    # A command needs only its own module; --help needs all of them.
    commands = (first,) if first in COMMANDS else COMMANDS
    try:
        args = build_parser(commands).parse_args(arguments)
    except SystemExit as exit:  # --help
        return exit.code if isinstance(exit.code, int) else 0
    args.arguments, args.began = arguments, began
    return args.func(args)


def _raised_by_import_of_jax(error: BaseException) -> bool:
    """Whether the import of JAX failed because of the value of an environment variable."""
    modules = [
        frame.f_globals.get("__name__")
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>"
    ]
    return isinstance(error, ValueError) and "jax" in modules


def _say(message: object, code: int) -> int:
    print(message, file=sys.stderr)
    return code
