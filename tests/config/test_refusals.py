# ruff: noqa: E501 - tables of texts and messages
"""Every mistake in a file or on the command line is one line with its place and its cure, and all
come at once."""

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.config import Override, load_config, parse_override
from simulator.errors import UserError

BASE = "model: {kind: viscous, viscosity: 1/1600}\ninitial: {kind: vortex}\ntime: {stop: 1}\n"

# Text added to BASE from line 4 on, and the refusal.
ADDED = [
    ("grid: {bocks: 1}", "4: grid.bocks: unknown key, did you mean grid.box?"),
    (
        "grid:\n  shape: []",
        "5: grid.shape: one to three values are needed, one for each axis, not []",
    ),
    (
        "grid:\n  shape: [64, 64]\n  box: [1, 1, 1]",
        "6: grid.box: has 3 lengths, but shape has 2 axes; give one for each",
    ),
    (
        "grid: {box: [1, 1]}",
        "4: grid.box: has 2 lengths, but shape has 3 axes; give one for each",
    ),
    ("grid: {shape: [64, 0, 64]}", "4: grid.shape.1: must be at least 1, not 0"),
    ("grid: {shape: [64, 64.5, 64]}", "4: grid.shape.1: a whole number is needed, not 64.5"),
    (
        "grid: {shape: [64, true, 64]}",
        "4: grid.shape.1: a whole number is needed, not true or false",
    ),
    ("grid: {shape: ['64', 64, 64]}", "4: grid.shape.0: a whole number is needed, not '64'"),
    (
        "grid: {box: [1, 1, two]}",
        "4: grid.box.2: 'two' is not a number; write e.g. 0.5, 1e-3, 2*pi or 1/1600",
    ),
    (
        "grid: {shell_width: 0.5}",
        "4: grid.shell_width: 0.5 is below the smallest wavenumber of the box, 2 pi / L = 1, and shells would be empty; give at least that",
    ),
    ("grid: 64", "4: grid: a block of keys is needed, not 64"),
    ("grid:", "4: grid: has no value; give one, or leave the key out"),
    ("viscosity: 1", "4: viscosity: unknown key, did you mean model.viscosity?"),
    (
        "zzz: 1",
        "4: zzz: unknown key; known here: name, model, grid, initial, forcing, terms, particles, time, precision, devices, fft, output, run, slurm",
    ),
    (
        "precision: sinlge",
        "4: precision: unknown choice 'sinlge', did you mean single? known: double, single",
    ),
    (
        "forcing: {kind: drivne}",
        "4: forcing.kind: unknown kind 'drivne', did you mean driven? known: driven, stirred",
    ),
    ("forcing: {rate: 1}", "4: forcing.kind: missing; one of driven, stirred"),
    (
        "forcing: {kind: driven, rate: no}",
        "4: forcing.rate: 'no' is not a number; write e.g. 0.5, 1e-3, 2*pi or 1/1600",
    ),
    (
        "devices: {count: 0}",
        "4: devices.count: auto or a whole number of at least 1 is needed, not 0",
    ),
    (
        "devices: {count: all}",
        "4: devices.count: auto or a whole number of at least 1 is needed, not 'all'",
    ),
    (
        "devices: {threads: 0}",
        "4: devices.threads: auto or a whole number of at least 1 is needed, not 0",
    ),
    (
        "devices: {platform: gpu, threads: 4}",
        "4: devices.threads: is for processors; leave the key out, or set devices.platform: cpu",
    ),
    ("output: {directory: 5}", "4: output.directory: a path is needed, not 5"),
    ("output: {directory: ''}", "4: output.directory: a path is needed, not an empty one"),
    (
        "output: {directory: $NO_SUCH_VARIABLE/x}",
        "4: output.directory: the environment variable NO_SUCH_VARIABLE is not set",
    ),
    (
        "output: {diagnostics: {}}",
        "4: output.diagnostics: has no interval; give every, every_steps or every_wall",
    ),
    (
        "output: {diagnostics: {every_steps: 1, align: true}}",
        "4: output.diagnostics.align: applies to rows due by simulation time; give every too, or leave align out",
    ),
    (
        "output: {diagnostics: {every: 1, align: 1}}",
        "4: output.diagnostics.align: true or false is needed, not 1",
    ),
    (
        "output: {snapshots: {fields: []}}",
        "4: output.snapshots.fields: an empty list; name a field, or leave the key out for the model's fields",
    ),
    (
        "output: {snapshots: {fields: [u, v, u]}}",
        "4: output.snapshots.fields: u is given twice; keep one of them",
    ),
    (
        "output: {snapshots: {fields: velocity}}",
        "4: output.snapshots.fields: a list is needed, e.g. [a, b], not 'velocity'",
    ),
    (
        "output: {checkpoints: {every_step: 1}}",
        "4: output.checkpoints.every_step: unknown key, did you mean output.checkpoints.every_steps?",
    ),
    (
        "output: {checkpoints: {every_wall: 5 parsec}}",
        "4: output.checkpoints.every_wall: 'parsec' is not a unit of time; use s, min, h or d",
    ),
    (
        "precision: single\noutput: {snapshots: {precision: double}}",
        "5: output.snapshots.precision: the run itself is in single precision; leave the key out",
    ),
    (
        "slurm: {time: soon}",
        "4: slurm.time: a time in Slurm's format is needed, e.g. 00:30:00 or 2-12:00:00, not 'soon'",
    ),
    (
        f"slurm: {{time: '{'9' * 40}:00'}}",
        "4: slurm.time: a time in Slurm's format is needed, e.g. 00:30:00 or 2-12:00:00, "
        f"not '{'9' * 40}:00'",
    ),
    (f"slurm: {{time: {'9' * 400}}}", "4: slurm.time: a whole number of more than 300 digits"),
    (
        "slurm: {account: 17}",
        "4: slurm.account: text is needed (in quotes, where it looks like something else), not 17",
    ),
    ('slurm: {sbatch: "a\\nb"}', "4: slurm.sbatch: one line of text is needed"),
    (
        "name: a/b",
        "4: name: the name of a folder and a job has letters, digits and _ . + - only, unlike 'a/b'",
    ),
    ("time: {stop: 2}", "4: time: given twice, first on line 3; keep one of them"),
]

