"""The fields of a state as the argument of a user's function."""

from collections.abc import Iterator, Mapping

import jax

from simulator.models import Fields, Model
from simulator.spectral import Layout


class FieldView(Mapping[str, jax.Array]):
    """Values of evolved and derived fields by name: `fields["velocity"]` is (3, x, y, z), without padding; in two
    dimensions there is no z.

    Values are computed on access, so a function pays only for the fields that it uses. Everything is traced by JAX:
    the arrays are distributed over the devices, and sums over points are sums over all devices.
    """

    def __init__(self, model: Model, fields: Fields):
        self._model, self._fields = model, fields

    def __getitem__(self, name: str) -> jax.Array:
        if name not in self._model.specs():
            raise KeyError(f"{name}; the model has {', '.join(self)}")
        grid = self._model.transform.grid
        inside = (slice(n) for n in grid.seen(grid.shape))
        return self._model.field_values(name, self._fields)[(..., *inside)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.specs())

    def __len__(self) -> int:
        return len(self._model.specs())

    @property
    def points(self) -> tuple[jax.Array, ...]:
        """The coordinates x, y, z of the grid points, which broadcast to (x, y, z); in two dimensions x, y."""
        physical = self._model.transform.physical
        grid = physical.grid
        x, y, z = physical.coordinates()
        xyz = x[: grid.shape[0]], y[:, : grid.shape[1]], z[:, :, : grid.shape[2]]
        return tuple(a[0] for a in grid.seen(xyz)) if grid.planar else xyz

    def modes(self, name: str) -> jax.Array:
        """Fourier coefficients of an evolved field, in the order of `layout`; padding is zero."""
        return self._fields[name]

    @property
    def layout(self) -> Layout:
        """The layout of the modes: `layout.wavenumbers()`, `layout.shell_sum(energy)`, ..."""
        return self._model.transform.layout
