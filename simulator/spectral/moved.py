"""Products of fields on grids whose points are moved, and spherical truncation's way to take them without aliasing.

A quadratic product on N points gives the mode k an error from k + N e for vectors e of integers. Where only modes
within 2 sqrt(2) / 3 of the Nyquist wavenumber are kept, e has a single component that is not zero: 1 or -1. On a grid
moved by half a spacing along x, y and z that error has the opposite sign: the mean over both grids is the exact
convolution. Patterson & Orszag, Phys. Fluids 14, 2538 (1971); Canuto et al., Spectral Methods: Fundamentals in Single
Domains (2006), section 3.3.2.

The two grids together have 2 N^3 points; a grid padded for the same modes has 2 sqrt(2) N^3.
"""

import jax
import jax.numpy as jnp

from simulator.spectral.local import Points
from simulator.spectral.operators import translate
from simulator.spectral.transform import Evaluated, Local, PointwiseFunction, Transform, Tree

Shift = tuple[float | jax.Array, float | jax.Array, float | jax.Array]
"""How far the grid's points are moved: lengths along x, y, z."""


def evaluate_moved(
    transform: Transform, shift: Shift, inputs: Tree, pointwise: PointwiseFunction, parameters: Tree = ()
) -> Evaluated:
    """`transform.evaluate_once` on the grid moved by `shift`; the products are functions of the unmoved box."""
    layout = transform.layout

    def moved(tree: Tree, by: Shift) -> Tree:
        return jax.tree.map(lambda f: layout.constrain(translate(layout, f, by)), tree)

    def there(values: Tree, points: Points, given: Tree) -> Local:
        (dx, dy, dz), own = given
        return pointwise(values, Points(points.x + dx, points.y + dy, points.z + dz), own)

    lengths = tuple(jnp.asarray(length, transform.dtype) for length in shift)
    found = transform.evaluate_once(moved(inputs, shift), there, (lengths, parameters))
    x, y, z = shift
    return found._replace(products=moved(found.products, (-x, -y, -z)))


def evaluate_dealiased(
    transform: Transform, inputs: Tree, pointwise: PointwiseFunction, parameters: Tree = ()
) -> Evaluated:
    """`transform.evaluate_once`; with `spherical` dealiasing the mean of products and means over two grids half a
    spacing apart, and the maxima over both."""
    here = transform.evaluate_once(inputs, pointwise, parameters)
    if transform.grid.dealias != "spherical" or not transform.layout.truncated:
        return here
    dx, dy, dz = transform.grid.spacing
    there = evaluate_moved(transform, (dx / 2, dy / 2, dz / 2), inputs, pointwise, parameters)

    def mean(a: jax.Array, b: jax.Array) -> jax.Array:
        return 0.5 * (a + b)

    return Evaluated(
        jax.tree.map(mean, here.products, there.products),
        {name: jnp.maximum(a, there.maxima[name]) for name, a in here.maxima.items()},
        {name: mean(a, there.means[name]) for name, a in here.means.items()},
    )
