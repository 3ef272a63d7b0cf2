"""The three mid-planes of scalar fields: slices.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from simulator.errors import did_you_mean
from simulator.measure.cadence import SeriesCadence, distinct
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Integer

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured

MOST = 1000


class SliceSettings(SeriesCadence):
    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Scalar fields to cut; by default the speed, vorticity magnitude and density that the model has, and every
    scalar of a user's own equation."""
    particles: Annotated[Integer, Field(ge=0, le=10**6)] = MOST
    """The largest number of particles of each species that are drawn over a plane, those within half a grid spacing;
    0 for none."""


class Slices(Kind):
    name = "slices"
    description = "Mid-plane slices in slices.h5 beside those that come with every snapshot."
    Settings = SliceSettings
    with_snapshots = True

    def measured(self, subject: Subject, settings: SliceSettings | None) -> "Measured":
        from simulator.diagnostics.particles import near_planes
        from simulator.diagnostics.planes import PLANES, mid_planes, values_of

        asked = settings.fields if settings is not None else None
        for name in asked or ():
            check_scalar(name, subject)
        names = asked or subject.model.pictured
        planes = mid_planes(subject.transform, {name: values_of(subject.model, name) for name in names})
        most = MOST if settings is None else settings.particles
        if subject.carried is None or not most:
            return planes
        # In two dimensions there is one plane.
        cuts = {plane: axes for plane, axes in PLANES.items() if set(axes) <= planes.coordinates.keys()}
        return planes.joined(near_planes(subject.particles.populations, cuts, most))


def check_scalar(name: str, subject: Subject, key: str = "fields") -> None:
    """Refuses a name that is no scalar field of the model; `key` is its place in the configuration."""
    if name in subject.model.scalar_fields:
        return
    meant = did_you_mean(name, subject.model.scalar_fields)
    problem = f"{name} is not a scalar" if name in subject.model.specs() else f"unknown field {name!r}"
    raise Unsupported(f"{problem}{meant} known: {', '.join(subject.model.scalar_fields)}", key=key)
