"""Plans of a distributed transform: which axes are transformed where, and what is exchanged in between.

A global array a(x, y, z) whose axis p is cut over the devices and whose axis q is whole becomes one whose axis
q is cut and p is whole by one all-to-all: every device cuts its q into as many pieces as there are devices and
sends piece i to device i. A three-dimensional transform is a list of stages, each of which transforms the axes
that are whole, with such an exchange between neighbours.

A plan says this in the forward direction; the inverse runs it backwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Transforms `axes` of an array held in memory as `order` (the transformed axes innermost).

    `sharded` maps the axes that are cut over the devices to the mesh's axes.
    """

    axes: str
    order: str
    sharded: Mapping[str, str]


@dataclass(frozen=True)
class Exchange:
    """One all-to-all over the mesh axis `over`: `cut` was whole and becomes sharded, `join` becomes whole.

    `order` is the memory order of the array that is exchanged.
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
    block: str = "y"
    """The axis along which physical space is visited in blocks: whole planes of the first stage's axes."""

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
    (Exchange("slab", cut="z", join="y", order="yxz"),),
)
"""Slabs: z and x, then y; truncates two axes before it sends, so that 4/9 of the complex half-spectrum go out."""

Z_Y_X = Plan(
    "z_y_x",
    ("row", "column"),
    (
        Stage("z", "yxz", {"x": "row", "y": "column"}),
        Stage("y", "zxy", {"x": "row", "z": "column"}),
        Stage("x", "zyx", {"y": "row", "z": "column"}),
    ),
    (
        Exchange("column", cut="z", join="y", order="zxy"),
        Exchange("row", cut="y", join="x", order="zyx"),
    ),
)
"""Pencils on a two-dimensional mesh, for more devices than there are planes."""

PLANS = {plan.name: plan for plan in (Z_THEN_XY, ZX_THEN_Y, Z_Y_X)}
SLABS = (Z_THEN_XY.name, ZX_THEN_Y.name)
"""The plans of one exchange, the default first."""
