"""Rotating shallow water of mean depth H, with the height h of its surface above the mean:

u_t + (zeta + f) e_z x u = -grad(g h + |u|^2 / 2) + nu lap u,  h_t + div((H + h) u) = 0.

Small waves have omega^2 = f^2 + g H k^2. Without viscosity the energy <(H + h) |u|^2 + g h^2> / 2
is conserved, and the potential enstrophy <(zeta + f)^2 / (H + h)> / 2. Vallis, Atmospheric and
Oceanic Fluid Dynamics (2017), ch. 3."""

import jax.numpy as jnp

from simulator.equations import Equation, Field, NonNegative, Positive
from simulator.spectral import Local


class ShallowWater(Equation):
    dimensions = 2
    evolved = (Field("velocity", vector=True), "height")
    gravity: Positive = 16.0
    depth: Positive = 1.0
    coriolis: float = 8.0
    viscosity: NonNegative = 0.0

    def linear(self):
        return {"velocity": -self.viscosity * self.k_squared, "height": 0 * self.k_squared}

    def inputs(self, fields):
        return {**fields, "vorticity": self.curl(fields["velocity"])}

    def products(self, values):
        u, v = values["velocity"]
        spin, head = self._spin(values), (u * u + v * v) / 2 + self.gravity * values["height"]
        flux = (self.depth + values["height"]) * values["velocity"]
        return {"turned": jnp.stack([spin * v, -spin * u]), "head": head, "flux": flux}

    def advection(self, values):
        waves = jnp.sqrt(self.gravity * jnp.maximum(self.depth + values["height"], 0))
        return abs(values["velocity"]) + waves

    def combine(self, products, fields):
        force = products["turned"] - self.gradient(products["head"])
        return {"velocity": force, "height": -self.divergence(products["flux"])}

    def quantities(self, fields):
        def local(values, points, parameters):
            depth, square = self.depth + values["height"], (values["velocity"] ** 2).sum(0)
            energy = (depth * square + self.gravity * values["height"] ** 2) / 2
            enstrophy = self._spin(values) ** 2 / depth / 2
            return Local({}, {}, {"energy": energy, "potential_enstrophy": enstrophy})

        return self.transform.evaluate(self.inputs(fields), local).means

    def _spin(self, values):
        return values["vorticity"] + self.coriolis


def jets(x, y, speed=1.0, width=0.3, coriolis=8.0, gravity=16.0, length=6.283185307179586):
    """Two opposite jets, balanced by the slope of the surface, with a small wave that makes them
    unstable."""
    north, south = (y - length / 4) / width, (y - 3 * length / 4) / width
    u = speed * (jnp.cosh(north) ** -2 - jnp.cosh(south) ** -2)
    rise = -coriolis * speed * width / gravity * (jnp.tanh(north) - jnp.tanh(south) - 1)
    return {
        "velocity": [u + 0 * x, 0 * (x + y)],
        "height": rise + 0.03 * jnp.cos(2 * x) * jnp.sin(y),
    }
