"""Surface quasi-geostrophic flow: b_t + u . grad b = -nu |k|^(2 n) b of the buoyancy b at a
boundary.

The stream function is psi = b / |k|, the velocity (-d_y psi, d_x psi). Inviscid, <b^2> / 2 and <psi
b> / 2 are conserved. Held et al., J. Fluid Mech. 282, 1 (1995)."""

import jax.numpy as jnp

from simulator.equations import Equation, NonNegative


class SurfaceQuasiGeostrophic(Equation):
    dimensions = 2
    evolved = ("buoyancy",)
    hyperviscosity: NonNegative = 0.0
    order: int = 4

    def stream_function(self, fields):
        return jnp.sqrt(self.inverse_k_squared) * fields["buoyancy"]

    def linear(self):
        return {"buoyancy": -self.hyperviscosity * self.k_squared**self.order}

    def inputs(self, fields):
        return {
            "buoyancy": fields["buoyancy"],
            "velocity": self.rotated_gradient(self.stream_function(fields)),
        }

    def products(self, values):
        return {"flux": values["velocity"] * values["buoyancy"]}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        return {"buoyancy": -self.divergence(products["flux"])}

    def quantities(self, fields):
        b, psi = fields["buoyancy"], self.stream_function(fields)
        return {"energy": 0.5 * self.mean_of(psi, b), "surface_energy": 0.5 * self.mean_of(b, b)}


def elliptical_vortex(x, y, length=6.283185307179586):
    """An elliptical patch of warm air, which rolls up at its rim. Held et al. (1995), section 5."""
    x, y = (x - length / 2), (y - length / 2)
    return {"buoyancy": jnp.exp(-((x / 1.2) ** 2 + (y / 0.4) ** 2))}
