"""A subgrid stress from a user's Python function."""

import io
import traceback
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.models.closures.closure import Closure, filter_width
from simulator.physics.models.fields import Fields
from simulator.physics.models.pointwise import POINTS, mixing
from simulator.settings import InputPath, Settings
from simulator.spectral import Layout, Transform


class PythonStressSettings(Settings):
    kind: Literal["python"] = "python"
    path: InputPath
    """A Python file; the run keeps a copy of it, and the copy is what runs."""
    function: str
    """function(velocity, gradient, width, **parameters) gives the stress: xx, yy, zz, xy, xz, yz."""
    flux: str | None = None
    """flux(velocity, gradient, scalar, scalar_gradient, width, **parameters) gives a scalar's flux along x, y and z;
    required with scalars or a buoyancy."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of both functions."""
    arrays: InputPath | None = None
    """A .npz file, of which the run keeps a copy: its arrays are keyword arguments, too, such as the weights of a
    network."""


class PythonStress(Closure):
    """tau at a point as a function of the velocity (3, ...), its gradient A_ij = du_i/dx_j (3, 3, ...) and the filter
    width pi / k_max, by `function(velocity, gradient, width, **parameters)`: six arrays xx, yy, zz, xy, xz, yz. The
    flux of a scalar is three arrays, by `flux(velocity, gradient, scalar, scalar_gradient, width, **parameters)`.

    Both work point by point with jax.numpy. What they limit in dt is not known.
    """

    Settings = PythonStressSettings

    def __init__(self, settings: PythonStressSettings, transform: Transform, files: Any):
        super().__init__(settings, transform, files)
        path = str(settings.path)
        self._path, self._width = path, filter_width(transform.grid)
        self._function = files.function(path, settings.function)
        self._flux = None if settings.flux is None else files.function(path, settings.flux)
        self._arguments = dict(settings.parameters)
        if settings.arrays is not None:
            self._arguments |= _arrays(files.read(str(settings.arrays)), str(settings.arrays))
        velocity, gradient, scalar = (
            jax.ShapeDtypeStruct((*lead, *POINTS), transform.dtype) for lead in ((3,), (3, 3), ())
        )
        values = {"velocity": velocity, "gradient": gradient}
        self._check(settings.function, self.stress, values)
        if settings.flux is not None:
            self._check(settings.flux, self.flux, values, scalar, velocity)

    def _check(self, name: str, function: Any, *arguments: Any) -> None:
        """Refuses a function that mixes values of several points."""
        if (found := mixing(jax.make_jaxpr(function)(*arguments))) is not None:
            frames = [f.line_num for f in getattr(found[1], "frames", ()) if f.file_name == self._path]
            raise UserError(
                f"{self._at(name, frames[:1])}: uses {found[0]}, but it sees the points of one block only; "
                "a closure works point by point"
            )

    def _at(self, name: str, lines: list[int | None]) -> str:
        line = f":{lines[0]}" if lines else ""
        return f"subgrid: {self._path}{line}: {name}"

    def inputs(self, layout: Layout, velocity: jax.Array) -> Fields:
        k = layout.wavenumbers(velocity.real.dtype)
        gradient = jnp.stack([jnp.stack([1j * k[j] * velocity[i] for j in range(3)]) for i in range(3)])
        return {"velocity": velocity, "gradient": gradient}

    def stress(self, values: Fields) -> jax.Array:
        velocity, gradient = values["velocity"], values["gradient"]
        name, names = self.settings.function, "six are needed: xx, yy, zz, xy, xz, yz"
        parts = self._parts(name, self._function, velocity, gradient, self._width)
        if len(parts) != 6:
            raise UserError(f"{self._at(name, [])}: returned {len(parts)} components; {names}")
        xx, yy, zz, xy, xz, yz = parts
        return jnp.stack([xx - zz, yy - zz, xy, xz, yz])

    def flux(self, values: Fields, scalar: jax.Array, gradient: jax.Array) -> jax.Array:
        name, of_flow = self.settings.flux, (values["velocity"], values["gradient"])
        parts = self._parts(name, self._flux, *of_flow, scalar, gradient, self._width)
        if len(parts) != 3:
            raise UserError(
                f"{self._at(name, [])}: returned {len(parts)} components; three are needed: x, y, z"
            )
        return jnp.stack(parts)

    def _parts(self, name: str, function: Any, velocity: jax.Array, *further: Any) -> list[jax.Array]:
        """The arrays that a function of the user's returns, each of the shape of the points."""
        try:
            found = function(velocity, *further, **self._arguments)
            return [jnp.broadcast_to(jnp.asarray(part, velocity.dtype), velocity.shape[1:]) for part in found]
        except jax.errors.JAXTypeError as error:
            raise UserError(
                f"{self._at(name, self._lines(error))}: uses numpy, or an if, on values; use jax.numpy instead, "
                "with jnp.where for an if"
            ) from error
        except Exception as error:
            first = str(error).partition("\n")[0]
            raise UserError(
                f"{self._at(name, self._lines(error))}: {type(error).__name__}: {first}"
            ) from error

    def _lines(self, error: BaseException) -> list[int | None]:
        """The lines of the user's file that led to the error, the innermost first."""
        return [f.lineno for f in traceback.extract_tb(error.__traceback__)[::-1] if f.filename == self._path]


def _arrays(content: bytes, path: str) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(content)) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, OSError, AttributeError):
        raise UserError(f"subgrid: {path}: is no .npz file; numpy.savez writes one") from None
