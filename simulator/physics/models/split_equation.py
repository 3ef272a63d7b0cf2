"""Equations in two parts that are solved exactly, one after the other."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from simulator.physics.models.equation import (
    Equation,
    MakeTransform,
    Numerics,
    Parameters,
    declared,
    parameters,
    with_parameters,
)
from simulator.physics.models.expansion import Expansion
from simulator.physics.models.fields import Fields
from simulator.physics.models.growth import Growth
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.population import Populations
from simulator.physics.user_function import UserFiles
from simulator.spectral import Local, Points, Transform, seen_points
from simulator.spectral.arrays import (
    Number,
    OfModes,
    OverModes,
    ParticleVectors,
    PhysicalScalar,
    PointValues,
)
from simulator.spectral.operators import hermitian
from simulator.spectral.points import SeenPoints
from simulator.spectral.transform import Tree


class SplitEquation(Equation):
    """du/dt = L u + V(u, x, t) u: a diagonal L, exact in spectral space, and a part that is solved
    exactly at every point of physical space, where it is constant during a kick. A step takes them
    in turn (`time.integrator`, e.g. composition4).

        class NonlinearSchrodinger(SplitEquation):
            evolved = (Field("psi", complex=True),)
            interaction: float = -1.0

            def linear(self):
                return {"psi": -0.5j * self.k_squared}

            def flow(self, values, points, time, duration):
                psi = values["psi"]
                return {"psi": psi * jnp.exp(-1j * self.interaction * abs(psi) ** 2 * duration)}

    All modes of the grid are kept (`grid.dealias: none`): truncation after every `flow` would break
    the conservation laws of `flow`."""

    Settings = Parameters
    numerics = Numerics(dealias=("none",), split=True)
    background: Expansion | None = None
    """The expanding background; None: a static box."""
    unit_system: str = ""
    """The system of units, e.g. kpc_km_s_msun."""
    populations: Populations = {}  # noqa: RUF012 - never changed
    """The particles that are matter of the equation, by name."""
    parts: Mapping[str, Any] = {}
    """The kinds of matter that `model.components` lists, by name; those of `populations` are
    `ParticleMatter`."""
    particle_acceleration: Callable[[Fields, Number], Callable[[str, ParticleSet], ParticleVectors]]
    """(fields, time) to the function from a name and particles of `populations` to their
    accelerations."""
    joins_kicks = False
    """Whether the kick that ends a step and the kick that begins the next share one evaluation of
    V, by the functions below; kicks and drifts of no duration change no bit."""
    forces: Callable[[Fields, Number], Any]
    paced: Callable[[Fields, Any, Number, Number], tuple[Fields, Number]]
    """(fields, forces, time, duration) to the fields as `leapt` takes them, and the rate of a
    kick."""
    leapt: Callable[[Fields, Any, Number, tuple[Number, Number], Number], tuple[Fields, Fields]]
    """(fields, forces, time, durations of two kicks, of a drift) to the fields after the first
    kick, to go back to, and those after both and the drift."""

    @classmethod
    def create(cls, settings: Any, make: MakeTransform, files: UserFiles) -> Self:
        real = not any(field.complex for field in declared(cls))
        return cls(settings, make(real=real, every=True))

    @property
    def density_transform(self) -> Transform:
        """The transform of real fields with all modes of the equation."""
        return self.transform

    @cached_property
    def linear_growth(self) -> Growth:
        return Growth(self, limits=False)

    def in_units(self, text: str) -> str:
        """A field's units such as `mass/length^3` in the run's units."""
        return text

    def flow(
        self, values: PointValues, points: SeenPoints, time: Number, duration: Number
    ) -> PointValues:
        """The values, by field, after `duration` of the pointwise part alone at the frozen `time`;
        fields without an entry in the result do not change. A duration may be negative. `points`
        has the coordinates x, y, z."""
        raise TypeError(f"{type(self).__name__} does not define flow")

    def phase_rate(
        self, values: PointValues, points: SeenPoints, time: Number
    ) -> PhysicalScalar | None:
        """The rate (1/time) at which `flow` turns the phase at a point. Its spread over the box
        limits dt, as the linear term does: dt = cfl / rate turns no phase by more than pi cfl.
        None: only the linear term limits dt."""
        return None

    def drift(self, fields: Fields, duration: Number) -> Fields:
        """exp(L duration) u."""
        drifted = dict(fields)
        for name, rate in self.linear().items():
            drifted[name] = fields[name] * jnp.exp(rate * duration).astype(fields[name].dtype)
        return drifted

    def kick(self, fields: Fields, time: Number, duration: Number) -> tuple[Fields, Number]:
        """exp(V duration) u at `time`, and the rate (1/time, double) that limits dt: dt = cfl /
        rate."""
        layout = self.transform.layout
        numbers = time, duration, parameters(self, fields)
        evaluated = self.transform.evaluate(self.inputs(fields), self.flowing, numbers)
        kicked = {n: layout.constrain(evaluated.products[n]) for n in fields}
        if self.linear_growth.visible_only:
            kicked = {n: hermitian(layout, field) for n, field in kicked.items()}
        fastest = self.linear_growth.turning
        maxima = evaluated.maxima
        spread = maxima["highest"] + maxima["lowest"] if maxima else 0.0
        return kicked, jax.lax.stop_gradient(jnp.maximum(jnp.float64(spread), fastest) / math.pi)

    def memory(self, fields: Fields, time: Number) -> dict[str, jax.Array]:
        """The first values of the small arrays that a run carries from step to step: the `rate` of
        a kick, from which the next dt follows."""
        return {"rate": self.kick(fields, time, jnp.zeros((), jnp.float64))[1]}

    def slowed(self, fields: Fields, factor: Number) -> Fields:
        """The fields with all velocities times `factor`, for integrators of linear growth."""
        raise TypeError(f"{type(self).__name__} does not define slowed")

    def flowing(self, values: PointValues, points: Points, numbers: Tree) -> Local:
        """The values after a kick at a point, and the spread of the phase rate."""
        time, duration, attributes = numbers
        equation = with_parameters(self, attributes)
        seen = seen_points(self.transform.grid, points)
        after = equation.flow(values, seen, time, duration.astype(self.transform.dtype))
        rate = equation.phase_rate(values, seen, time)
        return Local(
            {**values, **after}, {} if rate is None else {"highest": rate, "lowest": -rate}
        )

    @property
    def k(self) -> tuple[OverModes, ...]:
        axes = zip(self.transform.grid.axes, super().k, strict=True)
        return tuple(self._cut(axis, k) for axis, k in axes)

    @property
    def k_squared(self) -> OfModes:
        layout = self.transform.layout
        grid = self.transform.grid
        units = dict(zip("xyz", grid.fundamental, strict=True))
        total = jnp.zeros((1, 1, 1), self.transform.dtype)
        for axis in grid.axes:
            square = (layout.integers(axis) * units[axis]) ** 2
            total = total + self._cut(axis, square.astype(total.dtype))
        return total

    def _cut(self, axis: str, array: OverModes) -> OverModes:
        """An array along one axis, distributed over the devices like that axis. Otherwise XLA would
        merge the equal wavenumbers of two axes into one array, shard it, and gather it for the axis
        that is not sharded."""
        layout = self.transform.layout
        spec = PartitionSpec(*(layout.sharded.get(a) if a == axis else None for a in layout.order))
        return jax.lax.with_sharding_constraint(array, NamedSharding(layout.mesh, spec))


def background_of(model: Equation) -> Expansion | None:
    """The expanding background of a model; None: a static box."""
    return model.background if isinstance(model, SplitEquation) else None


def density_transform(model: Equation) -> Transform:
    """The transform of real fields with all modes of a model."""
    return model.density_transform if isinstance(model, SplitEquation) else model.transform


def populations_of(model: Equation) -> Populations:
    """The particles that are matter of a model, by name."""
    return model.populations if isinstance(model, SplitEquation) else {}
