"""`simulator run`: run a configuration, or continue it."""

import argparse
from typing import Any

from simulator.cli.parser import add_config_arguments, with_output


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "run",
        help="run a configuration, or continue an interrupted run",
        description="Run a configuration. An interrupted run continues from its newest good checkpoint; a finished "
        "run is left as it is.",
        epilog="example: simulator run configs/taylor_green.yaml time.stop=2 devices.count=4 --output outputs/tg",
    )
    add_config_arguments(parser)
    parser.add_argument("--output", metavar="DIR", help="the run folder; the same as output.directory=DIR")
    parser.add_argument("--overwrite", action="store_true", help="first remove the files of an earlier run")
    add_process_arguments(parser)
    parser.set_defaults(func=execute)


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that start the processes of a run."""
    group = parser.add_argument_group("processes")
    group.add_argument("--processes", type=int, metavar="N", help="start N local processes that form one run")
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address where processes started by hand meet"
    )
    group.add_argument("--num-processes", type=int, metavar="N", help="number of processes started by hand")
    group.add_argument("--process-id", type=int, metavar="I", help="number of this process, from 0")


def execute(args: argparse.Namespace) -> int:
    """Run; returns the exit code."""
    from simulator.config import load_config
    from simulator.run.command import allocated, run_config

    with allocated(args) as allocation:
        config = load_config(args.config, with_output(args.overrides, args.output))
        return run_config(config, args, allocation)
