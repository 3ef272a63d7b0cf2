"""The processes of one run agree, or end within seconds with the difference."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fault_support import HERE, both, inside, start
from input_cases import edited, every_input
from run_support import ROOT, command, environment, free_port, largest_difference
from tiers import slow

CASE = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 0.2, dt: 0.1, integrator: rk2}
devices: {platform: cpu}
"""


KEYS = [
    ("model.viscosity=0.2", "model.viscosity is 0.02 on process 0 and 0.2 on process 1"),
    slow("initial.seed=2", "initial.seed is 1 on process 0 and 2 on process 1"),
    slow("time.stop=0.4", "time.stop is 0.2 on process 0 and 0.4 on process 1"),
    slow("output.spectra.every=0.1", "output.spectra.every .* 0.1 on process 1"),
    slow("devices.count=4", "devices.count is auto on process 0 and 4 on process 1"),
    ("output.directory=elsewhere/run", "output.directory is .*/run on .* and .*/elsewhere/run on"),
    slow("grid.shape=2,2", "grid.shape is"),
]


@pytest.mark.spmd
@pytest.mark.parametrize("override, said", KEYS)
@pytest.mark.parametrize("begun", [False, slow(True)])
def test_another_key_ends_both_before_anything_is_written(tmp_path, override, said, begun):
    (tmp_path / "run.yaml").write_text(CASE)
    words = [tmp_path, "run", "run.yaml", "output.directory=run"]
    if begun:  # this folder holds the finished run of process 0
        assert start(words, tmp_path, run=inside).ended()[0] == 0
    before = sorted(path for path in tmp_path.rglob("*") if not path.name.startswith("said."))
    codes, texts = both(tmp_path, words, [*words, override])
    assert codes == [2, 2], texts
    for text in texts:
        assert re.search(f"the processes of this run differ: .*{said}", text), text
        assert len(text.splitlines()) == 1
    left = (path for path in tmp_path.rglob("*") if not path.name.startswith("said."))
    assert sorted(left) == before


def another_array(path: Path) -> None:
    np.savez(path, w=np.full(1, 2.0))


INPUTS = [
    ("E/parts/sign.py", edited),
    slow("E/force.py", edited),
    slow("start.py", edited),
    slow("closure.py", edited),
    slow("measure.py", edited),
    slow("weights.npz", another_array),
    slow("E/helpers.py", Path.unlink),
]


@pytest.mark.spmd
@pytest.mark.parametrize("name, change", INPUTS)
def test_another_file_ends_both(tmp_path: Path, name, change):
    ours = every_input(tmp_path / "a")
    theirs = tmp_path / "b"
    shutil.copytree(ours, theirs)
    change(theirs / name)
    words = ["run", f"{HERE}/run.yaml", "--output", tmp_path / "run"]
    codes, texts = both(tmp_path, [ours, *words], [theirs, *words])
    assert codes == [2, 2], texts
    what = Path(name.removesuffix(".py")).name
    assert all("the processes of this run " in text and what in text for text in texts)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.spmd
def test_other_sources_end_both(tmp_path: Path):
    (tmp_path / "run.yaml").write_text(CASE)
    shutil.copytree(ROOT / "simulator", tmp_path / "other/simulator")
    source = tmp_path / "other/simulator/physics/models/navier_stokes.py"
    source.write_text(source.read_text() + "# changed\n")
    address = f"127.0.0.1:{free_port()}"
    words = ["run", tmp_path / "run.yaml", "--output", tmp_path / "run", "--coordinator", address]
    started = [
        subprocess.Popen(
            command(*words, "--num-processes", "2", "--process-id", str(i)),
            env=environment() | {"PYTHONPATH": str(path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, path in enumerate((ROOT, tmp_path / "other"))
    ]
    texts = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [2, 2]
    line = "simulator/physics/models/navier_stokes.py is checksum .* on process 0 and checksum"
    assert all(re.search(line, text) for text in texts), texts


RANDOM = """\
import random
import numpy as np
import jax.numpy as jnp

own = np.random.default_rng()

def alike(x, y):
    phase = np.random.uniform(0, 6) + random.random()
    noise = 1e-3 * np.random.standard_normal((8, 8))
    return {"velocity": (jnp.sin(y + phase) + noise, noise)}

def unseeded(x, y):
    return {"velocity": (jnp.sin(y + own.uniform(0, 6)) + 0 * x, 0 * x * y)}

def noise(x, y):
    return {"velocity": own.standard_normal((2, 8, 8))}

def force(x, y, t):
    return {"velocity": (own.uniform() * jnp.sin(y), 0 * y)}

def term(values, points, time):
    return {"velocity": -own.uniform() * values["velocity"]}

def measure(fields, time):
    return {"mean": own.uniform() * fields["velocity"].mean()}
"""


@pytest.mark.spmd
def test_the_global_generators_give_every_process_the_same_numbers(tmp_path: Path):
    (tmp_path / "numbers.py").write_text(RANDOM)
    text = CASE.replace(
        "{kind: random, peak: 2, energy: 0.5, seed: 1}",
        "{kind: python, path: numbers.py, function: alike}",
    )
    (tmp_path / "run.yaml").write_text(text)
    one, two, seeded = (tmp_path / name for name in ("one", "two", "seeded"))
    words = [tmp_path, "run", "run.yaml"]
    assert start([*words, "--output", one], tmp_path, run=inside).ended()[0] == 0
    codes, texts = both(tmp_path, [*words, "--output", two], [*words, "--output", two])
    assert codes == [0, 0], texts
    assert largest_difference(one, two) < 1e-12
    (tmp_path / "numbers.py").write_text(f"{RANDOM}\nnp.random.seed(1)\n")
    assert start([*words, "--output", seeded], tmp_path, run=inside).ended()[0] == 0
    assert largest_difference(one, seeded) > 0.01, "the user's own seed counts"


@pytest.mark.spmd
@pytest.mark.parametrize(
    "key, function",
    [
        ("initial", "unseeded"),
        slow("initial", "noise"),
        slow("forcing", "force"),
        slow("terms", "term"),
        slow("output.python", "measure"),
    ],
)
def test_generators_without_a_seed_are_refused(tmp_path: Path, key: str, function: str):
    (tmp_path / "numbers.py").write_text(RANDOM)
    (tmp_path / "run.yaml").write_text(CASE)
    more = {"terms": ", name: own", "output.python": ", every_steps: 1"}.get(key, "")
    kind = "" if key == "output.python" else "kind: python, "
    block = f"{{{kind}path: {tmp_path / 'numbers.py'}, function: {function}{more}}}"
    words = [tmp_path, "run", "run.yaml", "--output", "run"]
    words.append(f"{key}=[{block}]" if key == "terms" else f"{key}={block}")
    codes, texts = both(tmp_path, words, words)
    assert codes == [2, 2], texts
    assert all(re.search(rf"numbers.py: {function} \(random numbers need a seed", t) for t in texts)
    assert not (tmp_path / "run").exists()
