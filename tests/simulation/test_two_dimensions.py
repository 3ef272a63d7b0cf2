"""Runs in a plane: the numbers of a box of one layer, without its third axis anywhere, at the cost
of two axes."""

from pathlib import Path

import h5py
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from run_support import drawn, simulation

from simulator import open_run
from simulator.cli import main
from simulator.errors import UserError
from simulator.physics.models import outputs
from simulator.physics.models.fields import along_axes
from simulator.spectral import Grid, Modes, make_transform

CODE = """\
from simulator.equations import Equation, Field


class Stirred(Equation):
    \"\"\"A velocity in the plane (two components of it) that stirs itself and a dye.\"\"\"

    evolved = (Field("velocity", vector=2, solenoidal=True), "dye")
    viscosity: float = 0.02

    def linear(self):
        return {"velocity": -self.viscosity * self.k_squared, "dye": -self.viscosity * self.k_squared}

    def products(self, values):
        u, dye = values["velocity"], values["dye"]
        return {"uu": u[0] * u, "uv": u[1] * u, "flux": u * dye}

    def advection(self, values):
        u = values["velocity"]
        return u if self.transform.grid.dimensions == 2 else (*u, 0 * u[0])

    def combine(self, products, fields):
        kx, ky = self.k[:2]
        force = -1j * (kx * products["uu"] + ky * products["uv"])
        return {"velocity": self.project(force), "dye": -self.divergence(products["flux"])}
"""
START = """\
import jax.numpy as jnp


def start(x, y, z=0.0):
    u = jnp.sin(x) * jnp.cos(2 * y) + jnp.sin(3 * y) * jnp.cos(x), 0.1 * jnp.cos(x) + 0 * y
    return {"velocity": [v + 0 * z for v in u], "dye": jnp.sin(x) * jnp.sin(y) + jnp.cos(2 * x + y) + 0 * z}
"""
CASE = """\
model: {kind: python, path: stirred.py, equation: Stirred}
grid: {shape: [20, 16]}
initial: {kind: python, path: start.py, function: start}
time: {stop: 0.2, dt: 0.02, integrator: rk2}
devices: {count: 2, platform: cpu}
output: {snapshots: {every: 0.1}, diagnostics: {every_steps: 1}, slices: {every: 0.1, fields: [dye]}}
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plane")
    for name, text in (("stirred.py", CODE), ("start.py", START), ("case.yaml", CASE)):
        (folder / name).write_text(text)
    return folder / "case.yaml"


@pytest.fixture(scope="module")
def ran(case) -> Path:
    assert main(["run", str(case), "--output", str(case.parent / "run")]) == 0
    return case.parent / "run"


def test_a_vector_of_zeros_fits_any_grid():
    plane = Grid.of((8, 8), (1.0, 1.0))
    box = Grid.of((8, 8, 8), (1.0, 1.0, 1.0))
    assert along_axes(plane, "rotation", (0.0, 0.0, 0.0)) == (0.0, 0.0)
    assert along_axes(box, "gravity", (0.0, 0.0)) == (0.0, 0.0, 0.0)
    with pytest.raises(UserError, match="gravity: two numbers are needed"):
        along_axes(plane, "gravity", (0.0, 1.0, 0.0))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_nothing_is_padded_for_the_axis_that_is_not_there(count: int):
    """A plane of N x N points keeps (2K+1)(K+1) modes, K = (N - 1)//3, padded only to share out its
    own axes."""
    transform = make_transform(Grid.of((32, 32), (1.0, 1.0)), jax.devices()[:count])
    kept = 10
    assert transform.layout.seen_shape in {(-(-(kept + 1) // count) * count, 2 * kept + 1)}
    assert transform.physical.seen_shape == (32, 32)
    assert Modes(transform.grid).counts == (1, 2 * kept + 1, kept + 1)


def test_arrays_and_messages_have_no_third_axis(case, tmp_path):
    """Values on the grid are (..., x, y), a transform takes them as they are, and refusals tell
    shapes like this."""
    plane = simulation(case)
    fields = plane.state.fields
    forward = plane.transform.forward
    for name, shape in (
        ("velocity", (2, 20, 16)),
        ("dye", (20, 16)),
        ("velocity_magnitude", (20, 16)),
    ):
        values = outputs.field_values(plane.model, name, fields)
        assert values.shape == plane.fields[name].shape == shape
        if name in fields:
            assert_allclose(forward(values), fields[name], rtol=0, atol=1e-15)
    values = {name: np.asarray(plane.fields[name]) for name in fields}
    again = jax.jit(plane.state_from)(values).fields
    assert all(abs(again[name] - fields[name]).max() < 1e-15 for name in fields)
    for given, message in (
        ({"velocty": 0}, "mean velocity"),
        ({"dye": values["velocity"]}, r"shape \(20, 16\)"),
    ):
        with pytest.raises(UserError, match=message):
            plane.state_from(given)
    for backend in ("custom_partitioning", "jaxdecomp"):
        transform = make_transform(
            Grid.of((32, 16), (1.0, 1.0)), jax.devices()[:1], backend=backend
        )
        with pytest.raises(
            ValueError, match=r"takes arrays of shape \(\.\.\., 32, 16\), not \(2, 20, 16\)"
        ):
            transform.forward(np.zeros((2, 20, 16)))
    linear = "linear(self):\n        return {"
    wrong = {
        linear: linear + '"velocity": jnp.zeros((3, 4, 5, 1))}\n        {',
        '{"uu": u[0] * u,': '{"uu": jnp.zeros((7, 4, 5)),',
    }
    needed = (
        r"velocity has shape \(3, 4, 5, 1\), which does not fit the field's \(2, 6, 13, 1\)",
        r"returned shape \(7, 4, 5\) for values of shape \(101, 103, 107\)",
    )
    for (old, new), message in zip(wrong.items(), needed, strict=True):
        (tmp_path / "stirred.py").write_text("import jax.numpy as jnp\n" + CODE.replace(old, new))
        with pytest.raises(UserError, match=message):
            simulation(case, f"model.path={tmp_path / 'stirred.py'}")


@pytest.mark.plugins
def test_files_have_no_third_axis(ran):
    run = open_run(ran)
    last = run.snapshots[-1]
    assert last["velocity"].shape == (2, 20, 16) and last["dye"].shape == (20, 16)
    assert [a.name for a in last["dye"].axes] == ["x", "y"]
    assert list(run.slices.coordinates) == ["x", "y"] and run.slices["dye/xy"].shape == (3, 20, 16)
    assert list(run.slices.variables) == ["dye/xy"]
    with h5py.File(ran / "snapshots" / "00000010.h5") as file:
        assert {"x", "y"} <= set(file) and "z" not in file
    assert main(["verify", str(ran)]) == 0
    assert "slices_dye.png" in drawn(ran)


def test_a_snapshot_is_a_start_at_another_resolution(case, ran):
    start = f"initial={{kind: snapshot, path: {ran / 'snapshots' / '00000010'}}}"
    finer = simulation(case, start, "grid.shape=40,32")
    coarse = open_run(ran).snapshots[-1]["dye"][...]
    assert_allclose(np.asarray(finer.fields["dye"])[::2, ::2], coarse, rtol=0, atol=1e-13)
    kept = start.replace("}", ", time: keep}")
    time = open_run(ran).snapshots[-1].time
    assert (
        main(
            [
                "run",
                str(case),
                kept,
                f"time.stop={1.5 * time}",
                "--output",
                str(ran.parent / "later"),
            ]
        )
        == 0
    )
    times = open_run(ran.parent / "later").diagnostics["time"]
    assert (times[0], times[-1]) == (time, 1.5 * time)
    with pytest.raises(UserError, match=r"time.stop: .* is not beyond the start, whose time is"):
        simulation(case, kept, f"time.stop={time}").check_start()
    with pytest.raises(UserError, match=r"has 2 dimensions, the run 3; set grid.shape"):
        _ = simulation(case, start, "grid.shape=20,16,1").state
