"""A stage of a transform as a JAX primitive, which is lowered to one call of the native kernels.

A stage is linear, and its transpose is a stage: modes and points change places, the sign of the
exponent stays, and the modes of a real field that represent their conjugates are counted once
instead of twice. Under `vmap` the batch axis is merged with the components."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """The shape of a stage's input or output on one device: an array (component, *order), or
    `messages` arrays (1, component, *order), cut along the axis `split`."""

    order: str
    shape: tuple[int, int, int]  # Extents of one message along the axes of `order`.
    real: bool = False
    messages: int = 1
    split: str | None = None

    def array(self, components: int) -> tuple[int, ...]:
        """Shape of one array."""
        return (*(1,) * self.lead, components, *self.shape)

    @property
    def lead(self) -> int:
        """The axis of an array that counts its components."""
        return 0 if self.split is None else 1

    def components(self, array: jax.Array | ShapedArray) -> int:
        return array.shape[self.lead]

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
    threads: int = 1
    """The most threads of XLA's pool that share the planes of the stage."""
    dtype: str = "float64"  # Type of real values.

    @property
    def fills(self) -> bool:
        """Whether the stage writes a part of existing arrays."""
        return self.start_in == 2

    @cached_property
    def geometry(self) -> list[int]:
        """The numbers of `Geometry` in `plan.h`."""
        numbers = [self.axes]
        for line in self.lines:
            numbers += [AXES.index(line.axis), line.points, line.modes]
        numbers += [int(self.to_points), self.sign, int(self.real), int(self.doubled)]
        numbers += [AXES.index(self.block), self.planes]
        numbers += [AXES.index(self.start_axis or self.block), self.start_in]
        return [*numbers, *self.source.numbers(), *self.target.numbers()]

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


Arrays = tuple[jax.Array, ...]


def run(form: Form, messages: Arrays, start: jax.Array | None = None, into: Arrays = ()) -> Arrays:
    """The arrays of the target. `start`: the first plane; `into`: the arrays to fill, if
    `form.fills`."""
    position = () if start is None else (jnp.asarray(start, jnp.int32),)
    return tuple(stage_p.bind(*messages, *position, *into, form=form))


def blank(shape: tuple[int, ...], dtype: np.dtype, number: int) -> jax.Array:
    """Uninitialized memory for a loop to fill; different values of `number` keep XLA from merging
    equal arrays."""
    return blank_p.bind(shape=tuple(shape), dtype=np.dtype(dtype), number=number)


stage_p = Primitive("native_stage")
stage_p.multiple_results = True
blank_p = Primitive("native_blank")


@stage_p.def_impl
def _(*operands: jax.Array, form: Form) -> list[jax.Array]:
    return jax.jit(lambda *arrays: stage_p.bind(*arrays, form=form))(*operands)


@stage_p.def_abstract_eval
def _(*operands: ShapedArray, form: Form) -> list[ShapedArray]:
    components = form.source.components(operands[0])
    result = ShapedArray(form.target.array(components), form.dtype_of(form.target))
    return [result] * form.target.messages


def _call(*operands: jax.Array, form: Form) -> Sequence[jax.Array]:
    geometry, count = form.geometry, form.target.messages
    components = form.source.components(operands[0])
    result = jax.ShapeDtypeStruct(form.target.array(components), form.dtype_of(form.target))
    # Every thread works in memory of its own.
    scratch = form.threads * load().scratch_bytes(geometry, form.dtype == "float64")
    results = [*[result] * count, jax.ShapeDtypeStruct((scratch,), np.uint8)]
    first = form.source.messages + 1
    aliases = {first + i: i for i in range(count)} if form.fills else None
    call = jax.ffi.ffi_call(STAGE, results, input_output_aliases=aliases)
    numbers = np.asarray(geometry, np.int64)
    return call(*operands, geometry=numbers, scale=np.float64(form.scale))[:-1]


mlir.register_lowering(stage_p, mlir.lower_fun(_call, multiple_results=True))


def _split(operands: Sequence[T], form: Form) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """Messages, start, and arrays to fill."""
    count = form.source.messages
    middle = count + (form.start_in > 0)
    return operands[:count], operands[count:middle], operands[middle:]


