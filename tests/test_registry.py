"""Parts of other installed packages: found, used by every command, and refused in one line where
they are wrong."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gravity_cases import MATTER
from run_support import install

from simulator.registry import Registry, subclass_of

PACKAGE = Path(__file__).parent / "example_package"
RUN = """
from pathlib import Path
from simulator import largest_moment, open_run, open_sweep
from simulator.cli import COMMANDS, main

assert main(["run", "run.yaml", "time.max_steps=1", "devices.count=2", "--output", "parts"]) == 0
assert main(["run", "run.yaml", "--output", "parts"]) == 0
assert main(["run", "run.yaml"]) == 0
run = open_run("out")
cubes, energy = run.series("cubes"), run.diagnostics["energy"]
assert list(cubes.step) == [0, 1, 2] and int(cubes.attributes["power"]) == 2
assert abs(cubes["moment"] - 2 * energy).max() < 1e-12 * energy[0], "the mean of u^2 is twice the energy"
means, again = run.series("means"), open_run("parts").series("means")
assert list(again.step) == [0, 1, 2] and list(again["count"]) == [1, 2, 3]
for name in ("of_values", "of_modes"):  # sums over 8^3 values, on two devices and then on one
    assert abs(again[name] - means[name]).max() < 1e-13, name
assert abs(means["of_modes"] - means["of_values"]).max() < 1e-13 * energy[0]
assert energy[2] < means["of_modes"][2] < energy[0], "of a decaying flow that keeps its shape"
if "plot" in COMMANDS:
    assert main(["plot", "out"]) == 0
    drawn = {path.name for path in Path("out/plots").iterdir()}
    assert {"cubes.png", "cubes_powers.png", "cubes_map_all.png", "mean_flow_bars.png"} <= drawn
assert main(["verify", "out"]) == 0
assert main(["review", "out"]) == 0 and largest_moment("out") == cubes["moment"].max()
assert main(["run", "run.yaml", "--output", "loud", "review.largest_moment=1e-3"]) == 0
assert main(["review", "loud"]) == 1
Path("study.yaml").write_text("{base: run.yaml, sweep: {grid: {time.dt: [0.1, 0.2]}}, review: {largest_moment: 2}}")
assert main(["sweep", "plan", "study.yaml"]) == 0
assert open_sweep("study.yaml").settings.review.largest_moment == 2
Path("out/cubes.h5").unlink()
assert main(["verify", "out"]) == 1
"""
CONFIG = """
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8, 8]}
initial: {kind: layers, speed: 0.5}
review: {largest_moment: 1}
time: {stop: 1, dt: 0.1, max_steps: 2, integrator: rk2}
devices: {platform: cpu, count: 1}
output: {directory: out, diagnostics: {every_steps: 1}, cubes: {every_steps: 1},
         means: {every_steps: 1}, mean_flow: {every_steps: 1}}
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder of installed packages with one that adds a part of most kinds."""
    folder = tmp_path / "packages"
    install(folder, "cubes", (PACKAGE / "entry_points.txt").read_text())
    for file in PACKAGE.glob("*.py"):
        shutil.copy(file, folder)
    (tmp_path / "run.yaml").write_text(CONFIG)
    return folder


def python(package: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(package)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=package.parent, capture_output=True, text=True
    )


LOADED = """
import sys
from simulator.cli import main

assert main(["run", sys.argv[1], "grid.shape=8,8,8", "time.max_steps=1", "--output", "out"]) == 0
others = ("matplotlib", "simulator.plugins", "cubes")
print(*[m for m in sys.modules if m.startswith(others)], file=sys.stderr)
"""


@pytest.mark.parametrize("case", ["a flow", "a composite of particles"])
def test_a_run_imports_no_part_that_its_file_does_not_name(package: Path, case: str):
    example = Path(__file__).parents[1] / "configs/taylor_green.yaml"
    if case != "a flow":
        (example := package.parent / "matter.yaml").write_text(MATTER)
    done = python(package, LOADED, str(example))
    assert done.returncode == 0, done.stderr
    loaded = done.stderr.split("\n")[-2].split()
    plugin = "simulator.plugins.gravity"
    assert (f"{plugin}.composite" in loaded) == (case != "a flow")
    others = [
        m for m in loaded if not f"{m}.".startswith(f"{plugin}.") and m != "simulator.plugins"
    ]
    assert not others and f"{plugin}.components" not in loaded, "the module of gas and waves"


@pytest.mark.long
def test_parts_of_another_package_are_run_continued_and_verified(package: Path):
    """One of them carries sums over time on the devices, which a restart on other devices takes
    up."""
    done = python(package, RUN)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "cubes.h5" in done.stdout, "the summary lists it"


SCHEMAS = """
import os
from pathlib import Path
from simulator.cli import main
from simulator.config.run_config import registered
registered()  # once for all: the declarations are read by the children
for number, declaration in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        file = Path(sys.path[0], "cubes-1.0.dist-info", "entry_points.txt")
        file.write_text("[simulator.outputs]\\n" + declaration)
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}{number}", os.O_WRONLY | os.O_CREAT), descriptor)
        code = main(["check", "--schema"])
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
WRONG = {
    "cubes = cubes:Absent": "warning: cubes cannot be loaded (AttributeError: ",
    "cubes = cubes:CubeSettings": "a subclass of simulator.measure.Kind is needed",
    "other = cubes:Cubes": "its kind calls itself 'cubes'; the two names must agree",
    "spectra = cubes:Cubes": "of the package cubes: simulator itself has a part of that name",
}


def test_the_schema_shows_it_with_its_defaults_and_a_wrong_one_is_a_line_of_warning(package: Path):
    done = python(package, SCHEMAS, *WRONG, "cubes = cubes:Cubes")
    assert done.stdout.split() == ["0", "0", "0", "0", "0"], done.stderr
    for number, said in enumerate(WRONG.values()):
        err = (package.parent / f"err{number}").read_text()
        assert said in err and err.count("\n") == 1
    schema = (package.parent / "out4").read_text()
    assert '"CubeSettings"' in schema and "The power of speed." in schema


def test_own_parts_need_no_look_at_other_packages(monkeypatch: pytest.MonkeyPatch):
    """A package that adds a part may import the registry's own parts while it is being loaded."""

    def never(group: str) -> None:
        raise AssertionError(group)

    monkeypatch.setattr("simulator.registry.entry_points", never)
    registry = Registry[type[int]]("simulator.numbers", {"flag": bool}, subclass_of(int))
    assert registry["flag"] is bool
    with pytest.raises(AssertionError):
        list(registry)
    monkeypatch.undo()
    registry = Registry[type[int]]("simulator.numbers", {"flag": bool}, subclass_of(int))
    assert list(registry) == ["flag"]


def test_a_part_that_is_named_by_its_place_is_imported_when_it_is_used() -> None:
    own = {"flag": "builtins:bool", "text": "builtins:str", "lost": "builtins:nothing"}
    registry = Registry[type[int]]("simulator.numbers", own, subclass_of(int))
    assert list(registry) == list(own) and "lost" in registry and "number" not in registry
    assert registry["flag"] is bool
    with pytest.raises(TypeError, match="int is needed, not"):
        registry["text"]
    with pytest.raises(AttributeError):
        registry["lost"]
