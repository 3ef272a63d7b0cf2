"""Probability densities of fields, their gradients and the logarithm of mass densities: histograms.h5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported, check_rises
from simulator.measure.lazy import (
    Program,
    curl,
    fluctuation,
    gradient,
    jax,
    jnp,
    lax,
    models,
    spectral,
    wavenumbers,
)
from simulator.measure.profiles import Densities, densities, shell_sums
from simulator.settings import Points, Ratio, Real

Decade = Annotated[Real, Field(ge=-50, le=50)]


class HistogramSettings(SeriesCadence):
    bins: Points = 200
    """Number of bins."""
    range: Ratio = 20.0
    """The histograms extend by this many standard deviations to both sides of the mean."""
    decades: tuple[Decade, Decade] = (-6.0, 6.0)
    """Logarithmic range of the histograms of a mass density: powers of ten of its mean."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        check_rises("decades", self.decades)
        return self


class Histograms(Kind):
    name = "histograms"
    description = (
        "Probability densities of the fields and their gradients, and of log density, in histograms.h5."
    )
    Settings = HistogramSettings

    def measured(self, subject: Subject, settings: HistogramSettings) -> Measured:
        model, transform = subject.model, subject.transform
        mass = densities(model)
        # Fields with their own transforms are measured by their densities only.
        separate = any(spec.transform is not None for spec in model.fields.values())
        plain = {} if separate or not transform.layout.real else model.shapes
        if not plain and not mass:
            raise Unsupported("needs real fields or a mass density")
        parts = []
        if plain:
            parts.append(histograms(transform, plain, settings.bins, settings.range))
        if mass:
            logarithms = log_densities(model.density_transform, mass, settings.bins, settings.decades)
            parts.append(logarithms)
        return parts[0].joined(parts[1]) if len(parts) == 2 else parts[0]


class _BinCounter:
    """Counts values (component, x, y, z) in bins, on each device."""

    def __init__(self, transform: spectral.Transform, bins: int, reach: float):
        self._transform, self._bins, self._reach = transform, bins, reach

    @cached_property
    def _program(self) -> Program:
        physical, bins = self._transform.physical, self._bins
        axes = tuple(dict.fromkeys(physical.sharded.values()))

        def local(scaled):
            place = jnp.floor(scaled * bins).ravel()
            index = jnp.where((place >= 0) & (place < bins), place, bins).astype(jnp.int32)
            counts = jnp.zeros(bins + 1, jnp.float64).at[index].add(1.0)[:bins]
            return (lax.psum(counts, axes) if physical.devices > 1 else counts,)

        return Program(
            local, physical.mesh, [physical.spec_of(4)], [jax.sharding.PartitionSpec()], name="histogram"
        )

    def density(self, modes: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The probability density of all components of `modes` (component, *order) together, each about its own mean,
        in units of their common standard deviation; and this deviation."""
        layout, physical = self._transform.layout, self._transform.physical
        fluctuations = fluctuation(layout, modes)
        deviation = jnp.sqrt(layout.inner(fluctuations, fluctuations).mean())
        values = self._transform.inverse(fluctuations) / jnp.where(deviation > 0, deviation, 1)
        scaled = (values / self._reach + 1) / 2
        (counts,) = self._program(physical.constrain(jnp.where(physical.inside(), scaled, jnp.inf)))
        width = 2 * self._reach / self._bins
        return counts / (modes.shape[0] * self._transform.grid.points * width), deviation


def histograms(
    transform: spectral.Transform, components: Mapping[str, tuple[int, ...]], bins: int, reach: float
) -> Measured:
    """`NAME` (sigma,): probability density of a quantity as a function of its deviation from the mean, in standard
    deviations. The components of a vector are taken together, each about its own mean; `NAME_deviation` is the root
    of their mean variance. Values beyond +-reach deviations are not counted.

    Quantities: every field of the model; for scalars also the gradient (`NAME_gradient`); for vectors also the curl
    (`vorticity`, `current`); for the velocity also `longitudinal_gradient` and `transverse_gradient`.
    """
    layout, counter = transform.layout, _BinCounter(transform, bins, reach)
    quantities: dict[str, Callable[[models.Fields], jax.Array]] = {}

    def derivatives(field: str, pairs: list[tuple[int, int]]) -> Callable[[models.Fields], jax.Array]:
        def modes(fields: models.Fields) -> jax.Array:
            k = wavenumbers(layout, fields[field].real.dtype)
            return jnp.stack([1j * k[j] * fields[field][i] for i, j in pairs])

        return modes

    for field, lead in components.items():
        quantities[field] = (lambda f, n=field: f[n]) if lead else (lambda f, n=field: f[n][None])
        if not lead:
            quantities[f"{field}_gradient"] = lambda f, n=field: gradient(layout, f[n])
        if field in _CURLS:
            quantities[_CURLS[field]] = lambda f, n=field: _components(curl(layout, f[n]))
    if "velocity" in components:
        axes = range(len(transform.grid.axes))
        quantities["longitudinal_gradient"] = derivatives("velocity", [(i, i) for i in axes])
        others = [(i, j) for i in axes for j in axes if i != j]
        quantities["transverse_gradient"] = derivatives("velocity", others)

    def compute(state: models.State) -> dict[str, jax.Array]:
        row = {}
        for name, modes in quantities.items():
            row[name], row[f"{name}_deviation"] = counter.density(layout.constrain(modes(state.fields)))
        return row

    centres = (np.arange(bins) + 0.5) / bins * 2 * reach - reach
    variables = {n: ("sigma",) for n in quantities} | {f"{n}_deviation": () for n in quantities}
    return Measured({"sigma": centres}, variables, compute)


_CURLS = {"velocity": "vorticity", "magnetic": "current"}


def _components(field: jax.Array) -> jax.Array:
    """A scalar (*order) as (1, *order)."""
    return field.reshape(-1, *field.shape[-3:])


def log_densities(
    transform: spectral.Transform, given: Densities, bins: int, reach: tuple[float, float]
) -> Measured:
    """`log_NAME` (contrast,): fraction of the volume per decade of density, as a function of log10 of the density
    over its mean; `log_NAME_mass`: fraction of the mass. Densities outside of `reach`, or not positive, are not
    counted."""
    grid, physical = transform.grid, transform.physical
    low, high = reach
    width = (high - low) / bins

    def compute(state: models.State) -> dict[str, jax.Array]:
        shares_by_name = {}
        for name, density in given.items():
            values = density(state).astype(jnp.float64)
            mean = physical.mean(values)
            usable = physical.inside() & (values > 0)
            contrast = jnp.log10(jnp.where(usable, values, 1) / mean)
            place = jnp.floor((contrast - low) / width)
            index = jnp.where(usable & (place >= 0) & (place < bins), place, bins).astype(jnp.int32)
            stack = jnp.stack([jnp.ones_like(values), values / mean])
            (sums,) = shell_sums(physical, bins)(physical.constrain(index), physical.constrain(stack))
            shares = sums / (grid.points * width)
            shares_by_name |= {f"log_{name}": shares[0], f"log_{name}_mass": shares[1]}
        return shares_by_name

    centres = low + (np.arange(bins) + 0.5) * width
    names = [f"log_{name}{of}" for name in given for of in ("", "_mass")]
    return Measured({"contrast": centres}, dict.fromkeys(names, ("contrast",)), compute)
