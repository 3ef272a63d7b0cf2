"""Spatiotemporal chaos of flame fronts: u_t = -lap u - lap^2 u - |grad u|^2 / 2, without mean.

Kuramoto, Prog. Theor. Phys. Suppl. 64, 346 (1978); Sivashinsky, Acta Astronaut. 4, 1177 (1977). The
linear part lets waves of |k| < 1 grow."""

from simulator.equations import Equation


class KuramotoSivashinsky(Equation):
    evolved = ("u",)

    def linear(self):
        k2 = self.k_squared
        return {"u": k2 - k2**2}

    def inputs(self, fields):
        return {"slope": self.gradient(fields["u"])}

    def products(self, values):
        return {"u": -0.5 * (values["slope"] ** 2).sum(0)}

    def combine(self, products, fields):
        return {"u": self.fluctuation(products["u"])}
