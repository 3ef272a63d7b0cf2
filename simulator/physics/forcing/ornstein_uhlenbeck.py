"""Random forcing with a correlation time."""

from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.forcing.forcing import Band, Embedding, Forcing, band_modes, needs_velocity
from simulator.physics.initial.initial import StartFiles
from simulator.physics.models import Fields, Model
from simulator.settings import Positive, Real, Seed, Settings
from simulator.spectral import Transform
from simulator.spectral.random import mode_normals


class OrnsteinUhlenbeckSettings(Settings):
    kind: Literal["ornstein_uhlenbeck"] = "ornstein_uhlenbeck"
    rate: Positive
    """Mean power per mass injected into a flow that does not respond within the correlation time."""
    correlation_time: Positive
    """T, the correlation time of the force."""
    band: Band = (0.0, 2.5)
    """Wavenumbers |k| that are driven, both ends included (1/length)."""
    solenoidal_weight: Annotated[Real, Field(ge=0, le=1)] = 1.0
    """1: a solenoidal force, as incompressible flows need; 0: a compressive one; a mixture between them (gas)."""
    seed: Seed = 0
    """Seed of the random force."""


class OrnsteinUhlenbeck(Forcing):
    """Every mode of the band has a complex vector b that follows an Ornstein-Uhlenbeck process,

    b(t + dt) = b(t) exp(-dt / T) + sqrt(1 - exp(-2 dt / T)) xi,  <xi_i* xi_j> = delta_ij,

    and during a step f(k) = A [w P b + (1 - w) (1 - P) b] with the solenoidal projection P. A sets the variance of
    f to rate / T, so that a flow with du/dt = f gains energy at `rate`; a flow that turns over within T gains
    less. Eswaran & Pope, Comput. Fluids 16, 257 (1988); the weight w as in Federrath et al., Astron. Astrophys.
    512, A81 (2010).

    xi is keyed by seed, mode and step number, so that the history is the same on any number of devices and after
    a restart.
    """

    Settings = OrnsteinUhlenbeckSettings

    def __init__(
        self, settings: OrnsteinUhlenbeckSettings, transform: Transform, model: Model, files: StartFiles
    ):
        needs_velocity(model, "ornstein_uhlenbeck")
        weight = settings.solenoidal_weight
        if "velocity" in model.solenoidal and weight != 1:
            raise UserError(
                f"solenoidal_weight: this model's flow is incompressible: 1 is needed, not {weight:g}"
            )
        super().__init__(settings, transform, model, files)
        self._modes = band_modes(transform.grid, settings.band)
        self._embed = Embedding(transform.layout, self._modes)
        self._dtype = np.result_type(transform.dtype, np.complex64)
        k = self._modes * np.array(transform.grid.fundamental)
        k = np.stack(transform.grid.seen([*k.T]), 1)
        self._direction = k / np.linalg.norm(k, axis=1, keepdims=True)
        # <|f|^2> is (d - 1) w^2 + (1 - w)^2 for each mode; every listed mode stands for two, k and -k.
        self._dimensions = k.shape[1]
        variance = 2 * len(k) * ((self._dimensions - 1) * weight**2 + (1 - weight) ** 2)
        self._amplitude = (settings.rate / settings.correlation_time / variance) ** 0.5

    def _noise(self, step: jax.Array | int) -> jax.Array:
        normal = mode_normals(self._modes, self.settings.seed, step, self._dimensions)
        return (normal[..., 0] + 1j * normal[..., 1]) * 0.5**0.5

    def memory(self) -> dict[str, jax.Array]:
        return {"forcing": self._noise(0)}

    def renewed(self, memory: dict[str, Any], step: jax.Array, dt: jax.Array) -> dict[str, Any]:
        passed = dt / self.settings.correlation_time
        fresh = jnp.sqrt(-jnp.expm1(-2 * passed))
        return {"forcing": memory["forcing"] * jnp.exp(-passed) + fresh * self._noise(step)}

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        b, weight = memory["forcing"], self.settings.solenoidal_weight
        compressive = (b * self._direction).sum(1, keepdims=True) * self._direction
        f = self._amplitude * (weight * (b - compressive) + (1 - weight) * compressive)
        return {"velocity": self._embed(f).astype(self._dtype)}
