"""Plans of a distributed transform: the axes that each stage transforms, and the exchanges in
between.

A three-dimensional transform is a list of stages, each of which transforms axes that are whole on
every device, with an exchange between neighbouring stages. An exchange takes an array a(x, y, z)
that is cut over the devices along one axis and whole along another, and cuts it along the other
instead, by one all-to-all: every device cuts its whole axis into as many messages as there are
devices, sends message i to device i, and joins the received messages along the axis that was cut
before. Messages have equal shapes on both sides.

A plan describes the forward direction; the inverse runs it backwards."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Stage:
    """Transforms `axes` of an array with the memory order `order` (the transformed axes innermost).

    `sharded` maps the axes that are cut over the devices to the mesh's axes. The array is visited
    in blocks along its first axis, so that the work between two exchanges happens in cache."""

    axes: str
    order: str
    sharded: Mapping[str, str]

    @property
    def block(self) -> str:
        return self.order[0]


@dataclass(frozen=True)
class Exchange:
    """One all-to-all over the mesh axis `over`: `cut` was whole and becomes sharded, `join` becomes
    whole.

    `order` is the memory order of a message."""

    over: str
    cut: str
    join: str
    order: str


@dataclass(frozen=True)
class Decomposition:
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

    def on(self, mesh_axes: tuple[str, ...]) -> "Decomposition":
        """The plan on a mesh whose axes have these names."""
        names = dict(zip(self.mesh_axes, mesh_axes, strict=True))

        def renamed(stage: Stage) -> Stage:
            return replace(stage, sharded={a: names[over] for a, over in stage.sharded.items()})

        stages = tuple(map(renamed, self.stages))
        exchanges = tuple(replace(e, over=names[e.over]) for e in self.exchanges)
        return Decomposition(self.name, mesh_axes, stages, exchanges)


Z_THEN_XY = Decomposition(
    "z_xy",
    ("slab",),
    (Stage("z", "yxz", {"y": "slab"}), Stage("yx", "zyx", {"z": "slab"})),
    (Exchange("slab", cut="z", join="y", order="zyx"),),
)
"""Slabs: z, then x and y; kz is truncated before it is sent."""

ZX_THEN_Y = Decomposition(
    "zx_y",
    ("slab",),
    (Stage("xz", "yxz", {"y": "slab"}), Stage("y", "zxy", {"z": "slab"})),
    (Exchange("slab", cut="z", join="y", order="zyx"),),
)
"""Slabs: z and x, then y. Two axes are truncated before they are sent: 4/9 of the complex
half-spectrum."""

Z_THEN_YX = Decomposition(
    "z_yx",
    ("slab",),
    (Stage("z", "yxz", {"y": "slab"}), Stage("xy", "zxy", {"z": "slab"})),
    (Exchange("slab", cut="z", join="y", order="zxy"),),
)
"""The inverse on a single GPU, for modes in the order of `zx_y`: transforms x and y in one call.
Not selectable."""

Z_Y_X = Decomposition(
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

XYZ = Decomposition("xyz", ("slab",), (Stage("xyz", "xyz", {}),), ())
"""All axes in one call, for `forward` and `inverse` on a single CPU device. Not selectable."""

PLANS = {plan.name: plan for plan in (Z_THEN_XY, ZX_THEN_Y, Z_Y_X)}
SLABS = (Z_THEN_XY.name, ZX_THEN_Y.name)  # The plans with one exchange, the default first.
