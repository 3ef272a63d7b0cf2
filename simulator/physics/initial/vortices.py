"""Taylor-Green, ABC and Orszag-Tang flows, which consist of few modes."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Int

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles, check_dimensions, only
from simulator.physics.initial.random import WithRandomFields, add_random_fields
from simulator.physics.models import Equation
from simulator.settings import Real, Settings
from simulator.spectral import Layout, Transform
from simulator.spectral.arrays import OverModes, SpectralVector
from simulator.spectral.grid import AXES


class Waves:
    """Coefficients of sin(n X), cos(n X) and 1 along one axis, X = 2 pi x / L. A field is a product
    over the axes."""

    def __init__(self, layout: Layout, dtype: DTypeLike):
        self._layout = layout
        self._dtype = jnp.result_type(dtype, jnp.complex64)
        self._axes = dict(zip(AXES, "yzx" if layout.grid.dimensions == 2 else AXES, strict=True))
        """The axes of arrays by the user's names; in a plane z is the axis of one point."""

    def _integers(self, axis: str, n: int = 0) -> Int[Array, "#ka #kb #kc"]:
        """The mode numbers along an axis. Raises UserError if the grid does not keep `n`; along an
        axis of one point nothing varies."""
        place = AXES.index(self._axes[axis])
        grid = self._layout.grid
        if n > grid.kept[place] and grid.shape[place] > 1:
            most = f"this grid of {grid.shape[place]} points keeps up to {grid.kept[place]}"
            raise UserError(f"kind: needs wavenumber {n} along {axis}; {most}")
        return self._layout.integers(self._axes[axis])

    def sin(self, axis: str, n: int = 1) -> OverModes:
        k = self._integers(axis, n)
        return (jnp.where(k == n, -0.5j, 0) + jnp.where(k == -n, 0.5j, 0)).astype(self._dtype)

    def cos(self, axis: str, n: int = 1) -> OverModes:
        k = self._integers(axis, n)
        return jnp.where(abs(k) == n, 0.5, 0).astype(self._dtype)

    def one(self, axis: str) -> OverModes:
        return jnp.where(self._integers(axis) == 0, 1, 0).astype(self._dtype)

    def alone(self, wave: Callable[..., OverModes], axis: str, n: int = 1) -> OverModes:
        """A wave along one axis, uniform along the others."""
        across = [self.one(other) for other in AXES if other != axis]
        return wave(axis, n) * (across[0] * across[1])

    def vector(self, *components: OverModes) -> SpectralVector:
        """The vector field with these components; in two dimensions with the first two."""
        shape = self._layout.shape
        kept = components[: len(self._layout.grid.axes)]
        return self._layout.constrain(jnp.stack([jnp.broadcast_to(c, shape) for c in kept]))


def taylor_green(w: Waves, transform: Transform, amplitude: float) -> SpectralVector:
    """A (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i; without cos Z
    in two dimensions."""
    lx, ly, *_ = transform.grid.seen(transform.grid.box)
    third = w.one("z") if transform.grid.dimensions == 2 else w.cos("z")
    along_x = amplitude * w.sin("x") * w.cos("y") * third
    along_y = -amplitude * ly / lx * w.cos("x") * w.sin("y") * third
    return w.vector(along_x, along_y, jnp.zeros_like(along_x))


def arnold_beltrami_childress(w: Waves, settings: "AbcSettings") -> SpectralVector:
    """F (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X), X_i = 2 pi x_i / L_i."""
    a, b, c = (settings.amplitude * value for value in (settings.A, settings.B, settings.C))
    along_x = a * w.alone(w.sin, "z") + c * w.alone(w.cos, "y")
    along_y = b * w.alone(w.sin, "x") + a * w.alone(w.cos, "z")
    along_z = c * w.alone(w.sin, "y") + b * w.alone(w.cos, "x")
    return w.vector(along_x, along_y, along_z)


class AbcSettings(Settings):
    """Keys of an ABC flow or force."""

    amplitude: Real = 1.0
    """A common factor."""
    A: Real = 1.0
    """A in (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X)."""
    B: Real = 1.0
    """B in the same formula."""
    C: Real = 1.0
    """C in the same formula."""


