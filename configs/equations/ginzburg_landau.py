"""The complex Ginzburg-Landau equation near an oscillatory instability:

A_t = A + (1 + i b) lap A - (1 + i c) |A|^2 A.

Plane waves sqrt(1 - k^2) exp(i (k x - omega t)) with omega = c + (b - c) k^2 are solutions.
Aranson & Kramer, Rev. Mod. Phys. 74, 99 (2002).
"""

from simulator.equations import Equation, Field


class GinzburgLandau(Equation):
    evolved = (Field("amplitude", complex=True),)
    b: float = 0.5
    c: float = -1.5

    def linear(self):
        return {"amplitude": 1 - (1 + 1j * self.b) * self.k_squared}

    def products(self, values):
        a = values["amplitude"]
        return {"amplitude": -(1 + 1j * self.c) * abs(a) ** 2 * a}
