#!/usr/bin/env python
"""Writes the numbers of simulator/docs/physics/how_we_know.md from the files in
scripts/measured/validation.

    simulator validate && cp outputs/validation/validation.json scripts/measured/validation/validation_default.json
    scripts/taylor_green_curve.py outputs/taylor_green_re1600
    scripts/how_we_know.py [--check]

Every file validation_*.json is a table of `simulator validate`; taylor_green_*.json is a run beside
published data. With --check nothing is written, and the exit code is 1 if the page differs."""

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from performance import Parts, Results, table, written

from simulator.words import duration

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "simulator/docs/physics/how_we_know.md"
FILES = ROOT / "scripts/measured/validation"


def day(iso: str) -> str:
    when = date.fromisoformat(iso)
    return f"{when.day} {when:%B %Y}"


def program(commit: str | None, version: str) -> str:
    return f"commit {commit[:9]}" if commit else f"version {version}"


def percent(part: float) -> str:
    return f"{100 * part:.2f} %"


def vortex(results: Results) -> list[str]:
    lines: list[str] = []
    for r in results:
        m = r["measured"]
        shape = " × ".join(map(str, r["shape"]))
        lines += [
            f"{shape} points, `{r['dealias']}`, {r['precision']} precision, k_max η at least "
            f"{r['k_max_eta']:.2f}. Run on {day(m['date'])} in {duration(m['seconds'])} on "
            f"{m['devices']['threads']} cores of {m['processor']}, {program(m['commit'], m['version'])}. "
            f"Compared at {r['rows']} times up to t = {r['last']:.2f} with {r['source']}:",
            "",
        ]
        rows = [
            [
                name,
                percent(d["of_maximum"]),
                f"{percent(d['largest'])} at t = {d['at']:.2f}",
                *(
                    f"{d[of]['value']:.4g} at t = {d[of]['time']:.2f}" if of in d else ""
                    for of in ("peak", "published_peak")
                ),
                percent(d["at_peak"]) if "at_peak" in d else "",
            ]
            for name, d in r["differences"].items()
        ]
        head = (
            "",
            "largest difference / largest value",
            "largest difference / value then",
            "peak here",
            "published peak",
            "difference of the peaks",
        )
        lines += [*table(head, rows), "", "```console", f"$ {m['command']}", "```", ""]
    return lines[:-1]


def validation(results: Results) -> list[str]:
    lines: list[str] = []
    for r in results:
        m = r["measured"]
        rows = [
            [
                f"`{case['case']}`",
                check["quantity"].replace("<", "&lt;"),
                f"{check['expected']:.8g}",
                f"{check['measured']:.8g}",
                f"{check['error']:.1e}{'' if check['absolute'] else ' rel'}",
                f"{check['allowed']:.1e}",
                check["source"].replace("|", "\\|"),
            ]
            for case in r["cases"]
            for check in case["checks"]
        ]
        head = ("case", "quantity", "expected", "measured", "error", "allowed", "source")
        seconds = sum(case["seconds"] for case in r["cases"])
        lines += [
            f"Run on {day(m['date'])} in {duration(seconds)} at a load of {m['load']:g}: "
            f"{r['devices']}; {m['cores']} cores of {m['processor']}, "
            f"{program(m['commit'], m['version'])}.",
            "",
            *table(head, rows),
            "",
            "```console",
            f"$ {m['command']}",
            "```",
            "",
        ]
    return lines[:-1]


PARTS: Parts = {"taylor_green": vortex, "validation": validation}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    args = parser.parse_args(arguments)
    page = PAGE.read_text()
    text = written(page, FILES, PARTS)
    if not args.check:
        PAGE.write_text(text)
    elif page != text:
        print(f"{PAGE}: differs from the files in {FILES}; run scripts/how_we_know.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
