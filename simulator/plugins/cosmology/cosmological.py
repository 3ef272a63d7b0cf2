"""Cosmological starts: a Gaussian random density in an expanding box whose power spectrum is a
power law, a table, or that of a library."""

import math
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles
from simulator.physics.models import Equation
from simulator.physics.particles import ParticleSet
from simulator.plugins.cosmology.linear_power import LinearPowerSettings, Power, linear_power
from simulator.plugins.cosmology.soliton import wave_model
from simulator.plugins.gravity.cosmology import Background, mean_density
from simulator.plugins.gravity.lattice import Motion, arranged, at_lattice, lattice_shift
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoisson, hbar_over_mass
from simulator.plugins.gravity.units import UNITS
from simulator.settings import Flag, Integer, Positive, Seed
from simulator.spectral import Layout, Transform
from simulator.spectral.arrays import Number, OfModes, SpectralScalar, holds, quotient, root
from simulator.spectral.operators import gradient, solve_poisson, translate
from simulator.spectral.random import gaussian


class CosmologicalSettings(LinearPowerSettings):
    kind: Literal["cosmological"] = "cosmological"
    seed: Seed = 0
    """Seed of the random density contrast."""
    order: Annotated[Integer, Field(ge=1, le=2)] = 2
    """Order of the displacements of particles: 1 for the Zel'dovich approximation, or 2."""
    fixed: Flag = False
    """Random phases only, |delta(k)|^2 = P(k) / V: Angulo & Pontzen, Mon. Not. R. Astron. Soc. 462,
    L1 (2016)."""
    paired: Flag = False
    """The opposite sign of delta, as in the second run of a pair."""
    share: Annotated[Positive, Field(le=1)] = 1.0
    """The share of this component in the matter of the background."""


