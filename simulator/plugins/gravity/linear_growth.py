"""Integrators whose steps follow the linear growth of structure in an expanding background."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from simulator.physics.models.expansion import Expansion
from simulator.physics.stepping.splitting import DriftKickDrift, KickDriftKick, Splitting, Stages
from simulator.plugins.gravity.cosmology import Background
from simulator.spectral.arrays import Number

if TYPE_CHECKING:
    from simulator.plugins.gravity.composite import CompositeSettings


class LinearGrowth(Splitting):
    """Takes particles in an expanding background only."""

    growing = True

    @classmethod
    def misfit(cls, settings: CompositeSettings) -> str | None:
        others = [c.kind for c in settings.components if c.kind != "particles"]
        if settings.cosmology is not None and not others:
            return None
        expanding = "an expanding box, model.background"
        missing = expanding if settings.cosmology is None else f"no {others[0]}"
        needs = f"takes steps of linear growth: it needs particles and {missing}"
        return f"{needs}; kick_drift_kick takes every matter"


class FastPM(LinearGrowth, KickDriftKick):
    """Kick, drift, kick with (dD_1 - dD_0) / d^2 D instead of the durations of kicks, and (D_1 -
    D_0) / dD instead of that of the drift, where d is d/d tau: Feng, Chu, Seljak & McDonald, Mon.
    Not. R. Astron. Soc. 463, 2273 (2016), section 2. The kicks of a step meet halfway in D."""

    def stages(self, background: Expansion | None, time: Number, dt: Number) -> Stages:
        assert isinstance(background, Background)
        now = background.growing(time)
        then = background.growing(time + dt)
        middle = background.growing(background.time_of_growth((now.first + then.first) / 2))
        kicks = jnp.stack(
            [(middle.speed - now.speed) / now.pull, (then.speed - middle.speed) / then.pull]
        )
        drift = (then.first - now.first) / middle.speed
        return Stages(
            jnp.stack([0 * drift, drift, 0 * drift]),
            kicks * (dt != 0),
            jnp.stack([time, time + dt]),
        )


class BullFrog(LinearGrowth, DriftKickDrift):
    """Drift, kick, drift in the time D, which also follows the second order of Lagrangian
    perturbation theory.

    With v = dx/dD, h = (D_1 - D_0) / 2, D = D_0 + h, and the acceleration A that equals v in the
    growing mode:

        x = x_0 + h v_0,  v_1 = alpha v_0 + (1 - alpha) A(x),  x_1 = x + h v_1
        alpha = (E'_1 - F) / (E'_0 - F),  F = (E_0 + h E'_0) / D - D

    E is the growth of second order and E' = dE/dD. Rampf, List & Hahn, J. Cosmol. Astropart. Phys.
    02 (2025) 020."""

    def stages(self, background: Expansion | None, time: Number, dt: Number) -> Stages:
        assert isinstance(background, Background)
        now = background.growing(time)
        then = background.growing(time + dt)
        h = (then.first - now.first) / 2
        growth = now.first + h
        when = background.time_of_growth(growth)
        before = now.second_speed / now.speed
        after = then.second_speed / then.speed
        f = (now.second + h * before) / growth - growth
        alpha = (after - f) / (before - f)
        drifts = jnp.stack([h / now.speed, h / then.speed])
        kick = (1 - alpha) * then.speed / background.growing(when).pull
        keep = alpha * then.speed / now.speed
        return Stages(drifts, kick[None], when[None], keep[None])
