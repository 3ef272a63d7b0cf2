"""The work of one device in a staged transform: local transforms, truncation and padding, and the
exchanges.

A stage processes one device's part of an array (component, *order); an exchange sends this part as
messages (message, component, *order). A stage visits its array in blocks: each block is unpacked
from messages, padded, transformed, truncated and packed into messages while it is in cache. All
functions are traced inside a `Program`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from simulator.spectral.collectives import after
from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout as ModeLayout
from simulator.spectral.layout import PhysicalLayout, padded
from simulator.spectral.stages import Decomposition, Kind, Stage, all_to_all


class Points(NamedTuple):
    """Coordinates of the points of a block, which broadcast against its values."""

    x: jax.Array
    y: jax.Array
    z: jax.Array


class Reductions(NamedTuple):
    """Maxima and sums over grid points, by name."""

    maxima: dict[str, jax.Array]
    sums: dict[str, jax.Array]


NOTHING = Reductions({}, {})


Pointwise = Callable[[jax.Array, Points, jax.Array], tuple["jax.Array | None", Reductions]]
"""A function from values (component, *block), coordinates and a mask of the grid points that no
earlier block holds to products and reductions."""
Messages = tuple[jax.Array, ...]
"""Messages (message, component, *order) of an exchange: on processors an array for each message, on
GPUs one for each component."""
Parts = tuple[
    jax.Array, ...
]  # Arrays (component, *order) whose components are numbered consecutively.
Kept = Sequence[tuple[int, int]]  # Ranges (first, number) of components whose values are returned.


def reduce_values(
    maxima: dict[str, jax.Array], sums: dict[str, jax.Array], inside: jax.Array
) -> Reductions:
    """Reductions of a block's values over the points where `inside`."""
    return Reductions(
        {k: jnp.where(inside, lax.stop_gradient(v), -jnp.inf).max() for k, v in maxima.items()},
        {k: jnp.where(inside, v, 0).sum() for k, v in sums.items()},
    )


def reductions_start(reduced: Reductions) -> Reductions:
    """The identity element of the reductions."""
    return Reductions(
        {k: jnp.full(v.shape, -jnp.inf, v.dtype) for k, v in reduced.maxima.items()},
        {k: jnp.zeros(v.shape, v.dtype) for k, v in reduced.sums.items()},
    )


def combine(a: Reductions, b: Reductions) -> Reductions:
    return Reductions(
        jax.tree.map(jnp.maximum, a.maxima, b.maxima), jax.tree.map(jnp.add, a.sums, b.sums)
    )


def take(array: jax.Array, source: str, target: str) -> jax.Array:
    """Transposes the last three axes from the order `source` to the order `target`."""
    if source == target:
        return array
    lead = array.ndim - 3
    return jnp.transpose(array, (*range(lead), *(lead + source.index(a) for a in target)))


def pack(array: jax.Array, source: str, axis: str, messages: int, target: str) -> jax.Array:
    """Cuts an array (component, *source) along `axis`, which is padded first: (message, component,
    *target)."""
    at = 1 + source.index(axis)
    array = fit(array, at, padded(array.shape[at], messages))
    array = array.reshape(*array.shape[:at], messages, -1, *array.shape[at + 1 :])
    where = {a: 1 + i + (1 + i >= at) for i, a in enumerate(source)}
    return array.transpose(at, 0, *(where[a] for a in target))


def unpack(array: jax.Array, source: str, axis: str, extent: int, target: str) -> jax.Array:
    """Joins messages (message, component, *source) along `axis`, cut to `extent`: (component,
    *target)."""
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
    """Truncates an axis of modes (0, 1, ..., -1) to the `extent` lowest wavenumbers, or inserts
    zeros between the positive and the negative ones."""
    have = array.shape[axis]
    if have == extent:
        return array
    low, high = (min(have, extent) + 1) // 2, min(have, extent) // 2
    fitted = _pad(lax.slice_in_dim(array, 0, low, axis=axis), axis, 0, extent - low)
    if high:
        # XLA fuses a sum of padded parts with neighbouring operations, but not a concatenation.
        fitted = fitted + _pad(
            lax.slice_in_dim(array, have - high, have, axis=axis), axis, extent - high, 0
        )
    return fitted


