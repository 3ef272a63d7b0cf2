"""What one device does in a staged transform: local transforms, truncation and padding, the exchanges.

Stages hold one device's part of arrays (component, *order), exchanges hold it as parcels (parcel, component,
*order). A stage visits its array in blocks: each is unpacked from parcels, padded, transformed, truncated and
packed into parcels while it is in cache. All functions are traced inside a `Program`.
"""

import math
from collections.abc import Callable, Sequence
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
Parcels = tuple[jax.Array, ...]
"""Parcels (parcel, component, *order) of an exchange, in one array or several, numbered through."""
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


def pack(array: jax.Array, source: str, axis: str, parcels: int, target: str) -> jax.Array:
    """An array (component, *source) cut along `axis`, which is padded first: (parcel, component, *target)."""
    at = 1 + source.index(axis)
    array = fit(array, at, padded(array.shape[at], parcels))
    array = array.reshape(*array.shape[:at], parcels, -1, *array.shape[at + 1 :])
    where = {a: 1 + i + (1 + i >= at) for i, a in enumerate(source)}
    return array.transpose(at, 0, *(where[a] for a in target))


def unpack(array: jax.Array, source: str, axis: str, extent: int, target: str) -> jax.Array:
    """Parcels (parcel, component, *source) joined along `axis`, of which `extent` are valid: (component, *target)."""
    order: list[int] = [1]
    for a in target:
        order += [0, 2 + source.index(a)] if a == axis else [2 + source.index(a)]
    at = 1 + target.index(axis)
    array = array.transpose(order)
    return fit(array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :]), at, extent)


def fit(array: jax.Array, axis: int, extent: int) -> jax.Array:
    """Cuts or zero-pads the end of an axis to `extent`."""
    have = array.shape[axis]
    if have > extent:
        return lax.slice_in_dim(array, 0, extent, axis=axis)
    return _pad(array, axis, 0, extent - have) if have < extent else array


def fit_modes(array: jax.Array, axis: int, extent: int) -> jax.Array:
    """Of a whole axis of modes (0, 1, ..., -1) the `extent` of lowest wavenumber; else with zeros between."""
    have = array.shape[axis]
    if have == extent:
        return array
    low, high = (min(have, extent) + 1) // 2, min(have, extent) // 2
    found = _pad(lax.slice_in_dim(array, 0, low, axis=axis), axis, 0, extent - low)
    if high:
        # A sum of padded parts: XLA fuses it with its neighbours, a concatenation it does not.
        found = found + _pad(lax.slice_in_dim(array, have - high, have, axis=axis), axis, extent - high, 0)
    return found


