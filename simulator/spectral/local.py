"""What one device does in a staged transform: local transforms, truncation and padding, the exchanges.

All functions work on one device's part of arrays (component, *order) and are traced inside a `Program`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout, PhysicalLayout, padded
from simulator.spectral.stages import Plan, Stage


class Points(NamedTuple):
    """Coordinates of the points of a block; they broadcast against its values."""

    x: jax.Array
    y: jax.Array
    z: jax.Array


class Reductions(NamedTuple):
    """Maxima and sums over grid points, by name."""

    maxima: dict[str, jax.Array]
    sums: dict[str, jax.Array]


Pointwise = Callable[[jax.Array, Points, jax.Array], tuple["jax.Array | None", Reductions]]
"""(values (component, *block), their coordinates, where they are grid points not counted before) to products
and reductions."""
Visit = Callable[[jax.Array, jax.Array], tuple[Any, Any]]


def reduce_values(maxima: dict[str, jax.Array], sums: dict[str, jax.Array], inside: jax.Array) -> Reductions:
    """Reductions of a block's values over the points where `inside`."""
    return Reductions(
        {k: jnp.where(inside, lax.stop_gradient(v), -jnp.inf).max() for k, v in maxima.items()},
        {k: jnp.where(inside, v, 0).sum() for k, v in sums.items()},
    )


def reductions_start(reduced: Reductions | None) -> Reductions | None:
    """What leaves any reduction of these shapes as it is."""
    if reduced is None:
        return None
    return Reductions(
        {k: jnp.full(v.shape, -jnp.inf, v.dtype) for k, v in reduced.maxima.items()},
        {k: jnp.zeros(v.shape, v.dtype) for k, v in reduced.sums.items()},
    )


def combine(a: Reductions | None, b: Reductions | None) -> Reductions | None:
    if a is None or b is None:
        return None
    return Reductions(
        {k: jnp.maximum(v, b.maxima[k]) for k, v in a.maxima.items()},
        {k: v + b.sums[k] for k, v in a.sums.items()},
    )


def take(array: jax.Array, source: str, target: str) -> jax.Array:
    """Transposes the last three axes from the order `source` to the order `target`."""
    if source == target:
        return array
    lead = array.ndim - 3
    return jnp.transpose(array, (*range(lead), *(lead + source.index(a) for a in target)))


def fit(array: jax.Array, axis: int, extent: int) -> jax.Array:
    """Cuts or zero-pads the end of an axis to `extent`."""
    have = array.shape[axis]
    if have > extent:
        return lax.slice_in_dim(array, 0, extent, axis=axis)
    if have < extent:
        config = [(0, extent - have if i == axis else 0, 0) for i in range(array.ndim)]
        return lax.pad(array, jnp.zeros((), array.dtype), config)
    return array


def keep_modes(array: jax.Array, axis: int, modes: int) -> jax.Array:
    """Of a whole axis of modes (0, 1, ..., -1) the `modes` of lowest wavenumber."""
    have = array.shape[axis]
    if have == modes:
        return array
    low, high = (modes + 1) // 2, modes // 2
    parts = [lax.slice_in_dim(array, 0, low, axis=axis)]
    if high:
        parts.append(lax.slice_in_dim(array, have - high, have, axis=axis))
    return jnp.concatenate(parts, axis)


def all_modes(array: jax.Array, axis: int, extent: int) -> jax.Array:
    """The inverse of `keep_modes`: zeros between the positive and the negative wavenumbers."""
    have = array.shape[axis]
    if have == extent:
        return array
    low = (have + 1) // 2
    shape = list(array.shape)
    shape[axis] = extent - have
    parts = [lax.slice_in_dim(array, 0, low, axis=axis), jnp.zeros(shape, array.dtype)]
    if low < have:
        parts.append(lax.slice_in_dim(array, low, have, axis=axis))
    return jnp.concatenate(parts, axis)


