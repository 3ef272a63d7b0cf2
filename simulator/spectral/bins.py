"""Spectra: sums over shells, cylinders and planes of spectral space."""

from collections.abc import Mapping
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from simulator.spectral import Layout
from simulator.spectral.arrays import OfModes, Spectrum
from simulator.spectral.grid import shell_at

Direction = Literal["perpendicular", "parallel"]


def shell_spectra(layout: Layout, energies: Mapping[str, OfModes]) -> dict[str, Spectrum]:
    """E(k) by name. The sum of E(k) over the shells, times the shells' width, is the energy of all
    modes."""
    return {
        name: layout.shell_sum(energy) / layout.shell_width for name, energy in energies.items()
    }


def flux(transfer: Spectrum, width: float) -> Spectrum:
    """Pi(k), the flux to larger wavenumbers: minus the sum of the transfer T up to k times the
    shells' width."""
    return -jnp.cumsum(transfer, -1) * width


class Bins:
    """Bins of width dk of the wavenumber along an axis (`parallel`), or across it
    (`perpendicular`). `axis` is the user's name of the axis.

    dk is the largest fundamental wavenumber of the axes concerned; for `perpendicular`, if the
    configuration sets the width of the shells, dk is that width. Bins are numbered like shells
    (`shell_at`), and every mode lies in one bin: the sum over all bins is the sum over all
    modes."""

    def __init__(self, layout: Layout, axis: str, direction: Direction):
        named = {name: a for a, name in layout.grid.names.items()}
        self._layout, self._axis, self._direction = layout, named[axis], direction
        units = layout.grid.fundamental
        axes = [a for a in layout.grid.axes if (a == self._axis) == (direction == "parallel")]
        present = [units["xyz".index(a)] for a in axes if layout.grid.shape["xyz".index(a)] > 1]
        self.width = max(present, default=layout.shell_width)
        if direction == "perpendicular" and layout.grid.given_shell_width is not None:
            self.width = layout.grid.given_shell_width
        self.count = int(shell_at(sum(layout.reach(a) ** 2 for a in axes) ** 0.5 / self.width)) + 1

    def wavenumbers(self) -> Float[np.ndarray, "bin"]:
        """Central wavenumber (1/length) of each bin."""
        return np.arange(self.count) * self.width

    def numbers(self) -> Int[Array, "#ka #kb #kc"]:
        """The bin of each mode."""
        k = dict(zip("xyz", self._layout.wavenumbers(), strict=True))
        along = k.pop(self._axis)
        across = sum(other**2 for other in k.values())
        radius = abs(along) if self._direction == "parallel" else jnp.sqrt(across)  # type: ignore[arg-type]
        return jnp.minimum(shell_at(radius / self.width).astype(jnp.int32), self.count - 1)


def spectral_map(
    across: Bins, along: Bins, layout: Layout, energy: OfModes
) -> Float[Array, "across along"]:
    """The energy of modes per area of the plane of the wavenumbers across and along the axis,
    conjugate modes included."""
    number = across.numbers() * along.count + along.numbers()
    (sums,) = layout.binned(
        number, (layout.weight(energy.dtype) * energy)[None], across.count * along.count
    )
    return sums.reshape(across.count, along.count) / (across.width * along.width)
