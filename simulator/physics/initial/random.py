"""Isotropic random fields with a spectrum given by name or as a table: a solenoidal velocity, noise
in any field."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles
from simulator.physics.initial.tables import read_table
from simulator.physics.models import Equation
from simulator.physics.models.damping import absent
from simulator.physics.models.fields import along_axes
from simulator.settings import (
    AxisVector,
    InputPath,
    NonNegative,
    Positive,
    Real,
    Seed,
    Settings,
    wrong,
)
from simulator.spectral import Layout, Transform
from simulator.spectral.arrays import SpectralField, SpectralVector, holds, namespace, root
from simulator.spectral.operators import curl, project, squared
from simulator.spectral.random import gaussian, seed_of_field

Shape = Callable[[jax.Array], jax.Array]
"""The function from |k| > 0 (1/length) to E(k), up to a factor."""


Helicity = Annotated[Real, Field(ge=-1, le=1)]
"""Helicity relative to its largest possible value."""


class SpectrumSettings(Settings):
    spectrum: Literal["k4_exp", "pao", "power_law", "table"] = "k4_exp"
    """k4_exp: k^4 exp(-2 (k / peak)^2). power_law: k^4 up to the peak, k^slope beyond. pao: k^4
    with a transition to k^(-5/3) at the peak, times exp(-2.25 (k kolmogorov_scale)^(4/3)). table:
    from a file."""
    peak: Positive = 3.0
    """Wavenumber (1/length) near which the spectrum has its maximum."""
    slope: Real = -5 / 3
    """Slope of power_law beyond the peak."""
    kolmogorov_scale: NonNegative = 0.0
    """Length that sets the cut-off of pao; 0 for none."""
    table: InputPath | None = None
    """Text file with two columns, k and E(k): interpolated in logarithms, zero outside. Without
    `energy` or `variance` each shell has the table's E(k)."""
    normalise: Literal["per_shell", "total"] = "per_shell"
    """per_shell: each shell in the first row of spectra.h5 holds E at its k to round-off, for any
    random numbers; in shells that truncation cuts, the remaining modes hold it. total: Gaussian
    modes of variance E(k) / k^2, in two dimensions E(k) / k, of which only the sum is normalised:
    E(k) is that of a large box on average."""
    seed: Seed = 0
    """Seed of the random numbers."""

    @model_validator(mode="before")
    @classmethod
    def _usual_size(cls, data: Any) -> Any:
        """`energy` or `variance` as usual, for a shape that has none of its own."""
        size = next((key for key in ("energy", "variance") if key in cls.model_fields), None)
        if size is None or not isinstance(data, Mapping) or data.get("spectrum") == "table":
            return data
        usual = {"energy": 0.5, "variance": 1.0}[size]
        return {**data, size: usual} if data.get(size) is None else data

    @model_validator(mode="after")
    def _a_table_where_one_is_used(self) -> Self:
        if (self.spectrum == "table") != (self.table is not None):
            raise wrong("table", "goes with spectrum: table, and that needs one")
        return self


class MagneticSettings(SpectrumSettings):
    energy: Positive | None = None
    """Magnetic energy, the box mean of |b|^2 / 2, without that of the mean field; by default 0.5,
    or that of the table on the grid's shells."""
    helicity: Helicity = 0.0
    """Helicity of all modes relative to its largest possible value: with 1 every mode is
    right-handed."""
    mean_field: AxisVector = (0.0, 0.0, 0.0)
    """Uniform field that is added, one number for each axis of the grid."""


class ScalarSettings(SpectrumSettings):
    variance: Positive | None = None
    """Box mean of theta^2; by default 1, or that of the table on the grid's shells."""


class WithRandomFields(Settings):
    """Settings of an initial velocity that can be combined with other random fields."""

    magnetic: MagneticSettings | None = None
    """A random magnetic field."""
    scalars: dict[str, ScalarSettings] = Field(default_factory=dict)
    """Random scalars by name, including `buoyancy`."""

    @property
    def requested(self) -> dict[str, SpectrumSettings]:
        """The random fields by name."""
        scalars: dict[str, SpectrumSettings] = {**self.scalars}
        return scalars if self.magnetic is None else {**scalars, "magnetic": self.magnetic}


