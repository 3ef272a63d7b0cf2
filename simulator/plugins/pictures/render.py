"""Volume pictures of scalar fields, made on the devices: render.h5."""

import itertools
from typing import Annotated, Any, Literal, Self

import jax
import numpy as np
from pydantic import AfterValidator, Field, model_validator

from simulator import spectral
from simulator.errors import shortened
from simulator.measure.kind import (
    SHOWN_FIRST,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
)
from simulator.measure.slices import check_scalar
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.plugins.pictures.volume import Camera, TransferFunction, Volume
from simulator.settings import Flag, Integer, Positive, Real, Settings, wrong

_GREY = (0.6, 0.6, 0.6)
SOLID = TransferFunction(((0.4, _GREY, 0.0), (0.6, _GREY, 0.999)))
"""A solid by the part of each point that it fills: opaque from the surface on, where that is 1/2."""
FAMILIES = 4  # The most fields in one picture: hues.yaml has a hue for each.


def _colour(name: object) -> str:
    from PIL import ImageColor

    try:
        ImageColor.getrgb(str(name))
    except ValueError:
        raise ValueError(
            f"{shortened(str(name))} is not a colour; give a name or #rrggbb"
        ) from None
    return str(name)


Colour = Annotated[str, AfterValidator(_colour)]
Opacity = Annotated[Real, Field(ge=0, lt=1)]
Pixels = Annotated[Integer, Field(ge=16, le=8192)]


class CameraSettings(Settings):
    azimuth: Real = 30.0
    """Position of the camera: degrees from x towards y."""
    elevation: Annotated[Real, Field(ge=-90, le=90)] = 25.0
    """Degrees above the x-y plane; z points up."""
    zoom: Positive = 1.1
    """With 1 the diagonal of the box is as long as the shorter side of the picture."""


Points = Literal["auto"] | Annotated[tuple[tuple[Real, Colour, Opacity], ...], Field(min_length=2)]


class RenderSettings(SeriesCadence):
    field: str | None = None
    """A scalar field, or a component of a vector such as vorticity_z; by default the vorticity
    magnitude, else the density."""
    fields: Annotated[dict[str, Points], Field(min_length=1, max_length=FAMILIES)] | None = None
    """Instead of `field` and `transfer`: several scalar fields in one picture, each with its
    transfer function, such as {vorticity_magnitude: auto, dye: auto}. With `auto` each field has
    its own hue: orange, blue, green, violet."""
    camera: CameraSettings = CameraSettings()
    """The position of the camera."""
    transfer: Points = "auto"
    """Points [value, colour, opacity] in rising order of value. The opacity is the fraction of
    light lost on a path of a hundredth of the box's shortest side. The default is chosen from the
    mean and mean square of the values."""
    size: tuple[Pixels, Pixels] = (512, 512)
    """Width and height in pixels."""
    outline: Flag = True
    """Draw the edges of the box."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.fields is not None and (self.field is not None or self.transfer != "auto"):
            key = "transfer" if self.field is None else "field"
            raise wrong(
                key,
                "`fields` names the fields and their transfer functions; leave one of both keys out",
            )
        _rising("transfer", self.transfer)
        for name, points in (self.fields or {}).items():
            _rising(f"fields.{name}", points)
        return self


def _rising(key: str, points: str | tuple[tuple[float, str, float], ...]) -> None:
    values = [] if isinstance(points, str) else [point[0] for point in points]
    if any(b <= a for a, b in itertools.pairwise(values)):
        raise wrong(
            key, f"the values {', '.join(f'{v:g}' for v in values)} do not rise; sort the points"
        )


class Render(Kind):
    sheared = True
    name = "render"
    description = "Volume pictures of a field, rendered by the devices, in render.h5."
    Settings = RenderSettings

    def measured(self, subject: Subject, settings: RenderSettings) -> Measured:
        shown = fields_of(subject.model, settings)
        for name in shown:
            check_scalar(name, subject, key="field" if settings.fields is None else "fields")
        if 1 in subject.transform.grid.shape:
            thin = "line" if subject.transform.grid.dimensions == 1 else "plane"
            raise Unsupported(f"a {thin} has no volume; use slices", of_model=False)
        solids = outputs.solids(subject.model).values()
        opaque = (SOLID,) * len(solids)
        volume = volume_of(subject.transform, settings, tuple(shown.values()), opaque)
        width, height = settings.size

        def compute(state: models.State) -> dict[str, jax.Array]:
            contents = outputs.contents(subject.model, state)
            fields = [outputs.grid_values(subject.model, name, contents) for name in shown]
            fields += [filled(state) for filled in solids]
            names = (f"colours/{name}" for name in shown)
            tables = dict(zip(names, volume.tables(*fields), strict=False))
            return {"image": volume.image(*fields), **tables}

        pixels = {"row": np.arange(height), "column": np.arange(width), "channel": np.arange(3)}
        pixels["entry"] = np.arange(5)
        variables: dict[str, tuple[str, ...]] = {"image": ("row", "column", "channel")}
        points = dict[str, np.ndarray]()
        for name, transfer in zip(shown, volume.transfers, strict=False):
            points[f"{name}_point"] = np.arange(transfer.count)
            variables[f"colours/{name}"] = (f"{name}_point", "entry")
        attributes = {"field": "+".join(shown)} | settings.camera.model_dump(
            include={"azimuth", "elevation"}
        )
        return Measured(pixels | points, variables, compute, attributes)


def fields_of(model: models.Equation, settings: RenderSettings) -> dict[str, Any]:
    """The transfer function of each field. Raises Unsupported if none is named and the model has
    none of `SHOWN_FIRST`."""
    if settings.fields is not None:
        return dict(settings.fields)
    name = settings.field or next(
        (name for name in SHOWN_FIRST if name in outputs.scalar_fields(model)), None
    )
    if name is None:
        raise Unsupported(
            f"the equation has no {' or '.join(SHOWN_FIRST)}; name a scalar field in `field`",
            of_model=False,
        )
    return {name: settings.transfer}


def volume_of(
    transform: spectral.Transform,
    settings: RenderSettings,
    functions: tuple[Any, ...],
    further: tuple[TransferFunction, ...],
) -> Volume:
    """The renderer for fields on this transform, with the camera of the settings, these transfer
    functions and `further` ones."""
    from PIL import ImageColor

    def colour(name: str) -> tuple[float, ...]:
        return tuple(part / 255 for part in ImageColor.getrgb(name)[:3])

    transfers = []
    for number, function in enumerate(functions):
        family = number if len(functions) > 1 else None
        points = (
            None if function == "auto" else tuple((v, colour(name), o) for v, name, o in function)
        )
        transfers.append(TransferFunction(points, family))  # pyright: ignore[reportArgumentType]
    camera = settings.camera
    seen = Camera(camera.azimuth, camera.elevation, camera.zoom, settings.size)
    return Volume(transform.physical, seen, (*transfers, *further), outline=settings.outline)
