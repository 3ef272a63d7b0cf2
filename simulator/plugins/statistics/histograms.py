"""Probability densities of fields, their gradients and the logarithm of mass densities, and of
pairs of quantities: histograms.h5 and joint_histograms.h5."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, Field

from simulator import spectral
from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.rows import bin_numbers, binned, in_one_file
from simulator.measure.slices import check_scalar
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.models.split_equation import density_transform
from simulator.plugins.statistics.lengths import rising
from simulator.plugins.statistics.profiles import Densities, densities
from simulator.plugins.statistics.transfer import check_flow
from simulator.settings import Integer, Points, Ratio, Real
from simulator.spectral import operators
from simulator.spectral.arrays import Number, PhysicalScalar, SpectralVector

Decade = Annotated[Real, Field(ge=-50, le=50)]


class HistogramSettings(SeriesCadence):
    bins: Points = 200
    """Number of bins."""
    range: Ratio = 20.0
    """The histograms extend by this many standard deviations to both sides of the mean."""
    decades: Annotated[tuple[Decade, Decade], AfterValidator(rising)] = (-6.0, 6.0)
    """Range of the histograms of a mass density: log10 of the density over its mean."""


class Histograms(Kind):
    sheared = True
    name = "histograms"
    description = "Probability densities of the fields and their gradients, and of log density, in histograms.h5."
    Settings = HistogramSettings

    def measured(self, subject: Subject, settings: HistogramSettings) -> Measured:
        model = subject.model
        transform = subject.transform
        mass = densities(model)
        # If a field has a transform of its own, only the mass densities are measured.
        separate = any(of_field is not model.transform for of_field in model.transforms.values())
        plain = {} if separate or not transform.layout.real else model.shapes
        if not plain and not mass:
            raise Unsupported("needs real fields or a mass density")
        fields = histograms(transform, plain, settings.bins, settings.range)
        if not mass:
            return fields
        logarithms = log_densities(density_transform(model), mass, settings.bins, settings.decades)
        return in_one_file(fields, logarithms) if plain else logarithms


def histograms(
    transform: spectral.Transform,
    components: Mapping[str, tuple[int, ...]],
    bins: int,
    reach: float,
) -> Measured:
    """`NAME` (sigma,): probability density of a quantity as a function of its deviation from the
    mean, in standard deviations. The histogram of a vector counts all components, each about its
    own mean; `NAME_deviation` is the root of the mean of their variances. Values beyond +-reach
    deviations are not counted.

    Quantities: every field of the model; for scalars also the gradient (`NAME_gradient`); for
    vectors also the curl (`vorticity`, `current`); for the velocity also `longitudinal_gradient`
    and `transverse_gradient`."""
    layout = transform.layout
    physical = transform.physical
    count = physical.summed(
        lambda v: (binned(v * bins, bins),), [physical.spec_of(4)], name="histogram"
    )
    quantities = _of_fields(layout, components)

    def compute(state: models.State) -> dict[str, jax.Array]:
        row = {}
        for name, of in quantities.items():
            fluctuations = operators.fluctuation(layout, layout.constrain(of(state.fields)))
            deviation = jnp.sqrt(layout.inner(fluctuations, fluctuations).mean())
            values = transform.inverse(fluctuations) / jnp.where(deviation > 0, deviation, 1)
            scaled = jnp.where(physical.inside(), (values / reach + 1) / 2, jnp.inf)
            (counts,) = count(physical.constrain(scaled))
            row[name] = counts / (len(fluctuations) * transform.grid.points * 2 * reach / bins)
            row[f"{name}_deviation"] = deviation
        return row

    centres = (np.arange(bins) + 0.5) / bins * 2 * reach - reach
    variables = {n: ("sigma",) for n in quantities} | {f"{n}_deviation": () for n in quantities}
    return Measured({"sigma": centres}, variables, compute)


_CURLS = {"velocity": "vorticity", "magnetic": "current"}


def _of_fields(
    layout: spectral.Layout, components: Mapping[str, tuple[int, ...]]
) -> dict[str, Callable[[models.Fields], jax.Array]]:
    """The functions from the fields to the modes (component, ...) of each quantity."""
    quantities: dict[str, Callable[[models.Fields], jax.Array]] = {}

    def vector(field: jax.Array) -> jax.Array:
        return field.reshape(-1, *field.shape[-3:])

    def derivatives(fields: models.Fields, pairs: list[tuple[int, int]]) -> jax.Array:
        u = fields["velocity"]
        k = operators.wavenumbers(layout, u.real.dtype)
        return jnp.stack([1j * k[j] * u[i] for i, j in pairs])

    for field, lead in components.items():
        quantities[field] = lambda f, n=field: vector(f[n])
        if not lead:
            quantities[f"{field}_gradient"] = lambda f, n=field: operators.gradient(layout, f[n])
        if field in _CURLS and layout.grid.dimensions > 1:
            quantities[_CURLS[field]] = lambda f, n=field: vector(operators.curl(layout, f[n]))
    if "velocity" in components:
        axes = range(len(layout.grid.axes))
        quantities["longitudinal_gradient"] = partial(derivatives, pairs=[(i, i) for i in axes])
        if across := [(i, j) for i in axes for j in axes if i != j]:
            quantities["transverse_gradient"] = partial(derivatives, pairs=across)
    return quantities


def log_densities(
    transform: spectral.Transform,
    densities_by_name: Densities,
    bins: int,
    reach: tuple[float, float],
) -> Measured:
    """`log_NAME` (contrast,): fraction of the volume per decade of density, as a function of log10
    of the density over its mean; `log_NAME_mass`: fraction of the mass. Points are not counted
    where the density is not positive or log10 lies outside of `reach`."""
    grid = transform.grid
    physical = transform.physical
    low = reach[0]
    width = (reach[1] - reach[0]) / bins

    def compute(state: models.State) -> dict[str, jax.Array]:
        shares_by_name = {}
        for name, density in densities_by_name.items():
            values = density(state).astype(jnp.float64)
            mean = physical.mean(values)
            usable = physical.inside() & (values > 0)
            contrast = jnp.log10(jnp.where(usable, values, 1) / mean)
            numbers = bin_numbers((contrast - low) / width, bins, usable)
            sums = physical.binned(numbers, jnp.stack([jnp.ones_like(values), values / mean]), bins)
            shares = sums / (grid.points * width)
            shares_by_name |= {f"log_{name}": shares[0], f"log_{name}_mass": shares[1]}
        return shares_by_name

    centres = low + (np.arange(bins) + 0.5) * width
    names = [f"log_{name}{of}" for name in densities_by_name for of in ("", "_mass")]
    return Measured({"contrast": centres}, dict.fromkeys(names, ("contrast",)), compute)


class JointHistogramSettings(SeriesCadence):
    pairs: Annotated[tuple[tuple[str, str], ...], Field(min_length=1, max_length=20)] = (
        ("R", "Q"),
    )
    """Pairs of quantities: scalar fields, or Q and R, the invariants of the velocity gradient."""
    bins: Annotated[Integer, Field(ge=2, le=1000)] = 100
    """Number of bins along each axis."""
    range: Ratio = 10.0
    """The histograms extend by this many units to both sides; a scalar field's unit is its standard
    deviation."""


class JointHistograms(Kind):
    """`A_B` (first, second): probability density of the quantities A and B of each pair. Quantities
    are scalar fields, in standard deviations from their means, and `Q` and `R`, in units of
    <omega^2> / 4 and its power 3/2. Values beyond +-reach units are not counted.

    `B_given_A` (first) and `A_given_B` (second): the mean of one quantity over the points where the
    other is in a bin, nan for bins without points. These means, and the mean `A_mean` and the unit
    `A_scale` of every quantity, are in the run's units."""

    sheared = True
    name = "joint_histograms"
    description = (
        "Joint probability densities and conditional means of pairs of quantities, such as Q and R, in "
        "joint_histograms.h5."
    )
    Settings = JointHistogramSettings

    def measured(self, subject: Subject, settings: JointHistogramSettings) -> Measured:
        _check_pairs(subject, settings.pairs)
        model = subject.model
        transform = subject.model.transform
        physical = subject.model.transform.physical
        pairs = settings.pairs
        bins = settings.bins
        reach = settings.range
        names = tuple(dict.fromkeys(name for pair in pairs for name in pair))
        area = (2 * reach / bins) ** 2

        def bin_of(quantity: _Quantity) -> jax.Array:
            units = (quantity.values - quantity.centre) / jnp.where(
                quantity.scale > 0, quantity.scale, 1
            )
            return bin_numbers((units / reach + 1) / 2 * bins, bins, physical.inside())

        def compute(state: models.State) -> dict[str, jax.Array]:
            quantities = _quantities(model, names, state.fields)
            bin_of_name = {name: bin_of(quantity) for name, quantity in quantities.items()}
            one = jnp.ones(physical.shape, jnp.float64)
            row = {}
            for first, second in pairs:
                a, b = bin_of_name[first], bin_of_name[second]
                cell = jnp.where(b < bins, a * bins + b, bins * bins)
                counts = physical.binned(cell, one[None], bins * bins).reshape(bins, bins)
                row[f"{first}_{second}"] = counts / (transform.grid.points * area)
                for name, given in ((second, first), (first, second)):
                    values = quantities[name].values.astype(jnp.float64)
                    summands = jnp.stack([one, values])
                    points, sums = physical.binned(bin_of_name[given], summands, bins)
                    row[f"{name}_given_{given}"] = jnp.where(
                        points > 0, sums / jnp.maximum(points, 1), jnp.nan
                    )
            for name in names:
                row[f"{name}_mean"] = physical.mean(quantities[name].values)
                row[f"{name}_scale"] = quantities[name].scale
            return row

        centres = (np.arange(bins) + 0.5) / bins * 2 * reach - reach
        coordinates = {"first": centres, "second": centres}
        attributes = {"pairs": [f"{a} {b}" for a, b in pairs]}
        return Measured(coordinates, _joint_variables(pairs, names), compute, attributes)


