"""Structure functions: moments of velocity increments."""

from collections.abc import Sequence
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.diagnostics.measured import Measured
from simulator.models import State
from simulator.spectral import Grid, Local, Transform
from simulator.spectral.grid import AXES
from simulator.spectral.operators import translate


def default_separations(grid: Grid) -> tuple[float, ...]:
    """About six per octave, from the smallest grid spacing to half the shortest side of the box, rounded to multiples
    of the spacing."""
    present = [i for i, n in enumerate(grid.shape) if n > 1] or [0]
    spacing = min(grid.spacing[i] for i in present)
    most = int(min(grid.box[i] for i in present) / 2 / spacing + 1e-9)
    steps = np.unique(np.rint(2 ** np.arange(0, np.log2(max(most, 1)) + 1e-9, 1 / 6)).astype(int))
    return tuple(float(n * spacing) for n in steps)


def structure_functions(
    transform: Transform, separations: Sequence[float], orders: Sequence[int], name: str = "velocity"
) -> Measured:
    """<du^p> for increments du = u(x + r e) - u(x) along each axis e, at any separations r.

    `longitudinal_P` (axis, r) is the moment of the component along e, `transverse_P` the mean of those of the others.
    Fields are shifted in spectral space, so that r need not be a multiple of the grid spacing.
    """
    layout, axes = transform.layout, transform.grid.axes
    dimensions = len(axes)

    def moments(values, points, parameters) -> Local:
        du = values["du"]
        return Local({}, {}, {f"{i}_{p}": du[i] ** p for i in range(dimensions) for p in orders})

    def compute(state: State) -> dict[str, jax.Array]:
        u = state.fields[name]
        moments_by_name: dict[str, list[jax.Array]] = {}
        for e, axis in enumerate(axes):

            def at(r, axis=axis):
                x, y, z = (r if a == axis else 0.0 for a in AXES)
                du = layout.constrain(translate(layout, u, (x, y, z)) - u)
                return transform.evaluate({"du": du}, moments).means

            means = lax.map(at, jnp.asarray(separations, jnp.float64))
            others = [i for i in range(dimensions) if i != e]
            for p in orders:
                moments_by_name.setdefault(f"longitudinal_{p}", []).append(means[f"{e}_{p}"])
                across = reduce(add, (means[f"{i}_{p}"] for i in others)) / len(others)
                moments_by_name.setdefault(f"transverse_{p}", []).append(across)
        return {name: jnp.stack(rows) for name, rows in moments_by_name.items()}

    variables = {f"{kind}_{p}": ("axis", "r") for kind in ("longitudinal", "transverse") for p in orders}
    return Measured({"axis": np.arange(dimensions), "r": np.asarray(separations, float)}, variables, compute)
