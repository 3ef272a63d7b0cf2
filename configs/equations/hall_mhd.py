"""Incompressible Hall magnetohydrodynamics, with b in units of velocity and the ion inertial length
d:

u_t = P[u x w + j x b] + nu lap u,  b_t = curl[(u - d j) x b] + eta lap b,  w = curl u,  j = curl b.

Waves along a mean field B have omega = k B (sqrt(1 + (k d / 2)^2) +- k d / 2): whistlers and
ion-cyclotron waves. Mahajan & Krishan, Mon. Not. R. Astron. Soc. 359, L27 (2005), also at finite
amplitude."""

import jax.numpy as jnp

from simulator.equations import Equation, Field, NonNegative


class HallMhd(Equation):
    dimensions = 3
    evolved = (
        Field("velocity", vector=3, solenoidal=True),
        Field("magnetic", vector=3, solenoidal=True),
    )
    viscosity: NonNegative = 0.0
    resistivity: NonNegative = 0.0
    ion_length: NonNegative = 0.1

    def linear(self):
        k2 = self.k_squared
        return {"velocity": -self.viscosity * k2, "magnetic": -self.resistivity * k2}

    def inputs(self, fields):
        u, b = fields["velocity"], fields["magnetic"]
        return {"u": u, "w": self.curl(u), "b": b, "j": self.curl(b)}

    def products(self, values):
        u, w, b, j = (values[name] for name in "uwbj")
        force = jnp.cross(u, w, axis=0) + jnp.cross(j, b, axis=0)
        return {"force": force, "electric": jnp.cross(u - self.ion_length * j, b, axis=0)}

    def advection(self, values):
        # The fastest whistler on the grid travels at k_max d times the Alfven speed.
        whistler = 1 + self.ion_length * self.transform.grid.largest_wavenumber
        return abs(values["u"]) + whistler * abs(values["b"])

    def combine(self, products, fields):
        return {
            "velocity": self.project(products["force"]),
            "magnetic": self.curl(products["electric"]),
        }

    def quantities(self, fields):
        u, b = fields["velocity"], fields["magnetic"]
        kinetic, magnetic = 0.5 * self.mean_of(u, u), 0.5 * self.mean_of(b, b)
        return {
            "energy": kinetic + magnetic,
            "kinetic_energy": kinetic,
            "magnetic_energy": magnetic,
        }


def orszag_tang(x, y, z, mean_field=0.0):
    """Orszag & Tang's vortex with a third component, in a mean field along z."""
    u = (-jnp.sin(y), jnp.sin(x), 0 * x)
    b = (-jnp.sin(y) + 0.2 * jnp.sin(z), jnp.sin(2 * x) + 0.2 * jnp.cos(z), mean_field + 0 * x)
    return {
        "velocity": [v + 0 * (x + y + z) for v in u],
        "magnetic": [v + 0 * (x + y + z) for v in b],
    }
