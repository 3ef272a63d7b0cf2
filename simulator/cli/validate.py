"""`simulator validate`: compares the program with exact solutions and published numbers."""

import argparse
import time
from pathlib import Path
from typing import Any

from simulator.errors import UserError


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "validate",
        help="compare this installation with exact solutions and published numbers",
        description="Run validation cases and print expected and measured values with their sources. By default the "
        "fast cases run, within minutes; --full also runs those for a GPU or a night. Exit code 1 if a case misses.",
        epilog="example: simulator validate taylor_green_64 alfven_wave",
    )
    parser.add_argument("cases", metavar="CASE", nargs="*", help="names of cases; see --list")
    parser.add_argument("--full", action="store_true", help="run every case")
    parser.add_argument("--list", action="store_true", help="print the cases and run nothing")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("outputs/validation"),
        help="folder for validation.md, validation.json and plots (default: %(default)s)",
    )
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Run the cases one by one, then print the table of all checks."""
    from simulator.check import CASES
    from simulator.check.report import HEADER, Outcome, lines, row, write

    if args.list:
        for case in CASES.values():
            print(f"{case.name:24}{case.what}{' (--full)' if case.full else ''}")
        return 0
    if unknown := [name for name in args.cases if name not in CASES]:
        raise UserError(f"simulator validate: unknown case {unknown[0]!r}; known: {', '.join(CASES)}")
    chosen = [CASES[n] for n in args.cases] or [c for c in CASES.values() if args.full or not c.full]
    outcomes = []
    for case in chosen:
        print(f"{case.name}: {case.what} ...", flush=True)
        began = time.monotonic()
        outcomes.append(Outcome(case, case.run(), time.monotonic() - began))
    rows = [HEADER, *(row(o.case.name, check) for o in outcomes for check in o.result.checks)]
    print("\n".join(lines(rows)))
    for path in write(args.output, outcomes):
        print(path)
    missed = [o.case.name for o in outcomes if not o.passed]
    verdict = f"missed: {', '.join(missed)}" if missed else "all within their tolerances"
    print(f"{len(outcomes)} cases, {verdict}")
    return 1 if missed else 0
