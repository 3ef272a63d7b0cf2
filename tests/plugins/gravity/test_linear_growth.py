"""Integrators that follow the linear growth of structure, on perturbation theory and in a run."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import advanced, by_id, simulation
from numpy.testing import assert_allclose

from simulator.physics.stepping import INTEGRATORS
from simulator.plugins.gravity.cosmology import Background, CosmologySettings

GROWING = ("bullfrog", "fastpm")
START = 0.05


@dataclass
class Perturbed:
    """Displacements x of the first and the second order of perturbation theory and their velocities
    v. Their accelerations are g x_1 and g (x_2 - x_1^2), g = 3/2 Omega_m H0^2 a; the growing mode
    is (D, D_2)."""

    background: Background

    def drift(self, fields, duration):
        return {**fields, "x": fields["x"] + duration * fields["v"]}

    def slowed(self, fields, factor):
        return {**fields, "v": factor * fields["v"]}

    def kick(self, fields, time, duration):
        cosmology = self.background.settings
        g = 1.5 * cosmology.matter * cosmology.hubble**2 * self.background.scale_factor(time)
        one, two = fields["x"]
        pull = g * jnp.stack([one, two - one**2])
        return {**fields, "v": fields["v"] + duration * pull}, jnp.float64(1)


def mode(background: Background, a: float) -> dict[str, jax.Array]:
    g = background.growing(background.time_of(a))
    return {"x": jnp.stack([g.first, g.second]), "v": jnp.stack([g.speed, g.second_speed])}


def moved(name: str, background: Background, fields, ends):
    step = jax.jit(
        lambda f, t, dt: INTEGRATORS[name]().alternate(Perturbed(background), f, t, dt)[0]
    )
    for t, end in pairwise(ends):
        fields = step(fields, jnp.float64(t), end - t)
    return fields


@pytest.mark.smoke
@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("matter", [1.0, 0.3])
def test_perturbation_theory_is_exact_in_steps_of_any_length(name: str, matter: float):
    """The first order with both, to the error of the table of growth, below 1e-10. The second with
    BullFrog while D_2 is proportional to D^2; else the velocity of one step, and the trapezoidal
    rule gives its position."""
    background = Background(CosmologySettings(start=START, matter=matter, hubble=2))
    wanted = mode(background, 1.0)
    for a in ([START, 1.0], [START, 0.06, 0.5, 0.501, 1.0]):
        found = moved(name, background, mode(background, START), [background.time_of(x) for x in a])
        error = {n: abs(np.asarray(found[n] / wanted[n] - 1)) for n in "xv"}
        assert error["x"][0] < 1e-9 and error["v"][0] < 1e-9
        if name == "bullfrog":
            assert error["x"][1] < (1e-8 if matter == 1 else 2e-2)
            assert error["v"][1] < (1e-8 if matter == 1 or len(a) == 2 else 1e-3)
        else:
            assert error["v"][1] > 1e-2


@pytest.mark.parametrize("name", GROWING)
def test_a_step_of_no_length_has_stages_of_none(name: str):
    """Although the middle of a step in D is found to round-off only."""
    stages = jax.jit(
        partial(INTEGRATORS[name]().stages, Background(CosmologySettings(start=START)))
    )
    for a in (0.1, 0.3, 0.7):
        found = stages(0.1 + a, jnp.float64(0))
        assert not np.any(found.drifts) and not np.any(found.kicks)


@pytest.mark.parametrize("name", GROWING)
def test_any_motion_converges_with_second_order(name: str):
    """Of displacements beside the growing mode: halving the steps divides the error by 4 (1 +
    O(step))."""
    background = Background(CosmologySettings(start=START))
    first = 0.0
    stop = background.time_of(1.0)
    begin = {"x": jnp.array([0.1, 0.02]), "v": jnp.array([-0.01, 0.03])}
    ends = [
        moved(name, background, begin, background.ends(first, stop, n, "growth"))["x"]
        for n in (64, 128, 256)
    ]
    ratio = np.asarray((ends[0] - ends[1]) / (ends[1] - ends[2]))
    assert_allclose(ratio, 4, atol=0.3)


MATTER = """\
model: {kind: composite, cosmology: {start: 0.05}, components: [{kind: particles, name: dark, count: 4096}]}
grid: {shape: [16, 16, 16], box: [16, 16, 16]}
initial: {kind: composite, components: {dark: {kind: zeldovich_wave, amplitude: 0.05, mode: 2}}}
time: {stop: {scale_factor: 1}, steps: 5}
"""


@pytest.mark.long
@pytest.mark.parametrize("name", GROWING)
def test_steps_end_where_asked(name: str):
    """5 steps, equal in D, and one more where an aligned time cuts one."""
    run = simulation(MATTER, f"time.integrator={name}")
    background = run.model.background
    stop = run.config.time.stop
    start = jax.tree.map(jnp.copy, run.state)
    state = advanced(run, run.state, stop)
    assert (int(state.step), float(state.time)) == (5, stop)
    velocity = by_id(state.particles["dark"])["velocity"]
    assert abs(velocity.sum(1)).max() < 1e-12 * abs(velocity).sum()
    grown = [float(background.growing(t).first) for t in np.asarray(run.time_step.ends)]
    assert_allclose(np.diff(grown), (grown[-1] - grown[0]) / 5, rtol=1e-6)
    state = advanced(run, advanced(run, start, background.time_of(0.5)), stop)
    assert (int(state.step), float(state.time)) == (6, stop)
