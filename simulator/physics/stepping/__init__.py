"""Time integrators. A new integrator is a file in this package and a line in `INTEGRATORS`."""

from simulator.physics.stepping.integrator import Integrator
from simulator.physics.stepping.runge_kutta import (
    ExponentialRungeKutta4,
    RungeKutta2,
    RungeKutta3,
    RungeKutta4,
)
from simulator.physics.stepping.splitting import (
    Composition4,
    Composition6,
    DriftKickDrift,
    KickDriftKick,
)
from simulator.registry import Registry, subclass_of

_OURS: dict[str, type[Integrator]] = {
    "rk4": RungeKutta4,
    "rk3": RungeKutta3,
    "rk2": RungeKutta2,
    "etdrk4": ExponentialRungeKutta4,
    "drift_kick_drift": DriftKickDrift,
    "kick_drift_kick": KickDriftKick,
    "composition4": Composition4,
    "composition6": Composition6,
}
INTEGRATORS = Registry[type[Integrator]]("simulator.integrators", _OURS, subclass_of(Integrator))

__all__ = ["INTEGRATORS", "Integrator"]
