"""An active nematic in a plane: the order Q = [[a, b], [b, -a]] of rods that align, and the flow u
that their stress drives against viscosity and friction, without inertia:

Q_t + u . grad Q = w [[-b, a], [a, b]] + flow_alignment E + gamma (1 - 4 (a^2 + b^2)) Q + K lap Q,
0 = -grad p + eta lap u - friction u - activity div Q,

w = d_x v - d_y u, E the symmetric part of grad u. activity > 0 pushes outward along the rods.
Doostmohammadi, Ignes-Mullol, Yeomans & Sagues, Nat. Commun. 9, 3246 (2018); without the elastic
stress, which is small beside the active one."""

import jax.numpy as jnp

from simulator.equations import Equation, Field, NonNegative, Positive


class ActiveNematic(Equation):
    dimensions = 2
    evolved = (Field("order", vector=2),)  # a and b
    activity: float = 1.0
    viscosity: Positive = 1.0
    friction: NonNegative = 0.0
    flow_alignment: float = 0.7
    gamma: Positive = 1.0
    elasticity: Positive = 0.01

    def velocity(self, fields):
        a, b = fields["order"]
        stress = jnp.stack([jnp.stack([a, b]), jnp.stack([b, -a])])
        drag = self.viscosity * self.k_squared + self.friction
        flow = -self.activity * self.project(self.divergence(stress))
        return jnp.where(drag > 0, flow / jnp.where(drag > 0, drag, 1), 0)

    def linear(self):
        return {"order": self.gamma - self.elasticity * self.k_squared}

    def inputs(self, fields):
        u = self.velocity(fields)
        return {**fields, "velocity": u, "slopes": self.gradient(u)}

    def products(self, values):
        (a, b), (u, v) = values["order"], values["velocity"]
        (u_x, v_x), (u_y, v_y) = values["slopes"]
        turned = (v_x - u_y) * jnp.stack([-b, a])
        aligned = self.flow_alignment / 2 * jnp.stack([u_x - v_y, v_x + u_y])
        order = values["order"]
        local = turned + aligned - 4 * self.gamma * (a * a + b * b) * order
        return {"local": local, "flux": jnp.stack([u * order, v * order])}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        return {"order": products["local"] - self.divergence(products["flux"])}

    def quantities(self, fields):
        q, u = fields["order"], self.velocity(fields)
        return {"mean_square_order": self.mean_of(q, q), "mean_square_velocity": self.mean_of(u, u)}
