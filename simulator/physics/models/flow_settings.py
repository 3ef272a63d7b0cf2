"""The keys that all incompressible flows share."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field as Key
from pydantic import model_validator

from simulator.physics.models.closures import SubgridSettings, check_closed
from simulator.physics.models.damping import DragSettings, HyperdiffusionSettings
from simulator.physics.models.passive_scalars import Scalar
from simulator.settings import NonNegative, Real, Settings, Vector, check_names_differ, wrong

TURNED = "along y changes with time in the flow S x e_y; leave this component or shear out"


class FlowSettings(Settings):
    """Keys of every incompressible flow."""

    kind: Any
    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""
    hyperviscosity: HyperdiffusionSettings | None = None
    """Additional damping of the velocity at the rate coefficient * k^(2 order)."""
    drag: DragSettings | None = None
    """Damping of the velocity's large scales."""
    rotation: Vector = (0.0, 0.0, 0.0)
    """Angular velocity Omega in the Coriolis force -2 Omega x u. In two dimensions there is
    none."""
    shear: Real = 0.0
    """S of the background flow S x e_y (1/time), which carries the box along; with `rotation: [0,
    0, Omega]` a shearing box with S = -q Omega."""
    scalars: Annotated[tuple[Scalar, ...], Key(max_length=100)] = ()
    """Passive scalars."""
    subgrid: SubgridSettings | None = None
    """Closure of a large-eddy simulation: the effect of the scales below the grid on the resolved
    scales."""

    closed: ClassVar[tuple[str, ...]] = ("velocity",)
    """The fields that a closure has to close besides `scalars`."""

    @model_validator(mode="after")
    def _names_and_closure_fit(self) -> Self:
        check_names_differ("scalars", [scalar.name for scalar in self.scalars])
        check_closed(self.subgrid, (*self.closed, *(scalar.name for scalar in self.scalars)))
        return self

    @model_validator(mode="after")
    def _shear_turns_nothing_else(self) -> Self:
        if not self.shear:
            return self
        if self.rotation[0]:
            problem = "along x turns the flow S x e_y out of its plane; rotate about z or y, or leave shear out"
            raise wrong("rotation", problem)
        for i, scalar in enumerate(self.scalars):
            if scalar.mean_gradient[1]:
                raise wrong(f"scalars.{i}.mean_gradient", TURNED)
        for key, value in {"drag": self.drag, "subgrid": self.subgrid}.items():
            if value:
                raise wrong(key, "has no form for waves that shear turns; leave it or shear out")
        return self
