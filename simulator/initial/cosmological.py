"""Linear structure: a Zel'dovich wave in gas, and a Gaussian random field of density in an expanding box."""

import math
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.initial.initial import Fields, Files, Initial, from_values
from simulator.initial.linear_power import LinearPowerSettings, linear_power
from simulator.initial.soliton import wave_model
from simulator.settings import Points, Positive, Real, Seed, Settings
from simulator.spectral.random import gaussian


class ZeldovichWaveSettings(Settings):
    kind: Literal["zeldovich_wave"] = "zeldovich_wave"
    density: Positive = 1.0
    """Mean density."""
    amplitude: Annotated[Real, Field(gt=-1, lt=1)] = 0.1
    """A in the displacement A sin(k q) / k; the sheets cross when it has grown to 1."""
    axis: Literal["x", "y", "z"] = "x"
    """Direction of the wave vector."""
    mode: Points = 1
    """Number of waves in the box along the axis."""


class ZeldovichWave(Initial):
    """Cold gas that has been displaced from q to x = q + A exp(gamma t) sin(k q) / k, gamma = sqrt(4 pi G rho).

    In one dimension this growing mode is exact until sheets cross: density rho / (1 + A exp(gamma t) cos(k q)),
    velocity gamma A exp(gamma t) sin(k q) / k. Zel'dovich, Astron. Astrophys. 5, 84 (1970), without expansion.
    """

    Settings = ZeldovichWaveSettings

    def build_for(self, model: Any, files: Files) -> Fields:
        if "momentum" not in model.fields:
            raise UserError("kind: zeldovich_wave needs model.kind: self_gravitating_gas")
        s, transform = self.settings, model.transform
        i = "xyz".index(s.axis)
        k = s.mode * transform.grid.fundamental[i]
        growth = math.sqrt(4 * math.pi * model.settings.gravitational_constant * s.density)

        def values(*points):
            x = points[i]
            q = x
            for _ in range(60):  # Newton's method, from a point where it converges
                q = q - (q + s.amplitude * jnp.sin(k * q) / k - x) / (1 + abs(s.amplitude))
            for _ in range(4):
                q = q - (q + s.amplitude * jnp.sin(k * q) / k - x) / (1 + s.amplitude * jnp.cos(k * q))
            shape = transform.physical.shape
            still = jnp.zeros(shape, x.dtype)
            speed = jnp.broadcast_to(growth * s.amplitude * jnp.sin(k * q) / k, shape)
            return {
                "density": jnp.broadcast_to(s.density / (1 + s.amplitude * jnp.cos(k * q)), shape),
                "velocity": jnp.stack([speed if j == i else still for j in range(3)]),
            }

        return from_values(transform, values)


class CosmologicalSettings(LinearPowerSettings):
    kind: Literal["cosmological"] = "cosmological"
    seed: Seed = 0
    """Seed of the random density contrast."""


class Cosmological(Initial):
    """The growing mode of a Gaussian random density contrast delta in an expanding background.

    delta(k) has variance P(k) D(a)^2 / V with D(1) = 1; psi = sqrt(rho (1 + delta)) exp(i S) with the phase of the
    velocity that makes it grow, (hbar/m) k^2 S = d delta / d tau = f a^2 H delta. The mean density is that of the
    background, 3 H0^2 Omega_m / (8 pi G). One seed gives one field on any number of devices and any grid.
    """

    Settings = CosmologicalSettings

    def build_for(self, model: Any, files: Files) -> Fields:
        wave = wave_model(model, "cosmological")
        if wave.background is None:
            raise UserError("kind: cosmological needs model.cosmology: {start, hubble, matter}")
        power = linear_power(self.settings, wave, files)
        background, layout, transform = wave.background, wave.real.layout, wave.transform
        c = background.settings
        growth = background.growth(c.start) / background.growth(1.0)
        speed = background.growth_rate(c.start) * c.start**2 * float(background.hubble(c.start))
        mean = 3 * c.hubble**2 * c.matter / (8 * math.pi * wave.gravity)

        @jax.jit
        def build():
            k = jnp.sqrt(layout.k_squared())
            inside = jnp.ones((1, 1, 1), bool)
            for axis, n in zip("xyz", transform.grid.shape, strict=True):
                inside = inside & (
                    2 * abs(layout.integers(axis)) < n
                )  # no Nyquist planes: they have no phase
            variance = power(jnp.maximum(k, 1e-300)) / transform.grid.volume
            usable = inside & (k > 0) & layout.mask
            delta = (
                jnp.where(usable, growth * jnp.sqrt(variance), 0) * gaussian(layout, self.settings.seed)[0]
            )
            velocity_phase = jnp.where(k > 0, speed / (wave.hbar * jnp.maximum(k, 1e-300) ** 2), 0) * delta
            kind = jnp.result_type(transform.dtype, jnp.complex64)
            contrast, phase = (
                wave.real.inverse(layout.constrain(f.astype(kind))) for f in (delta, velocity_phase)
            )
            psi = jnp.sqrt(mean * jnp.maximum(1 + contrast, 0)) * jnp.exp(1j * phase)
            return transform.layout.constrain(transform.forward(psi)), wave.real.physical.min(contrast)

        psi, least = build()
        if float(least) <= -1:
            raise UserError(
                f"the density contrast at a = {c.start:g} reaches {float(least):.2g}, beyond the linear regime; "
                f"an earlier model.cosmology.start, or less power, is needed"
            )
        return {"psi": psi}
