"""Shocks in one dimension: u_t = nu u_xx - u u_x.

Burgers, Adv. Appl. Mech. 1, 171 (1948). Exact solutions: Cole, Q. Appl. Math. 9, 225 (1951)."""

from simulator.equations import Equation, Positive


class Burgers(Equation):
    evolved = ("u",)
    dimensions = 1
    viscosity: Positive = 0.01

    def linear(self):
        return {"u": -self.viscosity * self.k_squared}

    def products(self, values):
        return {"square": values["u"] ** 2}

    def advection(self, values):
        return (values["u"],)

    def combine(self, products, fields):
        return {"u": -0.5 * self.gradient(products["square"])[0]}
