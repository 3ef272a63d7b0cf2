"""A stage of a transform as a JAX primitive, which is lowered to one call of the native kernels.

A stage is linear, and its transpose is a stage: modes and points change places, the sign of the
exponent stays, and the modes of a real field that represent their conjugates are counted once
instead of twice. Under `vmap` the batch axis is merged with the components."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.custom_derivatives import zero_from_primal
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from simulator.spectral.grid import AXES
from simulator.spectral.native import BLANK, STAGE, load


@dataclass(frozen=True)
class Side:
    """The shape of a stage's input or output on one device: an array (component, *order), or
    `messages` arrays (1, component, *order), cut along the axis `split`."""

    order: str
    shape: tuple[int, int, int]  # Extents of one message along the axes of `order`.
    real: bool = False
    messages: int = 1
    split: str | None = None

    @property
    def in_messages(self) -> bool:
        return self.split is not None

    def array(self, components: int) -> tuple[int, ...]:
        """Shape of one array."""
        return (*(1,) * self.in_messages, components, *self.shape)

    def components(self, array: Any) -> int:
        return array.shape[1 if self.in_messages else 0]

    def numbers(self) -> list[int]:
        split = -1 if self.split is None else AXES.index(self.split)
        return [self.messages, split, *map(AXES.index, self.order), *self.shape, int(not self.real)]


@dataclass(frozen=True)
class Transformed:
    """An axis of a stage's planes. Both extents are equal if the stage does not transform the
    axis."""

    axis: str
    points: int
    modes: int


@dataclass(frozen=True)
class Form:
    """The description of a stage, which transforms the first `axes` of the axes `lines`, in this
    order."""

    lines: tuple[Transformed, Transformed]
    axes: int
    to_points: bool
    sign: int
    real: bool
    doubled: bool
    block: str
    planes: int
    source: Side
    target: Side
    start_axis: str = ""
    """The axis along which a stage reads or writes a part of an array, from `start` on: by default
    `block`, else the axis of `lines` that is not transformed."""
    start_in: int = 0
    """`start` is a position in the source (1), or in the target, which is filled in part (2), or is
    unused (0)."""
    scale: float = 1.0
    dtype: str = field(default="float64")  # Type of real values.

    @property
    def fills(self) -> bool:
        """Whether the stage writes a part of existing arrays."""
        return self.start_in == 2

    def geometry(self) -> list[int]:
        """The numbers of `Geometry` in `plan.h`."""
        first, second = ([AXES.index(line.axis), line.points, line.modes] for line in self.lines)
        flags = [int(self.to_points), self.sign, int(self.real), int(self.doubled)]
        block = [
            AXES.index(self.block),
            self.planes,
            AXES.index(self.start_axis or self.block),
            self.start_in,
        ]
        return [
            self.axes,
            *first,
            *second,
            *flags,
            *block,
            *self.source.numbers(),
            *self.target.numbers(),
        ]

    def dtype_of(self, side: Side) -> np.dtype:
        return np.dtype(self.dtype) if side.real else np.result_type(self.dtype, np.complex64)

    def transposed(self) -> "Form":
        """The form of the stage that is the transpose of this stage."""
        axes = self.lines[: self.axes]
        lines = (*axes[::-1], *self.lines[self.axes :])
        return replace(
            self,
            lines=lines,
            to_points=not self.to_points,
            source=self.target,
            target=self.source,
            start_in={0: 0, 1: 2, 2: 1}[self.start_in],
        )


def run(form: Form, messages: Any, start: Any = None, into: Any = ()) -> tuple[jax.Array, ...]:
    """The arrays of the target. `start`: the first plane; `into`: the arrays to fill, if
    `form.fills`."""
    given = (*messages, *(() if form.start_in == 0 else (jnp.asarray(start, jnp.int32),)), *into)
    return tuple(stage_p.bind(*given, form=form))


def blank(shape: tuple[int, ...], dtype: Any, number: int) -> jax.Array:
    """Uninitialized memory for a loop to fill; different values of `number` keep XLA from merging
    equal arrays."""
    return blank_p.bind(shape=tuple(shape), dtype=np.dtype(dtype), number=number)


stage_p = Primitive("native_stage")
stage_p.multiple_results = True
blank_p = Primitive("native_blank")


@stage_p.def_impl
def _(*given, form: Form):
    return jax.jit(lambda *arrays: stage_p.bind(*arrays, form=form))(*given)


@stage_p.def_abstract_eval
def _(*given, form: Form):
    components = form.source.components(given[0])
    shape, dtype = form.target.array(components), form.dtype_of(form.target)
    return [ShapedArray(shape, dtype)] * form.target.messages


def _call(*given, form: Form):
    double = form.dtype == "float64"
    geometry = form.geometry()
    components = form.source.components(given[0])
    made = jax.ShapeDtypeStruct(form.target.array(components), form.dtype_of(form.target))
    scratch = jax.ShapeDtypeStruct((load().scratch_bytes(geometry, double),), np.uint8)
    before = form.source.messages + 1
    aliases = {before + i: i for i in range(form.target.messages)} if form.fills else None
    call = jax.ffi.ffi_call(
        STAGE, (made,) * form.target.messages + (scratch,), input_output_aliases=aliases
    )
    return call(*given, geometry=np.asarray(geometry, np.int64), scale=np.float64(form.scale))[:-1]


mlir.register_lowering(stage_p, mlir.lower_fun(_call, multiple_results=True))


def _split(given: Any, form: Form) -> tuple[list[Any], list[Any], list[Any]]:
    """Messages, start, and arrays to fill."""
    count = form.source.messages
    middle = count + (form.start_in > 0)
    return list(given[:count]), list(given[count:middle]), list(given[middle:])


def _jvp(primals, tangents, *, form: Form):
    made = stage_p.bind(*primals, form=form)
    _, start, _ = _split(primals, form)
    messages_dot, _, into_dot = _split(tangents, form)
    linear = [*messages_dot, *into_dot]
    if all(type(t) is ad.Zero for t in linear):
        return made, [zero_from_primal(m) for m in made]
    messages_dot = [ad.instantiate_zeros(t) for t in messages_dot]
    into_dot = [ad.instantiate_zeros(t) for t in into_dot]
    return made, stage_p.bind(*messages_dot, *start, *into_dot, form=form)


def _transpose(cotangents, *given, form: Form):
    _, start, _ = _split(given, form)
    if all(type(c) is ad.Zero for c in cotangents):
        return [ad.Zero(a.aval) if ad.is_undefined_primal(a) else None for a in given]
    cotangents = [ad.instantiate_zeros(c) for c in cotangents]
    form_back = form.transposed()
    if form_back.fills:
        # Planes that the stage did not read have the cotangent 0.
        components = form.target.components(cotangents[0])
        empty = [
            jnp.zeros(form.source.array(components), form.dtype_of(form.source))
            for _ in range(form.source.messages)
        ]
        back = stage_p.bind(*cotangents, *start, *empty, form=form_back)
    else:
        back = stage_p.bind(*cotangents, *start, form=form_back)
    rest = [_without(c, start[0], form) for c in cotangents] if form.fills else []
    all_cotangents = [*back, *(None for _ in start), *rest]
    return [
        c if ad.is_undefined_primal(a) else None for c, a in zip(all_cotangents, given, strict=True)
    ]


def _without(array: jax.Array, start: jax.Array, form: Form) -> jax.Array:
    """An array of the target with the planes (or lines) that the stage has written set to zero."""
    along = form.start_axis or form.block
    axis = array.ndim - 3 + form.target.order.index(along)
    written = form.planes if along == form.block else form.lines[1].points
    shape = [written if i == axis else n for i, n in enumerate(array.shape)]
    return lax.dynamic_update_slice_in_dim(array, jnp.zeros(shape, array.dtype), start, axis=axis)


def _batch(given, dimensions, *, form: Form):
    size = next(a.shape[d] for a, d in zip(given, dimensions, strict=True) if d is not None)
    messages, start, into = _split(list(zip(given, dimensions, strict=True)), form)
    if start and start[0][1] is not None:
        raise NotImplementedError("all stages of a batch have to start at the same plane")

    def joined(array, dimension, side: Side):
        if dimension is None:
            array, dimension = jnp.broadcast_to(array, (size, *array.shape)), 0
        at = 1 if side.in_messages else 0
        array = jnp.moveaxis(array, dimension, at)
        return array.reshape(*array.shape[:at], size * array.shape[at + 1], *array.shape[at + 2 :])

    made = stage_p.bind(
        *(joined(a, d, form.source) for a, d in messages),
        *(a for a, _ in start),
        *(joined(a, d, form.target) for a, d in into),
        form=form,
    )
    at = 1 if form.target.in_messages else 0
    return [m.reshape(*m.shape[:at], size, -1, *m.shape[at + 1 :]) for m in made], (at,) * len(made)


ad.primitive_jvps[stage_p] = _jvp
ad.primitive_transposes[stage_p] = _transpose
batching.primitive_batchers[stage_p] = _batch


@blank_p.def_impl
def _(**parameters):
    return jax.jit(lambda: blank_p.bind(**parameters))()


@blank_p.def_abstract_eval
def _(*, shape, dtype, number):
    return ShapedArray(shape, dtype)


def _blank(*, shape, dtype, number):
    made = jax.ShapeDtypeStruct(shape, dtype)
    return jax.ffi.ffi_call(BLANK, made)(number=np.int64(number))


mlir.register_lowering(blank_p, mlir.lower_fun(_blank, multiple_results=False))
