"""Isotropic random fields with prescribed spectra: a solenoidal velocity, and noise in any field of an equation."""

from collections.abc import Mapping
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles
from simulator.physics.initial.spectrum import (
    STREAMS,
    SpectrumSettings,
    WithRandomFields,
    add_random_fields,
    check_helicity,
    noise,
    shape_of,
    solenoidal,
)
from simulator.settings import Positive, Real
from simulator.spectral import Transform


class NoiseSettings(SpectrumSettings):
    variance: Positive = 1.0
    """Box mean of the square of the noise, summed over components."""
    mean: Real = 0.0
    """Uniform value of every component to which the noise is added."""


class RandomSettings(SpectrumSettings, WithRandomFields):
    kind: Literal["random"] = "random"
    energy: Positive = 0.5
    """Kinetic energy, the box mean of |u|^2 / 2."""
    helicity: Annotated[Real, Field(ge=-1, le=1)] = 0.0
    """Helicity of all modes relative to its largest possible value: with 1 every mode is right-handed."""
    fields: dict[str, NoiseSettings] = Field(default_factory=dict)
    """Noise in fields of any model by name, such as those of a user's own equation; then no velocity is made."""


class Random(Initial):
    """Random velocity with a given energy and spectrum E(k); magnetic field and scalars likewise.

    Every mode is keyed by its wavenumber: one seed gives one field on any number of devices, and a finer grid has the
    same large scales (all shells that truncation leaves whole on both grids), up to the common factor that sets the
    energy.
    """

    Settings = RandomSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: StartFiles) -> Fields:
        layout, s = transform.layout, self.settings
        if s.fields:
            return self._noise(transform, wanted, files)
        dimensions = len(transform.grid.axes)
        if wanted.get("velocity") != (dimensions,):
            number = ("two", "three")[dimensions - 2]
            raise UserError(
                f"random makes a velocity with {number} components, which this model does not have; name the "
                "fields that are noisy, e.g. "
                f"initial: {{kind: random, fields: {{{next(iter(wanted))}: {{variance: 0.01}}}}}}"
            )
        shape = shape_of(s, files)
        check_helicity(transform, s.helicity, "helicity")

        @jax.jit
        def velocity() -> jax.Array:
            u = solenoidal(layout, shape, s.seed, s.energy, s.helicity, s.normalise)
            return layout.constrain(u.astype(jnp.result_type(transform.dtype, jnp.complex64)))

        return add_random_fields(transform, s, wanted, files, {"velocity": velocity()}, s.seed)

    def _noise(
        self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: StartFiles
    ) -> Fields:
        fields: Fields = {}
        for number, (name, s) in enumerate(sorted(self.settings.fields.items()), 1):
            if name not in wanted:
                raise UserError(f"{name} is not a field of this model; its fields are {', '.join(wanted)}")
            stream = (s.seed + self.settings.seed + number * STREAMS) % 2**32
            shape, lead = shape_of(s, files), wanted[name]

            @jax.jit
            def build(s: NoiseSettings = s, shape=shape, stream=stream, lead=lead) -> jax.Array:
                values = noise(transform.layout, shape, stream, lead, s.variance, s.normalise)
                at_zero = transform.layout.k_squared() == 0
                values = jnp.where(at_zero, jnp.where(transform.layout.mask, s.mean, 0), values)
                return transform.layout.constrain(
                    values.astype(jnp.result_type(transform.dtype, jnp.complex64))
                )

            fields[name] = build()
        return add_random_fields(transform, WithRandomFields(), wanted, files, fields)
