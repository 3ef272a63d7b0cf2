"""The picture of scalar fields: each device renders its own part of the box, and the parts are combined in order.

On a ray, dI = -kappa I ds + kappa c ds with the colour c and the absorption kappa of the transfer function: a slice
of optical depth tau transmits exp(-tau) and adds (1 - exp(-tau)) c. Several fields are like several kinds of small
particles in the same space (the model of Max 1995, IEEE Trans. Vis. Comput. Graph. 1, 99): their absorptions and
emissions add, so kappa is the sum of the absorptions and c the mean of the colours weighted with them. A device
processes its slices from front to back.

Every ray crosses the parts of a slab or pencil decomposition in the same order, that of the devices along each axis,
so that the partial images (colour, transmittance) are combined by "over" (Porter and Duff 1984). Devices exchange one
plane per neighbour and images; no field is gathered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from simulator.measure.camera import Camera, View
from simulator.measure.colours import Transfer, looked_up, mixed
from simulator.spectral.grid import AXES
from simulator.spectral.layout import PhysicalLayout, padded

BACKGROUND = (0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Volume:
    """A renderer for scalar fields in one layout, each with its transfer function. `image` and `light` can be traced
    and jitted."""

    physical: PhysicalLayout
    camera: Camera = Camera()  # noqa: RUF009 - frozen
    transfers: tuple[Transfer, ...] = (Transfer(),)
    background: tuple[float, float, float] = BACKGROUND

    def image(self, *fields: jax.Array) -> jax.Array:
        """Pixels (height, width, 3) of 8 bits, replicated on every device, from values (x, y, z) of each field."""
        light = self.light(*fields)
        behind = jnp.asarray(self.background, light.dtype)
        colour = light[..., :3] + light[..., 3:] * behind
        pixels = jnp.rint(jnp.clip(colour, 0, 1) * 255).astype(jnp.uint8)
        if self._mesh.size == 1:
            return pixels
        return lax.with_sharding_constraint(pixels, NamedSharding(self._mesh, PartitionSpec()))

    def light(self, *fields: jax.Array) -> jax.Array:
        """(height, width, 4): the red, green and blue light that reaches the camera, and the transmittance of the
        box, in double precision."""
        physical = self.physical
        tables = [
            transfer.table(
                min(physical.grid.box),
                physical.mean(values.astype(jnp.float64)),
                physical.mean(values.astype(jnp.float64) ** 2),
                physical.min(values),
            )
            for transfer, values in zip(self.transfers, fields, strict=True)
        ]
        (width, height), names = self.camera.size, self._names
        rows = PartitionSpec(names) if names else PartitionSpec()
        light = jax.shard_map(
            self._local,
            mesh=self._mesh,
            in_specs=(physical.spec, PartitionSpec()),
            out_specs=rows,
            check_vma=False,
        )([physical.constrain(values) for values in fields], tables)
        return light[:height, :width]

    # ---- geometry ----------------------------------------------------------------------------------------

    @property
    def _mesh(self) -> jax.sharding.Mesh:
        return self.physical.mesh

    @cached_property
    def _view(self) -> View:
        return View(self.camera, self.physical.grid)

    @cached_property
    def _sharded(self) -> dict[int, str]:
        """The mesh axis of each axis that is cut."""
        names = {AXES.index(axis): name for axis, name in self.physical.sharded.items()}
        return {axis: name for axis, name in names.items() if self._mesh.shape[name] > 1}

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._sharded.values())

    @property
    def _devices(self) -> int:
        return int(np.prod([self._mesh.shape[name] for name in self._names], initial=1))

    @cached_property
    def _extents(self) -> tuple[int, int]:
        """Points of the intermediate image along u and v, with room for padding."""
        _p, u, v = self._view.order
        extents = []
        for axis in (u, v):
            whole = np.floor(self._offsets(axis))
            extents.append(self.physical.shape[axis] * self._view.fine + int(whole.max() - whole.min()))
        return padded(extents[0], self._devices), extents[1]

    def _offsets(self, axis: int) -> np.ndarray:
        return self._view.offsets(axis, self.physical.shape[self._view.order[0]])

    @cached_property
    def _front_to_back(self) -> np.ndarray:
        """The devices, numbered over the mesh axes `_names`, in the order in which rays cross their parts."""
        numbers = np.arange(self._devices).reshape([self._mesh.shape[name] for name in self._names])
        directions = tuple(
            slice(None, None, 1 if self._view.nearest_first(axis) else -1) for axis in self._sharded
        )
        return numbers[directions].ravel()

    # ---- on one device -----------------------------------------------------------------------------------

    def _local(self, blocks: list[jax.Array], tables: list[jax.Array]) -> jax.Array:
        """The device's rows of the picture."""
        image = self._slices(blocks, tables)
        if self._devices > 1:
            image = self._joined(image)
        return self._drawn(image)

    def _slices(self, blocks: list[jax.Array], tables: list[jax.Array]) -> jax.Array:
        """The partial image (4, points along u, points along v) of the device's part of the box."""
        view, grid = self._view, self.physical.grid
        p, u, v = view.order
        for axis in range(3):
            blocks = [self._with_next_plane(block, axis) for block in blocks]
        blocks = [jnp.transpose(block, (p, u, v)) for block in blocks]
        slices, across, down = (n - 1 for n in blocks[0].shape)
        fine = view.fine
        first = [self._place(axis) * n for axis, n in zip((p, u, v), (slices, across, down), strict=True)]
        starts, parts = [], []
        for axis in (u, v):
            offsets = self._offsets(axis)
            whole = np.floor(offsets)
            starts.append(jnp.asarray((whole.max() - whole).astype(np.int32)))
            parts.append(jnp.asarray(offsets - whole, blocks[0].dtype))
        inside = [
            (self._place(axis) * n * fine + jnp.arange(n * fine)) < grid.shape[axis] * fine
            for axis, n in ((u, across), (v, down))
        ]
        window = inside[0][:, None] & inside[1][None, :]
        step = view.step

        def add(number: jax.Array, image: jax.Array) -> jax.Array:
            local = number if view.nearest_first(p) else slices - 1 - number
            k = first[0] + local
            media = []
            for block, table in zip(blocks, tables, strict=True):
                plane = lax.dynamic_slice_in_dim(block, local, 2).mean(0)
                plane = _between(plane, parts[0][k], fine)
                plane = _between(plane.T, parts[1][k], fine).T
                media.append(looked_up(table, plane))
            *colour, absorption = mixed(media)
            valid = window & (k < grid.shape[p])
            through = jnp.exp(-jnp.where(valid, absorption * step, 0)).astype(image.dtype)
            corner = [
                jnp.int32(0),
                *(jnp.int32(s[k] + f * fine) for s, f in zip(starts, first[1:], strict=True)),
            ]
            before = lax.dynamic_slice(image, corner, (4, across * fine, down * fine))
            added = before[3] * (1 - through)
            after = jnp.stack([before[i] + added * colour[i] for i in range(3)] + [before[3] * through])
            return lax.dynamic_update_slice(image, after, corner)

        empty = jnp.zeros((4, *self._extents), jnp.float64).at[3].set(1)
        return lax.fori_loop(0, slices, add, empty)

    def _place(self, axis: int) -> jax.Array | int:
        return lax.axis_index(self._sharded[axis]) if axis in self._sharded else 0

    def _with_next_plane(self, block: jax.Array, axis: int) -> jax.Array:
        """The block with the next plane of the periodic box inserted after its last valid plane."""
        plane = lax.slice_in_dim(block, 0, 1, axis=axis)
        if axis not in self._sharded:
            return jnp.concatenate([block, plane], axis)
        name, n = self._sharded[axis], self.physical.grid.shape[axis]
        size, count = self.physical.shape[axis] // self._mesh.shape[name], self._mesh.shape[name]
        holding = [d for d in range(count) if d * size < n]
        follows = [(holding[(i + 1) % len(holding)], d) for i, d in enumerate(holding)]
        plane = lax.ppermute(plane, name, follows)
        longer = jnp.concatenate([block, plane], axis)
        place = jnp.clip(n - lax.axis_index(name) * size, 0, size)
        return lax.dynamic_update_slice_in_dim(longer, plane, place, axis)

    def _joined(self, image: jax.Array) -> jax.Array:
        """The whole image, on every device: each device combines one strip of all partial images, in order."""
        strips = image.reshape(4, self._devices, -1, image.shape[2]).swapaxes(0, 1)
        parts = lax.all_to_all(strips, self._names, 0, 0)
        joined = _over([parts[int(device)] for device in self._front_to_back])
        return lax.all_gather(joined, self._names, axis=1, tiled=True)

    def _drawn(self, image: jax.Array) -> jax.Array:
        """The device's rows of the picture (rows, width, 4), interpolated linearly from the intermediate image."""
        _p, u, v = self._view.order
        width, height = self.camera.size
        rows = padded(height, self._devices) // self._devices
        place = lax.axis_index(self._names) if self._names else 0
        j = (place * rows + jnp.arange(rows))[:, None]
        i = jnp.arange(width)[None, :]
        at = []
        for axis, extent in zip((u, v), image.shape[1:], strict=True):
            c, x, y = self._view.onto(axis)
            position = c + float(np.floor(self._offsets(axis)).max()) + x * i + y * j
            at.append((jnp.clip(position, -1, extent), extent))
        nothing = jnp.asarray([0, 0, 0, 1.0], image.dtype)
        points = jnp.pad(jnp.moveaxis(image, 0, -1) - nothing, ((1, 2), (1, 2), (0, 0)))
        lower = [jnp.floor(position).astype(jnp.int32) for position, _ in at]
        shares = [(position - low)[..., None] for (position, _), low in zip(at, lower, strict=True)]
        flat, across = points.reshape(-1, 4), points.shape[1]
        number = (lower[0] + 1) * across + lower[1] + 1
        corners = [flat[number + a * across + b] for a in (0, 1) for b in (0, 1)]
        left = corners[0] * (1 - shares[1]) + corners[1] * shares[1]
        right = corners[2] * (1 - shares[1]) + corners[3] * shares[1]
        return left * (1 - shares[0]) + right * shares[0] + nothing


def _between(plane: jax.Array, part: jax.Array, fine: int) -> jax.Array:
    """Linear interpolation along the first axis: (n + 1, m) to (n * fine, m), at (t + part) / fine cells."""
    low, high = plane[:-1], plane[1:]
    interpolated = []
    for r in range(fine):
        share = (r + part) / fine
        interpolated.append(low * (1 - share) + high * share)
    return jnp.stack(interpolated, 1).reshape(-1, plane.shape[1])


def _over(images: Sequence[jax.Array]) -> jax.Array:
    """Combines partial images (4, ...), the nearest first."""
    result = images[0]
    for behind in images[1:]:
        colour = result[:3] + result[3:] * behind[:3]
        result = jnp.concatenate([colour, result[3:] * behind[3:]])
    return result
