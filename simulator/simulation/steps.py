"""One step: of the integrating factor, of a splitting, and of kicks that two steps share.

A step first determines where it ends. Then the integrator gives the new unknowns, and functions
(system, old state, new state) add what the integrator does not know: the limits of the model, the
energy budget, the next force, and the particles' devices."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce
from itertools import repeat
from operator import add
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from simulator.physics.forcing import Forcings
from simulator.physics.models import Equation, Fields, SplitEquation, State, outputs
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.physics.models.observables.budget import Balance, residual
from simulator.physics.models.split_equation import populations_of
from simulator.physics.particles.migration import in_cell_order
from simulator.physics.stepping.evolved import Evolved
from simulator.physics.stepping.integrator import Integrator, Multistep, Past
from simulator.physics.stepping.splitting import KickDriftKick, Splitting
from simulator.simulation.system import System
from simulator.spectral.arrays import Number, Truth, Whole
from simulator.spectral.collectives import after
from simulator.spectral.operators import squared
from simulator.spectral.transform import Shift

SORT_EVERY = 32
"""Steps after which matter's particles are sorted. In between most move by a few cells at most."""


class StepEnd(NamedTuple):
    """The end of a step; dt is NaN if no step can be taken. See `State`."""

    dt: Number
    origin: Number
    since: Whole
    time: Number

    def of(self, begin: State) -> State:
        """The state with this clock."""
        return replace(begin, step=begin.step + 1, **self._asdict())


Choose = Callable[[State, Number], StepEnd]
"""(state, the largest rate (1/time) that its step has to resolve) to the end of the step."""

Tendency = Callable[[Shift | None, Evolved, Number], tuple[Evolved, Any]]
"""(shift of the grid, u, t) to N and the maxima that limit dt."""

Wrap = Callable[[Tendency], Tendency]


def step_of(
    system: System, integrator: Integrator, wrap: Wrap | None = None
) -> Callable[[State, Number | float], State]:
    """The pure function (state, dt) -> state. `wrap` maps a `Tendency` to another function
    with the same result, e.g. `jax.checkpoint`."""

    def step(state: State, dt: Number | float) -> State:
        size = jnp.asarray(dt, jnp.float64)
        time = state.time + size
        end = StepEnd(size, origin=time, since=jnp.int64(0), time=time)
        return one_step(system, integrator, state, lambda state, rate: end, wrap)

    return step


def one_step(
    system: System,
    integrator: Integrator,
    state: State,
    choose: Choose,
    wrap: Wrap | None = None,
) -> State:
    """The state after one step. dt is NaN if no step can be taken, or if a particle was lost, that
    is, moved farther than its device reaches. `wrap`: see `step_of`."""
    if isinstance(integrator, Splitting):
        return split_step(system, integrator, state, choose)
    return explicit_step(system, integrator, state, choose, wrap)


def explicit_step(
    system: System, integrator: Integrator, begin: State, choose: Choose, wrap: Wrap | None
) -> State:
    """A step of an integrator that takes L exactly and N explicitly."""
    first: Tendency = partial(system.tendency, begin, True)
    other: Tendency = partial(system.tendency, begin, False)
    if wrap is not None:
        first = wrap(first)
        other = wrap(other)
    shifted = system.model.transform.grid.dealias == "phase_shift"
    shifts = iter(integrator.shifts(begin.step)) if shifted else repeat(None)

    def explicit(u: Evolved, t: Number) -> Evolved:
        return other(next(shifts), u, t)[0]

    u = system.unknowns(begin)
    balance = system.first_balance(begin)
    a, maxima = first(next(shifts), u, begin.time)
    if system.model.transform.layout.on_gpu:
        # Else XLA would compute `a` twice: for the next tendency, and as a register.
        a = Evolved(a | lax.optimization_barrier(a.without_combinations()))
    rate = maxima["rate"]
    if system.swarm.kinds:
        rate = system.swarm.rate(rate, begin.particles, begin.memory.particles)
    end = choose(begin, rate)
    if balance is not None:
        # dt is known only after the budget: otherwise XLA would keep the initial fields until the
        # end of the step.
        end = end._replace(dt=end.dt + 0 * balance.energy.astype(end.dt.dtype))
    L = system.linear(begin, end.dt)
    N = system.on_path(begin, L, explicit)
    new = end.of(begin)
    if isinstance(integrator, Multistep):
        past = Past({name: Evolved(tree) for name, tree in begin.history.items()}, begin.dt)
        u, history = integrator.multistep(u, begin.time, end.dt, a, N, L, past)
        new = replace(new, history={name: dict(tree) for name, tree in history.items()})
    else:
        u = integrator.step(u, begin.time, end.dt, a, N, L)
    return with_unknowns(system, begin, new, u, balance)


