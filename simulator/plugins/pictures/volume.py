"""Volume rendering of scalar fields: each device renders its own part of the box; the parts are
combined in order.

On a ray, dI = -kappa I ds + kappa c ds with the colour c and the absorption kappa of the transfer
function: a slice of optical depth tau transmits exp(-tau) and adds (1 - exp(-tau)) c. Of several
fields (Max 1995, IEEE Trans. Vis. Comput. Graph. 1, 99) kappa is the sum of the absorptions and c
the mean of the colours, weighted with them.

Every ray crosses the parts of a slab or pencil decomposition in the same order, that of the devices
along each axis, so that the partial images (colour, transmittance) are combined by "over" (Porter
and Duff 1984). Devices exchange one plane with each neighbour, and images; no field is gathered.

The projection of a grid along parallel rays is a shear followed by a plane affine map (Lacroute and
Levoy, SIGGRAPH 1994): plane after plane along the principal axis p is shifted and added, from front
to back, to an intermediate image, whose resolution is a multiple of the grid's, which is then
interpolated onto the screen."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml
from jax import lax
from jax.scipy.ndimage import map_coordinates
from jax.sharding import PartitionSpec

from simulator.spectral import Grid
from simulator.spectral.grid import AXES
from simulator.spectral.layout import PhysicalLayout, padded

PEAKED = 2.0  # Positive fields with a larger ratio of root mean square to mean have points at equal ratios.
# Least number of slices along a ray, per grid cell and in all; fewer would show as stripes.
SLICES = (2, 256)
FRAME = 0.35  # Brightness of the box's edges.
FINEST = 4  # The largest number of points of the intermediate image per grid cell and direction.


@dataclass(frozen=True)
class Camera:
    """A camera at infinite distance that looks at the middle of the box.

    `azimuth` (degrees, from x towards y) and `elevation` (degrees, above the x-y plane) are its
    direction; z points up. With `zoom` 1 the diagonal of the box is as long as the shorter side of
    the picture. `size` is (width, height) in pixels."""

    azimuth: float = 30.0
    elevation: float = 25.0
    zoom: float = 1.1
    size: tuple[int, int] = (512, 512)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unit vectors to the right and up on the screen, and along the rays, away from the
        camera."""
        a = math.radians(self.azimuth)
        e = math.radians(self.elevation)
        towards = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
        right = np.array([-math.sin(a), math.cos(a), 0.0])
        return right, np.cross(towards, right), -towards

    def pixel(self, grid: Grid) -> float:
        """The side of a pixel, in the run's unit of length."""
        return math.sqrt(sum(length**2 for length in grid.box)) / (self.zoom * min(self.size))


Colour = tuple[float, float, float]
REFERENCE = 0.01  # Opacity is the fraction of light lost on a path of this fraction of the shortest side of the box.

Point = tuple[float, Colour, float]


@cache
def _hues() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("hues.yaml").read_text())


