"""The expanding background: flat, with matter and a cosmological constant, in supercomoving time.

Supercomoving variables (Martel & Shapiro, Mon. Not. R. Astron. Soc. 297, 467 (1998)): comoving lengths x, comoving
density a^3 rho, time tau with d tau = dt / a^2. The equations are those without expansion, with gravity multiplied by
a. The scale factor obeys da/d tau = a^3 H, H = H0 sqrt(Omega_m a^-3 + 1 - Omega_m).
"""

import math
from functools import cache, cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from simulator.settings import Positive, Settings
from simulator.spectral.arrays import Number

LARGEST_SCALE_FACTOR = 4.0  # The end of the table. tau tends to a finite value as a grows without bound.


class CosmologySettings(Settings):
    start: Positive = Field(default=0.01, lt=1.0)
    """Scale factor at time 0; today it is 1."""
    hubble: Positive = 1.0
    """Hubble constant H0 (1/time)."""
    matter: Positive = Field(default=0.3, le=1.0)
    """Omega_m today; the rest is the cosmological constant."""


class Background:
    """Scale factor and growth of a background; times are supercomoving, 0 at `start`."""

    points = 4097

    def __init__(self, settings: CosmologySettings):
        self.settings = settings

    def hubble(self, a):
        """H(a), 1/time, of a number or an array a."""
        s = self.settings
        return s.hubble * (s.matter / a**3 + 1 - s.matter) ** 0.5

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """tau as a function of u = ln a, equally spaced in u. d tau / du = 1 / (a^2 H)."""
        u = np.linspace(math.log(self.settings.start), math.log(LARGEST_SCALE_FACTOR), self.points)
        nodes, weights = np.polynomial.legendre.leggauss(8)
        half = (u[1] - u[0]) / 2
        inside = np.exp(u[:-1, None] + half * (1 + nodes))
        pieces = half * (weights / (inside**2 * self.hubble(inside))).sum(1)
        return u, np.concatenate([[0.0], np.cumsum(pieces)])

    def time_of(self, a: float) -> float:
        """Supercomoving time at the scale factor a, by cubic Hermite interpolation in ln a."""
        u, tau = self._table
        x = math.log(a)
        i = min(max(int((x - u[0]) / (u[1] - u[0])), 0), len(u) - 2)
        ends = np.exp(u[i : i + 2])
        slopes = 1 / (ends**2 * self.hubble(ends))
        return float(_hermite((x - u[i]) / (u[1] - u[0]), u[1] - u[0], tau[i : i + 2], slopes))

    @property
    def last_time(self) -> float:
        """The supercomoving time at the end of the table."""
        return float(self._table[1][-1])

    def scale_factor(self, time: Number) -> Number:
        """a(tau), traced; relative error below 1e-10."""
        return self._scale_factor(time, jnp)

    def scale_factor_at(self, time: float) -> float:
        """a(tau) for one time, without JAX."""
        return float(self._scale_factor(time, np))

    def _scale_factor(self, time: Any, xp: Any) -> Any:
        u, tau = map(xp.asarray, self._table)
        i = xp.clip(xp.searchsorted(tau, time, side="right") - 1, 0, len(u) - 2)
        width, ends = tau[i + 1] - tau[i], (u[i], u[i + 1])
        slopes = [xp.exp(2 * x) * self.hubble(xp.exp(x)) for x in ends]
        return xp.exp(_hermite((time - tau[i]) / width, width, ends, slopes))

    def growth(self, a: float) -> float:
        """Growth factor of the linear density contrast, D(a) = a while matter dominates (Heath 1977):
        D = 5/2 Omega_m H / H0 integral da' / (a' H / H0)^3."""
        s = self.settings
        nodes, weights = _quadrature()
        # a' = a x^2 smooths the integrand a'^(3/2) at 0.
        x = (1 + nodes) / 2
        inner = a * x**2
        integral = (weights / 2 * 2 * a * x / (inner * self.hubble(inner) / s.hubble) ** 3).sum()
        return float(2.5 * s.matter * self.hubble(a) / s.hubble * integral)

    def second_growth(self, a: float) -> tuple[float, float]:
        """D_2(a) and d ln D_2 / d ln a of second-order Lagrangian displacements, D_2 = -3/7 D^2 while matter
        dominates:

            D_2'' = 3/2 H0^2 Omega_m a (D_2 - D^2)

        in supercomoving time, with D of `growth`. Bouchet et al., Astron. Astrophys. 296, 575 (1995).
        """
        first = min(1e-3, 0.1 * a)
        source, steps = 1.5 * self.settings.hubble**2 * self.settings.matter, 400
        h = (math.log(a) - math.log(first)) / steps

        def slope(u: float, y: np.ndarray) -> np.ndarray:
            """d/du of (D_2, dD_2/d tau), u = ln a."""
            x = math.exp(u)
            return np.array([y[1], source * x * (y[0] - self.growth(x) ** 2)]) / (x**2 * self.hubble(x))

        early = -3 / 7 * self.growth(first) ** 2
        y = np.array([early, 2 * early * first**2 * self.hubble(first)])
        for n in range(steps):
            u = math.log(first) + n * h
            k1 = slope(u, y)
            k2 = slope(u + h / 2, y + h / 2 * k1)
            k3 = slope(u + h / 2, y + h / 2 * k2)
            k4 = slope(u + h, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return float(y[0]), float(y[1] / (y[0] * a**2 * self.hubble(a)))

    def initial_growth(self) -> float:
        """d ln D / d tau = f a^2 H at the start, 1 / supercomoving time."""
        a = self.settings.start
        return self.growth_rate(a) * a**2 * float(self.hubble(a))

    def growth_rate(self, a: float) -> float:
        """f = d ln D / d ln a."""
        e = 1e-4
        up, down = self.growth(a * math.exp(e)), self.growth(a * math.exp(-e))
        return (math.log(up) - math.log(down)) / (2 * e)


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre quadrature, kept because computing them takes longer than an integral."""
    return np.polynomial.legendre.leggauss(64)


def _hermite(x, width, values, slopes):
    """The cubic through two values with two slopes, at the fraction x of the interval."""
    low, high = values[0], values[1]
    a, b = slopes[0] * width, slopes[1] * width
    return (1 + 2 * x) * (1 - x) ** 2 * low + x**2 * (3 - 2 * x) * high + x * (1 - x) ** 2 * a - x**2 * (1 - x) * b