class Cosmological(Initial):
    """The growing mode of a Gaussian random density contrast delta in an expanding background.

    delta(k) has variance P(k) D(a)^2 / V with D(1) = 1; psi = sqrt(rho (1 + delta)) exp(i S) with
    the phase of the velocity that makes it grow, (hbar/m) k^2 S = d delta / d tau = f a^2 H delta.
    The mean density is that of the background, 3 H0^2 Omega_m / (8 pi G). One seed gives one field
    on any number of devices and any grid.

    Particles begin on a lattice, displaced by D psi_1 + D_2 psi_2 with div psi_1 = -delta at D = 1
    and div psi_2 = sum_{i<j} (phi_ii phi_jj - phi_ij^2), lap phi = delta: Jenkins, Mon. Not. R.
    Astron. Soc. 403, 1859 (2010)."""

    Settings = CosmologicalSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        wave = wave_model(model, "cosmological")
        background = self._background(wave)
        power = self._power(wave, wave.real.layout, files)
        self._check_boson(wave)
        c = background.settings
        now = background.grown(c.start)
        unit = background.growth(1.0)
        growth = now.first / unit
        speed = now.speed / now.first
        mean = self._mean_density(background, wave.gravity)
        layout = wave.real.layout
        transform = wave.transform

        @jax.jit
        def build():
            delta = growth * self._contrast(layout, power)
            k = jnp.sqrt(layout.k_squared())
            velocity_phase = speed / wave.hbar * quotient(1, k**2) * delta
            kind = transform.complex_dtype
            contrast, phase = (
                wave.real.inverse(layout.constrain(f.astype(kind))) for f in (delta, velocity_phase)
            )
            psi = jnp.sqrt(mean * jnp.maximum(1 + contrast, 0)) * jnp.exp(1j * phase)
            return transform.layout.constrain(transform.forward(psi)), wave.real.physical.min(
                contrast
            )

        psi, least = build()
        if not holds(least > -1):
            contrast = f"the density contrast at a = {c.start:g} reaches {float(least):.2g}, beyond the linear regime"
            raise UserError(
                f"{contrast}; an earlier model.cosmology.start, or less power, is needed"
            )
        return {"psi": psi}

    def outlook(self, model: Equation, stop: float, files: StartFiles) -> dict[str, bool]:
        """Waves: 3 sigma of a component of the velocity of linear growth at `stop`, sigma^2 = (dD/d
        tau)^2 / (6 pi^2) int P dk over the modes of the grid; and whether a spectrum of cold matter
        has the cutoff of waves."""
        if not isinstance(model, SchrodingerPoisson):
            return {}
        background = self._background(model)
        grid = model.transform.grid
        k: Any = np.geomspace(min(grid.fundamental), math.pi / min(grid.spacing), 3000)
        power = np.asarray(linear_power(self.settings, model, files)(k))
        speed = background.grown(background.scale_factor_at(stop)).speed / background.growth(1.0)
        sigma = speed * math.sqrt(np.trapezoid(power * k, np.log(k)) / (6 * math.pi**2))
        lines = model.outlook(3 * sigma, "3 sigma of linear theory's velocity at the end")
        s = self.settings
        if (s.transfer or s.library) and s.boson_mass is s.cutoff is None:
            cold = (
                f"{s.way}: {getattr(s, s.way)} starts the waves as cold matter, without the cutoff"
            )
            mass = self._boson_mass(model)
            lines[f"{cold} of their mass; boson_mass: {mass:.3g} beside it gives the cutoff"] = (
                False
            )
        return lines

    def place(self, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
        background = self._background(matter)
        power = self._power(matter, matter.transform.layout, files)
        now = background.grown(background.settings.start)
        unit = background.growth(1.0)
        growth = now.first / unit
        rates = (now.speed / now.first, now.second_speed / now.second)
        density = self._mean_density(background, matter.gravity)
        transform = matter.transform

        @jax.jit
        def build() -> tuple[jax.Array, jax.Array]:
            layout = transform.layout
            # Fields on the points of the lattice: the products of second order are evaluated there,
            # too.
            delta = translate(layout, self._contrast(layout, power), lattice_shift(matter))
            delta = layout.constrain(delta.astype(transform.complex_dtype))
            first = growth * gradient(layout, -solve_poisson(layout, delta))
            if self.settings.order == 1:
                return first, rates[0] * first
            factor = now.second / unit**2
            more = factor * gradient(
                layout, solve_poisson(layout, second_order_source(transform, delta))
            )
            return first + more, rates[0] * first + rates[1] * more

        def motion(position: jax.Array, displacement: jax.Array, velocity: jax.Array) -> Motion:
            first = at_lattice(matter, displacement, position)
            return first, at_lattice(matter, velocity, matter.domain.after(position, first))

        return arranged(matter, density, motion, *build())

    def _background(self, matter: SchrodingerPoisson | ParticleComponent) -> Background:
        if matter.background is None:
            raise UserError("kind: cosmological needs model.cosmology: {start, hubble, matter}")
        if not matter.gravity:
            raise UserError(
                "kind: cosmological needs gravity; model.gravitational_constant must not be 0"
            )
        return matter.background

    def _boson_mass(self, wave: SchrodingerPoisson) -> Number | float:
        """m c^2 of the waves in 1e-22 eV."""
        units = wave.settings.units
        return (
            hbar_over_mass(1.0, units, self.settings.h if UNITS[units].per_h else None) / wave.hbar
        )

    def _check_boson(self, wave: SchrodingerPoisson) -> None:
        """Refuses a cutoff that belongs to waves of another mass."""
        if (mass := self.settings.boson_mass) is None:
            return
        # hbar_over_m may be typed to a few digits.
        if not holds(abs(mass / self._boson_mass(wave) - 1) < 1e-2):
            means = f"contradicts the model's waves, of {float(self._boson_mass(wave)):.4g}"
            raise UserError(f"boson_mass: {mass:g} {means}; make them equal")

    def _mean_density(self, background: Background, gravity: float) -> float:
        return self.settings.share * mean_density(background.settings, gravity)

    def _variance(self, layout: Layout, power: Power) -> OfModes:
        """<|delta|^2> at D = 1; zero on Nyquist planes, where a mode has no phase."""
        k = jnp.sqrt(layout.k_squared())
        usable = ~layout.nyquist & (k > 0) & layout.mask
        # Where P is not used, neither P nor its slopes may be infinite, as k^index is at k = 0.
        return jnp.where(usable, power(jnp.where(usable, k, 1)), 0) / layout.grid.volume

    def _power(
        self, matter: SchrodingerPoisson | ParticleComponent, layout: Layout, files: StartFiles
    ) -> Power:
        """The linear spectrum. Raises UserError if it is zero on all modes."""
        power = linear_power(self.settings, matter, files)
        if not holds(jax.jit(lambda: (self._variance(layout, power) > 0).any())()):
            modes = f"of this grid, which begin at k = {min(layout.grid.fundamental):g}"
            raise UserError(f"{self.settings.way}: P(k) is zero on all modes {modes}")
        return power

    def _contrast(self, layout: Layout, power: Power) -> SpectralScalar:
        """delta at D = 1."""
        drawn: Any = self.settings.seed  # in a gradient, the modes themselves
        if not isinstance(drawn, jax.Array):
            drawn = gaussian(layout, drawn)[0]
        elif drawn.shape != layout.shape or not jnp.iscomplexobj(drawn):
            raise UserError(
                f"seed: instead of it modes, complex and of shape {layout.shape}, can vary"
            )
        if self.settings.fixed:
            drawn = drawn / jnp.maximum(abs(drawn), 1e-30)
        return root(self._variance(layout, power)) * (-drawn if self.settings.paired else drawn)


def second_order_source(transform: Transform, delta: SpectralScalar) -> SpectralScalar:
    """sum_{i<j} (phi_ii phi_jj - phi_ij^2) with lap phi = delta, from products on the grid."""
    layout = transform.layout
    phi = solve_poisson(transform.layout, delta)
    k = layout.wavenumbers(delta.real.dtype)

    def bend(i: int, j: int) -> jax.Array:
        return transform.inverse(layout.constrain(-k[i] * k[j] * phi))

    xx, yy, zz = (bend(i, i) for i in range(3))
    source = xx * yy + yy * zz + zz * xx - bend(0, 1) ** 2 - bend(1, 2) ** 2 - bend(2, 0) ** 2
    return transform.forward(source)
