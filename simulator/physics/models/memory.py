"""The numbers that a state carries from step to step besides its fields and particles."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

import jax

from simulator.spectral.arrays import Number, Numbers

RATE = "rate"
RESIDUAL = "budget_residual"
"""The residual's name in files and in the diagnostics."""
LOST = "lost_to_shear"
"""The name in files and in the diagnostics of the energy that left with waves."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StateMemory:
    """Numbers that forcing, model, particles and the loop over steps carry on."""

    forcing: Numbers = field(default_factory=dict)
    """Amplitudes of a random force."""
    model: Numbers = field(default_factory=dict)
    """Numbers of the equation, such as the energy after the work of the expansion."""
    particles: Numbers = field(default_factory=dict)
    """Relaxation times of particles in a fluid."""
    terms: dict[str, jax.Array] = field(default_factory=dict)
    """Arrays that terms read from files: complex ones are coefficients (snapshot, component,
    *layout.order), real ones values (x, y, z). Nothing changes them, and checkpoints lack them."""
    rate: Number | None = None
    """The rate (1/time) at the last kick of split steps, from which dt follows."""
    residual: Number | None = None
    """The residual of the energy budget in the last step, of models with a budget in every step."""
    control: Numbers = field(default_factory=dict)
    """Numbers of steps by error: see `simulator.simulation.error_control`."""
    lost: Number | None = None
    """The energy of the waves that a background shear has carried beyond the modes of the state,
    since the beginning."""

    @classmethod
    def of_model(cls, numbers: Numbers) -> Self:
        """The memory of a model, which names its rate among its numbers."""
        others = {name: array for name, array in numbers.items() if name != RATE}
        return cls(model=others, rate=numbers.get(RATE))

    @property
    def named(self) -> dict[str, jax.Array]:
        """All arrays by the names that they have in checkpoints."""
        numbers = {RATE: self.rate, RESIDUAL: self.residual, LOST: self.lost}
        stated = {name: number for name, number in numbers.items() if number is not None}
        return {**self.model, **self.forcing, **self.particles, **self.control, **stated}

    def restored(self, read: Callable[[str, jax.Array], jax.Array]) -> Self:
        """A memory of the same parts, whose arrays are `read(name, like)`."""
        arrays = {name: read(name, like) for name, like in self.named.items()}

        def part(numbers: Numbers) -> Numbers:
            return {name: arrays[name] for name in numbers}

        return replace(
            self,
            forcing=part(self.forcing),
            model=part(self.model),
            particles=part(self.particles),
            control=part(self.control),
            rate=arrays.get(RATE),
            residual=arrays.get(RESIDUAL),
            lost=arrays.get(LOST),
        )
