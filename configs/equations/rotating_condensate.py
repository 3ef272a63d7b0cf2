"""A rotating Bose-Einstein condensate in a harmonic trap around the centre of a plane, in the frame
that turns with Omega (the Gross-Pitaevskii equation):

i psi_t = H psi,  H = -lap / 2 + r^2 / 2 + g |psi|^2 - Omega L_z,  L_z = -i (x d_y - y d_x).

In imaginary time psi_t = (mu - H) psi with mu = <psi, H psi> / <psi, psi>: the mass stays, and the
energy falls to that of the ground state, a lattice of vortices if Omega is near 1. Bao & Cai,
Kinet. Relat. Models 6, 1 (2013), section 4."""

import jax.numpy as jnp

from simulator.equations import Equation, Field, Local, NonNegative


class RotatingCondensate(Equation):
    dimensions = 2
    evolved = (Field("psi", complex=True),)
    interaction: NonNegative = 100.0
    rotation: float = 0.8
    imaginary_time: bool = True

    def linear(self):
        return {"psi": (-0.5 if self.imaginary_time else -0.5j) * self.k_squared}

    def inputs(self, fields):
        return {**fields, "slope": self.gradient(fields["psi"])}

    def local(self, values, x, y):
        """H psi without the kinetic energy, at a point."""
        psi, (psi_x, psi_y) = values["psi"], values["slope"]
        x, y = (s - 0.5 * length for s, length in zip((x, y), self.box, strict=True))
        potential = 0.5 * (x**2 + y**2) + self.interaction * abs(psi) ** 2
        return potential * psi + 1j * self.rotation * (x * psi_y - y * psi_x)

    def products(self, values, points):
        return {"psi": self.local(values, points.x, points.y)}

    def combine(self, products, fields):
        psi, rest = fields["psi"], products["psi"]
        if not self.imaginary_time:
            return {"psi": -1j * rest}
        whole = rest + 0.5 * self.k_squared * psi
        mu = self.mean_of(psi, whole) / self.mean_of(psi, psi)
        return {"psi": mu * psi - rest}

    def quantities(self, fields):
        def energy(values, points, numbers):
            psi = values["psi"]
            rest = self.local(values, *self.transform.grid.seen(points))
            kinetic = 0.5 * (abs(values["slope"]) ** 2).sum(0)
            excess = 0.5 * self.interaction * abs(psi) ** 4
            return Local({}, {}, {"energy": kinetic + (psi.conj() * rest).real - excess})

        means = self.transform.evaluate(self.inputs(fields), energy).means
        area, psi = self.box[0] * self.box[1], fields["psi"]
        return {"mass": area * self.mean_of(psi, psi), "energy": area * means["energy"]}

    @property
    def box(self):
        return self.transform.grid.seen(self.transform.grid.box)


def cloud(x, y, length=20.0, width=3.0):
    """A cloud of mass 1, off the centre, so that vortices can enter."""
    x, y = x - 0.5 * length, y - 0.5 * length
    shape = (1 + 0.3 * (x + 1j * y) / width) * jnp.exp(-(x**2 + 1.1 * y**2) / (2 * width**2))
    return {"psi": shape / jnp.sqrt(jnp.sum(abs(shape) ** 2) * length**2 / shape.size)}
