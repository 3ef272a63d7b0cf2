"""Every mistake, by file and line, of all runs together, before anything is created; and whatever
is in a file is refused with lines that name it, or listed, the same way every time."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import pairs
from sweep_support import BASE

from simulator.config.yaml12 import dump_yaml
from simulator.errors import UserError
from simulator.study.sweep import open_sweep
from simulator.study.sweep_text import plan_lines

HEAD = "base: base.yaml\nsweep:\n"


V = "model.viscosity"


@pytest.mark.parametrize(
    "block, message",
    pairs("""
gird: {a: [1]}
    gird: unknown key, did you mean sweep.grid?
grid: [1]
    grid: keys of the run's file and their values are needed, not [1]
grid: {}
    grid: names no key; give one
grid: {model.viscosity: 1}
    grid.model.viscosity: a list of values is needed, e.g. [1], not 1
grid: {model.viscosity: []}
    grid.model.viscosity: an empty list, so the sweep would have no runs
zip: {model.viscosity: [1, 2], time.dt: [1]}
    zip.time.dt: has 1 values, but model.viscosity has 2
list: []
    list: an empty list, so the sweep would have no runs; give an entry
list: [5]
    list.0: keys of the run's file and their values are needed, not 5
grid: {output.directory: [a, b]}
    grid.output.directory: is the folder of all runs
grid: {slurm.time: [1, 2]}
    grid.slurm.time: applies to the whole array
grid: {model..viscosity: [1]}
    grid.model..viscosity: a key of the run's file is written with
list: [{time.cfl: 0.5, time.dt: 0.1}]
    list.0.time.dt: excludes time.cfl, which the same run has
sample: {n: 2, parameters: {model.viscosity: {log_uniform: [0, 1]}}}
    sample.parameters.model.viscosity: log_uniform: both numbers must be above
sample: {n: 2, parameters: {model.viscosity: {uniform: [2, 1]}}}
    sample.parameters.model.viscosity: uniform: the first number must be below the
sample: {n: 2, parameters: {model.viscosity: {}}}
    sample.parameters.model.viscosity: one of uniform, log_uniform, normal, integers,
sample: {n: 2, parameters: {model.viscosity: {integers: [1.5, 2]}}}
    sample.parameters.model.viscosity.integers.0:
sample: {n: 2, parameters: {model.viscosity: {seeds: [4, 4]}}}
    sample.parameters.model.viscosity: seeds: the first number must be below the second
sample: {n: 9, parameters: {model.viscosity: {seeds: [1, 4]}}}
    sample.parameters.model.viscosity: seeds: 9 different numbers are
sample: {parameters: {model.viscosity: {uniform: [1, 2]}}}
    sample.n: missing; give the number of points
sample: {n: 2, parameters: {model.viscosity: {uniform: [1, 2]}}} ; zip: {time.stop: [1, 2, 3]}
    sample.n: is 2, but the lists in zip have
sample: {n: 20000, parameters: {model.viscosity: {uniform: [1, 2]}}}
    sample.n: must be at most 10000, not 20000
sample: {method: sobol, n: 2, parameters: {model.viscosity: {uniform: [1, 2]}}}
    sample.method: unknown choice 'sobol'
