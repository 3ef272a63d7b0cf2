"""Sums over modes, and energies of modes."""

from simulator.spectral import Layout
from simulator.spectral.arrays import Number, OfModes, OverModes, SpectralField
from simulator.spectral.operators import dot


def weighted_square(layout: Layout, rate: OverModes | float, field: SpectralField) -> Number:
    """Box mean of (rate f) . f for a damping rate (1/time) of each mode: twice the energy that is
    lost per time."""
    squares = field.real**2 + field.imag**2
    # Components are added first, so that a common factor is not broadcast to them.
    flat = squares.reshape(-1, *squares.shape[-3:])
    return layout.sum(rate * sum(flat[1:], start=flat[0]))


def energy_transfer(field: SpectralField, rate: SpectralField) -> OfModes:
    """Re f* . r of each mode, summed over components: the rate at which the tendency r adds to
    |f|^2 / 2."""
    if field.ndim > 3:
        return dot(field.real, rate.real) + dot(field.imag, rate.imag)
    return field.real * rate.real + field.imag * rate.imag
