"""The prior of a flow's start: a mean, and a covariance that is diagonal in wavenumber and
isotropic.

A field is mean + B^(1/2) xi, without divergence where the model keeps it solenoidal. xi has unit
variance, and B^(1/2) is the root of the variance of a mode in each shell, for every component
alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from simulator.errors import UserError
from simulator.physics.initial.random import tabulated
from simulator.physics.models import Fields
from simulator.plugins.assimilation.settings import BackgroundSettings
from simulator.simulation.initial_state import without_divergence
from simulator.simulation.simulation import Simulation
from simulator.spectral.arrays import OverModes
from simulator.spectral.layout import Layout
from simulator.spectral.random import Stream, gaussian


@dataclass(frozen=True)
class Prior:
    mean: Fields  # All fields of the start.
    root: Mapping[str, jax.Array]  # B^(1/2) of the uncertain fields, (*modes).
    simulation: Simulation

    def fields(self, xi: Mapping[str, jax.Array]) -> Fields:
        """The initial state with the control variables `xi`, (component, *modes). Their plain inner
        product is that of the prior, because a coefficient that also represents its conjugate gets
        half of the variance."""
        deviation = self.deviation(xi)
        return {n: f + deviation[n] if n in deviation else f for n, f in self.mean.items()}

    def deviation(self, xi: Mapping[str, jax.Array]) -> Fields:
        """The difference of the uncertain fields from the mean."""
        model = self.simulation.model
        deviation = {}
        for name, root in self.root.items():
            layout = model.transforms[name].layout
            part = layout.constrain(root / jnp.sqrt(copies(layout, root.dtype)) * xi[name])
            deviation[name] = without_divergence(model, part) if name in model.solenoidal else part
        return deviation

    def drawn(self, stream: Stream, number: int | jax.Array) -> dict[str, jax.Array]:
        """Standard normal control variables, the `number`-th of a stream, the same on any number of
        devices."""
        model = self.simulation.model
        drawn = {}
        for field, (name, root) in enumerate(self.root.items()):
            layout = model.transforms[name].layout
            lead = model.shapes[name]
            weight = jnp.sqrt(copies(layout, root.dtype))
            seed = number * len(self.root) + field
            noise = gaussian(layout, seed, prod(lead), root.dtype, stream)
            drawn[name] = layout.constrain(weight * noise.reshape(*lead, *layout.shape))
        return drawn


def uncertain_fields(settings: BackgroundSettings, simulation: Simulation) -> list[str]:
    """The names of the fields whose start the prior describes. Raises UserError if the run has
    particles, or if the model does not have these fields."""
    if simulation.populations:
        names = ", ".join(simulation.populations)
        raise UserError(
            f"a prior describes fields; this run has particles ({names}): leave them out"
        )
    known = [name for name, spec in simulation.model.fields.items() if not spec.complex]
    if not known:
        raise UserError("a prior describes real fields, and this model has none")
    if settings.spectrum:
        for name in settings.spectrum:
            if name not in known:
                raise UserError(f"spectrum: unknown field {name!r}; known: {', '.join(known)}")
        return list(settings.spectrum)
    inputs = cast(Any, simulation.inputs)
    stored = [inputs.snapshot(str(path)).components for path in settings.folders()]
    if not stored:
        raise UserError("snapshots: none is there")
    names = [name for name in known if all(name in components for components in stored)]
    if not names:
        raise UserError(f"snapshots: hold none of {', '.join(known)}")
    return names


def background(settings: BackgroundSettings, simulation: Simulation) -> Prior:
    """The prior. Raises UserError as `uncertain_fields` does, and for files that cannot be read."""
    names = uncertain_fields(settings, simulation)
    inputs = cast(Any, simulation.inputs)
    model = simulation.model
    first = simulation.state.fields
    mean: dict[str, Any] = dict(first)
    root: dict[str, jax.Array] = {}
    if settings.spectrum:
        for name, path in settings.spectrum.items():
            shape = tabulated(inputs, path, "E(k)")
            root[name] = jax.jit(partial(_of_spectrum, simulation, name, shape))()
    else:
        stored = [inputs.snapshot(str(path)) for path in settings.folders()]
        for name in names:
            samples = [s.coefficients(name, model.transforms[name]) for s in stored]
            mean[name] = (
                first[name]
                if settings.mean == "initial"
                else sum(samples[1:], samples[0]) / len(samples)
            )
            centre = mean[name] if settings.mean == "snapshots" else 0
            root[name] = jax.jit(partial(_of_samples, simulation, name))(samples, centre)
    if settings.mean == "zero":
        mean |= {name: jnp.zeros_like(first[name]) for name in root}
    return Prior(mean, root, simulation)


def copies(layout: Layout, dtype: DTypeLike) -> OverModes:
    """The number of modes that a coefficient represents: 2 with its conjugate, else 1."""
    return jnp.maximum(layout.weight(dtype), 1)


def freedom(simulation: Simulation, name: str) -> int:
    """The number of independent components of a mode: one less for a solenoidal field."""
    lead = prod(simulation.model.shapes[name])
    model = simulation.model
    return lead - 1 if name in model.solenoidal else lead


def _spread(
    simulation: Simulation, name: str, variance: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """B^(1/2) over modes from the function of the modes in each shell to the variance of the
    shell."""
    layout = simulation.model.transforms[name].layout
    modes, _ = layout.shell_modes()
    each = variance(modes) / jnp.maximum(modes, 1) / freedom(simulation, name)
    root = jnp.where(layout.mask, jnp.sqrt(each)[layout.shell_numbers()], 0)
    return layout.constrain(root.astype(simulation.dtype))


def _of_spectrum(
    simulation: Simulation, name: str, shape: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    layout = simulation.model.transforms[name].layout
    k = jnp.asarray(layout.shell_wavenumbers())
    energy = jnp.where(k > 0, shape(jnp.where(k > 0, k, 1)), 0) * layout.shell_width
    return _spread(simulation, name, lambda modes: 2 * energy)


def _of_samples(
    simulation: Simulation, name: str, samples: list[jax.Array], centre: jax.Array | int
) -> jax.Array:
    layout = simulation.model.transforms[name].layout
    lost = 1 if not isinstance(centre, int) else 0
    squares: Any = 0
    for sample in samples:
        off = (sample - centre).reshape(-1, *layout.shape)
        squares = squares + layout.shell_sum((off.real**2 + off.imag**2).sum(0))
    return _spread(simulation, name, lambda modes: squares / max(len(samples) - lost, 1))