def _jvp(
    primals: Arrays, tangents: tuple[jax.Array | ad.Zero, ...], *, form: Form
) -> tuple[list[jax.Array], list[jax.Array | ad.Zero]]:
    results = stage_p.bind(*primals, form=form)
    _, start, _ = _split(primals, form)
    messages, _, into = _split(tangents, form)
    if all(type(tangent) is ad.Zero for tangent in (*messages, *into)):
        return results, [zero_from_primal(result) for result in results]
    messages, into = (map(ad.instantiate_zeros, part) for part in (messages, into))
    return results, stage_p.bind(*messages, *start, *into, form=form)


def _transpose(cotangents: list[Any], *operands: Any, form: Form) -> list[Any]:
    undefined = [ad.is_undefined_primal(operand) for operand in operands]
    if all(type(cotangent) is ad.Zero for cotangent in cotangents):
        pairs = zip(operands, undefined, strict=True)
        return [ad.Zero(operand.aval) if varied else None for operand, varied in pairs]
    _, start, _ = _split(operands, form)
    cotangents = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    backward, empty = form.transposed(), []
    if backward.fills:
        # Planes that the stage did not read have the cotangent 0.
        shape = form.source.array(form.target.components(cotangents[0]))
        dtype = form.dtype_of(form.source)
        empty = [jnp.zeros(shape, dtype) for _ in range(form.source.messages)]
    of_messages = stage_p.bind(*cotangents, *start, *empty, form=backward)
    of_filled = [_without(c, start[0], form) for c in cotangents] if form.fills else []
    pairs = zip([*of_messages, *(None for _ in start), *of_filled], undefined, strict=True)
    return [cotangent if varied else None for cotangent, varied in pairs]


def _without(array: jax.Array, start: jax.Array, form: Form) -> jax.Array:
    """An array of the target with the planes (or lines) that the stage has written set to zero."""
    along = form.start_axis or form.block
    axis = array.ndim - 3 + form.target.order.index(along)
    written = form.planes if along == form.block else form.lines[1].points
    shape = [written if i == axis else n for i, n in enumerate(array.shape)]
    return lax.dynamic_update_slice_in_dim(array, jnp.zeros(shape, array.dtype), start, axis=axis)


def _batch(
    operands: Arrays, dimensions: tuple[int | None, ...], *, form: Form
) -> tuple[list[jax.Array], tuple[int, ...]]:
    pairs = list(zip(operands, dimensions, strict=True))
    size = next(array.shape[axis] for array, axis in pairs if axis is not None)
    messages, start, into = _split(pairs, form)
    if start and start[0][1] is not None:
        raise NotImplementedError("all stages of a batch have to start at the same plane")

    def joined(array: jax.Array, axis: int | None, side: Side) -> jax.Array:
        """The batch, merged with the components."""
        if axis is None:
            array, axis = jnp.broadcast_to(array, (size, *array.shape)), 0
        lead = side.lead
        array = jnp.moveaxis(array, axis, lead)
        return array.reshape(*array.shape[:lead], -1, *array.shape[lead + 2 :])

    results = stage_p.bind(
        *(joined(array, axis, form.source) for array, axis in messages),
        *(position for position, _ in start),
        *(joined(array, axis, form.target) for array, axis in into),
        form=form,
    )
    lead = form.target.lead
    separated = [r.reshape(*r.shape[:lead], size, -1, *r.shape[lead + 1 :]) for r in results]
    return separated, (lead,) * len(results)


ad.primitive_jvps[stage_p] = _jvp
ad.primitive_transposes[stage_p] = _transpose
batching.primitive_batchers[stage_p] = _batch


@blank_p.def_impl
def _(**parameters: Any) -> jax.Array:
    return jax.jit(lambda: blank_p.bind(**parameters))()


@blank_p.def_abstract_eval
def _(*, shape: tuple[int, ...], dtype: np.dtype, number: int) -> ShapedArray:
    return ShapedArray(shape, dtype)


def _blank(*, shape: tuple[int, ...], dtype: np.dtype, number: int) -> jax.Array:
    result = jax.ShapeDtypeStruct(shape, dtype)
    return jax.ffi.ffi_call(BLANK, result)(number=np.int64(number))


mlir.register_lowering(blank_p, mlir.lower_fun(_blank, multiple_results=False))
