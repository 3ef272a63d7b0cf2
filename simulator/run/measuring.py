"""The series of a run beside its slices: spectra, transfer, structure functions, histograms, profiles, ..."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simulator.diagnostics.histograms import histograms
from simulator.diagnostics.matter import densities, log_densities, profiles, projections, real_transform
from simulator.diagnostics.measured import Measured, directional_spectra, transfer
from simulator.diagnostics.structure import default_separations, structure_functions
from simulator.models import Fields, State, own_transforms
from simulator.models.model import Spectral
from simulator.run.series import Series
from simulator.run.simulation import Simulation

KINDS = ("transfer", "structure_functions", "histograms", "profiles", "projections")
"""Those that are only written where asked for."""


def measured(simulation: Simulation, kind: str) -> Measured:
    """What a kind of series measures. Raises UserError where the model has nothing of the sort."""
    model, transform, layout = simulation.model, simulation.transform, simulation.transform.layout
    settings = getattr(simulation.config.output, kind)

    def names(function: Callable[[Fields], Any]) -> tuple[str, ...]:
        return tuple(jax.eval_shape(function, simulation.template.fields))

    def refused(what: str) -> Exception:
        return simulation.config.error(
            f"output.{kind}", f"{what}, which {simulation.config.model.kind} does not have"
        )

    match kind:
        case "transfer":
            if not isinstance(model, Spectral):
                raise refused("needs energy transfers between modes")
            return transfer(layout, model, names(model.transfers))
        case "structure_functions":
            if "velocity" not in model.components:
                raise refused("needs a velocity")
            return structure_functions(
                transform, settings.separations or default_separations(transform.grid), settings.orders
            )
        case "histograms":
            mass = densities(model)
            # Of fields that lie in spectral space in other ways only what their densities tell.
            plain = {} if own_transforms(model) or not layout.real else model.components
            if not plain and not mass:
                raise refused("needs real fields or a mass density")
            found = histograms(transform, plain, settings.bins, settings.range)
            if not mass:
                return found
            logs = log_densities(real_transform(model), mass, settings.bins, settings.decades)
            return found.joined(logs)
        case "profiles" | "projections":
            mass = densities(model)
            if not mass:
                raise refused("needs a mass density")
            if kind == "projections":
                return projections(real_transform(model), mass)
            return profiles(real_transform(model), mass, settings.bins, settings.range)
    shells = Measured(
        {"k": layout.shell_wavenumbers()},
        {name: ("k",) for name in names(model.spectra)},
        model.spectra,
        {"shell_width": layout.shell_width},
    )
    if settings.axis is None:
        return shells
    if not isinstance(model, Spectral):
        raise refused("axis: needs energies of modes")
    other = directional_spectra(layout, model, settings.axis, names(model.spectral_energies))
    return shells.joined(other)


def check_kinds(simulation: Simulation) -> None:
    """Refuses series that the model has nothing for."""
    for kind in KINDS:
        if getattr(simulation.config.output, kind) is not None:
            measured(simulation, kind)


class Measuring:
    """Takes rows of these series. Every process measures; `write` runs what it is given on process 0."""

    def __init__(self, simulation: Simulation, folder: Path, write: Callable[[Callable[[], object]], None]):
        self._folder, self._write = folder, write
        settings = simulation.config.output
        self._kinds = {
            kind: measured(simulation, kind)
            for kind in ("spectra", *KINDS)
            if getattr(settings, kind) is not None
        }
        self._compiled = {kind: jax.jit(found.compute) for kind, found in self._kinds.items()}
        self._files: dict[str, Series] = {}

    def take(self, kind: str, state: State) -> None:
        """One row of `KIND.h5`."""
        found = {k: np.asarray(v) for k, v in self._compiled[kind](state.fields).items()}
        self._write(lambda: self._file(kind).append(int(state.step), float(state.time), found))

    def _file(self, kind: str) -> Series:
        if kind not in self._files:
            m = self._kinds[kind]
            self._files[kind] = Series(
                self._folder / f"{kind}.h5", m.coordinates, m.variables, dict(m.attributes)
            )
        return self._files[kind]

    def files(self) -> Iterator[Series]:
        """All of them, opened; on process 0."""
        return (self._file(kind) for kind in self._kinds)