# A whole file, and the refusals.
FILES = [
    ("", ["1: empty; a run needs at least model, initial and time.stop"]),
    ("# nothing\n", ["1: empty; a run needs at least model, initial and time.stop"]),
    ("base: a.yaml\nsweep: {}", ["2: this is a sweep: simulator sweep plan run.yaml"]),
    ("\n- a\n", ["2: keys and values are needed, e.g. 'time: {stop: 1}'"]),
    (
        "name: x",
        [
            "1: model.kind: missing; one of viscous, stratified",
            "1: initial.kind: missing; one of vortex, python",
            "1: time.stop: missing; it is required (The simulation time, from 0, at which the run ends)",
        ],
    ),
    (
        "model:\n  kind: viscos\ninitial: vortx\ntime: {}",
        [
            "2: model.kind: unknown kind 'viscos', did you mean viscous? known: viscous, stratified",
            "3: initial: a block of keys is needed, e.g. {kind: vortex}, not 'vortx'",
            "4: time.stop: missing; it is required (The simulation time, from 0, at which the run ends)",
        ],
    ),
    (
        "model: {kind: [viscous]}\ninitial: {kind: null}\ntime: {stop: 0}",
        [
            "1: model.kind: unknown kind ['viscous'], did you mean viscous? known: viscous, stratified",
            "2: initial.kind: unknown kind None; known: vortex, python",
            "3: time.stop: must be greater than 0, not 0",
        ],
    ),
    # Only the chosen kind's keys count, wherever the mistake lies.
    (
        "model: {kind: viscous, viscosity: -1, stratification: 2,\n  hyperviscosity: {order: 0},\n"
        "  scalars: [{name: a, diffusivity: 1}, {name: b, difusivity: 1}]}\n"
        "initial: {kind: vortex, path: x}\ntime: {stop: 1}",
        [
            "1: model.viscosity: must be at least 0, not -1",
            "1: model.stratification: unknown key; kind stratified has it, "
            "known here: kind, viscosity, hyperviscosity, scalars",
            "2: model.hyperviscosity.coefficient: missing; it is required",
            "2: model.hyperviscosity.order: must be at least 1, not 0",
            "3: model.scalars.1.diffusivity: missing; it is required",
            "3: model.scalars.1.difusivity: unknown key, did you mean model.scalars.1.diffusivity?",
            "4: initial.path: unknown key; kind python has it, known here: kind, amplitude",
        ],
    ),
]

