"""How well the grid resolves a flow, and where its cascade ends."""

from typing import Literal

import jax
import jax.numpy as jnp

from simulator.physics.models.damping import DampingTerms
from simulator.physics.models.passive_scalars import TransportedScalar
from simulator.physics.resolution_columns import BATCHELOR
from simulator.spectral import Layout
from simulator.spectral.arrays import Number, OfModes, SpectralScalar
from simulator.spectral.grid import AXES

EDGE = 0.8
"""The edge of the spectrum consists of the modes with some |k_i| beyond this fraction of the
largest."""
_NEWTON_STEPS = 8


def tail_fraction(layout: Layout, values: OfModes, floor: Number | float) -> Number:
    """The fraction of the sum of `values` >= 0 over all modes that lies at the edge of the
    spectrum; 0 if it is at most `floor`."""
    edge = jnp.zeros((1, 1, 1), bool)
    for axis, kept in zip(AXES, layout.grid.kept, strict=True):
        mode_numbers = layout.integers(axis)
        largest = int(abs(layout.mode_numbers[axis]).max())
        if layout.truncated:  # a layout may store more modes than belong to the state
            largest = min(largest, kept)
        if largest > 0:
            edge = edge | (abs(mode_numbers) > EDGE * largest)
    total = layout.sum(values)
    beyond = layout.sum(jnp.where(edge, values, 0))
    return jnp.where(total > floor, beyond / jnp.where(total > 0, total, 1), 0)


def dissipation_scale(
    damping: DampingTerms, dissipation: Number, of: Literal["energy", "enstrophy"] = "energy"
) -> Number:
    """The length 1 / k at which damping is as fast as the eddies: sum of nu_n k^(2 n) =
    (dissipation k^2)^(1/3), or in a cascade of enstrophy, whose eddies all turn over equally fast,
    (dissipation of enstrophy)^(1/3).

    With viscosity alone this is Kolmogorov's (nu^3 / dissipation)^(1/4), with one hyperviscosity
    alone (nu_n^3 / dissipation)^(1 / (6 n - 2)); with both the result is at least the longer of
    these two lengths. For enstrophy it is Kraichnan's (nu^3 / dissipation)^(1/6) (Phys. Fluids 10,
    1417, 1967). If `dissipation` is 0: nan."""
    eddies = {"energy": 2 / 3, "enstrophy": 0.0}[of]
    orders = jnp.asarray([2 * n - eddies for n, _ in damping], jnp.float64)
    coefficients = jnp.stack([jnp.asarray(nu, jnp.float64) for _, nu in damping])
    dissipation = jnp.asarray(dissipation, jnp.float64)
    third = jnp.log(jnp.where(dissipation > 0, dissipation, 1)) / 3
    log_k = ((third - jnp.log(coefficients)) / orders).min()
    if len(damping) > 1:
        # The damping over the rate of the eddies is convex in log k, and at this point not below
        # the dissipation's third root: Newton's steps decrease log k towards the root without
        # passing it.
        for _ in range(_NEWTON_STEPS):
            terms = jnp.log(coefficients) + orders * log_k
            share = jax.nn.softmax(terms)
            log_k = log_k - (jax.nn.logsumexp(terms) - third) / (share * orders).sum()
    return jnp.where(dissipation > 0, jnp.exp(-log_k), jnp.nan)


def scalar_resolution(
    layout: Layout, scalar: TransportedScalar, theta: SpectralScalar, enstrophy: Number
) -> dict[str, Number]:
    """k_max times the Batchelor scale sqrt(D / omega_rms), at which diffusion is as fast as the
    strain of the smallest eddies; nan without a flow. It is (nu D^2 / dissipation)^(1/4): Batchelor,
    J. Fluid Mech. 5, 113 (1959)."""
    strain = jnp.sqrt(2 * jnp.asarray(enstrophy, jnp.float64))
    scale = jnp.sqrt(ratio(jnp.asarray(scalar.diffusivity, jnp.float64), strain))
    squares = layout.k_squared(theta.real.dtype) * abs(theta) ** 2
    return {
        f"{scalar.name}_edge_gradient": tail_fraction(layout, squares, 0.0),
        scalar.name + BATCHELOR: layout.grid.largest_wavenumber * scale,
    }


def ratio(a: Number, b: Number) -> Number:
    """a / b; nan if the denominator is zero."""
    return jnp.where(b == 0, jnp.nan, a / jnp.where(b == 0, 1, b))
