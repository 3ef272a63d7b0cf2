"""Straight vortices in a periodic box, the initial state of gross_pitaevskii_vortices.yaml."""

import jax.numpy as jnp


def build(x, y, z, healing):
    """psi = w / sqrt(|w|^2 + 2 healing^2): density 1 but for the cores. w = a + i b is periodic and
    vanishes on four lines, around each of which its phase turns once, twice to the left and twice
    to the right."""
    a = jnp.cos(x) + 0.3 * jnp.sin(y)
    b = jnp.cos(y) + 0.2 * jnp.sin(2 * x)
    return {"psi": (a + 1j * b) / jnp.sqrt(a**2 + b**2 + 2 * healing**2) + 0 * z}
