"""Observables of a wave function: energies, spectra, fields, vortices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simulator.physics.models import fields as specs
from simulator.physics.models.fields import DerivedField, Fields
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.physics.models.observables.resolution import tail_fraction
from simulator.plugins.gravity import wave_functions
from simulator.plugins.gravity.density import by_axis, center, density_power
from simulator.spectral import Evaluated, Local, Points
from simulator.spectral.arrays import (
    Number,
    PhysicalScalar,
    PointValues,
    SpectralScalar,
    Spectrum,
    quotient,
)
from simulator.spectral.grid import AXES
from simulator.spectral.operators import gradient, project, squared
from simulator.spectral.transform import Tree

if TYPE_CHECKING:
    from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoisson


class WaveColumns(Observable["SchrodingerPoisson"]):
    """Energies are box means: of the flow rho v^2 / 2, the quantum pressure (hbar^2 / 2m^2)
    |grad sqrt(rho)|^2, gravity rho Phi / 2, interaction g rho^2 / 2 and rho V_ext. `mass` is
    that of the whole box, `mean_momentum_x` ... the box mean of rho v.

    `virial_ratio` is (2 K + 3 I - S) / (|W| + <rho (x - c) . grad V_ext>) in the frame of the
    centre of mass c, with K the kinetic and quantum energy, I the interaction energy, and S the
    flux of momentum through the faces of the box centred on c. It is computed as 1 + <(x - c) .
    dm/dt> / (...), and is 1 in every equilibrium; in two dimensions it is left out."""

    def conserved(self, model: SchrodingerPoisson) -> Sequence[str]:
        return ("mass",) if model.absorption is None else ()

    def columns(self, model: SchrodingerPoisson, fields: Fields, row: Row) -> Columns:
        layout = model.transform.layout
        psi = fields["psi"]
        # Rods along z have another virial theorem.
        virial = bool(model.gravity or model.trap) and model.transform.grid.dimensions == 3
        values = squared(model.transform.inverse(psi))
        rho = model.real.forward(values)
        v = model.turn(values, row.time)
        momentum = _momentum(model, psi)
        place = center(model.real.layout, rho)
        drift = [p / layout.sum(squared(psi)) for p in momentum]
        evaluated = _measured(
            model, psi, _change(model, psi, v, drift) if virial else None, place, drift
        )
        a = jnp.float64(1) if model.background is None else model.background.scale_factor(row.time)
        motion = 0.5 * model.hbar**2 * layout.sum(layout.k_squared(psi.real.dtype) * squared(psi))
        quantum = 0.5 * model.hbar**2 * evaluated.means["quantum"]
        gravity = (
            0.5 * a * model.real.layout.inner(rho, model.potential(rho))
            if model.gravity
            else 0.0 * motion
        )
        interaction = 0.5 * model.self_interaction / a * evaluated.means["square"]
        trap = evaluated.means.get("external", 0.0 * motion)
        columns = {
            "energy": motion + gravity + interaction + trap,
            "kinetic_energy": motion - quantum,
            "quantum_energy": quantum,
            "potential_energy": gravity,
            "interaction_energy": interaction,
            "external_energy": trap,
        }
        if virial:
            binding = abs(gravity) + evaluated.means.get("tension", 0.0)
            binding = jnp.where(binding == 0, jnp.inf, binding)
            columns["virial_ratio"] = 1 + evaluated.means["virial"] / binding
        columns |= {
            "mass": evaluated.means["density"] * model.transform.grid.volume,
            "max_density": evaluated.maxima["largest"],
            **by_axis(model.transform.grid, "mean_momentum", momentum),
            **by_axis(model.transform.grid, "center", place),
            "vortex_faces": wave_functions.pierced_faces(model.transform, psi),
            "edge_mass": tail_fraction(layout, squared(psi), 0.0),
            "edge_energy": kinetic_energy_at_edge(model, psi, evaluated.means["density"]),
        }
        if model.background is not None:
            columns["scale_factor"] = a
        return columns | {"rate": model.spread(v)}


def _momentum(model: SchrodingerPoisson, psi: SpectralScalar) -> list[Number]:
    """The box mean of rho v along x, y and z."""
    layout = model.transform.layout
    # Wavenumbers are 0 on the Nyquist planes, where k and -k are one mode.
    waves = zip(AXES, model.transform.grid.shape, layout.wavenumbers(psi.real.dtype), strict=True)
    odd = (jnp.where(2 * abs(layout.integers(axis)) == n, 0, k) for axis, n, k in waves)
    return [model.hbar * layout.sum(k * squared(psi)) for k in odd]


def _measured(
    model: SchrodingerPoisson,
    psi: SpectralScalar,
    change: SpectralScalar | None,
    place: Sequence[Number],
    drift: Sequence[Number],
) -> Evaluated:
    """Box means and the largest density, relative to the centre of mass at `place`, which moves
    with `drift`. `change` is the result of `_change` if the virial ratio is needed, else
    None."""
    layout = model.transform.layout
    external = model.trap
    inputs = {"psi": psi, "gradient": gradient(layout, psi)}
    if change is not None:
        inputs |= {"change": change, "change_gradient": gradient(layout, change)}

    def local(values: PointValues, points: Points, parameters: Tree) -> Local:
        wave = values["psi"]
        density = squared(wave)
        slope = (jnp.conj(wave) * values["gradient"]).real  # grad rho / 2
        quantum = quotient(squared(slope), density)
        means = {"density": density, "quantum": quantum, "square": density**2}
        place, drift = parameters
        away = wave_functions.from_center(model.transform.grid, points, place)
        if change is not None:
            means["virial"] = _virial(model, values, away, drift)
        if external is not None:
            # (x - c) . grad V is the derivative of V(c + s (x - c)) with respect to s at s = 1.
            trap, slope_of_trap = jax.jvp(external, tuple(points), tuple(away))
            means |= {"external": density * trap, "tension": density * slope_of_trap}
        return Local({}, {"largest": density}, means)

    return model.transform.evaluate(inputs, local, (place, drift))


def _change(
    model: SchrodingerPoisson, psi: SpectralScalar, v: PhysicalScalar, drift: Sequence[Number]
) -> SpectralScalar:
    """psi_t + V . grad psi, with V = `drift` the velocity of the centre of mass: the wave's
    rate of change in the co-moving frame. `v` are the values of the phase rate."""
    layout = model.transform.layout
    k = layout.wavenumbers(psi.real.dtype)
    rotation = model.transform.forward(v * model.transform.inverse(psi))
    rotation = rotation + 0.5 * model.hbar * layout.k_squared(psi.real.dtype) * psi
    advection = sum(u.astype(q.dtype) * q for u, q in zip(drift, k, strict=True))
    return layout.constrain(1j * (advection * psi - rotation))


def _virial(
    model: SchrodingerPoisson,
    values: PointValues,
    away: Sequence[jax.Array],
    drift: Sequence[jax.Array],
) -> jax.Array:
    """(x - c) . dm/dt at a point in the frame of the centre of mass, m = hbar Im(psi* grad psi)
    - V rho."""
    psi = values["psi"]
    change = values["change"]
    density_rate = 2 * (jnp.conj(psi) * change).real
    total = jnp.zeros_like(density_rate)
    for i in range(3):
        turned = (
            jnp.conj(change) * values["gradient"][i] + jnp.conj(psi) * values["change_gradient"][i]
        )
        rate = model.hbar * turned.imag - drift[i].astype(total.dtype) * density_rate
        total = total + away[i] * rate
    return total


def kinetic_energy_at_edge(
    model: SchrodingerPoisson, psi: SpectralScalar, density: Number
) -> Number:
    """Fraction of the kinetic energy at the edge of the spectrum; 0 if the energy is
    round-off."""
    layout = model.transform.layout
    dtype = psi.real.dtype
    noise = (1e3 * jnp.finfo(dtype).eps) ** 2 * 2 * model.fastest_drift / model.hbar * density
    return tail_fraction(layout, layout.k_squared(dtype) * squared(psi), noise)


class WaveSpectra(Observable["SchrodingerPoisson"]):
    """P(k) of the density, and parts of the gradient's energy."""

    def spectra(self, model: SchrodingerPoisson, fields: Fields) -> dict[str, Spectrum]:
        """P(k) of the density contrast, length^3."""
        rho = model.real.forward(squared(model.transform.inverse(fields["psi"])))
        return {"density_power": density_power(model.real.layout, rho)}

    def cospectra(
        self, model: SchrodingerPoisson, fields: Fields
    ) -> dict[str, Float[Array, "ra rb rc"]]:
        """Parts of hbar^2 |grad psi|^2 / 2 (Nore, Abid and Brachet 1997, Phys. Fluids 9, 2644): the
        kinetic energy of the flow, |w|^2 / 2 with w = sqrt(rho) v, in its `solenoidal` part, that
        of vortices, and its `compressive` part; and `quantum_energy`, hbar^2 |grad sqrt(rho)|^2 /
        2. The mean of w belongs to the first."""
        real = model.real
        both = fields["psi"], gradient(model.transform.layout, fields["psi"])
        wave, slope = map(model.transform.inverse, both)
        rate = quotient(model.hbar * jnp.conj(wave) * slope, jnp.sqrt(squared(wave)))
        flow = real.forward(rate.imag)
        quantum = real.forward(rate.real)
        solenoidal = project(real.layout, flow)
        parts = {"solenoidal": solenoidal, "compressive": flow - solenoidal, "quantum": quantum}
        return {f"{name}_energy": 0.5 * squared(part) for name, part in parts.items()}


class WaveFields(Observable["SchrodingerPoisson"]):
    """Density, velocity, speed, phase and potential."""

    pictured = ("speed", "density")

    def derived(self, model: SchrodingerPoisson) -> Mapping[str, DerivedField]:
        inverse = model.transform.inverse

        def density(fields: Fields) -> jax.Array:
            return squared(inverse(fields["psi"]))

        def velocity(fields: Fields) -> jax.Array:
            """hbar/m Im(psi* grad psi) / |psi|^2, and 0 where the density is 0."""
            psi = fields["psi"]
            wave = inverse(psi)
            slope = inverse(gradient(model.transform.layout, psi))
            return quotient(model.hbar * (jnp.conj(wave) * slope).imag, squared(wave))

        def potential(fields: Fields) -> jax.Array:
            return model.real.inverse(model.potential(model.real.forward(density(fields))))

        return specs.by_name(
            DerivedField(specs.DENSITY, density),
            DerivedField(specs.MATTER_VELOCITY.on(model.transform.grid), velocity),
            DerivedField(specs.SPEED, specs.magnitude(velocity)),
            DerivedField(specs.PHASE, lambda f: jnp.angle(inverse(f["psi"]))),
            DerivedField(specs.POTENTIAL, potential),
        )