@dataclass(frozen=True)
class TransferFunction:
    """Colour and opacity as functions of the value: colour and absorption coefficient are linear
    between the given points and constant beyond them.

    `points`: (value, (red, green, blue), opacity) in rising order of value, with colours from 0 to
    1; opacity is the fraction of light lost on a path of a hundredth of the shortest side of the
    box. None: chosen from the mean and variance of the values, in the hue with the number `family`
    (0 to 3) or, by default, in several hues."""

    points: tuple[Point, ...] | None = None
    family: int | None = None

    @property
    def count(self) -> int:
        """The number of points."""
        return len(self.points or _hues()["positive"])

    def table(
        self, length: float, mean: jax.Array, square: jax.Array, least: jax.Array
    ) -> jax.Array:
        """(point, 5): value, red, green, blue, absorption per length. `length` is the shortest side
        of the box; `mean`, `square` (mean square) and `least` are those of the values."""
        if self.points is not None:
            return jnp.asarray(_rows(self.points, length))
        # Rounded to three digits: round-off, which depends on the number of devices, must not
        # change the picture.
        rms = _rounded(jnp.sqrt(square))
        deviation = _rounded(jnp.sqrt(jnp.maximum(square - mean**2, 0)))
        middle = deviation * jnp.round(mean / deviation, 2)
        positive, signed = (jnp.asarray(_rows(points, length)) for points in self._usual())
        # Of a field with high peaks, such as the density of halos, the usual points would show the
        # peaks alone.
        average = _rounded(mean)
        usual = positive[:, 0] * rms
        decades = average * (usual[-1] / average) ** jnp.linspace(0, 1, self.count)
        positive = positive.at[:, 0].set(jnp.where(rms > PEAKED * average, decades, usual))
        signed = signed.at[:, 0].set(signed[:, 0] * deviation + middle)
        return jnp.where(least >= 0, positive, signed)

    def _usual(self) -> tuple[Sequence[Point], Sequence[Point]]:
        """The points for positive values and for values of both signs."""
        if self.family is None:
            return _hues()["positive"], _hues()["signed"]
        family = _hues()["families"][self.family]
        low, fading, rising, high = family["signed"]
        shades = zip(_hues()["positive"], family["positive"], strict=True)
        tails = zip(_hues()["tails"], (low, fading, fading, rising, high), strict=True)
        return [(at, shade, part) for (at, _, part), shade in shades], [
            (at, t, part) for (at, part), t in tails
        ]


def _rows(points: Sequence[Point], length: float) -> np.ndarray:
    return np.array(
        [
            [value, *colour, -np.log1p(-opacity) / (REFERENCE * length)]
            for value, colour, opacity in points
        ]
    )


def _rounded(value: jax.Array) -> jax.Array:
    value = jnp.maximum(value, jnp.finfo(value.dtype).tiny)
    digits = 10.0 ** (jnp.floor(jnp.log10(value)) - 2)
    return jnp.round(value / digits) * digits


def looked_up(table: jax.Array, values: jax.Array) -> jax.Array:
    """Red, green, blue and absorption (4, ...) of `values`, as sums of ramps."""
    at = table[:, 0].astype(values.dtype)
    entries = table[:, 1:].astype(values.dtype).reshape(-1, 4, *values.ndim * [1])
    ramps = [
        (after - before) * jnp.clip((values - low) / (high - low), 0, 1)
        for (before, after), (low, high) in zip(pairwise(entries), pairwise(at), strict=True)
    ]
    return entries[0] + sum(ramps)


def blended(media: Sequence[jax.Array]) -> jax.Array:
    """Red, green, blue and absorption (4, ...) of media in the same space, each given like the
    result of `looked_up`."""
    if len(media) == 1:
        return media[0]
    absorption = jnp.stack([medium[3] for medium in media]).sum(0)
    emission = jnp.stack([medium[:3] * medium[3] for medium in media]).sum(0)
    colour = emission / jnp.where(absorption > 0, absorption, 1)
    return jnp.concatenate([colour, absorption[None]])


