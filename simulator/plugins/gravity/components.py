"""Gas and waves as components of a composite."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.models.damping import absent
from simulator.physics.models.fields import DerivedField, Fields, MatterFields
from simulator.physics.models.limits import advection_rate
from simulator.physics.models.outputs import (
    derived_fields,
    diagnostics,
    spectra,
    step_trouble,
)
from simulator.physics.models.tendency import linear_terms, tendency
from simulator.physics.stepping.evolved import Evolved
from simulator.physics.stepping.runge_kutta import RungeKutta4
from simulator.physics.user_function import UserFiles
from simulator.plugins.gravity.component import (
    Component,
    ComponentName,
    Gravity,
    Potential,
    Work,
)
from simulator.plugins.gravity.schrodinger_poisson import (
    SchrodingerPoisson,
    SchrodingerPoissonSettings,
    WaveSettings,
    mass_problem,
)
from simulator.plugins.gravity.self_gravitating_gas import (
    GasSettings,
    SelfGravitatingGas,
    SelfGravitatingGasSettings,
)
from simulator.settings import Settings
from simulator.spectral import Local, Points, Transform
from simulator.spectral.arrays import Number, PhysicalScalar, PointValues, Spectrum
from simulator.spectral.operators import gradient, hermitian

_Settings = TypeVar("_Settings", bound=Settings)


class FieldComponent(Component):
    """Matter that consists of fields, with the diagnostics, spectra and derived fields of its model
    without gravity."""

    free: Any  # The model of this matter alone without gravity.

    def __init__(self, model: Callable[[float], Any], gravity: Gravity):
        """`model(G)` makes the model of this matter alone with the gravitational constant G."""
        self.alone = model(gravity.constant)
        self.free = model(0.0)
        self.fields = tuple(self.free.fields.values())

    def diagnostics(self, fields: MatterFields, time: Number) -> dict[str, Number]:
        return diagnostics(self.free, fields, time)

    def spectra(self, fields: MatterFields) -> dict[str, Spectrum]:
        return spectra(self.free, fields)

    def derived(self) -> Mapping[str, DerivedField]:
        return derived_fields(self.free)

    def trouble(self, fields: MatterFields) -> tuple[str, str] | None:
        return step_trouble(self.free, fields)


def _alone(
    kind: type[_Settings], shared: type[Settings], settings: Settings, **gravity: Any
) -> _Settings:
    """The settings of a model of one component alone: the keys of `shared` from the component's
    `settings`, and the keys `gravity`. Values, which may be arrays, were validated before."""
    values = {name: getattr(settings, name) for name in shared.model_fields if name != "kind"}
    return kind.model_construct(**values, **gravity)


class GasComponentSettings(GasSettings):
    kind: Literal["self_gravitating_gas"]
    name: ComponentName = "gas"
    """Prefix of the names of its fields and columns."""


class GasComponent(FieldComponent):
    """Drift: the hydrodynamics of `SelfGravitatingGas` by a Runge-Kutta step of order 4. Kick: m <-
    m - dt rho grad Phi, which is exact because the density stays constant."""

    Settings = GasComponentSettings

    def __init__(
        self,
        settings: GasComponentSettings,
        gravity: Gravity,
        make: Callable[..., Transform],
        files: UserFiles,
    ):
        """Raises UserError, beginning with the key, for gas whose pressure changes with the
        expansion."""
        if (
            gravity.cosmology is not None
            and settings.sound_speed
            and settings.polytropic_exponent != 5 / 3
        ):
            only = f"the equation of gas stays the same for 5/3 only, not for {settings.polytropic_exponent:g}"
            cure = "take 5/3, or cold gas (sound_speed: 0)"
            raise UserError(f"polytropic_exponent: in supercomoving variables {only}; {cure}")
        self.transform = make()
        self._integrator = RungeKutta4()

        def gas(constant: float) -> SelfGravitatingGas:
            keys = _alone(
                SelfGravitatingGasSettings, GasSettings, settings, gravitational_constant=constant
            )
            return SelfGravitatingGas(keys, self.transform)

        super().__init__(gas, gravity)

    def source(self, fields: MatterFields) -> tuple[jax.Array, None]:
        return self.transform.inverse(fields["density"]), None

    def kick(
        self, fields: MatterFields, work: Work, potential: Potential, time: Number, duration: Number
    ) -> tuple[Fields, jax.Array]:
        layout = self.transform.layout
        rho = fields["density"]
        m = fields["momentum"]
        grad_phi = gradient(layout, self.transform.forward(potential.values))

        def accelerated(values: PointValues, points: Points, parameters: Number) -> Local:
            weight = values["density"] * values["grad_phi"]
            v = (values["momentum"] - parameters * weight) / values["density"]
            advection = advection_rate(self.transform.grid, v)
            densest = values["density"]
            return Local(weight, {"advection": advection, "densest": densest, "thinnest": -densest})

        dt = duration.astype(rho.real.dtype)
        inputs = {"density": rho, "momentum": m, "grad_phi": grad_phi}
        evaluated = self.transform.evaluate(inputs, accelerated, dt)
        new = {"density": rho, "momentum": m - dt * hermitian(layout, evaluated.products)}
        rate = (
            self.free.step_limit.rate(self.free, evaluated.maxima, new).astype(jnp.float64)
            + potential.fall
        )
        return new, jax.lax.stop_gradient(rate)

    def drift(self, fields: MatterFields, duration: Number) -> Fields:
        def N(u: Evolved, t: Number) -> Evolved:
            return Evolved(tendency(self.free, u, t, limited=False)[0])

        u = Evolved(fields)
        t = jnp.float64(0)  # the equation does not depend on time
        L = Evolved(linear_terms(self.free))
        return dict(self._integrator.step(u, t, duration, N(u, t), N, L))


class WaveComponentSettings(WaveSettings):
    kind: Literal["schrodinger_poisson"]
    name: ComponentName = "waves"
    """Prefix of the names of its fields and columns."""


class WaveComponent(FieldComponent):
    """Drift and kick are those of `SchrodingerPoisson` in the potential of all matter; each is
    exact."""

    Settings = WaveComponentSettings

    def __init__(
        self,
        settings: WaveComponentSettings,
        gravity: Gravity,
        make: Callable[..., Transform],
        files: UserFiles,
    ):
        """Raises UserError, beginning with the key, for a trap or an absorber in an expanding
        background, and for a mass of the boson in other units than its own."""
        if problem := mass_problem(settings, gravity.units):
            raise UserError(": ".join(problem))
        if gravity.cosmology is not None and (settings.external_potential or settings.absorber):
            raise UserError(
                "external_potential: a cosmology excludes external_potential and absorber; keep one"
            )
        self.transform = make(real=False, every=True)
        real = make(real=True, every=True)

        def wave(constant: float) -> SchrodingerPoisson:
            shared = {
                "gravitational_constant": constant,
                "cosmology": gravity.cosmology,
                "units": gravity.units,
            }
            keys = _alone(SchrodingerPoissonSettings, WaveSettings, settings, **shared)
            return SchrodingerPoisson(keys, self.transform, real, files)

        super().__init__(wave, gravity)

    def source(self, fields: MatterFields) -> tuple[jax.Array, jax.Array]:
        """|psi|^2, and the values of psi on the grid."""
        psi = self.transform.inverse(fields["psi"])
        return psi.real**2 + psi.imag**2, psi

    def kick(
        self, fields: MatterFields, work: Work, potential: Potential, time: Number, duration: Number
    ) -> tuple[Fields, jax.Array]:
        assert work is not None
        return self.free.turned(work, self._turn(work, potential, time), duration)

    def rate(
        self,
        fields: MatterFields,
        work: Work,
        row: Mapping[str, Number],
        potential: Potential,
        time: Number,
    ) -> jax.Array:
        return self.free.spread(self._turn(work, potential, time))

    def _turn(self, work: Work, potential: Potential, time: Number) -> PhysicalScalar:
        assert work is not None
        density = work.real**2 + work.imag**2
        return self.free.turn(density, time) + potential.values / self.free.hbar

    def drift(self, fields: MatterFields, duration: Number) -> Fields:
        return self.free.drift(dict(fields), duration)

    def energy_slope(self, work: Work, scale_factor: Number) -> Number | float:
        """The derivative of the interaction energy g rho^2 / (2 a) with respect to a."""
        g = self.free.self_interaction
        if absent(g):
            return 0.0
        assert work is not None
        square = self.alone.real.physical.mean((work.real**2 + work.imag**2) ** 2)
        return -0.5 * g / scale_factor**2 * square
