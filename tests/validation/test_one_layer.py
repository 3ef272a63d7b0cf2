"""Flows of three components that do not depend on one coordinate: boxes of one layer of points, across
x or z."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, last, marched, measured
from numpy.testing import assert_allclose

from simulator import Simulation
from simulator.physics.models import State, outputs
from simulator.physics.models.observables.budget import imbalance

LAYERS = {"x": (1, 16, 12), "z": (16, 12, 1)}
SLOW = [pytest.mark.spmd, pytest.mark.slow]
LAYOUTS = [1, pytest.param(2, marks=SLOW), pytest.param(4, marks=pytest.mark.spmd)]
SOURCE = """\
import jax.numpy as jnp


def flow(x, y):
    return (jnp.sin(x) * jnp.cos(2 * y) + 0.3 * jnp.cos(y), 0.2 * jnp.sin(2 * x) - 0.5 * jnp.cos(x) * jnp.sin(2 * y))


def across(x, y):
    return jnp.cos(x + 2 * y) + jnp.sin(x) + 0 * y


def plane(x, y):
    return {"velocity": flow(x, y), "dye": across(x, y)}


def layer(*points, normal="x"):
    a, b = points[1:] if normal == "x" else points[:2]
    zero = 0 * sum(points)
    velocity = [c + zero for c in (*flow(a, b), across(a, b))]
    velocity = velocity[2:] + velocity[:2] if normal == "x" else velocity
    return {"velocity": tuple(velocity), "dye": across(a, b) + zero}


def vortex(x, y, z):
    stream = jnp.sin(y) * jnp.cos(2 * z) + 0.4 * jnp.cos(2 * y + z) + 0 * x
    along_y = -2 * jnp.sin(y) * jnp.sin(2 * z) - 0.4 * jnp.sin(2 * y + z) + 0 * x
    along_z = -jnp.cos(y) * jnp.cos(2 * z) + 0.8 * jnp.sin(2 * y + z) + 0 * x
    b = (0.5 * stream, 0.5 * along_y, 0.5 * along_z)
    return {"velocity": (1.5 * stream, along_y, along_z), "magnetic": b}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("layer") / "flows.py"
    path.write_text(SOURCE)
    return path


def started(source, function: str, *shape: int, model, count: int = 1, **keys) -> Simulation:
    start = {"kind": "python", "path": str(source), "function": function, **keys}
    return flow(*shape, model=model, initial=start, count=count)


def on_plane(run: Simulation, state: State, name: str) -> np.ndarray:
    """The values of a field at the points of the plane, without padding."""
    shape = run.grid.seen(run.grid.shape)
    array = np.asarray(run.field_program(name)(state))[(..., *map(slice, shape))]
    return array.reshape(*array.shape[: array.ndim - len(shape)], 16, 12)


@pytest.mark.parametrize("count", LAYOUTS)
@pytest.mark.parametrize("normal", ["x", pytest.param("z", marks=pytest.mark.slow)])
def test_the_velocity_across_a_plane_is_a_passive_scalar(source, normal: str, count: int):
    """The velocity within the plane is that of two dimensions, and the third component obeys the
    equation of a scalar of the same diffusivity, to the round-off of ten steps."""
    nu = 0.03
    model = {
        "kind": "navier_stokes",
        "viscosity": nu,
        "scalars": [{"name": "dye", "diffusivity": nu}],
    }
    layer = started(
        source, "layer", *LAYERS[normal], model=model, count=count, parameters={"normal": normal}
    )
    plane = started(source, "plane", 16, 12, model=model)
    found, expected = (
        {name: on_plane(run, last(marched(run, 0.02, 10)), name) for name in ("velocity", "dye")}
        for run in (layer, plane)
    )
    velocity = np.roll(found["velocity"], -1, 0) if normal == "x" else found["velocity"]
    assert_allclose(velocity[:2], expected["velocity"], atol=1e-13)
    assert_allclose(found["dye"], expected["dye"], atol=1e-13)
    assert_allclose(velocity[2], found["dye"], atol=1e-13)


@pytest.mark.parametrize("count", LAYOUTS)
def test_a_vortex_with_a_flow_along_its_axis_decays_as_its_mode(source, count: int):
    """With lap s = -5 s the velocity (1.5 s, d_z s, -d_y s) and the field, half of (s, d_z s, -d_y
    s), change by diffusion alone, as their advection and their Lorentz force are gradients and b is
    constant along streamlines up to the stretching, which cancels: exp(-5 nu t) for nu = eta."""
    model = {"kind": "mhd", "viscosity": 0.1, "resistivity": 0.1}
    run = started(source, "vortex", 1, 16, 16, model=model, count=count)
    end = last(marched(run, 0.05, 10))
    decayed = np.exp(-5 * 0.1 * 0.5)
    for name in ("velocity", "magnetic"):
        before = np.asarray(run.state.fields[name])
        assert_allclose(np.asarray(end.fields[name]), decayed * before, atol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("ion_length", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
@pytest.mark.parametrize("normal", ["x", pytest.param("z", marks=pytest.mark.slow)])
def test_the_energy_budget_of_a_layer_closes(normal: str, ion_length: float):
    """dE/dt of the equations on this grid is the work of two forces less the dissipation."""
    model = {"kind": "mhd", "viscosity": 0.02, "resistivity": 0.03, "ion_length": ion_length}
    noise = {"kind": "ornstein_uhlenbeck", "rate": 0.2, "correlation_time": 0.3, "band": [1, 2]}
    forces = [{**noise, "helicity": 1}, {**noise, "name": "field", "field": "magnetic"}]
    start = {"kind": "random", "peak": 2, "helicity": 0.5, "magnetic": {"energy": 0.3, "peak": 2}}
    run = flow(*LAYERS[normal], model=model, initial=start, forcing=forces)
    end = last(marched(run, 0.01, 3))
    row = measured(run, end)

    @jax.jit
    def error(s):
        force = run.system.accelerations(s.fields, s.time, s.memory)
        _, change, balance = outputs.budget_row(run.model, s.fields, s.time, force)
        return imbalance(change, jnp.float64(row["injection"]), balance.dissipation)

    assert abs(float(error(end))) < 1e-12
    assert row["power_ornstein_uhlenbeck"] + row["power_field"] == pytest.approx(row["injection"])
    # The components across and within the plane are both driven by a helical force.
    assert row["helicity"] > 0
    assert abs(row["cross_helicity"]) > 0
