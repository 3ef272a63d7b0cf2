"""What a forcing offers, and the band of modes that some of them act in."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, BeforeValidator

from simulator.errors import UserError
from simulator.initial.initial import Files
from simulator.models.model import Fields
from simulator.settings import NonNegative, Settings
from simulator.spectral import Grid, Layout, Transform


class Forced(Protocol):
    """What a forcing knows of the model that it acts on."""

    components: Mapping[str, tuple[int, ...]]
    solenoidal: tuple[str, ...]


def accelerated(model: Forced) -> Mapping[str, tuple[int, ...]]:
    """Fields that a force accelerates, and their leading shape. Gas, which evolves its momentum, says `velocity`."""
    return getattr(model, "accelerated", model.components)


def momentum(fields: Fields) -> jax.Array:
    """What a force works on: the box mean of momentum . acceleration is the energy gained per time. That of an
    incompressible flow, of density 1, is its velocity."""
    return fields["momentum"] if "momentum" in fields else fields["velocity"]


class Forcing(Protocol):
    """An acceleration of the velocity (or of other fields), as coefficients; a pure function of state and memory.

    Raises UserError in `__init__` where it cannot act: the message names the key after `forcing.` first.
    """

    Settings: ClassVar[type[Settings]]

    def __init__(self, settings: Any, transform: Transform, model: Forced, files: Files) -> None: ...

    def memory(self) -> dict[str, jax.Array]:
        """What it carries from step to step, at the beginning; part of the state and of every checkpoint."""
        ...

    def renewed(self, memory: dict[str, Any], step: jax.Array, dt: jax.Array) -> dict[str, Any]:
        """Its memory after step number `step`, of length dt."""
        ...

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        """Accelerations by field; solenoidal for solenoidal fields."""
        ...


class Memoryless:
    """The two methods of a forcing that carries nothing."""

    def memory(self) -> dict[str, jax.Array]:
        return {}

    def renewed(self, memory: dict[str, Any], step: jax.Array, dt: jax.Array) -> dict[str, Any]:
        return {}


def needs_velocity(model: Forced, kind: str) -> None:
    """Refuses a model that has no velocity to accelerate."""
    if "velocity" not in accelerated(model):
        raise UserError(
            f"kind: {kind} accelerates the velocity, which this model does not have "
            f"(its fields are {', '.join(model.components)})"
        )


def _two(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"two wavenumbers are needed, lowest and highest, not {value!r}")
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


def band_modes(grid: Grid, band: tuple[float, float]) -> np.ndarray:
    """Signed integer wavenumbers (M, 3) of a band's modes, one of each pair k, -k, in a fixed order.

    Raises UserError where there are none.
    """
    reach = [
        min(kept, int(band[1] * (1 + _MARGIN) / unit))
        for kept, unit in zip(grid.kept, grid.fundamental, strict=True)
    ]
    ranges = np.arange(-reach[0], reach[0] + 1), np.arange(-reach[1], reach[1] + 1), np.arange(reach[2] + 1)
    labels = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, 3)
    k2 = ((labels * np.array(grid.fundamental)) ** 2).sum(1)
    kx, ky, kz = labels.T
    first = (kz > 0) | ((kz == 0) & ((ky > 0) | ((ky == 0) & (kx > 0))))
    inside = (k2 >= band[0] ** 2 * (1 - _MARGIN)) & (k2 <= band[1] ** 2 * (1 + _MARGIN))
    if grid.dealias == "spherical":
        inside &= ((2 * labels / np.array(grid.shape)) ** 2).sum(1) < 8 / 9 - 1e-12
    found = labels[first & inside]
    if not len(found):
        lowest = min(u for u, kept in zip(grid.fundamental, grid.kept, strict=True) if kept)
        raise UserError(
            f"band: [{band[0]:g}, {band[1]:g}] holds no mode of this grid; "
            f"wavenumbers begin at {lowest:g}, and {grid.largest_wavenumber:g} is kept in all directions"
        )
    return found


class Embedding:
    """Puts the coefficients of few modes, which every device holds, to their places in spectral arrays."""

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
        # Axis by axis, each device takes the wavenumbers that it holds: no communication.
        for position, axis in enumerate(layout.order, 1):
            n = int(reach["xyz".index(axis)])
            labels = layout.integers(axis).ravel()
            taken = jnp.take(field, jnp.clip(labels + n, 0, 2 * n), axis=position)
            shape = [-1 if i == position else 1 for i in range(4)]
            field = jnp.where((abs(labels) <= n).reshape(shape), taken, 0)
        return layout.hold(field)
