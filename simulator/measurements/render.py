"""Volume pictures of a scalar field, made on the devices: render.h5."""

import itertools
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.errors import shortened
from simulator.measurements.cadence import SeriesCadence
from simulator.measurements.kind import Kind, Subject, Unsupported
from simulator.measurements.slices import check_scalar
from simulator.settings import Integer, Positive, Real, Settings, wrong

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured
    from simulator.rendering import Volume

USUAL = ("vorticity_magnitude", "density")
"""The fields to show by default: the first of these that the model has."""


def _colour(name: Any) -> Any:
    from PIL import ImageColor

    try:
        ImageColor.getrgb(str(name))
    except ValueError:
        raise ValueError(f"{shortened(str(name))} is not a colour; give a name or #rrggbb") from None
    return str(name)


Colour = Annotated[str, AfterValidator(_colour)]
Opacity = Annotated[Real, Field(ge=0, lt=1)]
Pixels = Annotated[Integer, Field(ge=16, le=8192)]


class CameraSettings(Settings):
    azimuth: Real = 30.0
    """Position of the camera: degrees from x towards y."""
    elevation: Annotated[Real, Field(ge=-90, le=90)] = 25.0
    """Degrees above the x-y plane; z points up."""
    zoom: Positive = 1.2
    """With 1 the diagonal of the box is as long as the shorter side of the picture."""


class RenderSettings(SeriesCadence):
    field: str | None = None
    """A scalar field; by default the vorticity magnitude, else the density."""
    camera: CameraSettings = CameraSettings()
    """The position of the camera."""
    transfer: Literal["auto"] | Annotated[tuple[tuple[Real, Colour, Opacity], ...], Field(min_length=2)] = (
        "auto"
    )
    """Points [value, colour, opacity] in rising order of value. The opacity is the fraction of light lost in a path
    of a hundredth of the box's shortest side. The default is chosen from the mean square of the values."""
    size: tuple[Pixels, Pixels] = (512, 512)
    """Width and height in pixels."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        values = [] if self.transfer == "auto" else [point[0] for point in self.transfer]
        if any(b <= a for a, b in itertools.pairwise(values)):
            raise wrong(
                "transfer", f"the values {', '.join(f'{v:g}' for v in values)} do not rise; sort the points"
            )
        return self


class Render(Kind):
    name = "render"
    description = "Volume pictures of a field, rendered by the devices, in render.h5."
    Settings = RenderSettings

    def measured(self, subject: Subject, settings: RenderSettings) -> "Measured":
        import numpy as np

        from simulator.diagnostics.measured import Measured

        model = subject.model
        known = model.scalar_fields
        name = settings.field or next((name for name in USUAL if name in known), None)
        if name is None:
            raise Unsupported("needs a field to show; name one with field")
        check_scalar(name, subject, key="field")
        if 1 in subject.transform.grid.shape:
            raise Unsupported("a plane has no volume; use slices", key="field")
        volume = volume_of(subject.transform, settings)
        width, height = settings.size
        return Measured(
            {"row": np.arange(height), "column": np.arange(width), "channel": np.arange(3)},
            {"image": ("row", "column", "channel")},
            lambda state: {"image": volume.image(model.field_values(name, model.contents(state)))},
            {"field": name, "azimuth": settings.camera.azimuth, "elevation": settings.camera.elevation},
        )


def volume_of(transform: Any, settings: RenderSettings) -> "Volume":
    """The renderer for fields on this transform."""
    from PIL import ImageColor

    from simulator.rendering import Camera, Transfer, Volume

    camera = settings.camera
    points = None
    if settings.transfer != "auto":
        points = tuple(
            (value, tuple(part / 255 for part in ImageColor.getrgb(colour)[:3]), opacity)
            for value, colour, opacity in settings.transfer
        )
    seen = Camera(camera.azimuth, camera.elevation, camera.zoom, settings.size)
    return Volume(transform.physical, seen, Transfer(points))  # pyright: ignore[reportArgumentType]
