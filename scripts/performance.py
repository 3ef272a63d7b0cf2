#!/usr/bin/env python
"""Writes the measured tables of simulator/docs/performance.md from the benchmarks' files in
scripts/measured.

    simulator bench step configs/taylor_green.yaml --json scripts/measured/step_64.json
    scripts/bench_peers.py --json scripts/measured/peers_128.json
    scripts/bench_fft.py --shape 128,128,128 --json scripts/measured/others_128.json
    scripts/performance.py [--check]

Every file step_*.json is a row of the table of steps. Every other file is a table: others_*.json
compares transforms, and peers_*.json steps, with those of other programs; shares_*.json divides
steps; particles_*.json times the passes over particles; gpu_*.json are the gpu_day.json of
scripts/gpu_day. With --check nothing is written, and the exit code is 1 if the page differs from
the files.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "simulator" / "docs" / "performance.md"
FILES = ROOT / "scripts" / "measured"

Results = Sequence[Mapping[str, Any]]


def circumstances(results: Results) -> list[str]:
    """A sentence for each machine and day. A load above the number of cores shows that other
    programs ran then."""
    together: dict[str, list[float]] = {}
    for result in results:
        m = result["measured"]
        day = date.fromisoformat(m["date"])
        program = f"commit {m['commit'][:9]}" if m["commit"] else f"version {m['version']}"
        where = (
            f"Measured on {day.day} {day:%B %Y} on {m['cores']} cores of {m['processor']} with "
            f"{m['memory'] / 2**30:.0f} GiB, {program}"
        )
        together.setdefault(where, []).append(m["load"])
    return [f"{where}; load {between(loads)}." for where, loads in together.items()]


def between(values: Sequence[float]) -> str:
    low = min(values)
    high = max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def shape(result: Mapping[str, Any]) -> str:
    n = result["shape"]
    return f"{n[0]}³" if len(set(n)) == 1 else " × ".join(map(str, n))


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def steps(results: Results) -> list[str]:
    rows = []
    for r in results:
        rows.append(
            [
                f"{r['model']}, {r['integrator']}, {shape(r)}, {r['precision']}",
                f"{r['devices']}, {r['kernels']}",
                f"{ms(r['step'])} ({ms(r['fastest'])} to {ms(r['slowest'])})",
                f"{r['points_per_second'] / 1e6:.2f}",
                f"{r['resident'] + r['temporary']:.1f}",
            ]
        )
    head = (
        "step",
        "devices, kernels",
        "median (range)",
        "10⁶ points/s a device",
        "words a point",
    )
    commands = [f"$ {r['measured']['command']}" for r in results]
    return [*circumstances(results), "", *table(head, rows), "", "```console", *commands, "```"]


def section(
    result: Mapping[str, Any], head: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    """The table of one file, with its circumstances and its command."""
    command = ["```console", f"$ {result['measured']['command']}", "```"]
    return [*circumstances([result]), "", *table(head, rows), "", *command, ""]


def transforms(results: Results) -> list[str]:
    lines: list[str] = []
    for r in results:
        first = r["transforms"][0]
        base = first["forward"] + first["inverse"]
        rows = [
            [
                row["name"],
                f"{row['forward'] + row['inverse']:.0f} ms",
                f"{(row['forward'] + row['inverse']) / base:.2f}",
                "" if row["sent"] is None else f"{row['sent'] / 1e6:.1f} MB",
                "" if row["temporary"] is None else f"{row['temporary']:.2f}",
            ]
            for row in r["transforms"]
        ]
        workers = f"{r['devices']} devices" if r["devices"] > 1 else f"{r['threads']} threads"
        what = f"{shape(r)}, {r['precision']}, {workers}"
        head = (
            what,
            "there and back",
            "against the first",
            "sends a device, forward",
            "temporary / input",
        )
        lines += section(r, head, rows)
    return lines[:-1]


def peers(results: Results) -> list[str]:
    lines: list[str] = []
    for r in results:
        rows = [
            [
                row["step"],
                row["program"],
                f"{1e3 * row['seconds']:.{1 if row['seconds'] < 0.01 else 0}f} ms",
                " / ".join(f"{ratio:.2f}" for ratio in row["ratios"]),
            ]
            for row in r["rows"]
        ]
        head = ("step", "program", "time", "here / it")
        lines += section(r, head, rows)
    return lines[:-1]


def shares(results: Results) -> list[str]:
    lines: list[str] = []
    for r in results:
        parts = list(r["rows"][0]["seconds"])
        rows = [
            [
                row["step"],
                *(f"{row['seconds'][part] / sum(row['seconds'].values()):.0%}" for part in parts),
            ]
            for row in r["rows"]
        ]
        lines += section(r, ("step, double", *parts), rows)
    return lines[:-1]


def passes(results: Results) -> list[str]:
    """Nanoseconds of a core for a particle, by pass and order, for each assignment."""
    lines: list[str] = []
    for r in results:
        kinds = list(dict.fromkeys(row["assignment"] for row in r["rows"]))
        by_order: dict[tuple[str, str], list[str]] = {}
        for row in r["rows"]:
            for name, seconds in row["seconds"].items():
                by_order.setdefault((name, row["order"]), []).append(f"{1e9 * seconds:.0f} ns")
        rows = [[f"{name}, {order}", *times] for (name, order), times in by_order.items()]
        lines += section(r, ("a particle, one core, single", *kinds), rows)
    return lines[:-1]


def gpus(results: Results) -> list[str]:
    """The steps of a day on a GPU, and the kernels that take most of a step."""
    lines: list[str] = []
    for r in results:
        steps = [p["found"] for name, p in r.items() if name.startswith("step ") and "found" in p]
        rows = [
            [
                f"{step['model']}, {step['integrator']}, {shape(step)}, {step['precision']}",
                f"{1e3 * step['step']:.1f} ms",
                f"{step['resident'] + step['temporary']:.2f}",
            ]
            for step in steps
        ]
        first = steps[0]["measured"]
        when = date.fromisoformat(first["date"])
        lines += [
            f"Measured on {when.day} {when:%B %Y} on one {steps[0]['device']}, commit {first['commit'][:9]}:",
            "",
            *table(("step", "median", "words a point"), rows),
            "",
            "The kernels of three steps of the first row:",
            "",
        ]
        rows = [
            [
                f"`{k['kernel'].split('(')[0][:60]}`",
                str(k["calls"]),
                f"{k['ms']:.1f} ms",
                f"{k['share']:.0%}",
            ]
            for k in r["profile"]["found"]
            if k["share"] > 0.01
        ]
        lines += [*table(("kernel", "calls", "time", "share"), rows), "", "```console"]
        lines += ["$ scripts/gpu_day --shapes 512", "```", ""]
    return lines[:-1]


PARTS: Mapping[str, Callable[[Results], list[str]]] = {
    "step": steps,
    "others": transforms,
    "peers": peers,
    "shares": shares,
    "particles": passes,
    "gpu": gpus,
}


def written(page: str, folder: Path) -> str:
    """The text of the page with new tables."""
    for name, make in PARTS.items():
        results = [json.loads(file.read_text()) for file in sorted(folder.glob(f"{name}_*.json"))]
        begin = f"<!-- measured: {name} -->"
        end = f"<!-- end: {name} -->"
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(page)) != 1 or not results:
            raise SystemExit(
                f"{PAGE.name} needs one part {begin} ... {end}, and {folder} a file {name}_*.json"
            )
        text = "\n".join([begin, *make(results), end])
        page = pattern.sub(lambda _, text=text: text, page)
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page differs"
    )
    args = parser.parse_args(arguments)
    before = PAGE.read_text()
    after = written(before, FILES)
    if args.check and after != before:
        print(
            f"{PAGE}: differs from the files in {FILES}; run scripts/performance.py",
            file=sys.stderr,
        )
        return 1
    if not args.check:
        PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
