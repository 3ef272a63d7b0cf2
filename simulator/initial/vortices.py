"""Taylor-Green and ABC flows."""

from collections.abc import Mapping
from math import pi
from typing import Literal

import jax.numpy as jnp

from simulator.initial.initial import Fields, Files, Initial, from_values, only, vector
from simulator.initial.spectrum import WithRandomFields, add_random_fields
from simulator.settings import Real
from simulator.spectral import Transform


class TaylorGreenSettings(WithRandomFields):
    kind: Literal["taylor_green"] = "taylor_green"
    amplitude: Real = 1.0
    """A, the largest velocity along x."""


class TaylorGreen(Initial):
    """u = A (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i: solenoidal in any box.

    Taylor & Green, Proc. R. Soc. A 158, 499 (1937).
    """

    Settings = TaylorGreenSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        only("velocity", wanted, "taylor_green")
        lx, ly, lz = transform.grid.box
        a = self.settings.amplitude

        def values(x, y, z):
            x, y, z = 2 * pi * x / lx, 2 * pi * y / ly, 2 * pi * z / lz
            u = a * jnp.sin(x) * jnp.cos(y) * jnp.cos(z)
            v = -a * ly / lx * jnp.cos(x) * jnp.sin(y) * jnp.cos(z)
            return {"velocity": vector(transform, u, v, jnp.zeros_like(u))}

        return add_random_fields(transform, self.settings, wanted, files, from_values(transform, values))


class AbcSettings(WithRandomFields):
    kind: Literal["abc"] = "abc"
    amplitude: Real = 1.0
    """A common factor of the velocity."""
    A: Real = 1.0
    """A in (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X)."""
    B: Real = 1.0
    """B in the same formula."""
    C: Real = 1.0
    """C in the same formula."""


class Abc(Initial):
    """Arnold-Beltrami-Childress flow (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X), X_i = 2 pi x_i / L_i.

    In a cube it is a Beltrami flow, curl u = (2 pi / L) u, and only decays. Dombre et al., J. Fluid Mech. 167, 353
    (1986).
    """

    Settings = AbcSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        only("velocity", wanted, "abc")
        lx, ly, lz = transform.grid.box
        s = self.settings
        a, b, c = (s.amplitude * value for value in (s.A, s.B, s.C))

        def values(x, y, z):
            x, y, z = 2 * pi * x / lx, 2 * pi * y / ly, 2 * pi * z / lz
            return {
                "velocity": vector(
                    transform,
                    a * jnp.sin(z) + c * jnp.cos(y),
                    b * jnp.sin(x) + a * jnp.cos(z),
                    c * jnp.sin(y) + b * jnp.cos(x),
                )
            }

        return add_random_fields(transform, self.settings, wanted, files, from_values(transform, values))
