"""A homogeneous state, and a plane wave of density on it."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import jax.numpy as jnp
from pydantic import model_validator

from simulator.errors import UserError
from simulator.initial.initial import Fields, Files, Initial, from_values
from simulator.settings import Integer, Positive, Real, Settings, wrong
from simulator.spectral import Transform


class UniformSettings(Settings):
    kind: Literal["uniform"] = "uniform"
    density: Positive = 1.0
    """Mass density everywhere."""
    velocity: tuple[Real, Real, Real] = (0.0, 0.0, 0.0)
    """Velocity of gas; a wave function is at rest."""


class Uniform(Initial):
    """The same density and velocity, or the wave function sqrt(density), everywhere."""

    Settings = UniformSettings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        s = self.settings
        if any(s.velocity) and "velocity" not in wanted:
            raise UserError(f"velocity: this model has no velocity ({', '.join(wanted)})")
        if not {"density", "psi", "velocity"}.intersection(wanted):
            raise UserError(f"kind: uniform gives density, psi and velocity, not {', '.join(wanted)}")
        shape = transform.physical.seen_shape

        def values(*points):
            known = {
                "density": jnp.full(shape, s.density, transform.dtype),
                "psi": jnp.full(shape, math.sqrt(s.density), transform.dtype),
                "velocity": jnp.stack([jnp.full(shape, v, transform.dtype) for v in s.velocity]),
            }
            return {name: value for name, value in known.items() if name in wanted}

        return from_values(transform, values)


class JeansWaveSettings(Settings):
    kind: Literal["jeans_wave"] = "jeans_wave"
    density: Positive = 1.0
    """Mean density."""
    amplitude: Real = 1e-6
    """Relative amplitude of the density wave."""
    mode: tuple[Integer, Integer, Integer] = (1, 0, 0)
    """Wave vector, in units of 2 pi / L_i."""

    @model_validator(mode="after")
    def _a_wave(self) -> Self:
        if not any(self.mode):
            raise wrong("mode", "is 0; a wave needs a wave vector, e.g. [1, 0, 0]")
        if abs(self.amplitude) >= 1:
            raise wrong("amplitude", f"must be below 1, for a positive density, not {self.amplitude:g}")
        return self


class JeansWave(Initial):
    """density (1 + amplitude cos(k . x)) at rest, or the eigenmode that grows if gravity exceeds pressure.

    Gas: a standing wave, delta = A cos(omega t) cos(k . x), omega^2 = k^2 c^2 - 4 pi G rho; if omega^2 is negative,
    the velocity is that of the growing mode, so that delta = A exp(gamma t) cos(k . x). Matter waves: the same with
    omega^2 = (hbar/2m)^2 k^4 + k^2 g rho - 4 pi G rho.
    """

    Settings = JeansWaveSettings

    def build_for(self, model: Any, files: Files) -> Fields:
        s, transform = self.settings, model.transform
        if model.jeans_frequency_squared(1.0, s.density) is None:
            raise UserError("kind: jeans_wave needs model.kind: self_gravitating_gas or schrodinger_poisson")
        if any(abs(m) > n for m, n in zip(s.mode, transform.grid.kept, strict=True)):
            raise UserError(f"mode: {s.mode} is beyond the modes that the grid keeps, {transform.grid.kept}")
        k = [m * unit for m, unit in zip(s.mode, transform.grid.fundamental, strict=True)]
        k2 = sum(q * q for q in k)
        growth = math.sqrt(max(0.0, -model.jeans_frequency_squared(k2, s.density)))

        def values(x, y, z):
            phase = sum(q * p for q, p in zip(k, (x, y, z), strict=True))
            wave = jnp.broadcast_to(s.amplitude * jnp.cos(phase), transform.physical.shape)
            # delta_t + div v = 0: v = -(k / k^2) delta_t's integral.
            drift = -growth * s.amplitude / k2 * jnp.sin(phase)
            velocity = [jnp.broadcast_to(q * drift, transform.physical.shape) for q in k]
            density = s.density * (1 + wave)
            if "psi" in model.fields:
                # v = (hbar/m) grad S, and div v = -delta_t.
                velocity_phase = (
                    growth * jnp.broadcast_to(s.amplitude * jnp.cos(phase), density.shape) / (k2 * model.hbar)
                )
                return {"psi": jnp.sqrt(density) * jnp.exp(1j * velocity_phase)}
            return {"density": density, "velocity": jnp.stack(velocity)}

        return from_values(transform, values)
