"""The expanding background: matter, radiation, curvature and dark energy, in supercomoving time.

Supercomoving variables (Martel & Shapiro, Mon. Not. R. Astron. Soc. 297, 467 (1998)): comoving
lengths x, comoving density a^3 rho, time tau with d tau = dt / a^2. The equations are those without
expansion, with gravity multiplied by a. The scale factor obeys da/d tau = a^3 H."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Annotated, Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from simulator.errors import shown
from simulator.physics.models.expansion import ExpansionSettings
from simulator.plugins.gravity.expanding import contradiction, in_time
from simulator.plugins.gravity.units import UNITS
from simulator.settings import (
    NonNegative,
    Positive,
    Real,
    Settings,
    evaluate_number,
    refuse_key,
    wrong,
)
from simulator.spectral.arrays import Number, holds

Table = np.ndarray | jax.Array
Reals = float | Table
"""A number, or an array of numbers."""

# The end of the table. tau tends to a finite value as a grows without bound.
LARGEST_SCALE_FACTOR = 4.0
# Growth is integrated from this fraction of the start, or of equality if that is earlier.
_EARLIEST = 1e-7


class DarkEnergySettings(Settings):
    w0: Real = -1.0
    """Pressure over density today; -1 is a cosmological constant."""
    wa: Real = 0.0
    """w(a) = w0 + wa (1 - a): Linder, Phys. Rev. Lett. 90, 091301 (2003)."""


def _scale_factor(value: object) -> Any:
    """`value`, or the scale factor that {redshift: Z} or {scale_factor: A} names."""
    if not isinstance(value, Mapping):
        return value
    match list(value.items()):
        case [("scale_factor", a)]:
            return a
        case [("redshift", z)]:
            if (redshift := evaluate_number(str(z))) > 0:
                return 1 / (1 + redshift)
            raise ValueError(f"a redshift above 0 is needed, not {shown(z)}")
    raise ValueError(f"a scale factor or {{redshift: Z}} is needed, not {shown(dict(value))}")


class CosmologySettings(ExpansionSettings):
    start: Annotated[
        Positive, BeforeValidator(_scale_factor, json_schema_input_type=float | str | dict)
    ] = Field(default=0.01, lt=1.0)
    """Scale factor at time 0, or {redshift: Z}; today the scale factor is 1."""
    hubble: Positive = 1.0
    """Hubble constant H0 (1/time)."""
    matter: Positive = Field(default=0.3, le=2.0)
    """Omega_m today."""
    radiation: NonNegative = Field(default=0.0, lt=1.0)
    """Omega_r today, of photons and massless neutrinos; it changes the expansion and does not
    cluster."""
    curvature: Real = 0.0
    """Omega_k today, which changes the expansion and not the geometry of the box."""
    dark_energy: DarkEnergySettings = DarkEnergySettings()
    """The rest, 1 - matter - radiation - curvature."""

    @model_validator(mode="before")
    @classmethod
    def _without_neutrinos(cls, data: object) -> Any:
        refuse_key(data, "neutrinos", "massive neutrinos are not followed; count them in matter")
        return data

    @model_validator(mode="after")
    def _expands(self) -> Self:
        if self.dark_energy.w0 + self.dark_energy.wa > -0.1:
            raise wrong(
                "dark_energy",
                "w0 + wa must be at most -0.1, so that matter dominates at early times",
            )
        a = np.geomspace(min(1e-4, self.start), LARGEST_SCALE_FACTOR, 1000)
        if (turn := a[~(expansion(self, a) > 0)]).size:
            raise wrong(
                "curvature",
                f"the expansion stands still at a = {turn[0]:.3g}; it has to go on to a = 4",
            )
        return self

    @classmethod
    def in_time(cls, data: dict[str, Any]) -> dict[str, Any]:
        return in_time(data, cls)

    @classmethod
    def misfit(cls, configuration: Mapping[str, Any]) -> tuple[str, str] | None:
        return contradiction(configuration)

    def expansion(self) -> "Background":
        return Background(self)


def check_units(settings: Any) -> None:
    """Refuses a model's `gravitational_constant` and `cosmology.hubble` that contradict its
    `units`."""
    if (unit := UNITS.get(settings.units)) is None:
        return
    named = f"in units: {settings.units}"
    gravity = settings.gravitational_constant
    if gravity is not None and not holds((gravity == 0) | (abs(gravity / unit.gravity - 1) < 1e-3)):
        cure = "leave it out, or give 0 for no gravity"
        raise wrong("gravitational_constant", f"is {unit.gravity:g} {named}; {cure}")
    if settings.cosmology is None:
        return
    h = settings.cosmology.hubble / unit.hubble
    if unit.per_h and not holds(abs(h - 1) < 1e-6):
        raise wrong("cosmology.hubble", f"has to be {unit.hubble:g} {named}")
    if not holds((h >= 0.2) & (h <= 2)):
        example = f"100 km/s/Mpc are {unit.hubble:g} {named}, e.g. hubble: {0.7 * unit.hubble:g}"
        raise wrong("cosmology.hubble", f"means h = {float(h):g}, not between 0.2 and 2: {example}")


def mean_density(settings: CosmologySettings, gravity: float) -> float:
    """The mean comoving density of matter, 3 H0^2 Omega_m / (8 pi G)."""
    return 3 * settings.hubble**2 * settings.matter / (8 * math.pi * gravity)


def expansion(s: CosmologySettings, a: Reals) -> Any:
    """(H / H0)^2 at scale factors a, numbers or arrays."""
    dark = 1 - s.matter - s.radiation - s.curvature
    w = s.dark_energy
    dark = dark * a ** (-3 * (1 + w.w0 + w.wa)) * math.e ** (-3 * w.wa * (1 - a))
    return s.matter / a**3 + s.radiation / a**4 + s.curvature / a**2 + dark


class Growing(NamedTuple):
    """Linear growth at a time, of numbers that may be traced; speeds are derivatives by
    supercomoving time."""

    first: Any  # D
    speed: Any  # dD/d tau
    second: Any  # D_2, -3/7 D^2 while matter dominates
    second_speed: Any  # dD_2/d tau
    pull: Any  # d^2 D/d tau^2 = 3/2 Omega_m H0^2 a D


class Background:
    """Scale factor and growth of a background; times are supercomoving, 0 at `start`."""

    points = 4097
    latest = LARGEST_SCALE_FACTOR

    def __init__(self, settings: CosmologySettings, gravity: Number | float = 0.0):
        """`gravity`: G (length^3 / (mass time^2)) of the matter in it, 0 if none attracts."""
        self.settings = settings
        self.gravity = gravity
        if self.traced:
            # Made here, because a table that is made in the trace of a loop or a checkpoint cannot
            # be used outside.
            _ = self._rate

    @property
    def traced(self) -> bool:
        """Whether numbers of the cosmology are traced, as in a gradient; `start` is not."""
        dark = self.settings.dark_energy
        return any(isinstance(x, jax.Array) for s in (self.settings, dark) for _, x in s)

    def hubble(self, a: Reals):
        """H(a), 1/time, of a number or an array a."""
        return self.settings.hubble * expansion(self.settings, a) ** 0.5

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """tau as a function of u = ln a, equally spaced in u. d tau / du = 1 / (a^2 H)."""
        u = np.linspace(math.log(self.settings.start), math.log(LARGEST_SCALE_FACTOR), self.points)
        return u, self._integral(u, 2)

    def _integral(self, u: np.ndarray, power: int) -> Any:
        """The integral of 1 / (a^power H) over ln a from the first of the points u to each of
        them."""
        nodes, weights = np.polynomial.legendre.leggauss(8)
        half = (u[1] - u[0]) / 2
        inside = np.exp(u[:-1, None] + half * (1 + nodes))
        pieces = half * (weights / (inside**power * self.hubble(inside))).sum(1)
        xp: Any = jnp if self.traced else np
        return xp.concatenate([xp.zeros(1), xp.cumsum(pieces)])

    def distance(self, time: Number) -> Number:
        """The integral of a d tau from a time to today, traced: the comoving distance over the
        speed of light."""
        passed = self._integral(self._table[0], 1)
        a = np.exp(self._table[0])
        return self._at(self.time_of(1.0), passed, a, jnp) - self._at(time, passed, a, jnp)

    def time_of(self, a: float) -> float:
        """Supercomoving time at the scale factor a; traced if the cosmology is."""
        time = self._inverse(self._table[0], self._rate, math.log(a), jnp if self.traced else np)
        return time if self.traced else float(time)

    @cached_property
    def _rate(self) -> Any:
        """du/d tau = a^2 H at the points of the table."""
        a = np.exp(self._table[0])
        return a**2 * self.hubble(a)

    def scale_factor(self, time: Number | float) -> Number:
        """a(tau), traced; relative error below 1e-10."""
        return jnp.exp(self._at(time, self._table[0], self._rate, jnp))

    def scale_factor_at(self, time: float) -> float:
        """a(tau) for one time, without JAX."""
        return float(np.exp(self._at(time, self._table[0], self._rate, np)))

    def _at(self, time: Reals, y: Table, slope: Table, xp: ModuleType) -> Any:
        """Quantities at a time, from their values y and their slopes dy/d tau at the points of the
        table."""
        tau, y, slope = map(xp.asarray, (self._table[1], y, slope))
        i = xp.clip(xp.searchsorted(tau, time, side="right") - 1, 0, len(tau) - 2)
        values, slopes = ((each[..., i], each[..., i + 1]) for each in (y, slope))
        return _hermite(time, (tau[i], tau[i + 1]), values, slopes)

    def _inverse(
        self,
        y: Table,
        slope: Table,
        wanted: Reals,
        xp: ModuleType,
    ) -> Any:
        """The time at which a rising quantity, y with the slope dy/d tau at the points of the
        table, has a value."""
        tau, y, slope = map(xp.asarray, (self._table[1], y, slope))
        i = xp.clip(xp.searchsorted(y, wanted, side="right") - 1, 0, len(tau) - 2)
        return _hermite(
            wanted, (y[i], y[i + 1]), (tau[i], tau[i + 1]), (1 / slope[i], 1 / slope[i + 1])
        )

    @cached_property
    def _growth(self) -> Any:
        """(D, dD/du, D_2, dD_2/du) as a function of u = ln a, from an integration with errors of
        1e-11:

            D'' + (2 + H'/H) D' = g D,  D_2'' + (2 + H'/H) D_2' = g (D_2 - D^2),  g = 3/2 Omega_m H0^2 / (a^3 H^2)

        Bouchet et al., Astron. Astrophys. 296, 575 (1995); D = a + 2/3 a_eq early (Meszaros
        1974)."""
        from scipy.integrate import solve_ivp

        begin = self._early
        ends = (math.log(self._first), math.log(LARGEST_SCALE_FACTOR))
        return solve_ivp(
            self._slope, ends, begin, "DOP853", rtol=1e-12, atol=1e-30, dense_output=True
        ).sol

    def _slope(self, u: Reals, y: Sequence[Any] | Table) -> tuple[Any, ...]:
        """The slopes dy/du of y = (D, x, D_2, x_2) with x = a^2 E dD/du, whose slope needs no
        derivative of H."""
        a = math.e**u
        e = expansion(self.settings, a) ** 0.5
        g = 1.5 * self.settings.matter / (a * e)
        return y[1] / (a * a * e), g * y[0], y[3] / (a * a * e), g * (y[2] - y[0] ** 2)

    @property
    def _first(self) -> float:
        """The scale factor from which growth is integrated."""
        s = self.settings
        if self.traced:
            return _EARLIEST * min(s.start, 1e-4)
        return _EARLIEST * min(s.start, s.radiation / s.matter or s.start)

    @property
    def _early(self) -> tuple[Any, ...]:
        """y at `_first`."""
        s = self.settings
        first = self._first
        equality = s.radiation / s.matter
        radiates = isinstance(s.radiation, jax.Array) or s.radiation > 0
        d = first + 2 / 3 * equality
        second = -1.5 * first / equality * d**2 if radiates else -3 / 7 * d**2
        unit = first**2 * expansion(s, first) ** 0.5
        return d, unit * first, second, unit * second * (1 if radiates else 2)

    def _integrated(
        self, begin: jax.Array, start: float, steps: int, width: float
    ) -> tuple[Any, Any]:
        """y after each of `steps` classical Runge-Kutta steps in u, traced: the last, and all,
        (steps, 4)."""

        def step(y: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
            a = jnp.stack(self._slope(u, y))
            b = jnp.stack(self._slope(u + width / 2, y + width / 2 * a))
            c = jnp.stack(self._slope(u + width / 2, y + width / 2 * b))
            d = jnp.stack(self._slope(u + width, y + width * c))
            new = y + width / 6 * (a + 2 * b + 2 * c + d)
            return new, new

        return jax.lax.scan(step, begin, start + width * jnp.arange(steps))

    @cached_property
    def _growing(self) -> tuple[Any, Any]:
        """(D, dD/d tau, D_2, dD_2/d tau) at the points of the table, (4, points), and their slopes
        by tau."""
        s = self.settings
        u = self._table[0]
        xp: Any = jnp if self.traced else np
        if self.traced:  # errors of steps below 1e-11
            span = u[0] - math.log(self._first)
            begin, _ = self._integrated(jnp.stack(self._early), u[0] - span, 8192, span / 8192)
            _, later = self._integrated(begin, u[0], len(u) - 1, u[1] - u[0])
            d, x, second, x2 = jnp.concatenate([begin[None], later]).T
        else:
            d, x, second, x2 = self._growth(u)
        pull = 1.5 * s.matter * s.hubble**2 * np.exp(u)
        slopes = xp.stack([s.hubble * x, pull * d, s.hubble * x2, pull * (second - d**2)])
        return xp.stack([d, slopes[0], second, slopes[2]]), slopes

    def growing(self, time: Number | float) -> Growing:
        """The growth of structure at a supercomoving time, traced; relative errors below 1e-10."""
        d, speed, second, second_speed = self._at(time, *self._growing, jnp)
        pull = 1.5 * self.settings.matter * self.settings.hubble**2 * self.scale_factor(time)
        return Growing(d, speed, second, second_speed, pull * d)

    def time_of_growth(self, growth: Number) -> Number:
        """The supercomoving time of a growth factor D, the inverse of `growing`, traced."""
        values, slopes = self._growing
        return self._inverse(values[0], slopes[0], growth, jnp)

    def ends(self, first: float, stop: float, count: int, spacing: str) -> np.ndarray:
        """The supercomoving times of `count` steps from `first` to `stop` and of `first`, (count +
        1,), equally spaced in the growth factor or, for `log_scale_factor`, in ln a."""
        u = self._table[0]
        y, slope = (each[0] for each in self._growing) if spacing == "growth" else (u, self._rate)
        begin, end = (np.interp(math.log(self.scale_factor_at(t)), u, y) for t in (first, stop))
        ends = self._inverse(y, slope, np.linspace(begin, end, count + 1), np)
        ends[0], ends[-1] = first, stop
        return ends

    def growth(self, a: float) -> float:
        """Growth factor of the linear density contrast, D(a) = a while matter dominates."""
        return self.grown(a).first

    def grown(self, a: float) -> Growing:
        """The growth of structure at a scale factor; traced if the cosmology is."""
        if self.traced:
            return self.growing(self.time_of(a))
        d, speed, second, second_speed = map(float, self._growth(math.log(a)))
        hubble = self.settings.hubble
        pull = 1.5 * self.settings.matter * hubble**2 * a * d
        return Growing(d, hubble * speed, second, hubble * second_speed, pull)


def _hermite(at: Reals, ends: Sequence[Reals], values: Sequence[Reals], slopes: Sequence[Reals]):
    """The cubic through two values with two slopes at the `ends` of an interval."""
    (low, high), width = values, ends[1] - ends[0]
    x, a, b = (at - ends[0]) / width, slopes[0] * width, slopes[1] * width
    return (
        (1 + 2 * x) * (1 - x) ** 2 * low
        + x**2 * (3 - 2 * x) * high
        + x * (1 - x) ** 2 * a
        - x**2 * (1 - x) * b
    )
