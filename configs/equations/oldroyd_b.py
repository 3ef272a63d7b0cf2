"""A dilute polymer solution (Oldroyd-B) in a plane: velocity u and conformation C of the polymers,
with their relaxation time lambda. kappa, which keeps C smooth, is no part of the model.

u_t + u . grad u = -grad p + nu lap u + nu_p / lambda div C,
C_t + u . grad C = C . grad u + (grad u)^T . C - (C - 1) / lambda + kappa lap C.

Bird, Armstrong & Hassager, Dynamics of Polymeric Liquids (1987), vol. 1, ch. 7; kappa: Sureshkumar
& Beris, J. Non-Newton. Fluid Mech. 60, 53 (1995)."""

import jax.numpy as jnp

from simulator.equations import Equation, Field, NonNegative, Positive


class OldroydB(Equation):
    dimensions = 2
    evolved = (
        Field("velocity", vector=True, solenoidal=True),
        Field("stretch", vector=3),  # C - 1: xx, xy, yy
    )
    viscosity: NonNegative = 0.1
    polymer_viscosity: NonNegative = 0.1
    relaxation_time: Positive = 1.0
    diffusion: NonNegative = 1e-3

    def linear(self):
        k2 = self.k_squared
        relaxation = 1 / self.relaxation_time + self.diffusion * k2
        return {"velocity": -self.viscosity * k2, "stretch": -relaxation}

    def inputs(self, fields):
        return {**fields, "slopes": self.gradient(fields["velocity"])}

    def products(self, values):
        u, v = values["velocity"]
        (u_x, v_x), (u_y, v_y) = values["slopes"]
        xx, xy, yy = values["stretch"] + jnp.array([1, 0, 1]).reshape(3, *[1] * u.ndim)
        gains = 2 * (xx * u_x + xy * u_y), xx * v_x + yy * u_y, 2 * (xy * v_x + yy * v_y)
        fluxes = jnp.stack([u * values["stretch"], v * values["stretch"]])
        momentum = jnp.stack([jnp.stack([u * u, u * v]), jnp.stack([u * v, v * v])])
        return {"gain": jnp.stack(gains), "flux": fluxes, "momentum": momentum}

    def advection(self, values):
        # Shear waves travel at sqrt(nu_p / lambda C) along the stretched polymers.
        stiffness = self.polymer_viscosity / self.relaxation_time
        waves = jnp.sqrt(stiffness * (1 + abs(values["stretch"]).max(0)))
        return abs(values["velocity"]) + waves

    def combine(self, products, fields):
        xx, xy, yy = fields["stretch"]
        stress = jnp.stack([jnp.stack([xx, xy]), jnp.stack([xy, yy])])
        pull = self.polymer_viscosity / self.relaxation_time * self.divergence(stress)
        return {
            "velocity": self.project(pull - self.divergence(products["momentum"])),
            "stretch": products["gain"] - self.divergence(products["flux"]),
        }

    def quantities(self, fields):
        u = fields["velocity"]
        return {"kinetic_energy": 0.5 * self.mean_of(u, u)}