TIMES = [
    ("{stop: 1, cfl: 0.5, dt: 0.1}", "time.dt: excludes time.cfl; keep one of the two"),
    (
        "{stop: 1, cfl: 2}",
        "time.cfl: must be at most 1.5 with rk4 and grid.dealias: two_thirds, not 2",
    ),
    (
        "{stop: 1, cfl: 1, integrator: rk2}",
        "time.cfl: must be at most 0.75 with rk2 and grid.dealias: two_thirds, not 1",
    ),
    ("{stop: 1, dt: 0.2, max_dt: 0.1}", "time.dt: must be at most time.max_dt = 0.1, not 0.2"),
    (
        "{stop: 1, integrator: rk5}",
        "time.integrator: unknown choice 'rk5', did you mean rk4? known: rk4, rk2",
    ),
    ("{stop: true}", "time.stop: a number is needed, not true or false"),
    ("{stop: [1]}", "time.stop: a number is needed, not [1]"),
    ("{stop: .nan}", "time.stop: a finite number is needed, not nan"),
]


@pytest.mark.parametrize(("added", "message"), ADDED)
def test_a_mistake_in_a_key(refused, added: str, message: str):
    assert refused(BASE + added) == [f"run.yaml:{message}"]


@pytest.mark.smoke
@pytest.mark.parametrize(("text", "messages"), FILES)
def test_mistakes_in_a_file(refused, text: str, messages: list[str]):
    assert refused(text) == [f"run.yaml:{message}" for message in messages]


@pytest.mark.parametrize(("time", "message"), TIMES)
def test_mistakes_in_time(refused, time: str, message: str):
    text = BASE.replace("{stop: 1}", time)
    assert refused(text) == [f"run.yaml:3: {message}"]


def test_mistakes_come_in_the_order_of_the_file_and_later_checks_blame_the_same_places(
    refused, load
):
    lines = refused(BASE.replace("1/1600", "x") + "zzz: 1\ngrid: {shape: x}\nprecision: half\n")
    assert [line.split(":")[1] for line in lines] == ["1", "4", "5", "6"]
    config = load(BASE + "devices: {count: 5}\n", "grid.shape=7,7,7")
    assert (
        str(config.error("devices.count", "5 is too many"))
        == "run.yaml:4: devices.count: 5 is too many"
    )
    assert str(config.error("grid.shape", "no")) == "command line: grid.shape: no"
    assert str(config.error("time.cfl", "too large")) == "run.yaml:3: time.cfl: too large"
    assert str(config.error("precision", "no")) == "run.yaml:1: precision: no"