def shape_of(settings: SpectrumSettings, files: StartFiles) -> Shape:
    """The spectrum that the settings name."""
    k0 = settings.peak
    slope = settings.slope
    match settings.spectrum:
        case "k4_exp":
            return lambda k: (k / k0) ** 4 * jnp.exp(-2 * (k / k0) ** 2)
        case "power_law":
            return lambda k: jnp.where(k <= k0, (k / k0) ** 4, (k / k0) ** slope)
        case "pao":
            eta = settings.kolmogorov_scale

            # Pope, Turbulent Flows (2000), eq. 6.247, with k^4 at small k; the cut-off is Pao's,
            # with C = 1.5.
            def pao(k: jax.Array) -> jax.Array:
                cutoff = jnp.exp(-2.25 * (k * eta) ** (4 / 3))
                return (k / k0) ** 4 * (1 + (k / k0) ** 2) ** (-17 / 6) * cutoff

            return pao
        case "table":
            assert settings.table is not None
            return tabulated(files, settings.table, "E(k)")


def tabulated(files: StartFiles, table: InputPath, name: str) -> Shape:
    """The spectrum in a text file with two columns, k and `name`."""
    rows = read_table(files, "table", table, name)
    return interpolated(rows.k, rows.values)


def interpolated(k: Float[np.ndarray, "row"], values: Float[np.ndarray, "row"]) -> Shape:
    """The spectrum that is a power law between neighbouring rows of a table, and zero beyond its
    first and last k."""
    log_k = np.log(k)
    log_values = namespace(values).log(values)

    def shape(k: jax.Array) -> jax.Array:
        xp = namespace(k, values)
        return xp.exp(xp.interp(xp.log(k), log_k, log_values, left=-np.inf, right=-np.inf))

    return shape


def _draw(
    layout: Layout, shape: Shape, seed: int, components: int, normalise: str
) -> SpectralField:
    """Gaussian coefficients with zero mean: <|f(k)|^2> is 1, or for `total` E(k) over the area
    k^2, in two dimensions the length k, of a shell."""
    k = root(layout.k_squared())
    waves = jnp.where(k > 0, k, 1)
    area = waves ** (len(layout.grid.axes) - 1)
    density = shape(waves) / area if normalise == "total" else jnp.ones_like(k)
    return root(jnp.where(k > 0, density, 0)) * gaussian(layout, seed, components)


def _scale(
    layout: Layout,
    field: SpectralField,
    shape: Shape,
    size: float | None,
    normalise: str,
    squares: float = 1.0,
) -> SpectralField:
    """`field` scaled such that the sum of |f|^2 over all modes is `squares` times `size`, or, if
    that is None, times the sum of E dk over the shells: by one factor, or by one
    factor for each shell with modes, so that the shells' sums are in the ratio of E at n dk. For
    the shell about k = 0 (which holds modes besides the mean only in long boxes) E is taken at the
    mean wavenumber of its modes."""
    square = squared(field)
    energies = layout.shell_sum(square)
    k = jnp.asarray(layout.shell_wavenumbers()).at[0].set(layout.shell_modes()[1][0])
    wanted = jnp.where(energies > 0, shape(jnp.where(energies > 0, k, 1)), 0)
    total = squares * (wanted.sum() * layout.shell_width if size is None else size)
    if normalise == "total":
        return field * jnp.sqrt(total / layout.sum(square))
    factors = total * wanted / wanted.sum() / jnp.where(energies > 0, energies, 1)
    return field * root(factors)[layout.shell_numbers()]


def solenoidal(
    layout: Layout, s: "MagneticSettings | RandomSettings", shape: Shape, seed: int
) -> SpectralVector:
    """Solenoidal vector field with the box mean `energy` of |v|^2 / 2, and on average the relative
    `helicity`."""
    v = project(layout, _draw(layout, shape, seed, len(layout.grid.axes), s.normalise))
    if not absent(s.helicity):
        scaled_curl = curl(layout, v) * root(layout.inverse_k_squared())
        v = helical(v, scaled_curl, s.helicity)
    return _scale(layout, v, shape, s.energy, s.normalise, squares=2)


def helical(v: jax.Array, scaled_curl: jax.Array, helicity: float) -> jax.Array:
    """sqrt(1 + h) P+ v + sqrt(1 - h) P- v of modes of a solenoidal field, with P+- = (1 +- i k x / k)
    / 2 and the curl i k x v / k: Waleffe, Phys. Fluids A 4, 350 (1992)."""
    plus = (1 + helicity) ** 0.5
    minus = (1 - helicity) ** 0.5
    return ((plus + minus) * v + (plus - minus) * scaled_curl) / 2


def check_helicity(transform: Transform, helicity: float, key: str) -> None:
    """Refuses helicity in a plane, where there is none."""
    if transform.grid.dimensions < 3 and not absent(helicity):
        raise UserError(f"{key}: is zero in {transform.grid.in_words}; leave it out")


