"""A per-device function with fixed shardings, closed under JAX's transformations.

`custom_partitioning` gives XLA's partitioner a function of local blocks, with named axes for
collectives and fixed shardings for its arguments and results. In JAX it has no batching,
differentiation or transposition rule. `Program` wraps it in a primitive that has these rules. Each
rule applies the transformation to the local function, so that the derived program communicates like
the original."""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.custom_derivatives import zero_from_primal
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from simulator.cluster.mesh import spatial

Arrays = tuple[jax.Array, ...]
Local = Callable[..., Arrays]


@dataclass(eq=False, repr=False)
class Program:
    """`function(*local blocks) -> tuple of local blocks`, applied to global arrays with the
    shardings `inputs`.

    The function may use collectives over the mesh's axes, but not if `mesh.size` is 1, and must not
    close over traced values. With `linear`, the function is linear in all its arguments, and the
    program is its own tangent. `part` is a transform and the name of the transform's method that
    the program computes, for analyses of a step. `axes` are the axes of the mesh over which
    arguments and results are divided or replicated, by default those that cut space. Devices along
    the other axes repeat each other's work. `reversible` is the same function, for reverse mode
    only. Tangent programs have `vjp`: (residuals, cotangents of all results) -> cotangents of the
    tangents."""

    function: Local
    mesh: Mesh
    inputs: Sequence[PartitionSpec]
    outputs: Sequence[PartitionSpec]
    name: str = field(kw_only=True)
    linear: bool = False
    part: "tuple[Any, str] | None" = None
    axes: tuple[str, ...] | None = None
    reversible: Local | None = None
    vjp: Local | None = None

    def __post_init__(self) -> None:
        self.inputs = tuple(self.inputs)
        self.outputs = tuple(self.outputs)
        self._axes = tuple(spatial(self.mesh)) if self.axes is None else self.axes
        self._reversible = self.reversible or self.function
        # Each program keeps its traces and the programs derived from it.
        for method in ("_traced", "_traced_locally", "batched", "tangent", "transposed"):
            setattr(self, method, cache(getattr(self, method)))

    def __repr__(self) -> str:
        return f"Program({self.name})"

    def __call__(self, *arrays: jax.Array) -> Arrays:
        arrays = tuple(map(jnp.asarray, arrays))  # JAX passes literals as Python numbers
        return tuple(program_p.bind(*arrays, program=self, call=self._traced(*_shapes(arrays))))

    def _traced(self, *arguments: jax.ShapeDtypeStruct) -> ClosedJaxpr:
        """The jaxpr of `partitioned` for these arguments: a parameter of the primitive, in which
        JAX looks for devices and shardings."""
        return jax.make_jaxpr(self.partitioned)(*arguments)

    def local_jaxpr(self, arrays: Sequence[Any]) -> ClosedJaxpr:
        """The function, traced for one device's blocks of global arrays, or of their shapes and
        types."""
        return self._traced_locally(*_shapes(arrays))

    def _traced_locally(self, *arguments: jax.ShapeDtypeStruct) -> ClosedJaxpr:
        axes = list(self.mesh.shape.items())
        return jax.make_jaxpr(self.function, axis_env=axes)(*self._blocks(arguments))

    def _blocks(self, arguments: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        """The shapes and types of one device's blocks of the arguments."""
        blocks: list[jax.ShapeDtypeStruct] = []
        for array, sharding in zip(arguments, self._shardings[0], strict=True):
            blocks.append(jax.ShapeDtypeStruct(sharding.shard_shape(array.shape), array.dtype))
        return blocks

    def _global_shapes(self, local: ClosedJaxpr) -> list[jax.ShapeDtypeStruct]:
        shapes: list[jax.ShapeDtypeStruct] = []
        for block, spec in zip(local.out_avals, self.outputs, strict=True):
            parts = (self._devices(_names(spec[i : i + 1])) for i in range(block.ndim))
            shape = tuple(n * count for n, count in zip(block.shape, parts, strict=True))
            shapes.append(jax.ShapeDtypeStruct(shape, block.dtype))
        return shapes

    def _devices(self, axes: Iterable[str]) -> int:
        """The number of devices along axes of the mesh."""
        return math.prod(self.mesh.shape[name] for name in axes)

    @cached_property
    def _shardings(self) -> tuple[tuple[NamedSharding, ...], tuple[NamedSharding, ...]]:
        return (
            tuple(NamedSharding(self.mesh, s) for s in self.inputs),
            tuple(NamedSharding(self.mesh, s) for s in self.outputs),
        )

    def partitioned(self, *arrays: jax.Array) -> Arrays:
        """The function on global arrays, as XLA will partition it."""
        if self.mesh.size == 1:
            return self.function(*arrays)
        traced = self.local_jaxpr(arrays)
        run = jaxpr_as_fun(traced)
        shapes = self._global_shapes(traced)
        into, out = self._shardings
        everywhere = NamedSharding(self.mesh, PartitionSpec())

        @custom_partitioning
        def call(*operands: jax.Array) -> Arrays:
            # This body defines only the shapes; the partitioner replaces it.
            return tuple(jnp.zeros(s.shape, s.dtype) for s in shapes)

        call.def_partition(
            partition=lambda mesh, arguments, results: (
                self.mesh,
                lambda *operands: tuple(run(*operands[:-1])),
                out,
                (*into, everywhere),
            ),
            infer_sharding_from_operands=lambda mesh, arguments, results: out,
            sharding_rule=_independent_dimensions,
        )
        sharded = _constrained(arrays, into)
        # The body of a custom partitioning is not part of the key of JAX's compile cache: without
        # its fingerprint as an operand, a changed body with the same shapes would silently run the
        # program compiled before.
        results = call(*sharded, np.uint32(fingerprint(traced)))
        return _constrained(results, out)

    # ---- derived programs
    # ------------------------------------------------------------------------------

    def batched(self, which: tuple[bool, ...], over: tuple[str, ...] = ()) -> "Program":
        """The program over a new leading axis of the arguments selected by `which`, and of all
        results. The axis is sharded over the mesh axes `over`."""

        def extended(spec: PartitionSpec) -> PartitionSpec:
            return PartitionSpec(over or None, *spec)

        pairs = zip(which, self.inputs, strict=True)
        axes = tuple(0 if selected else None for selected in which)
        vjp = self.vjp and _batched_vjp(self.vjp, axes, len(self.outputs))
        return replace(
            self,
            function=jax.vmap(self.function, in_axes=axes),
            inputs=[extended(spec) if selected else spec for selected, spec in pairs],
            outputs=list(map(extended, self.outputs)),
            part=None,
            axes=over + self._axes,
            reversible=jax.vmap(self._reversible, in_axes=axes),
            vjp=vjp,
        )

    def tangent(self, positions: tuple[int, ...]) -> "Program":
        """Tangents of all results from all arguments and the tangents of those at `positions`."""
        number = len(self.inputs)

        def along(primals: Arrays, function: Local) -> tuple[Callable[..., Arrays], Arrays]:
            """The function of the primals at `positions`, and these primals."""

            def varied(*values: jax.Array) -> Arrays:
                every = dict(enumerate(primals)) | dict(zip(positions, values, strict=True))
                return function(*every.values())

            return varied, tuple(primals[p] for p in positions)

        def function(*arguments: jax.Array) -> Arrays:
            varied, point = along(arguments[:number], self.function)
            return jax.jvp(varied, point, arguments[number:])[1]

        def vjp(*arguments: jax.Array) -> Arrays:
            varied, point = along(arguments[:number], self._reversible)
            return jax.vjp(varied, *point)[1](arguments[number:])

        inputs = [*self.inputs, *(self.inputs[p] for p in positions)]
        name = f"{self.name}_tangent"
        return Program(
            function, self.mesh, inputs, self.outputs, name=name, axes=self._axes, vjp=vjp
        )

    def transposed(
        self, linear: tuple[bool, ...], avals: tuple[Any, ...], nonzero: tuple[int, ...]
    ) -> Local:
        """The function from the non-linear arguments and the cotangents of the results `nonzero` to
        the cotangents of the linear arguments.

        As in any SPMD program, the cotangent of a replicated result is divided among its replicas,
        and the cotangent of a replicated argument is the sum over its replicas."""
        blocks = self._blocks(avals)
        varied = [i for i, b in enumerate(linear) if b]
        fixed = [i for i, b in enumerate(linear) if not b]
        shapes = [blocks[i] for i in varied]
        tangents_only = fixed + varied == list(range(len(linear)))

        def replicas(spec: PartitionSpec) -> tuple[str, ...]:
            return tuple(n for n in self._axes if n not in _names(spec))

        def shared_out(cotangent: jax.Array, spec: PartitionSpec) -> jax.Array:
            share = self._devices(replicas(spec))
            return cotangent / share if share > 1 else cotangent

        def summed(cotangent: jax.Array, spec: PartitionSpec) -> jax.Array:
            axes = replicas(spec)
            return lax.psum(cotangent, axes) if self.mesh.size > 1 and axes else cotangent

        def function(*arguments: jax.Array) -> Arrays:
            residuals = arguments[: len(fixed)]

            def along(*values: jax.Array) -> Arrays:
                every = dict(zip([*fixed, *varied], [*residuals, *values], strict=True))
                return self.function(*(every[i] for i in range(len(linear))))

            cotangents = [jnp.zeros(o.shape, o.dtype) for o in jax.eval_shape(along, *shapes)]
            for i, cotangent in zip(nonzero, arguments[len(fixed) :], strict=True):
                cotangents[i] = shared_out(cotangent, self.outputs[i])
            # The transpose of a tangent program is the backward pass of the primal function, in
            # which parts marked for recomputation store no residuals.
            if tangents_only and self.vjp is not None:
                transposed = self.vjp(*residuals, *cotangents)
            else:
                transposed = jax.linear_transpose(along, *shapes)(tuple(cotangents))
            return tuple(map(summed, transposed, outputs))

        inputs = [*(self.inputs[i] for i in fixed), *(self.outputs[i] for i in nonzero)]
        outputs = [self.inputs[i] for i in varied]
        name = f"{self.name}_transposed"
        return Program(
            function, self.mesh, inputs, outputs, name=name, linear=not fixed, axes=self._axes
        )


def _batched_vjp(vjp: Local, axes: tuple[int | None, ...], results: int) -> Local:
    def batched(*arguments: jax.Array) -> Arrays:
        fixed = len(arguments) - results
        cotangents = jax.vmap(vjp, in_axes=(*axes[:fixed], *(0,) * results))(*arguments)
        # A tangent that is the same for the whole batch collects the cotangents of all its members.
        pairs = zip(cotangents, axes[fixed:], strict=True)
        return tuple(c if axis == 0 else c.sum(0) for c, axis in pairs)

    return batched


def _shapes(arrays: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]


def _constrained(arrays: Sequence[jax.Array], shardings: Sequence[NamedSharding]) -> Arrays:
    return tuple(map(lax.with_sharding_constraint, arrays, shardings))


def fingerprint(jaxpr: ClosedJaxpr) -> int:
    """A hash of 32 bits of a program: of its operations, their parameters and all constants."""
    digest = hashlib.sha256()

    def constant(value: ArrayLike) -> None:
        array = np.asarray(value)
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())

    def add(value: object) -> None:
        if isinstance(value, ClosedJaxpr):
            for item in value.consts:
                constant(item)
        if isinstance(value, ClosedJaxpr | Jaxpr):
            for equation in value.eqns:
                for operand in equation.invars:
                    if isinstance(operand, Literal):  # printed with few digits
                        constant(operand.val)
                for name in sorted(equation.params):
                    add(equation.params[name])
        elif isinstance(value, tuple | list):
            for item in value:
                add(item)
        # The attributes of native calls hold their numbers in `val`, and print them with few
        # digits.
        elif isinstance(value := getattr(value, "val", value), np.ndarray | jax.Array):
            constant(value)

    add(jaxpr)
    # Addresses of Python functions differ between processes and are meaningless.
    digest.update(re.sub(r"0x[0-9a-f]+", "", str(jaxpr)).encode())
    return int.from_bytes(digest.digest()[:4], "little")


