"""What needs no device is refused without one, by `check`, `submit`, `sweep plan` and `run` in the
same words."""

import os
import re
from pathlib import Path

import pytest
from refusals import pairs
from run_support import CASE, simulate, write_case

from simulator.cli import main
from simulator.cluster import Allocation
from simulator.config import RunConfig, load_config
from simulator.errors import UserError
from simulator.run.folder import FolderContent, RunFolder
from simulator.simulation import compiling, placement

RANDOM = "{kind: random, peak: 3, energy: 0.5, seed: 1}"

# A block in place of the file's, and the refusal.
REFUSED = pairs("""
initial: {kind: random, scalars: {dye: {}}}
    4: initial: dye is not a field of this model
model: {kind: self_gravitating_gas, sound_speed: 1}
    4: initial: gives no density
initial: {kind: jeans_wave}
    4: initial: kind: jeans_wave needs
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: step, diffusivity: 0}]}
    2: model.scalars.0.name: 'step' cannot name a scalar
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: memory_x, diffusivity: 0}]}
    2: model.scalars.0.name: 'memory_x' cannot name a scalar
time: {stop: 1e308, cfl: 0.3}
    5: time.stop: must lie between 1e-30 and 1e+30 in magnitude, not 1e+308
grid: {shape: [16, 12, 10], box: [2*pi, 1e-300, 4]}
    3: grid.box.1: must lie between 1e-30 and 1e+30
model: {kind: navier_stokes, viscosity: 1e300}
    2: model.viscosity: must lie between 1e-50 and 1e+50
grid: {shape: [16, 12, 3000000000]}
    3: grid.shape.2: must be at most 65536, not 3000000000
output: {spectra: {every: 1e-300}}
    7: output.spectra.every: must lie between
output: {spectra: {every: 1e-20}}
    7: output.spectra.every: 1e-20 gives 1e+20 events until time.stop = 1
time: {stop: 1.0, dt: 1e-20}
    5: time.dt: 1e-20 gives 1e+20 steps until time.stop = 1
output: {particle_statistics: {every: 1, bins: 1e14}}
    7: output.particle_statistics.bins: must be at most
time: {stop: 1.0, max_steps: 100000000000000000000}
    5: time.max_steps: must be at most 1000000000000
devices: {platform: cpu, count: 100000000000000000000}
    6: devices.count: must be at most 1048576
output: {directory: ~nouser/x}
    7: output.directory: there is no user nouser
initial: {kind: python, path: fields.py, function: f}
    4: initial.path:
output: {snapshots: {fields: [velocty], every: 0.4}}
    7: output.snapshots.fields: unknown field 'velocty'
""")
LONG = [
    (f"output: {{directory: {'a' * 256}}}", "7: output.directory: a file or folder name is"),
    (f"output: {{directory: {'a/' * 2500}}}", "7: output.directory: "),
    (f"model: {{kind: navier_stokes, viscosity: {'x' * 9000}}}", "2: model.viscosity: 'xxx"),
]


