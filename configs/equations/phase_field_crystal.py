"""The phase-field crystal: a density whose peaks are the atoms of a growing crystal,

psi_t = lap[(r + (1 + lap)^2) psi + psi^3],   r < 0.

The mean density is conserved, and the free energy <psi (r + (1 + lap)^2) psi / 2 + psi^4 / 4> can
only fall. Elder & Grant, Phys. Rev. E 70, 051605 (2004)."""

import jax.numpy as jnp

from simulator.equations import Equation


class PhaseFieldCrystal(Equation):
    evolved = ("density",)
    r: float = -0.25

    def linear(self):
        k2 = self.k_squared
        return {"density": -k2 * (self.r + (1 - k2) ** 2)}

    def products(self, values):
        return {"cube": values["density"] ** 3}

    def combine(self, products, fields):
        return {"density": self.laplacian(products["cube"])}


def seeds(x, y, mean=-0.285, length=160.0):
    """Three crystals in a melt, turned against one another."""
    density = mean + 0 * (x + y)
    for cx, cy, angle in ((0.25, 0.3, 0.1), (0.7, 0.25, 0.35), (0.5, 0.75, 0.6)):
        dx, dy = x - cx * length, y - cy * length
        u = jnp.cos(angle) * dx + jnp.sin(angle) * dy
        v = jnp.cos(angle) * dy - jnp.sin(angle) * dx
        holes = jnp.cos(3**0.5 / 2 * u) * jnp.cos(v / 2) - jnp.cos(v) / 2
        density -= 0.5 * holes * jnp.exp(-(dx**2 + dy**2) / 12**2)
    return {"density": density}