def _pad(array: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    config = [(before, after, 0) if i == axis else (0, 0, 0) for i in range(array.ndim)]
    return lax.pad(array, jnp.zeros((), array.dtype), config)


def blank(shape: Sequence[int], dtype: Any, source: jax.Array | None, number: int) -> jax.Array:
    """An array for a loop to fill. Equal constants XLA makes one array, which it keeps, and copies for every loop
    that fills it: with `source` it begins with one of its values, another for every `number`."""
    if source is None:
        return jnp.zeros(shape, dtype)
    value = lax.stop_gradient(source).reshape(-1)[number % source.size]
    kind = jnp.real(value) if not jnp.issubdtype(dtype, jnp.complexfloating) else value
    return jnp.broadcast_to(kind.astype(dtype), tuple(shape))


def over_blocks(
    planes: int, block: int, visit: Visit, axis: int, source: jax.Array | None = None
) -> tuple[Any, Any]:
    """`visit(start, fresh)` for all blocks of `planes`; its results are put together along `axis`. `source`:
    see `blank`.

    The last block may overlap the one before: `fresh` is True at planes not visited before. What `visit` reduces
    is combined over the blocks.
    """
    block = min(block, planes)
    count = -(-planes // block)
    if count == 1:
        return visit(jnp.int32(0), jnp.ones(block, bool))
    result, reduced = jax.eval_shape(visit, jnp.int32(0), jnp.ones(block, bool))

    def whole(number, part):
        shape = [planes if i == axis else n for i, n in enumerate(part.shape)]
        return blank(shape, part.dtype, source, number)

    def body(carry, i):
        out, reduced = carry
        start = jnp.minimum(i * block, planes - block).astype(jnp.int32)
        values, extra = visit(start, start + jnp.arange(block) >= i * block)
        out = jax.tree.map(lambda o, v: lax.dynamic_update_slice_in_dim(o, v, start, axis=axis), out, values)
        return (out, combine(reduced, extra)), None

    parts, tree = jax.tree.flatten(result)
    empty = jax.tree.unflatten(tree, [whole(*part) for part in enumerate(parts)])
    first = (empty, reductions_start(reduced))
    (out, reduced), _ = lax.scan(body, first, jnp.arange(count))
    return out, reduced


@dataclass(frozen=True, eq=False)
class LocalTransform:
    """The local side of a plan on a grid: `forward`, `inverse` and `evaluate` on one device's arrays.

    `blocks` gives the planes that a stage visits at a time: `blocks(stage, components)`. `separate` keeps parcels
    in arrays of their own. `in_turn` sends components one after another: only one is held on both sides of an
    exchange.
    """

    plan: Plan
    layout: Layout
    physical: PhysicalLayout
    dtype: Any
    """Of real values: float64 or float32."""
    blocks: Callable[[int, int], int]
    separate: bool
    in_turn: bool = False
    own_blanks: bool = True
    """Whether every loop fills an array of its own (see `blank`); not where it has to be linear in its input."""

    @property
    def real(self) -> bool:
        return self.layout.half

    def points(self, axis: str) -> int:
        return self.layout.grid.shape[AXES.index(axis)]

    def modes(self, axis: str) -> int:
        return len(self.layout.labels[axis])

    def local(self, stage: int, axis: str) -> int:
        """Extent of an axis on one device, as a stage transforms it: points before and in it, modes after."""
        plan = self.plan
        done = any(axis in earlier.axes for earlier in plan.stages[:stage])
        extent = self.modes(axis) if done else self.points(axis)
        over = plan.stages[stage].sharded.get(axis)
        return extent if over is None else padded(extent, self._parts(over)) // self._parts(over)

    def _parts(self, mesh_axis: str) -> int:
        return self.layout.mesh.shape[mesh_axis]

    # ---- one stage ---------------------------------------------------------------------------------------

    def _to_modes(self, stage: Stage, array: jax.Array) -> jax.Array:
        """Transforms whole axes, then truncates them."""
        lengths = tuple(self.points(a) for a in stage.axes)
        first = stage is self.plan.stages[0]
        kind = lax.FftType.RFFT if first and self.real else lax.FftType.FFT
        array = lax.fft(array, kind, lengths)
        for i, axis in enumerate(stage.axes, array.ndim - len(stage.axes)):
            half = axis == "z" and self.real
            array = (fit if half else fit_modes)(array, i, self.modes(axis))
        # The coefficients are means: the 1/N of all axes is taken here, with the truncation.
        return array * (1.0 / self.layout.grid.points) if first else array

    def _to_points(self, stage: Stage, array: jax.Array) -> jax.Array:
        """Pads whole axes, then transforms them back."""
        lengths = tuple(self.points(a) for a in stage.axes)
        for i, (axis, n) in enumerate(zip(stage.axes, lengths, strict=True), array.ndim - len(stage.axes)):
            half = axis == "z" and self.real
            array = fit(array, i, n // 2 + 1) if half else fit_modes(array, i, n)
        # XLA's inverse divides by the number of points; this is undone while the array is padded.
        array = array * float(math.prod(lengths))
        kind = lax.FftType.IRFFT if stage is self.plan.stages[0] and self.real else lax.FftType.IFFT
        return lax.fft(array, kind, lengths)

    # ---- between stages ----------------------------------------------------------------------------------

    def _received(self, i: int, parcels: Parcels, start: jax.Array, size: int, *, forward: bool) -> jax.Array:
        """A block of the array of the stage after (before) exchange `i`, joined from what was received."""
        if not self.plan.exchanges:
            return parcels[0]
        exchange, stage = self.plan.exchanges[i], self.plan.stages[i + 1 if forward else i]
        axis = exchange.join if forward else exchange.cut
        extent = self.points(axis) if forward else self.modes(axis)
        at = 2 + exchange.order.index(stage.block)
        part = jnp.concatenate([lax.dynamic_slice_in_dim(p, start, size, axis=at) for p in parcels])
        return unpack(part, exchange.order, axis, extent, stage.order)

    def _to_send(self, i: int, array: jax.Array, *, forward: bool) -> Parcels:
        """A block of the array of the stage before (after) exchange `i`, cut into parcels."""
        if not self.plan.exchanges:
            return (array,)
        exchange, stage = self.plan.exchanges[i], self.plan.stages[i if forward else i + 1]
        axis = exchange.cut if forward else exchange.join
        return self._apart(pack(array, stage.order, axis, self._parts(exchange.over), exchange.order))

    def _exchange(self, i: int, parcels: Parcels) -> Parcels:
        exchange = self.plan.exchanges[i]
        if self._parts(exchange.over) == 1:
            return parcels
        return self._apart(lax.all_to_all(jnp.concatenate(parcels), exchange.over, 0, 0, tiled=True))

    def _apart(self, parcels: jax.Array) -> Parcels:
        """On the CPU an all-to-all takes and gives every parcel as a buffer of its own: kept apart, they need not be
        copied together before and cut after it."""
        if not self.separate:
            return (parcels,)
        return tuple(parcels[i : i + 1] for i in range(len(parcels)))

    def _visit(self, i: int, components: int, visit: Callable[..., Any], axis: int, source: jax.Array) -> Any:
        """`visit(start, size, fresh)` for all blocks of stage `i`, which reads `source`."""
        planes = self.local(i, self.plan.stages[i].block)
        size = min(self.blocks(i, components), planes)
        return over_blocks(
            planes, size, lambda start, fresh: visit(start, size, fresh), axis, self._fill(source)
        )

    def _fill(self, source: jax.Array) -> jax.Array | None:
        return source if self.own_blanks else None

    def _parcel_axis(self, exchange: int, stage: int) -> int:
        """Axis of the parcels of an exchange along which a stage visits them in blocks."""
        if not self.plan.exchanges:
            return 1
        return 2 + self.plan.exchanges[exchange].order.index(self.plan.stages[stage].block)

    def _each_in_turn(self, run: Callable[[Any], Any], given: Any, given_axis: int, made_axis: int) -> Any:
        """`run(given)` of arrays whose axis `given_axis` counts components, of one component after another; its
        results are put together along `made_axis`."""
        source = jax.tree.leaves(given)[0]
        count = source.shape[given_axis]
        if not self.in_turn or count == 1 or not self.plan.exchanges:
            return run(given)

        def one(i):
            return run(jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, i, 1, axis=given_axis), given))

        def whole(number, part):
            shape = [count if i == made_axis else n for i, n in enumerate(part.shape)]
            return blank(shape, part.dtype, self._fill(source), number)

        def body(i, made):
            return jax.tree.map(
                lambda m, part: lax.dynamic_update_slice_in_dim(m, part, i, axis=made_axis), made, one(i)
            )

        parts, tree = jax.tree.flatten(jax.eval_shape(one, jnp.int32(0)))
        empty = jax.tree.unflatten(tree, [whole(*part) for part in enumerate(parts)])
        return lax.fori_loop(0, count, body, empty)

    def _outer_forward(self, parcels: Parcels) -> jax.Array:
        """From the parcels that the first stage sends to modes: all stages but the first."""
        return self._each_in_turn(self._outer_forward_of, parcels, 1, 0)

    def _outer_inverse(self, modes: jax.Array) -> Parcels:
        """From modes to the parcels that the first stage receives."""
        return self._each_in_turn(self._outer_inverse_of, modes, 0, 1)

    def _outer_forward_of(self, parcels: Parcels) -> jax.Array:
        modes, last = parcels[0], len(self.plan.exchanges)
        for i, stage in enumerate(self.plan.stages[1:], 1):
            received = self._exchange(i - 1, parcels)

            def visit(start, size, fresh, i=i, stage=stage, received=received):
                array = self._to_modes(stage, self._received(i - 1, received, start, size, forward=True))
                return (array if i == last else self._to_send(i, array, forward=True)), None

            axis = 1 if i == last else self._parcel_axis(i, i)
            found, _ = self._visit(i, 2 * parcels[0].shape[1], visit, axis, received[0])
            modes, parcels = (found, parcels) if i == last else (modes, found)
        return modes

    def _outer_inverse_of(self, modes: jax.Array) -> Parcels:
        parcels: Parcels = (modes,)
        last = len(self.plan.exchanges)
        for i, stage in reversed(list(enumerate(self.plan.stages[1:], 1))):

            def visit(start, size, fresh, i=i, stage=stage, parcels=parcels):
                if i == last:
                    part = lax.dynamic_slice_in_dim(modes, start, size, axis=1)
                else:
                    part = self._received(i, parcels, start, size, forward=False)
                return self._to_send(i - 1, self._to_points(stage, part), forward=False), None

            found, _ = self._visit(i, 2 * modes.shape[0], visit, self._parcel_axis(i - 1, i), parcels[0])
            parcels = self._exchange(i - 1, found)
        return parcels

    # ---- physical space, in blocks -----------------------------------------------------------------------

    def _points_of(self, start: jax.Array, block: int) -> tuple[Points, jax.Array]:
        """Coordinates of a block, and where it lies on grid points rather than in padding."""
        stage, coordinates, inside = self.plan.stages[0], {}, jnp.ones((1, 1, 1), bool)
        for axis, spacing, extent in zip(AXES, self.layout.grid.spacing, self.layout.grid.shape, strict=True):
            parts, local = self.physical.parts(axis), self.local(0, axis)
            index = jnp.arange(local) if axis != stage.block else start + jnp.arange(block)
            if parts > 1:
                index = index + local * lax.axis_index(self.physical.sharded[axis])
            shape = [-1 if a == axis else 1 for a in stage.order]
            coordinates[axis] = (index * spacing).astype(self.dtype).reshape(shape)
            if local * parts > extent:
                inside = inside & (index < extent).reshape(shape)
        return Points(**coordinates), inside

    def forward(self, array: jax.Array) -> jax.Array:
        """One device's values (component, x, y, z) to its modes (component, *plan.order)."""
        stage = self.plan.stages[0]

        def visit(start, size, fresh):
            part = lax.dynamic_slice_in_dim(array, start, size, axis=1 + AXES.index(stage.block))
            return self._to_send(0, self._to_modes(stage, take(part, AXES, stage.order)), forward=True), None

        parcels, _ = self._visit(0, 2 * array.shape[0], visit, self._parcel_axis(0, 0), array)
        return take(self._outer_forward(parcels), self.plan.order, self.layout.order)

    def inverse(self, array: jax.Array) -> jax.Array:
        """One device's modes to its values (component, x, y, z), zero in padding."""
        stage = self.plan.stages[0]
        parcels = self._outer_inverse(take(array, self.layout.order, self.plan.order))

        def visit(start, size, fresh):
            part = self._to_points(stage, self._received(0, parcels, start, size, forward=False))
            return take(part, stage.order, AXES), None

        values, _ = self._visit(0, 2 * array.shape[0], visit, 1 + AXES.index(stage.block), parcels[0])
        return values

    def evaluate(
        self, array: jax.Array, pointwise: Pointwise, components: int
    ) -> tuple[jax.Array | None, Reductions]:
        """One device's modes to the modes of pointwise products of their values, and reductions.

        The values, `components` at every point, exist one block at a time; under differentiation they are
        computed again.
        """
        stage = self.plan.stages[0]
        parcels = self._outer_inverse(array)

        @jax.checkpoint
        def on_block(part, start, fresh):
            points, inside = self._points_of(start, len(fresh))
            values = self._to_points(stage, part)
            products, reduced = pointwise(values, points, inside & fresh.reshape(-1, 1, 1))
            if products is None:
                return (), reduced
            return self._to_send(0, self._to_modes(stage, products), forward=True), reduced

        def visit(start, size, fresh):
            return on_block(self._received(0, parcels, start, size, forward=False), start, fresh)

        products, reduced = self._visit(0, components, visit, self._parcel_axis(0, 0), parcels[0])
        return (self._outer_forward(products) if products else None), self._over_devices(reduced)

    def _over_devices(self, reduced: Reductions) -> Reductions:
        axes = tuple(dict.fromkeys(self.physical.sharded.values()))
        if self.layout.mesh.size == 1 or not axes:
            return reduced
        return Reductions(
            {k: lax.pmax(lax.stop_gradient(v), axes) for k, v in reduced.maxima.items()},
            {k: lax.psum(v, axes) for k, v in reduced.sums.items()},
        )
