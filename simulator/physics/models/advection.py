"""Two forms of the nonlinear term of an incompressible flow, (u . grad) u up to a gradient.

The projection removes gradients, so both give the same tendency if products are free of aliasing
errors. A form states the further fields whose values it needs, its products at a point, and the
force that it computes from the coefficients of the products."""

from collections.abc import Sequence
from functools import cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from simulator.physics.models.fields import Fields
from simulator.spectral import Grid, Layout
from simulator.spectral.arrays import PointValues, SpectralScalar, SpectralVector
from simulator.spectral.operators import (
    cross,
    curl,
    inverse_square,
    project,
    symmetric_pairs,
    wavenumbers,
)


@cache
def stress_pairs(dimensions: int) -> list[tuple[int, int]]:
    """The components of a stress but the last diagonal one, which is zero: xx, yy, xy, xz, yz; in a
    plane xx, xy."""
    last = dimensions - 1
    return [pair for pair in symmetric_pairs(dimensions) if pair != (last, last)]


def stress_without_trace(u: Float[Array, "d *point"]) -> Float[Array, "pair *point"]:
    """u_i u_j - u_z^2 delta_ij: xx, yy, xy, xz, yz; zz is zero. In a plane u_x^2 - u_y^2, u_x
    u_y."""
    parts = jnp.unstack(u)
    last = parts[-1] * parts[-1]
    products = []
    for i, j in stress_pairs(len(parts)):
        product = parts[i] * parts[j]
        products.append(product - last if i == j else product)
    return jnp.stack(products)


def divergence_of_stress(layout: Layout, stress: Complex[Array, "pair ka kb kc"]) -> SpectralVector:
    """i k_j T_ij of a stress T with its components in the order of `stress_pairs`: five, in a plane
    two."""
    k = wavenumbers(layout, stress.real.dtype)
    parts = dict(zip(stress_pairs(len(k)), jnp.unstack(stress), strict=True))
    rows = []
    for i in range(len(k)):
        row: SpectralScalar | float = 0.0
        for j, q in enumerate(k):
            if (part := parts.get((min(i, j), max(i, j)))) is not None:
                row = row + q * part
        rows.append(row)
    return 1j * jnp.stack(rows)


def solenoidal_divergence(
    layout: Layout, stress: Complex[Array, "pair ka kb kc"]
) -> SpectralVector:
    """`project` of `divergence_of_stress`, i (k_j T_ij - k_i k_j k_l T_jl / |k|^2): each component
    from the stress alone, because XLA would store the divergence and what `project` removes."""
    k = wavenumbers(layout, stress.real.dtype)
    inverse = inverse_square(k)
    parts = list(zip(stress_pairs(len(k)), jnp.unstack(stress), strict=True))
    rows = []
    for i, q in enumerate(k):
        row: SpectralScalar | float = 0.0
        for (j, m), part in parts:
            factor = -(1 if j == m else 2) * q * k[j] * k[m] * inverse
            if i == j:
                factor = factor + k[m]
            elif i == m:
                factor = factor + k[j]
            row = row + factor * part
        rows.append(row)
    return 1j * jnp.stack(rows)


def strain_rate(
    layout: Layout, u: SpectralVector, pairs: Sequence[tuple[int, int]] | None = None
) -> Complex[Array, "pair ka kb kc"]:
    """S_ij = (du_i/dx_j + du_j/dx_i) / 2 of these pairs of axes, by default xx, yy, zz, xy, xz, yz;
    in a plane xx, yy, xy."""
    k = wavenumbers(layout, u.real.dtype)
    pairs = pairs or symmetric_pairs(len(k))
    return 0.5j * jnp.stack([k[j] * u[i] + k[i] * u[j] for i, j in pairs])


class Momentum:
    """A form of the nonlinear force on the velocity: advection and, with `magnetic`, the Lorentz
    force."""

    def __init__(self, magnetic: bool = False):
        self.magnetic = magnetic

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        """Coefficients of the further fields whose values `products` uses."""
        return {}

    def products(self, values: PointValues) -> PointValues:
        """Products of values at a point, by name."""
        raise TypeError(f"{type(self).__name__} does not define products")

    def force(self, layout: Layout, products: Fields) -> SpectralVector:
        """The force, up to a gradient, from the coefficients of the products, to which a closure
        may have added a `stress`."""
        raise TypeError(f"{type(self).__name__} does not define force")

    def rate(
        self, layout: Layout, products: Fields, others: SpectralVector | float
    ) -> SpectralVector:
        """The solenoidal part of the force and of other accelerations, if there are any."""
        return project(layout, self.force(layout, products) + others)


class BasdevantStress(Momentum):
    """-div(u u - u_z^2 1): five products of three fields, so 3 + 5 transforms; in a plane 2 + 2.
    With `magnetic` -div(u u - b b) without this part of the trace: 6 + 8 transforms with the
    electromotive force.

    It equals -(u . grad) u up to the gradient of u_z^2. Aliased products of this form do not
    conserve energy, so it is used on grids whose products are exact. Basdevant, J. Comput. Phys.
    50, 209 (1983)."""

    def products(self, values: PointValues) -> PointValues:
        stress = stress_without_trace(values["velocity"])
        if self.magnetic:
            stress = stress - stress_without_trace(values["magnetic"])
        return {"stress": stress}

    def force(self, layout: Layout, products: Fields) -> SpectralVector:
        return -divergence_of_stress(layout, products["stress"])

    def rate(
        self, layout: Layout, products: Fields, others: SpectralVector | float
    ) -> SpectralVector:
        if not layout.on_gpu:
            return super().rate(layout, products, others)
        rate = -solenoidal_divergence(layout, products["stress"])
        return rate + project(layout, others) if isinstance(others, jax.Array) else rate


class Rotational(Momentum):
    """u x omega: three products of six fields, so 6 + 3 transforms; in a plane 3 + 2. With
    `magnetic` u x omega + j x b: 12 + 6 transforms with the electromotive force, with which it
    conserves energy, too.

    It is -(u . grad) u up to the gradient of u^2 / 2, and conserves energy even with aliased
    products: u . (u x omega) = 0. Canuto et al., Spectral Methods: Evolution to Complex Geometries
    (2007), section 3.3."""

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        inputs = {"vorticity": curl(layout, fields["velocity"])}
        if self.magnetic:
            inputs["current"] = curl(layout, fields["magnetic"])
        return inputs

    def products(self, values: PointValues) -> PointValues:
        force = cross(values["velocity"], values["vorticity"])
        if self.magnetic:
            force = force + cross(values["current"], values["magnetic"])
        return {"force": force}

    def force(self, layout: Layout, products: Fields) -> SpectralVector:
        if "stress" not in products:
            return products["force"]
        return products["force"] - divergence_of_stress(layout, products["stress"])


class PrescribedVelocity(Momentum):
    """No force: 6 + 3 transforms per tendency for the electromotive force alone."""

    def products(self, values: PointValues) -> PointValues:
        return {}

    def force(self, layout: Layout, products: Fields) -> SpectralVector:
        return jnp.zeros_like(products["emf"])


def advection_of(grid: Grid, magnetic: bool = False) -> Momentum:
    """The form with the fewest transforms that conserves energy: the stress if products are
    exact."""
    exact = grid.dealias != "none"
    return BasdevantStress(magnetic) if exact else Rotational(magnetic)