def _names(spec: Iterable[Any]) -> set[str]:
    """The axes of the mesh in a partition."""
    names: set[str] = set()
    for entry in spec:
        names |= set() if entry is None else {entry} if isinstance(entry, str) else {*entry}
    return names


def _independent_dimensions(mesh: Mesh, operands: Sequence[Any], results: Sequence[Any]) -> str:
    """A sharding rule in which nothing propagates: the shardings of a program are fixed."""
    number = count()

    def named(array: jax.Array | ShapedArray | jax.ShapeDtypeStruct) -> str:
        return " ".join(f"f{next(number)}" for _ in array.shape)

    return " -> ".join(", ".join(map(named, arrays)) for arrays in (operands, results))


program_p = Primitive("program")
program_p.multiple_results = True


@program_p.def_impl
def _(*arrays: jax.Array, program: Program, call: ClosedJaxpr) -> Arrays:
    return jax.jit(program.__call__)(*arrays)


@program_p.def_abstract_eval
def _(*avals: ShapedArray, program: Program, call: ClosedJaxpr) -> list[Any]:
    return call.out_avals


def _lower(*arrays: jax.Array, program: Program, call: ClosedJaxpr) -> list[Any]:
    return jaxpr_as_fun(call)(*arrays)


mlir.register_lowering(program_p, mlir.lower_fun(_lower, multiple_results=True))
# jaxDecomp's primitives are of JAX's "high" kind from version 0.3.4 on; JAX replaces a call that
# contains one by the body of the call before it lowers such primitives.
program_p.to_lojax = _lower


