#!/usr/bin/env python
"""Writes the measured tables of simulator/docs/performance.md from the benchmarks' files in
scripts/measured.

    simulator bench step configs/taylor_green.yaml --json scripts/measured/step_64.json
    scripts/bench_peers.py --json scripts/measured/peers_128.json
    scripts/bench_peers.py --shapes "" --k-max 42 --json scripts/measured/equal_42.json
    scripts/bench_fft.py --shape 128,128,128 --json scripts/measured/others_128.json
    scripts/performance.py [--check | --measure]

Every file step_*.json is a row of the table of steps. Every other file is a table: others_*.json
compares transforms, and peers_*.json steps, with those of other programs; equal_*.json compares
schemes at equal k_max; shares_*.json divides steps; particles_*.json times the passes over
particles; gpu_*.json are the gpu_day.json of scripts/gpu_day. With --check nothing is written, and
the exit code is 1 if a page differs from the files. --measure runs the command of every file again
but those of GPUs, on one commit, which takes about an hour that the machine should have for itself;
the figures are added to history.csv, from which the page on their history is written.
"""

import argparse
import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "simulator" / "docs" / "performance.md"
FILES = ROOT / "scripts" / "measured"
HISTORY = "history.csv"  # In FILES.
NUMERICS_PAGE = PAGE.parent / "physics" / "numerics.md"
HISTORY_PAGE = PAGE.with_name("performance_history.md")

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
                slashed(row["ratios"]),
            ]
            for row in r["rows"]
        ]
        head = ("step", "program", "time", "here / it")
        lines += section(r, head, rows)
    return lines[:-1]


def equal(results: Results) -> list[str]:
    """Schemes at equal k_max."""
    lines: list[str] = []
    for r in results:
        rows = [
            [
                row["program"],
                ms(row["seconds"]),
                slashed(row["ratios"]),
                f"{row['steps_per_time']:.1f}",
                f"{row['seconds_per_time']:.2f} s",
                slashed(row["ratios_per_time"]),
                *errors(row),
            ]
            for row in r["rows"]
        ]
        head = (
            r["rows"][0]["step"],
            "a step",
            "here / it",
            "steps a time unit",
            "a time unit",
            "here / it",
            "error of dissipation",
            "of E(k)",
            "from aliasing",
        )
        lines += section(r, head, rows)
    return lines[:-1]


def choices(results: Results) -> list[str]:
    """This program's schemes at equal k_max, by cost and error."""
    lines: list[str] = []
    for r in results:
        mine = list(filter(ours, r["rows"]))
        first = mine[0]["seconds_per_time"]
        rows = [
            [
                row["program"].removeprefix("simulator, "),
                ms(row["seconds"]),
                f"{row['seconds_per_time'] / first:.2f}",
                *errors(row),
            ]
            for row in mine
        ]
        of = ("error of dissipation", "of E(k) up to 0.9 k_max", "from aliasing")
        lines += section(r, (r["rows"][0]["step"], "a step", "a time unit", *of), rows)
    return lines[:-1]


def ours(row: Mapping[str, Any]) -> bool:
    return row["program"].startswith("simulator")


def errors(row: Mapping[str, Any]) -> list[str]:
    return ["" if error is None else f"{error:.1e}" for error in row["errors"].values()]


def slashed(ratios: Sequence[float]) -> str:
    return " / ".join(f"{ratio:.2f}" for ratio in ratios)


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


Parts = Mapping[str, Callable[[Results], list[str]]]
PARTS: Parts = {
    "step": steps,
    "others": transforms,
    "peers": peers,
    "equal": equal,
    "shares": shares,
    "particles": passes,
    "gpu": gpus,
}


def written(page: str, folder: Path, parts: Parts = PARTS) -> str:
    """The text of a page with new tables."""
    for name, make in parts.items():
        results = [json.loads(file.read_text()) for file in sorted(folder.glob(f"{name}_*.json"))]
        begin = f"<!-- measured: {name} -->"
        end = f"<!-- end: {name} -->"
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(page)) != 1 or not results:
            raise SystemExit(
                f"a page needs one part {begin} ... {end}, and {folder} a file {name}_*.json"
            )
        text = "\n".join([begin, *make(results), end])
        page = pattern.sub(lambda _, text=text: text, page)
    return page