def noise(
    layout: Layout,
    s: "ScalarSettings | NoiseSettings",
    shape: Shape,
    seed: int,
    lead: tuple[int, ...] = (),
) -> SpectralField:
    """A field of independent components, axes `lead`; the box mean of the sum of their squares is
    `variance`."""
    field = _draw(layout, shape, seed, math.prod(lead), s.normalise)
    return _scale(layout, field, shape, s.variance, s.normalise).reshape(*lead, *layout.shape)


def _field(
    transform: Transform,
    draw: Callable[..., SpectralField],
    *arguments: Any,
    mean: float | tuple[float, ...] | None = None,
) -> SpectralField:
    """The field `draw(layout, *arguments)`, compiled, with a uniform part `mean`, if it is given, in
    place of its own."""
    layout = transform.layout

    @jax.jit
    def make() -> SpectralField:
        field = draw(layout, *arguments)
        if mean is not None:
            uniform = jnp.asarray(mean).reshape(-1, 1, 1, 1) if isinstance(mean, tuple) else mean
            field = jnp.where(layout.k_squared() == 0, jnp.where(layout.mask, uniform, 0), field)
        return layout.constrain(field.astype(transform.complex_dtype))

    return make()


def add_random_fields(
    model: Equation,
    requested: Mapping[str, SpectrumSettings],
    files: StartFiles,
    fields: Fields,
    seed: int = 0,
) -> Fields:
    """`fields` and the random fields that are `requested` by name. `seed` is added to the seeds of
    the random fields, so that they differ from that of a random velocity. Raises UserError for a
    field that the model lacks, and for a spectrum that is zero on the grid."""
    transform = model.transform
    wanted = model.initial_shapes
    result = dict(fields)
    for number, (name, s) in enumerate(sorted(requested.items()), 1):
        if name not in wanted:
            known = f"its fields are {', '.join(wanted)}"
            raise UserError(f"{name} is not a field of this model; {known}")
        spectrum = s, shape_of(s, files), seed_of_field(s.seed + seed, number)
        if isinstance(s, MagneticSettings):
            check_helicity(transform, s.helicity, "magnetic.helicity")
            mean = along_axes(transform.grid, "magnetic.mean_field", s.mean_field)
            result[name] = _field(transform, solenoidal, *spectrum, mean=mean)
        elif isinstance(s, NoiseSettings):
            result[name] = _field(transform, noise, *spectrum, wanted[name], mean=s.mean)
        else:
            result[name] = _field(transform, noise, *spectrum)
    for name, field in result.items():
        if not holds(transform.layout.once(lambda f: jnp.isfinite(f).all(), field)):
            raise UserError(f"the spectrum of {name} is zero on all of this grid's modes")
    return result


class NoiseSettings(SpectrumSettings):
    variance: Positive | None = None
    """Box mean of the square of the noise, summed over components; by default 1, or that of the
    table on the grid's shells."""
    mean: Real = 0.0
    """Uniform value of every component to which the noise is added."""


class RandomSettings(SpectrumSettings, WithRandomFields):
    kind: Literal["random"] = "random"
    energy: Positive | None = None
    """Kinetic energy, the box mean of |u|^2 / 2; by default 0.5, or that of the table on the grid's
    shells."""
    helicity: Helicity = 0.0
    """Helicity of all modes relative to its largest possible value: with 1 every mode is
    right-handed."""
    fields: dict[str, NoiseSettings] = Field(default_factory=dict)
    """Noise in fields of any model by name, such as those of a user's own equation; then no
    velocity is made."""


class Random(Initial):
    """Random velocity with a given energy and spectrum E(k); magnetic field and scalars likewise.

    Every mode is keyed by its wavenumber: one seed gives one field on any number of devices, and a
    finer grid has the same large scales (shells that truncation leaves whole on both grids), up to
    a common factor."""

    Settings = RandomSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        s = self.settings
        transform = model.transform
        wanted = model.initial_shapes
        if s.fields:
            return add_random_fields(model, s.fields, files, {}, s.seed)
        dimensions = transform.grid.dimensions
        if dimensions == 1 or wanted.get("velocity") != (dimensions,):
            number = ("two or three", "two", "three")[dimensions - 1]
            example = (
                f"initial: {{kind: random, fields: {{{next(iter(wanted))}: {{variance: 0.01}}}}}}"
            )
            lacks = (
                f"random makes a velocity with {number} components, which this model does not have"
            )
            raise UserError(f"{lacks}; name the fields that are noisy, e.g. {example}")
        shape = shape_of(s, files)
        check_helicity(transform, s.helicity, "helicity")
        velocity = _field(transform, solenoidal, s, shape, s.seed)
        return add_random_fields(model, s.requested, files, {"velocity": velocity}, s.seed)
