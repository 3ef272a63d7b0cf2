"""Two forms of the nonlinear term of an incompressible flow, (u . grad) u up to a gradient.

The projection removes gradients, so both give the same tendency if products are free of aliasing errors. A form
states the evolved fields that it takes, the further fields that it needs, its products, and the force that they make.
"""

import jax
import jax.numpy as jnp

from simulator.models.fields import Fields
from simulator.spectral import Grid, Layout
from simulator.spectral.operators import curl


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """a x b of vectors (3, ...)."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def stress_without_trace(u: jax.Array) -> jax.Array:
    """u_i u_j - u_z^2 delta_ij, (5, ...): the components xx, yy, xy, xz, yz. The component zz is zero."""
    x, y, z = u[0], u[1], u[2]
    return jnp.stack([x * x - z * z, y * y - z * z, x * y, x * z, y * z])


def divergence_of_stress(layout: Layout, stress: jax.Array) -> jax.Array:
    """i k_j T_ij (3, *order) of the coefficients (5, *order) of a stress in the order of `stress_without_trace`."""
    xx, yy, xy, xz, yz = stress
    kx, ky, kz = layout.wavenumbers(stress.real.dtype)
    rows = (kx * xx + ky * xy + kz * xz, kx * xy + ky * yy + kz * yz, kx * xz + ky * yz)
    return 1j * jnp.stack(rows)


class Momentum:
    """A form of the nonlinear force on the velocity."""

    fields: tuple[str, ...] = ("velocity",)
    """The evolved fields that it takes."""

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        """Coefficients of the further fields whose values it needs."""
        return {}

    def products(self, values: Fields) -> Fields:
        """Products of values at a point, by name."""
        raise TypeError(f"{type(self).__name__} does not define products")

    def force(self, layout: Layout, products: Fields) -> jax.Array:
        """Coefficients (3, *order) of the force, from those of the products; up to a gradient."""
        raise TypeError(f"{type(self).__name__} does not define force")


class BasdevantStress(Momentum):
    """-div(u u - u_z^2 1): five products of three fields, so 3 + 5 transforms.

    It equals -(u . grad) u up to the gradient of u_z^2. Aliased products of this form do not conserve energy, so it
    is used on grids whose products are exact. Basdevant, J. Comput. Phys. 50, 209 (1983).
    """

    def products(self, values: Fields) -> Fields:
        return {"stress": stress_without_trace(values["velocity"])}

    def force(self, layout: Layout, products: Fields) -> jax.Array:
        return -divergence_of_stress(layout, products["stress"])


class Rotational(Momentum):
    """u x omega: three products of six fields, so 6 + 3 transforms.

    It equals -(u . grad) u up to the gradient of u^2 / 2, and conserves energy even with aliased products, because
    u . (u x omega) = 0 at every point. Canuto et al., Spectral Methods: Evolution to Complex Geometries (2007),
    section 3.3.
    """

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        return {"vorticity": curl(layout, fields["velocity"])}

    def products(self, values: Fields) -> Fields:
        return {"force": cross(values["velocity"], values["vorticity"])}

    def force(self, layout: Layout, products: Fields) -> jax.Array:
        return products["force"]


def products_are_exact(grid: Grid) -> bool:
    """Whether products of two fields have no aliasing errors."""
    return grid.dealias in ("two_thirds", "spherical")


def advection_of(grid: Grid) -> Momentum:
    """The form with the fewest transforms that conserves energy: the stress if products are exact."""
    return BasdevantStress() if products_are_exact(grid) else Rotational()
