"""The equation du/dt = L u + N(u, t) of a run, as integrators solve it."""

from simulator.measure.budget import budget
from simulator.physics.forcing import Forcing
from simulator.physics.models import Equation, Fields, Force, State, StateMemory
from simulator.physics.models.observables.budget import Balance
from simulator.physics.models.tendency import (
    exact_waves,
    linear_rates,
    linear_terms,
    linearized,
    tendency,
)
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping.coupled import Coupled
from simulator.physics.stepping.evolved import Evolved
from simulator.spectral.arrays import Number, Numbers


class System:
    """A model, its forcing, and the particles that its flow carries.

    The unknowns are the evolved fields and the records of particles that move with the flow. What
    they need of the state at the beginning of a step, `begin`, does not change within the step."""

    def __init__(self, model: Equation, forcing: Forcing | None = None, swarm: Swarm | None = None):
        self.model = model
        self.forcing = forcing
        self.swarm = swarm or Swarm((), model)

    def unknowns(self, state: State) -> Evolved:
        """u of a state."""
        return Evolved(state.fields | self.swarm.moving(state.particles))

    def linear(self, begin: State) -> Evolved:
        """L (1/time)."""
        diagonal = linear_terms(self.model) | self.swarm.linear(begin.memory.particles)
        waves = exact_waves(self.model, begin.fields)
        return Evolved(diagonal) if waves is None else Coupled(diagonal, waves)

    def tendency(self, begin: State, u: Evolved, time: Number) -> tuple[Evolved, Numbers]:
        """N(u, t), and the maxima that limit dt."""
        fields = {name: u[name] for name in begin.fields}
        accelerations = self.accelerations(fields, time, begin.memory)
        model = linearized(self.model, begin.fields)
        rates, evaluated = tendency(model, fields, time, accelerations, self.swarm.takes)
        counts = {name: particles.count for name, particles in begin.particles.items()}
        values = evaluated.values.get("velocity")
        linear = linear_rates(model, fields) if self.swarm.kinds else {}
        moving = self.swarm.rates(fields, rates, linear, u, begin.memory.particles, counts, values)
        return Evolved(rates | moving), evaluated.maxima

    def rate(self, begin: State, maxima: Numbers) -> Number:
        """The largest rate (1/time) that the step from `begin` has to resolve."""
        return self.swarm.rate(maxima["rate"], begin.particles, begin.memory.particles)

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

    def balance(self, fields: Fields, time: Number, memory: StateMemory) -> Balance:
        """The energy budget with the power of the forcing."""
        return budget(self.model, fields, time, self.force(memory))
