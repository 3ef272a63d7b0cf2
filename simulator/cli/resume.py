"""`simulator resume`: continue a run from its folder alone."""

import argparse
from pathlib import Path
from typing import Any

from simulator.cli.run import add_process_arguments
from simulator.errors import UserError


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "resume",
        help="continue a run from its folder",
        description="Continue the run in the folder RUN, which may have been moved, from its newest good checkpoint, "
        "on any number of devices. A finished run continues to a later time.stop.",
        epilog="example: simulator resume outputs/taylor_green time.stop=2 --processes 2",
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="a run folder")
    parser.add_argument(
        "overrides",
        metavar="key.path=value",
        nargs="*",
        default=[],
        help="values that replace those of RUN/config.yaml, read as YAML",
    )
    parser.add_argument(
        "--allow",
        metavar="KEY",
        action="append",
        default=[],
        help="let this otherwise frozen key change, e.g. model.viscosity; may be repeated",
    )
    add_process_arguments(parser)
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Continue; returns the exit code."""
    from simulator.archive.open_run import open_run
    from simulator.config import load_config
    from simulator.config.overrides import text_override
    from simulator.run.command import allocated, run_config

    with allocated(args) as allocation:
        for override in args.overrides:
            if override.partition("=")[0] in ("output.directory", "output"):
                raise UserError(
                    f"command line: {override}: resume continues in the folder RUN; move it instead"
                )
        folder = open_run(args.folder).path.absolute()
        # Links and leading dots in the path are kept. Input files may be gone, because the run uses its copies.
        overrides = [*args.overrides, text_override("output.directory", str(folder))]
        config = load_config(folder / "config.yaml", overrides, check_files=False)
        return run_config(config, args, allocation, allow=args.allow)
