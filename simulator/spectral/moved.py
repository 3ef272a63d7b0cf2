"""Products of fields on shifted grids, and alias-free products with spherical truncation.

A quadratic product on N points gives the mode k an error from k + N e for vectors e of integers. If only modes within
2 sqrt(2) / 3 of the Nyquist wavenumber are kept, e has a single nonzero component: 1 or -1. On a grid shifted by half
a spacing along x, y and z that error has the opposite sign: the mean over both grids is the exact convolution.
Patterson & Orszag, Phys. Fluids 14, 2538 (1971); Canuto et al., Spectral Methods: Fundamentals in Single Domains
(2006), section 3.3.2.

The two grids together have 2 N^3 points; a grid padded for the same modes has 2 sqrt(2) N^3.
"""

from collections.abc import Collection

import jax
import jax.numpy as jnp

from simulator.spectral.local import Points
from simulator.spectral.operators import translate
from simulator.spectral.transform import Evaluated, Local, PointwiseFunction, Transform, Tree

Shift = tuple[float | jax.Array, float | jax.Array, float | jax.Array]
"""The displacement of the grid's points: lengths along x, y, z."""


def evaluate_moved(
    transform: Transform, shift: Shift, inputs: Tree, pointwise: PointwiseFunction, parameters: Tree = ()
) -> Evaluated:
    """`transform.evaluate_once` on the grid shifted by `shift`; the products are functions of the original box."""
    layout = transform.layout

    def moved(tree: Tree, by: Shift) -> Tree:
        return jax.tree.map(lambda f: layout.constrain(translate(layout, f, by)), tree)

    def shifted_pointwise(values: Tree, points: Points, given: Tree) -> Local:
        (dx, dy, dz), own_parameters = given
        return pointwise(values, Points(points.x + dx, points.y + dy, points.z + dz), own_parameters)

    lengths = tuple(jnp.asarray(length, transform.dtype) for length in shift)
    evaluated = transform.evaluate_once(moved(inputs, shift), shifted_pointwise, (lengths, parameters))
    x, y, z = shift
    return evaluated._replace(products=moved(evaluated.products, (-x, -y, -z)))


def evaluate_dealiased(
    transform: Transform,
    inputs: Tree,
    pointwise: PointwiseFunction,
    parameters: Tree = (),
    keep: Collection[str] = (),
) -> Evaluated:
    """`transform.evaluate_once`. With `spherical` dealiasing, products and means are averaged over two grids half a
    spacing apart, and maxima are taken over both."""
    original = transform.evaluate_once(inputs, pointwise, parameters, keep)
    if transform.grid.dealias != "spherical" or not transform.layout.truncated:
        return original
    dx, dy, dz = transform.grid.spacing
    shifted = evaluate_moved(transform, (dx / 2, dy / 2, dz / 2), inputs, pointwise, parameters)

    def mean(a: jax.Array, b: jax.Array) -> jax.Array:
        return 0.5 * (a + b)

    return Evaluated(
        jax.tree.map(mean, original.products, shifted.products),
        {name: jnp.maximum(a, shifted.maxima[name]) for name, a in original.maxima.items()},
        {name: mean(a, shifted.means[name]) for name, a in original.means.items()},
        original.values,
    )
