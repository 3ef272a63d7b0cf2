"""Time integrators and the loop over steps. A new integrator is a file and a line in `INTEGRATORS`."""

from simulator.stepping.advance import Advance, TimeStep, Until, advance_of, beginning, step_of
from simulator.stepping.integrator import Integrator
from simulator.stepping.runge_kutta import RungeKutta4

INTEGRATORS: dict[str, type] = {"rk4": RungeKutta4}

__all__ = ["INTEGRATORS", "Advance", "Integrator", "TimeStep", "Until", "advance_of", "beginning", "step_of"]
