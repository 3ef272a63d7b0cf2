"""Makes the mesh of devices in the same way on every version of JAX."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from jax.sharding import AxisType, Mesh

MEMBERS = "members"  # The mesh axis of the members of an ensemble; all other axes divide space.


class Device(Protocol):
    """The attributes of `jax.Device` that this program uses; JAX's own type is opaque to type
    checkers."""

    id: int
    process_index: int
    platform: str
    device_kind: str


def make_mesh(devices: Sequence[Device], shape: Sequence[int], names: Sequence[str]) -> Mesh:
    """A mesh of `devices` in the given order, with Auto axes.

    `custom_partitioning` and jaxdecomp need Auto axes, but `jax.make_mesh` gives Explicit axes on
    some versions. Raises ValueError if the product of `shape` is not the number of devices."""
    return Mesh(
        np.asarray(devices).reshape(shape), tuple(names), axis_types=(AxisType.Auto,) * len(names)
    )


def spatial(mesh: Mesh) -> Mapping[str, int]:
    """The mesh axes that divide space, with their extents."""
    return {name: extent for name, extent in mesh.shape.items() if name != MEMBERS}
