"""`simulator check`: validate a configuration and print it, resolved."""

import argparse
from typing import Any

from simulator.cli.parser import EXECUTES, add_config_arguments
from simulator.errors import UserError


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "check",
        help="validate a configuration and print it, resolved",
        description="Validate a configuration and write it, complete with all defaults, as YAML to stdout. "
        + EXECUTES,
        epilog="example: simulator check configs/taylor_green.yaml time.stop=2 grid.shape=32,32,32",
    )
    add_config_arguments(parser, required=False)
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON schema of the file, for editors"
    )
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the resolved YAML (or the schema) and nothing else."""
    import json

    from simulator.config import dump_config, json_schema, load_config

    if args.schema:
        if args.config is not None:
            raise UserError("simulator check: --schema describes every file; leave CONFIG out")
        print(json.dumps(json_schema(), indent=1))
    elif args.config is None:
        raise UserError("simulator check: name a file, e.g. simulator check configs/taylor_green.yaml")
    else:
        from simulator.planning.check_run import check, check_growth

        config = load_config(args.config, args.overrides)
        check_growth(check(config))
        print(dump_config(config), end="")
    return 0
