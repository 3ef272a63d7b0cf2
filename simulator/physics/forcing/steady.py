"""Steady forces made of few modes."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.forcing.forcing import Forcing, needs_velocity
from simulator.physics.initial.initial import StartFiles
from simulator.physics.models import Fields, Model
from simulator.settings import Points, Real, Settings
from simulator.spectral import Layout, Transform
from simulator.spectral.grid import AXES


class Waves:
    """Coefficients of sin(n X), cos(n X) and 1 along an axis, X = 2 pi x / L; products over the axes give fields."""

    def __init__(self, layout: Layout, dtype):
        self._layout, self._dtype = layout, jnp.result_type(dtype, jnp.complex64)
        self._axes = dict(zip(AXES, "yzx" if layout.grid.planar else AXES, strict=True))
        """The axes of arrays by the user's names; in a plane z is the axis of one point."""

    def _integers(self, axis: str) -> jax.Array:
        return self._layout.integers(self._axes[axis])

    def sin(self, axis: str, n: int = 1) -> jax.Array:
        k = self._integers(axis)
        return (jnp.where(k == n, -0.5j, 0) + jnp.where(k == -n, 0.5j, 0)).astype(self._dtype)

    def cos(self, axis: str, n: int = 1) -> jax.Array:
        k = self._integers(axis)
        return jnp.where(abs(k) == n, 0.5, 0).astype(self._dtype)

    def one(self, axis: str) -> jax.Array:
        return jnp.where(self._integers(axis) == 0, 1, 0).astype(self._dtype)

    def vector(self, *components: jax.Array) -> jax.Array:
        """(3, *order), in two dimensions (2, *order), from components that broadcast."""
        shape, held = self._layout.shape, components[: len(self._layout.grid.axes)]
        return self._layout.constrain(jnp.stack([jnp.broadcast_to(c, shape) for c in held]))


def _kept(transform: Transform, axes: str, n: int, kind: str) -> None:
    """Refuses wavenumbers that the grid does not keep."""
    grid = transform.grid
    kept = dict(zip(grid.names.values(), grid.seen(grid.kept), strict=True))
    axes = "".join(a for a in axes if a in kept)
    most = min(kept[a] for a in axes)
    if n > most:
        raise UserError(
            f"kind: {kind} needs the integer wavenumber {n} along {axes}; this grid keeps up to {most}"
        )


class _Steady(Forcing):
    """A constant force, computed from its few modes whenever it is needed."""

    _force: Callable[[Waves], jax.Array]

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
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

    def __init__(self, settings: KolmogorovSettings, transform: Transform, model: Model, files: StartFiles):
        needs_velocity(model, "kolmogorov")
        _kept(transform, "y", settings.wavenumber, "kolmogorov")
        super().__init__(settings, transform, model, files)

    def _force(self, waves: Waves) -> jax.Array:
        s = self.settings
        f = s.amplitude * waves.one("x") * waves.sin("y", s.wavenumber) * waves.one("z")
        return waves.vector(f, jnp.zeros_like(f), jnp.zeros_like(f))


class TaylorGreenForcingSettings(Settings):
    kind: Literal["taylor_green"] = "taylor_green"
    amplitude: Real = 1.0
    """F, the largest acceleration along x."""


class TaylorGreenForcing(_Steady):
    """f = F (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i; without cos Z in two
    dimensions."""

    Settings = TaylorGreenForcingSettings

    def __init__(
        self, settings: TaylorGreenForcingSettings, transform: Transform, model: Model, files: StartFiles
    ):
        needs_velocity(model, "taylor_green")
        _kept(transform, "xyz", 1, "taylor_green")
        super().__init__(settings, transform, model, files)

    def _force(self, w: Waves) -> jax.Array:
        lx, ly, *_ = self.transform.grid.seen(self.transform.grid.box)
        a = self.settings.amplitude
        third = w.one("z") if self.transform.grid.planar else w.cos("z")
        fx = a * w.sin("x") * w.cos("y") * third
        fy = -a * ly / lx * w.cos("x") * w.sin("y") * third
        return w.vector(fx, fy, jnp.zeros_like(fx))


class AbcForcingSettings(Settings):
    kind: Literal["abc"] = "abc"
    amplitude: Real = 1.0
    """F, a common factor of the acceleration."""
    A: Real = 1.0
    """A in (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X)."""
    B: Real = 1.0
    """B in the same formula."""
    C: Real = 1.0
    """C in the same formula."""


class AbcForcing(_Steady):
    """f = F (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X), X_i = 2 pi x_i / L_i."""

    Settings = AbcForcingSettings

    def __init__(self, settings: AbcForcingSettings, transform: Transform, model: Model, files: StartFiles):
        if transform.grid.planar:
            raise UserError("kind: abc is made for three dimensions; grid.shape has two")
        needs_velocity(model, "abc")
        _kept(transform, "xyz", 1, "abc")
        super().__init__(settings, transform, model, files)

    def _force(self, w: Waves) -> jax.Array:
        s = self.settings
        a, b, c = (s.amplitude * value for value in (s.A, s.B, s.C))
        along_x = w.one("y") * w.one("z")
        along_y = w.one("x") * w.one("z")
        along_z = w.one("x") * w.one("y")
        return w.vector(
            a * w.sin("z") * along_z + c * w.cos("y") * along_y,
            b * w.sin("x") * along_x + a * w.cos("z") * along_z,
            c * w.sin("y") * along_y + b * w.cos("x") * along_x,
        )
