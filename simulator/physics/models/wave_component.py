"""Matter waves as a component of a composite."""

from collections.abc import Callable, Mapping
from typing import Literal

import jax

from simulator.errors import UserError
from simulator.physics.models.component import Component, ComponentName, Gravity, Potential
from simulator.physics.models.fields import PSI, DerivedField, Fields
from simulator.physics.models.schrodinger_poisson import (
    SchrodingerPoisson,
    SchrodingerPoissonSettings,
    WaveSettings,
)
from simulator.spectral import Transform


class WaveComponentSettings(WaveSettings):
    kind: Literal["schrodinger_poisson"]
    name: ComponentName = "waves"
    """Prefix of the names of its fields and columns."""


class WaveComponent(Component):
    """Drift and kick are those of `SchrodingerPoisson`, exact each, in the potential of all matter."""

    Settings = WaveComponentSettings
    fields = (PSI,)

    def __init__(
        self, settings: WaveComponentSettings, gravity: Gravity, make: Callable[..., Transform], files: object
    ):
        """Raises UserError, beginning with the key, for a trap or an absorber in an expanding background."""
        if gravity.cosmology is not None and (settings.external_potential or settings.absorber):
            raise UserError(
                "external_potential: a cosmology excludes external_potential and absorber; keep one of them"
            )
        self.transform, real = make(real=False, every=True), make(real=True, every=True)
        values = {name: getattr(settings, name) for name in WaveSettings.model_fields if name != "kind"}

        def wave(constant: float) -> SchrodingerPoisson:
            # Not validated: the values were checked already, and those of a batch of runs are arrays.
            own = SchrodingerPoissonSettings.model_construct(
                **values, gravitational_constant=constant, cosmology=gravity.cosmology
            )
            return SchrodingerPoisson(own, self.transform, real, files)

        self.alone, self.free = wave(gravity.constant), wave(0.0)

    def source(self, fields: Fields) -> tuple[jax.Array, jax.Array]:
        """|psi|^2, and the values of psi."""
        psi = self.transform.inverse(fields["psi"])
        return psi.real**2 + psi.imag**2, psi

    def kick(
        self, fields: Fields, work: jax.Array, potential: Potential, time: jax.Array, duration: jax.Array
    ) -> tuple[Fields, jax.Array]:
        density = work.real**2 + work.imag**2
        v = self.free.phase_rate(density, time) + potential.values / self.free.hbar
        return self.free.rotated(work, v, duration)

    def drift(self, fields: Fields, duration: jax.Array) -> Fields:
        return self.free.drift(fields, duration)

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        return self.free.diagnostics(fields, time)

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        return self.free.spectra(fields)

    def derived(self) -> Mapping[str, DerivedField]:
        return self.free.derived()

    def energy_slope(self, work: jax.Array, scale_factor: jax.Array) -> jax.Array | float:
        """Of the interaction energy g rho^2 / (2 a)."""
        if not (g := self.free.settings.self_interaction):
            return 0.0
        square = self.alone.real.physical.mean((work.real**2 + work.imag**2) ** 2)
        return -0.5 * g / scale_factor**2 * square

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        return self.free.warnings(row)
