"""Quasi-geostrophic flow in two layers of equal depth with the mean velocities U and -U (Phillips'
model): with q_i = lap psi_i + k_d^2 (psi_j - psi_i) / 2, and + in the upper layer, - in the lower,

q_t + u . grad q +- U q_x + (beta +- k_d^2 U) psi_x = -nu (-lap)^n q,  less r lap psi in the lower.

Waves with k < k_d grow where k_d^2 U > beta. Vallis, Atmospheric and Oceanic Fluid Dynamics (2017),
section 9.6."""

from simulator.equations import Equation, NonNegative


class TwoLayers(Equation):
    dimensions = 2
    evolved = ("upper", "lower")
    shear: float = 1.0
    beta: float = 0.0
    deformation_wavenumber: NonNegative = 10.0
    bottom_drag: NonNegative = 0.0
    hyperviscosity: NonNegative = 0.0
    order: int = 4

    def inversion(self):
        """psi_1 = own q_1 + other q_2, and the same with the layers exchanged."""
        barotropic = -self.inverse_k_squared
        ratio = self.deformation_wavenumber**2 * self.inverse_k_squared
        baroclinic = barotropic / (1 + ratio)
        return 0.5 * (barotropic + baroclinic), 0.5 * (barotropic - baroclinic)

    def linear(self):
        damping = -self.hyperviscosity * self.k_squared**self.order
        return {"upper": damping, "lower": damping}

    def waves(self):
        own, other = self.inversion()
        slope, kx = self.deformation_wavenumber**2 * self.shear, 1j * self.k[0]
        upper = -kx * (self.beta + slope)
        lower = -kx * (self.beta - slope) + self.bottom_drag * self.k_squared
        return {
            ("upper", "upper"): upper * own - kx * self.shear,
            ("upper", "lower"): upper * other,
            ("lower", "upper"): lower * other,
            ("lower", "lower"): lower * own + kx * self.shear,
        }

    def streams(self, fields):
        own, other = self.inversion()
        q1, q2 = fields["upper"], fields["lower"]
        return {"upper": own * q1 + other * q2, "lower": other * q1 + own * q2}

    def inputs(self, fields):
        streams = self.streams(fields)
        return {**fields, **{f"u_{n}": self.rotated_gradient(s) for n, s in streams.items()}}

    def products(self, values):
        return {n: values[f"u_{n}"] * values[n] for n in self.fields}

    def advection(self, values):
        return abs(values["u_upper"]) + abs(values["u_lower"])

    def combine(self, products, fields):
        return {n: -self.divergence(flux) for n, flux in products.items()}

    def quantities(self, fields):
        streams = self.streams(fields)
        return {"energy": -0.25 * sum(self.mean_of(streams[n], q) for n, q in fields.items())}
