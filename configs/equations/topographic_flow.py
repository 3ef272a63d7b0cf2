"""Quasi-geostrophic flow in a layer over topography of height h(x, y) (in units of vorticity):

w_t + u . grad (w + h) + beta v = nu lap w - drag w,  w = lap psi,  u = (-d_y psi, d_x psi).

Without nu and drag, energy and <(w + h)^2> / 2 are conserved (with beta = 0), and flows with w + h
= mu psi stand still. Vallis, Atmospheric and Oceanic Fluid Dynamics (2017), ch. 5; Bretherton &
Haidvogel, J. Fluid Mech. 78, 129 (1976)."""

import jax.numpy as jnp

from simulator.equations import Equation, NonNegative


class TopographicFlow(Equation):
    dimensions = 2
    evolved = ("vorticity",)
    height: float = 5.0
    beta: float = 0.0
    viscosity: NonNegative = 0.0
    drag: NonNegative = 0.0

    def topography(self, x, y):
        return self.height * (jnp.cos(x) + jnp.cos(2 * y))

    def linear(self):
        rossby = 1j * self.beta * self.k[0] * self.inverse_k_squared
        return {"vorticity": rossby - self.viscosity * self.k_squared - self.drag}

    def inputs(self, fields):
        psi = self.inverse_laplacian(fields["vorticity"])
        return {**fields, "velocity": self.rotated_gradient(psi)}

    def products(self, values, points):
        absolute = values["vorticity"] + self.topography(points.x, points.y)
        return {"flux": values["velocity"] * absolute}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        return {"vorticity": -self.divergence(products["flux"])}

    def quantities(self, fields):
        w = fields["vorticity"]
        return {"energy": -0.5 * self.mean_of(self.inverse_laplacian(w), w)}
