"""Random fields with a spectrum given by name or as a table."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from simulator.errors import UserError
from simulator.initial.initial import Fields, Files
from simulator.settings import InputPath, Integer, NonNegative, Positive, Real, Settings, wrong
from simulator.spectral import Layout, Transform
from simulator.spectral.operators import curl, project
from simulator.spectral.random import gaussian

Seed = Annotated[Integer, Field(ge=0, lt=2**32)]
Shape = Callable[[jax.Array], jax.Array]
"""E(k), up to a factor, as a function of |k| > 0."""


class SpectrumSettings(Settings):
    spectrum: Literal["k4_exp", "pao", "power_law", "table"] = "k4_exp"
    """k4_exp: k^4 exp(-2 (k / peak)^2). power_law: k^4 up to the peak, k^slope beyond. pao: k^4 turning into
    k^(-5/3) at the peak, and exp(-2.25 (k kolmogorov_scale)^(4/3)). table: a file."""
    peak: Positive = 3.0
    """Wavenumber (1/length) about which the spectrum is largest."""
    slope: Real = -5 / 3
    """Of power_law."""
    kolmogorov_scale: NonNegative = 0.0
    """A length: the cut-off of pao; 0 for none."""
    table: InputPath | None = None
    """Text file with two columns, k and E(k): interpolated in logarithms, zero outside."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _a_table_where_one_is_used(self) -> Self:
        if (self.spectrum == "table") != (self.table is not None):
            raise wrong("table", "goes with spectrum: table, and that needs one")
        return self


class MagneticSettings(SpectrumSettings):
    energy: Positive = 0.5
    """Magnetic energy, the box mean of |b|^2 / 2, without the mean field's."""
    helicity: Annotated[Real, Field(ge=-1, le=1)] = 0.0
    """Of all modes, relative to the largest possible: 1 makes every mode right-handed."""
    mean_field: Annotated[tuple[Real, Real, Real], BeforeValidator(lambda v: tuple(v))] = (0.0, 0.0, 0.0)
    """Uniform field, on top."""


class ScalarSettings(SpectrumSettings):
    variance: Positive = 1.0
    """Box mean of theta^2."""


class WithRandomFields(Settings):
    """Settings of an initial velocity beside which other fields may be random."""

    magnetic: MagneticSettings | None = None
    """A random magnetic field."""
    scalars: dict[str, ScalarSettings] = Field(default_factory=dict)
    """Random scalars by name, `buoyancy` among them."""


def shape_of(settings: SpectrumSettings, files: Files) -> Shape:
    """The spectrum that the settings name."""
    k0, slope = settings.peak, settings.slope
    match settings.spectrum:
        case "k4_exp":
            return lambda k: (k / k0) ** 4 * jnp.exp(-2 * (k / k0) ** 2)
        case "power_law":
            return lambda k: jnp.where(k <= k0, (k / k0) ** 4, (k / k0) ** slope)
        case "pao":
            eta = settings.kolmogorov_scale
            # Of Pope, Turbulent Flows (2000), eq. 6.247, with k^4 at small k; the cut-off is Pao's, with C = 1.5.
            return lambda k: (
                (k / k0) ** 4 * (1 + (k / k0) ** 2) ** (-17 / 6) * jnp.exp(-2.25 * (k * eta) ** (4 / 3))
            )
        case "table":
            return _table(settings, files)


def _table(settings: SpectrumSettings, files: Files) -> Shape:
    path = str(settings.table)
    try:
        rows = np.array(
            [line.split() for line in files.read(path).decode().splitlines() if _row(line)], float
        )
        if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) < 2:
            raise ValueError("two columns, k and E(k), and two rows or more are needed")
        if not (np.diff(rows[:, 0]) > 0).all() or (rows <= 0).any():
            raise ValueError("k has to rise, and k and E(k) have to be above zero")
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    log_k, log_e = np.log(rows).T
    return lambda k: jnp.exp(jnp.interp(jnp.log(k), log_k, log_e, left=-jnp.inf, right=-jnp.inf))


def _row(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _modes(layout: Layout, shape: Shape, seed: int, components: int) -> jax.Array:
    """Gaussian coefficients with <|f(k)|^2> ~ E(k) / k^2, and zero mean."""
    k = jnp.sqrt(layout.k_squared())
    density = jnp.where(k == 0, 0, shape(jnp.where(k == 0, 1, k)) / jnp.where(k == 0, 1, k) ** 2)
    return jnp.sqrt(density) * gaussian(layout, seed, components)


def solenoidal(layout: Layout, shape: Shape, seed: int, energy: float, helicity: float) -> jax.Array:
    """Vector field (3, *order) with box mean energy |v|^2 / 2, and relative helicity on average.

    v = sqrt(1 + h) P+ v + sqrt(1 - h) P- v with P+- = (1 +- i k x / k) / 2 (Waleffe, Phys. Fluids A 4, 350, 1992).
    """
    v = project(layout, _modes(layout, shape, seed, 3))
    if helicity:
        turned = curl(layout, v) * jnp.sqrt(layout.inverse_k_squared())
        plus, minus = (1 + helicity) ** 0.5, (1 - helicity) ** 0.5
        v = ((plus + minus) * v + (plus - minus) * turned) / 2
    return v * jnp.sqrt(energy / (0.5 * layout.inner(v, v).sum()))


def add_random_fields(
    transform: Transform,
    settings: WithRandomFields,
    wanted: Mapping[str, tuple[int, ...]],
    files: Files,
    found: Fields,
    seed: int = 0,
) -> Fields:
    """`found` and the random fields that the settings ask for. `seed` keeps them apart from a random velocity."""
    layout, kind = transform.layout, jnp.result_type(transform.dtype, jnp.complex64)
    asked: dict[str, SpectrumSettings] = dict(settings.scalars)
    if settings.magnetic is not None:
        asked["magnetic"] = settings.magnetic
    result = dict(found)
    for number, (name, s) in enumerate(sorted(asked.items()), 1):
        if name not in wanted:
            known = ", ".join(wanted)
            raise UserError(f"{name} is no field of this model; its fields are {known}")
        shape = shape_of(s, files)
        stream = (s.seed + seed + number * 0x9E3779B9) % 2**32

        @jax.jit
        def build(s=s, shape=shape, stream=stream):
            if isinstance(s, MagneticSettings):
                field = solenoidal(layout, shape, stream, s.energy, s.helicity)
                mean = jnp.asarray(s.mean_field).reshape(3, 1, 1, 1)
                field = jnp.where(layout.k_squared() == 0, jnp.where(layout.mask, mean, 0), field)
            else:
                assert isinstance(s, ScalarSettings)
                field = _modes(layout, shape, stream, 1)[0]
                field = field * jnp.sqrt(s.variance / layout.inner(field, field))
            return layout.hold(field.astype(kind))

        result[name] = build()
    for name, field in result.items():
        if not bool(jax.jit(lambda f: jnp.isfinite(f).all())(field)):
            raise UserError(f"the spectrum of {name} is zero on all of this grid's modes")
    return result