def _check_pairs(subject: Subject, pairs: Sequence[tuple[str, str]]) -> None:
    """Refuses a repeated pair, and quantities that the model does not have."""
    for number, pair in enumerate(pairs):
        if pair in pairs[:number] or pair[0] == pair[1]:
            raise Unsupported(
                f"{pair[0]}, {pair[1]} repeats a name or a pair", key=f"pairs.{number}"
            )
        for name in pair:
            if name not in INVARIANTS:
                check_scalar(name, subject, key=f"pairs.{number}")
                continue
            check_flow(subject)
            if subject.transform.grid.dimensions < 3:
                raise Unsupported(
                    "Q and R are invariants of gradients in three dimensions; name scalar fields",
                    "pairs",
                )


def _joint_variables(
    pairs: Sequence[tuple[str, str]], names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The variables of the series, with their dimensions."""
    variables: dict[str, tuple[str, ...]] = {f"{a}_{b}": ("first", "second") for a, b in pairs}
    variables |= {f"{b}_given_{a}": ("first",) for a, b in pairs}
    variables |= {f"{a}_given_{b}": ("second",) for a, b in pairs}
    return variables | {f"{name}_{kind}": () for name in names for kind in ("mean", "scale")}


INVARIANTS = ("Q", "R")


class _Quantity(NamedTuple):
    """Values of a quantity; a histogram counts (values - centre) / scale."""

    values: PhysicalScalar
    centre: Number
    scale: Number


def invariants(
    transform: spectral.Transform, velocity: SpectralVector
) -> dict[str, PhysicalScalar]:
    """Values on the grid of Q = -A_ij A_ji / 2 and R = -det A with A_ij = du_i/dx_j of a velocity
    without divergence (Chong, Perry and Cantwell 1990, Phys. Fluids A 2, 765)."""
    k = transform.layout.wavenumbers(velocity.real.dtype)
    a = [
        transform.inverse(jnp.stack([1j * k[j] * velocity[i] for j in range(3)])) for i in range(3)
    ]
    q = -0.5 * sum(a[i][j] * a[j][i] for i in range(3) for j in range(3))
    cofactors = [
        a[1][(j + 1) % 3] * a[2][(j + 2) % 3] - a[1][(j + 2) % 3] * a[2][(j + 1) % 3]
        for j in range(3)
    ]
    return {
        "Q": jnp.asarray(q),
        "R": -(a[0][0] * cofactors[0] + a[0][1] * cofactors[1] + a[0][2] * cofactors[2]),
    }


def _quantities(
    model: models.Equation, names: Sequence[str], fields: models.Fields
) -> dict[str, _Quantity]:
    """Number fields with their means and standard deviations, Q and R with their units."""
    transform = model.transform
    physical = model.transform.physical
    quantities = {}
    if set(names) & set(INVARIANTS):
        u = fields["velocity"]
        omega = operators.curl(transform.layout, u)
        enstrophy = transform.layout.inner(omega, omega).sum() / 4
        for name, values in invariants(transform, u).items():
            scale = enstrophy if name == "Q" else enstrophy**1.5
            quantities[name] = _Quantity(values, jnp.zeros_like(scale), scale)
    for name in names:
        if name not in quantities:
            values = outputs.grid_values(model, name, fields)
            mean = physical.mean(values)
            quantities[name] = _Quantity(
                values, mean, jnp.sqrt(physical.mean((values - mean) ** 2))
            )
    return quantities
