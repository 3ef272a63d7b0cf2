"""All particles of a run that move with a fluid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from simulator.errors import UserError, did_you_mean, prefixed
from simulator.physics.particles import PARTICLES
from simulator.physics.particles.domain import Domain
from simulator.physics.particles.interpolation import Count, Fluid, Sampler
from simulator.physics.particles.migration import in_cell_order, settled
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.particle_start import ParticleFiles, StoredPlaces, positions_of
from simulator.physics.particles.population import Population, Sets
from simulator.physics.particles.species import ParticleSettings, Species
from simulator.spectral import Fields, Transform
from simulator.spectral.arrays import (
    Combination,
    Number,
    Numbers,
    ParticleVectors,
    SpectralVector,
    Truth,
    Whole,
    computed,
    latest,
)
from simulator.spectral.native.particles import advanced
from simulator.spectral.operators import curl

SORT_EVERY = 8  # Steps after which particles are sorted by their cells. In between they move by a few cells at most.


class Body(Protocol):
    """A body in the flow."""

    def stops(
        self, places: ParticleVectors, velocity: ParticleVectors, time: Number
    ) -> ParticleVectors:
        """The velocity of particles that stick to the body."""
        ...


class Flow(Protocol):
    """The part of a model that carries particles."""

    transform: Transform
    terms: Sequence[Any]


@dataclass(frozen=True)
class SpeciesRun:
    """One species of a run."""

    species: Species
    population: Population
    sampler: Sampler
    begin: Callable[[], ParticleSet]
    """Places the particles with the records that their start gives, each on the device that owns
    its place."""
    body: Body | None  # The body to which the particles stick.


class Swarm:
    """The species of a run. Without species, no method has an effect."""

    def __init__(
        self, settings: Sequence[ParticleSettings], flow: Flow, files: ParticleFiles | None = None
    ):
        """Raises UserError, beginning with the number of the species and its key, if a species
        cannot be made."""
        self.flow = flow
        self.domain = Domain.of(flow.transform)
        self.kinds: dict[str, SpeciesRun] = {}
        for number, s in enumerate(settings):
            with prefixed(str(number)):
                assert files is not None  # only a swarm without species does without
                self.kinds[s.name] = self._kind(s, files)

    def _kind(self, settings: Any, files: ParticleFiles) -> SpeciesRun:
        species = PARTICLES[settings.kind](settings)
        start = settings.start
        if isinstance(start, StoredPlaces):
            with prefixed("start", ": "):
                stored = files.particles(str(start.path), start.name or settings.name)
            takes = {r: n for r, n in species.starts_with.items() if r in stored.records}
            population = Population(settings.name, species.records, stored.count, self.domain)
            begin = partial(population.adopted, stored, takes)
        else:
            count = settings.count
            positions = positions_of(start, count, self.domain, files, species.starts_with)
            population = Population(settings.name, species.records, count, self.domain)
            begin = partial(population.placed, positions)
        sampler = Sampler(self.flow.transform, settings.interpolation)
        body = None if settings.stops_at is None else self._body(settings.stops_at)
        return SpeciesRun(species, population, sampler, begin, body)

    def _body(self, name: str) -> Body:
        bodies = {term.settings.name: term for term in self.flow.terms if term.is_body}
        if name not in bodies:
            known = ", ".join(bodies) or "none"
            meant = did_you_mean(name, bodies)
            raise UserError(f"stops_at: unknown body {name!r}{meant} bodies of terms: {known}")
        return bodies[name]

    @property
    def populations(self) -> dict[str, Population]:
        return {name: kind.population for name, kind in self.kinds.items()}

    @property
    def falling(self) -> dict[str, tuple[float, float, float]]:
        """The gravitational acceleration of the species that feel one."""
        pulls = {name: kind.species.gravity for name, kind in self.kinds.items()}
        return {name: pull for name, pull in pulls.items() if any(pull)}

    # ---- the start
    # -----------------------------------------------------------------------------------------

    def start(self, fields: Fields) -> tuple[Sets, dict[str, jax.Array]]:
        """The initial particles, each on the device that owns its place, and the numbers that every
        step needs.

        Raises UserError, beginning with the number of the species and its key, if a species cannot
        start."""
        if not self.kinds:
            return {}, {}
        sets: Sets = {}
        for number, (name, kind) in enumerate(self.kinds.items()):
            with prefixed(f"{number}.start", ": "):
                sets[name] = kind.begin()
        vorticity = jax.jit(self._rms_vorticity)(fields)
        for number, kind in enumerate(self.kinds.values()):
            if kind.species.memory(vorticity) and not bool(vorticity > 0):
                problem = "the fluid is at rest and has no Kolmogorov time; give relaxation_time"
                raise UserError(f"{number}.stokes_number: {problem}")
        return jax.jit(self._begun)(sets, fields), self.memory(vorticity)

    def memory(self, vorticity: Number) -> dict[str, jax.Array]:
        """The numbers that every step needs, from the rms vorticity (1/time) of the initial
        flow."""
        numbers: dict[str, jax.Array] = {}
        for kind in self.kinds.values():
            numbers |= kind.species.memory(vorticity)
        return numbers

    def _rms_vorticity(self, fields: Fields) -> Number:
        layout = self.flow.transform.layout
        omega = curl(layout, fields["velocity"])
        return jnp.sqrt(layout.inner(omega, omega).sum())

    def _begun(self, sets: Sets, fields: Fields) -> Sets:
        """The particles with all records: records that the start has not set come from the species,
        or are zero."""
        complete = {}
        for name, particles in sets.items():
            kind = self.kinds[name]
            begun = kind.species.begin(particles.records, self.fluid(name, fields))
            records = {**particles.records, **begun}
            for record, n in kind.species.records.items():
                shape = (n, *particles.id.shape) if n else particles.id.shape
                records.setdefault(record, jnp.zeros(shape, jnp.float64))
            kept = {
                r: jnp.where(particles.valid, a, 0).astype(jnp.float64) for r, a in records.items()
            }
            complete[name] = replace(particles, records=kept)
        return complete

    def too_slow(self, dt: float, memory: Numbers) -> str | None:
        """The reason why a fixed step of `dt` is too long for some particles; None if it is not."""
        for name, kind in self.kinds.items():
            for rate in kind.species.linear(memory).values():
                if dt * abs(float(rate)) > 1:
                    return f"{dt:g} is longer than the relaxation time {1 / abs(float(rate)):g} of {name}; take less"
        return None

    # ---- a step
    # ------------------------------------------------------------------------------------------

    def moving(self, sets: Sets) -> dict[str, Any]:
        """The arrays that the integrator advances in addition to the fields. Native code computes
        positions that follow from rates alone where it needs them, from combinations of old
        positions and rates."""
        moving: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            lazy = self.domain.native and kind.species.advanced == ("position",)
            for record in kind.species.advanced:
                array = sets[name].records[record]
                moving[f"{name}/{record}"] = Combination.of(array) if lazy else array
        return moving

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the model's inputs whose values on the grid, if they are kept, save the
        particles a transform."""
        takes = any(kind.sampler.takes_values for kind in self.kinds.values())
        return ("velocity",) if takes else ()

    def rates(
        self,
        fields: Fields,
        change: SpectralVector,
        moving: dict[str, jax.Array],
        sets: Sets,
        memory: Numbers,
        time: Number,
        values: jax.Array | None = None,
    ) -> dict[str, ParticleVectors]:
        """Explicit rates of the records `moving` in one stage at `time`, from the fields of that
        stage and the rate of `change` of their velocity. `sets`: the particles at the beginning of
        the step. `values`: the values (3, *kept_order) of the velocity, if they are known."""
        all_rates: dict[str, Any] = {}
        last: jax.Array | None = None
        for name, kind in self.kinds.items():
            fluid = self.fluid(name, fields, change, values, sets[name].count)
            records = {record: moving[f"{name}/{record}"] for record in kind.species.advanced}
            if last is not None:
                records["position"] = self.domain.after(records["position"], last)
            species_rates = dict(kind.species.rates(records, fluid, memory))
            if kind.body is not None:
                at = computed(records["position"])
                speed = kind.body.stops(at, species_rates["position"], time)
                species_rates["position"] = speed
            last = species_rates[kind.species.advanced[-1]]
            for record, rate in species_rates.items():
                lazy = isinstance(records[record], Combination)
                all_rates[f"{name}/{record}"] = Combination.of(rate) if lazy else rate
        return all_rates

    def fluid(
        self,
        name: str,
        fields: Fields,
        rate: SpectralVector | None = None,
        values: jax.Array | None = None,
        count: Count = None,
    ) -> Fluid:
        """The fluid as a species sees it. The acceleration needs `rate`, the partial time
        derivative of the velocity. `values` (3, *kept_order) are those of the velocity on the grid,
        if they are known."""
        velocity = fields["velocity"]
        rate = velocity if rate is None else rate
        return Fluid(self.kinds[name].sampler, velocity, rate, fields, values, count)

    def linear(self, memory: Numbers) -> dict[str, Number]:
        """The factors (1/time) of the linear rates of all records that the integrator advances."""
        factors = {}
        for name, kind in self.kinds.items():
            linear = kind.species.linear(memory)
            for record in kind.species.advanced:
                factors[f"{name}/{record}"] = linear.get(record, jnp.zeros((), jnp.float64))
        return factors

    def rate(self, flow: Number, sets: Sets, memory: Numbers) -> Number:
        """The largest rate (1/time) that dt has to resolve; `flow` is the rate of the fluid."""
        spacing = self.domain.physical.grid.spacing
        for name, kind in self.kinds.items():
            rate = kind.species.rate(sets[name], spacing, memory)
            if rate is not None:
                flow = jnp.maximum(flow.astype(jnp.float64), rate)
        return flow

    def moved(
        self,
        sets: Sets,
        moving: dict[str, Any],
        step: Whole,
        computed: Sequence[tuple[jax.Array, PartitionSpec]],
    ) -> tuple[Sets, Truth]:
        """The particles after the step with the number `step`, each on the device that owns its
        place, and whether all are finite. A particle that moved beyond the reach of its device has
        a position of NaN.

        `computed`: arrays and their distribution. They are computed before the first particle is sent
        to another device, which takes a loop (see `spectral.collectives`)."""
        after = {}
        finite = jnp.ones((), bool)
        arrays = (
            latest(array) for name, array in moving.items() if name.partition("/")[0] in self.kinds
        )
        last = [*computed, *((array, None) for array in arrays)]
        for name, kind in self.kinds.items():
            before = sets[name]
            new = {r: moving[f"{name}/{r}"] for r in kind.species.advanced}
            lazy = isinstance(new["position"], Combination)
            waits = before.count if lazy else new["position"]
            for array, place in last:
                waits = self.domain.after(waits, array, place)
            lost = None
            if lazy:
                kept, lost = self._combined(before, new["position"], waits)
            else:
                path = before.records["displacement"] + (waits - before.records["position"])
                new |= {"displacement": path, "position": self.domain.wrapped(waits)}
                kept = {r: jnp.where(before.valid, a, 0) for r, a in new.items()}
            new_set = settled(before.with_records(kept), self.domain)
            after[name] = in_cell_order(new_set, self.domain, step % SORT_EVERY == 0)
            last = [(after[name].needed, None)]
            if lost is not None:
                finite &= (self.domain.after(lost, after[name].needed) == 0).all()
                continue
            # Empty entries hold 0, and `wrapped` leaves NaN as NaN, which marks a lost particle.
            for record in kind.species.advanced:
                finite &= jnp.isfinite(after[name].records[record]).all()
        return after, finite

    def _combined(
        self, before: ParticleSet, position: Combination, count: jax.Array
    ) -> tuple[dict[str, jax.Array], jax.Array]:
        """Positions and displacements, which native code computes from a combination of old
        positions and rates, and the number of particles that each device has lost."""
        local = partial(advanced, self.domain.threads, self.domain.box)
        records = before.records
        arguments = count, records["displacement"], records["position"], position
        moved, path, lost = self.domain.on_devices(local, *arguments)
        return {"position": moved, "displacement": path}, lost
