"""A per-device function with fixed shardings, closed under JAX's transformations.

`custom_partitioning` gives XLA's partitioner a function of local blocks, with named axes for
collectives and fixed shardings for its arguments and results. In JAX it has no batching,
differentiation or transposition rule. `Program` wraps it in a primitive that has these rules. Each
rule applies the transformation to the local function, so that the derived program communicates like
the original."""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import zero_from_primal
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simulator.cluster.mesh import spatial

Local = Callable[..., tuple[jax.Array, ...]]


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
        self.inputs, self.outputs = tuple(self.inputs), tuple(self.outputs)
        self._axes = tuple(spatial(self.mesh)) if self.axes is None else self.axes
        self._reversible = self.reversible or self.function
        for derive in (
            "batched",
            "tangent",
            "transposed",
        ):  # each program keeps the programs derived from it
            setattr(self, derive, cache(getattr(self, derive)))
        self._calls: dict[Any, ClosedJaxpr] = {}
        self._locals: dict[Any, ClosedJaxpr] = {}

    def __repr__(self) -> str:
        return f"Program({self.name})"

    def __call__(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        arrays = tuple(map(jnp.asarray, arrays))  # JAX passes literals as Python numbers
        return tuple(program_p.bind(*arrays, program=self, call=self._traced(arrays)))

    def _traced(self, arrays: Sequence[Any]) -> ClosedJaxpr:
        """The jaxpr of `partitioned` for these arguments: a parameter of the primitive, in which
        JAX looks for devices and shardings."""
        key = tuple((a.shape, jnp.dtype(a.dtype)) for a in arrays)
        if key not in self._calls:
            avals = [jax.ShapeDtypeStruct(*k) for k in key]
            self._calls[key] = jax.make_jaxpr(self.partitioned)(*avals)
        return self._calls[key]

    def _local(self, aval: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            NamedSharding(self.mesh, spec).shard_shape(aval.shape), aval.dtype
        )

    def local_jaxpr(self, avals: Sequence[Any]) -> ClosedJaxpr:
        """The function, traced for one device's blocks of the given global arguments."""
        key = tuple((a.shape, jnp.dtype(a.dtype)) for a in avals)
        if key not in self._locals:
            self._locals[key] = self._traced_locally(avals)
        return self._locals[key]

    def _traced_locally(self, avals: Sequence[Any]) -> ClosedJaxpr:
        local = [self._local(a, s) for a, s in zip(avals, self.inputs, strict=True)]
        return jax.make_jaxpr(self.function, axis_env=list(self.mesh.shape.items()))(*local)

    def _global_shapes(self, local: ClosedJaxpr) -> tuple[jax.ShapeDtypeStruct, ...]:
        def extended(shape: tuple[int, ...], spec: PartitionSpec) -> tuple[int, ...]:
            parts = (
                math.prod(self.mesh.shape[n] for n in _names(spec[i : i + 1]))
                for i in range(len(shape))
            )
            return tuple(n * count for n, count in zip(shape, parts, strict=True))

        pairs = zip(local.out_avals, self.outputs, strict=True)
        return tuple(jax.ShapeDtypeStruct(extended(o.shape, s), o.dtype) for o, s in pairs)

    @cached_property
    def _shardings(self) -> tuple[tuple[NamedSharding, ...], tuple[NamedSharding, ...]]:
        return (
            tuple(NamedSharding(self.mesh, s) for s in self.inputs),
            tuple(NamedSharding(self.mesh, s) for s in self.outputs),
        )

    def partitioned(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """The function on global arrays, as XLA will partition it."""
        if self.mesh.size == 1:
            return self.function(*arrays)
        traced = self.local_jaxpr(arrays)
        run = jaxpr_as_fun(traced)
        shapes = self._global_shapes(traced)
        into, out = self._shardings
        everywhere = NamedSharding(self.mesh, PartitionSpec())

        @custom_partitioning
        def call(*operands):
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
        held = (lax.with_sharding_constraint(a, s) for a, s in zip(arrays, into, strict=True))
        # The body of a custom partitioning is not part of the key of JAX's compile cache: without
        # its fingerprint as an operand, a changed body with the same shapes would silently run the
        # program compiled before.
        results = call(*held, np.uint32(fingerprint(traced)))
        return tuple(lax.with_sharding_constraint(r, s) for r, s in zip(results, out, strict=True))

    # ---- derived programs
    # ------------------------------------------------------------------------------

    def batched(self, which: tuple[bool, ...], over: tuple[str, ...] = ()) -> "Program":
        """The program over a new leading axis of the arguments selected by `which`, and of all
        results. The axis is sharded over the mesh axes `over`."""
        axes = tuple(0 if b else None for b in which)
        return replace(
            self,
            function=jax.vmap(self.function, in_axes=axes, out_axes=0),
            inputs=[
                PartitionSpec(over or None, *s) if b else s
                for b, s in zip(which, self.inputs, strict=True)
            ],
            outputs=[PartitionSpec(over or None, *s) for s in self.outputs],
            part=None,
            axes=over + self._axes,
            reversible=jax.vmap(self._reversible, in_axes=axes, out_axes=0),
            vjp=None if self.vjp is None else _batched_vjp(self.vjp, axes, len(self.outputs)),
        )

    def tangent(self, positions: tuple[int, ...]) -> "Program":
        """Tangents of all results from all arguments and the tangents of those at `positions`."""
        number = len(self.inputs)

        def along(primals, function):
            def varied(*values):
                full = list(primals)
                for position, value in zip(positions, values, strict=True):
                    full[position] = value
                return function(*full)

            return varied, tuple(primals[p] for p in positions)

        def function(*arguments):
            varied, point = along(arguments[:number], self.function)
            return jax.jvp(varied, point, arguments[number:])[1]

        def vjp(*arguments):
            varied, point = along(arguments[:number], self._reversible)
            return jax.vjp(varied, *point)[1](tuple(arguments[number:]))

        inputs, name = [*self.inputs, *(self.inputs[p] for p in positions)], f"{self.name}_tangent"
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
        local = [self._local(a, s) for a, s in zip(avals, self.inputs, strict=True)]
        varied = [i for i, b in enumerate(linear) if b]
        fixed = [i for i, b in enumerate(linear) if not b]
        tangents_only = linear == (False,) * len(fixed) + (True,) * len(varied)

        def replicas(spec) -> tuple[str, ...]:
            return tuple(n for n in self._axes if n not in _names(spec))

        def function(*arguments):
            residuals, given = arguments[: len(fixed)], arguments[len(fixed) :]

            def along(*values):
                full = dict(zip(fixed, residuals, strict=True)) | dict(
                    zip(varied, values, strict=True)
                )
                return self.function(*(full[i] for i in range(len(linear))))

            shapes = [local[i] for i in varied]
            cotangents = [jnp.zeros(o.shape, o.dtype) for o in jax.eval_shape(along, *shapes)]
            for i, value in zip(nonzero, given, strict=True):
                share = math.prod(self.mesh.shape[n] for n in replicas(self.outputs[i]))
                cotangents[i] = value / share if share > 1 else value
            # The transpose of a tangent program is the backward pass of the primal function, in
            # which parts marked for recomputation store no residuals.
            if tangents_only and self.vjp is not None:
                transposed = self.vjp(*residuals, *cotangents)
            else:
                transposed = jax.linear_transpose(along, *shapes)(tuple(cotangents))
            return tuple(
                lax.psum(v, replicas(self.inputs[i]))
                if self.mesh.size > 1 and replicas(self.inputs[i])
                else v
                for i, v in zip(varied, transposed, strict=True)
            )

        inputs = [*(self.inputs[i] for i in fixed), *(self.outputs[i] for i in nonzero)]
        outputs, name = [self.inputs[i] for i in varied], f"{self.name}_transposed"
        return Program(
            function, self.mesh, inputs, outputs, name=name, linear=not fixed, axes=self._axes
        )


def _batched_vjp(vjp: Local, axes: tuple[int | None, ...], results: int) -> Local:
    def batched(*arguments):
        fixed = len(arguments) - results
        cotangents = jax.vmap(vjp, in_axes=(*axes[:fixed], *(0,) * results), out_axes=0)(*arguments)
        # A tangent that is the same for the whole batch collects the cotangents of all its members.
        return tuple(
            c if a == 0 else c.sum(0) for c, a in zip(cotangents, axes[fixed:], strict=True)
        )

    return batched


def fingerprint(jaxpr: ClosedJaxpr) -> int:
    """A hash of 32 bits of a program: of its operations, their parameters and all constants."""
    digest = hashlib.sha256()

    def constant(value: Any) -> None:
        array = np.asarray(value)
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())

    def add(value: Any) -> None:
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


def _names(spec: Sequence[Any]) -> set[str]:
    entries = (
        entry if isinstance(entry, tuple) else (entry,) for entry in spec if entry is not None
    )
    return {name for entry in entries for name in entry}


def _independent_dimensions(mesh, operands, results) -> str:
    """A sharding rule in which nothing propagates: the shardings of a program are fixed."""
    number = count()
    sides = [
        ", ".join(" ".join(f"f{next(number)}" for _ in t.shape) for t in types)
        for types in (operands, results)
    ]
    return " -> ".join(sides)


program_p = Primitive("program")
program_p.multiple_results = True


@program_p.def_impl
def _(*arrays, program: Program, call: ClosedJaxpr):
    return jax.jit(program.__call__)(*arrays)


@program_p.def_abstract_eval
def _(*avals, program: Program, call: ClosedJaxpr):
    return call.out_avals


def _lower(*arrays, program: Program, call: ClosedJaxpr):
    return jaxpr_as_fun(call)(*arrays)


mlir.register_lowering(program_p, mlir.lower_fun(_lower, multiple_results=True))
# jaxDecomp's primitives are of JAX's "high" kind from version 0.3.4 on; JAX replaces a call that
# contains one by the body of the call before it lowers such primitives.
program_p.to_lojax = _lower


def _jvp(primals, tangents, *, program: Program, call: ClosedJaxpr):
    results = program(*primals)
    positions = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    if program.linear:
        full = [ad.instantiate_zeros(t) for t in tangents]
        return results, program(*full)
    if not positions:
        return results, tuple(zero_from_primal(r) for r in results)
    return results, program.tangent(positions)(*primals, *(tangents[i] for i in positions))


def _transpose(cotangents, *arguments, program: Program, call: ClosedJaxpr):
    linear = tuple(ad.is_undefined_primal(a) for a in arguments)
    avals = tuple(a.aval if u else jax.typeof(a) for a, u in zip(arguments, linear, strict=True))
    nonzero = tuple(i for i, c in enumerate(cotangents) if type(c) is not ad.Zero)
    if not nonzero:
        return [ad.Zero(a) if u else None for a, u in zip(avals, linear, strict=True)]
    residuals = [a for a, u in zip(arguments, linear, strict=True) if not u]
    back = program.transposed(
        linear, tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals), nonzero
    )
    cotangent = iter(back(*residuals, *(cotangents[i] for i in nonzero)))
    return [next(cotangent) if u else None for u in linear]


def _batch(axis, arguments, dimensions, *, program: Program, call: ClosedJaxpr):
    which = tuple(d is not None for d in dimensions)
    if not any(which):
        results = program(*arguments)
        return results, (None,) * len(results)
    moved = [
        jnp.moveaxis(a, d, 0) if b else a
        for a, d, b in zip(arguments, dimensions, which, strict=True)
    ]
    results = program.batched(which, axis.spmd_name or ())(*moved)
    return results, (0,) * len(results)


ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transpose
# The rules of this table are told `spmd_axis_name`, the mesh axis over which `vmap` lays its new
# axis.
batching.fancy_primitive_batchers[program_p] = _batch
