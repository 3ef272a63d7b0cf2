"""Time integrators and the loop over steps. A new integrator is a file and a line in `INTEGRATORS`."""

from simulator.stepping.advance import Advance, TimeStep, Until, advance_of, beginning, rate_of, step_of
from simulator.stepping.exponential import ExponentialRungeKutta4
from simulator.stepping.integrator import Integrator
from simulator.stepping.runge_kutta import RungeKutta2, RungeKutta3, RungeKutta4
from simulator.stepping.splitting import Composition4, Composition6, DriftKickDrift, KickDriftKick

INTEGRATORS: dict[str, type] = {
    "rk4": RungeKutta4,
    "rk3": RungeKutta3,
    "rk2": RungeKutta2,
    "etdrk4": ExponentialRungeKutta4,
    "drift_kick_drift": DriftKickDrift,
    "kick_drift_kick": KickDriftKick,
    "composition4": Composition4,
    "composition6": Composition6,
}

__all__ = [
    "INTEGRATORS",
    "Advance",
    "Integrator",
    "TimeStep",
    "Until",
    "advance_of",
    "beginning",
    "rate_of",
    "step_of",
]