def test_files_that_cannot_be_read_or_do_not_exist(refused, config_class, tmp_path: Path, load):
    (tmp_path / "latin.yaml").write_bytes("name: x\nmodel: é".encode("latin-1"))
    for name, message in [
        ("missing.yaml", "missing.yaml: no such file"),
        (".", ".: is a folder; name a YAML file"),
        ("latin.yaml", "latin.yaml:2: unreadable YAML: not UTF-8 text"),
        ("a\0b", r"a\x00b: cannot be read: embedded null byte"),
        ("latin.yaml/x", "latin.yaml/x: cannot be read: Not a directory"),
    ]:
        with pytest.raises(UserError) as caught:
            load_config(tmp_path / name if name == "." else Path(name))
        assert str(caught.value).replace(str(tmp_path), ".") == message
    text = BASE.replace("{kind: vortex}", "\n  kind: python\n  path: fields.py")
    assert refused(text) == [f"run.yaml:4: initial.path: {tmp_path}/fields.py does not exist"]
    assert load(text, check_files=False).initial.path == tmp_path / "fields.py"


VISCOUS = "model: {kind: viscous, viscosity: 1/1600}\n"
GIVEN = VISCOUS + "initial: {kind: vortex, amplitude: 2}\ntime: {stop: 1, cfl: 0.4}\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("time.stop=2", ("time", "stop"), 2),
        ("a=1e-3", ("a",), 1e-3),
        ("a=no", ("a",), "no"),
        ("a=010", ("a",), 10),
        ("a=64,64,64", ("a",), [64, 64, 64]),
        ("a=2*pi,1, pi", ("a",), ["2*pi", 1, "pi"]),
        ("a=[1, 2]", ("a",), [1, 2]),
        ("a='1,2'", ("a",), "1,2"),
        ("a={b: 1, c: x}", ("a",), {"b": 1, "c": "x"}),
        ("a=null", ("a",), None),
        ("a.0.b=x=y", ("a", 0, "b"), "x=y"),
        ("a=~/x", ("a",), "~/x"),
    ],
)
def test_how_an_override_is_read(text: str, path: tuple, value: object):
    assert parse_override(text) == Override(path, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "foo: an override is written key=value, e.g. time.stop=2"),
        ("=3", "=3: a key is written with dots, e.g. time.stop=2"),
        ("a..b=3", "a..b=3: a key is written with dots, e.g. time.stop=2"),
        ("\n", r"\n: an override is written key=value, e.g. time.stop=2"),
        ("a=", "a: has no value; a=null removes the key"),
        (
            "a=@x",
            "a: unreadable YAML: while scanning for the next token, found character '@' that cannot start any token; quotes around the value may help",
        ),
        ("a=*x", "a: unreadable YAML: found undefined alias 'x'; quotes around the value may help"),
    ],
)
def test_what_is_no_override(text: str, message: str):
    with pytest.raises(UserError) as caught:
        parse_override(text)
    assert str(caught.value) == f"command line: {message}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tiem.stop=2"], "tiem: unknown key, did you mean time?"),
        (["time.stpo=2"], "time.stpo: unknown key, did you mean time.stop?"),
        (["precision=half"], "precision: unknown choice 'half'; known: double, single"),
        (["time.dt=1e-3", "time.cfl=0.5"], "time.dt: excludes time.cfl; keep one of the two"),
        (["time={stop: 1, dt: 1, cfl: 1}"], "time.dt: excludes time.cfl; keep one of the two"),
        (
            ["precision.x=1", "precision=single"],
            "precision.x: precision is 'single', not a block of keys",
        ),
        (
            ["grid.shape=8,8,8", "grid.shape.3=1"],
            "grid.shape.3: grid.shape has 3 entries, counted from 0",
        ),
        (["model.kind=stratified"], "model.viscosity: missing; it is required"),
    ],
)
def test_mistakes_are_blamed_on_the_command_line(refused, overrides: list[str], message: str):
    assert refused(GIVEN, *overrides) == [f"command line: {message}"]


