"""Isotropic solenoidal random velocity with a prescribed energy spectrum."""

from collections.abc import Mapping
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.initial.initial import Fields, Files, only
from simulator.initial.spectrum import (
    SpectrumSettings,
    WithRandomFields,
    add_random_fields,
    shape_of,
    solenoidal,
)
from simulator.settings import Positive, Real
from simulator.spectral import Transform


class RandomSettings(SpectrumSettings, WithRandomFields):
    kind: Literal["random"] = "random"
    energy: Positive = 0.5
    """Kinetic energy, the box mean of |u|^2 / 2."""
    helicity: Annotated[Real, Field(ge=-1, le=1)] = 0.0
    """Of all modes, relative to the largest possible: 1 makes every mode right-handed."""


class Random:
    """Gaussian velocity with a spectrum E(k), scaled to the energy asked for; magnetic field and scalars likewise.

    Every mode is keyed by its wavenumber: one seed gives one field on any number of devices, and a finer grid has
    the same large scales, up to the common factor that sets the energy.
    """

    Settings = RandomSettings

    def __init__(self, settings: RandomSettings):
        self.settings = settings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        only("velocity", wanted, "random")
        layout, s = transform.layout, self.settings
        shape = shape_of(s, files)

        @jax.jit
        def velocity() -> jax.Array:
            u = solenoidal(layout, shape, s.seed, s.energy, s.helicity)
            return layout.hold(u.astype(jnp.result_type(transform.dtype, jnp.complex64)))

        return add_random_fields(transform, s, wanted, files, {"velocity": velocity()}, s.seed)
