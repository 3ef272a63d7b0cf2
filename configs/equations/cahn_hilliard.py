"""Phase separation of a binary mixture: c_t = M lap(c^3 - c - gamma lap c).

Cahn & Hilliard, J. Chem. Phys. 28, 258 (1958). Interfaces are about sqrt(2 gamma) thick; the free
energy <(c^2 - 1)^2 / 4 + gamma |grad c|^2 / 2> can only fall."""

from simulator.equations import Equation, Positive


class CahnHilliard(Equation):
    evolved = ("concentration",)
    mobility: Positive = 1.0
    gamma: Positive = 0.01

    def linear(self):
        k2 = self.k_squared
        return {"concentration": self.mobility * k2 * (1 - self.gamma * k2)}

    def products(self, values):
        return {"cube": values["concentration"] ** 3}

    def combine(self, products, fields):
        return {"concentration": self.mobility * self.laplacian(products["cube"])}
