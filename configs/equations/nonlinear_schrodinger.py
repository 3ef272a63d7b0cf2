"""A quantum fluid: the nonlinear Schrodinger (Gross-Pitaevskii) equation, in split steps,

i psi_t = -lap psi / 2 + g |psi|^2 psi.

g < 0 attracts; A sech(A (x - v t)) exp(i (v x + (A^2 - v^2) t / 2)) is then a soliton for g = -1.
Zakharov & Shabat, Sov. Phys. JETP 34, 62 (1972).
"""

import jax.numpy as jnp

from simulator.equations import Field, SplitEquation


class NonlinearSchrodinger(SplitEquation):
    evolved = (Field("psi", complex=True),)
    interaction: float = 1.0

    def linear(self):
        return {"psi": -0.5j * self.k_squared}

    def flow(self, values, points, time, duration):
        psi = values["psi"]
        return {"psi": psi * jnp.exp(-1j * self.interaction * abs(psi) ** 2 * duration)}