def of_modes(transform: Transform, fields: Callable[[Waves], Fields]) -> Fields:
    """Fields that consist of few modes, computed on the devices that hold them."""
    return jax.jit(lambda: fields(Waves(transform.layout, transform.dtype)))()


class TaylorGreenStartSettings(WithRandomFields):
    kind: Literal["taylor_green"] = "taylor_green"
    amplitude: Real = 1.0
    """A, the largest velocity along x."""


class TaylorGreenStart(Initial):
    """u = A (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i: solenoidal
    in any box.

    Taylor & Green, Proc. R. Soc. A 158, 499 (1937). In two dimensions there is no cos Z. The flow
    is then an exact solution that keeps its form and decays as exp(-nu k^2 t), k^2 = |(2 pi / Lx, 2
    pi / Ly)|^2: Taylor, Phil. Mag. 46 (1923)."""

    Settings = TaylorGreenStartSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        only("velocity", model, "taylor_green")
        check_dimensions(model.transform, "taylor_green", 2)
        a = self.settings.amplitude
        flow = of_modes(
            model.transform, lambda w: {"velocity": taylor_green(w, model.transform, a)}
        )
        return add_random_fields(model, self.settings.requested, files, flow)


class AbcStartSettings(AbcSettings, WithRandomFields):
    kind: Literal["abc"] = "abc"


class AbcStart(Initial):
    """Arnold-Beltrami-Childress flow, X_i = 2 pi x_i / L_i and the common factor F:

    F (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X).

    In a cube curl u = (2 pi / L) u, and the flow only decays. Dombre et al., J. Fluid Mech. 167,
    353 (1986)."""

    Settings = AbcStartSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        only("velocity", model, "abc")
        check_dimensions(model.transform, "abc")
        flow = of_modes(
            model.transform, lambda w: {"velocity": arnold_beltrami_childress(w, self.settings)}
        )
        return add_random_fields(model, self.settings.requested, files, flow)


class OrszagTangSettings(Settings):
    kind: Literal["orszag_tang"] = "orszag_tang"
    amplitude: Real = 1.0
    """Amplitude of the velocity."""
    magnetic_amplitude: Real = 0.8
    """Amplitude of the magnetic field; with 1, both fields have the energy 2 in two dimensions."""
    dimensions: Literal[2, 3] | None = None
    """3, or 2 for the original vortex, which is uniform along z; by default the number of the
    grid's axes."""


class OrszagTang(Initial):
    """u = A (-2 sin Y, 2 sin X, 0), b = B (-2 sin 2Y + sin Z, 2 sin X + sin Z, sin X + sin Y), X_i
    = 2 pi x_i / L_i; in two dimensions b = B (-2 sin 2Y, 2 sin X, 0).

    Orszag & Tang, J. Fluid Mech. 90, 129 (1979); in space: Mininni et al., Phys. Rev. Lett. 97,
    244503 (2006)."""

    Settings = OrszagTangSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        only("velocity", model, "orszag_tang")
        only("magnetic", model, "orszag_tang")
        check_dimensions(model.transform, "orszag_tang", 2)
        axes = len(model.transform.grid.axes)
        dimensions = self.settings.dimensions or axes
        if dimensions > axes:
            raise UserError(
                "dimensions: 3 needs three dimensions, and grid.shape has two; leave it out"
            )
        a = self.settings.amplitude
        b = self.settings.magnetic_amplitude

        def fields(w: Waves) -> Fields:
            x = w.alone(w.sin, "x")
            y = w.alone(w.sin, "y")
            twice = w.alone(w.sin, "y", 2)
            z = w.alone(w.sin, "z") if dimensions == 3 else 0 * x
            along_z = b * (x + y) if dimensions == 3 else 0 * x
            velocity = w.vector(-2 * a * y, 2 * a * x, 0 * x)
            magnetic = w.vector(b * (-2 * twice + z), b * (2 * x + z), along_z)
            return {"velocity": velocity, "magnetic": magnetic}

        return of_modes(model.transform, fields)
