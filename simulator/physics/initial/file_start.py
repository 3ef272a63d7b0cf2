"""Fields from arrays in the files of other programs."""

from typing import Annotated, Literal

from pydantic import Field

from simulator.errors import prefixed
from simulator.physics.initial.initial import Fields, Initial, StartFiles, from_arrays, only
from simulator.physics.models import Equation
from simulator.physics.stored_values import ArrayInput, fitting_array
from simulator.settings import Settings


class FileStartSettings(Settings):
    kind: Literal["file"] = "file"
    fields: Annotated[dict[str, ArrayInput], Field(min_length=1)]
    """The file of each field: `u.npy`, or `rho.h5:/density` for a data set of an HDF5 file, with the
    values on the run's grid, (component, x, y, z) of a vector, (x, y, z) of a scalar, in a plane
    without z. All other fields start at zero."""


class FileStart(Initial):
    """Values on the grid, of which each device reads its part only."""

    Settings = FileStartSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        transform = model.transform
        arrays = {}
        for name, file in self.settings.fields.items():
            only(name, model, "kind: file")
            lead = model.initial_shapes[name]
            with prefixed(f"fields.{name}", ": "):
                stored = fitting_array(file.array, file.dataset, lead, transform, files)
                arrays[name] = stored.values(transform.physical, lead, transform.value_dtype)
        return from_arrays(transform, arrays)
