"""Two substances that react and diffuse, fed and drained: the Gray-Scott model,

u_t = D_u lap u - u v^2 + f (1 - u),  v_t = D_v lap v + u v^2 - (f + k) v.

Pearson, Science 261, 189 (1993), whose patterns are named by f and k.
"""

import jax.numpy as jnp

from simulator.equations import Equation, Positive


class GrayScott(Equation):
    evolved = ("u", "v")
    diffusivity_u: Positive = 2e-5
    diffusivity_v: Positive = 1e-5
    feed: Positive = 0.04
    kill: Positive = 0.06

    def linear(self):
        return {
            "u": -self.diffusivity_u * self.k_squared - self.feed,
            "v": -self.diffusivity_v * self.k_squared - (self.feed + self.kill),
        }

    def products(self, values):
        reaction = values["u"] * values["v"] ** 2
        return {"u": self.feed - reaction, "v": reaction}


def start(x, y, length=2.5, width=0.1):
    """A homogeneous state with four drops of the second substance."""
    drops = 0.0
    for cx, cy in ((0.4, 0.5), (0.55, 0.4), (0.6, 0.6), (0.45, 0.62)):
        drops += jnp.exp(-((x - cx * length) ** 2 + (y - cy * length) ** 2) / (2 * width**2))
    return {"u": 1 - 0.5 * drops, "v": 0.25 * drops}
