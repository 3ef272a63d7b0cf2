"""A pairwise cover: few cases that hold every pair of levels that the program supports.

    python tests/pairs/cover.py        # writes cases.txt and refused.txt beside this file

Cases that are there already stay as long as the program accepts them; without these files the cover
begins anew.

The program itself says what it supports: a pair is supported if `simulator check` accepts it in
some model. What it refuses, and in which words, is in refused.txt, so that a feature that is lost
shows up in a diff."""

import contextlib
import itertools
import random
import re
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import yaml

sys.path.append(str(Path(__file__).parents[1]))  # as pytest has it, for plugin_parts of the table
from table import (
    ASSIMILATIONS,
    FACTORS,
    PATH,
    Case,
    assimilation,
    configuration,
    default,
    named,
    parsed,
    user_file,
)

Choice = tuple[str, str]
"""A factor and one of its levels."""
HERE = Path(__file__).parent
MOST_OUTPUTS = 6
"""Series in one case: each is a program to compile."""


def choices() -> list[Choice]:
    """All levels but the defaults, which every case has that asks for nothing else, and the
    models."""
    return [
        (factor, level)
        for factor, levels in FACTORS.items()
        for level in levels
        if factor == "model" or level != default(factor)
    ]


def write(folder: Path, case: Case) -> Path:
    """The files of a case; the configuration's path."""
    config = configuration(case)
    (folder / PATH).write_text(user_file(config))
    (folder / "case.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    if case.get("after") in ASSIMILATIONS:
        (folder / "assimilate.yaml").write_text(yaml.safe_dump(assimilation(case), sort_keys=False))
        (folder / "prior.txt").write_text("0.1 1e-4\n20 1e-4\n")
        (folder / "observed.npz").touch()
    return folder / "case.yaml"


def source_of(case: Case) -> Case:
    """The case whose run leaves the snapshot from which a case with `initial: snapshot` starts."""
    kept = ("model", "grid", "scalars", "background", "precision", "dealias")
    return {factor: level for factor, level in case.items() if factor in kept}


class Judge:
    """Asks the program which cases it refuses; remembers the answers."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._known: dict[str, str | None] = {}
        self._sources: dict[str, Path] = {}

    def refusal(self, case: Case) -> str | None:
        """The refusal of a case, without its place; None if it is accepted."""
        if (key := named(case)) not in self._known:
            self._known[key] = self._asked(case)
        return self._known[key]

    def _asked(self, case: Case) -> str | None:
        from simulator.config import load_config
        from simulator.errors import UserError
        from simulator.plugins.assimilation.assimilation import (
            check_assimilation,
            open_assimilation,
        )
        from simulator.run.refusals import check_configuration, check_linear_growth

        path = write(self._folder, case)
        try:
            overrides = (
                [f"initial.path={self._source(case)}"] if case.get("initial") == "snapshot" else []
            )
            config = load_config(path, overrides)
            check_configuration(config)
            check_linear_growth(config)
            if case.get("after") in ASSIMILATIONS:
                check_assimilation(open_assimilation(path.with_name("assimilate.yaml"), overrides))
        except UserError as error:
            return re.sub(r"^\S+:\d+: |^command line: ", "", str(error)).replace(
                str(self._folder), "."
            )
        except Exception as error:  # a fault of the program; the reader of refused.txt sees it
            return f"FAILS: {type(error).__name__}: {error}".partition("\n")[0]
        return None

    def _source(self, case: Case) -> Path:
        source = source_of(case)
        folder = self._folder / f"source{len(self._sources)}"
        if named(source) not in self._sources:
            from simulator.cli import main

            folder.mkdir()
            overrides = [
                "time.max_steps=2",
                "devices.count=1",
                "output.diagnostics.every_steps=100",
            ]
            with contextlib.redirect_stdout(sys.stderr):
                main(
                    ["run", str(write(folder, source)), "--output", str(folder / "run"), *overrides]
                )
            self._sources[named(source)] = folder / "run" / "snapshots" / "00000002"
        return self._sources[named(source)]


class Cover:
    """The supported pairs, and cases that hold them."""

    def __init__(self, judge: Judge, suspects: Iterable[Case] = (), seed: int = 1):
        """`suspects`: cases of one or two levels in a model that were refused earlier."""
        self._judge = judge
        self._chance = random.Random(seed)
        self.refused: dict[str, str] = {}
        """The program's words by a model and one or two levels that it does not support there."""
        self._clashes: set[frozenset[Choice]] = set()
        """A model and two levels, each supported there, but not both."""
        self.able = {choice: self._models(choice) for choice in choices()}
        for case in suspects:
            self._refused(case)

    def _models(self, choice: Choice) -> list[str]:
        """The models that support a level."""
        if choice[0] == "model":
            return [choice[1]]
        inert = FACTORS[choice[0]][choice[1]] == {} and choice[1] not in ASSIMILATIONS
        return [
            m for m in FACTORS["model"] if inert or not self._refused({"model": m} | dict([choice]))
        ]

    def _refused(self, case: Case) -> bool:
        """Whether a case of one or two levels in a model is refused; keeps the reason."""
        if (message := self._judge.refusal(case)) is not None:
            self.refused[named(case)] = message
            self._clashes.add(frozenset(case.items()))
        return message is not None

    def _fits(self, case: Case, choice: Choice) -> bool:
        """Whether nothing known speaks against a further level."""
        model = case["model"]
        return model in self.able[choice] and not any(
            frozenset({("model", model), choice, other}) in self._clashes for other in case.items()
        )

    def cases(self, earlier: Iterable[Case] = ()) -> Iterator[Case]:
        """The earlier cases that are still accepted, and further ones. Greedy: each begins with a
        pair that no case has, and takes the levels that add most."""
        missing = {
            frozenset(pair): None
            for pair in itertools.combinations(choices(), 2)
            if pair[0][0] != pair[1][0] and set(self.able[pair[0]]) & set(self.able[pair[1]])
        }
        for case in earlier:
            if self._judge.refusal(case) is None:
                for pair in covered([case]):
                    missing.pop(pair, None)
                yield case
        while missing:
            pair = next(iter(missing))
            del missing[pair]
            models = [m for m in FACTORS["model"] if all(m in self.able[choice] for choice in pair)]
            begun = ({"model": m} | dict(pair) for m in models)
            case = next((case for case in begun if not self._refused(case)), None)
            if case is None:
                continue
            case = self._accepted(case, self._extended(case, missing))
            for held in covered([case]):
                missing.pop(held, None)
            print(
                f"{len(missing)} pairs left, {len(self._clashes)} refusals",
                file=sys.stderr,
                flush=True,
            )
            yield case

    def _extended(self, case: Case, missing: Container[frozenset[Choice]]) -> list[Choice]:
        """Further levels, of which each adds missing pairs."""
        whole = dict(case)
        added = []
        factors = [f for f in FACTORS if f not in case]
        self._chance.shuffle(factors)
        # Outputs last: they depend on the rest, and a case has room for few.
        for factor in sorted(factors, key=lambda f: f.startswith("output.")):
            if (
                factor.startswith("output.")
                and sum(f.startswith("output.") for f in whole) >= MOST_OUTPUTS
            ):
                break
            gains = {
                level: sum(
                    frozenset(((factor, level), other)) in missing for other in whole.items()
                )
                for level in FACTORS[factor]
                if (factor, level) in self.able and self._fits(whole, (factor, level))
            }
            if gains and (most := max(gains.values())):
                level = self._chance.choice(
                    [level for level, gain in gains.items() if gain == most]
                )
                whole[factor] = level
                added.append((factor, level))
        return added

    def _accepted(self, case: Case, added: list[Choice]) -> Case:
        """The case with those of the further levels that the program accepts together."""
        while self._judge.refusal(case | dict(added)):
            # The first level with which it is refused, and the first one before with which that
            # does not go.
            end = bisect_left(
                range(len(added)), True, key=lambda n: self._judges(case, added[: n + 1])
            )
            clash = added.pop(end)
            before = [*case.items(), *added[:end]]
            start = bisect_left(
                range(len(before)), True, key=lambda n: self._judges({}, [*before[: n + 1], clash])
            )
            self._refused(
                dict([("model", case["model"]), before[min(start, len(before) - 1)], clash])
            )
        return case | dict(added)

    def _judges(self, case: Case, added: list[Choice]) -> bool:
        whole = case | dict(added)
        return "model" in whole and self._judge.refusal(whole) is not None


def covered(cases: list[Case]) -> set[frozenset[Choice]]:
    """The pairs that cases hold."""
    return {frozenset(pair) for case in cases for pair in itertools.combinations(case.items(), 2)}


def laid_out(cases: list[Case], layouts: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(layout, number of a case): every case on some layout, and every level of every factor on
    every layout. The layout is one more factor of the cover. A case goes to the layout that misses
    most of its levels (of equals to the one with the fewest cases), and again to every layout that
    would miss one otherwise."""
    missing = {layout: {choice for case in cases for choice in case.items()} for layout in layouts}
    used = dict.fromkeys(missing, 0)
    for number, case in enumerate(cases):
        layout = max(missing, key=lambda each: (len(missing[each] & case.items()), -used[each]))
        missing[layout] -= case.items()
        used[layout] += 1
        yield layout, number
    for layout, left in missing.items():
        while left:
            number = max(range(len(cases)), key=lambda each: len(left & cases[each].items()))
            left -= cases[number].items()
            yield layout, number


def read_lines(name: str) -> list[Case]:
    """The cases in a file of this folder, whose other lines belong to a message."""
    lines = (HERE / name).read_text().splitlines() if (HERE / name).exists() else []
    return [parsed(line.partition(":")[0]) for line in lines if line.startswith("model=")]


def read_cases() -> list[Case]:
    """The cases, without levels that the table does not have, such as those of absent plugins."""
    cases = [
        {factor: level for factor, level in case.items() if level in FACTORS.get(factor, {})}
        for case in read_lines("cases.txt")
    ]
    return [case for case in cases if "model" in case]


def read_refused() -> list[Case]:
    """The refused cases whose levels are all in the table."""
    return [
        case
        for case in read_lines("refused.txt")
        if all(level in FACTORS.get(factor, {}) for factor, level in case.items())
    ]


def main() -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        cover = Cover(Judge(Path(folder)), read_refused())
        cases = list(cover.cases(read_cases()))
    (HERE / "cases.txt").write_text("".join(f"{named(case)}\n" for case in cases))
    lines = (f"{case}: {message}\n" for case, message in sorted(cover.refused.items()))
    (HERE / "refused.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