"""),
)
def test_a_block_that_cannot_be_read(refused, block: str, message: str):
    (line,) = refused(f"{HEAD}  {block}\n".replace(" ; ", "\n  "))
    assert line.startswith(f"study.yaml:3: sweep.{message}")


TWO = HEAD + "  grid: {model.viscosity: [1, 2]}\n"
SINGLE = "sweep: {grid: {precision: [single]}}\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("base: base.yaml\n", "1: sweep: missing; it is required"),
        ("# soon\n", "1: empty; a sweep needs at least base and sweep"),
        ("time: {stop: 1}\nmodel: {}\n", "2: this is a run: simulator run "),
        (
            f"base: base.yaml\nname: snapshots\n{SINGLE}",
            "2: name: 'snapshots' is the name of a file of every run",
        ),
        (
            "base: base.yaml\nsweep: {}\n",
            "2: sweep: varies nothing; give grid, zip, list or sample",
        ),
        (SINGLE, "1: base: missing; it is required"),
        (f"base: base.yaml\nsweeep: {{}}\n{SINGLE}", "2: sweeep: unknown key, did you mean sweep?"),
        (
            f"base: base.yaml\nslurm: {{throtle: 3}}\n{SINGLE}",
            "2: slurm.throtle: unknown key, did you mean",
        ),
        (
            TWO + "  list:\n    - {model.viscosity: 2}\n",
            f"5: sweep.list.0.{V}: is in sweep.grid (line 3) too",
        ),
        (
            TWO + "  exclude: [{model.viscosty: 1}]\n",
            "4: sweep.exclude.0.model.viscosty: the sweep does not vary",
        ),
        (TWO + "  exclude: [{model.viscosity: 3}]\n", "4: sweep.exclude.0: excludes no run"),
        (
            TWO + "  exclude: [{model.viscosity: 1}, {model.viscosity: 2}]\n",
            "4: sweep.exclude: excludes all 2 runs",
        ),
        (
            HEAD + "  grid:\n    model.viscosity: [0.01, 0.02,\n      1/100]\n",
            f"5: sweep.grid.{V}.2: gives the run with {V}: 0.01 twice",
        ),
        (
            HEAD + "  grid: {model.viscosty: [1]}\n",
            "3: model.viscosty: unknown key, did you mean model.viscosity?",
        ),
        (
            HEAD + "  grid: {grid.shape: [[16, 16, 16], [4, 4, 4]], devices.count: [7]}\n",
            "3: devices.count: 7 devices cannot share a 4 x 4 x 4 grid",
        ),
        (
            HEAD + "  grid: {output.snapshots.fields: [[velocity], [vortcity]]}\n",
            "3: output.snapshots.fields: unknown field 'vortcity', did you mean vorticity?",
        ),
        (
            TWO + "collect:\n  - steps\n  - steps\n",
            "6: collect.1: 'steps' is listed twice; leave one of them out",
        ),
    ],
)
def test_a_file_that_is_no_sweep(refused, text: str, message: str):
    (line,) = refused(text)
    assert line.startswith(f"study.yaml:{message}")


def test_the_mistakes_of_all_runs_come_together_each_once(refused):
    """Three runs each have a mistake of their own, from both files; one mistake is that of many
    runs."""
    base = BASE.replace("stop: 0.1", "stop: -1")
    text = (
        HEAD
        + "  grid:\n    model.viscosity: [0.1, -1,\n      -2]\n    precision: [single, duble]\n"
    )
    assert sorted(refused(text, base)) == [
        "base.yaml:5: time.stop: must be greater than 0, not -1",
        "study.yaml:4: model.viscosity: must be at least 0, not -1",
        "study.yaml:5: model.viscosity: must be at least 0, not -2",
        "study.yaml:6: precision: unknown choice 'duble', did you mean double? known: double, single",
    ]


def test_a_mistake_of_a_run_in_the_middle_is_found(refused):
    """`check` looks at the first run, and at the smallest and the largest number; the settings of
    every run are validated."""
    text = HEAD + "  list:\n" + "".join(f"  - {{time.dt: 0.0{i}}}\n" for i in range(1, 10))
    text = text.replace("time.dt: 0.05", "time.dt: 0.05, fft.exchange: haf")
    (line,) = refused(text)
    assert line.startswith("study.yaml:8: fft.exchange: unknown choice 'haf'")


@pytest.mark.parametrize(
    "expression, message",
    pairs("""
final.enrgy
    'final.enrgy': no diagnostic 'enrgy', did you mean energy? the runs write step, time, dt
maximum.energy
    'maximum.energy': unknown reduction 'maximum', did you mean max? known: final, first
energy
    'energy' is not an expression; write e.g. final.energy,
mean.energy[time]
    [time] is not a condition; write e.g. [time>0.5] or [time>0.5,time<=2]
mean.energy[t>1]
    'mean.energy[t>1]': no diagnostic 't', did you mean dt?
max.energy[time>x]
    'max.energy[time>x]': no diagnostic 'x'
