"""Modes and points in a frame that a uniform shear flow, U = S x e_y, carries along.

A field that is periodic in the frame has the coefficients u(m, n) of the waves exp(i k . x) with

    k_x = 2 pi / L_x (m + tilt n),  k_y = 2 pi / L_y n,  d(tilt)/dt = -S L_x / L_y.

A frame whose tilt is a whole number has the points of the box at rest. A tilt above 1/2 is therefore
replaced by one below -1/2, and the coefficient at (m, n) by that at (m + n, n): waves keep their
wavenumbers. A device holds whole lines along k_x, so no message is sent. Waves that leave the modes
that dealiasing keeps are lost, and those that enter begin at zero. Rogallo, NASA Technical Memorandum
81315 (1981), section 3."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float, Int

from simulator.errors import UserError
from simulator.spectral.arrays import (
    Number,
    OfModes,
    OverModes,
    OverPoints,
    PhysicalField,
    SpectralField,
    SpectralFields,
    SpectralVector,
)
from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.program import Program
from simulator.spectral.transform import Transform

LARGEST_TILT = 0.5
"""The largest |tilt| of a frame at the end of a step; within a step it may be larger."""


@dataclass(frozen=True, eq=False)
class ShearedLayout(Layout):
    """A layout whose modes have the wavenumbers of a sheared frame."""

    tilt: Number | float | None = None
    """None: the time is unknown, and so are the wavenumbers."""
    still: Layout | None = None
    """The layout of the same coefficients in the box at rest."""

    @classmethod
    def of(cls, layout: Layout, tilt: Number | float | None) -> Self:
        return cls(
            **{f.name: getattr(layout, f.name) for f in fields(layout)}, tilt=tilt, still=layout
        )

    def _across(self, dtype: DTypeLike) -> OverModes:
        """m + tilt n."""
        if self.tilt is None:
            raise UserError(
                "model.shear: this needs wavenumbers, which depend on time; it has no form in a sheared flow"
            )
        x, y = self.grid.axes[:2]
        m, n = (self.along(a, self.padded_mode_numbers(a), dtype) for a in (x, y))
        return m + jnp.asarray(self.tilt, dtype) * n

    def wavenumbers(self, dtype: DTypeLike = jnp.float64) -> tuple[OverModes, OverModes, OverModes]:
        k = list(super().wavenumbers(dtype))
        x = AXES.index(self.grid.axes[0])
        k[x] = self.grid.fundamental[x] * self._across(dtype)
        return k[0], k[1], k[2]

    def k_squared(self, dtype: DTypeLike = jnp.float64) -> OfModes:
        x = self.grid.axes[0]
        total = (self.grid.fundamental[AXES.index(x)] * self._across(dtype)) ** 2
        for axis, unit in zip(AXES, self.grid.fundamental, strict=True):
            if axis != x:
                total = total + self.along(
                    axis, (self.padded_mode_numbers(axis) * unit) ** 2, dtype
                )
        return total

    def reach(self, axis: str) -> float:
        x, y = self.grid.axes[:2]
        if axis != x:
            return super().reach(axis)
        turned = (
            LARGEST_TILT
            * super().reach(y)
            * self.grid.box[AXES.index(y)]
            / self.grid.box[AXES.index(x)]
        )
        return super().reach(x) + turned

    def binned(
        self, index: Int[Array, "#a #b #c"], values: Float[Array, "component a b c"], count: int
    ) -> Float[Array, "component bin"]:
        assert self.still is not None
        return self.still.binned(index, values, count)  # whose programs are kept


class Lines:
    """Operations on whole lines of modes along k_x, without messages."""

    def __init__(self, layout: Layout):
        """Raises UserError if devices do not hold whole lines."""
        self.layout = layout
        self.x, self.y = layout.grid.axes[:2]
        place = AXES.index(self.x)
        self.points = layout.grid.shape[place]
        self.kept = layout.grid.kept[place]
        if self.x in layout.sharded or len(layout.mode_numbers[self.x]) != self.modes:
            raise UserError(
                "shear: needs devices that hold whole lines of the kept modes along k_x; "
                "take fft.backend: custom_partitioning"
            )
        self.bands = -(-self.points // self.modes)
        self._axis = layout.order.index(self.x) - 3

    @property
    def modes(self) -> int:
        """The modes of a line."""
        return 2 * self.kept + 1

    def _program(
        self, function: Callable[..., jax.Array], inputs: int, outputs: int, name: str
    ) -> Program:
        """A program of an array with `inputs` axes, n and a number, with an array as its result."""
        spec = self.layout.spec_of
        n = PartitionSpec(
            *(self.layout.sharded.get(a) if a == self.y else None for a in self.layout.order)
        )
        return Program(
            lambda *arguments: (function(*arguments),),
            self.layout.mesh,
            [spec(inputs), n, PartitionSpec()],
            [spec(outputs)],
            name=f"shear_{name}",
        )

    @cached_property
    def _moved(self) -> Program:
        def moved(field: jax.Array, n: jax.Array, shift: jax.Array) -> jax.Array:
            m = self.layout.along(
                self.x, np.fft.fftfreq(self.modes, 1 / self.modes).round(), jnp.int32
            )
            source = m + shift.astype(jnp.int32) * n
            place = source % self.modes
            values = jnp.take_along_axis(field, place[None], axis=self._axis)
            return jnp.where(abs(source) <= self.kept, values, 0)

        return self._program(moved, 4, 4, "remap")

    def moved(self, field: SpectralField, shift: Number) -> SpectralField:
        """The coefficients u(m + shift n, n) at each (m, n); zero where there were none."""
        (result,) = self._moved(self._components(field), self.layout.integers(self.y), shift)
        return jnp.where(self.layout.mask, result, 0).reshape(field.shape)

    def _components(self, field: SpectralField) -> Complex[Array, "component ka kb kc"]:
        return field.reshape(-1, *field.shape[-3:])

    @cached_property
    def _straightened(self) -> Program:
        """From the modes of a sheared frame to those of the box: its lines have as many modes as
        points, of which each band holds `modes`, band b those around b `modes`."""

        def straightened(field: jax.Array, n: jax.Array, tilt: jax.Array) -> jax.Array:
            positive, negative = jnp.split(field, [self.kept + 1], self._axis)
            gap = list(field.shape)
            gap[self._axis] = self.points - self.modes
            line = jnp.concatenate([positive, jnp.zeros(gap, field.dtype), negative], self._axis)
            turned = self._turned(line, n, tilt)
            turned = jnp.roll(turned, self.kept, self._axis)
            room = [(0, 0)] * turned.ndim
            room[self._axis] = (0, self.bands * self.modes - self.points)
            parts = jnp.split(jnp.pad(turned, room), self.bands, self._axis)
            return jnp.stack([jnp.roll(part, -self.kept, self._axis) for part in parts])

        return self._program(straightened, 4, 5, "straighten")

    @cached_property
    def _tilted(self) -> Program:
        """The inverse of `_straightened`."""

        def tilted(bands: jax.Array, n: jax.Array, tilt: jax.Array) -> jax.Array:
            parts = [jnp.roll(band, self.kept, self._axis) for band in jnp.unstack(bands)]
            line = jnp.concatenate(parts, self._axis)
            line = lax.slice_in_dim(line, 0, self.points, axis=line.ndim + self._axis)
            turned = self._turned(jnp.roll(line, -self.kept, self._axis), n, -tilt)
            positive = lax.slice_in_dim(turned, 0, self.kept + 1, axis=turned.ndim + self._axis)
            first = self.points - self.kept
            negative = lax.slice_in_dim(turned, first, self.points, axis=turned.ndim + self._axis)
            return jnp.concatenate([positive, negative], self._axis)

        return self._program(tilted, 5, 4, "tilt")

    def _turned(self, line: jax.Array, n: jax.Array, tilt: jax.Array) -> jax.Array:
        """Lines of all modes times exp(2 pi i tilt n x / L_x) at the points."""
        x = self.layout.along(self.x, np.arange(self.points) / self.points, tilt.dtype)
        turn = jnp.exp(2j * jnp.pi * tilt * n * x).astype(line.dtype)
        return jnp.fft.fft(jnp.fft.ifft(line, axis=self._axis) * turn, axis=self._axis)

    def straightened(self, field: SpectralField, tilt: Number) -> list[SpectralField]:
        """The bands of the modes of the box at rest: f is the sum of exp(i b `modes` 2 pi x / L_x)
        f_b."""
        components = self._components(field)
        (bands,) = self._straightened(components, self.layout.integers(self.y), tilt)
        return [band.reshape(field.shape) for band in jnp.unstack(bands)]

    def tilted(self, bands: list[SpectralField], tilt: Number) -> SpectralField:
        """The modes of a sheared frame from the bands of the box at rest."""
        components = jnp.stack([self._components(band) for band in bands])
        (field,) = self._tilted(components, self.layout.integers(self.y), tilt)
        return field.reshape(bands[0].shape)

    def waves(self, band: int, points: PhysicalLayout, dtype: DTypeLike) -> list[OverPoints]:
        """cos and sin of b `modes` 2 pi x / L_x at the points of the grid."""
        places = np.arange(points.shape[AXES.index(self.x)])
        turn = 2 * np.pi * (band * self.modes * places % self.points) / self.points
        return [points.along(self.x, function(turn), dtype) for function in (np.cos, np.sin)]


class ShearedTransform(Transform):
    """A transform of fields in a sheared frame. `forward` and `inverse` take and give values at the
    points of the box at rest; `evaluate` visits the points of the frame."""

    def __init__(self, still: Transform, tilt: Number | float | None, lines: Lines | None = None):
        """Raises UserError if devices do not hold whole lines along k_x."""
        self.still = still
        self.tilt = tilt
        self.lines = lines or Lines(still.layout)
        self.layout = ShearedLayout.of(still.layout, tilt)
        self.grid = still.grid
        self.physical = still.physical
        self.dtype = still.dtype
        self.name = still.name
        self.kernels = still.kernels
        self.evaluate = still.evaluate
        self.evaluate_once = still.evaluate_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self.still, name)

    def with_tilt(self, tilt: Number | float) -> "ShearedTransform":
        """The same transform at another tilt."""
        return ShearedTransform(self.still, tilt, self.lines)

    @property
    def _upright(self) -> bool:
        return isinstance(self.tilt, float) and self.tilt == 0

    def inverse(self, modes: SpectralField) -> PhysicalField:
        if self._upright:
            return self.still.inverse(modes)
        first, *others = self.lines.straightened(modes, jnp.asarray(self.tilt))
        values = self.still.inverse(first)
        for b, band in enumerate(others, start=1):
            cosine, sine = self.lines.waves(b, self.physical, self.dtype)
            # The transform gives the real part of a field that is not Hermitian.
            values = values + cosine * self.still.inverse(band)
            values = values - sine * self.still.inverse(-1j * band)
        return values

    def forward(self, values: jax.Array) -> SpectralField:
        if self._upright:
            return self.still.forward(values)
        if self.grid.spherical:
            raise UserError(
                f"grid.dealias: values of a sheared flow are read with two_thirds only, not with {self.grid.dealias}"
            )
        values = self.physical.whole(values, "forward")
        bands = []
        for b in range(self.lines.bands):
            cosine, sine = self.lines.waves(b, self.physical, self.dtype)
            band = self.still.forward(cosine * values)
            bands.append(band - 1j * self.still.forward(sine * values) if b else band)
        return self.lines.tilted(bands, jnp.asarray(self.tilt))


Time = Number | float

LATE = 1e-6
"""The part of the time between two exchanges by which an exchange is late. Times of output are often
halfway between whole tilts, where round-off would decide."""


class Turn(NamedTuple):
    """The turn of a frame by the flow U = S x e_y in a box."""

    rate: Number | float
    box: Sequence[float]

    @property
    def per_time(self) -> Number | float:
        """Tilts that pass per time; none in one dimension."""
        return self.rate * self.box[0] / self.box[1] if len(self.box) > 1 else 0.0

    def left_behind(self, time: Time) -> Time:
        """The number of whole tilts that the frame at a time has left behind."""
        return (self.per_time * time + (0.5 - LATE)) // 1

    def tilt(self, time: Time, since: Time | None = None) -> Time:
        """The tilt at a time of the frame at the time `since`, by default the same."""
        return self.left_behind(time if since is None else since) - self.per_time * time


class ShearedFrame:
    """The frame that the flow U = S x e_y carries along, at each time."""

    def __init__(self, rate: Number | float, transform: Transform):
        """Raises UserError, beginning with the key, for a box without such a flow."""
        grid = transform.grid
        if grid.dimensions == 1:
            raise UserError("shear: needs two or three dimensions; grid.shape has one")
        if grid.seen(grid.shape)[0] == 1:
            raise UserError(
                "shear: the flow S x e_y varies along x, where grid.shape has one point; give it more"
            )
        self.rate = rate
        self._turned = Turn(rate, grid.seen(grid.box))
        self.transform = ShearedTransform(transform, None)

    def left_behind(self, time: Time) -> Time:
        """The number of whole tilts that the frame at a time has left behind."""
        return self._turned.left_behind(time)

    def at(self, time: Time, since: Time | None = None) -> ShearedTransform:
        """The transform at a time, in the frame at the time `since`, by default the same."""
        return self.transform.with_tilt(self._turned.tilt(time, since))

    def along(self, vector: SpectralVector) -> SpectralVector:
        """S v_x e_y."""
        rate = jnp.asarray(self.rate, vector.real.dtype)
        return jnp.zeros_like(vector).at[1].set(rate * vector[0])

    def exchanged(self, fields: SpectralFields, number: Number) -> SpectralFields:
        """The fields in a frame that has left `number` more whole tilts behind."""

        def moved() -> SpectralFields:
            return {name: self.transform.lines.moved(f, number) for name, f in fields.items()}

        return lax.cond(number == 0, lambda: dict(fields), moved)
