"""The contract of a forcing, and the band of modes that some of them act in."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, BeforeValidator

from simulator.errors import UserError, shown
from simulator.physics.initial.initial import StartFiles
from simulator.physics.models import Fields, Model
from simulator.settings import NonNegative, Settings
from simulator.spectral import Grid, Layout, Transform


def momentum(fields: Fields) -> jax.Array:
    """The momentum density: the box mean of its product with the acceleration is the power per volume. In an
    incompressible flow of density 1 it is the velocity."""
    return fields["momentum"] if "momentum" in fields else fields["velocity"]


class Forcing:
    """An acceleration of the velocity (or of other fields), as coefficients; a pure function of state and memory.

    By default it has no memory. `__init__` raises UserError if the forcing cannot act on the model; the message
    starts with the key after `forcing.`.
    """

    Settings: ClassVar[type[Settings]]

    def __init__(self, settings: Any, transform: Transform, model: Model, files: StartFiles) -> None:
        self.settings, self.transform, self.model = settings, transform, model

    def memory(self) -> dict[str, jax.Array]:
        """The initial value of the arrays that it carries from step to step in the state and in checkpoints."""
        return {}

    def renewed(self, memory: dict[str, Any], step: jax.Array, dt: jax.Array) -> dict[str, Any]:
        """The memory after step number `step` of length dt."""
        return {}

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        """Accelerations by field; solenoidal for solenoidal fields."""
        raise TypeError(f"{type(self).__name__} does not define acceleration")


def needs_velocity(model: Model, kind: str) -> None:
    """Refuses a model that has no velocity to accelerate."""
    dimensions = len(model.transform.grid.axes)
    if model.accelerated.get("velocity") != (dimensions,):
        number = ("two", "three")[dimensions - 2]
        raise UserError(
            f"kind: {kind} accelerates a velocity with {number} components, which this model does not have "
            f"(its fields are {', '.join(model.fields)})"
        )


def _two(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"two wavenumbers are needed, lowest and highest, not {shown(value)}")
    return value


def _rising(band: tuple[float, float]) -> tuple[float, float]:
    if band[0] > band[1]:
        raise ValueError(f"lowest and highest wavenumber, not {band[0]:g} before {band[1]:g}")
    return band


Band = Annotated[tuple[NonNegative, NonNegative], BeforeValidator(_two), AfterValidator(_rising)]
"""Lowest and highest wavenumber |k| (1/length) of the modes that are forced, both included; k = 0 never is."""

_MARGIN = 1e-9


def in_band(layout: Layout, band: tuple[float, float]) -> jax.Array:
    """True at the modes of a band."""
    k2 = layout.k_squared()
    low, high = band[0] ** 2 * (1 - _MARGIN), band[1] ** 2 * (1 + _MARGIN)
    return (k2 >= low) & (k2 <= high) & (k2 > 0) & layout.mask


MOST_MODES = 2**22
"""Modes in the box around a band whose coefficients every device holds: wavenumbers up to about 100."""


def _reach(grid: Grid, band: tuple[float, float]) -> list[int]:
    """The largest integer wavenumber along each axis."""
    return [
        int(min(kept, band[1] * (1 + _MARGIN) / unit))
        for kept, unit in zip(grid.kept, grid.fundamental, strict=True)
    ]


def _volume(reach: Sequence[int]) -> int:
    return (2 * reach[0] + 1) * (2 * reach[1] + 1) * (reach[2] + 1)


def check_band(grid: Grid, band: tuple[float, float]) -> None:
    """Raises UserError if a band contains no mode of the grid. Wide bands are checked without listing their modes."""
    reach = _reach(grid, band)
    lowest = band[0] * (1 - _MARGIN)
    on_an_axis = any(n and n * unit >= lowest for n, unit in zip(reach, grid.fundamental, strict=True))
    if not on_an_axis and _volume(reach) <= MOST_MODES:
        band_modes(grid, band)


def band_modes(grid: Grid, band: tuple[float, float]) -> np.ndarray:
    """Signed integer wavenumbers (M, 3) of a band's modes, one of each pair k, -k, in a fixed order.

    Raises UserError if there are none.
    """
    reach = _reach(grid, band)
    if _volume(reach) > MOST_MODES:
        raise UserError(
            f"band: [{band[0]:g}, {band[1]:g}] reaches over {_volume(reach):.2g} modes, which every device would "
            f"hold; a lower highest wavenumber is needed (at most {MOST_MODES} modes)"
        )
    ranges = np.arange(-reach[0], reach[0] + 1), np.arange(-reach[1], reach[1] + 1), np.arange(reach[2] + 1)
    mode_numbers = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, 3)
    k2 = ((mode_numbers * np.array(grid.fundamental)) ** 2).sum(1)
    kx, ky, kz = mode_numbers.T
    first = (kz > 0) | ((kz == 0) & ((ky > 0) | ((ky == 0) & (kx > 0))))
    inside = (k2 >= band[0] ** 2 * (1 - _MARGIN)) & (k2 <= band[1] ** 2 * (1 + _MARGIN))
    if grid.spherical:
        inside &= ((2 * mode_numbers / np.array(grid.shape)) ** 2).sum(1) < 8 / 9 - 1e-12
    modes = mode_numbers[first & inside]
    if not len(modes):
        lowest = min(u for u, kept in zip(grid.fundamental, grid.kept, strict=True) if kept)
        raise UserError(
            f"band: [{band[0]:g}, {band[1]:g}] holds no mode of this grid; "
            f"wavenumbers begin at {lowest:g}, and {grid.largest_wavenumber:g} is kept in all directions"
        )
    return modes


class Embedding:
    """Scatters the coefficients of a few modes, which every device has, into spectral arrays."""

    def __init__(self, layout: Layout, modes: np.ndarray):
        self._layout, self._modes = layout, modes
        self._reach = np.abs(modes).max(0)

    def __call__(self, coefficients: jax.Array) -> jax.Array:
        """Spectral array (components, *order) from (M, components) of one mode of each pair k, -k."""
        layout, reach = self._layout, self._reach
        at, conjugate = (self._modes + reach).T, (-self._modes + reach).T
        cube = jnp.zeros((coefficients.shape[1], *(2 * reach + 1)), coefficients.dtype)
        cube = cube.at[:, *at].set(coefficients.T).at[:, *conjugate].set(coefficients.conj().T)
        field = jnp.transpose(cube, (0, *(1 + "xyz".index(a) for a in layout.order)))
        # Axis by axis, each device selects its own wavenumbers, without communication.
        for position, axis in enumerate(layout.order, 1):
            n = int(reach["xyz".index(axis)])
            mode_numbers = layout.integers(axis).ravel()
            taken = jnp.take(field, jnp.clip(mode_numbers + n, 0, 2 * n), axis=position)
            shape = [-1 if i == position else 1 for i in range(4)]
            field = jnp.where((abs(mode_numbers) <= n).reshape(shape), taken, 0)
        return layout.constrain(field)
