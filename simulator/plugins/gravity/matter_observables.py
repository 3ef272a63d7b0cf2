"""Observables of all matter of a composite, and of each component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simulator.physics.models import fields as specs
from simulator.physics.models import outputs
from simulator.physics.models.fields import DerivedField, MatterFields
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.physics.models.split_equation import SplitEquation
from simulator.plugins.gravity.cosmology import Background, mean_density
from simulator.plugins.gravity.density import by_axis, center, density_power
from simulator.spectral.arrays import Number, PhysicalScalar, SpectralScalar, Spectrum

if TYPE_CHECKING:
    from simulator.plugins.gravity.composite import Composite, Matter

MOMENTUM = ("mean_momentum_x", "mean_momentum_y", "mean_momentum_z")
SHARED = ("energy", "potential_energy", "virial_ratio", "rate", "scale_factor")
"""Columns of the composite."""
EXPECTED = "expected_energy"
"""Name of an array of five numbers in the state's memory: the energy at the start plus the work of
the expansion since then; the scale factor and the slope dE/da at the last kick; and both at the
kick before."""


class AllMatter(Observable["Composite"]):
    pictured = ("speed", "density")

    def trouble(self, model: Composite, fields: MatterFields) -> tuple[str, str] | None:
        """The reason why a run cannot continue from these fields, and a remedy; None if it can."""
        for name, part in model.parts.items():
            if (reason := part.trouble(model.of(name, fields))) is not None:
                return f"{name}: {reason[0]}", reason[1]
        return None

    def conserved(self, model: Composite) -> Sequence[str]:
        kept = [
            f"{name}_mass"
            for name, part in model.parts.items()
            if part.population is not None or "mass" in outputs.conserved(part.alone)
        ]
        return (["mass"] if len(kept) == len(model.parts) else []) + kept

    def columns(self, model: Composite, fields: MatterFields, row: Row) -> Columns:
        """Columns of all matter, then of each component with its name. Energies are box means;
        `internal_energy` is the energy of the components without gravity and motion: heat, quantum
        pressure, interaction, traps. The potential energy of a component is half the mean of its
        density times the potential of all matter.

        In an expanding background `energy_residual` is the energy minus its value at the start and
        the work of the expansion since then (Layzer-Irvine): 0 but for errors of time steps and
        grid, and dissipation."""
        layout = model.transform.layout
        rows = {
            name: part.diagnostics(model.of(name, fields), row.time)
            for name, part in model.parts.items()
        }
        moment = model.moment(fields, row.time)
        values = moment.values
        modes = model.density_modes(moment.values)
        shares = _potential_energies(model, moment, modes)

        def summed(column: str) -> jax.Array:
            return total(columns[column] for columns in rows.values())

        gravity = total(shares.values())
        parts_energy = summed("energy")
        kinetic = summed("kinetic_energy")
        columns = {
            "energy": parts_energy + gravity,
            "kinetic_energy": kinetic,
            "internal_energy": parts_energy - kinetic,
            "potential_energy": gravity,
            "mass": summed("mass"),
            "max_density": model.transform.physical.max(total(values.values())),
            **{name: summed(name) for name in MOMENTUM},
            **by_axis(layout.grid, "center", center(layout, total(modes.values()))),
        }
        columns |= _of_expansion(model, fields, moment, columns["energy"], row.time)
        columns |= _of_components(model, rows, values, shares)
        rates = (
            part.rate(model.of(n, fields), moment.works[n], rows[n], moment.potential, row.time)
            for n, part in model.parts.items()
        )
        return columns | {"rate": reduce(jnp.maximum, rates)}

    def spectra(self, model: Composite, fields: MatterFields) -> dict[str, Spectrum]:
        """P(k) of all matter, and the components' spectra; 0 in shells where a component has no
        modes. From P(k) of particles the window of the assignment is divided out; the shot noise is
        left in."""
        layout = model.transform.layout
        modes = model.density_modes(model.densities(fields)[0])
        spectra = {"density_power": density_power(layout, total(modes.values()))}
        for name, part in model.parts.items():
            part_spectra = part.spectra(model.of(name, fields))
            if part.population is not None:
                part_spectra = {"density_power": density_power(layout, modes[name]), **part_spectra}
            for quantity, spectrum in part_spectra.items():
                spectra[f"{name}_{quantity}"] = jnp.pad(
                    spectrum, (0, layout.shells - len(spectrum))
                )
        return spectra

    def spectra_attributes(self, model: Composite) -> Mapping[str, str]:
        sizes = [f"{name}_shot_noise" for name in model.populations]
        if not sizes:
            return {}
        left_in = ", ".join(f"{name}_density_power" for name in model.populations)
        return {
            "shot_noise": f"not subtracted from {left_in}; {', '.join(sizes)} in diagnostics.csv"
        }

    def derived(self, model: Composite) -> Mapping[str, DerivedField]:
        def of(name: str, field: DerivedField) -> DerivedField:
            spec = field.spec.of_component(name)
            return DerivedField(spec, lambda fields: field.values(model.of(name, fields)))

        parts = [
            of(name, field)
            for name, part in model.parts.items()
            for field in part.derived().values()
            if field.spec.name != specs.POTENTIAL.name
        ]
        density = DerivedField(
            specs.DENSITY, lambda fields: total(model.densities(fields)[0].values())
        )
        potential = DerivedField(
            specs.POTENTIAL, lambda fields: model.moment(fields).potential.values
        )
        return specs.by_name(density, potential, *parts)


class ExpandingMatter(Observable[SplitEquation]):
    """Matter that should be that of its expanding background."""

    def warnings(self, model: SplitEquation, row: Mapping[str, float]) -> dict[str, str]:
        """Warns if the mean density differs from that of the background, or if velocities of
        particles are below half or above twice those of linear growth, K / |W| = (dD/d tau)^2 / (D
        d^2 D/d tau^2)."""
        background = model.background
        if not isinstance(background, Background) or not background.gravity:
            return {}
        lines = {}
        wanted = mean_density(background.settings, float(background.gravity))
        ratio = row["mass"] / model.transform.grid.volume / wanted
        if abs(ratio - 1) > 1e-3:
            means = f"the mean density is {ratio:.3g} times that of the background's matter, {wanted:.6g}"
            lines["mean"] = f"{means}; structure then does not grow as in this background"
        # Small waves oscillate, with more kinetic energy than growing structure has.
        kinetic = sum(row[f"{name}_kinetic_energy"] for name in model.populations)
        potential = -sum(row[f"{name}_potential_energy"] for name in model.populations)
        a = background.scale_factor_at(row["time"])
        # A lattice has no potential, and particles at rest have no wrong velocities.
        depth = background.gravity * wanted**2 * a * max(model.transform.grid.box) ** 2
        if kinetic > 0 and potential > 1e-10 * depth:
            now = background.grown(a)
            speed = (kinetic / potential * now.first * now.pull / now.speed**2) ** 0.5
            if not 0.5 < speed < 2:
                means = (
                    f"velocities are {speed:.3g} times those of growing structure at a = {a:.3g}"
                )
                lines["growth"] = (
                    f"{means}; a file may have others than those that its format defines"
                )
        return lines


def _potential_energies(
    model: Composite, moment: Matter, modes: Mapping[str, SpectralScalar]
) -> Columns:
    """The potential energy of each component, by its name."""
    inner = model.transform.layout.inner
    phi = moment.potential.modes
    return {n: 0.5 * inner(model.parts[n].softened(density), phi) for n, density in modes.items()}


def _of_components(
    model: Composite,
    rows: Mapping[str, Columns],
    values: Mapping[str, PhysicalScalar],
    shares: Columns,
) -> Columns:
    """The columns of each component, with its name before those of its row."""
    columns: Columns = {}
    for name, row in rows.items():
        columns |= {f"{name}_{column}": x for column, x in row.items() if column not in SHARED}
        columns.setdefault(f"{name}_max_density", model.transform.physical.max(values[name]))
        columns[f"{name}_potential_energy"] = shares[name]
    return columns


def _of_expansion(
    model: Composite, fields: MatterFields, moment: Matter, energy: Number, time: Number
) -> Columns:
    """`scale_factor` and `energy_residual` in an expanding background."""
    if model.background is None:
        return {}
    scale_factor = model.background.scale_factor(time)
    residual = jnp.zeros(())
    if EXPECTED in fields:
        slope = model.energy_slope(moment, time)
        residual = energy - continued(fields[EXPECTED], scale_factor, slope)[0]
    return {"scale_factor": scale_factor, "energy_residual": residual}


def continued(
    carried: Float[Array, " 5"], scale_factor: Number, slope: Number
) -> Float[Array, " 5"]:
    """`EXPECTED` at this scale factor: the slope is integrated as the parabola through its last
    three values.

    The error of the trapezoid rule, although of the order of the splitting, would be as large as
    that of the steps."""
    energy, a1, s1, a0, s0 = carried
    s2 = slope.astype(jnp.float64)
    h = scale_factor - a1
    before = a1 - a0
    # The last kick of a step and the first of the next are at one time.
    moved = abs(h) > 1e-10 * scale_factor
    h = jnp.where(moved, h, 1.0)
    bend = (s2 - s1) / h - (s1 - s0) / jnp.where(before == 0, 1.0, before)
    bend = jnp.where(before == 0, 0.0, bend / jnp.where(before == 0, 1.0, h + before))
    new = jnp.stack([energy + h * (s1 + s2) / 2 - h**3 / 6 * bend, scale_factor, s2, a1, s1])
    return jnp.where(moved, new, carried)


def total(terms: Iterable[jax.Array]) -> jax.Array:
    """The sum of arrays of one shape."""
    return reduce(jnp.add, terms)
