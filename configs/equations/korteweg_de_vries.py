"""Solitons of shallow water in one dimension: u_t = -6 u u_x - u_xxx.

Korteweg & de Vries, Phil. Mag. 39, 422 (1895). Solitons keep their shapes when one overtakes
another: Zabusky & Kruskal, Phys. Rev. Lett. 15, 240 (1965)."""

import jax.numpy as jnp

from simulator.equations import Equation


class KortewegDeVries(Equation):
    evolved = ("u",)
    dimensions = 1

    def linear(self):
        return {"u": 1j * self.k[0] ** 3}

    def products(self, values):
        return {"square": values["u"] ** 2}

    def combine(self, products, fields):
        return {"u": -3 * self.gradient(products["square"])[0]}


def solitons(x, speeds=(6.0, 2.0), places=(8.0, 18.0)):
    """c / 2 sech^2(sqrt(c) / 2 (x - x0)) for each speed c and place x0."""
    each = zip(speeds, places, strict=True)
    return {"u": sum(c / 2 / jnp.cosh(c**0.5 / 2 * (x - x0)) ** 2 for c, x0 in each)}
