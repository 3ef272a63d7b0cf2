"""Taylor-Green and ABC flows."""

from collections.abc import Mapping
from math import pi
from typing import Literal

import jax.numpy as jnp

from simulator.physics.initial.initial import (
    Fields,
    Initial,
    StartFiles,
    from_values,
    only,
    three_dimensional,
    vector,
)
from simulator.physics.initial.random import WithRandomFields, add_random_fields
from simulator.settings import Real
from simulator.spectral import Transform


class TaylorGreenStartSettings(WithRandomFields):
    kind: Literal["taylor_green"] = "taylor_green"
    amplitude: Real = 1.0
    """A, the largest velocity along x."""


class TaylorGreenStart(Initial):
    """u = A (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i: solenoidal in any box.

    Taylor & Green, Proc. R. Soc. A 158, 499 (1937). In two dimensions there is no cos Z. The flow is then an exact
    solution that keeps its form and decays as exp(-nu k^2 t), k^2 = (2 pi / Lx)^2 + (2 pi / Ly)^2: Taylor, Phil. Mag.
    46, 671 (1923).
    """

    Settings = TaylorGreenStartSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: StartFiles) -> Fields:
        only("velocity", wanted, "taylor_green")
        lx, ly, *_ = lengths = transform.grid.seen(transform.grid.box)
        a = self.settings.amplitude

        def values(*points):
            x, y, *along = (2 * pi * q / length for q, length in zip(points, lengths, strict=True))
            third = jnp.cos(along[0]) if along else 1.0
            u = a * jnp.sin(x) * jnp.cos(y) * third
            v = -a * ly / lx * jnp.cos(x) * jnp.sin(y) * third
            return {"velocity": vector(transform, u, v, jnp.zeros_like(u))}

        return add_random_fields(transform, self.settings, wanted, files, from_values(transform, values))


class AbcStartSettings(WithRandomFields):
    kind: Literal["abc"] = "abc"
    amplitude: Real = 1.0
    """A common factor of the velocity."""
    A: Real = 1.0
    """A in (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X)."""
    B: Real = 1.0
    """B in the same formula."""
    C: Real = 1.0
    """C in the same formula."""


class AbcStart(Initial):
    """Arnold-Beltrami-Childress flow (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X), X_i = 2 pi x_i / L_i.

    In a cube it is a Beltrami flow, curl u = (2 pi / L) u, and only decays. Dombre et al., J. Fluid Mech. 167, 353
    (1986).
    """

    Settings = AbcStartSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: StartFiles) -> Fields:
        only("velocity", wanted, "abc")
        three_dimensional(transform, "abc")
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
