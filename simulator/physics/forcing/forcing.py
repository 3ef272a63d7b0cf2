"""The contract of a forcing, the sum of a list of forces, steady forces made of few modes, and the
force of a user's function."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simulator.errors import UserError, did_you_mean, shown
from simulator.physics.initial.initial import StartFiles, check_dimensions
from simulator.physics.initial.vortices import (
    AbcSettings,
    Waves,
    arnold_beltrami_childress,
    taylor_green,
)
from simulator.physics.models import Equation, Fields
from simulator.physics.models.tendency import added, solenoidal_rates
from simulator.physics.names import is_word, naming
from simulator.physics.user_function import UserFunction, coordinates
from simulator.settings import Parameters, Points, PythonFile, Real, Settings
from simulator.spectral import Local
from simulator.spectral import Points as GridPoints
from simulator.spectral.arrays import Number, Numbers, PointValues, SpectralVector, Whole

_ForceName = Annotated[str, naming("a column; take a word, e.g. large_scales", is_word)]


class ForcingSettings(Settings):
    """Keys of every force."""

    kind: Any
    name: _ForceName | None = None
    """Name of the force in a list, whose power is the column power_NAME; by default its kind."""


class FieldForcingSettings(ForcingSettings):
    """Keys of a force on one field."""

    field: str = "velocity"
    """The field that is driven: velocity, magnetic, buoyancy, a scalar, a field of your equation."""


class Forcing:
    """An acceleration of the velocity (or of other fields), as coefficients; a pure function of
    state and memory.

    By default it has no memory. `__init__` raises UserError, beginning with the key, if it cannot
    act on the model."""

    Settings: ClassVar[type[Settings]]
    number: int = 0
    """The place of the force in its list, which keeps random numbers apart."""

    def __init__(self, settings: Any, model: Equation, files: StartFiles) -> None:
        self.settings = settings
        self.transform = model.transform
        self.model = model

    def memory(self) -> Numbers:
        """The first values of the arrays that the forcing carries from step to step in the
        state."""
        return {}

    def renewed(self, memory: Numbers, step: Whole, dt: Number) -> Numbers:
        """The memory after step number `step` of length dt."""
        return {}

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        """Accelerations (field/time) by field; solenoidal for solenoidal fields."""
        raise TypeError(f"{type(self).__name__} does not define acceleration")


class Forcings:
    """The sum of forces, by name. The arrays in their memory have the names `NAME_FORCE`; those of a
    single force have the names that it gives."""

    def __init__(self, forces: Mapping[str, Forcing]):
        self.forces = forces
        self._keys = {name: tuple(jax.eval_shape(f.memory)) for name, f in forces.items()}

    def _key(self, key: str, name: str) -> str:
        return key if len(self.forces) == 1 else f"{key}_{name}"

    def _of(self, force: str, memory: Numbers) -> Numbers:
        return {key: memory[self._key(key, force)] for key in self._keys[force]}

    def memory(self) -> Numbers:
        """The first values of the arrays that forces carry from step to step."""
        return {
            self._key(key, name): array
            for name, force in self.forces.items()
            for key, array in force.memory().items()
        }

    def renewed(self, memory: Numbers, step: Whole, dt: Number) -> Numbers:
        """The memory after step number `step` of length dt."""
        new: dict[str, jax.Array] = {}
        for name, force in self.forces.items():
            renewed = force.renewed(self._of(name, memory), step, dt)
            new |= {self._key(key, name): array for key, array in renewed.items()}
        return new

    def each(self, fields: Fields, time: Number, memory: Numbers) -> dict[str, Fields]:
        """The accelerations (field/time) by each force, by field."""
        return {
            name: force.acceleration(fields, time, self._of(name, memory))
            for name, force in self.forces.items()
        }

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        """The sum of the accelerations, by field."""
        total: Fields = {}
        for accelerations in self.each(fields, time, memory).values():
            total = added(total, accelerations)
        return total


class FieldForcing(Forcing):
    """A force on one field, the key `field`."""

    on_scalars: ClassVar[bool] = True  # Whether the field may be a scalar.

    def __init__(self, settings: FieldForcingSettings, model: Equation, files: StartFiles) -> None:
        super().__init__(settings, model, files)
        self.field = settings.field
        known = model.accelerated
        axes = len(model.transform.grid.axes)
        if self.field == "velocity" and "velocity" not in known:
            has = f"this model has none (its fields are {', '.join(model.fields)})"
            raise UserError(f"field: the velocity is driven by default, and {has}")
        if self.field not in known:
            meant = did_you_mean(self.field, known)
            raise UserError(
                f"field: {shown(self.field)} cannot be driven{meant} known: {', '.join(known)}"
            )
        lead = known[self.field]
        if not lead and not self.on_scalars:
            raise UserError(f"field: {self.field} is a scalar; this force needs a vector")
        if (lead and not axes <= lead[0] <= 3) or not model.transform.layout.real:
            few = ("one component", "two components", "three components")[axes - 1]
            needed = f"a real field with {few}, or a real scalar, is needed"
            raise UserError(f"field: {self.field}: {needed}; kind: python drives any field")
        self.components = lead[0] if lead else 1
        self.is_scalar = not lead


class PythonForcingSettings(ForcingSettings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(x, y, z, t, **parameters) gives accelerations by field; in two dimensions
    function(x, y, t, ...)."""
    parameters: Parameters
    """Keyword arguments of the function."""


