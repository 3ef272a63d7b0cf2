"""Two-dimensional turbulence: w_t + u . grad w = nu lap w - drag w of the vorticity w = d_x u_y -
d_y u_x.

The velocity is u = (-d_y psi, d_x psi) with lap psi = w. Without viscosity and drag, energy <|u|^2>
/ 2 and enstrophy <w^2> / 2 are conserved. McWilliams, J. Fluid Mech. 146, 21 (1984)."""

from simulator.equations import Equation, NonNegative


class Vorticity(Equation):
    dimensions = 2
    evolved = ("vorticity",)
    viscosity: NonNegative = 0.0
    drag: NonNegative = 0.0

    def velocity(self, fields):
        return self.rotated_gradient(self.inverse_laplacian(fields["vorticity"]))

    def linear(self):
        return {"vorticity": -self.viscosity * self.k_squared - self.drag}

    def inputs(self, fields):
        return {"vorticity": fields["vorticity"], "velocity": self.velocity(fields)}

    def products(self, values):
        return {"flux": values["velocity"] * values["vorticity"]}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        return {"vorticity": -self.divergence(products["flux"])}

    def quantities(self, fields):
        w, u = fields["vorticity"], self.velocity(fields)
        return {"energy": 0.5 * self.mean_of(u, u), "enstrophy": 0.5 * self.mean_of(w, w)}

    def spectral_energies(self, fields):
        return {"kinetic_energy": 0.5 * (abs(self.velocity(fields)) ** 2).sum(0)}
