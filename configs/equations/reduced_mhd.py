"""Reduced magnetohydrodynamics in a strong mean field along z, whose Alfven speed is v_A: for the
Elsasser potentials zeta+- = phi +- psi, of which lap lies across the field,

lap zeta+-_t -+ v_A d_z lap zeta+- = -({zeta+, lap zeta-} + {zeta-, lap zeta+}
                                      -+ lap {zeta+, zeta-}) / 2 + nu lap lap zeta+-.

Alfven waves are exact, and one of zeta+ or zeta- alone is a solution at any amplitude. Without nu
both energies <|grad zeta+-|^2> / 4 are conserved. Schekochihin et al., Astrophys. J. Suppl. 182,
310 (2009), eq. 21; Strauss, Phys. Fluids 19, 134 (1976)."""

import jax.numpy as jnp

from simulator.equations import Equation, NonNegative


class ReducedMhd(Equation):
    dimensions = 3
    evolved = ("plus", "minus")  # lap zeta+ and lap zeta-
    alfven_speed: float = 1.0
    viscosity: NonNegative = 0.0

    def across(self):
        """k^2 across the mean field."""
        return self.k[0] ** 2 + self.k[1] ** 2

    def potential(self, field):
        k2 = self.across()
        return -field / jnp.where(k2 > 0, k2, jnp.inf)

    def linear(self):
        wave = 1j * self.alfven_speed * self.k[2]
        damping = self.viscosity * self.across()
        return {"plus": wave - damping, "minus": -wave - damping}

    def inputs(self, fields):
        plus, minus = self.potential(fields["plus"]), self.potential(fields["minus"])
        up, um = self.rotated_gradient(plus), self.rotated_gradient(minus)
        return {**fields, "up": up, "um": um, "zeta_minus": minus}

    def products(self, values):
        up, um = values["up"], values["um"]
        sum_ = up * values["minus"] + um * values["plus"]
        return {"sum": sum_, "bracket": up * values["zeta_minus"]}

    def advection(self, values):
        u, v = jnp.maximum(abs(values["up"]), abs(values["um"]))
        return u, v, 0 * u  # the waves along z are linear

    def combine(self, products, fields):
        both = self.divergence(products["sum"])
        bracket = -self.across() * self.divergence(products["bracket"])
        return {"plus": -0.5 * (both - bracket), "minus": -0.5 * (both + bracket)}

    def quantities(self, fields):
        energies = {n: -self.mean_of(self.potential(f), f) / 4 for n, f in fields.items()}
        return {f"{name}_energy": energy for name, energy in energies.items()}
