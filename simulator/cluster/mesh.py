"""The device mesh, made alike on every version of JAX."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh


def make_mesh(devices: Sequence[jax.Device], shape: Sequence[int], names: Sequence[str]) -> Mesh:
    """A mesh of `devices` in the given order, with Auto axes.

    Auto because `custom_partitioning` and jaxdecomp need it, and `jax.make_mesh` gives Explicit axes on
    some versions. Raises ValueError when the shape does not hold exactly these devices.
    """
    return Mesh(np.asarray(devices).reshape(shape), tuple(names), axis_types=(AxisType.Auto,) * len(names))
