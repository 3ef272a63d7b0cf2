"""The position of the camera, and the shear of the grid that aligns all rays with one axis of the array.

The projection of a grid along parallel rays is a shear followed by a plane affine map (Lacroute and Levoy, SIGGRAPH
1994, "Fast volume rendering using a shear-warp factorization"): plane after plane along the principal axis p is
shifted and added to an intermediate image, whose resolution is a multiple of the grid's, and that image is drawn onto
the screen.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.spectral import Grid

FINEST = 4
"""The largest number of points of the intermediate image per grid cell and direction."""


@dataclass(frozen=True)
class Camera:
    """A camera at infinite distance that looks at the middle of the box.

    `azimuth` (degrees, from x towards y) and `elevation` (degrees, above the x-y plane) are its direction; z points
    up. With `zoom` 1 the diagonal of the box is as long as the shorter side of the picture. `size` is (width, height)
    in pixels.
    """

    azimuth: float = 30.0
    elevation: float = 25.0
    zoom: float = 1.2
    size: tuple[int, int] = (512, 512)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unit vectors to the right and up on the screen, and along the rays, away from the camera."""
        a, e = math.radians(self.azimuth), math.radians(self.elevation)
        towards = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
        right = np.array([-math.sin(a), math.cos(a), 0.0])
        return right, np.cross(towards, right), -towards

    def pixel(self, grid: Grid) -> float:
        """The side of a pixel, in the run's unit of length."""
        return math.sqrt(sum(length**2 for length in grid.box)) / (self.zoom * min(self.size))


@dataclass(frozen=True)
class View:
    """A camera and a grid, with the axes `p`, `u`, `v` (0, 1, 2 for x, y, z), of which p is the principal one.

    The intermediate image has `fine` points per cell along u and v. A ray crosses slice k, halfway between the planes
    k and k + 1 of p, at a distance of `offset[k]` points from its crossing of the plane p = 0.
    """

    camera: Camera
    grid: Grid

    @cached_property
    def direction(self) -> np.ndarray:
        return self.camera.axes[2]

    @cached_property
    def order(self) -> tuple[int, int, int]:
        """p, u, v: along p a ray crosses the most planes, so that it moves by at most one cell from plane to
        plane."""
        steps = np.abs(self.direction) / np.array(self.grid.spacing)
        p = int(np.argmax(steps))
        u, v = (axis for axis in range(3) if axis != p)
        return p, u, v

    @cached_property
    def fine(self) -> int:
        ratio = min(self.grid.spacing) / self.camera.pixel(self.grid)
        return max(1, min(FINEST, int(ratio / 2)))

    @property
    def step(self) -> float:
        """The length of a ray between two slices."""
        p = self.order[0]
        return self.grid.spacing[p] / abs(float(self.direction[p]))

    def offsets(self, axis: int, slices: int) -> np.ndarray:
        """Displacement along `axis` (u or v) at each slice, in points of the intermediate image: (slices,)."""
        p, spacing = self.order[0], self.grid.spacing
        slope = float(self.direction[axis] / self.direction[p])
        # If a ray is parallel to an axis, round-off must not decide between two points.
        cells = slope * (np.arange(slices) + 0.5) * spacing[p] / spacing[axis]
        return np.round(cells * self.fine, 9)

    def onto(self, axis: int) -> tuple[float, float, float]:
        """(c, x, y): pixel (column i, row j) is at c + x i + y j along `axis` of the intermediate image, in points
        from the corner of the box."""
        right, up, along = self.camera.axes
        p = self.order[0]
        width, height = self.camera.size
        side, scale = self.camera.pixel(self.grid), self.fine / self.grid.spacing[axis]

        def base(point: np.ndarray) -> float:
            """The position at which the ray through `point` crosses p = 0."""
            return float(point[axis] - point[p] * along[axis] / along[p]) * scale

        middle = np.array(self.grid.box) / 2
        corner = middle + side * ((0.5 - width / 2) * right + (height / 2 - 0.5) * up)
        return base(corner), base(side * right), base(-side * up)

    def nearest_first(self, axis: int) -> bool:
        """Whether the coordinate along an axis increases along a ray."""
        return bool(self.direction[axis] >= 0)
