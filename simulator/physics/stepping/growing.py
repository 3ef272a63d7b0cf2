"""Split steps of particles in an expanding box whose coefficients follow the linear growth of structure.

The growing mode moves particles by x = q + D(tau) psi, with the velocity dD/d tau psi and the acceleration
d^2 D/d tau^2 psi. Coefficients for which this motion is exact make large steps accurate: the first order of
Lagrangian perturbation theory costs no error, and in one dimension nothing does until sheets cross. Every step is
consistent with the equations to second order, whatever its length.
"""

import jax.numpy as jnp

from simulator.physics.stepping.splitting import DriftKickDrift, KickDriftKick, Stages
from simulator.spectral.arrays import Number


class FastPM(KickDriftKick):
    """Kick, drift, kick with (dD_1 - dD_0) / d^2 D instead of the durations of kicks, and (D_1 - D_0) / dD instead of
    that of the drift, where d is d/d tau: Feng, Chu, Seljak & McDonald, Mon. Not. R. Astron. Soc. 463, 2273 (2016),
    section 2. The kicks of a step meet halfway in D."""

    growing = True

    def stages(self, background, time: Number, dt: Number) -> Stages:
        now, then = background.growing(time), background.growing(time + dt)
        middle = background.growing(background.time_of_growth((now.first + then.first) / 2))
        kicks = jnp.stack([(middle.speed - now.speed) / now.pull, (then.speed - middle.speed) / then.pull])
        drift = (then.first - now.first) / middle.speed
        return Stages(jnp.stack([0 * drift, drift, 0 * drift]), kicks * (dt != 0), jnp.stack([time, time + dt]))


class BullFrog(DriftKickDrift):
    """Drift, kick, drift in the time D, which also follows the second order of Lagrangian perturbation theory.

    With v = dx/dD, h = (D_1 - D_0) / 2, D = D_0 + h, and the acceleration A that equals v in the growing mode:

        x = x_0 + h v_0,  v_1 = alpha v_0 + (1 - alpha) A(x),  x_1 = x + h v_1
        alpha = (E'_1 - F) / (E'_0 - F),  F = (E_0 + h E'_0) / D - D

    E is the growth of second order and E' = dE/dD. Rampf, List & Hahn, J. Cosmol. Astropart. Phys. 02 (2025) 020.
    """

    growing = True

    def stages(self, background, time: Number, dt: Number) -> Stages:
        now, then = background.growing(time), background.growing(time + dt)
        h = (then.first - now.first) / 2
        growth = now.first + h
        when = background.time_of_growth(growth)
        before, after = now.second_speed / now.speed, then.second_speed / then.speed
        f = (now.second + h * before) / growth - growth
        alpha = (after - f) / (before - f)
        return Stages(
            jnp.stack([h / now.speed, h / then.speed]),
            ((1 - alpha) * then.speed / background.growing(when).pull)[None],
            when[None],
            (alpha * then.speed / now.speed)[None],
        )
