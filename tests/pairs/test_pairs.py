"""Every pair of parts on every layout: it ends, agrees with one device, verifies, continues, or is
refused in a line.

The cases are a pairwise cover (`cover.py`) of the parts in `table.py`. Each takes four steps on
each layout."""

import itertools
import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cover import choices, covered, laid_out, read_cases, read_lines, source_of, write
from fault_support import start_all
from pair_runs import (
    SECONDS,
    assimilated,
    bits,
    difference,
    in_one_process,
    observe,
    tolerance,
)
from table import ASSIMILATIONS, FACTORS, LAYOUTS, MIDDLE, assimilation, configuration, named

from simulator.cli import main
from simulator.config.run_config import registered
from simulator.physics.models.closures import CLOSURES

CASES = read_cases()
REFUSAL = re.compile(
    r"(simulator: )?(\S+:\d+|command line|configuration): [\w.]+: .+|simulator[ \w]*: .+"
)
COMMANDS = {
    "plot": ["plot", "run"],
    "report": ["report", "run"],
    "render": ["render", "run", "--size", "32,24"],
    "analyze": ["analyze", "run"],
    "sweep": ["sweep", "run", "sweep.yaml", "--jobs", "2"],
    "batch": ["sweep", "run", "sweep.yaml", "--batch", "auto"],
}


COVER = "python tests/pairs/cover.py writes the cases"


def test_every_registered_part_is_in_the_table():
    parts = registered()
    named_otherwise = {
        "initial": {"composite", "file", "gadget", "music"}
    }  # test_file_start.py and test_gadget.py read files of other programs
    for factor, registry in {
        "model": parts.models,
        "initial": parts.initials,
        "forcing": parts.forcings,
        "integrator": parts.integrators,
        "species": parts.particles,
        "subgrid": CLOSURES,
    }.items():
        missing = set(registry) - named_otherwise.get(factor, set()) - set(FACTORS[factor])
        cure = f"add a level to the factor {factor!r} of tests/pairs/table.py; then {COVER}"
        assert not missing, f"{', '.join(sorted(missing))}: {cure}"


def test_every_pair_is_in_a_case_or_refused():
    """A new level has to be covered: python tests/pairs/cover.py. A level that no model supports
    needs no case."""
    pairs = covered(read_lines("cases.txt"))  # those of absent plugins, too
    alone = {choice for case in CASES for choice in case.items()}
    refused = [line.partition(":")[0].split() for line in _refused()]
    clashes = {
        frozenset(tuple(w.split("=")) for w in line if not w.startswith("model="))
        for line in refused
    }
    uncovered = [
        choice for choice in choices() if choice not in alone and frozenset({choice}) not in clashes
    ]
    assert not uncovered, f"{uncovered} are in no case; {COVER}"
    for one, other in itertools.combinations(choices(), 2):
        if one[0] != other[0] and {one, other} <= alone and "model" not in (one[0], other[0]):
            held = frozenset((one, other)) in pairs | clashes or not _common(one, other)
            assert held, f"{one} and {other} are in no case; {COVER}"


def _refused() -> list[str]:
    return (Path(__file__).parent / "refused.txt").read_text().splitlines()


def _common(*pair: tuple[str, str]) -> set[str]:
    """Models that have both of these in some case."""
    return set.intersection(
        *({c["model"] for c in CASES if c.get(f) == level} for f, level in pair)
    )


ITEMS = list(laid_out(CASES, range(1, len(LAYOUTS))))
random.Random(int(os.environ.get("SIMULATOR_TESTS_DAY", "0"))).shuffle(ITEMS)


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize(
    "layout, case",
    [
        pytest.param(layout, number, id=f"{layout}-{named(CASES[number])}")
        for layout, number in ITEMS
    ],
)
def test_case(layout: int, case: int, tmp_path: Path):
    failures = list(Trial(tmp_path, case, layout).failures())
    assert not failures, "\n".join(failures)