def with_unknowns(
    system: System, begin: State, new: State, u: Evolved, balance: Balance | None
) -> State:
    """The new state with the unknowns u, and with all that follows from them. `balance`: the energy
    budget at the beginning, of models that have one in every step."""
    new = with_fields(system.model, begin, new, u)
    if system.sheared is not None:
        new = with_solenoidal_fields(system, begin, new)
    if balance is not None:
        new = with_residual(system, balance, begin, new)
    if system.sheared is not None and new.memory.lost is not None:
        new = in_next_frame(system, begin, new)
    if system.forcing is not None:
        new = with_next_force(system.forcing, new)
    return with_moved_particles(system, new, u) if new.particles else new


def with_fields(model: Equation, begin: State, new: State, fields: Fields) -> State:
    """The new state with these fields, distributed as their layouts say; for a guarded model with
    the old ones if no step could be taken."""
    taken = jnp.isfinite(new.dt) if model.numerics.guarded else True
    constrained = {}
    for name, old in begin.fields.items():
        field = old if name in model.constant else fields[name]
        if taken is not True:
            field = jnp.where(taken, field, old)
        constrained[name] = model.transforms[name].layout.constrain(field)
    return replace(new, fields=constrained)


def with_solenoidal_fields(system: System, begin: State, new: State) -> State:
    """The new state without the divergence that the error of a step has while shear turns k."""
    model = system.model.at(new.time, begin.time)
    projected = {name: model.project(new.fields[name]) for name in model.solenoidal}
    return replace(new, fields={**new.fields, **projected})


def in_next_frame(system: System, begin: State, new: State) -> State:
    """The new state in the sheared frame at its time; the energy of waves that leave with the old
    frame is added to what is lost."""
    sheared = system.sheared
    earlier = new.memory.lost
    assert sheared is not None and earlier is not None
    number = jnp.asarray(sheared.left_behind(new.time) - sheared.left_behind(begin.time))
    fields = sheared.exchanged(new.fields, number)
    model = cast(NavierStokes, system.model)
    densities = (
        weight / 2 * (squared(new.fields[name]) - squared(fields[name]))
        for name, weight in model.energy_weights.items()
    )
    energy = reduce(add, densities)
    if new.memory.residual is not None:  # the sums over devices have one order
        energy = after(energy, new.memory.residual)
    lost = earlier + model.transform.layout.sum(energy)
    return _remembering(replace(new, fields=fields), lost=lost)


def with_residual(system: System, before: Balance, begin: State, new: State) -> State:
    """The new state with the residual of the energy budget."""
    balance = system.balance(new.fields, new.time, new.memory, begin.time)
    return _remembering(new, residual=residual(before, balance, new.dt))


def with_next_force(forcing: Forcings, new: State) -> State:
    """The new state with the forcing of the next step."""
    renewed = forcing.renewed(new.memory.forcing, new.step, new.dt)
    return _remembering(new, forcing={**new.memory.forcing, **renewed})


def with_moved_particles(system: System, new: State, u: Evolved) -> State:
    """The new state with the particles at their new places, each on the device that owns it."""
    layouts = {name: system.model.transforms[name].layout for name in new.fields}
    before = [(f, layouts[name].spec_of(f.ndim)) for name, f in new.fields.items()]
    if new.memory.residual is not None:
        before.append((new.memory.residual, PartitionSpec()))
    particles, finite = system.swarm.moved(new.particles, u, new.step - 1, before)
    return replace(new, particles=particles, dt=jnp.where(finite, new.dt, jnp.nan))


def split_step(system: System, integrator: Splitting, begin: State, choose: Choose) -> State:
    """A step of exact solutions of two parts, one after the other. dt comes from the last kick of
    the step before, which the memory carries."""
    model = cast(SplitEquation, system.model)
    end = choose(begin, cast(Number, begin.memory.rate))
    contents, rate = integrator.alternate(model, outputs.contents(model, begin), begin.time, end.dt)
    new = end.of(with_contents(begin, contents, rate))
    new = with_fields(model, begin, new, contents)
    return with_room(model, begin, new)


