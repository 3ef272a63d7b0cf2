"""Gradients by the numbers and the random modes of a cosmological start."""

import gravity_cases
import jax
import numpy as np
import pytest
from gradient_checks import off, waves_of
from tiers import slow

from simulator import differentiate
from simulator.physics.initial import INITIALS
from simulator.spectral.random import gaussian


@pytest.mark.plugins
@pytest.mark.skipif("cosmological" not in INITIALS, reason="the plugin of this start is absent")
@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize(
    "devices, precision, power",
    [
        (1, "double", "transfer: eisenstein_hu, h: 0.7, sigma8: 0.8, spectral_index: 1"),
        slow(2, "single", "amplitude: 20, index: -1"),
        slow(4, "double", "amplitude: 20, index: -1"),
    ],
)
def test_particles_by_the_start(devices: int, precision: str, power: str):
    """By the spectrum's numbers, the seed's modes, Omega_m; single precision rounds by 1e-6 over h
    = 0.02."""
    units = (
        "model.units=mpc_h_km_s_msun_h",
        "grid.box=[200, 200, 200]",
        "model.cosmology.hubble=100",
    )
    own = gravity_cases.simulation(
        gravity_cases.MATTER,
        *(() if devices > 1 else units),
        f"model.components.0.arrangement={'glass' if devices == 4 else 'lattice'}",
        *(
            "model.cosmology.start=0.05",
            "time={stop: {scale_factor: 1}, steps: 4, integrator: bullfrog}",
        ),
        *(
            f"initial.components.dark={{kind: cosmological, seed: 4, {power}}}",
            f"precision={precision}",
        ),
        devices=devices,
    )

    def loss(state) -> jax.Array:
        return waves_of(state.particles["dark"], 2 * np.pi / own.grid.box[0])

    layout = own.transform.layout
    s = own.config.initial.components["dark"]
    key = "initial.components.dark."
    numbers = ("sigma8", "spectral_index") if devices == 1 else ("amplitude", "index")
    at = {key + name: getattr(s, name) for name in numbers} | {"model.cosmology.matter": 0.3}
    way = dict.fromkeys(at, 0.1) | {f"{key}seed": gaussian(layout, 5)[0]}
    at[f"{key}seed"] = gaussian(layout, 4)[0]
    gradient = differentiate(own, loss, steps=4)
    h, tolerance = (2e-2, 1e-3) if precision == "single" else (1e-3, 1e-6)
    assert abs(gradient.value(at) / gradient.value({"model.cosmology.matter": 0.3}) - 1) < tolerance
    assert off(gradient, at, way, h) < tolerance
