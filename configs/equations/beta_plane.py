"""Quasi-geostrophic flow on a beta plane: q_t + u . grad q + beta psi_x = -nu k^2 q - drag q, with
the vorticity q = lap psi - psi / L_d^2 and the velocity u = (-d_y psi, d_x psi).

Rossby waves have omega = -beta k_x / (k^2 + L_d^-2); a single one is exact at any amplitude.
Without viscosity and drag, energy and <q^2> / 2 are conserved. Vallis, Atmospheric and Oceanic
Fluid Dynamics (2017), sections 5.4 and 6.4."""

from simulator.equations import Equation, NonNegative


class BetaPlane(Equation):
    dimensions = 2
    evolved = ("vorticity",)
    beta: float = 20.0
    inverse_deformation_radius: NonNegative = 0.0
    viscosity: NonNegative = 0.0
    drag: NonNegative = 0.0

    def inversion(self):
        """psi = -q / (k^2 + L_d^-2) of each mode, without the mean."""
        return -self.inverse_k_squared / (
            1 + self.inverse_deformation_radius**2 * self.inverse_k_squared
        )

    def linear(self):
        damping = self.viscosity * self.k_squared + self.drag
        return {"vorticity": -damping - 1j * self.beta * self.k[0] * self.inversion()}

    def inputs(self, fields):
        psi = self.inversion() * fields["vorticity"]
        return {"vorticity": fields["vorticity"], "velocity": self.rotated_gradient(psi)}

    def products(self, values):
        return {"flux": values["velocity"] * values["vorticity"]}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        return {"vorticity": -self.divergence(products["flux"])}

    def quantities(self, fields):
        q = fields["vorticity"]
        psi = self.inversion() * q
        return {"energy": -0.5 * self.mean_of(psi, q), "enstrophy": 0.5 * self.mean_of(q, q)}
