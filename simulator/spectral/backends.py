"""Chooses and builds the transform for a grid and a list of devices."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from simulator.errors import UserError
from simulator.spectral.grid import Grid
from simulator.spectral.staged import StagedTransform
from simulator.spectral.stages import Z_THEN_XY, Plan
from simulator.spectral.transform import Transform


def slab_limit(grid: Grid) -> int:
    """The largest number of devices on which every device of a slab has planes in y and in kz."""
    return max(1, min(grid.shape[1], grid.kept[2] + 1))


def make_mesh(plan: Plan, devices: Sequence[Any], shape: tuple[int, ...]) -> Mesh:
    return Mesh(
        np.asarray(devices, dtype=object).reshape(shape),
        plan.mesh_axes,
        axis_types=(AxisType.Auto,) * len(shape),
    )


def make_transform(
    grid: Grid,
    devices: Sequence[jax.Device],
    dtype: Any = np.float64,
    *,
    backend: str = "custom_partitioning",
    decomposition: str = "auto",
    block: int | None = None,
    real: bool = True,
    every: bool = False,
) -> Transform:
    """The transform of `grid` over `devices`.

    `real`: of real fields, else of complex ones. `every`: all modes, else those that dealiasing keeps.

    Raises UserError where grid, devices, backend and decomposition cannot work together.
    """
    count, limit = len(devices), slab_limit(grid)
    if count > limit:
        raise UserError(
            f"devices.count: {count} devices are more than the slabs of a {grid.shape} grid can use: "
            f"it has {grid.shape[1]} planes in y and {grid.kept[2] + 1} in kz; 1 to {limit} work"
        )
    plan = Z_THEN_XY
    return StagedTransform(
        grid, make_mesh(plan, devices, (count,)), plan, dtype, real=real, every=every, block=block
    )