def _pad(array: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    config = [(before, after, 0) if i == axis else (0, 0, 0) for i in range(array.ndim)]
    return lax.pad(array, jnp.zeros((), array.dtype), config)


def _in_order(array: jax.Array) -> jax.Array:
    return with_layout_constraint(array, Layout(tuple(range(array.ndim))))


@dataclass(frozen=True, eq=False)
class LocalTransform:
    """The local side of a plan on a grid: `forward`, `inverse` and `evaluate` on one device's
    arrays.

    `blocks(stage, components)` is the number of planes that a stage visits at a time; a third
    argument True says that only maxima and means are computed. `separate` keeps each message in its
    own array. `sequential` sends the components one after another, so that only one component is
    stored on both sides of an exchange."""

    plan: Decomposition
    layout: ModeLayout
    physical: PhysicalLayout
    dtype: Any  # Type of real values: float64 or float32.
    blocks: Callable[..., int]
    separate: bool
    sequential: bool = False
    own_blanks: bool = True
    """Whether every loop fills its own array (see `_empty`); False if the transform has to be
    linear in its input."""
    back: "LocalTransform | None" = None
    """The transform to modes, if its plan differs from that of the transform to points; the
    exchanges are equal."""
    exchange: Kind = "full"  # The number format of messages.

    @property
    def real(self) -> bool:
        return self.layout.half

    def points(self, axis: str) -> int:
        return self.layout.grid.shape[AXES.index(axis)]

    def modes(self, axis: str) -> int:
        return len(self.layout.mode_numbers[axis])

    def local(self, stage: int, axis: str) -> int:
        """Extent of an axis on one device in the input of a stage: points, or modes once the axis
        is transformed."""
        plan = self.plan
        done = any(axis in earlier.axes for earlier in plan.stages[:stage])
        extent = self.modes(axis) if done else self.points(axis)
        over = plan.stages[stage].sharded.get(axis)
        return extent if over is None else padded(extent, self._parts(over)) // self._parts(over)

    def _parts(self, mesh_axis: str) -> int:
        return self.layout.mesh.shape[mesh_axis]

    # ---- one stage
    # ---------------------------------------------------------------------------------------

    def _to_modes(self, stage: Stage, array: jax.Array) -> jax.Array:
        lengths = tuple(self.points(a) for a in stage.axes)
        first = stage is self.plan.stages[0]
        kind = lax.FftType.RFFT if first and self.real else lax.FftType.FFT
        array = lax.fft(array, kind, lengths)
        for i, axis in enumerate(stage.axes, array.ndim - len(stage.axes)):
            half = axis == "z" and self.real
            array = (fit if half else fit_modes)(array, i, self.modes(axis))
        # The coefficients are means: the first stage applies the 1/N of all axes, together with the
        # truncation.
        return array * (1.0 / self.layout.grid.points) if first else array

    def _to_points(self, stage: Stage, array: jax.Array) -> jax.Array:
        if not self.separate and self.real and stage is self.plan.stages[0] and len(stage.axes) > 1:
            # XLA would also transform the other axes before z, but after z is padded, and so on
            # planes of zeros too.
            return self._real_last(stage, array)
        lengths = tuple(self.points(a) for a in stage.axes)
        for i, (axis, n) in enumerate(
            zip(stage.axes, lengths, strict=True), array.ndim - len(stage.axes)
        ):
            half = axis == "z" and self.real
            array = fit(array, i, n // 2 + 1) if half else fit_modes(array, i, n)
        # XLA's inverse divides by the number of points; the product that undoes this is fused with
        # the padding.
        array = array * float(math.prod(lengths))
        kind = lax.FftType.IRFFT if stage is self.plan.stages[0] and self.real else lax.FftType.IFFT
        return lax.fft(array, kind, lengths)

    def _real_last(self, stage: Stage, array: jax.Array) -> jax.Array:
        """The inverse of a stage "xz" of real values: transforms x for the modes of z that are
        kept, then z."""
        x, z = array.ndim - 2, array.ndim - 1
        nx, nz = self.points("x"), self.points("z")
        array = fit_modes(array.swapaxes(x, z), z, nx) * float(nx * nz)
        array = lax.fft(array, lax.FftType.IFFT, (nx,)).swapaxes(x, z)
        return lax.fft(fit(array, z, nz // 2 + 1), lax.FftType.IRFFT, (nz,))

    # ---- between stages
    # ----------------------------------------------------------------------------------

    def _message_order(self, i: int) -> str:
        """Memory order of the messages of exchange `i`; on GPUs the order in which the later stage
        stores its arrays, because XLA would bring every message into that order by a copy."""
        return self.plan.exchanges[i].order if self.separate else self.plan.stages[i + 1].order

    def _received(
        self, i: int, messages: Messages, start: jax.Array, size: int, *, forward: bool
    ) -> Parts:
        """A block of the array of the stage after (before) exchange `i`, joined from the received
        messages."""
        if not self.plan.exchanges:
            return messages
        exchange, stage = self.plan.exchanges[i], self.plan.stages[i + 1 if forward else i]
        axis = exchange.join if forward else exchange.cut
        extent = self.points(axis) if forward else self.modes(axis)
        order = self._message_order(i)
        at = 2 + order.index(stage.block)
        parts = [lax.dynamic_slice_in_dim(p, start, size, axis=at) for p in messages]
        if self.separate:
            parts = [jnp.concatenate(parts)]
        elif self._unset and size < messages[0].shape[at]:
            # The slice gets the layout of the whole array, else XLA transposes the whole array
            # before the visits.
            parts = [_in_order(part) for part in parts]
        return tuple(unpack(part, order, axis, extent, stage.order) for part in parts)

    def _to_send(self, i: int, parts: Parts, *, forward: bool) -> Messages:
        """A block of the array of the stage before (after) exchange `i`, cut into messages."""
        if not self.plan.exchanges:
            return parts
        exchange, stage = self.plan.exchanges[i], self.plan.stages[i if forward else i + 1]
        axis, count = exchange.cut if forward else exchange.join, self._parts(exchange.over)
        packed = [pack(part, stage.order, axis, count, self._message_order(i)) for part in parts]
        return self._separated(packed[0]) if self.separate else tuple(packed)

    def _exchange(self, i: int, messages: Messages) -> Messages:
        over = self.plan.exchanges[i].over
        if self._parts(over) == 1:
            return messages
        if self.separate:
            return self._separated(all_to_all(jnp.concatenate(messages), over, self.exchange))
        return tuple(all_to_all(part, over, self.exchange) for part in messages)

    def _separated(self, messages: jax.Array) -> Messages:
        """The messages as separate arrays. On the CPU an all-to-all reads and writes every message
        in its own buffer, so that separate messages need not be joined before the exchange and cut
        after it."""
        return tuple(messages[i : i + 1] for i in range(len(messages)))

    def _cut(self, array: jax.Array) -> Parts:
        """An array (component, *order) in parts that are transformed and sent separately: on GPUs
        one per component, so that one component is sent while the next is transformed, and few are
        stored both before and after."""
        if self.separate:
            return (array,)
        return tuple(array[i : i + 1] for i in range(len(array)))

    def _join(self, parts: Parts) -> jax.Array:
        return parts[0] if not parts[1:] else jnp.concatenate(parts)

    def _components(self, messages: Messages) -> int:
        return messages[0].shape[1] * (1 if self.separate else len(messages))

    def _visit(
        self,
        i: int,
        components: int,
        visit: Callable[..., Any],
        axis: int,
        source: jax.Array,
        reducing: bool = False,
        replaced: Messages = (),
    ) -> Any:
        """Calls `visit(start, size, fresh)` for all blocks of planes of stage `i`, which reads
        `source`; joins the results along `axis` and combines the reductions.

        The last block may overlap the previous one: `fresh` is True at planes that no earlier block
        holds. On GPUs the results replace the messages `replaced`, of which `visit(start, size,
        fresh, messages)` reads the same planes, one by one, if these are as large; then no block
        overlaps another."""
        planes = self.local(i, self.plan.stages[i].block)
        size = min(self.blocks(i, components, reducing), planes)
        count, all_of_them = -(-planes // size), jnp.ones(size, bool)
        if count == 1:
            return visit(jnp.int32(0), size, all_of_them)

        result, reduced = jax.eval_shape(
            lambda start, fresh: visit(start, size, fresh), jnp.int32(0), all_of_them
        )
        out = self._empty(result, axis, planes, source)
        shared = 0
        if self._unset and replaced:
            pairs = zip(out, replaced, strict=False)
            shared = sum(
                made.shape == read.shape and made.dtype == read.dtype for made, read in pairs
            )
            out = (*replaced[:shared], *out[shared:])
        if shared:
            size = next(n for n in range(size, 0, -1) if planes % n == 0)
            count = planes // size

        def body(carry, number):
            out, reduced = carry
            start = jnp.minimum(number * size, planes - size).astype(jnp.int32)
            fresh = start + jnp.arange(size) >= number * size
            given = ((*out[:shared], *replaced[shared:]),) if shared else ()
            values, extra = visit(start, size, fresh, *given)
            values = jax.tree.map(_in_order, values) if self._unset else values
            out = jax.tree.map(
                lambda o, v: lax.dynamic_update_slice_in_dim(o, v, start, axis=axis), out, values
            )
            return (out, combine(reduced, extra)), None

        return lax.scan(body, (out, reductions_start(reduced)), jnp.arange(count))[0]

    def _empty(self, like: Any, axis: int, extent: int, source: jax.Array) -> Any:
        """Arrays like those of a tree, with `extent` entries along `axis`, for a loop to fill.

        On a GPU they are uninitialized memory, because initializing it costs memory traffic. XLA
        merges equal constants into one array and copies that array for every loop that fills it;
        each array is therefore filled with another one of the values of `source`."""

        def empty(number: int, part: jax.Array) -> jax.Array:
            shape = tuple(extent if i == axis else n for i, n in enumerate(part.shape))
            if self._unset:
                return lax.empty(shape, part.dtype)
            if not self.own_blanks:
                return jnp.zeros(shape, part.dtype)
            value = lax.stop_gradient(source).reshape(-1)[number % source.size]
            kind = jnp.real(value) if not jnp.issubdtype(part.dtype, jnp.complexfloating) else value
            return jnp.broadcast_to(kind.astype(part.dtype), shape)

        leaves, tree = jax.tree.flatten(like)
        return jax.tree.unflatten(tree, [empty(*part) for part in enumerate(leaves)])

    @property
    def _unset(self) -> bool:
        return not self.separate and self.own_blanks

    def _message_axis(self, exchange: int, stage: int) -> int:
        if not self.plan.exchanges:
            return 1
        return 2 + self._message_order(exchange).index(self.plan.stages[stage].block)

    def _each_in_sequence(
        self, run: Callable[[Any], Any], given: Any, given_axis: int, made_axis: int
    ) -> Any:
        """`run(given)`; if `sequential`, for one component after another. The axis `given_axis` of
        the arrays `given` counts the components; the results are joined along `made_axis`."""
        source = jax.tree.leaves(given)[0]
        count = source.shape[given_axis]
        if not self.sequential or count == 1 or not self.plan.exchanges:
            return run(given)

        def one(i, before=None):
            part = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, i, 1, axis=given_axis), given)
            return run(part if before is None else jax.tree.map(lambda a: after(a, before), part))

        def put(i, made, part):
            return lax.dynamic_update_slice_in_dim(made, part, i, axis=made_axis)

        made = self._empty(jax.eval_shape(one, jnp.int32(0)), made_axis, count, source)
        if not self.separate:
            return lax.fori_loop(
                0, count, lambda i, made: jax.tree.map(partial(put, i), made, one(i)), made
            )
        # No loop on processors: exchanges in it could start before or after independent ones (see
        # `collectives`).
        before = None
        for i in range(count):
            made = jax.tree.map(partial(put, i), made, one(i, before))
            # A transform that has to be linear in its input cannot have the data dependence that
            # `after` adds.
            before = jax.tree.leaves(made)[0] if self.own_blanks else None
        return made

    def _outer_forward(self, messages: Messages) -> jax.Array:
        """All stages but the first: from the messages that the first stage sends to modes. A GPU
        sends a component when the last but one is transformed: otherwise XLA would receive all
        components before it transforms one."""
        if self.separate or not self.plan.exchanges:
            return self._each_in_sequence(self._outer_forward_of, messages, 1, 0)
        made: list[jax.Array] = []
        for number, message in enumerate(messages):
            if number > 1 and self.own_blanks and self.layout.devices > 1:
                first = after(message[(slice(1),) * message.ndim], made[number - 2])
                message = lax.dynamic_update_slice(message, first, (0,) * message.ndim)
            made.append(self._outer_forward_of((message,)))
        return self._join(tuple(made))

    def _outer_inverse(self, modes: jax.Array, in_turn: bool = False) -> Messages:
        """All stages but the first: from modes to the messages that the first stage receives. With
        `in_turn` a GPU begins a component when the last but one is sent; otherwise XLA pads all of
        them at once."""
        if self.separate or not in_turn or not self.own_blanks or self.layout.devices == 1:
            return self._each_in_sequence(self._outer_inverse_of, modes, 0, 1)
        made: Messages = ()
        for number in range(len(modes)):
            part = modes[number : number + 1]
            made += self._outer_inverse_of(after(part, made[number - 2]) if number > 1 else part)
        return made

    def _outer_forward_of(self, messages: Messages) -> jax.Array:
        modes, last = messages[0], len(self.plan.exchanges)
        for i, stage in enumerate(self.plan.stages[1:], 1):
            received = self._exchange(i - 1, messages)

            def visit(start, size, fresh, i=i, stage=stage, received=received):
                given = self._received(i - 1, received, start, size, forward=True)
                parts = tuple(self._to_modes(stage, part) for part in given)
                return (
                    self._join(parts) if i == last else self._to_send(i, parts, forward=True)
                ), NOTHING

            axis = 1 if i == last else self._message_axis(i, i)
            result, _ = self._visit(i, 2 * self._components(messages), visit, axis, received[0])
            modes, messages = (result, messages) if i == last else (modes, result)
        return modes

    def _outer_inverse_of(self, modes: jax.Array) -> Messages:
        messages: Messages = (modes,)
        last = len(self.plan.exchanges)
        for i, stage in reversed(list(enumerate(self.plan.stages[1:], 1))):

            def visit(start, size, fresh, i=i, stage=stage, messages=messages):
                if i == last:
                    parts = self._cut(lax.dynamic_slice_in_dim(modes, start, size, axis=1))
                else:
                    parts = self._received(i, messages, start, size, forward=False)
                points = tuple(self._to_points(stage, part) for part in parts)
                return self._to_send(i - 1, points, forward=False), NOTHING

            sent, _ = self._visit(
                i, 2 * modes.shape[0], visit, self._message_axis(i - 1, i), messages[0]
            )
            messages = self._exchange(i - 1, sent)
        return messages

    # ---- physical space, in blocks
    # -----------------------------------------------------------------------

    def _points_of(self, start: jax.Array, block: int, order: str = "") -> tuple[Points, jax.Array]:
        """Coordinates of a block, and a mask of its grid points without padding. `order` is the
        order of the block's axes, by default that of the stage."""
        stage, coordinates, inside = self.plan.stages[0], {}, jnp.ones((1, 1, 1), bool)
        order = order or stage.order
        for axis, spacing, extent in zip(
            AXES, self.layout.grid.spacing, self.layout.grid.shape, strict=True
        ):
            parts, local = self.physical.parts(axis), self.local(0, axis)
            index = jnp.arange(local) if axis != stage.block else start + jnp.arange(block)
            if parts > 1:
                index = index + local * lax.axis_index(self.physical.sharded[axis])
            shape = [-1 if a == axis else 1 for a in order]
            coordinates[axis] = (index * spacing).astype(self.dtype).reshape(shape)
            if local * parts > extent:
                inside = inside & (index < extent).reshape(shape)
        return Points(**coordinates), inside

    def forward(self, array: jax.Array) -> jax.Array:
        """Transforms one device's values (component, x, y, z) to its modes (component,
        *layout.order)."""
        if self.back is not None:
            return self.back.forward(array)
        stage = self.plan.stages[0]

        def visit(start, size, fresh):
            part = lax.dynamic_slice_in_dim(array, start, size, axis=1 + AXES.index(stage.block))
            modes = tuple(
                self._to_modes(stage, p) for p in self._cut(take(part, AXES, stage.order))
            )
            return self._to_send(0, modes, forward=True), NOTHING

        messages, _ = self._visit(0, 2 * array.shape[0], visit, self._message_axis(0, 0), array)
        return take(self._outer_forward(messages), self.plan.order, self.layout.order)

    def inverse(self, array: jax.Array) -> jax.Array:
        """Transforms one device's modes to its values (component, x, y, z), zero in padding."""
        stage = self.plan.stages[0]
        messages = self._outer_inverse(take(array, self.layout.order, self.plan.order))

        def visit(start, size, fresh):
            given = self._received(0, messages, start, size, forward=False)
            part = self._join(tuple(self._to_points(stage, p) for p in given))
            return take(part, stage.order, AXES), NOTHING

        values, _ = self._visit(
            0, 2 * array.shape[0], visit, 1 + AXES.index(stage.block), messages[0]
        )
        return values

    def evaluate(
        self,
        array: jax.Array,
        pointwise: Pointwise,
        components: int,
        reverse: bool = False,
        keep: Kept = (),
    ) -> tuple[jax.Array | None, Reductions, Parts]:
        """Transforms one device's modes to the modes of pointwise products of their values, and
        reductions.

        The values and products, `components` at every point, exist one block at a time; a backward
        pass recomputes them. With `reverse` the result needs to be differentiable in reverse mode
        only. The values of the ranges of components in `keep` are returned by native kernels
        only."""
        stage, back = self.plan.stages[0], self.back or self
        only_reduces = components == len(array)
        messages = self._outer_inverse(
            take(array, self.layout.order, self.plan.order), only_reduces
        )

        @jax.checkpoint
        def on_block(parts, start, fresh):
            points, inside = self._points_of(start, len(fresh))
            values = self._join(tuple(self._to_points(stage, part) for part in parts))
            products, reduced = pointwise(values, points, inside & fresh.reshape(-1, 1, 1))
            if products is None:
                return (), reduced
            modes = tuple(back._to_modes(back.plan.stages[0], part) for part in back._cut(products))
            return back._to_send(0, modes, forward=True), reduced

        def visit(start, size, fresh, messages=messages):
            return on_block(self._received(0, messages, start, size, forward=False), start, fresh)

        one = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((1,), bool)
        made, _ = jax.eval_shape(lambda start, fresh: visit(start, 1, fresh), *one)
        axis = back._message_axis(0, 0)
        products, reduced = self._visit(0, components, visit, axis, messages[0], not made, messages)
        modes = (
            take(back._outer_forward(products), back.plan.order, self.layout.order)
            if products
            else None
        )
        return modes, self._over_devices(reduced), ()

    def _over_devices(self, reduced: Reductions) -> Reductions:
        axes = tuple(dict.fromkeys(self.physical.sharded.values()))
        if self.layout.devices == 1 or not axes:
            return reduced
        return Reductions(
            {k: lax.pmax(lax.stop_gradient(v), axes) for k, v in reduced.maxima.items()},
            {k: lax.psum(v, axes) for k, v in reduced.sums.items()},
        )
