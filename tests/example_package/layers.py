"""A start of a package that is installed beside the program."""

from typing import Literal

import jax.numpy as jnp

from simulator.physics.initial import Initial
from simulator.physics.initial.initial import from_values
from simulator.settings import Positive, Settings


class LayersSettings(Settings):
    kind: Literal["layers"] = "layers"
    speed: Positive = 1.0
    """Largest velocity."""


class Layers(Initial):
    """u_x = U sin(y)."""

    Settings = LayersSettings

    def build(self, model, files):
        def values(x, y, z):
            u = self.settings.speed * jnp.sin(y) + 0 * (x + z)
            return {"velocity": jnp.stack([u, 0 * u, 0 * u])}

        return from_values(model.transform, values)
