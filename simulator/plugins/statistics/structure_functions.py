"""Moments of velocity increments: structure_functions.h5."""

from collections.abc import Sequence
from functools import partial, reduce
from operator import add
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import Field

from simulator import spectral
from simulator.measure.kind import AXES, Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.physics import models
from simulator.plugins.statistics.lengths import spacing_to_half_box
from simulator.settings import Flag, Integer, Positive
from simulator.spectral import operators
from simulator.spectral.collectives import after

Order = Annotated[Integer, Field(ge=2, le=10)]


class StructureFunctionSettings(SeriesCadence):
    separations: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)] | None = None
    """Separations (length); by default about six per octave, from the grid spacing to half the
    box."""
    orders: Annotated[tuple[Order, ...], Field(min_length=1, max_length=9)] = (2, 3, 4)
    """Powers of the increments."""
    mixed: Flag = False
    """Also write third moments: means of the longitudinal increment times squares of the increments
    of the velocity, of scalars (Yaglom's law) and of Elsasser fields."""


class StructureFunctions(Kind):
    """<du^p> for increments du = u(x + r e) - u(x) along each axis e, at any separations r.

    `longitudinal_P` (axis, r) is the moment of the component along e, `transverse_P` the mean of
    the moments of the other components. Fields are shifted in spectral space, so that r need not be
    a multiple of the grid spacing.

    With the names `mixed` of further fields, third moments are added: `mixed_velocity`, <du_e
    |du|^2>; `mixed_NAME`, <du_e dtheta^2>, of each scalar theta (Yaglom 1949); with `magnetic`
    among the fields `mixed_elsasser_plus`, <dz-_e |dz+|^2> with z+- = u +- b, and
    `mixed_elsasser_minus` (Politano and Pouquet 1998, Phys. Rev. E 57, R21)."""

    name = "structure_functions"
    description = "Moments of velocity increments in structure_functions.h5."
    Settings = StructureFunctionSettings

    def measured(self, subject: Subject, settings: StructureFunctionSettings) -> Measured:
        model = subject.model
        transform = subject.transform
        orders = settings.orders
        if not {"velocity", "momentum"} & model.fields.keys():
            raise Unsupported("needs a velocity")
        separations = settings.separations or default_separations(transform.grid)
        mixed = None
        if settings.mixed:
            known = [n for n, lead in model.shapes.items() if not lead or n == "magnetic"]
            mixed = known if "velocity" in model.fields else []
        axes = transform.grid.axes
        magnetic = mixed is not None and "magnetic" in mixed
        products = (
            [] if mixed is None else ["velocity", *(name for name in mixed if name != "magnetic")]
        )
        products += ["elsasser_plus", "elsasser_minus"] if magnetic else []

        def compute(state: models.State) -> dict[str, jax.Array]:
            fields = {
                "velocity": model.variables.velocity(model, state.fields),
                **{name: state.fields[name] for name in mixed or ()},
            }
            rows: dict[str, list[jax.Array]] = {}
            means: dict[str, jax.Array] = {}
            for e, axis in enumerate(axes):
                if means:  # The loops exchange data and therefore run one after another (see `spectral.collectives`).
                    last = next(iter(means.values()))
                    fields = {name: after(f, last) for name, f in fields.items()}
                at = partial(_moments_at, transform, fields, axis, orders, products)
                means = lax.map(at, jnp.asarray(separations, jnp.float64))
                others = [i for i in range(len(axes)) if i != e]
                for p in orders:
                    rows.setdefault(f"longitudinal_{p}", []).append(means[f"{e}_{p}"])
                    if others:
                        across = reduce(add, (means[f"{i}_{p}"] for i in others)) / len(others)
                        rows.setdefault(f"transverse_{p}", []).append(across)
                for name in products:
                    rows.setdefault(f"mixed_{name}", []).append(means[f"{e}_{name}"])
            return {name: jnp.stack(row) for name, row in rows.items()}

        kinds = ("longitudinal", "transverse")[: len(axes)]  # one axis has no direction across
        names = [f"{kind}_{p}" for kind in kinds for p in orders]
        variables = dict.fromkeys([*names, *(f"mixed_{name}" for name in products)], ("axis", "r"))
        return Measured(
            {"axis": np.arange(len(axes)), "r": np.asarray(separations, float)}, variables, compute
        )


def _moments_at(
    transform: spectral.Transform,
    fields: dict[str, jax.Array],
    axis: str,
    orders: Sequence[int],
    products: Sequence[str],
    r: jax.Array,
) -> dict[str, jax.Array]:
    """The `_moments` of the increments of the fields over the separation `r` along an axis."""
    layout = transform.layout
    x, y, z = (r if a == axis else 0.0 for a in AXES)
    moved = {name: operators.translate(layout, f, (x, y, z)) for name, f in fields.items()}
    increments = {name: layout.constrain(moved[name] - f) for name, f in fields.items()}
    return transform.evaluate(
        increments, lambda v, *_: spectral.Local({}, {}, _moments(v, orders, products))
    ).means


def default_separations(grid: spectral.Grid) -> tuple[float, ...]:
    """About six separations per octave, from the smallest grid spacing to half the shortest side of
    the box, rounded to multiples of the spacing."""
    spacing, half = spacing_to_half_box(grid)
    most = int(half / spacing + 1e-9)
    steps = np.unique(np.rint(2 ** np.arange(0, np.log2(max(most, 1)) + 1e-9, 1 / 6)).astype(int))
    return tuple(float(n * spacing) for n in steps)


def _moments(
    values: dict[str, jax.Array], orders: Sequence[int], products: Sequence[str]
) -> dict[str, jax.Array]:
    """At every point the powers P of component I of the velocity increment, `I_P`, and the products
    of component I with the square of an increment, `I_NAME`."""
    du = values["velocity"]
    moments = {f"{i}_{p}": du[i] ** p for i in range(len(du)) for p in orders}
    for name in products:
        if name.startswith("elsasser"):
            b = values["magnetic"] if name == "elsasser_plus" else -values["magnetic"]
            along = du - b
            square = operators.squared(du + b)
        else:
            along = du
            square = operators.squared(du) if name == "velocity" else values[name] ** 2
        moments |= {f"{i}_{name}": along[i] * square for i in range(len(du))}
    return moments
