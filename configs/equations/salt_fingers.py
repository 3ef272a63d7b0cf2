"""Salt fingers: warm, salty water above cold, fresh water, in units of thermal diffusion and the
width of a finger. The last axis points up; T and S are departures from their linear profiles.

u_t + u . grad u = -grad p + Pr (lap u + (T - S) e),  T_t + u . grad T + w = lap T,
S_t + u . grad S + w / R = tau lap S.

R, the density ratio, lies between 1 and 1 / tau where fingers grow. Traxler, Stellmach, Garaud,
Radko & Brummell, J. Fluid Mech. 677, 530 (2011), eqs. 2.2."""

import jax.numpy as jnp

from simulator.equations import Equation, Field, Positive


class SaltFingers(Equation):
    evolved = (Field("velocity", vector=True, solenoidal=True), "temperature", "salinity")
    prandtl: Positive = 7.0
    diffusivity_ratio: Positive = 0.1
    density_ratio: Positive = 1.5

    def linear(self):
        k2 = self.k_squared
        damping = {"temperature": -k2, "salinity": -self.diffusivity_ratio * k2}
        return {"velocity": -self.prandtl * k2, **damping}

    def products(self, values):
        u = jnp.unstack(values["velocity"])
        return {n: jnp.stack([v * values[n] for v in u]) for n in self.fields}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        u, buoyancy = fields["velocity"], fields["temperature"] - fields["salinity"]
        lift = jnp.zeros_like(u).at[-1].set(self.prandtl * buoyancy)
        rates = {n: -self.divergence(flux) for n, flux in products.items()}
        return {
            "velocity": self.project(rates["velocity"] + lift),
            "temperature": rates["temperature"] - u[-1],
            "salinity": rates["salinity"] - u[-1] / self.density_ratio,
        }

    def quantities(self, fields):
        w = fields["velocity"][-1]
        fluxes = {n: self.mean_of(w, fields[n]) for n in ("temperature", "salinity")}
        return {f"{n}_flux": flux for n, flux in fluxes.items()}