"""),
)
def test_collecting_what_is_not_there(refused, expression: str, message: str):
    (line,) = refused(
        f'base: base.yaml\nsweep: {{grid: {{precision: [single]}}}}\ncollect: [steps, "{expression}"]\n'
    )
    assert line.startswith(f"study.yaml:3: collect.1: {message}")


def test_a_folder_that_holds_something_else(study, tmp_path):
    (tmp_path / "out" / "study").mkdir(parents=True)
    (tmp_path / "out" / "study" / "thesis.tex").write_text("")
    with pytest.raises(UserError) as caught:
        study("base: base.yaml\nsweep: {grid: {precision: [single]}}\n")
    folder = tmp_path / "out" / "study"
    assert str(caught.value) == f"{folder}: not the folder of a sweep; give this sweep another name"


def test_a_start_that_fails_is_refused_by_the_check_and_not_by_looking(study):
    start = "def build(x, y, z, n):\n    if n == 2:\n        raise RuntimeError('not well')\n"
    Path("start.py").write_text(start + "    return {'velocity': [0 * x, 0 * y, 0 * z]}\n")
    python = "{kind: python, path: start.py, function: build, parameters: {n: 1}}"
    sweep = study(
        HEAD + "  grid: {initial.parameters.n: [1, 2]}\n",
        BASE.replace("{kind: taylor_green}", python),
    )
    assert len(sweep.runs) == 2
    with pytest.raises(UserError, match=r"start.py:3: build: RuntimeError: not well"):
        sweep.check()
    sweep.check([run for run in sweep.runs if run.values["initial.parameters.n"] == 1])


KEYS = st.sampled_from(
    [
        "model.viscosity",
        "precision",
        "grid.shape",
        "time.stop",
        "initial.kind",
        "initial.amplitude",
        "time.cfl",
        "time.dt",
        "time.max_steps",
        "output.diagnostics.every_steps",
        "output.directory",
        "devices.count",
        "name",
        "model",
        "initial",
        "slurm.time",
        "modle.viscosity",
        "a..b",
        "grid.shape.0",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            1,
            0.1,
            "1/50",
            "single",
            "double",
            "abc",
            "taylor_green",
            [8, 8, 8],
            [12, 8, 9],
            None,
            True,
        ]
    ),
    st.floats(1e-3, 1),
    st.integers(-1, 3),
    st.text(max_size=3),
)
BLOCK = st.dictionaries(KEYS, st.lists(VALUES, max_size=3), max_size=3)
ENTRY = st.dictionaries(KEYS, VALUES, max_size=2)
PAIR = st.lists(st.floats(-2, 10), min_size=1, max_size=3)
WHOLE = st.lists(st.integers(-(2**60), 2**60) | st.integers(0, 9), min_size=2, max_size=2)
DISTRIBUTION = st.dictionaries(
    st.sampled_from(["uniform", "log_uniform", "normal", "choice", "integers", "seeds"]),
    PAIR | WHOLE,
    max_size=2,
)
SAMPLES = st.fixed_dictionaries(
    {"parameters": st.dictionaries(KEYS, DISTRIBUTION, max_size=2)},
    optional={
        "n": st.integers(0, 4),
        "method": st.sampled_from(["latin_hypercube", "random", "grid"]),
        "seed": st.integers(-1, 9),
    },
)
SWEEP = st.fixed_dictionaries(
    {},
    optional={
        "grid": BLOCK,
        "zip": BLOCK,
        "list": st.lists(ENTRY, max_size=3),
        "sample": SAMPLES,
        "exclude": st.lists(ENTRY, max_size=2),
        "gird": BLOCK,
    },
)
FILE = st.fixed_dictionaries(
    {
        "base": st.sampled_from(["base.yaml", "base.yaml", "base.yaml", "nowhere.yaml"]),
        "sweep": SWEEP,
    },
    optional={
        "name": st.sampled_from(["study", "a/b", "", "x y"]),
        "collect": st.lists(
            st.sampled_from(
                [
                    "final.energy",
                    "max.speed",
                    "mean.energy[time>0.5]",
                    "wall_time",
                    "[",
                    "mean.energy[]",
                ]
            ),
            max_size=3,
        ),
        "slurm": st.sampled_from([{}, {"throttle": 2}, {"throttle": 0}, {"time": "00:30:00"}]),
    },
)


def opened(path: Path) -> list[str]:
    """The lines of `plan`, or those of the refusal."""
    try:
        sweep = open_sweep(path)
    except UserError as error:
        lines = str(error).splitlines()
        assert lines and all(line.startswith(f"{path.parent}/") for line in lines), lines
        return lines
    assert [run.index for run in sweep.runs] == list(range(len(sweep.runs)))
    assert len({run.hash for run in sweep.runs}) == len(sweep.runs) > 0
    return plan_lines(sweep)


@given(content=FILE)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_refused_or_listed_and_always_alike(content, tmp_path: Path, monkeypatch):
    monkeypatch.chdir("/")  # so that every message has the whole path
    (tmp_path / "base.yaml").write_text(BASE)
    path = tmp_path / "study.yaml"
    path.write_text(dump_yaml(content))
    first = opened(path)
    assert opened(path) == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["base.yaml", "study.yaml"]
