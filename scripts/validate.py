#!/usr/bin/env python
"""Compares this installation with exact solutions and published numbers.

    python scripts/validate.py taylor_green_64 alfven_wave

prints expected and measured values with their sources. By default only fast cases run, within
minutes; --full also runs the cases that need a GPU or a night. The exit code is 1 if a case misses.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from validation_cases import CASES
from validation_cases.case import HEADER, CaseOutcome, row, write

from simulator.words import aligned_lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", metavar="CASE", nargs="*", help="names of cases; see --list")
    parser.add_argument("--full", action="store_true", help="run every case")
    parser.add_argument("--list", action="store_true", help="print the cases and run nothing")
    what = "folder for validation.md, validation.json and plots (default: %(default)s)"
    parser.add_argument(
        "--output", metavar="DIR", type=Path, default=Path("outputs/validation"), help=what
    )
    args = parser.parse_args(arguments)
    if args.list:
        for case in CASES.values():
            print(f"{case.name:24}{case.what}{' (--full)' if case.full else ''}")
        return 0
    if unknown := [name for name in args.cases if name not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}; known: {', '.join(CASES)}")
    chosen = [CASES[n] for n in args.cases] or [
        c for c in CASES.values() if args.full or not c.full
    ]
    outcomes = []
    for case in chosen:
        print(f"{case.name}: {case.what} ...", flush=True)
        began = time.monotonic()
        outcomes.append(CaseOutcome(case, case.run(), time.monotonic() - began))
    rows = [HEADER, *(row(o.case.name, check) for o in outcomes for check in o.result.checks)]
    print("\n".join(aligned_lines(rows, ())))
    for path in write(args.output, outcomes):
        print(path)
    missed = [o.case.name for o in outcomes if not o.passed]
    verdict = f"missed: {', '.join(missed)}" if missed else "all within their tolerances"
    print(f"{len(outcomes)} cases, {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