@dataclass(frozen=True, eq=False)
class Volume:
    """A renderer for scalar fields, each with its transfer function. `image` and `light` can be
    jitted."""

    physical: PhysicalLayout
    camera: Camera = Camera()
    transfers: tuple[TransferFunction, ...] = (TransferFunction(),)
    outline: bool = False  # Whether the box's edges are drawn, three of them behind it.

    def image(self, *fields: jax.Array) -> jax.Array:
        """Pixels (height, width, 3) of 8 bits, replicated on every device, from values (x, y, z) of
        each field."""
        light = self.light(*fields)
        colour = light[..., :3]
        if self.outline:
            back, front = (
                FRAME * jnp.asarray(edges, light.dtype)[..., None] for edges in self._edges
            )
            colour = (colour + light[..., 3:] * back) * (1 - front) + front
        pixels = jnp.rint(jnp.clip(colour, 0, 1) * 255).astype(jnp.uint8)
        return self.physical.replicated(pixels)

    def light(self, *fields: jax.Array) -> jax.Array:
        """(height, width, 4): red, green and blue light at the camera, and transmittance of the
        box, double."""
        physical = self.physical
        tables = self.tables(*fields)
        width, height = self.camera.size
        names = self._names
        rows = PartitionSpec(names) if names else PartitionSpec()
        light = jax.shard_map(
            self._local,
            mesh=self.physical.mesh,
            in_specs=(physical.spec, PartitionSpec()),
            out_specs=rows,
            check_vma=False,
        )([physical.constrain(values) for values in fields], tables)
        return light[:height, :width]

    def tables(self, *fields: jax.Array) -> list[jax.Array]:
        physical = self.physical
        tables = []
        for transfer, values in zip(self.transfers, fields, strict=True):
            double = values.astype(jnp.float64)
            moments = physical.mean(double), physical.mean(double**2), physical.min(values)
            tables.append(transfer.table(min(physical.grid.box), *moments))
        return tables

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges of the box at its farthest corner, and all others, (height, width) each, from 0
        to 1."""
        right, up, along = self.camera.axes
        width, height = self.camera.size
        screen = (
            np.diag(self.physical.grid.box)
            @ np.stack([right, -up], 1)
            / self.camera.pixel(self.physical.grid)
        )
        y, x = np.mgrid[:height, :width] + 0.5
        edges = np.zeros((2, height, width))
        for corner in itertools.product((0, 1), repeat=3):
            for axis in (axis for axis in range(3) if not corner[axis]):
                ends = np.array(corner) + np.outer((0, 1), np.eye(3)[axis])
                across, down = ((ends - 0.5) @ screen).T
                (x0, x1), (y0, y1) = across + width / 2, down + height / 2
                length2 = max((x1 - x0) ** 2 + (y1 - y0) ** 2, 1e-12)
                share = np.clip(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length2, 0, 1)
                distance = np.hypot(x - x0 - share * (x1 - x0), y - y0 - share * (y1 - y0))
                front = int((np.delete(ends[0] > 0.5, axis) != np.delete(along > 0, axis)).any())
                edges[front] = np.maximum(edges[front], np.clip(1.2 - distance, 0, 1))
        return edges[0], edges[1]

    @cached_property
    def _order(self) -> tuple[int, int, int]:
        """The axes p, u, v (0, 1, 2 for x, y, z): along p a ray crosses the most planes, so that it
        moves by at most one cell from plane to plane."""
        steps = np.abs(self.camera.axes[2]) / np.array(self.physical.grid.spacing)
        p = int(np.argmax(steps))
        u, v = (axis for axis in range(3) if axis != p)
        return p, u, v

    @cached_property
    def _fine(self) -> int:
        """The number of points of the intermediate image per cell along u and v."""
        ratio = min(self.physical.grid.spacing) / self.camera.pixel(self.physical.grid)
        return max(1, min(FINEST, int(ratio / 2)))

    @cached_property
    def _cuts(self) -> int:
        """The number of slices per grid cell."""
        return max(SLICES[0], math.ceil(SLICES[1] / self.physical.shape[self._order[0]]))

    @property
    def _step(self) -> float:
        p = self._order[0]
        return self.physical.grid.spacing[p] / abs(float(self.camera.axes[2][p])) / self._cuts

    def _offsets(self, axis: int) -> np.ndarray:
        """Displacement along `axis` (u or v) at each slice, in points of the intermediate image:
        (slices,). A ray crosses slice k, at (k + 1/2) / _cuts planes of p, this far from its
        crossing of the plane 0."""
        p = self._order[0]
        spacing = self.physical.grid.spacing
        slope = float(self.camera.axes[2][axis] / self.camera.axes[2][p])
        # If a ray is parallel to an axis, round-off must not decide between two points.
        planes = (np.arange(self.physical.shape[p] * self._cuts) + 0.5) / self._cuts
        cells = slope * planes * spacing[p] / spacing[axis]
        return np.round(cells * self._fine, 9)

    def _onto(self, axis: int) -> tuple[float, float, float]:
        """(c, x, y): pixel (column i, row j) is at c + x i + y j along `axis` of the intermediate
        image, in points from the corner of the box."""
        right, up, along = self.camera.axes
        p = self._order[0]
        width, height = self.camera.size
        side = self.camera.pixel(self.physical.grid)
        scale = self._fine / self.physical.grid.spacing[axis]

        def base(point: np.ndarray) -> float:
            """The position at which the ray through `point` crosses p = 0."""
            return float(point[axis] - point[p] * along[axis] / along[p]) * scale

        middle = np.array(self.physical.grid.box) / 2
        corner = middle + side * ((0.5 - width / 2) * right + (height / 2 - 0.5) * up)
        return base(corner), base(side * right), base(-side * up)

    @cached_property
    def _sharded(self) -> dict[int, str]:
        names = {AXES.index(axis): name for axis, name in self.physical.sharded.items()}
        return {axis: name for axis, name in names.items() if self.physical.mesh.shape[name] > 1}

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._sharded.values())

    @property
    def _devices(self) -> int:
        return math.prod(self.physical.mesh.shape[name] for name in self._names)

    @cached_property
    def _extents(self) -> tuple[int, int]:
        """Points of the intermediate image along u and v; the first is padded to a multiple of the
        devices."""
        u, v = (
            self.physical.shape[axis] * self._fine + int(np.ptp(np.floor(self._offsets(axis))))
            for axis in self._order[1:]
        )
        return padded(u, self._devices), v

    @cached_property
    def _front_to_back(self) -> np.ndarray:
        """The devices, numbered over the mesh axes `_names`, in the order in which rays cross their
        parts."""
        numbers = np.arange(self._devices).reshape(
            [self.physical.mesh.shape[name] for name in self._names]
        )
        directions = tuple(
            slice(None, None, 1 if self.camera.axes[2][axis] >= 0 else -1) for axis in self._sharded
        )
        return numbers[directions].ravel()

    def _local(self, blocks: list[jax.Array], tables: list[jax.Array]) -> jax.Array:
        image = self._slices(blocks, tables)
        return self._drawn(self._joined(image) if self._devices > 1 else image)

    def _slices(self, blocks: list[jax.Array], tables: list[jax.Array]) -> jax.Array:
        """The partial image (4, points along u, points along v) of the device's part of the box."""
        shape = self.physical.grid.shape
        for axis in range(3):
            blocks = self._with_next_planes(blocks, axis)
        blocks = [jnp.transpose(block, self._order) for block in blocks]
        sizes = [n - 1 for n in blocks[0].shape]
        p, *across = [self._place(axis) * n for axis, n in zip(self._order, sizes, strict=True)]
        fine = self._fine
        u, v = (
            first * fine + jnp.arange(n * fine) < shape[axis] * fine
            for axis, first, n in zip(self._order[1:], across, sizes[1:], strict=True)
        )
        inside = u[:, None] & v
        starts, parts = self._shifts(blocks[0].dtype)
        slices = sizes[0] * self._cuts

        def add(number: jax.Array, image: jax.Array) -> jax.Array:
            local = number if self.camera.axes[2][self._order[0]] >= 0 else slices - 1 - number
            k = p * self._cuts + local
            *colour, absorption = self._medium(blocks, tables, local, parts[:, k])
            valid = inside & (k < shape[self._order[0]] * self._cuts)
            through = jnp.exp(-jnp.where(valid, absorption * self._step, 0)).astype(image.dtype)
            shifted = [
                jnp.int32(start + first * fine)
                for start, first in zip(starts[:, k], across, strict=True)
            ]
            corner = (jnp.int32(0), *shifted)
            before = lax.dynamic_slice(image, corner, (4, *inside.shape))
            added = before[3] * (1 - through)
            light = [before[i] + added * colour[i] for i in range(3)]
            after = jnp.stack([*light, before[3] * through])
            return lax.dynamic_update_slice(image, after, corner)

        empty = jnp.zeros((4, *self._extents), jnp.float64).at[3].set(1)
        return lax.fori_loop(0, slices, add, empty)

    def _shifts(self, dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
        """The displacement of every slice along u and v, (2, slices): points of the intermediate
        image from its first, and the parts of a point beyond them."""
        offsets = np.stack([self._offsets(axis) for axis in self._order[1:]])
        integers = np.floor(offsets)
        starts = (integers.max(1, keepdims=True) - integers).astype(np.int32)
        return jnp.asarray(starts), jnp.asarray(offsets - integers, dtype)

    def _medium(
        self,
        blocks: list[jax.Array],
        tables: list[jax.Array],
        local: jax.Array,
        parts: jax.Array,
    ) -> jax.Array:
        """Red, green, blue and absorption on the slice `local` of the blocks, at the points of the
        intermediate image."""
        share = ((local % self._cuts + 0.5) / self._cuts).astype(parts.dtype)
        media = []
        for block, table in zip(blocks, tables, strict=True):
            low, high = lax.dynamic_slice_in_dim(block, local // self._cuts, 2)
            plane = low * (1 - share) + high * share
            for part in parts:
                plane = _between(plane, part, self._fine).T
            media.append(looked_up(table, plane))
        return blended(media)

    def _place(self, axis: int) -> jax.Array | int:
        return lax.axis_index(self._sharded[axis]) if axis in self._sharded else 0

    def _with_next_planes(self, blocks: list[jax.Array], axis: int) -> list[jax.Array]:
        """The blocks with the next plane of the periodic box inserted after their last valid plane.
        All planes are sent in one exchange: several without a data dependence could be confused
        (see `spectral.collectives`)."""
        planes = jnp.stack([lax.slice_in_dim(block, 0, 1, axis=axis) for block in blocks])
        if axis not in self._sharded:
            return [jnp.concatenate(pair, axis) for pair in zip(blocks, planes, strict=True)]
        name = self._sharded[axis]
        n = self.physical.grid.shape[axis]
        size = self.physical.shape[axis] // self.physical.mesh.shape[name]
        count = self.physical.mesh.shape[name]
        holding = [d for d in range(count) if d * size < n]
        follows = [(holding[(i + 1) % len(holding)], d) for i, d in enumerate(holding)]
        planes = lax.ppermute(planes, name, follows)
        place = jnp.clip(n - lax.axis_index(name) * size, 0, size)
        return [
            lax.dynamic_update_slice_in_dim(
                jnp.concatenate([block, plane], axis), plane, place, axis
            )
            for block, plane in zip(blocks, planes, strict=True)
        ]

    def _joined(self, image: jax.Array) -> jax.Array:
        """The whole image, on every device: each device combines one strip of all partial images,
        in order."""
        strips = image.reshape(4, self._devices, -1, image.shape[2]).swapaxes(0, 1)
        parts = lax.all_to_all(strips, self._names, 0, 0)
        joined, *others = (parts[int(device)] for device in self._front_to_back)
        for behind in others:
            joined = jnp.concatenate(
                [joined[:3] + joined[3:] * behind[:3], joined[3:] * behind[3:]]
            )
        return lax.all_gather(joined, self._names, axis=1, tiled=True)

    def _drawn(self, image: jax.Array) -> jax.Array:
        """The device's rows of the picture (rows, width, 4), interpolated linearly from the
        intermediate image."""
        width, height = self.camera.size
        rows = padded(height, self._devices) // self._devices
        place = lax.axis_index(self._names) if self._names else 0
        j = (place * rows + jnp.arange(rows))[:, None]
        i = jnp.arange(width)[None, :]
        at = []
        for axis in self._order[1:]:
            c, x, y = self._onto(axis)
            at.append(c + float(np.floor(self._offsets(axis)).max()) + x * i + y * j)
        nothing = (0.0, 0.0, 0.0, 1.0)
        channels = [
            map_coordinates(channel, at, order=1, cval=value)
            for channel, value in zip(image, nothing, strict=True)
        ]
        return jnp.stack(channels, -1)


def _between(plane: jax.Array, part: jax.Array, fine: int) -> jax.Array:
    """Linear interpolation along the first axis: (n + 1, m) to (n * fine, m), at (t + part) / fine
    cells."""
    low = plane[:-1]
    high = plane[1:]
    shares = [(r + part) / fine for r in range(fine)]
    return jnp.stack([low * (1 - share) + high * share for share in shares], 1).reshape(
        -1, plane.shape[1]
    )
