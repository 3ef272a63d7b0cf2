"""Simulations with other values of numbers and of a closure's arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import CASE, simulation, write_case
from trained_closure import KEY, closed

from simulator.errors import UserError


def test_a_closure_in_a_plane_that_is_a_viscosity(tmp_path):
    """tau = -2 nu S has the force nu lap u: with tanh of a large argument the closure is the
    viscosity 1."""
    own = closed(tmp_path, "[16, 16]", 1)
    first, last = own.model.varied_arrays[KEY]["layers"]
    constant = {"layers": [{"w": 1e9 * first["w"]}, {"w": 1e9 * last["w"]}]}
    u = own.state.fields["velocity"]
    model = own.varied({KEY: constant}).model
    force = model.project(model.closure.tendencies(model, {"velocity": u})["velocity"])
    assert_allclose(force, -own.transform.layout.k_squared() * u, atol=1e-13)


def test_arrays_of_a_closure_are_those_of_its_function(tmp_path):
    """A file gives them by their names."""
    own = closed(tmp_path, "[8, 8]", 1)
    arrays = own.model.varied_arrays[KEY]
    first, last = arrays["layers"]
    np.savez(tmp_path / "arrays.npz", **{"layers/0/w": 2 * first["w"], "layers/1/w": last["w"]})
    read = closed(
        tmp_path, "[8, 8]", 1, f"model.subgrid.arrays={tmp_path / 'arrays.npz'}"
    ).model.varied_arrays[KEY]
    assert_array_equal(read["layers"][0]["w"], 2 * first["w"])
    wrong = {"layers": [first, {"w": last["w"][:, :2]}]}
    with pytest.raises(UserError, match=r"array 'layers/1/w' has the shape \(1, 2\); \(1, 3\) is"):
        own.varied({KEY: wrong})
    with pytest.raises(
        UserError, match="unknown array 'more'; the closure has layers/0/w, layers/1/w"
    ):
        own.varied({KEY: {**arrays, "more": last["w"]}})
    with pytest.raises(
        UserError, match=r"model.subgrid.array: .* did you mean model.subgrid.arrays\?"
    ):
        own.varied({"model.subgrid.array": arrays})
    np.savez(tmp_path / "arrays.npz", **{"layers/0/w": first["w"]})
    with pytest.raises(
        UserError, match=r"line: model.subgrid.arrays: .*arrays.npz: array 'layers/1/w' is missing"
    ):
        closed(tmp_path, "[8, 8]", 1, f"model.subgrid.arrays={tmp_path / 'arrays.npz'}")


def test_a_variant_differs_in_what_it_was_asked_for(tmp_path):
    """Keys that the variant would ignore, such as those of the placement, are refused too."""
    flow = simulation(write_case(tmp_path, CASE), "devices.count=1")
    for key in ("grid.shape", "time.integrator", "time.stop", "precision", "model.nonsense"):
        with pytest.raises(UserError, match=f"^{key}: is not a number of this configuration"):
            flow.varied({key: 0.5})
    assert flow.varied({"time.max_dt": 0.5}).config.time.max_dt == 0.5
