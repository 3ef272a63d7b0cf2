"""Measures how many random mutants of the package the tests kill; the tests that execute a mutant's
line are run.

    python scripts/mutants.py cover               # run all but the slow tests; record which test executes which line
    python scripts/mutants.py run 100 --seed 1    # print for each mutant the test that killed it, or SURVIVED
    python scripts/mutants.py run 50 --rooms spectral/schedules plugins/gravity    # of these rooms alone

A mutant differs from the package in one place: another operator, comparison, number or truth value,
or a missing statement. A mutant is killed if a test fails or does not end. Both commands print the
share of lines that tests execute, of each room; processes that a test starts are not counted. The
script needs the package `coverage`."""

import argparse
import ast
import concurrent.futures
import copy
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOMS = tuple(os.environ.get("MUTANTS_ROOMS", "physics spectral archive").split())
"""Folders of the package."""
FOLDER = Path(os.environ.get("MUTANTS", ROOT / "outputs/mutants"))
MOST_SECONDS = 240
"""Limit for the tests of one mutant. Those that execute its line run first, then those of files that
are named after the module, then those of its room."""

SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def pytest_configure(config: Any) -> None:
    """As a plugin of pytest: record which test executes which line."""
    import coverage

    FOLDER.mkdir(parents=True, exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    rooms = [str(ROOT / "simulator" / room) for room in ROOMS]
    config.mutants = coverage.Coverage(data_file=str(FOLDER / f"lines.{worker}"), source=rooms)
    config.mutants.start()


def pytest_runtest_setup(item: Any) -> None:
    item.config.mutants.switch_context(item.nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # The main process gets the reports of all workers.
    with (FOLDER / "seconds.txt").open("a") as out:
        print(report.nodeid, f"{report.duration:.3f}", file=out)


def pytest_unconfigure(config: Any) -> None:
    config.mutants.stop()
    config.mutants.save()


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Every mutant of one node of the syntax tree."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
        other = copy.deepcopy(node)
        other.op = SWAPS[type(node.op)]()
        yield other
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        other = copy.deepcopy(node)
        other.ops[0] = SWAPS[type(node.ops[0])]()
        yield other
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    if isinstance(node, ast.Expr | ast.Raise):
        yield ast.Pass()


def mutants(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, difference and text of every mutant of a file. Messages, annotations and docstrings are
    not mutated, nor is the `strict` of a zip, an assertion that no correct program violates."""
    text = path.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))

    def visit(node: ast.AST) -> Iterator[tuple[int, str, str]]:
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return
        if isinstance(node, ast.JoinedStr | ast.Raise) or _prose(node):
            if isinstance(node, ast.Raise):
                yield from replaced(node)
            return
        yield from replaced(node)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from visit(child)

    def replaced(node: ast.AST) -> Iterator[tuple[int, str, str]]:
        if not isinstance(node, ast.expr | ast.stmt):
            return
        for other in changed(node):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            new = ast.unparse(ast.fix_missing_locations(other))
            new = f"({new})" if isinstance(node, ast.expr) else new
            data = text.encode()
            old = data[first:last].decode()
            difference = f"{' '.join(old.split())[:90]} -> {new[:90]}"
            yield node.lineno, difference, (data[:first] + new.encode() + data[last:]).decode()

    yield from visit(ast.parse(text))


def _prose(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def executed() -> dict[str, dict[int, set[str]]]:
    """The tests that execute each line, by file of the package and line."""
    import coverage

    tests: dict[str, dict[int, set[str]]] = {}
    for path in FOLDER.glob("lines.*"):
        data = coverage.CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            lines = tests.setdefault(str(Path(file).relative_to(ROOT)), {})
            for line, contexts in data.contexts_by_lineno(file).items():
                lines.setdefault(line, set()).update(context for context in contexts if context)
    return tests


def covered(rooms: Sequence[str]) -> str:
    """The share of the statements of each room, and of all, that the tests execute."""
    import coverage

    measured = coverage.Coverage(data_file=None)
    measured.set_option("run:disable_warnings", ["no-data-collected"])  # the data come from files
    for path in FOLDER.glob("lines.*"):
        part = coverage.CoverageData(str(path))
        part.read()
        measured.get_data().update(part)
    counts = {}
    for room in rooms:
        files = [measured.analysis2(str(p)) for p in (ROOT / "simulator" / room).rglob("*.py")]
        statements = sum(len(lines) for _, lines, *_ in files)
        counts[room] = statements, statements - sum(len(missing) for *_, missing, _ in files)
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    shares = (f"{room} {ran / lines:.1%}" for room, (lines, ran) in counts.items())
    return f"lines that tests execute: {', '.join(shares)}"


def seconds() -> dict[str, float]:
    spent: dict[str, float] = {}
    for line in (FOLDER / "seconds.txt").read_text().splitlines():
        test, took = line.rsplit(" ", 1)
        spent[test] = spent.get(test, 0.0) + float(took)
    return spent


def file_of(test: str) -> str:
    return test.partition("::")[0]


def tried(place: Path, file: str, text: str, tests: list[str], limit: float) -> str:
    """The first failing test, or another reason why the mutant is killed; empty if the mutant
    survives."""
    original = (place / file).read_text()
    (place / file).write_text(text)
    path = os.pathsep.join((str(place), str(place / "tests")))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    try:
        ended = subprocess.run(
            command,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": path, "SIMULATOR_TESTS_CACHE": str(FOLDER / "cache")},
        )
    except subprocess.TimeoutExpired:
        return f"does not end in {limit:.0f} s"
    finally:
        (place / file).write_text(original)
    if ended.returncode in (0, 5):
        return ""
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:120] if failed else f"exit {ended.returncode}"


def judged(rooms: Sequence[str], number: int, seed: int, jobs: int) -> None:
    lines = executed()
    spent = seconds()
    # Modules that no test executes are mutated too; their mutants survive.
    files = sorted(p for room in rooms for p in (ROOT / "simulator" / room).rglob("*.py"))
    drawn = random.Random(seed).sample(
        [(p, *mutant) for p in files for mutant in mutants(p)], number
    )
    places = [Path(tempfile.mkdtemp(prefix="simulator-mutants-")) for _ in range(jobs)]
    for place in places:
        shutil.copytree(
            ROOT,
            place,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns(".venv", ".git", "mutants", "__pycache__"),
        )
    free = list(places)

    def one(path: Path, line: int, difference: str, text: str) -> bool:
        file = str(path.relative_to(ROOT))
        tests = []
        total = 0.0
        known = lines.get(file, {})
        # The tests that execute the line, those of their files, then those of the files that execute
        # its module: a cached result and a line that is executed at import belong to the first test
        # only.
        by_line = known.get(line, set())
        by_file = set(map(file_of, by_line))

        def distance(test: str) -> tuple[bool, bool, bool, bool, float]:
            return (
                test not in by_line,
                file_of(test) not in by_file,
                path.stem not in file_of(test),
                path.relative_to(ROOT).parts[1] not in file_of(test),
                spent.get(test, 0.0),
            )

        files = set(map(file_of, set().union(*known.values())))
        candidates = [test for test in spent if file_of(test) in files]
        for test in sorted(candidates, key=distance):
            tests.append(test)
            if (total := total + spent.get(test, 0.0)) > MOST_SECONDS:
                break
        place = free.pop()
        began = time.monotonic()
        killer = tried(place, file, text, tests, 2 * MOST_SECONDS) if tests else ""
        free.append(place)
        verdict = f"killed by {killer}" if killer else f"SURVIVED {len(tests)} tests"
        took = time.monotonic() - began
        print(f"{file}:{line}: {difference}: {verdict} ({took:.0f} s)", flush=True)
        return bool(killer)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        killed = sum(pool.map(lambda mutant: one(*mutant), drawn))
    print(f"{killed} of {number} killed; {covered(rooms)}")
    for place in places:
        shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("cover", "run"))
    parser.add_argument("number", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rooms", nargs="*", default=ROOMS, help="folders of the package")
    parser.add_argument("--tests", nargs="*", default=[], help="cover: these files of tests only")
    options = parser.parse_args()
    if options.what == "run":
        judged(options.rooms, options.number, options.seed, options.jobs)
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    plugin = os.pathsep.join((str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")))
    if importlib.util.find_spec("coverage") is None:
        sys.exit("the package coverage is missing: pip install coverage")
    command = [ROOT / "scripts/test", "--long", "-p", "mutants", *options.tests]
    code = subprocess.call(
        command,
        env={
            **os.environ,
            "PYTHONPATH": plugin,
            "MUTANTS": str(FOLDER),
            "MUTANTS_ROOMS": " ".join(options.rooms),
        },
    )
    print(covered(options.rooms))
    sys.exit(code)


if __name__ == "__main__":
    main()
