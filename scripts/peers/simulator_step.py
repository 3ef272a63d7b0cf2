"""A step of this program: a Taylor-Green vortex (RK4), Schrodinger-Poisson equations or particles
(order 2); or, for `stop`, RK4 with its largest dt from the perturbed vortex, measured at that
time."""

import perturbed_vortex
from turns import Line, problem, serve, timed

line = Line()
settings = problem()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from simulator import Simulation  # noqa: E402
from simulator.config import run_config_class  # noqa: E402
from simulator.physics.stepping.runge_kutta import RungeKutta4  # noqa: E402
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
stop = settings.get("stop")
if stop is None:
    grid = {"shape": settings["shape"]}
    time_step = {"dt": settings["dt"]}
else:
    grid = {"shape": settings["shape"], "dealias": settings["dealias"]}
    time_step = {"cfl": RungeKutta4.max_cfl[settings["dealias"]]}
config = run_config_class().model_validate(
    {
        **WHAT[settings["what"]],
        "grid": grid,
        "time": {"stop": 1e6 * settings["dt"], **time_step},
        "precision": settings["precision"],
        "devices": {"platform": "cpu", "threads": settings["devices"]},
    }
)
simulation = Simulation(config)
until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(settings["steps"]))


def run() -> None:
    simulation.state = jax.block_until_ready(simulation.advance(simulation.state, until))


def at_stop() -> dict:
    """The steps to `stop`, and the flow then."""
    n = settings["shape"][0]
    x = np.linspace(0, 2 * np.pi, n, endpoint=False)
    velocity = perturbed_vortex.start(x[:, None, None], x[:, None], x)
    simulation.state = simulation.state_from({"velocity": velocity})
    end = Until(np.float64(stop), np.float64(np.inf), np.int64(10**9))
    simulation.state = simulation.advance(simulation.state, end)
    values = np.asarray(simulation.values("velocity"))
    return {"steps": int(simulation.state.step)} | perturbed_vortex.read(
        values, settings["viscosity"]
    )


if stop is None:
    run()
    flow = settings["what"] == "navier_stokes"
    energy = float(simulation.diagnostics(simulation.state)["energy"]) if flow else None
    kind = f", {config.model.components[0].assignment}" if settings["what"] == "particles" else ""
    name = f"simulator, {settings['precision']}{kind}, {settings['devices']} threads ({config.time.integrator})"
    report = {"name": name, "energy": energy}
else:
    name = f"simulator, {config.time.integrator}, {settings['dealias']}, {settings['shape'][0]}^3"
    report = {"name": name} | at_stop()
serve(line, report, lambda: timed(settings["steps"], run))
