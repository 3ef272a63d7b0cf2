"""The measurement of a kind of output: named arrays over named coordinates."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from simulator.models import Model, State
from simulator.spectral import Layout
from simulator.spectral.bins import Bins, flux, shell_spectra, spectral_map
from simulator.spectral.layout import PhysicalLayout


@dataclass(frozen=True)
class Carried:
    """Arrays that a series carries from row to row, such as sums over time. They stay on the devices and are part of
    every checkpoint. `begin` and `update` can be compiled.

    If an earlier start of the run did not write the series, it begins with the next row.
    """

    begin: Callable[[], dict[str, jax.Array]]
    """The arrays before the first row."""
    update: Callable[[State, Mapping[str, jax.Array]], dict[str, jax.Array]]
    """The arrays after adding a state; called whenever a row is due, before the row is computed."""
    places: Mapping[str, Layout | PhysicalLayout] = field(default_factory=dict)
    """Layouts of the arrays whose last three axes are modes or grid points; all others are small and replicated."""
    fields: Callable[[Mapping[str, jax.Array]], dict[str, jax.Array]] | None = None
    """Fields (..., x, y, z) that snapshots hold beside the model's, by name, made from the arrays; compiled."""


@dataclass(frozen=True)
class Measured:
    """`compute(state)` returns all `variables`, with the shapes of their dimensions; it can be compiled.

    With `carried` it is `compute(state, arrays)`.
    """

    coordinates: Mapping[str, np.ndarray]
    variables: Mapping[str, tuple[str, ...]]
    """Dimensions by name."""
    compute: Callable[..., dict[str, jax.Array]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    beside: Callable[[], Mapping[str, tuple[str, np.ndarray]]] = dict
    """Further properties of the points of a coordinate, stored once: name to (coordinate, values). All processes have
    to call it."""
    carried: Carried | None = None

    def joined(self, other: "Measured") -> "Measured":
        """Both measurements in one file; neither may carry arrays."""
        return Measured(
            {**self.coordinates, **other.coordinates},
            {**self.variables, **other.variables},
            lambda state: self.compute(state) | other.compute(state),
            {**self.attributes, **other.attributes},
            lambda: {**self.beside(), **other.beside()},
        )


def in_shells(
    layout: Layout, names: Iterable[str], compute: Callable[[State], dict[str, jax.Array]]
) -> Measured:
    """Quantities (shells,) as functions of the shells' wavenumbers `k`, with the number of `modes` in each shell and
    their mean wavenumber `k_mean`."""

    def beside() -> dict[str, tuple[str, np.ndarray]]:
        modes, mean = jax.jit(layout.shell_modes)()
        return {"modes": ("k", np.asarray(modes).astype(np.int64)), "k_mean": ("k", np.asarray(mean))}

    variables = {name: ("k",) for name in names}
    width = {"shell_width": layout.shell_width}
    return Measured({"k": layout.shell_wavenumbers()}, variables, compute, width, beside)


def transfer(layout: Layout, model: Model, names: tuple[str, ...]) -> Measured:
    """Energy transfer T(k) by the nonlinear terms, `transfer/NAME`, and its flux to larger wavenumbers,
    `flux/NAME`: Pi(k) = -sum of T up to k. `names` are those of `model.transfers`."""

    def compute(state: State) -> dict[str, jax.Array]:
        transfers = shell_spectra(layout, model.transfers(state.fields))
        fluxes = {f"flux/{n}": flux(t, layout.shell_width) for n, t in transfers.items()}
        return {f"transfer/{n}": t for n, t in transfers.items()} | fluxes

    return in_shells(layout, [f"{kind}/{n}" for kind in ("transfer", "flux") for n in names], compute)


def directional_spectra(layout: Layout, model: Model, axis: str, names: tuple[str, ...]) -> Measured:
    """Spectra of the wavenumber across and along an axis, `perpendicular/NAME` and `parallel/NAME`."""
    bins = {d: Bins(layout, axis, d) for d in ("perpendicular", "parallel")}

    def compute(state: State) -> dict[str, jax.Array]:
        energies = model.spectral_energies(state.fields)
        return {f"{d}/{n}": b.spectrum(e) for d, b in bins.items() for n, e in energies.items()}

    return Measured(
        {f"k_{d}": b.wavenumbers() for d, b in bins.items()},
        {f"{d}/{n}": (f"k_{d}",) for d in bins for n in names},
        compute,
        {"axis": axis},
    )


def spectral_maps(layout: Layout, model: Model, axis: str, names: tuple[str, ...]) -> Measured:
    """`NAME` (k_perpendicular, k_parallel): energy per area of the plane of the wavenumbers across and along an axis.
    Sums along either, times the bins' width, are the spectra of `directional_spectra`."""
    across, along = Bins(layout, axis, "perpendicular"), Bins(layout, axis, "parallel")

    def compute(state: State) -> dict[str, jax.Array]:
        energies = model.spectral_energies(state.fields)
        return {n: spectral_map(across, along, layout, e) for n, e in energies.items()}

    coordinates = {"k_perpendicular": across.wavenumbers(), "k_parallel": along.wavenumbers()}
    return Measured(coordinates, dict.fromkeys(names, tuple(coordinates)), compute, {"axis": axis})
