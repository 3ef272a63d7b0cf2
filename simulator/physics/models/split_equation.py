"""An equation in two parts that are solved exactly, one after the other, in few lines."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from simulator.physics.models.equation import Equation, declared, largest_of, number_of
from simulator.physics.models.fields import Fields
from simulator.physics.models.model import SplitModel
from simulator.spectral import Local, Points, Transform
from simulator.spectral.arrays import Number, OverModes, PhysicalScalar, PointValues
from simulator.spectral.operators import hermitian
from simulator.spectral.transform import Tree


class SplitEquation(Equation, SplitModel):
    """du/dt = L u + V(u, x, t) u: a diagonal L, exact in spectral space, and a part that is solved
    exactly at every point of physical space. A step takes them in turn (`time.integrator`, e.g.
    composition4).

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

    split: ClassVar[bool] = True
    dealias: ClassVar[tuple[str, ...]] = ("none",)

    @classmethod
    def create(cls, settings: Any, make: Callable[..., Transform], files: Any) -> Self:
        return cls(
            settings, make(real=not any(field.complex for field in declared(cls)), every=True)
        )

    def flow(
        self, values: PointValues, points: Points, time: Number, duration: Number
    ) -> PointValues:
        """The values, by field, after `duration` of the pointwise part alone at the frozen `time`;
        fields without an entry in the result do not change. A duration may be negative. `points`
        has the coordinates x, y, z."""
        raise TypeError(f"{type(self).__name__} does not define flow")

    def phase_rate(
        self, values: PointValues, points: Points, time: Number
    ) -> PhysicalScalar | None:
        """The rate (1/time) at which `flow` turns the phase at a point. Its spread over the box
        limits dt, as the linear term does: dt = cfl / rate turns no phase by more than pi cfl.
        None: only the linear term limits dt."""
        return None

    def pointwise(self, values: Tree, points: Points, parameters: Tree) -> Local:
        time, duration, own = parameters
        equation = self.with_parameters(own)
        found = {
            **values,
            **equation.flow(values, points, time, duration.astype(self.transform.dtype)),
        }
        rate = equation.phase_rate(values, points, time)
        return Local(found, {} if rate is None else {"highest": rate, "lowest": -rate})

    def parameters(self, time: Number) -> Tree:
        return time, jnp.zeros((), jnp.float64), super().parameters(time)

    def drift(self, fields: Fields, duration: Number) -> Fields:
        linear = self.linear()
        return {
            name: field * jnp.exp(linear[name] * duration).astype(field.dtype)
            if name in linear
            else field
            for name, field in fields.items()
        }

    @property
    def k(self) -> tuple[OverModes, ...]:
        found = super().k
        return tuple(
            self._cut(axis, k) for axis, k in zip(self.transform.grid.axes, found, strict=True)
        )

    @property
    def k_squared(self) -> jax.Array:
        layout, grid = self.transform.layout, self.transform.grid
        units = dict(zip("xyz", grid.fundamental, strict=True))
        total = jnp.zeros((1, 1, 1), self.transform.dtype)
        for axis in grid.axes:
            square = (layout.integers(axis) * units[axis]) ** 2
            total = total + self._cut(axis, square.astype(total.dtype))
        return total

    def _cut(self, axis: str, array: jax.Array) -> jax.Array:
        """An array along one axis, distributed over the devices like that axis. Otherwise XLA would
        merge the equal wavenumbers of two axes into one array, shard it, and gather it for the axis
        that is not sharded."""
        layout = self.transform.layout
        spec = PartitionSpec(*(layout.sharded.get(a) if a == axis else None for a in layout.order))
        return jax.lax.with_sharding_constraint(array, NamedSharding(layout.mesh, spec))

    def kick(self, fields: Fields, time: Number, duration: Number) -> tuple[Fields, Number]:
        _, _, own = self.parameters(time)
        found = self.transform.evaluate(self.inputs(fields), self.pointwise, (time, duration, own))
        layout = self.transform.layout
        kicked = {n: layout.constrain(found.products[n]) for n in fields}
        if self.growing:
            kicked = {n: hermitian(layout, field) for n, field in kicked.items()}
        fastest = self._turning
        if isinstance(fastest, str):
            fastest = largest_of(self, _turn) if fastest == "traced" else 0.0
        spread = found.maxima["highest"] + found.maxima["lowest"] if found.maxima else 0.0
        return kicked, jax.lax.stop_gradient(jnp.maximum(jnp.float64(spread), fastest) / math.pi)

    @cached_property
    def _turning(self) -> Any:
        """The largest |Im L| (1/time) over the modes of the state."""
        return number_of(self, _turn)

    def settle(self) -> None:
        super().settle()
        _ = self._turning

    def longest_step(self) -> float | None:
        return None  # the growth of the linear term is exact

    def fastest(self, fields: Fields, time: Number) -> Number:
        return self.kick(fields, time, jnp.zeros((), jnp.float64))[1]

    def memory(self, fields: Fields, time: Number) -> dict[str, jax.Array]:
        return {"rate": self.fastest(fields, time)}


def _turn(rate: jax.Array) -> jax.Array:
    return abs(rate.imag)
