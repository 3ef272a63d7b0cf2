"""Plans of a distributed transform: which axes are transformed where, and what is exchanged in between.

A three-dimensional transform is a list of stages, each of which transforms axes that are whole on every device,
with an exchange between neighbours. An exchange makes an array a(x, y, z) that is cut over the devices along one
axis and whole along another into one that is cut along the other and whole along the first, by one all-to-all:
every device cuts its whole axis into as many messages as there are devices, sends message i to device i, and joins
what it receives along the axis that was cut. Messages are equal in shape on both sides; what they are numbered
by changes.

A plan says this in the forward direction; the inverse runs it backwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Transforms `axes` of an array held in memory as `order` (the transformed axes innermost).

    `sharded` maps the axes that are cut over the devices to the mesh's axes. The array is visited in blocks
    along its first axis, so that what happens between two exchanges happens in cache.
    """

    axes: str
    order: str
    sharded: Mapping[str, str]

    @property
    def block(self) -> str:
        return self.order[0]


@dataclass(frozen=True)
class Exchange:
    """One all-to-all over the mesh axis `over`: `cut` was whole and becomes sharded, `join` becomes whole.

    `order` is the memory order of a message.
    """

    over: str
    cut: str
    join: str
    order: str


@dataclass(frozen=True)
class Plan:
    name: str
    mesh_axes: tuple[str, ...]
    stages: tuple[Stage, ...]
    exchanges: tuple[Exchange, ...]

    @property
    def physical(self) -> Mapping[str, str]:
        return self.stages[0].sharded

    @property
    def spectral(self) -> Mapping[str, str]:
        return self.stages[-1].sharded

    @property
    def order(self) -> str:
        """Memory order of the spectral array."""
        return self.stages[-1].order


Z_THEN_XY = Plan(
    "z_xy",
    ("slab",),
    (Stage("z", "yxz", {"y": "slab"}), Stage("yx", "zyx", {"z": "slab"})),
    (Exchange("slab", cut="z", join="y", order="zyx"),),
)
"""Slabs: z, then x and y; kz is cut before it is sent."""

ZX_THEN_Y = Plan(
    "zx_y",
    ("slab",),
    (Stage("xz", "yxz", {"y": "slab"}), Stage("y", "zxy", {"z": "slab"})),
    (Exchange("slab", cut="z", join="y", order="zyx"),),
)
"""Slabs: z and x, then y; truncates two axes before it sends, so that 4/9 of the complex half-spectrum go out."""

Z_THEN_YX = Plan(
    "z_yx",
    ("slab",),
    (Stage("z", "yxz", {"y": "slab"}), Stage("xy", "zxy", {"z": "slab"})),
    (Exchange("slab", cut="z", join="y", order="zxy"),),
)
"""To points on a single GPU whose modes lie as those of `zx_y`: x and y in one call. No plan of its own."""

Z_Y_X = Plan(
    "z_y_x",
    ("row", "column"),
    (
        Stage("z", "yxz", {"x": "row", "y": "column"}),
        Stage("y", "zxy", {"x": "row", "z": "column"}),
        Stage("x", "zyx", {"y": "row", "z": "column"}),
    ),
    (
        Exchange("column", cut="z", join="y", order="zyx"),
        Exchange("row", cut="y", join="x", order="zyx"),
    ),
)
"""Pencils on a two-dimensional mesh, for more devices than there are planes."""

XYZ = Plan("xyz", ("slab",), (Stage("xyz", "xyz", {}),), ())
"""All axes at once, within one device; no plan of its own but how a single CPU device does a plain transform."""

PLANS = {plan.name: plan for plan in (Z_THEN_XY, ZX_THEN_Y, Z_Y_X)}
SLABS = (Z_THEN_XY.name, ZX_THEN_Y.name)
"""The plans of one exchange, the default first."""
