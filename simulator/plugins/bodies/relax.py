"""Relaxation towards a target within a mask: bodies in the flow, sponges, inflows, nudging."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import Discriminator, Field, Tag

from simulator.errors import UserError, prefixed
from simulator.physics.models.damping import absent
from simulator.physics.models.equation import Equation
from simulator.physics.models.fields import Fields
from simulator.physics.models.limits import damping_limit
from simulator.physics.models.state import State
from simulator.physics.models.tendency import with_arrays
from simulator.physics.stored_values import ArraySettings, StoredValues
from simulator.physics.terms.term import (
    Added,
    Coordinates,
    Term,
    TermFiles,
    TermSettings,
)
from simulator.physics.user_function import UserFunction, coordinates
from simulator.plugins.bodies.file_target import (
    SeriesTargetSettings,
    SnapshotTargetSettings,
    StoredSettings,
    StoredTarget,
    check_finite,
    stored_mask,
)
from simulator.plugins.bodies.formula import Formula, formula_value
from simulator.plugins.bodies.resolution import NO_SLIP, body_of
from simulator.plugins.bodies.shapes import (
    ArrayMaskSettings,
    CylinderSettings,
    MaskSettings,
    PythonMaskSettings,
    ShapeSettings,
    SphereSettings,
    UnionSettings,
    check_axis,
    extents_of,
    from_nearest,
)
from simulator.settings import Parameters, Positive, PythonFile, Settings
from simulator.spectral.arrays import Number, OverPoints, ParticleVectors, PointValues, Truth
from simulator.spectral.grid import AXES

BODY = "body"


class PythonTargetSettings(Settings):
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(x, y, z, t, **parameters) gives the values of the field, of a vector a component for
    each axis; in two dimensions function(x, y, t, ...)."""
    parameters: Parameters
    """Keyword arguments of the function."""


def _branch(value: object) -> str:
    kinds = {"snapshot": SnapshotTargetSettings, "series": SeriesTargetSettings}
    kinds["array"] = ArraySettings
    for key, kind in kinds.items():
        if isinstance(value, kind) or (isinstance(value, Mapping) and key in value):
            return key
    if isinstance(value, Mapping | PythonTargetSettings):
        return "a function"
    if isinstance(value, list | tuple):
        return "components"
    return "a body" if value == BODY else "a formula"


Target = Annotated[
    Annotated[SnapshotTargetSettings, Tag("snapshot")]
    | Annotated[SeriesTargetSettings, Tag("series")]
    | Annotated[ArraySettings, Tag("array")]
    | Annotated[PythonTargetSettings, Tag("a function")]
    | Annotated[tuple[Formula, ...], Field(min_length=1, max_length=3), Tag("components")]
    | Annotated[Literal["body"], Tag("a body")]
    | Annotated[Formula, Tag("a formula")],
    Discriminator(_branch),
]
"""A snapshot, a series of snapshots, or an array of a file; a function of a Python file; `body`:
the velocity of the mask's shape; numbers or formulas."""


class CoefficientSettings(Settings):
    """The scales of drag and lift coefficients."""

    velocity: Positive
    """U of the force divided by U^2 A / 2."""
    length: Positive
    """L of the area A: L in a plane, L times the length of a cylinder, pi L^2 / 4 of a sphere, else
    L^2."""
    direction: Literal["x", "y", "z"] = "x"
    """The direction of the flow, in which drag is positive; lift is along the other axes."""


class RelaxSettings(TermSettings):
    kind: Literal["relax"] = "relax"
    target: Annotated[dict[str, Target], Field(min_length=1)]
    """The values to which fields relax, by field: a number or a formula of x, y, z and t, of a
    vector one for each axis; `body` for the velocity of the mask's shape; {path, function,
    parameters} of a Python function; {snapshot} of a run, {series} of all snapshots of a run, or
    {array, dataset} of a file."""
    relaxation_time: Positive | None = None
    """tau of -(u - target) chi / tau; of a body the eta of volume penalisation. By default
    (smoothing / 6.7468)^2 / viscosity, with which the flow comes to rest on the surface of a shape."""
    mask: MaskSettings | None = None
    """Where the term acts, chi; by default everywhere."""
    below: Positive | None = None
    """Only the modes with |k| <= below (1/length) relax, to targets of files; by default all."""
    forces: bool = False
    """Columns with the force and the torque of the fluid on the body."""
    coefficients: CoefficientSettings | None = None
    """Columns with drag and lift coefficients of the body, in addition to force and torque."""


