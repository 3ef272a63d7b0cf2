"""The Orszag-Tang vortex."""

from collections.abc import Mapping
from math import pi
from typing import Literal

import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles, from_values, only, vector
from simulator.settings import Real, Settings
from simulator.spectral import Transform


class OrszagTangSettings(Settings):
    kind: Literal["orszag_tang"] = "orszag_tang"
    amplitude: Real = 1.0
    """Amplitude of the velocity."""
    magnetic_amplitude: Real = 0.8
    """Amplitude of the magnetic field; with 1, both fields have the energy 2 in two dimensions."""
    dimensions: Literal[2, 3] | None = None
    """3, or 2 for the original vortex, which is uniform along z; by default the number of the grid's axes."""


class OrszagTang(Initial):
    """u = A (-2 sin Y, 2 sin X, 0), b = B (-2 sin 2Y + sin Z, 2 sin X + sin Z, sin X + sin Y), X_i = 2 pi x_i / L_i;
    in two dimensions b = B (-2 sin 2Y, 2 sin X, 0).

    Orszag & Tang, J. Fluid Mech. 90, 129 (1979); three dimensions: Mininni, Pouquet & Montgomery, Phys. Rev. Lett.
    97, 244503 (2006).
    """

    Settings = OrszagTangSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: StartFiles) -> Fields:
        only("velocity", wanted, "orszag_tang")
        only("magnetic", wanted, "orszag_tang")
        lengths = transform.grid.seen(transform.grid.box)
        s = self.settings
        dimensions = s.dimensions or len(lengths)
        if dimensions > len(lengths):
            raise UserError("dimensions: 3 needs three dimensions, and grid.shape has two; leave it out")
        third = 1.0 if dimensions == 3 else 0.0

        def values(*points):
            x, y, *along = (2 * pi * q / length for q, length in zip(points, lengths, strict=True))
            z = along[0] if along else 0.0
            a, b = s.amplitude, s.magnetic_amplitude
            return {
                "velocity": vector(transform, -2 * a * jnp.sin(y), 2 * a * jnp.sin(x), 0 * x),
                "magnetic": vector(
                    transform,
                    b * (-2 * jnp.sin(2 * y) + third * jnp.sin(z)),
                    b * (2 * jnp.sin(x) + third * jnp.sin(z)),
                    b * third * (jnp.sin(x) + jnp.sin(y)),
                ),
            }

        return from_values(transform, values)
