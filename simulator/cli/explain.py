"""`simulator explain`: the meaning of a key of a run's file."""

import argparse
import re
import textwrap
from typing import Any

from simulator.errors import UserError, did_you_mean


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "explain",
        help="print the meaning of a key of a run's file",
        description="Print type, default and meaning of a key, or of all keys of a block.",
        epilog="example: simulator explain model.hyperviscosity",
    )
    parser.add_argument(
        "key", metavar="KEY", nargs="?", default="", help="a key such as time.cfl; by default all blocks"
    )
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the key's page."""
    from simulator.config.reference import keys

    wanted = re.sub(r"\.\d+(?=\.|$)", ".N", args.key.strip("."))
    known = keys()
    if not wanted:
        shown = [key for key in known if "." not in key.path]
    else:
        shown = [key for key in known if key.path == wanted]
        inside = [key for key in known if key.path.startswith(f"{wanted}.")]
        shown += [key for key in inside if key.path.count(".") == wanted.count(".") + 1]
    if not shown:
        meant = did_you_mean(wanted, {key.path for key in known}, "; simulator explain lists the blocks")
        raise UserError(f"simulator explain: unknown key {args.key}{meant}")
    for key, kinds in _merged(shown):
        where = f"  [{', '.join(kinds)}]" if any(kinds) else ""
        print(f"{key.path}{where}")
        default = "required" if key.required else f"default {key.default}"
        print(f"    {key.type}; {default}")
        if key.meaning:
            print(textwrap.fill(key.meaning, 96, initial_indent="    ", subsequent_indent="    "))
    return 0


def _merged(shown: list[Any]) -> list[tuple[Any, list[str]]]:
    """The keys with their kinds; a key that is the same in several kinds is listed once."""
    merged: dict[tuple[str, ...], tuple[Any, list[str]]] = {}
    for key in shown:
        same = (key.path, key.type, key.default, key.meaning)
        merged.setdefault(same, (key, []))[1].append(key.kind)
    return list(merged.values())
