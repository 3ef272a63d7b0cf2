"""The commands of `simulator`.

A command is one module here, named in COMMANDS, with `add_parser(subparsers)` and
`execute(args) -> exit code`. Its imports at the top are light, so that
`simulator --help` is quick; the work is imported in `execute`.

Exit codes: 0 done; 1 a failure of ours or of the computation; 2 the user's mistake; 3 stopped early and can
continue. Ctrl-C outside of a run gives 130, a closed pipe 141, as shells expect.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from simulator.cli.parser import CommandParser, unknown_command
from simulator.errors import RunFailure, UserError

COMMANDS = (
    "run",
    "resume",
    "check",
    "sweep",
    "plan",
    "submit",
    "status",
    "plot",
    "movie",
    "verify",
    "merge",
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
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in commands:
        importlib.import_module(f"simulator.cli.{command}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):  # closed by who called us (`>&-`): Python leaves None there
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for good
    # XLA prints warnings about its own compile cache that mean nothing to a user (before JAX is imported).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _say(error, 2)
    except RunFailure as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output has left; what Python flushes at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception:
        traceback.print_exc()
        return 1


def _dispatch(arguments: list[str]) -> int:
    given = arguments[0] if arguments else ""
    if given and not given.startswith("-") and given not in COMMANDS:
        raise unknown_command(given, COMMANDS)
    # One command's module is enough for that command; --help needs them all.
    commands = (given,) if given in COMMANDS else COMMANDS
    try:
        args = build_parser(commands).parse_args(arguments)
    except SystemExit as exit:  # --help
        return exit.code if isinstance(exit.code, int) else 0
    args.arguments = arguments
    return args.func(args)


def _say(message: object, code: int) -> int:
    print(message, file=sys.stderr)
    return code