def _jvp(
    primals: Arrays, tangents: Sequence[Any], *, program: Program, call: ClosedJaxpr
) -> tuple[Arrays, Arrays]:
    results = program(*primals)
    positions = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    if program.linear:
        return results, program(*map(ad.instantiate_zeros, tangents))
    if not positions:
        return results, tuple(map(zero_from_primal, results))
    return results, program.tangent(positions)(*primals, *(tangents[i] for i in positions))


def _transpose(
    cotangents: Sequence[Any], *arguments: Any, program: Program, call: ClosedJaxpr
) -> list[Any]:
    linear = tuple(map(ad.is_undefined_primal, arguments))
    avals = [a.aval if u else jax.typeof(a) for a, u in zip(arguments, linear, strict=True)]
    nonzero = tuple(i for i, c in enumerate(cotangents) if type(c) is not ad.Zero)
    if not nonzero:
        return [ad.Zero(a) if u else None for a, u in zip(avals, linear, strict=True)]
    residuals = [a for a, u in zip(arguments, linear, strict=True) if not u]
    backward = program.transposed(linear, tuple(_shapes(avals)), nonzero)
    cotangent = iter(backward(*residuals, *(cotangents[i] for i in nonzero)))
    return [next(cotangent) if u else None for u in linear]


def _batch(
    axis: Any,
    arguments: Arrays,
    dimensions: Sequence[int | None],
    *,
    program: Program,
    call: ClosedJaxpr,
) -> tuple[Arrays, tuple[int | None, ...]]:
    which = tuple(d is not None for d in dimensions)
    if not any(which):
        results = program(*arguments)
        return results, (None,) * len(results)
    pairs = zip(arguments, dimensions, strict=True)
    moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in pairs]
    results = program.batched(which, axis.spmd_name or ())(*moved)
    return results, (0,) * len(results)


ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transpose
# The rules of this table are told `spmd_axis_name`, the mesh axis over which `vmap` lays its new
# axis.
batching.fancy_primitive_batchers[program_p] = _batch
