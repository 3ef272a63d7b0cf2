"""Flow between walls of volume penalisation, against exact solutions."""

import jax
import numpy as np
import pytest
from flow_support import flow
from jax import lax
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from simulator import Simulation, load_config
from simulator.errors import UserError
from simulator.plugins.bodies.relax import NO_SLIP
from simulator.plugins.bodies.shapes import step_down

PUSH = """
import jax.numpy as jnp

def push(values, points, time, acceleration):
    u, v = values["velocity"]
    return {"velocity": jnp.stack([0 * u + acceleration, 0 * v])}
"""
SPACING = 4 / 192
"""A box of the height 4 has two walls and two gaps, of the height 1 each; the viscosity is 1."""
MIDDLE = slice(39, 58)  # The points with 0.3 <= y <= 0.7, y from 0 to 1 in the gap.
Y = np.arange(192)[MIDDLE] * SPACING - 0.5


@pytest.fixture
def channel(tmp_path):
    """The simulation of a channel; a wall that moves with 1 drives it, or a uniform acceleration
    of 8, which makes the largest speed 1."""
    path = tmp_path / "push.py"
    path.write_text(PUSH)

    def make(driven, smoothing, tau=None, shift=0.0):
        speed = 0.0 if driven else 1.0
        walls = [("low", 0, 0.0), ("high", 2, speed)]
        terms = [
            {
                "name": name,
                "kind": "relax",
                "target": {"velocity": [u, 0]},
                "mask": {
                    "kind": "box",
                    "center": [0.5, y + shift],
                    "size": [None, 1],
                    "smoothing": smoothing,
                },
                **({} if tau is None else {"relaxation_time": tau}),
            }
            for name, y, u in walls
        ]
        push = {"name": "push", "kind": "python", "path": str(path), "function": "push"}
        push["parameters"] = {"acceleration": 8}
        start = {"kind": "uniform", "velocity": [0.5, 0]}
        blocks = {"grid": {"box": [1, 4]}, "terms": terms + [push] * driven}
        return flow(4, 192, initial=start, viscosity=1, **blocks)

    return make


def profiles(simulation, numbers, taus):
    """The steady profiles for values of numbers, by one program; the slowest mode decays with pi^2,
    to exp(-18) in the end. dt = 1.5 tau is stable."""

    @jax.jit
    def steady(values, dt, steps):
        varied = simulation.varied(values)
        end = lax.fori_loop(0, steps, lambda _, s: varied.step(s, dt), simulation.state)
        return varied.transform.inverse(end.fields["velocity"])[0]

    for values, tau in zip(numbers, taus, strict=True):
        steps = int(18 / np.pi**2 / (1.5 * tau))
        u = np.asarray(steady(values, 1.5 * tau, steps)).squeeze()
        yield u[0, MIDDLE]  # the same along x


@pytest.mark.parametrize("driven", [False, True], ids=["couette", "poiseuille"])
def test_the_error_of_sharp_walls_is_the_root_of_tau_as_theory_has_it(driven, channel):
    """The flow decays into the walls over d = sqrt(nu tau), so that at them u = d u' + F tau; Angot,
    Bruneau & Fabrie (1999). The surfaces lie midway between points; the grid has 3.4 and 1.7 points
    in d, and its error is 0.06 of that of the walls at the second."""
    errors = []
    layers = (0.07, 0.035)
    taus = [d**2 for d in layers]
    simulation = channel(driven, 1e-6, 1.0, SPACING / 2)
    keys = ("terms.0.relaxation_time", "terms.1.relaxation_time")
    y = Y - SPACING / 2
    numbers = [dict.fromkeys(keys, tau) for tau in taus]
    for d, u in zip(layers, profiles(simulation, numbers, taus), strict=True):
        penalised = 4 * y * (1 - y) + 4 * d + 8 * d**2 if driven else (y + d) / (1 + 2 * d)
        true = 4 * y * (1 - y) if driven else y
        errors.append(abs(u - true).max())
        assert_allclose(u - true, penalised - true, atol=0.06 * abs(penalised - true).max())
    order = np.log2(errors[0] / errors[1]) / 2  # in tau
    assert order == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("driven", [False, True], ids=["couette", "poiseuille"])
def test_smoothed_walls_with_the_default_time_have_no_error_of_that_order(driven, channel):
    """A linear flow is exact but for the grid, 18 and 9 points in the layer; a curved one is exact to
    O(tau)."""
    widths = (18 * SPACING, 9 * SPACING)
    taus = [(w / NO_SLIP) ** 2 for w in widths]
    simulation = channel(driven, widths[0])
    keys = ("terms.0.mask.smoothing", "terms.1.mask.smoothing")
    numbers = [dict.fromkeys(keys, w) for w in widths]
    true = 4 * Y * (1 - Y) if driven else Y
    errors = [abs(u - true).max() for u in profiles(simulation, numbers, taus)]
    if not driven:
        assert max(errors) < 1e-4
        return
    assert errors[1] < 9 * taus[1]
    assert np.log2(errors[0] / errors[1]) / 2 == pytest.approx(1, abs=0.1)


def test_a_shear_flow_vanishes_on_the_surface_of_a_mask_with_the_default_time():
    """u'' = c^2 chi u across the layer, decaying into the body: the tangent at the outer end passes
    through zero at the surface."""

    def rate(d, u):
        return [u[1], NO_SLIP**2 * float(step_down(d, 1.0)) * u[0]]

    solution = solve_ivp(rate, (-0.5, 0.5), [1, NO_SLIP], rtol=1e-9, atol=1e-12)
    u, slope = solution.y[:, -1]
    assert 0.5 - u / slope == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.viscosity=0"],
        ["terms.0.target={velocity: [0, 0]}", "terms.0.mask=null"],
        ["model={kind: self_gravitating_gas, sound_speed: 1, viscosity: 0.1}"],
    ],
)
def test_a_time_that_has_no_default_is_asked_for(overrides, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "model: {kind: navier_stokes, viscosity: 0.1}\n"
        "grid: {shape: [8, 8]}\n"
        "initial: {kind: uniform, velocity: [1, 0]}\n"
        "time: {stop: 1}\n"
        "terms: [{name: a, kind: relax, target: {velocity: body}, "
        "mask: {kind: sphere, center: [3, 3], radius: 1}}]\n"
        "devices: {platform: cpu}\n"
    )
    with pytest.raises(UserError, match=r"relaxation_time: .* give a number"):
        Simulation(load_config(tmp_path / "run.yaml", overrides))
