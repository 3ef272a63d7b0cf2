"""A run that reads files of every kind but those of terms."""

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from run_support import simulate

from simulator.cli import main

CASE = """\
model: {kind: navier_stokes, viscosity: 0.1, subgrid: {kind: python, path: closure.py,
  function: stress, arrays: weights.npz, arrays_function: arrays}}
grid: {shape: [8, 8]}
initial: {kind: python, path: start.py, function: start}
forcing: {kind: python, path: E/force.py, function: push}
time: {stop: 0.2, dt: 0.1, integrator: rk2}
devices: {platform: cpu}
output: {diagnostics: {every_steps: 1}, python: {path: measure.py, function: mean, every_steps: 1}}
"""
OTHER = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 1, dt: 0.1, integrator: rk2}
devices: {platform: cpu}
output: {snapshots: {every: 0.5}}
"""
FILES = {
    "closure.py": """
        import jax.numpy as jnp
        from inside import FACTOR
        def arrays():
            return {"w": jnp.zeros(1)}
        def stress(velocity, gradient, width, w):
            e = FACTOR * 1e-3 * w[0] * gradient[0, 0]
            return e, -e, 0 * e
        """,
    "inside.py": "FACTOR = 1.0",
    "start.py": """
        import jax.numpy as jnp
        def start(x, y):
            return {"velocity": (jnp.sin(y) + 0 * x, 0 * x * y)}
        """,
    "E/force.py": """
        import jax.numpy as jnp
        from helpers import AMPLITUDE
        def push(x, y, t):
            from parts.late import SIGN
            return {"velocity": (SIGN * AMPLITUDE * jnp.sin(y) + 0 * x, 0 * x * y)}
        """,
    "E/helpers.py": "AMPLITUDE = 1.0",
    "E/parts/__init__.py": "",
    "E/parts/late.py": "from .sign import SIGN",
    "E/parts/sign.py": "SIGN = 1.0",
    "measure.py": """
        from scale import SCALE
        def mean(fields, time):
            return {"mean": SCALE * (fields["velocity"] ** 2).mean()}
        """,
    "scale.py": "SCALE = 1.0",
}


def every_input(folder: Path) -> Path:
    """The folder with the inputs of CASE, of every kind."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    (folder / "other.yaml").write_text(OTHER)
    (folder / "run.yaml").write_text(CASE)
    assert simulate(folder / "other.yaml", folder / "other") == 0
    np.savez(folder / "weights.npz", w=np.ones(1))
    return folder


def begun_in(folder: Path, original: Path) -> Path:
    """A copy of `original`, with a run to t = 0.2 in the folder `run`."""
    shutil.copytree(original, folder)
    assert simulate(folder / "run.yaml", folder / "run") == 0
    return folder


@contextmanager
def put_back(folder: Path, aside: Path) -> Iterator[Path]:
    """A folder to be changed, whose contents are the earlier ones afterwards."""
    shutil.copytree(folder, aside)
    yield folder
    shutil.rmtree(folder)
    shutil.copytree(aside, folder)


def continued(place: Path, capsys: Any, code: int = 0) -> str:
    """What is said while the run of a folder is continued to t = 0.4."""
    capsys.readouterr()
    assert main(["resume", str(place / "run"), "time.stop=0.4"]) == code
    streams = capsys.readouterr()
    return streams.out + streams.err


def edited(path: Path) -> None:
    path.write_text(path.read_text().replace("1.0", "5.0") + "\n# edited\n")