class Trial:
    """A case on one device, then on a layout, there halted in the middle and continued, and what
    may come after."""

    def __init__(self, place: Path, number: int, layout: int):
        self.case = CASES[number]
        self.place = place
        self.processes, self.devices, self.threads = LAYOUTS[layout]
        self.counts = sorted({devices for processes, devices, _ in LAYOUTS if processes == 1})
        if self.case.get("grid") == "line":  # which one device computes
            self.processes, self.devices, self.counts = 1, 1, [1]
        self.kernels = ("native", "xla")[(number + layout) % 2]
        self.config = configuration(self.case)
        self.tolerance = tolerance(self.config)
        self.file = write(place, self.case)
        # Every layout has its turn with the commands that follow a run, and with a start in the
        # middle.
        self.follows = number % (len(LAYOUTS) - 1) == layout - 1
        self.halts = self.processes == 1 or (number + layout) % 4 < 2

    def failures(self) -> Iterator[str]:
        """What is wrong, a line each; nothing if the case is refused on this layout in one line."""
        try:
            yield from self._source()
            alone = self._run("alone", 1, "native")
            yield from self._done([alone], 1)
            yield from self._done([self._run_here("run")], self.processes)
            if self.halts:
                yield from self._halted()
            for name in ("alone", "run"):
                yield from self._near(name)
            if self.follows:
                yield from self._after()
        except TimeoutError as error:
            yield str(error)

    def _run(self, folder: str, devices: int, kernels: str, *overrides: str) -> list[str]:
        given = [f"devices.count={devices}", f"fft.kernels={kernels}", *overrides]
        return ["run", str(self.file), "--output", str(self.place / folder), *given]

    def _run_here(self, folder: str) -> list[str]:
        """A run on the layout."""
        return self._run(folder, self.devices, self.kernels, f"devices.threads={self.threads}")

    def _done(self, commands: list[list[str]], processes: int) -> Iterator[str]:
        """Runs the commands, by so many processes each."""
        if processes == 1:
            yield from _wrong(
                commands, [in_one_process(command, self.place) for command in commands]
            )
            return
        for command in commands:
            started = start_all(command, self.place, processes)
            try:
                ended = [process.ended(SECONDS) for process in started]
            finally:
                for process in started:
                    process.kill()
            yield from _wrong([command], [max(ended, key=lambda each: abs(each[0]))])

    def _source(self) -> Iterator[str]:
        """The snapshot that a case starts from."""
        if self.case.get("initial") == "snapshot":
            (folder := self.place / "source").mkdir()
            source = write(folder, source_of(self.case))
            command = ["run", str(source), "--output", str(folder / "run"), "devices.count=1"]
            yield from self._done([[*command, f"time.max_steps={MIDDLE}"]], 1)
            (folder / "run" / "snapshots").rename(folder / "snapshots")

    def _halted(self) -> Iterator[str]:
        """Halted and continued: on the layout the same bits, on one device the same but for
        round-off."""
        halt = f"time.max_steps={MIDDLE}"
        here = self._run_here("halted")
        yield from self._done([[*here, halt]], self.processes)
        if not (self.place / "halted" / "state.json").exists():
            return
        shutil.copytree(self.place / "halted", self.place / "moved")
        yield from self._done([here], self.processes)
        yield from self._done([self._run("moved", 1, "native")], 1)
        if bits(self.place / "halted") != bits(self.place / "run"):
            different = [n for n, d in difference(self.place / "halted", self.place / "run") if d]
            yield f"continued: not the same bits: {different[:5]}"
        yield from self._near("moved")

    def _near(self, folder: str) -> Iterator[str]:
        run = self.place / folder
        what = Path(folder).name
        if not run.exists():
            return
        if main(["verify", str(run), "--quiet"]) != 0:
            yield f"{what}: verify finds something"
        differences = difference(run, self.place / "alone", self.tolerance < 1e-5)
        # Each layout rounds by itself, at no point by more than 5 times the error's rms.
        of_snapshots = max(self.tolerance, 10 * self.config["output"]["snapshots"].get("error", 0))
        allowed = {True: of_snapshots, False: self.tolerance}
        apart = [(d, n) for n, d in differences if d > allowed[n.startswith("snapshots/")]]
        if apart:
            yield (
                f"{what}: differs from one device by more than {self.tolerance:.1g}: "
                + ", ".join(f"{name} {d:.1e}" for d, name in sorted(apart, reverse=True)[:6])
            )

    def _after(self) -> Iterator[str]:
        after = self.case.get("after")
        if after is None:
            return
        if after == "gradient":
            yield from self._gradients()
            return
        if after in ASSIMILATIONS:
            yield from self._assimilated()
            return
        step = next(f"time.{k}" for k in ("dt", "cfl", "error") if k in self.config["time"])
        size = self.config["time"][step.partition(".")[2]]
        study = {"base": "case.yaml", "name": "study", "sweep": {"grid": {step: [size, size / 2]}}}
        (self.place / "sweep.yaml").write_text(yaml.safe_dump(study))
        field = ["--field", "u"] if after == "render" and "equation" in self.config["model"] else []
        yield from self._done([[*COMMANDS[after], *field]], 1)
        for plan in self.place.rglob("plan.json"):
            first = json.loads(plan.read_text())["runs"][0]["hash"]
            yield from self._near(str((plan.parent / first).relative_to(self.place)))

    def _assimilated(self) -> Iterator[str]:
        """On the layout as on one device, to round-off that the search amplifies (by 1e4, as in
        `tests/plugins/assimilation`); the recovered flow is nearer to the observations than the first guess."""
        table = self.place / "observed.npz"
        uncertain = [*assimilation(self.case)["background"]["spectrum"]]
        guess = observe(self.place / "alone", uncertain, table)
        wrong = []
        for folder, devices, processes in (
            ("searched", 1, 1),
            ("shared", self.devices, self.processes),
        ):
            command = ["assimilate", str(self.place / "assimilate.yaml")]
            command += ["--output", str(self.place / folder)]
            command += [f"devices.count={devices}", f"fft.kernels={self.kernels}"]
            wrong += self._done([command], processes)
        yield from wrong
        if wrong:
            return
        history, fields = assimilated(self.place / "searched")
        other, others = assimilated(self.place / "shared")
        if not history["misfit"][-1] < history.get("forecast", [guess])[0]:
            yield f"assimilation: misfit {history['misfit']}, of the first guess {guess}"
        apart = abs(other["misfit"] - history["misfit"]).max() / guess
        apart = max(
            apart, *(abs(others[n] - fields[n]).max() / abs(fields[n]).max() for n in uncertain)
        )
        if not apart <= 1e4 * self.tolerance:
            yield f"assimilation: on this layout by {apart:.1e} another flow than on one device"

    def _gradients(self) -> Iterator[str]:
        counts = self.counts
        commands = [
            ["gradient", str(self.file), str(n), str(self.place / f"slope{n}")] for n in counts
        ]
        wrong = list(
            _wrong(commands, [in_one_process(command, self.place) for command in commands])
        )
        if self.config.get("particles") or '"particles"' in json.dumps(self.config["model"]):
            if [line for line in wrong if " (2): " in line] != wrong or len(wrong) < len(commands):
                yield f"gradient through particles: not refused: {wrong}"
            return
        yield from wrong
        slopes = [json.loads(Path(c[3]).read_text()) for c in commands if Path(c[3]).exists()]
        for count, (value, along, wanted) in zip(counts, slopes, strict=False):
            # Differences of a loss in single precision lose half of its digits.
            allowed = 1e-6 if self.tolerance < 1e-11 else 2e-2
            if not abs(along - wanted) <= allowed * max(abs(wanted), abs(value)):
                yield f"gradient on {count} devices: {along} by reverse mode, {wanted} by differences"
            first = slopes[0]
            if (
                not max(abs(value / first[0] - 1), abs(along / first[1] - 1))
                <= 100 * self.tolerance
            ):
                yield f"gradient on {count} devices: {value, along}, on one {first}"


def _wrong(commands: list[list[str]], found: list[tuple[int, str]]) -> Iterator[str]:
    """Commands that neither succeeded nor were refused in one line."""
    for command, (code, said) in zip(commands, found, strict=True):
        if code != 0:
            lines = [line for line in said.splitlines() if line.strip()]
            refused = code == 2 and len(lines) == 1 and REFUSAL.fullmatch(lines[0])
            what = "refused" if refused else "failed"
            yield f"{what} ({code}): {' '.join(command[:1] + command[3:])}: {' | '.join(lines[-6:])[-700:]}"