def test_overrides_are_all_blamed_and_the_last_wins(refused, load):
    assert [line[:19] for line in refused(GIVEN, "foo", "bar")] == [
        "command line: foo: ",
        "command line: bar: ",
    ]
    assert refused(GIVEN, "model.viscosity=null") == [
        "run.yaml:1: model.viscosity: missing; it is required"
    ]
    assert load(GIVEN, "time.stop=2", "time.stop=3").time.stop == 3.0
    time = load(GIVEN.replace("cfl: 0.4", "dt: 0.1"), "time.cfl=0.3").time
    assert (time.cfl, time.dt) == (0.3, None)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["time.stop=2"], {"time.stop": 2.0, "initial.amplitude": 2.0}),
        (
            ["grid.shape=8,9,11", "grid.box=2*pi,1,1/3"],
            {"grid.shape": (8, 9, 11), "grid.box": (2 * math.pi, 1.0, 1 / 3)},
        ),
        (["model.viscosity=0"], {"model.viscosity": 0.0}),
        (
            ["initial.amplitude=null", "time.cfl=null", "output.spectra=null"],
            {"initial.amplitude": 1.0, "time.cfl": 0.5},
        ),
        (["model.scalars.0.diffusivity=3"], {"model.scalars.0.diffusivity": 3.0}),
        (["time.dt=1e-3"], {"time.cfl": None, "time.dt": 1e-3}),
        (["time.dt=1e-3", "time.cfl=null"], {"time.cfl": None, "time.dt": 1e-3}),
        (["time.dt=null"], {"time.cfl": 0.4, "time.dt": None}),
        (["time.cfl=0.2", "time.dt=null"], {"time.cfl": 0.2, "time.dt": None}),
        (["time={stop: 2, dt: 0.1}"], {"time.cfl": None, "time.dt": 0.1}),
        (
            ["model.kind=stratified", "model.viscosity=2", "model.stratification=3"],
            {"model": {"kind": "stratified", "viscosity": 2.0, "stratification": 3.0}},
        ),
        (["initial.kind=vortex"], {"initial.amplitude": 2.0}),
        (["initial={kind: vortex}", "initial.amplitude=5"], {"initial.amplitude": 5.0}),
        (["initial={kind: vortex}"], {"initial.amplitude": 1.0}),
        (["forcing.kind=driven", "forcing.rate=2"], {"forcing.rate": 2.0}),
    ],
)
def test_overrides_replace_the_files_values_in_any_order(
    load, overrides: list[str], expected: dict
):
    text = (
        GIVEN.replace("1/1600", "0, scalars: [{name: a, diffusivity: 1}]")
        if "scalars" in overrides[0]
        else GIVEN
    )
    for order in itertools.permutations(overrides):
        whole = load(text, *order).model_dump()
        for key, value in expected.items():
            found = whole
            for part in key.split("."):
                found = found[int(part) if part.isdecimal() else part]
            assert found == value, key


def test_input_paths_start_at_the_current_folder_only_on_the_command_line(
    load, tmp_path: Path, config_class, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "cases"
    here = tmp_path / "here"
    for place in (folder, here):
        place.mkdir()
        (place / "fields.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.setenv("CASES", str(folder))
    (folder / "run.yaml").write_text(
        GIVEN.replace("{kind: vortex, amplitude: 2}", "{kind: python, path: fields.py}")
    )

    def path(*overrides: str) -> Path:
        return load_config("../cases/run.yaml", overrides).initial.path

    assert path() == folder / "fields.py"
    assert path("initial.path=fields.py") == here / "fields.py"
    assert path("initial={kind: python, path: ./fields.py}") == here / "fields.py"
    assert path("initial.path=${CASES}/fields.py") == folder / "fields.py"


@given(st.text() | st.text(alphabet="a.=[]{}\n\t\x1b\x85\u2028\ufeff\ud800", max_size=8))
def test_a_refusal_is_one_line_without_control_characters(text: str):
    try:
        parse_override(text)
    except UserError as refusal:
        assert str(refusal).isprintable()
