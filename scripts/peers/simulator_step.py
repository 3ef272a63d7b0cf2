"""This program's step of a Taylor-Green vortex (RK4) or of the Schrodinger-Poisson equations (order 2)."""

from turns import Line, problem, serve, timed

line, settings = Line(), problem()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from simulator import Simulation  # noqa: E402
from simulator.config import run_config_class  # noqa: E402
from simulator.simulation.advance import Until  # noqa: E402

FLOW = {
    "model": {"kind": "navier_stokes", "viscosity": settings.get("viscosity")},
    "initial": {"kind": "taylor_green"},
}
WAVE = {
    "model": {"kind": "schrodinger_poisson"},
    "initial": {"kind": "soliton", "core_radius": 0.7},
}
config = run_config_class().model_validate(
    {
        **(FLOW if settings["flow"] else WAVE),
        "grid": {"shape": settings["shape"]},
        "time": {"stop": 1e6 * settings["dt"], "dt": settings["dt"]},
        "precision": settings["precision"],
        "devices": {"platform": "cpu", "count": settings["devices"]},
    }
)
simulation = Simulation(config)
until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(settings["steps"]))


def run() -> None:
    simulation.state = jax.block_until_ready(simulation.advance(simulation.state, until))


run()
energy = float(simulation.diagnostics(simulation.state)["energy"])
name = f"simulator, {settings['precision']}, {settings['devices']} devices ({config.time.integrator})"
serve(line, {"name": name, "energy": energy}, lambda: timed(settings["steps"], run))
