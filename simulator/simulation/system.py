"""The equation du/dt = L u + N(u, t) of a run, as integrators solve it."""

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import jax.numpy as jnp
import numpy as np

from simulator.physics.forcing import Forcings
from simulator.physics.models import Equation, Fields, Force, State, StateMemory
from simulator.physics.models.damping import Hyperdiffusion
from simulator.physics.models.navier_stokes import sheared_frame
from simulator.physics.models.observables.budget import Balance, budget
from simulator.physics.models.tendency import (
    exact_waves,
    linear_rates,
    linear_terms,
    linearized,
    tendency,
    with_arrays,
)
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping.coupled import Coupled
from simulator.physics.stepping.evolved import Evolved
from simulator.physics.stepping.integrator import Nonlinear
from simulator.spectral.arrays import Number, Numbers, computed
from simulator.spectral.operators import squared
from simulator.spectral.transform import Shift


class System:
    """A model, its forcing, and the particles that its flow carries.

    The unknowns are the fields that are not constant and the records of particles that move with the
    flow. What they need of the state at the beginning of a step, `begin`, does not change within the
    step."""

    def __init__(self, model: Equation, forcing: Forcings | None, swarm: Swarm):
        self.model = model
        self.forcing = forcing
        self.swarm = swarm
        self.sheared = sheared_frame(model)

    def unknowns(self, state: State) -> Evolved:
        """u of a state."""
        moving = self.swarm.moving(state.particles) if self.swarm.kinds else {}
        return Evolved(self.changing(state.fields) | moving)

    def changing(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays of fields that are not constant."""
        return {name: array for name, array in arrays.items() if name not in self.model.constant}

    def norms(self, u: Evolved) -> Evolved:
        """The root mean square of each field that is not constant."""
        transforms = self.model.transforms

        def norm(name: str) -> Number:
            density = squared(computed(u[name])).astype(jnp.float64)
            return jnp.sqrt(transforms[name].layout.sum(density))

        return Evolved({name: norm(name) for name in self.changing(self.model.fields)})

    def linear(self, begin: State, dt: Number) -> Evolved:
        """L (1/time); with wavenumbers that depend on time its mean over the step."""
        if self.sheared is not None:
            return self._mean_linear(begin, begin.time, begin.time + dt)
        diagonal = self.changing(linear_terms(self.model))
        if self.swarm.kinds:
            diagonal |= self.swarm.linear(begin.memory.particles)
        if not self.model.integrated:
            return Evolved(diagonal)
        waves = exact_waves(self.model, begin.fields)
        return Evolved(diagonal) if waves is None else Coupled(diagonal, waves)

    def _mean_linear(self, begin: State, start: Number, end: Number) -> Evolved:
        """The mean of L between two times, exact for powers of k."""
        orders = (
            damping.order for damping in self.model.damps if isinstance(damping, Hyperdiffusion)
        )
        nodes, weights = np.polynomial.legendre.leggauss(max(orders, default=1) + 1)

        def at(node: float) -> Evolved:
            time = start + (1 + node) / 2 * (end - start)
            return Evolved(self.changing(linear_terms(self.model.at(time, begin.time))))

        parts = (w / 2 * at(x) for x, w in zip(nodes.tolist(), weights.tolist(), strict=True))
        return reduce(add, parts)

    def on_path(self, begin: State, L: Evolved, N: Nonlinear) -> Nonlinear:
        """N of w = exp(-phi) u in a sheared frame, for which L is constant: phi is the integral of
        the true L less this mean L since the beginning of the step. It is 0 at both ends of the
        step, where w = u. Without shear it is N itself."""
        if self.sheared is None:
            return N

        def along(w: Evolved, t: Number) -> Evolved:
            phi = self._mean_linear(begin, begin.time, t) - L
            return phi.exponential(begin.time - t) * N(phi.exponential(t - begin.time) * w, t)

        return along

    def tendency(
        self, begin: State, limited: bool, shift: Shift | None, u: Evolved, time: Number
    ) -> tuple[Evolved, Numbers]:
        """N(u, t) on the grid with this `shift`, and the maxima that limit dt, if it is `limited` by
        u."""
        model = self.model
        fields = {n: f if n in model.constant else u[n] for n, f in begin.fields.items()}
        if self.sheared is not None:
            model = model.at(time, begin.time)
        if begin.memory.terms:
            model = with_arrays(model, begin.memory.terms)
        if model.integrated:
            model = linearized(model, begin.fields)
        accelerations = None
        if self.forcing is not None:
            accelerations = self.forcing.acceleration(fields, time, begin.memory.forcing)
        keep = self.swarm.takes if self.swarm.kinds else ()
        rates, evaluated = tendency(model, fields, time, accelerations, keep, limited, shift)
        moving: Mapping[str, Any] = {}
        if self.swarm.kinds:
            change = rates["velocity"] + linear_rates(model, fields)["velocity"]
            at = (begin.particles, begin.memory.particles, time, evaluated.values.get("velocity"))
            moving = self.swarm.rates(fields, change, u, *at)
        return Evolved(self.changing(rates) | moving), evaluated.maxima

    def force(self, memory: StateMemory) -> Force | None:
        """The acceleration by the forcing as a function of fields and time; None without one."""
        forcing = self.forcing
        if forcing is None:
            return None
        return lambda fields, time: forcing.acceleration(fields, time, memory.forcing)

    def accelerations(self, fields: Fields, time: Number, memory: StateMemory) -> Fields | None:
        """The accelerations by the forcing; None without one."""
        force = self.force(memory)
        return None if force is None else force(fields, time)

    def balance(
        self, fields: Fields, time: Number, memory: StateMemory, since: Number | None = None
    ) -> Balance:
        """The energy budget with the power of the forcing; for `since` see `Equation.at`."""
        return budget(self.model.at(time, since), fields, time, self.force(memory))

    def first_balance(self, begin: State) -> Balance | None:
        """The energy budget at the beginning of a step, of models that have one in every step; None
        of others."""
        memory = begin.memory
        if memory.residual is None:
            return None
        return self.balance(begin.fields, begin.time, memory)
