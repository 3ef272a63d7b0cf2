"""The backend `jaxdecomp`: complex transforms of jaxDecomp (Kabalan, Lanusse) in its transposed
layout (y, z, x).

The backend stores every mode of the complex spectrum, with zeros at the modes that dealiasing
removes. It does not pad arrays; `needs` states which extents must be divisible. It sends more bytes
than the staged transforms, and processes physical space whole."""

from collections.abc import Callable
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from simulator.cluster.mesh import make_mesh
from simulator.errors import UserError
from simulator.spectral.backend import Backend
from simulator.spectral.candidates import Candidate, Devices, Modes, TransformOptions, factors
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.program import Local, Program
from simulator.spectral.transform import Transform

NAME = "jaxdecomp"
AXES = ("row", "column")


class JaxdecompTransform(Transform):
    """jaxDecomp on a two-dimensional mesh: slabs on 1 x N or N x 1 devices, pencils on R x C.

    The coefficients of real fields are complex arrays over all modes; `layout.mask` is True at the
    modes that belong to the state."""

    kernels = "xla"

    def __init__(
        self, modes: Modes, candidate: Candidate, devices: Devices, dtype: DTypeLike = np.float64
    ):
        self.grid, self.dtype = modes.grid, np.dtype(dtype)
        self.mesh = make_mesh(devices, candidate.mesh, AXES)
        points, sharded = _sharded(candidate.mesh)
        self.physical = PhysicalLayout(self.grid, self.mesh, "xyz", points)
        self.layout = Layout(
            self.grid,
            self.mesh,
            "yzx",
            sharded,
            mode_numbers={a: self.grid.mode_numbers(a, every=True) for a in "xyz"},
            half=False,
            real=modes.real,
            truncated=not modes.every,
        )
        self.name = f"{NAME}_{candidate.plan}"
        self._forward = _Components(self, "forward")
        self._inverse = _Components(self, "inverse")

    def forward(self, values: jax.Array) -> jax.Array:
        (modes,) = self._forward(self._checked(values, self.physical))
        return jnp.where(self.layout.mask, modes, 0)

    def inverse(self, modes: jax.Array) -> jax.Array:
        (values,) = self._inverse(self._checked(modes, self.layout))
        return values.real if self.layout.real else values

    def _checked(self, array: jax.Array, source: Layout | PhysicalLayout) -> jax.Array:
        return source.whole(array, self.name).astype(self.complex_dtype)


def _sharded(mesh: tuple[int, ...]) -> tuple[dict[str, str], dict[str, str]]:
    if mesh[0] == 1:
        return {"y": "column"}, {"z": "column"}
    if mesh[1] == 1:
        return {"x": "row"}, {"z": "row"}
    return {"x": "row", "y": "column"}, {"y": "row", "z": "column"}


class _Components(Program):
    """A complex transform of every component of a global array (..., a, b, c).

    jaxDecomp's primitive accepts arrays of three axes, and from version 0.3.4 on has no `vmap`.
    This program accepts any number of leading axes as components and transforms them one after
    another, so that `vmap` needs no rule. The program is linear, and so its own tangent."""

    def __init__(self, transform: JaxdecompTransform, direction: str):
        self.transform, self.direction = transform, direction
        sides = (transform.physical, transform.layout)
        self.source, self.target = sides if direction == "forward" else sides[::-1]
        super().__init__(
            self._apply,
            transform.mesh,
            [self.source.spec],
            [self.target.spec],
            name=f"{transform.name}_{direction}",
            linear=True,
            part=(transform, direction),
        )

    @cached_property
    def _one(self) -> Callable[[jax.Array], jax.Array]:
        if self.mesh.size == 1:  # jaxDecomp transforms only distributed arrays
            if self.direction == "forward":
                return lambda a: jnp.fft.fftn(a, norm="forward").transpose(1, 2, 0)
            return lambda a: jnp.fft.ifftn(a.transpose(2, 0, 1), norm="forward")
        import jaxdecomp

        if not jaxdecomp.config.transpose_axis_contiguous:
            raise ValueError("jaxdecomp.config.transpose_axis_contiguous has to stay True")
        run = jaxdecomp.pfft3d if self.direction == "forward" else jaxdecomp.pifft3d
        return lambda a: run(a, norm="forward")

    def _apply(self, array: jax.Array) -> tuple[jax.Array]:
        flat = self.source.constrain(array.reshape(-1, *self.source.shape))
        result = self.target.constrain(jnp.stack([self._one(component) for component in flat]))
        return (result.reshape(*array.shape[:-3], *self.target.shape),)

    def partitioned(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        return self._apply(*arrays)

    def batched(self, which: tuple[bool, ...], over: tuple[str, ...] = ()) -> Program:
        return self

    def transposed(
        self, linear: tuple[bool, ...], avals: tuple[Any, ...], nonzero: tuple[int, ...]
    ) -> Local:
        """The transpose of the forward matrix exp(-i k x) / N is 1/N times the conjugate of the
        inverse matrix."""
        forward = self.direction == "forward"
        opposite = self.transform._inverse if forward else self.transform._forward
        points = self.transform.grid.points
        factor = 1 / points if forward else points

        def back(cotangent: jax.Array) -> tuple[jax.Array]:
            (transformed,) = opposite(cotangent.conj())
            return (transformed.conj() * factor,)

        return back


class Jaxdecomp(Backend):
    """jaxDecomp, if it is installed."""

    name = NAME

    def candidates(self, modes: Modes, count: int) -> list[Candidate]:
        nx, ny, nz = modes.grid.shape
        slabs = [
            Candidate(NAME, "slab", "slab", mesh)
            for mesh, cut in (((1, count), ny), ((count, 1), nx))
            if cut % count == 0 and nz % count == 0
        ][:1]
        pencils = [
            Candidate(NAME, "pencil", "pencil", (rows, columns))
            for rows, columns in factors(count)
            if rows > 1 and columns > 1
            if nx % rows == 0 and ny % rows == 0 and ny % columns == 0 and nz % columns == 0
        ]
        return slabs + sorted(pencils, key=lambda c: max(c.mesh))

    def most(self, modes: Modes) -> int:
        nx, ny, nz = modes.grid.shape
        return max(nz, min(nx, ny) * min(ny, nz))

    def missing(self) -> str:
        if find_spec("jaxdecomp") is not None:
            return ""
        return (
            "jaxdecomp is not installed; pip install jaxdecomp (its packages are for x86-64 and Python "
            "up to 3.13), or use custom_partitioning"
        )

    def needs(self, modes: Modes) -> str:
        return (
            "jaxdecomp does not pad: slabs need z and x or y divisible by the devices, "
            "pencils on R x C devices need x and y divisible by R, y and z by C"
        )

    def build(
        self,
        modes: Modes,
        candidate: Candidate,
        devices: Devices,
        dtype: DTypeLike,
        options: TransformOptions,
    ) -> JaxdecompTransform:
        if options.members > 1:
            raise UserError(
                f"fft.backend: {NAME} lays no ensemble over devices; remove the key or use members=1"
            )
        if options.block is not None:
            raise UserError(
                f"fft.backend: {NAME} visits physical space whole; remove it or SIMULATOR_FFT_BLOCK"
            )
        if options.sequential:
            raise UserError(f"{NAME} transforms all components together")
        if options.exchange != "full":
            raise UserError(
                f"fft.exchange: {NAME} sends full numbers; remove the key or fft.backend: {NAME}"
            )
        if options.kernels == "native":
            raise UserError(f"fft.kernels: {NAME} has no native kernels; auto or xla works")
        return JaxdecompTransform(modes, candidate, devices, dtype)
