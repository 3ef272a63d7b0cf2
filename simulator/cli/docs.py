"""`simulator docs`: the documentation, offline."""

import argparse
import re
import sys
from typing import Any

from simulator.errors import UserError, did_you_mean


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "docs",
        help="show the documentation, also without a network",
        description="Show a page of the documentation. In a terminal it is formatted, in a pipe it is Markdown. "
        "Without PAGE, show the first page.",
        epilog="example: simulator docs guide/restart",
    )
    parser.add_argument("page", metavar="PAGE", nargs="?", help="a page's name, or the last part of it")
    parser.add_argument("--list", action="store_true", help="list the pages")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the page, or the list."""
    from simulator.cli import build_parser
    from simulator.cli.pages import SECTIONS, page, title

    parser = build_parser()
    if args.list:
        if args.page is not None:
            raise UserError("simulator docs: --list lists all pages; leave PAGE out")
        for section, members in SECTIONS.items():
            print(section)
            for name in members:
                print(f"  {name:26}{title(page(name, parser))}")
        return 0
    text = page(find(args.page), parser) if args.page else page("index", parser)
    text = re.sub(
        r"^::: (\S+)(\n    .*)*$", r"`help(\1)` in Python prints its documentation.", text, flags=re.M
    )
    if not sys.stdout.isatty():
        print(text)
        return 0
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text, hyperlinks=False))
    return 0


def find(wanted: str) -> str:
    """The page named `wanted`, or whose last part is. Raises UserError with a similar name."""
    from simulator.cli.pages import names

    known = names()
    name = wanted.removesuffix(".md").strip("/")
    matches = [n for n in known if n == name] or [n for n in known if n.endswith(f"/{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"simulator docs: {wanted} is the end of several names: {', '.join(matches)}")
    ends = [n.rpartition("/")[2] for n in known]
    meant = did_you_mean(name, [*known, *ends], "; simulator docs --list lists the pages")
    raise UserError(f"simulator docs: unknown page {wanted}{meant}")