# ---- history


def figures(result: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a file that the history keeps, by row: times, with their unit in the row's
    name, and for other programs the ratios of this program's time to theirs."""
    if "model" in result:
        what = f"{result['model']}, {result['integrator']}, {shape(result)}, {result['precision']}"
        return {f"step: {what}, {result['kernels']} (ms)": 1e3 * result["step"]}
    if "transforms" in result:
        what = f"transforms there and back: {shape(result)}, {result['precision']}"
        rows = result["transforms"]
        return {f"{what}, {r['name']} (ms)": r["forward"] + r["inverse"] for r in rows}
    if "errors" in result["rows"][0]:
        return {
            f"{r['step']}, a time unit: {r['program']} (s)": r["seconds_per_time"]
            for r in result["rows"]
        }
    ratios: dict[str, float] = {}
    for row in filter(lambda row: row.get("ratios"), result["rows"]):
        mine = [r for r in filter(ours, result["rows"]) if r["step"] == row["step"]]
        for my, ratio in zip(mine, row["ratios"], strict=True):
            ratios[f"{row['step']}: {my['program']} / {row['program']}"] = ratio
    return ratios


def measure() -> None:
    """Runs the commands of all files again, and adds their figures to the history."""
    for file in sorted(FILES.glob("*_*.json")):
        if file.name.startswith("gpu"):
            continue
        program, *words = shlex.split(json.loads(file.read_text())["measured"]["command"])
        command = ["-m", program] if program == "simulator" else [str(ROOT / program)]
        print(f"{file.name}: {program} {shlex.join(words)}", file=sys.stderr, flush=True)
        subprocess.run(
            [sys.executable, *command, *words, "--json", str(file)], check=True, cwd=ROOT
        )
        remember(json.loads(file.read_text()))


def remember(result: Mapping[str, Any]) -> None:
    """Adds the figures of a file to the history."""
    m = result["measured"]
    with (FILES / HISTORY).open("a", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        for row, value in figures(result).items():
            where = f"{m['cores']} cores of {m['processor']}"
            lines.writerow(
                [m["date"], (m["commit"] or m["version"])[:9], where, row, f"{value:.4g}"]
            )


def history(folder: Path) -> str:
    """The page of all figures against commits and machines."""
    with (folder / HISTORY).open(newline="") as stream:
        entries = list(csv.DictReader(stream))
    measured = dict.fromkeys((e["date"], e["commit"], e["where"]) for e in entries)
    columns = sorted(measured, key=lambda column: column[0])  # those of a day as they were added
    found = {(e["row"], (e["date"], e["commit"], e["where"])): e["value"] for e in entries}
    rows = dict.fromkeys(e["row"] for e in entries)
    head = ("row", *(f"{day}<br>{commit}<br>{where}" for day, commit, where in columns))
    cells = [[row, *(found.get((row, column), "") for column in columns)] for row in rows]
    return "\n".join(
        [
            "# Performance over time",
            "",
            "`scripts/performance.py` writes this page from `scripts/measured/history.csv`, to which each",
            "`scripts/performance.py --measure` adds a column. Rows of two programs are ratios of times, this",
            "program's to the other's; other rows name their unit. Columns of different machines, or of hours with",
            "other work on the machine, compare only by the ratios. From 00baa0af7 on, transforms of small grids are",
            "timed several times in a row; before, in turns of one pair.",
            "",
            *table(head, cells),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page differs"
    )
    parser.add_argument("--measure", action="store_true", help="run the benchmarks again, first")
    args = parser.parse_args(arguments)
    if args.measure:
        measure()
    pages = {
        PAGE: written(PAGE.read_text(), FILES),
        NUMERICS_PAGE: written(NUMERICS_PAGE.read_text(), FILES, {"equal": choices}),
        HISTORY_PAGE: history(FILES),
    }
    for page, text in pages.items():
        if not args.check:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            problem = f"differs from the files in {FILES}; run scripts/performance.py"
            print(f"{page}: {problem}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