def with_contents(state: State, contents: Mapping[str, Any], rate: Number) -> State:
    """The state with the particles and the numbers of `SplitEquation.contents`, but with its fields,
    and with the rate of the last kick."""
    numbers = {name: contents.get(name, n) for name, n in state.memory.model.items()}
    particles = {name: contents[name] for name in state.particles}
    return _remembering(replace(state, particles=particles), model=numbers, rate=rate)


def _remembering(state: State, **parts: Any) -> State:
    return replace(state, memory=replace(state.memory, **parts))


class _Round(NamedTuple):
    state: State  # Velocities lack the last kick of the last step.
    half: jax.Array  # The length of that kick (time).
    due: jax.Array  # Whether there is another round.


def joined_steps(
    model: SplitEquation,
    integrator: KickDriftKick,
    state: State,
    unfinished: Callable[[State], Truth],
    choose: Choose,
) -> State:
    """Steps of kick, drift, kick with one evaluation of the forces in each, the same for the last
    kick of a step and the first of the next. A round does that last kick and, if a step is due, the
    next first kick and drift; else those of no duration, which change no bit."""

    def round_(begun: _Round) -> _Round:
        contents = outputs.contents(model, begun.state)
        forces = model.forces(contents, begun.state.time)
        contents, rate = model.paced(contents, forces, begun.state.time, begun.half)
        # A loop begins with complete steps, whose rate is that of a checkpoint.
        rate = jnp.where(begun.half > 0, rate, cast(Number, begun.state.memory.rate))
        begin = begun.state
        due = unfinished(begin)
        end = choose(begin, rate)
        length = jnp.where(due & jnp.isfinite(end.dt), end.dt, 0)
        stages = integrator.stages(model.background, begin.time, length)
        kicks = begun.half, stages.kicks[0]
        old, contents = model.leapt(contents, forces, begin.time, kicks, stages.drifts[1])
        new = end.of(with_contents(begin, contents, rate))
        begin = with_contents(begin, old, rate)
        new = at_failure(begin, _if_due(due, begin, with_room(model, begin, new)))
        moved = new.step > begin.step
        new = with_sorted_particles(model, new, moved & (begin.step % SORT_EVERY == 0))
        return _Round(new, jnp.where(moved, stages.kicks[1], 0), moved)

    begun = _Round(state, jnp.zeros((), jnp.float64), unfinished(state))
    return lax.while_loop(lambda begun: begun.due, round_, begun).state


def with_sorted_particles(model: SplitEquation, state: State, due: Truth) -> State:
    """The state, if `due` with the particles in the order in which their masses lie on the grid."""
    particles = {
        name: in_cell_order(particles, model.populations[name].domain, due, "xyz")
        for name, particles in state.particles.items()
    }
    return replace(state, particles=particles)


def _if_due(due: Truth, begin: State, new: State) -> State:
    """The new state, with the old clock if no step was due."""
    clock = ("time", "step", "dt", "origin", "since")
    return replace(new, **{n: jnp.where(due, getattr(new, n), getattr(begin, n)) for n in clock})


def at_failure(begin: State, new: State) -> State:
    """The new state; if no step could be taken, with the step and the time of the old one."""
    failed = jnp.isnan(new.dt)
    step = jnp.where(failed, begin.step, new.step)
    return replace(new, step=step, time=jnp.where(failed, begin.time, new.time))


def with_room(model: Equation, begin: State, new: State) -> State:
    """The new state; or the old state, with the room that is `needed`, if a device had no room for
    its particles. If no step could be taken, the new state has the old particles."""
    shared = [particles for particles in new.particles.values() if particles.devices > 1]
    chosen = new
    taken = jnp.isfinite(new.dt)
    if shared:
        full = jnp.stack([particles.crowded for particles in shared]).any()
        without = (replace(state, particles={}) for state in (begin, new))
        chosen = jax.tree.map(lambda old, new: jnp.where(full, old, new), *without)
        taken = taken & ~full
    particles = dict(new.particles)
    for name, moved in particles.items():
        old = begin.particles[name]
        if old is not None:  # else no step was taken, or there always is room
            either = populations_of(model)[name].either(taken, moved, old)
            particles[name] = replace(either, needed=moved.needed)
    return replace(chosen, particles=particles)
