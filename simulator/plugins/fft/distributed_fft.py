"""Fourier transforms of arrays that are divided among devices, for programs of others."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Complex, Inexact

from simulator.cluster.hardware import usable_cores
from simulator.cluster.mesh import make_mesh
from simulator.errors import UserError
from simulator.spectral.arrays import OverModes, OverPoints, SpectralField
from simulator.spectral.backends import BACKENDS, preferred
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes, TransformOptions
from simulator.spectral.grid import AXES, Grid
from simulator.spectral.layout import Arrangement, padded
from simulator.spectral.plans import PLANS
from simulator.spectral.staged import NAME, StagedTransform

Keep = Literal["all", "two_thirds", "spherical"]
Norm = Literal["backward", "ortho", "forward"]
Local = Callable[[jax.Array], jax.Array]
"""A function of one device's part of an array (component, a, b, c)."""
TO_MODES = ("forward", "rfftn", "fftn")
"""Methods that take values."""


class DistributedFFT:
    """`rfftn` and `irfftn`, or `fftn` and `ifftn`, of arrays (..., x, y, z) on many devices.

    `forward` and `inverse` take the fewest exchanges between devices: one for slabs, two for
    pencils. Values are divided among the devices along y (pencils: along x and y), modes along z
    (pencils: along y and z); `order` is the order of the modes' axes. JAX divides an axis into
    equal parts only: an axis that does not divide ends with zeros, and `values_shape` and
    `modes_shape` count them. `rfftn` and its relatives have the order, the extents and the values
    of numpy's, which takes as many exchanges again.

    All can be transformed by `jit`, `vmap`, `jvp`, `vjp` and `grad`. Leading axes are components;
    those of one call travel together."""

    def __init__(
        self,
        shape: Sequence[int],
        devices: Devices | Mesh | None = None,
        *,
        box: Sequence[float] = (2 * math.pi,) * 3,
        real: bool = True,
        keep: Keep = "all",
        norm: Norm = "backward",
        dtype: DTypeLike | None = None,
        kernels: Kernels = "auto",
        threads: int | None = None,
    ):
        """The transform of `shape` points along x, y, z, of any size; (1, nx, ny) are planes.

        `devices`: those of all processes, by default `jax.devices()`; or a mesh, whose axes may be
        Auto or Explicit. A mesh of one axis makes slabs; in a mesh of two, values are divided along
        x over the first and along y over the second.
        `box`: the lengths that wavenumbers and coordinates refer to.
        `real`: values are real, and of modes only kz >= 0 are stored.
        `keep`: the modes that are stored and sent: all, or those of which products of two fields
        are free of aliasing (see `Grid`).
        `norm`: the direction that is scaled, as in numpy.
        `dtype`: the type of real values, by default float64 if `jax_enable_x64` is set, else
        float32.
        `kernels`: native (C++, on processors), xla, or auto.
        `threads`: of native kernels on each processor's device; by default the devices of a process
        share its cores.

        Raises UserError for an unknown word, or if the devices cannot share the points and the
        modes."""
        _refuse_unknown({"keep": (keep, Keep), "norm": (norm, Norm), "kernels": (kernels, Kernels)})
        modes = _modes(shape, box, real, keep)
        grid = modes.grid
        candidate, self.mesh = _placed(modes, devices, kernels)
        self._plan = PLANS[candidate.plan].on(self.mesh.axis_names[-len(candidate.mesh) :])
        self.dtype = np.dtype(dtype or jnp.result_type(float))
        options = TransformOptions(kernels=kernels, threads=threads or _threads(self.mesh))
        self._staged = StagedTransform(modes, self.mesh, self._plan, self.dtype, options)
        factors = {"backward": grid.points, "ortho": math.sqrt(grid.points), "forward": 1}
        self._schedule = self._staged.schedule.of_fields(float(factors[norm]))
        self._counts = modes.counts
        self.shape = grid.shape
        self.real = real
        self.order = self._staged.layout.order
        self.values_shape = self._staged.physical.shape
        self.modes_shape = self._staged.layout.shape

    # ---- distributed arrays

    @property
    def sharding(self) -> NamedSharding:
        """The distribution of values (x, y, z)."""
        return self._staged.physical.sharding()

    @property
    def modes_sharding(self) -> NamedSharding:
        """The distribution of modes (*order)."""
        return self._staged.layout.sharding()

    def scatter(self, values: Inexact[np.ndarray, "*component nx ny nz"]) -> jax.Array:
        """The distributed array of values that every process has whole, followed by zeros where an
        axis does not divide."""
        ends = _ends(values.shape, self.values_shape)
        whole = np.pad(values, ends).astype(self._staged.value_dtype)
        sharding = self._staged.physical.sharding(whole.ndim)
        return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

    def gather(self, values: jax.Array) -> Inexact[np.ndarray, "*component nx ny nz"]:
        """Values of a distributed array on every process, without the zeros at the end of axes."""
        if not values.is_fully_addressable:
            values = process_allgather(values, tiled=True)
        nx, ny, nz = self.shape
        return np.asarray(values)[..., :nx, :ny, :nz]

    # ---- transforms

    def forward(self, values: Inexact[Array, "*component x y z"]) -> SpectralField:
        """The modes (..., *modes_shape) of values (..., *shape) or (..., *values_shape)."""
        return self._forward(self._checked("forward", values, self.shape, self.values_shape))

    def inverse(self, modes: SpectralField) -> Inexact[Array, "*component x y z"]:
        """The values (..., *values_shape) of modes (..., *modes_shape)."""
        return self._inverse(self._checked("inverse", modes, self.modes_shape))

    def rfftn(self, values: Inexact[Array, "*component nx ny nz"]) -> Complex[Array, "..."]:
        """numpy's `rfftn` along the last three axes: modes (..., nx, ny, nz // 2 + 1)."""
        self._check_kind("rfftn", real=True)
        return self._forward_n(self._checked("rfftn", values, self.shape, self.values_shape))

    def irfftn(self, modes: Complex[Array, "..."]) -> Inexact[Array, "*component nx ny nz"]:
        """numpy's `irfftn` along the last three axes: values (..., nx, ny, nz)."""
        self._check_kind("irfftn", real=True)
        return self._inverse_n(self._checked("irfftn", modes, self._counts))

    def fftn(self, values: Inexact[Array, "*component nx ny nz"]) -> Complex[Array, "..."]:
        """numpy's `fftn` along the last three axes, of a transform with `real=False`."""
        self._check_kind("fftn", real=False)
        return self._forward_n(self._checked("fftn", values, self.shape, self.values_shape))

    def ifftn(self, modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """numpy's `ifftn` along the last three axes, of a transform with `real=False`."""
        self._check_kind("ifftn", real=False)
        return self._inverse_n(self._checked("ifftn", modes, self._counts))

    # ---- factors

    def wavenumbers(self, *, nyquist: bool = False) -> tuple[OverModes, OverModes, OverModes]:
        """kx, ky, kz (1/length), which broadcast against modes: d/dx is 1j * kx.

        The odd derivatives of a real field have no mode at the Nyquist wavenumber of an even axis,
        so that it is 0 there; with `nyquist` it is - pi / dx, as in numpy's `fftfreq`."""
        layout = self._staged.layout
        if not nyquist:
            return layout.wavenumbers(self.dtype)
        numbers = (layout.padded_mode_numbers(axis) for axis in AXES)
        pairs = zip(AXES, numbers, layout.grid.fundamental, strict=True)
        kx, ky, kz = (layout.along(axis, n * unit, self.dtype) for axis, n, unit in pairs)
        return kx, ky, kz

    def k_squared(self) -> OverModes:
        """|k|^2 (1/length^2), which broadcasts against modes."""
        return self._staged.layout.k_squared(self.dtype)

    def weight(self) -> OverModes:
        """The number of modes that an entry stands for: 2 for those whose complex conjugates are
        not stored, 0 for entries that are no modes. With norm `forward`, the mean of |values|^2 is
        the sum of weight |modes|^2."""
        return self._staged.layout.weight(self.dtype)

    def coordinates(self) -> tuple[OverPoints, OverPoints, OverPoints]:
        """x, y, z (length), which broadcast against values."""
        return self._staged.physical.coordinates(self.dtype)

    # ---- compiled for the devices

    @cached_property
    def _forward(self) -> Local:
        staged = self._staged
        run = self._over_devices(self._schedule.forward, staged.physical, staged.layout)
        if staged.grid.spherical:
            return jax.jit(lambda values: jnp.where(staged.layout.mask, run(values), 0))
        return jax.jit(run)

    @cached_property
    def _inverse(self) -> Local:
        staged = self._staged
        return jax.jit(self._over_devices(self._schedule.inverse, staged.layout, staged.physical))

    @cached_property
    def _forward_n(self) -> Local:
        """`forward`, and the exchanges undone, so that z is whole again."""

        def local(values: jax.Array) -> jax.Array:
            modes = self._schedule.forward(values).transpose(_axes(self.order, AXES))
            for exchange in reversed(self._plan.exchanges):
                modes = self._exchanged(modes, exchange.over, exchange.join, exchange.cut)
            return modes

        physical = self._staged.physical
        run = self._over_devices(local, physical, physical)
        return jax.jit(lambda values: self._cropped(run(values), self._counts))

    @cached_property
    def _inverse_n(self) -> Local:
        def local(modes: jax.Array) -> jax.Array:
            for exchange in self._plan.exchanges:
                modes = self._exchanged(modes, exchange.over, exchange.cut, exchange.join)
            return self._schedule.inverse(modes.transpose(_axes(AXES, self.order)))

        physical = self._staged.physical
        run = self._over_devices(local, physical, physical)
        return jax.jit(lambda modes: self._cropped(run(modes), self.shape))

    def _over_devices(self, local: Local, source: Arrangement, target: Arrangement) -> Local:
        """`local` as a function of arrays (..., a, b, c), which are divided as `source` says, and
        whose results are divided as `target` says."""
        on_devices = jax.shard_map(
            local,
            mesh=self.mesh,
            in_specs=source.spec_of(4),
            out_specs=target.spec_of(4),
            check_vma=False,
        )

        def run(array: jax.Array) -> jax.Array:
            parts = map(source.parts, source.order)
            array = jnp.pad(array, _ends(array.shape, map(padded, array.shape[-3:], parts)))
            array = self._divided(array, source.spec_of(array.ndim))
            result = on_devices(array.reshape(-1, *array.shape[-3:]))
            return result.reshape(*array.shape[:-3], *result.shape[1:])

        return run

    def _exchanged(self, modes: jax.Array, over: str, cut: str, join: str) -> jax.Array:
        """One device's modes (component, x, y, z), with the axis `cut` divided among the devices
        along the axis `over` of the mesh, and `join` whole."""
        cut_axis = 1 + AXES.index(cut)
        join_axis = 1 + AXES.index(join)
        wanted = list(modes.shape)
        wanted[cut_axis] = padded(wanted[cut_axis], self.mesh.shape[over])
        modes = jnp.pad(modes, _ends(modes.shape, wanted[1:]))
        modes = lax.all_to_all(modes, over, cut_axis, join_axis, tiled=True)
        return lax.slice_in_dim(modes, 0, self._counts[join_axis - 1], axis=join_axis)

    def _cropped(self, array: jax.Array, shape: tuple[int, int, int]) -> jax.Array:
        """An array (..., x, y, z), divided as values are, without the zeros at the end of axes."""
        if array.shape[-3:] == shape:
            return array
        pairs = zip(self._staged.physical.spec, array.shape[-3:], shape, strict=True)
        spec = (over if before == after else None for over, before, after in pairs)
        array = self._divided(array, PartitionSpec(*(None,) * (array.ndim - 3), *spec))
        nx, ny, nz = shape
        return array[..., :nx, :ny, :nz]

    def _divided(self, array: jax.Array, spec: PartitionSpec) -> jax.Array:
        """`array`, which on a mesh with Explicit axes gets this partition."""
        explicit = AxisType.Explicit in self.mesh.axis_types
        return reshard(array, NamedSharding(self.mesh, spec)) if explicit else array

    # ---- checks

    def _checked(self, name: str, array: ArrayLike, *shapes: tuple[int, int, int]) -> jax.Array:
        """`array`, of one of these shapes and of the type that the method `name` takes."""
        array = jnp.asarray(array)
        if array.shape[-3:] not in shapes:
            wanted = " or ".join(f"(..., {a}, {b}, {c})" for a, b, c in dict.fromkeys(shapes))
            raise ValueError(f"{name} takes arrays of shape {wanted}, not {array.shape}")
        staged = self._staged
        dtype = staged.value_dtype if name in TO_MODES else staged.complex_dtype
        if jnp.promote_types(array.dtype, dtype) != dtype:
            raise ValueError(
                f"{name} takes {dtype}, not {array.dtype}; see the arguments dtype and real of "
                "DistributedFFT"
            )
        return array.astype(dtype)

    def _check_kind(self, name: str, *, real: bool) -> None:
        if self._staged.layout.half is not real:
            other = {"rfftn": "fftn", "irfftn": "ifftn", "fftn": "rfftn", "ifftn": "irfftn"}[name]
            raise ValueError(f"{name} needs DistributedFFT(..., real={real}); this one has {other}")
        if self._staged.layout.truncated:
            raise ValueError(f'{name} needs DistributedFFT(..., keep="all")')


def _refuse_unknown(choices: Mapping[str, tuple[str, object]]) -> None:
    """`choices`: the word and the literal type of each argument, by its name."""
    for name, (word, literal) in choices.items():
        known = get_args(literal)
        if word not in known:
            problem = f"{word!r} is none of {', '.join(known)}"
            raise UserError(f"DistributedFFT: {name}: {problem}")


def _modes(shape: Sequence[int], box: Sequence[float], real: bool, keep: Keep) -> Modes:
    """The modes of a grid. Raises UserError for another number of axes than three."""
    if len(shape) != 3 or len(box) != 3:
        raise UserError("DistributedFFT: shape and box have three entries; (1, nx, ny) is a plane")
    nx, ny, nz = map(int, shape)
    lx, ly, lz = map(float, box)
    every = keep == "all"
    return Modes(Grid((nx, ny, nz), (lx, ly, lz), "none" if every else keep), real, every)


def _ends(shape: Sequence[int], wanted: Iterable[int]) -> list[tuple[int, int]]:
    """The widths by which `jnp.pad` continues the last three axes of an array to these extents."""
    lead = len(shape) - 3
    pairs = zip(shape[lead:], wanted, strict=True)
    return [(0, 0)] * lead + [(0, after - before) for before, after in pairs]


def _placed(
    modes: Modes, devices: Devices | Mesh | None, kernels: Kernels
) -> tuple[Candidate, Mesh]:
    """The way to distribute `modes` over these devices, and their mesh."""
    if not isinstance(devices, Mesh):
        found = list(jax.devices() if devices is None else devices)
        if possible := BACKENDS[NAME].candidates(modes, len(found)):
            chosen = preferred(modes, possible, kernels, found[0].platform)
            return chosen, make_mesh(found, chosen.mesh, PLANS[chosen.plan].mesh_axes)
    elif len(extents := tuple(devices.shape.values())) in (1, 2):
        found = list(devices.devices.flat)
        rows = math.prod(extents[:-1])
        possible = BACKENDS[NAME].candidates(modes, len(found))
        wanted = extents if rows > 1 else extents[-1:]
        if on_mesh := [c for c in possible if c.mesh == wanted]:
            return preferred(modes, on_mesh, kernels, found[0].platform), devices
    else:
        raise UserError(f"DistributedFFT: the mesh has {len(devices.shape)} axes, not 1 or 2")
    sizes = " x ".join(map(str, modes.grid.shape))
    raise UserError(
        f"DistributedFFT: {len(found)} devices cannot share {sizes} points; "
        + BACKENDS[NAME].needs(modes)
    )


def _threads(mesh: Mesh) -> int:
    """The cores for each device of this process."""
    here = sum(device.process_index == jax.process_index() for device in mesh.devices.flat)
    return max(1, usable_cores() // max(here, 1))


def _axes(before: str, after: str) -> tuple[int, ...]:
    """The argument of `transpose` that brings an array (component, *before) to another order."""
    return 0, *(1 + before.index(axis) for axis in after)
