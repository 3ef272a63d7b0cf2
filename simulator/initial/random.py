"""Isotropic solenoidal random velocity with a prescribed energy spectrum."""

from collections.abc import Mapping
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.initial.initial import Fields, Files, only
from simulator.settings import Integer, Positive, Settings
from simulator.spectral import Transform
from simulator.spectral.operators import project
from simulator.spectral.random import gaussian


class RandomSettings(Settings):
    kind: Literal["random"] = "random"
    peak: Positive = 3.0
    """Wavenumber (1/length) at which the spectrum E(k) ~ k^4 exp(-2 (k / peak)^2) is largest."""
    energy: Positive = 0.5
    """Kinetic energy, the box mean of |u|^2 / 2."""
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 0


class Random:
    """Gaussian velocity with E(k) ~ k^4 exp(-2 (k / k0)^2), scaled to the energy asked for.

    Every mode is keyed by its wavenumber: one seed gives one field on any number of devices, and a finer grid has
    the same large scales, up to the common factor that sets the energy.
    """

    Settings = RandomSettings

    def __init__(self, settings: RandomSettings):
        self.settings = settings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        only("velocity", wanted, "random")
        layout, s = transform.layout, self.settings

        @jax.jit
        def build() -> Fields:
            k2 = layout.k_squared()
            # |u(k)|^2 = E(k) / (2 pi k^2), and E(k) / k^2 ~ k^2 exp(...): zero at k = 0.
            amplitude = jnp.sqrt(k2) * jnp.exp(-k2 / s.peak**2)
            u = project(layout, amplitude * gaussian(layout, s.seed, 3))
            energy = 0.5 * layout.inner(u, u).sum()
            u = u * jnp.sqrt(s.energy / energy)
            return {"velocity": layout.hold(u.astype(jnp.result_type(transform.dtype, jnp.complex64)))}

        return build()
