"""A step of this program: a Taylor-Green vortex (RK4), Schrodinger-Poisson equations or particles
(order 2)."""

from turns import Line, problem, serve, timed

line = Line()
settings = problem()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from simulator import Simulation  # noqa: E402
from simulator.config import run_config_class  # noqa: E402
from simulator.simulation.advance import Until  # noqa: E402

MATTER = {"kind": "particles", "name": "dark", "count": settings["shape"][0] ** 3}
WHAT = {
    "navier_stokes": {
        "model": {"kind": "navier_stokes", "viscosity": settings.get("viscosity")},
        "initial": {"kind": "taylor_green"},
    },
    "schrodinger_poisson": {
        "model": {"kind": "schrodinger_poisson"},
        "initial": {"kind": "soliton", "core_radius": 0.7},
    },
    "particles": {
        "model": {"kind": "composite", "components": [MATTER | settings.get("matter", {})]},
        "initial": {
            "kind": "composite",
            "components": {"dark": {"kind": "zeldovich_wave", "amplitude": 0.3}},
        },
    },
}
config = run_config_class().model_validate(
    {
        **WHAT[settings["what"]],
        "grid": {"shape": settings["shape"]},
        "time": {"stop": 1e6 * settings["dt"], "dt": settings["dt"]},
        "precision": settings["precision"],
        "devices": {"platform": "cpu", "threads": settings["devices"]},
    }
)
simulation = Simulation(config)
until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(settings["steps"]))


def run() -> None:
    simulation.state = jax.block_until_ready(simulation.advance(simulation.state, until))


run()
flow = settings["what"] == "navier_stokes"
energy = float(simulation.diagnostics(simulation.state)["energy"]) if flow else None
kind = f", {config.model.components[0].assignment}" if settings["what"] == "particles" else ""
name = f"simulator, {settings['precision']}{kind}, {settings['devices']} threads ({config.time.integrator})"
serve(line, {"name": name, "energy": energy}, lambda: timed(settings["steps"], run))
