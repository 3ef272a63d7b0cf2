"""Matter waves as a component of a composite."""

from collections.abc import Callable, Mapping
from typing import Literal

import jax

from simulator.models.component import ComponentName, Potential
from simulator.models.fields import PSI, DerivedField, Fields
from simulator.models.schrodinger_poisson import (
    SchrodingerPoisson,
    SchrodingerPoissonSettings,
    WaveSettings,
)
from simulator.spectral import Transform


class WaveComponentSettings(WaveSettings):
    kind: Literal["schrodinger_poisson"]
    name: ComponentName = "waves"
    """Prefix of the names of its fields and columns."""


class WaveComponent:
    """Drift and kick are those of `SchrodingerPoisson`, both exact, in the potential of all matter."""

    Settings = WaveComponentSettings
    fields = (PSI,)

    def __init__(
        self, settings: WaveComponentSettings, gravity: float, make: Callable[..., Transform], files: object
    ):
        self.transform, real = make(real=False, every=True), make(real=True, every=True)
        values = {name: getattr(settings, name) for name in WaveSettings.model_fields if name != "kind"}

        def wave(gravity: float) -> SchrodingerPoisson:
            # Not validated: the values were checked already, and those of a batch of runs are arrays.
            wave_settings = SchrodingerPoissonSettings.model_construct(
                **values, gravitational_constant=gravity
            )
            return SchrodingerPoisson(wave_settings, self.transform, real, files)

        self.alone, self.free = wave(gravity), wave(0.0)

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

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        return None

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        return self.free.warnings(row)
