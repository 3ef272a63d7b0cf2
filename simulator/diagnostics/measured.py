"""What a kind of output measures: named arrays over named coordinates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from simulator.diagnostics.spectra import Bins, flux, shell_spectra
from simulator.models.model import Fields, Spectral
from simulator.spectral import Layout


@dataclass(frozen=True)
class Measured:
    """`compute(fields)` gives every one of `variables`, with the shape of its dimensions; it can be compiled."""

    coordinates: Mapping[str, np.ndarray]
    variables: Mapping[str, tuple[str, ...]]
    """Dimensions by name."""
    compute: Callable[[Fields], dict[str, jax.Array]]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def joined(self, other: "Measured") -> "Measured":
        """Both together, in one file."""
        return Measured(
            {**self.coordinates, **other.coordinates},
            {**self.variables, **other.variables},
            lambda fields: self.compute(fields) | other.compute(fields),
            {**self.attributes, **other.attributes},
        )


def transfer(layout: Layout, model: Spectral, names: tuple[str, ...]) -> Measured:
    """Energy transfer T(k) by the nonlinear terms, `transfer/NAME`, and its flux to larger wavenumbers,
    `flux/NAME`: Pi(k) = -sum of T up to k. `names` are those of `model.transfers`."""

    def compute(fields: Fields) -> dict[str, jax.Array]:
        found = shell_spectra(layout, model.transfers(fields))
        fluxes = {f"flux/{n}": flux(t, layout.shell_width) for n, t in found.items()}
        return {f"transfer/{n}": t for n, t in found.items()} | fluxes

    variables = {f"{kind}/{n}": ("k",) for kind in ("transfer", "flux") for n in names}
    return Measured(
        {"k": layout.shell_wavenumbers()}, variables, compute, {"shell_width": layout.shell_width}
    )


def directional_spectra(layout: Layout, model: Spectral, axis: str, names: tuple[str, ...]) -> Measured:
    """Spectra against the wavenumber across and along an axis, `perpendicular/NAME` and `parallel/NAME`."""
    bins = {d: Bins(layout, axis, d) for d in ("perpendicular", "parallel")}

    def compute(fields: Fields) -> dict[str, jax.Array]:
        energies = model.spectral_energies(fields)
        return {f"{d}/{n}": b.spectrum(e) for d, b in bins.items() for n, e in energies.items()}

    return Measured(
        {f"k_{d}": b.wavenumbers() for d, b in bins.items()},
        {f"{d}/{n}": (f"k_{d}",) for d in bins for n in names},
        compute,
        {"axis": axis},
    )