class PythonForcing(Forcing):
    """`function(x, y, z, t, **parameters)` gives a dict of accelerations by field.

    The function receives the coordinates of a part of the grid's points, in any arrangement, as
    arrays that broadcast. It has to work point by point with jax.numpy; a vector is three
    components, in a plane two. Accelerations of solenoidal fields are projected."""

    Settings = PythonForcingSettings

    def __init__(self, settings: PythonForcingSettings, model: Equation, files: StartFiles):
        super().__init__(settings, model, files)
        self._function = UserFunction.of(
            files, settings, f"{coordinates(model.transform.grid)}, and the time", "function: "
        )
        # A traced parameter, by which a gradient is taken, has to be an argument of the blocks.
        self._varied = {n: v for n, v in settings.parameters.items() if isinstance(v, jax.Array)}
        one = jax.ShapeDtypeStruct((1, 1, 1), model.transform.dtype)
        time = jax.ShapeDtypeStruct((), jnp.float64)
        jax.eval_shape(self._values, (one, one, one), time, self._varied)

    def _values(
        self, points: Sequence[jax.Array], time: Number, varied: Mapping[str, Any]
    ) -> PointValues:
        """Accelerations at the points; `varied` are parameters with other values."""
        function = replace(self._function, parameters={**self._function.parameters, **varied})
        accelerations = function(*self.transform.grid.seen(points), time)
        shape = np.broadcast_shapes(*(p.shape for p in points))
        known = self.model.accelerated
        dtype = self.transform.value_dtype
        return function.by_field(accelerations, known, shape, dtype, "accelerations")

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        def force(
            values: PointValues,
            points: GridPoints,
            arguments: tuple[Number, Mapping[str, jax.Array]],
        ) -> Local:
            return Local(self._values(points, *arguments))

        # `evaluate` needs an input field, although only the points are used; one component costs
        # least.
        some = next(iter(fields.values()))
        some = some[0] if some.ndim > 3 else some
        accelerations = self.transform.evaluate(
            {"some": some}, force, (time, self._varied)
        ).products
        return solenoidal_rates(self.model, accelerations)


class EquationForcing(Forcing):
    """The force that an equation states itself, its method `forcing`."""

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        model = self.model
        layout = self.transform.layout
        forces = {}
        for name, force in model.forcing(fields, time).items():
            shape = (*model.accelerated[name], *layout.shape)
            forces[name] = jnp.broadcast_to(jnp.asarray(force, self.transform.complex_dtype), shape)
        return solenoidal_rates(model, forces)


class _Steady(FieldForcing):
    """A constant force, which every evaluation computes anew from its few modes."""

    on_scalars = False
    axes = "xyz"  # The axes along which the force varies.
    least: ClassVar[int] = 2  # The smallest number of dimensions in which there is such a force.

    def __init__(self, settings: Any, model: Equation, files: StartFiles):
        kind = settings.kind
        check_dimensions(model.transform, kind, self.least)
        super().__init__(settings, model, files)
        grid = model.transform.grid
        n = getattr(settings, "wavenumber", 1)
        kept = dict(zip(grid.names.values(), grid.seen(grid.kept), strict=True))
        axes = "".join(a for a in self.axes if a in kept)
        if n > (most := min(kept[a] for a in axes)):
            raise UserError(
                f"kind: {kind} needs wavenumber {n} along {axes}; this grid keeps up to {most}"
            )

    def _force(self, w: Waves) -> SpectralVector:
        raise TypeError(f"{type(self).__name__} does not define _force")

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        force = self._force(Waves(self.transform.layout, self.transform.dtype))
        further = jnp.zeros((self.components - len(force), *force.shape[1:]), force.dtype)
        return {self.field: jnp.concatenate([force, further]) if len(further) else force}


class KolmogorovSettings(FieldForcingSettings):
    kind: Literal["kolmogorov"] = "kolmogorov"
    amplitude: Real = 1.0
    """Largest acceleration."""
    wavenumber: Points = 1
    """Periods of the force across the box."""


class Kolmogorov(_Steady):
    """f = F sin(n Y) e_x, Y = 2 pi y / Ly: Meshalkin & Sinai, J. Appl. Math. Mech. 25, 1700
    (1961)."""

    Settings = KolmogorovSettings
    axes = "y"

    def _force(self, w: Waves) -> SpectralVector:
        s = self.settings
        f = s.amplitude * w.one("x") * w.sin("y", s.wavenumber) * w.one("z")
        return w.vector(f, jnp.zeros_like(f), jnp.zeros_like(f))


class TaylorGreenForcingSettings(FieldForcingSettings):
    kind: Literal["taylor_green"] = "taylor_green"
    amplitude: Real = 1.0
    """F, the largest acceleration along x."""


class TaylorGreenForcing(_Steady):
    """f = F (sin X cos Y cos Z, -(Ly / Lx) cos X sin Y cos Z, 0), X_i = 2 pi x_i / L_i; without cos
    Z in two dimensions."""

    Settings = TaylorGreenForcingSettings

    def _force(self, w: Waves) -> SpectralVector:
        return taylor_green(w, self.transform, self.settings.amplitude)


class AbcForcingSettings(FieldForcingSettings, AbcSettings):
    kind: Literal["abc"] = "abc"


class AbcForcing(_Steady):
    """f = F (A sin Z + C cos Y, B sin X + A cos Z, C sin Y + B cos X), X_i = 2 pi x_i / L_i."""

    Settings = AbcForcingSettings
    least = 3

    def _force(self, w: Waves) -> SpectralVector:
        return arnold_beltrami_childress(w, self.settings)