@pytest.mark.parametrize("block, message", REFUSED + LONG)
def test_every_command_refuses_alike(tmp_path, capsys, monkeypatch, block: str, message: str):
    monkeypatch.chdir(tmp_path)
    key = block.partition(":")[0]
    write_case(tmp_path, re.sub(rf"(?m)^{key}:.*", block, CASE))
    (tmp_path / "sweep.yaml").write_text("base: case.yaml\nsweep: {grid: {initial.seed: [1]}}\n")
    said = []
    for command in (
        "check case.yaml",
        "submit case.yaml --dry-run",
        "run case.yaml",
        "sweep plan sweep.yaml",
    ):
        if key == "initial" and "random" not in block and command.startswith("sweep"):
            continue  # it has no seed
        assert main(command.split()) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and len(shown.err) < 700
        said.append(shown.err)
    assert said[0].startswith(f"case.yaml:{message}"), said[0]
    assert set(said) == {said[0]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case.yaml", "sweep.yaml"]


def test_a_path_that_is_no_text(tmp_path, capsys):
    config = write_case(tmp_path)
    assert simulate(config, Path(os.fsdecode(b"a\xff"))) == 2
    assert "a path is UTF-8 text" in capsys.readouterr().err


def config_of(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config(write_case(tmp_path), [f"output.directory={tmp_path}/out", *overrides])


@pytest.mark.parametrize("decomposition", ["auto", "slab", "pencil", "z_xy", "zx_y", "z_y_x"])
@pytest.mark.parametrize("backend", ["auto", "custom_partitioning", "jaxdecomp"])
def test_any_count_starts_or_is_refused(tmp_path, monkeypatch, backend, decomposition):
    started = []
    monkeypatch.setattr(placement, "start", lambda *args, **options: started.append(options))
    given = [f"fft.backend={backend}", f"fft.decomposition={decomposition}", "grid.shape=16,12,8"]
    for count in ("auto", 1, 2, 3, 4, 6, 8):
        started.clear()
        try:
            placement.connect(config_of(tmp_path, *given, f"devices.count={count}"), Allocation())
        except UserError as error:
            assert str(error).startswith("command line: devices.count: ") and "16 x 12 x 8" in str(
                error
            )
        else:
            assert [options["count"] for options in started] == [count]
    if (backend, decomposition) == ("jaxdecomp", "pencil"):  # of four devices at least
        assert [options["count"] for options in started] == [8]


MATTER = """\
model: {kind: composite, components: [{kind: particles, name: dark, count: 1000}]}
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {dark: {kind: uniform}}}
time: {stop: 1, dt: 0.1}
devices: {platform: cpu, count: 1}
"""


@pytest.fixture
def short(tmp_path, capsys, monkeypatch):
    """The line with which a run is refused where so many bytes are free; nothing is allocated."""
    from simulator.simulation.simulation import Simulation

    monkeypatch.setattr(compiling, "SMALL", 0)
    monkeypatch.setattr(
        Simulation, "check_start", lambda self: pytest.fail("something was allocated")
    )

    def short(text: str, free: int) -> str:
        monkeypatch.setattr(compiling, "free_everywhere", lambda cluster: free)
        config = write_case(tmp_path, text)
        assert simulate(config, tmp_path / "out", "devices.count=1", "run.memory=low") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{config}:") and not (tmp_path / "out").exists()
        return line.removeprefix(f"{config}:")

    return short


def test_a_grid_that_cannot_fit_is_refused_before_it_is_allocated(short):
    """The state: 3 components of 11 x 7 x 4 complex numbers, 14.8 kB, and eight numbers at most
    beside them; a step holds two states. Sides go with the third root: 16 (20 / 29.7)^(1/3) =
    14.03, below which 12 is the next size."""
    line = short(CASE, 20_000)
    assert line.startswith(
        "3: grid.shape: 16 x 12 x 10 in double precision needs 29.7 kB or more on "
    )
    assert (
        "which has 20 kB free; what would fit: grid.shape: [12, 9, 7], or 2 devices like these"
        in line
    )
    assert "which has 40 kB free" in short(CASE, 40_000)  # too little for what is compiled


def test_particles_that_cannot_fit_are_refused_with_the_number_that_does(short):
    """The state: fields of 14.8 kB, and 80 bytes of a particle: nine doubles and the id. A step
    holds two states, so that (100 / 2 - 14.8) kB / 80 B = 439 particles fit."""
    line = short(CASE + "particles: [{name: tracers, kind: tracer, count: 1000}]\n", 100_000)
    assert line.startswith("8: particles.0.count: 1000 tracers are most of the 190 kB or more")
    assert "which has 100 kB free; what would fit: count: 439, or 2 devices like these" in line


def test_matter_that_cannot_fit_is_refused_with_the_number_that_does(short):
    """64 bytes of a particle: seven doubles and the id."""
    line = short(MATTER, 100_000)
    assert line.startswith("1: model.components.0.count: 1000 dark are most of the 128 kB or more")
    fit = int(line.partition("what would fit: count: ")[2].partition(",")[0])
    assert 775 <= fit <= 100_000 / 2 / 64


def test_particles_of_a_snapshot_are_a_start_for_every_command(tmp_path, capsys, refused_command):
    """Their number and their records are read, and nothing is placed on the abstract devices."""
    config = write_case(tmp_path, MATTER)
    assert simulate(config, tmp_path / "out", "time.max_steps=1") == 0
    start = f"initial={{kind: snapshot, path: {tmp_path / 'out' / 'snapshots' / '00000000'}}}"
    assert main(["check", str(config), start]) == 0
    capsys.readouterr()
    assert "holds 1000 dark, and the model's count is 64" in refused_command(
        "check", config, start, "model.components.0.count=64"
    )


def test_a_home_folder_is_not_an_empty_one(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for path in (home, tmp_path, Path("/")):
        assert RunFolder(path).content() is FolderContent.FOREIGN
    other = tmp_path / "elsewhere"
    (other / ".ssh").mkdir(parents=True)
    (other / ".bashrc").touch()
    assert RunFolder(other).content() is FolderContent.FOREIGN
    (home / "run").mkdir()
    (home / "run" / ".lock-0123").touch()
    assert RunFolder(home / "run").content() is FolderContent.EMPTY


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """The line that a run is refused with, FOLDER standing for the test's folder."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *arguments: str) -> str:
        config = write_case(tmp_path, text)
        before = {path.name for path in tmp_path.iterdir()}
        assert simulate(config, tmp_path / "out", *arguments) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and {path.name for path in tmp_path.iterdir()} == before
        (line,) = shown.err.splitlines()
        return line.replace(f"{tmp_path}/", "")

    return run


@pytest.mark.parametrize(
    "arguments, message",
    pairs("""
time.stp=2
    command line: time.stp: unknown key, did you mean time.stop?
nonsense
    command line: nonsense: an override is written key=value, e.g. time.stop=2
devices.count=50
    command line: devices.count: 50 devices cannot share a 16 x 12 x 10 grid
--processes 0
    --processes: must be at least 1, not 0
--processes 3
    case.yaml:6: devices.count: 2 is not a multiple of 3 processes; 3 is
--processes=2 --process-id 1
    --processes starts all processes of the run itself; leave out
--coordinator x
    --coordinator: 'x' is not an address; write HOST:PORT, e.g. node1:12345
--num-processes 2
    processes started by hand need all three of their settings; missing: --coord
"""),
)
def test_a_mistake_on_the_command_line(refused, arguments, message):
    assert refused(CASE, *arguments.split()).startswith(message)


NUMPY = "uses numpy, or an if, on the coordinates x, y and z; use jax.numpy instead, with jnp.where for an if"
NEEDED = "shape (3, 16, 12, 10) is needed"


@pytest.mark.parametrize(
    "code, message",
    pairs(f"""
def build(:
    :4: cannot be run: SyntaxError:
def other(x): pass
    : has no function 'build'; it has other
x
    :4: build: returned JitTracer; a dict of fields by name is needed
dict(temperature=x)
    :4: build: returned 'temperature'; this model's fields are velocity
dict(velocity=jnp.zeros((2, 9)))
    :4: build: velocity has shape (2, 9); {NEEDED}
dict(velocity=(x, jnp.zeros(5), z))
    :4: build: velocity has parts of shapes (16, 1, 1), (5,),
dict(velocity="fast")
    :4: build: velocity has the type str; {NEEDED}
dict(velocity=(1j * x, y, z))
    :4: build: velocity is complex; real values are needed
dict(velocity=(np.sin(y), 0 * x, 0 * z))
    :5: build: {NUMPY}
dict(velocity=(x, x, x)) if x[0, 0, 0] > 0 else 0
    :5: build: {NUMPY}
dict(velocity=dict()["u"])
    :5: build: KeyError: 'u'
def build(x, y, z, more): pass
    :4: build: takes (x, y, z, more), and is called with 3 arguments (the coordinates x, y and z)
dict(velocity=(1 / x, 0 * y, 0 * z))
    4: initial: velocity has values that are not finite
dict(velocity=(0 * x, 0 * y, 0 * z))
    5: time.max_dt: is required: the initial state is at rest, so cfl gives no time step
"""),
)
def test_a_mistake_in_the_users_function(refused, tmp_path, code, message):
    """`code` is a function, or what the function `build` returns."""
    function = code if code.startswith("def ") else f"def build(x, y, z):\n    return {code}"
    (tmp_path / "fields.py").write_text(
        f"import jax.numpy as jnp\nimport numpy as np\n\n{function}\n"
    )
    found = refused(CASE.replace(RANDOM, "{kind: python, path: fields.py, function: build}"))
    found = found.replace("DynamicJaxprTracer", "JitTracer")
    place = "4: initial: fields.py" if message[0] == ":" else ""
    assert found.startswith(f"case.yaml:{place}{message}")


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert simulate(write_case(tmp_path), tmp_path / "file" / "out") == 2
    assert capsys.readouterr().err == f"output.directory: {tmp_path}/file/out: Not a directory\n"


@pytest.mark.parametrize(
    "line, message",
    [
        ("run nowhere.yaml", "nowhere.yaml: no such file"),
        ("resume nowhere", "nowhere: no such folder; name the folder that output.directory gave"),
        (
            "resume .",
            ".: not a run: it has no config.yaml; name the folder that output.directory gave",
        ),
        (
            "resume . output.directory=x",
            "command line: output.directory=x: resume continues in the folder RUN; move it instead",
        ),
    ],
)
def test_files_and_folders_that_are_not_there(tmp_path, capsys, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert capsys.readouterr() == ("", message + "\n")
