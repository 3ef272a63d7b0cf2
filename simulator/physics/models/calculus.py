"""Derivatives of spectral fields, as an equation writes them."""

from functools import reduce
from operator import add

import jax.numpy as jnp
from jaxtyping import Array, Complex

from simulator.spectral import Transform, arrays, operators


class SpectralCalculus:
    """Wavenumbers, derivatives and means of coefficients in the layout of a transform."""

    transform: Transform

    @property
    def k(self) -> tuple[arrays.OverModes, ...]:
        """Wavenumbers (1/length) along the axes of the grid."""
        return self.transform.grid.seen(self.transform.layout.wavenumbers(self.transform.dtype))

    @property
    def k_squared(self) -> arrays.OfModes:
        """|k|^2 (1/length^2)."""
        return self.transform.layout.k_squared(self.transform.dtype)

    @property
    def inverse_k_squared(self) -> arrays.OfModes:
        """1 / |k|^2, and 0 at k = 0."""
        return self.transform.layout.inverse_k_squared(self.transform.dtype)

    def laplacian(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """-|k|^2 f."""
        return -self.k_squared * field

    def inverse_laplacian(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """-f / |k|^2, and 0 at k = 0."""
        return -self.inverse_k_squared * field

    def gradient(
        self, field: Complex[Array, "*component ka kb kc"]
    ) -> Complex[Array, "... ka kb kc"]:
        """i k f, with the direction of the derivative as the first axis."""
        if field.ndim == 3:
            return operators.gradient(self.transform.layout, field)
        return jnp.stack([1j * k * field for k in self.k])

    def divergence(self, field: arrays.SpectralVector) -> arrays.SpectralScalar:
        """i k . v; in a plane a third component of v is ignored, and a missing one is zero."""
        _check_vector("divergence", field, min(2, len(self.k)))
        parts = zip(self.k, jnp.unstack(field), strict=False)
        return 1j * reduce(add, (k * part for k, part in parts))

    def curl(self, field: Complex[Array, "... ka kb kc"]) -> Complex[Array, "... ka kb kc"]:
        """i k x v. In two dimensions the scalar d_x v_y - d_y v_x of a vector with two components,
        the vector (d_y f, -d_x f) of a scalar, or the curl, with three components, of a vector with
        three components."""
        if field.ndim > 3 or len(self.k) != 2:  # A scalar has a curl in a plane.
            _check_vector("curl", field, max(2, len(self.k)))
        if field.ndim > 3 and field.shape[0] > len(self.k):
            return 1j * operators.cross((*self.k, jnp.zeros((1, 1, 1))), field)
        return operators.curl(self.transform.layout, field)

    def rotated_gradient(self, field: arrays.SpectralScalar) -> Complex[Array, "2 ka kb kc"]:
        """The velocity (-d_y f, d_x f) in a plane of the stream function f."""
        if len(self.k) < 2:
            raise ValueError("rotated_gradient needs two axes, and the grid has one")
        kx, ky = self.k[:2]
        return jnp.stack([-1j * ky * field, 1j * kx * field])

    def project(self, field: arrays.SpectralVector) -> arrays.SpectralVector:
        """The solenoidal part of a vector, its mean included. In a plane a third component is left
        unchanged; a vector of two components in space is projected within their plane."""
        _check_vector("project", field)
        k = self.k[: len(field)]
        part = operators.project_with(k, field[: len(k)])
        return part if len(field) == len(k) else jnp.concatenate([part, field[len(k) :]])

    def fluctuation(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """The field without its box mean."""
        return operators.fluctuation(self.transform.layout, field)

    def mean_of(self, a: arrays.SpectralField, b: arrays.SpectralField) -> arrays.Number:
        """The box mean of the product of two fields, summed over their components."""
        return self.transform.layout.inner(a, b).sum()


def _check_vector(operator: str, field: Complex[Array, "..."], fewest: int = 2) -> None:
    """Raises ValueError unless the first axis of the field is that of components."""
    if field.ndim < 4 or not fewest <= len(field) <= 3:
        needed = ("one to three", "two or three", "three")[fewest - 1]
        raise ValueError(
            f"{operator} needs a vector of {needed} components, not an array of shape {field.shape}"
        )
