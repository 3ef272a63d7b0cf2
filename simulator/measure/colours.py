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
Colour = tuple[float, float, float]
# Colours of several fields in one picture, which have to be told apart: shades of one hue, from the faintest to the
# brightest, for positive values, and for values of both signs the low tail, from its end inwards, and the high tail.
_FAMILIES: tuple[tuple[tuple[Colour, ...], tuple[Colour, ...]], ...] = (
    (
        ((0.40, 0.04, 0.02), (0.75, 0.15, 0.03), (0.95, 0.40, 0.08), (1.00, 0.70, 0.25), (1.00, 0.95, 0.75)),
        ((1.00, 0.35, 0.20), (0.55, 0.05, 0.05), (0.70, 0.40, 0.05), (1.00, 0.85, 0.45)),
    ),
    (
        ((0.02, 0.12, 0.45), (0.05, 0.30, 0.75), (0.10, 0.60, 0.95), (0.45, 0.85, 1.00), (0.88, 0.98, 1.00)),
        ((0.40, 0.45, 1.00), (0.08, 0.08, 0.60), (0.02, 0.40, 0.55), (0.60, 1.00, 1.00)),
    ),
    (
        ((0.02, 0.30, 0.05), (0.08, 0.50, 0.10), (0.25, 0.75, 0.15), (0.60, 0.95, 0.35), (0.92, 1.00, 0.80)),
        ((0.15, 0.80, 0.40), (0.02, 0.35, 0.12), (0.30, 0.50, 0.05), (0.85, 1.00, 0.45)),
    ),
    (
        ((0.30, 0.02, 0.35), (0.50, 0.08, 0.60), (0.80, 0.20, 0.85), (0.95, 0.55, 0.95), (1.00, 0.88, 1.00)),
        ((0.65, 0.30, 1.00), (0.25, 0.05, 0.50), (0.55, 0.05, 0.35), (1.00, 0.65, 0.90)),
    ),
)
# Tails of one among several fields are fainter than those of a field alone, for the others to be seen behind them.
_TAILS = ((-3.0, 0.15), (-1.2, 0.0), (0.0, 0.0), (1.2, 0.0), (3.0, 0.15))
REFERENCE = 0.01
"""Opacity is the fraction of light lost on a path of this fraction of the shortest side of the box."""

Point = tuple[float, Colour, float]


@dataclass(frozen=True)
class Transfer:
    """Colour and opacity as functions of the value: colour and absorption coefficient are linear between the given
    points and constant beyond them.

    `points`: (value, (red, green, blue), opacity) in rising order of value, with colours from 0 to 1; opacity is the
    fraction of light lost on a path of a hundredth of the shortest side of the box. None: chosen from the mean and
    variance of the values, in the hue with the number `family` (0 to 3) or, by default, in several hues.
    """

    points: tuple[Point, ...] | None = None
    family: int | None = None

    def table(self, length: float, mean: jax.Array, square: jax.Array, least: jax.Array) -> jax.Array:
        """(point, 5): value, red, green, blue, absorption per length. `length` is the shortest side of the box;
        `mean`, `square` (mean square) and `least` are those of the values."""
        if self.points is not None:
            return jnp.asarray(_rows(self.points, length))
        # To three digits, so that round-off, which depends on the number of devices, does not change the picture.
        rms = _rounded(jnp.sqrt(square))
        deviation = _rounded(jnp.sqrt(jnp.maximum(square - mean**2, 0)))
        middle = deviation * jnp.round(mean / deviation, 2)
        positive, signed = (jnp.asarray(_rows(points, length)) for points in self._usual())
        positive = positive.at[:, 0].multiply(rms)
        signed = signed.at[:, 0].set(signed[:, 0] * deviation + middle)
        return jnp.where(least >= 0, positive, signed)

    def _usual(self) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
        """The points for positive values and for values of both signs."""
        if self.family is None:
            return _POSITIVE, _SIGNED
        shades, (low, fading, rising, high) = _FAMILIES[self.family]
        tails = (low, fading, fading, rising, high)
        positive = tuple((at, shade, part) for (at, _, part), shade in zip(_POSITIVE, shades, strict=True))
        return positive, tuple((at, tail, part) for (at, part), tail in zip(_TAILS, tails, strict=True))


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


def mixed(media: Sequence[tuple[jax.Array, ...]]) -> tuple[jax.Array, ...]:
    """Red, green, blue and absorption of media in the same space, each given like the result of `looked_up`."""
    if len(media) == 1:
        return media[0]
    absorption = sum(medium[3] for medium in media)
    share = 1 / jnp.where(absorption > 0, absorption, 1)
    return *(sum(medium[c] * medium[3] for medium in media) * share for c in range(3)), absorption  # type: ignore
