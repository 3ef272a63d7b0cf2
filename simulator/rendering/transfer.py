"""The transfer function from a value to emitted and absorbed light."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

# For positive values, in units of their root mean square: nothing below 0.8, then from faint to bright.
_POSITIVE = (
    (0.8, (0.20, 0.25, 0.65), 0.0),
    (1.3, (0.36, 0.30, 0.85), 0.03),
    (2.0, (0.85, 0.25, 0.55), 0.15),
    (3.0, (1.00, 0.60, 0.20), 0.45),
    (5.0, (1.00, 0.98, 0.82), 0.75),
)
# For values of both signs, in units of the standard deviation about the mean: the two tails.
_SIGNED = (
    (-2.8, (0.35, 0.85, 1.00), 0.50),
    (-1.0, (0.15, 0.35, 0.95), 0.0),
    (0.0, (0.5, 0.5, 0.5), 0.0),
    (1.0, (0.95, 0.25, 0.15), 0.0),
    (2.8, (1.00, 0.85, 0.35), 0.50),
)
REFERENCE = 0.01
"""Opacity is the fraction of light lost on a path of this fraction of the shortest side of the box."""

Point = tuple[float, tuple[float, float, float], float]


@dataclass(frozen=True)
class Transfer:
    """Colour and opacity as functions of the value: colour and absorption coefficient are linear between the given
    points and constant beyond them.

    `points`: (value, (red, green, blue), opacity) in rising order of value, with colours from 0 to 1; opacity is the
    fraction of light lost on a path of a hundredth of the shortest side of the box. None: chosen from the mean and
    variance of the values.
    """

    points: tuple[Point, ...] | None = None

    def table(self, length: float, mean: jax.Array, square: jax.Array, least: jax.Array) -> jax.Array:
        """(point, 5): value, red, green, blue, absorption per length. `length` is the shortest side of the box;
        `mean`, `square` (mean square) and `least` are those of the values."""
        if self.points is not None:
            return jnp.asarray(_rows(self.points, length))
        # To three digits, so that round-off, which depends on the number of devices, does not change the picture.
        rms = _rounded(jnp.sqrt(square))
        deviation = _rounded(jnp.sqrt(jnp.maximum(square - mean**2, 0)))
        middle = deviation * jnp.round(mean / deviation, 2)
        positive, signed = jnp.asarray(_rows(_POSITIVE, length)), jnp.asarray(_rows(_SIGNED, length))
        positive = positive.at[:, 0].multiply(rms)
        signed = signed.at[:, 0].set(signed[:, 0] * deviation + middle)
        return jnp.where(least >= 0, positive, signed)


def _rows(points: Sequence[Point], length: float) -> np.ndarray:
    return np.array(
        [[value, *colour, -np.log1p(-opacity) / (REFERENCE * length)] for value, colour, opacity in points]
    )


def _rounded(value: jax.Array) -> jax.Array:
    value = jnp.maximum(value, jnp.finfo(value.dtype).tiny)
    digits = 10.0 ** (jnp.floor(jnp.log10(value)) - 2)
    return jnp.round(value / digits) * digits


def looked_up(table: jax.Array, values: jax.Array) -> tuple[jax.Array, ...]:
    """Red, green, blue and absorption at `values`, each of their shape, as sums of ramps instead of table
    look-ups."""
    at, entries = table[:, 0].astype(values.dtype), table[:, 1:].astype(values.dtype)
    shares = [jnp.clip((values - at[i]) / (at[i + 1] - at[i]), 0, 1) for i in range(table.shape[0] - 1)]
    return tuple(
        entries[0, channel]
        + sum(share * (entries[i + 1, channel] - entries[i, channel]) for i, share in enumerate(shares))
        for channel in range(4)
    )