class Relax(Term):
    """-(u - target) chi(x, t) / tau.

    A body in the flow by volume penalisation: Angot, Bruneau & Fabrie, Numer. Math. 81, 497 (1999);
    Engels, Kolomenskiy, Schneider & Sesterhenn, J. Comput. Phys. 281, 96 (2015). The term is
    explicit, and dt resolves its rate chi / tau."""

    Settings = RelaxSettings

    def __init__(self, settings: RelaxSettings, model: Equation, files: TermFiles):
        super().__init__(settings, model, files)
        self._viscosity = getattr(model, "viscosity", 0.0)
        self._functions = {}
        place = f"{coordinates(self.grid)}, and the time"
        self._stored: dict[str, StoredTarget] = {}
        self._array: StoredValues | None = None
        evolved = model.shapes == model.initial_shapes
        self._modal = evolved and settings.mask is None
        """Whether targets of files need no values at points."""
        if settings.relaxation_time is None:
            time = self._no_slip_time(model.extension.diffuses(model))
            complete: Any = settings.model_copy(update={"relaxation_time": time})
            self.settings = complete
        if isinstance(settings.mask, PythonMaskSettings):
            self._functions["mask"] = UserFunction.of(files, settings.mask, place, "mask: ")
        elif isinstance(settings.mask, ArrayMaskSettings):
            with prefixed("mask"):
                self._array = stored_mask(settings.mask, self.transform, files)
        elif settings.mask is not None:
            with prefixed("mask"):
                settings.mask.check(self.grid)
        for name, target in settings.target.items():
            self.check_field("target", name)
            if isinstance(target, StoredSettings):
                with prefixed(f"target.{name}", ": "):
                    at = (name, self.shapes[name], self.transform, files)
                    self._stored[name] = StoredTarget(target, *at)
            elif isinstance(target, PythonTargetSettings):
                key = f"target.{name}: "
                self._functions[name] = UserFunction.of(files, target, place, key)
            elif target == BODY:
                self._check_body(name)
        self.acts_on = tuple(n for n in settings.target if not self._is_modal(n))
        if settings.below is not None and (len(self._stored) < len(settings.target) or not evolved):
            needs = "needs targets of files, for fields that the model evolves"
            raise UserError(f"below: {needs}; leave the key out")
        if self._measures_forces and "velocity" not in settings.target:
            key = "forces" if settings.coefficients is None else "coefficients"
            raise UserError(f"{key}: needs a target for velocity; leave the key out")
        if settings.coefficients is not None:
            axis = settings.coefficients.direction
            if self.grid.dimensions == 1:
                raise UserError("coefficients: need a body in two or three dimensions")
            check_axis(self.grid, "coefficients.direction", axis)
        self._trace()

    def _is_modal(self, name: str) -> bool:
        return self._modal and name in self._stored

    def _no_slip_time(self, diffuses: Sequence[str]) -> Number | float:
        mask = self.settings.mask
        wall = isinstance(mask, ShapeSettings) and tuple(self.settings.target) == ("velocity",)
        if not wall or "velocity" not in diffuses or absent(self._viscosity):
            takes = (
                "only the velocity at a mask that is one shape, in a viscous flow, has a default"
            )
            raise UserError(f"relaxation_time: {takes}; give a number")
        return (mask.width(self.grid) / NO_SLIP) ** 2 / self._viscosity

    def _check_body(self, name: str) -> None:
        if name != "velocity" or not isinstance(self.settings.mask, ShapeSettings):
            takes = "body is the velocity of a mask that is one shape"
            raise UserError(f"target.{name}: {takes}; give numbers or a function")

    def _trace(self) -> None:
        """Raises UserError for functions and formulas that cannot be evaluated at points."""
        names = self.settings.target.keys() - self._stored.keys()
        functions = {} if self._array else {"mask": lambda p, t: self.mask({}, p, t)}
        functions |= {n: lambda p, t, n=n: self.target(n, {}, p, t) for n in names}
        for name, function in functions.items():
            self.trace(function, self._functions.get(name))

    def mask(self, inputs: PointValues, points: Coordinates, time: Number) -> OverPoints:
        """chi at a point."""
        mask = self.settings.mask
        if isinstance(mask, ArrayMaskSettings):
            return inputs[self._named("mask")]
        if mask is None:
            return jnp.ones((1, 1, 1), self.transform.dtype)
        if not isinstance(mask, PythonMaskSettings):
            return mask.chi(self.grid, points, time)
        function = replace(self._functions["mask"], parameters=mask.parameters)
        dtype = self.transform.dtype
        return function.values(function(*points, time), (), extents_of(points), dtype)

    def target(
        self, name: str, inputs: PointValues, points: Coordinates, time: Number
    ) -> list[jax.Array]:
        """The components of the target of a field at a point; of a scalar one."""
        target = self.settings.target[name]
        lead = self.shapes[name]
        count = lead[0] if lead else 1
        if isinstance(target, PythonTargetSettings):
            function = replace(self._functions[name], parameters=target.parameters)
            dtype = self.transform.value_dtype
            value = function.values(function(*points, time), lead, extents_of(points), dtype)
            return list(value) if lead else [value]
        if isinstance(target, str) and target == BODY:
            return self.settings.mask.velocity(self.grid, points, time)
        parts = target if isinstance(target, tuple) else (target,)
        if len(parts) != count or isinstance(target, tuple) != bool(lead):
            needed = f"{count} numbers or formulas are" if lead else "a number or a formula is"
            raise UserError(f"target.{name}: {needed} needed for this field")
        try:
            values = [formula_value(part, points, time) for part in parts]
        except ValueError as error:
            raise UserError(f"target.{name}: {error}") from None
        return [value.astype(self.transform.dtype) for value in values]

    def near(self, points: Coordinates, time: Number) -> Truth | None:
        mask = self.settings.mask
        if not isinstance(mask, ShapeSettings | UnionSettings):
            return None
        return mask.near(self.grid, points, time)

    def at_point(
        self, values: PointValues, inputs: PointValues, points: Coordinates, time: Number
    ) -> Added:
        # Once: XLA would compute the mask again for every component.
        mask = self.mask(inputs, points, time)
        rate = lax.optimization_barrier(mask / self.settings.relaxation_time)
        if not self.acts_on:
            return Added({}, 0 * rate)
        sources = {}
        for name in self.acts_on:
            value = values[name]
            if name in self._stored:
                difference = inputs[self._named(name)]
                if self.settings.below is None:
                    difference = difference - value
                sources[name] = rate * difference
                continue
            target = self.target(name, inputs, points, time)
            if self.shapes[name]:
                parts = [rate * (t - v) for v, t in zip(value, target, strict=True)]
                sources[name] = jnp.stack(parts)
            else:
                sources[name] = rate * (target[0] - value)
        return Added(sources, damping_limit(self.grid, rate))

    def stops(
        self, places: ParticleVectors, velocity: ParticleVectors, time: Number
    ) -> ParticleVectors:
        """The velocity (3, particle) of particles that stick to the body at places inside it."""
        mask = self.settings.mask
        assert isinstance(mask, ShapeSettings | UnionSettings)
        points = [x.reshape(-1, 1, 1) for x in places]
        inside = mask.inside(self.grid, points, time).reshape(-1)
        target = self.target("velocity", {}, points, time)
        body = jnp.stack([jnp.broadcast_to(v, points[0].shape).reshape(-1) for v in target])
        return jnp.where(inside, body.astype(velocity.dtype), velocity)

    @property
    def is_body(self) -> bool:
        shape = isinstance(self.settings.mask, ShapeSettings | UnionSettings)
        return shape and "velocity" in self.settings.target.keys() - self._stored.keys()

    @classmethod
    def solids(cls, model: Equation) -> Mapping[str, Callable[[State], jax.Array]]:
        """The union of the masks of all bodies."""
        physical = model.transform.physical

        def filled(state: State) -> jax.Array:
            points = physical.grid.seen(physical.coordinates(model.transform.dtype))
            bodies = _shown(with_arrays(model, state.memory.terms))
            outside = reduce(mul, (1 - b.mask(b.stored(), points, state.time) for b in bodies))
            return physical.constrain(jnp.where(physical.inside(), 1 - outside, 0))

        return {"bodies": filled} if _shown(model) else {}

    @property
    def is_shown(self) -> bool:
        """Whether pictures show its surface; that of a sponge, which also has a shape, they do
        not."""
        moves = self.settings.target.get("velocity") == BODY
        return self.settings.mask is not None and (moves or self._measures_forces)

    # ---- targets and masks of files

    def _named(self, what: str) -> str:
        return f"{self.settings.name}/{what}"

    def array_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        shapes = {self._named(name): target.shape for name, target in self._stored.items()}
        if self._array is not None:
            grid = self.transform.physical.shape
            shapes[self._named("mask")] = jax.ShapeDtypeStruct(grid, self.transform.dtype)
        return shapes

    def arrays(self) -> dict[str, jax.Array]:
        arrays = {self._named(n): target.coefficients() for n, target in self._stored.items()}
        if self._array is not None:
            place = self.transform.physical
            arrays[self._named("mask")] = self._array.values(place, (), self.transform.dtype)
        return arrays

    def array_keys(self) -> dict[str, str]:
        return {f"target.{name}": self._named(name) for name in self._stored}

    def _differences(self, name: str, fields: Fields, time: Number) -> jax.Array:
        """target - u, of the modes that relax."""
        target = self._stored[name].at(self.held[self._named(name)], time)
        difference = target - fields[name]
        if self.settings.below is None:
            return difference
        reach = self.settings.below**2 * (1 + 1e-12)
        return jnp.where(self.transform.layout.k_squared() <= reach, difference, 0)

    def inputs(self, fields: Fields, time: Number) -> Fields:
        """The coefficients of targets of files or, if only some modes relax, the differences."""
        inputs = {}
        for name, target in self._stored.items():
            if self._is_modal(name):
                continue
            key = self._named(name)
            if self.settings.below is None:
                inputs[key] = target.at(self.held[key], time)
            else:
                inputs[key] = self._differences(name, fields, time)
        return inputs

    def modal_rates(self, fields: Fields, time: Number) -> Fields:
        names = [name for name in self._stored if self._is_modal(name)]
        tau = self.settings.relaxation_time
        return {name: self._differences(name, fields, time) / tau for name in names}

    @property
    def modal_limit(self) -> Number | float:
        if not any(map(self._is_modal, self._stored)):
            return 0.0
        return damping_limit(self.grid, jnp.asarray(1 / self.settings.relaxation_time))

    def outlook(self) -> dict[str, bool]:
        seen = self.grid.seen
        box = seen(self.grid.shape), seen(self.grid.box)
        body = body_of(self.settings.model_dump(), *box, self._viscosity)
        return {} if body is None else {body.line: body.verdict == "good"}

    def check_end(self, stop: float) -> None:
        for name, target in self._stored.items():
            with prefixed(f"target.{name}", ": "):
                target.until(stop)

    # ---- the force on a body

    @property
    def _measures_forces(self) -> bool:
        return self.settings.forces or self.settings.coefficients is not None

    def integrands(
        self, momentum: jax.Array | None, points: Coordinates, time: Number
    ) -> PointValues:
        """The force of the fluid on the body, which is minus that of the term, and its torque about
        the centre of the mask."""
        if not self._measures_forces or momentum is None:
            return {}
        name = self.settings.name
        force = [-component for component in momentum]
        r = from_nearest(self.grid, points, self._middle(time))
        columns = {f"force_{name}_{axis}": f for axis, f in zip(AXES, force, strict=False)}
        if len(force) == 2:
            return {**columns, f"torque_{name}": r[0] * force[1] - r[1] * force[0]}
        for i, axis in enumerate(AXES if len(force) == 3 else ()):
            a, b = (i + 1) % 3, (i + 2) % 3
            columns[f"torque_{name}_{axis}"] = r[a] * force[b] - r[b] * force[a]
        return columns

    def _middle(self, time: Number) -> Sequence[Number]:
        mask = self.settings.mask
        if isinstance(mask, ShapeSettings | UnionSettings):
            return mask.middle(self.grid, time)
        return [jnp.float64(length / 2) for length in self.grid.seen(self.grid.box)]

    def columns(self, integrals: Mapping[str, Number]) -> dict[str, Number]:
        scales = self.settings.coefficients
        if scales is None or not integrals:
            return dict(integrals)
        name = self.settings.name
        pressure = 0.5 * scales.velocity**2 * self._area(scales.length)
        axes = AXES[: len(self.grid.axes)]
        others = [axis for axis in axes if axis != scales.direction]
        along = {f"drag_{name}": scales.direction}
        along |= {f"lift_{name}" if len(others) == 1 else f"lift_{name}_{a}": a for a in others}
        ratios = {c: integrals[f"force_{name}_{axis}"] / pressure for c, axis in along.items()}
        return {**integrals, **ratios}

    def _area(self, length: Number | float) -> Number | float:
        if self.grid.dimensions < 3:
            return length
        match self.settings.mask:
            case CylinderSettings(axis=axis):
                return length * self.grid.box[AXES.index(axis)]
            case SphereSettings():
                return np.pi / 4 * length**2
        return length**2

    def check_start(self, time: float) -> None:
        """Raises UserError, beginning with the key, for a mask with values outside of [0, 1], and
        for targets of files that begin later or are not finite."""
        for name, target in self._stored.items():
            with prefixed(f"target.{name}", ": "):
                target.check_start(time)
        with prefixed("target"):
            check_finite({name: self.held[self._named(name)] for name in self._stored})
        mask = self.settings.mask
        if not isinstance(mask, PythonMaskSettings | ArrayMaskSettings):
            return
        physical = self.transform.physical

        def extremes(stored: PointValues) -> tuple[Number, Number]:
            points = physical.coordinates(self.transform.dtype)
            chi = self.mask(stored, self.grid.seen(points), jnp.float64(time))
            chi = physical.constrain(jnp.broadcast_to(chi, physical.shape))
            return physical.min(chi), physical.max(chi)

        low, high = (float(number) for number in jax.jit(extremes)(self.stored()))
        if not (low >= 0 and high <= 1):
            source = f"{mask.path}: " if self._array else ""
            values = f"{source}its values lie between {low:g} and {high:g} at the start"
            raise UserError(f"mask: {values}; they have to lie in [0, 1]")


def _shown(model: Equation) -> list[Relax]:
    return [term for term in model.terms if isinstance(term, Relax) and term.is_shown]
