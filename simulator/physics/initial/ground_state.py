"""The ground state of the Schrodinger-Poisson equations: isolated, by radial integration, and in a periodic box."""

import math
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.errors import UserError
from simulator.physics.models.schrodinger_poisson import SchrodingerPoisson

_STEP = 1 / 256
_REACH = 16.0
TAIL = 1e-4
"""Amplitude, relative to the centre, below which the decaying solution is continued by its asymptotic form: there
round-off has excited the growing solution noticeably."""


@dataclass(frozen=True)
class RadialState:
    """f(s) with f(0) = 1 of -f''/2 - f'/s + phi f = e f, lap phi = 4 pi f^2: psi = sqrt(rho_c) f(r / L) with
    L = (hbar^2 / (m^2 G rho_c))^(1/4)."""

    radius: np.ndarray
    amplitude: np.ndarray
    core: float
    """Radius at which the density f^2 is half of its central value."""
    mass: float
    """4 pi integral of f^2 s^2 ds."""
    decay: float
    """q in the asymptotic form f ~ exp(-q s)."""


@cache
def radial_ground_state() -> RadialState:
    """The state without nodes, by fourth-order integration outwards and bisection of phi(0) - e.

    With u = phi - e: f'' = -2 f'/s + 2 u f, u'' = -2 u'/s + 4 pi f^2. If the well is too deep, f crosses zero; if it
    is too shallow, f grows without bound. Compare Guzman & Urena-Lopez, Phys. Rev. D 69, 124033 (2004), whose units
    differ by lap phi = f^2.
    """
    count = round(_REACH / _STEP)

    def slopes(s: float, y: np.ndarray) -> np.ndarray:
        f, df, u, du = y
        if s == 0:  # 2 f'/s -> 2 f'', so f'' takes a third of the source
            return np.array([df, 2 * u * f / 3, du, 4 * math.pi * f**2 / 3])
        return np.array([df, -2 * df / s + 2 * u * f, du, -2 * du / s + 4 * math.pi * f**2])

    def shoot(depths: np.ndarray) -> np.ndarray:
        """f at all radii (radius, trial), kept constant after it has left [-1, 1.5]."""
        ones = np.ones_like(depths)
        y = np.array([ones, 0 * ones, depths, 0 * ones])
        path = [y]
        for i in range(count):
            s = i * _STEP
            a = slopes(s, y)
            b = slopes(s + _STEP / 2, y + _STEP / 2 * a)
            c = slopes(s + _STEP / 2, y + _STEP / 2 * b)
            d = slopes(s + _STEP, y + _STEP * c)
            going = (y[0] > -1) & (y[0] < 1.5)
            y = np.where(going, y + _STEP / 6 * (a + 2 * b + 2 * c + d), y)
            path.append(y)
        return np.array(path)

    low, high = -10.0, -0.5
    for _ in range(7):
        depths = np.linspace(low, high, 256)
        crosses = (shoot(depths)[:, 0].min(0) < 0).nonzero()[0]
        low, high = depths[crosses[-1]], depths[crosses[-1] + 1]
    path = shoot(np.array([(low + high) / 2]))[:, :, 0]
    s, f, u = np.arange(count + 1) * _STEP, path[:, 0], path[:, 2]
    end = int((f < TAIL).argmax())
    # Beyond, f = A exp(-q s) s^(M / q - 1): the Coulomb tail of a mass M with q^2 = 2 (u(s) + M / s).
    inside = 4 * math.pi * f[: end + 1] ** 2 * s[: end + 1] ** 2
    mass = float(np.trapezoid(inside, dx=_STEP))
    decay = math.sqrt(2 * (u[end] + mass / s[end]))
    power = mass / decay - 1
    tail = s[end:]
    f = np.concatenate([f[:end], f[end] * np.exp(-decay * (tail - s[end])) * (tail / s[end]) ** power])
    core = float(np.interp(-0.5, -(f**2), s))
    return RadialState(s, f, core, float(np.trapezoid(4 * math.pi * f**2 * s**2, dx=_STEP)), decay)


def profile(radius: jax.Array, scale: float) -> jax.Array:
    """f(r / L) at radii of any shape, by Lagrange interpolation of order 4 in the table."""
    state = radial_ground_state()
    x = jnp.minimum(radius / scale, 1e3) / _STEP
    table = jnp.asarray(state.amplitude, radius.dtype)
    last = len(state.amplitude) - 1
    i = jnp.clip(jnp.floor(x).astype(int) - 1, 0, last - 3)
    d = x - i
    near = [table[i + j] for j in range(4)]
    inner = (
        -(d - 1) * (d - 2) * (d - 3) / 6 * near[0]
        + d * (d - 2) * (d - 3) / 2 * near[1]
        - d * (d - 1) * (d - 3) / 2 * near[2]
        + d * (d - 1) * (d - 2) / 6 * near[3]
    )
    outer = table[last] * jnp.exp(-state.decay * (x - last) * _STEP)
    return jnp.where(x > last, outer, inner)


def relax(
    model: SchrodingerPoisson, psi: jax.Array, *, tolerance: float = 1e-9, most: int = 4000
) -> jax.Array:
    """The stationary state on the model's own grid and box near the real coefficients `psi`, with the same mass.

    Gradient descent of the energy at fixed mass, preconditioned by (k^2 hbar/2m + c)^-1 (a Sobolev gradient; Garcia-
    Ripoll & Perez-Garcia, SIAM J. Sci. Comput. 23, 1316 (2001)), until |H psi - mu psi| < tolerance |mu psi|.
    Raises UserError if it does not converge.
    """
    layout, hbar = model.transform.layout, model.hbar
    kinetic = 0.5 * hbar * layout.k_squared(psi.real.dtype)
    tolerance = max(tolerance, 1e3 * float(jnp.finfo(psi.real.dtype).eps))

    def residual(psi):
        values = model.transform.inverse(psi)
        v = model.phase_rate(values.real**2 + values.imag**2, jnp.float64(0))
        acting = kinetic * psi + model.transform.forward(v * values)
        norm = layout.inner(psi, psi)
        mu = layout.inner(psi, acting) / norm
        r = acting - mu * psi
        return r, mu, jnp.sqrt(layout.inner(r, r) / norm) / abs(mu)

    def descend(carry):
        psi, r, mu, _, count = carry
        step = r / (kinetic + abs(mu))
        # Only the part of the step that conserves the mass.
        smooth = psi / (kinetic + abs(mu))
        step = step - layout.inner(psi, step) / layout.inner(psi, smooth) * smooth
        moved = psi - 0.8 * step
        moved = moved * jnp.sqrt(layout.inner(psi, psi) / layout.inner(moved, moved))
        r, mu, error = residual(moved)
        return layout.constrain(moved), r, mu, error, count + 1

    @jax.jit
    def solve(psi):
        r, mu, error = residual(psi)
        going = lambda c: (c[3] > tolerance) & (c[4] < most)  # noqa: E731
        result = lax.while_loop(going, descend, (psi, r, mu, error, jnp.int32(0)))
        return result[0], result[3]

    psi, error = solve(psi)
    if not float(error) <= tolerance:
        raise UserError(
            f"relax: the soliton does not settle in this box (residual {float(error):.1e}); "
            f"use a finer grid, a larger box, or relax: false"
        )
    return psi