@dataclass(frozen=True, eq=False)
class LocalTransform:
    """The local side of a plan on a grid: `forward`, `inverse` and `evaluate` on one device's arrays."""

    plan: Plan
    layout: Layout
    physical: PhysicalLayout
    dtype: Any
    """Of real values: float64 or float32."""

    @property
    def real(self) -> bool:
        return self.layout.half

    def _points(self, axis: str) -> int:
        return self.layout.grid.shape[AXES.index(axis)]

    def _modes(self, axis: str) -> int:
        return len(self.layout.labels[axis])

    def _parts(self, mesh_axis: str) -> int:
        return self.layout.mesh.shape[mesh_axis]

    # ---- one stage ---------------------------------------------------------------------------------------

    def _stage_forward(self, stage: Stage, array: jax.Array) -> jax.Array:
        """Transforms whole axes, then truncates them. The first stage of a real field starts with z."""
        lengths = tuple(self._points(a) for a in stage.axes)
        if stage is self.plan.stages[0]:
            # The coefficients are means: the 1/N of all axes is taken here, with the truncation.
            kind = lax.FftType.RFFT if self.real else lax.FftType.FFT
            array = lax.fft(array, kind, lengths)
            array = self._truncate(stage, array)
            return array * (1.0 / self.layout.grid.points)
        return self._truncate(stage, lax.fft(array, lax.FftType.FFT, lengths))

    def _truncate(self, stage: Stage, array: jax.Array) -> jax.Array:
        first = array.ndim - len(stage.axes)
        for i, axis in reversed(list(enumerate(stage.axes, first))):
            modes = self._modes(axis)
            array = fit(array, i, modes) if axis == "z" and self.real else keep_modes(array, i, modes)
        return array

    def _stage_inverse(self, stage: Stage, array: jax.Array) -> jax.Array:
        lengths = tuple(self._points(a) for a in stage.axes)
        first = array.ndim - len(stage.axes)
        scale = 1
        for i, (axis, n) in enumerate(zip(stage.axes, lengths, strict=True), first):
            scale *= n
            half = axis == "z" and self.real
            array = fit(array, i, n // 2 + 1) if half else all_modes(array, i, n)
        # XLA's inverse divides by the number of points; this is undone while the array is padded.
        array = array * float(scale)
        kind = lax.FftType.IRFFT if "z" in stage.axes and self.real else lax.FftType.IFFT
        return lax.fft(array, kind, lengths)

    # ---- exchanges ---------------------------------------------------------------------------------------

    def _exchange(self, i: int, array: jax.Array, *, forward: bool) -> jax.Array:
        """Moves one device's part from one side of exchange `i` to the other, both in its `order`."""
        exchange = self.plan.exchanges[i]
        parts = self._parts(exchange.over)
        cut, join = (exchange.cut, exchange.join) if forward else (exchange.join, exchange.cut)
        lead = array.ndim - 3
        at_cut, at_join = lead + exchange.order.index(cut), lead + exchange.order.index(join)
        array = fit(array, at_cut, padded(array.shape[at_cut], parts))
        if parts > 1:
            array = lax.all_to_all(array, exchange.over, at_cut, at_join, tiled=True)
        whole = self._points(join) if forward else self._modes(join)
        return fit(array, at_join, whole)

    def _outer_inverse(self, array: jax.Array) -> jax.Array:
        """From modes to what the first stage's inverse takes, in the first exchange's order."""
        for i in reversed(range(len(self.plan.exchanges))):
            stage, exchange = self.plan.stages[i + 1], self.plan.exchanges[i]
            array = self._stage_inverse(stage, take(array, self._order_after(i + 1), stage.order))
            array = self._exchange(i, take(array, stage.order, exchange.order), forward=False)
        return array

    def _outer_forward(self, array: jax.Array) -> jax.Array:
        for i, exchange in enumerate(self.plan.exchanges):
            stage = self.plan.stages[i + 1]
            array = take(self._exchange(i, array, forward=True), exchange.order, stage.order)
            array = self._stage_forward(stage, array)
            if i + 1 < len(self.plan.exchanges):
                array = take(array, stage.order, self._order_after(i + 1))
        return array

    def _order_after(self, stage: int) -> str:
        """Memory order in which stage `stage` hands its modes on."""
        exchanges = self.plan.exchanges
        return exchanges[stage].order if stage < len(exchanges) else self.plan.order

    # ---- physical space, in blocks -----------------------------------------------------------------------

    def _planes(self) -> int:
        """Planes of physical space on one device, padding included."""
        axis = self.plan.block
        return self.physical.shape[AXES.index(axis)] // self.physical.parts(axis)

    def _to_points(self, block: jax.Array) -> jax.Array:
        """A block of planes: from modes in the first exchange's order to values in the first stage's order."""
        first, exchange = self.plan.stages[0], self.plan.exchanges[0]
        return self._stage_inverse(first, take(block, exchange.order, first.order))

    def _to_modes(self, block: jax.Array) -> jax.Array:
        first, exchange = self.plan.stages[0], self.plan.exchanges[0]
        return take(self._stage_forward(first, block), first.order, exchange.order)

    def _points_of(self, start: jax.Array, block: int) -> tuple[Points, jax.Array]:
        """Coordinates of a block, and where it lies on grid points rather than in padding."""
        order, coordinates, inside = self.plan.stages[0].order, {}, jnp.ones((1, 1, 1), bool)
        dtype = self.dtype
        for axis, spacing, extent in zip(AXES, self.layout.grid.spacing, self.layout.grid.shape, strict=True):
            parts = self.physical.parts(axis)
            local = self.physical.shape[AXES.index(axis)] // parts
            index = jnp.arange(local) if axis != self.plan.block else start + jnp.arange(block)
            if parts > 1:
                index = index + local * lax.axis_index(self.physical.sharded[axis])
            shape = [-1 if a == axis else 1 for a in order]
            coordinates[axis] = (index * spacing).astype(dtype).reshape(shape)
            if local * parts > extent:
                inside = inside & (index < extent).reshape(shape)
        return Points(**coordinates), inside

    def _over_blocks(self, block: int, visit: Visit, axis: int) -> tuple[Any, Any]:
        """`visit(start, fresh)` for all blocks of planes; its results are put together along `axis`.

        The last block may overlap the one before: `fresh` is True at planes not visited before. What `visit`
        reduces is combined over the blocks.
        """
        planes = self._planes()
        block = min(block, planes)
        count = -(-planes // block)
        if count == 1:
            return visit(jnp.int32(0), jnp.ones(block, bool))
        result, reduced = jax.eval_shape(visit, jnp.int32(0), jnp.ones(block, bool))

        def whole(part):
            return jnp.zeros([planes if i == axis else n for i, n in enumerate(part.shape)], part.dtype)

        def body(carry, i):
            out, reduced = carry
            start = jnp.minimum(i * block, planes - block).astype(jnp.int32)
            values, extra = visit(start, start + jnp.arange(block) >= i * block)
            out = jax.tree.map(
                lambda o, v: lax.dynamic_update_slice_in_dim(o, v, start, axis=axis), out, values
            )
            return (out, combine(reduced, extra)), None

        first = (jax.tree.map(whole, result), reductions_start(reduced))
        (out, reduced), _ = lax.scan(body, first, jnp.arange(count))
        return out, reduced

    # ---- whole transforms --------------------------------------------------------------------------------

    def forward(self, array: jax.Array, block: int) -> jax.Array:
        """One device's values (component, x, y, z) to its modes (component, *plan.order)."""
        first = self.plan.stages[0].order
        size = min(block, self._planes())

        def visit(start, fresh):
            part = lax.dynamic_slice_in_dim(array, start, size, axis=1 + AXES.index(self.plan.block))
            return self._to_modes(take(part, AXES, first)), None

        at = 1 + self.plan.exchanges[0].order.index(self.plan.block)
        return self._outer_forward(self._over_blocks(block, visit, at)[0])

    def inverse(self, array: jax.Array, block: int) -> jax.Array:
        """One device's modes to its values (component, x, y, z), zero in padding."""
        first = self.plan.stages[0].order
        array = self._outer_inverse(array)
        at = 1 + self.plan.exchanges[0].order.index(self.plan.block)
        size = min(block, self._planes())

        def visit(start, fresh):
            part = lax.dynamic_slice_in_dim(array, start, size, axis=at)
            return take(self._to_points(part), first, AXES), None

        return self._over_blocks(block, visit, 1 + AXES.index(self.plan.block))[0]

    def evaluate(self, array: jax.Array, pointwise: Pointwise, block: int) -> tuple[Any, Reductions]:
        """One device's modes to the modes of pointwise products of their values, and reductions.

        The values exist one block at a time; under differentiation they are computed again.
        """
        array = self._outer_inverse(array)
        at = 1 + self.plan.exchanges[0].order.index(self.plan.block)
        size = min(block, self._planes())

        @jax.checkpoint
        def on_block(part, start, fresh):
            points, inside = self._points_of(start, size)
            shape = [-1 if a == self.plan.block else 1 for a in self.plan.stages[0].order]
            products, reduced = pointwise(self._to_points(part), points, inside & fresh.reshape(shape))
            return jax.tree.map(self._to_modes, products), reduced

        def visit(start, fresh):
            return on_block(lax.dynamic_slice_in_dim(array, start, size, axis=at), start, fresh)

        products, reduced = self._over_blocks(block, visit, at)
        return jax.tree.map(self._outer_forward, products), self._over_devices(reduced)

    def _over_devices(self, reduced: Reductions) -> Reductions:
        axes = tuple(dict.fromkeys(self.physical.sharded.values()))
        if self.layout.mesh.size == 1 or not axes:
            return reduced
        return Reductions(
            {k: lax.pmax(lax.stop_gradient(v), axes) for k, v in reduced.maxima.items()},
            {k: lax.psum(v, axes) for k, v in reduced.sums.items()},
        )
