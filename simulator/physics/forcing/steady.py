"""Steady forces made of few modes."""

from typing import Any, Literal

import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.forcing.forcing import Forcing, needs_velocity
from simulator.physics.initial.initial import StartFiles, three_dimensional
from simulator.physics.initial.vortices import AbcSettings, Waves, arnold_beltrami_childress, taylor_green
from simulator.physics.models import Fields, Model
from simulator.settings import Points, Real, Settings
from simulator.spectral import Transform
from simulator.spectral.arrays import Number, SpectralVector


class _Steady(Forcing):
    """A constant force, which every evaluation computes anew from its few modes."""

    axes = "xyz"
    """The axes along which the force varies."""

    def __init__(self, settings: Any, transform: Transform, model: Model, files: StartFiles):
        grid, kind, n = transform.grid, settings.kind, getattr(settings, "wavenumber", 1)
        needs_velocity(model, kind)
        kept = dict(zip(grid.names.values(), grid.seen(grid.kept), strict=True))
        axes = "".join(a for a in self.axes if a in kept)
        if n > (most := min(kept[a] for a in axes)):
            raise UserError(
                f"kind: {kind} needs the integer wavenumber {n} along {axes}; this grid keeps up to {most}"
            )
        super().__init__(settings, transform, model, files)

    def _force(self, w: Waves) -> SpectralVector:
        raise TypeError(f"{type(self).__name__} does not define _force")

    def acceleration(self, fields: Fields, time: Number, memory: dict[str, Any]) -> Fields:
        return {"velocity": self._force(Waves(self.transform.layout, self.transform.dtype))}


class KolmogorovSettings(Settings):
    kind: Literal["kolmogorov"] = "kolmogorov"
    amplitude: Real = 1.0
    """Largest acceleration."""
    wavenumber: Points = 1
    """Periods of the force across the box."""


class Kolmogorov(_Steady):
    """f = F sin(n Y) e_x, Y = 2 pi y / Ly: Meshalkin & Sinai, J. Appl. Math. Mech. 25, 1700 (1961)."""

    Settings = KolmogorovSettings
    axes = "y"

    def _force(self, w: Waves) -> SpectralVector:
        s = self.settings
        f = s.amplitude * w.one("x") * w.sin("y", s.wavenumber) * w.one("z")
        return w.vector(f, jnp.zeros_like(f), jnp.zeros_like(f))


class TaylorGreenForcingSettings(Settings):
    kind: Literal["taylor_green"] = "taylor_green"
    amplitude: Real = 1.0
    """F, the largest acceleration along x."""


class TaylorGreenForcing(_Steady):
    """f = F (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i; without cos Z in two
    dimensions."""

    Settings = TaylorGreenForcingSettings

    def _force(self, w: Waves) -> SpectralVector:
        return taylor_green(w, self.transform, self.settings.amplitude)


class AbcForcingSettings(AbcSettings):
    kind: Literal["abc"] = "abc"


class AbcForcing(_Steady):
    """f = F (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X), X_i = 2 pi x_i / L_i."""

    Settings = AbcForcingSettings

    def __init__(self, settings: AbcForcingSettings, transform: Transform, model: Model, files: StartFiles):
        three_dimensional(transform, "abc")
        super().__init__(settings, transform, model, files)

    def _force(self, w: Waves) -> SpectralVector:
        return arnold_beltrami_childress(w, self.settings)
