"""Resistive drift waves in the edge of a magnetised plasma, in the plane across the field: of
potential phi, density n and vorticity w = lap phi, with zonal means (over y) left out of the
coupling,

w_t + {phi, w} = alpha (phi - n) + nu lap w,
n_t + {phi, n} = alpha (phi - n) - kappa d_y phi + nu lap n.

{a, b} = a_x b_y - a_y b_x. Hasegawa & Wakatani, Phys. Rev. Lett. 50, 682 (1983); zonal means:
Numata, Ball & Dewar, Phys. Plasmas 14, 102312 (2007)."""

import jax.numpy as jnp

from simulator.equations import Equation, NonNegative


class HasegawaWakatani(Equation):
    dimensions = 2
    evolved = ("vorticity", "density")
    alpha: NonNegative = 1.0
    kappa: float = 1.0
    viscosity: NonNegative = 1e-3

    def linear(self):
        damping = -self.viscosity * self.k_squared
        return {"vorticity": damping, "density": damping}

    def waves(self):
        """phi = -w / k^2, so that the coupling and the drive are linear in w and n."""
        alpha = jnp.where(self.k[1] != 0, self.alpha, 0.0)
        potential = -self.inverse_k_squared
        return {
            ("vorticity", "vorticity"): alpha * potential,
            ("vorticity", "density"): -alpha,
            ("density", "vorticity"): (alpha - 1j * self.kappa * self.k[1]) * potential,
            ("density", "density"): -alpha,
        }

    def inputs(self, fields):
        phi = self.inverse_laplacian(fields["vorticity"])
        return {**fields, "drift": self.rotated_gradient(phi)}

    def products(self, values):
        return {name: values["drift"] * values[name] for name in self.evolved}

    def advection(self, values):
        return values["drift"]

    def combine(self, products, fields):
        return {name: -self.divergence(flux) for name, flux in products.items()}

    def quantities(self, fields):
        phi, n = self.inverse_laplacian(fields["vorticity"]), fields["density"]
        energy = 0.5 * (self.mean_of(n, n) - self.mean_of(phi, fields["vorticity"]))
        return {"energy": energy, "flux": -self.mean_of(n, 1j * self.k[1] * phi)}
