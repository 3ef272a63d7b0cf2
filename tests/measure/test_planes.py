"""Planes of matter through its maximum, on one device and on four, without gathering a field."""

import jax
import numpy as np
import pytest
from flow_support import flow, python_flow
from measuring import on_grid
from numpy.testing import assert_allclose
from peers.collectives import collectives

from simulator.archive.series_recorder import measured_series

SHAPE = (16, 14, 12)
"""Of 14 planes of y on 4 devices two are padding."""
DYE = {"kind": "navier_stokes", "viscosity": 0.1, "scalars": [{"name": "dye", "diffusivity": 0.1}]}
BODY = """
zero = 0 * (x + y + z)
dye = jnp.cos(x - 1.3) + jnp.cos(y - 5.9) + 0.2 * jnp.cos(z - 0.1)
return {"velocity": (zero, zero, zero), "dye": dye}"""


@pytest.mark.spmd
@pytest.mark.parametrize("devices", [1, 4])
def test_planes_through_the_maximum(tmp_path, devices):
    """At the grid point with the largest value, the first of several; beside all-to-alls less than
    half of a component is sent."""
    output = {"slices": {"every": 1, "through": "maximum", "fields": ["dye"]}}
    initial = python_flow(tmp_path, BODY)
    simulation = flow(*SHAPE, initial=initial, model=DYE, count=devices, output=output)
    program = jax.jit(measured_series(simulation)["slices"].compute)
    compiled = program.lower(simulation.state).compile()
    values = compiled(simulation.state)
    (dye,) = on_grid(simulation, "dye")
    x, y, z = np.unravel_index(dye.argmax(), dye.shape)
    for name, plane in (("xy", dye[:, :, z]), ("xz", dye[:, y]), ("yz", dye[x])):
        assert_allclose(values[f"dye/{name}"], plane, rtol=1e-13, atol=1e-15)
    places = [values[f"dye/place_{axis}"] for axis in "xyz"]
    assert_allclose(places, np.array([x, y, z]) * simulation.grid.spacing, rtol=1e-13)
    for what, traffic in collectives(compiled).items():
        assert what == "all-to-all" or traffic.bytes < 8 * simulation.grid.points / 2, what


def test_planes_of_components(tmp_path):
    """Of evolved and of derived vectors, without a name among the fields."""
    names = ["velocity_y", "vorticity_z"]
    output = {"slices": {"every": 1, "fields": names}}
    initial = python_flow(tmp_path, BODY)
    simulation = flow(*SHAPE, initial=initial, model=DYE, output=output)
    values = measured_series(simulation)["slices"].compute(simulation.state)
    for name, number in zip(names, (1, 2), strict=True):
        field = on_grid(simulation, name[:-2])[0][number]
        assert_allclose(values[f"{name}/xz"], field[:, SHAPE[1] // 2], rtol=0, atol=1e-15)
