"""This program: Navier-Stokes in single precision, and the gradient of the final energy in the
initial velocity."""

from turns import Line, problem, serve, timed

line = Line()
settings = problem()

import jax  # noqa: E402

from simulator import Simulation, differentiate  # noqa: E402
from simulator.config import run_config_class  # noqa: E402

config = run_config_class().model_validate(
    {
        "model": {"kind": "navier_stokes", "viscosity": settings["viscosity"]},
        "initial": {"kind": "taylor_green"},
        "grid": {"shape": settings["shape"]},
        "time": {"stop": 1.0, "dt": settings["dt"], "integrator": settings["integrator"]},
        "precision": "single",
        "devices": {"platform": "cpu", "threads": settings["devices"]},
    }
)
simulation = Simulation(config)


def energy(state) -> jax.Array:
    velocity = state.fields["velocity"]
    return 0.5 * simulation.transform.layout.inner(velocity, velocity).sum()


of = differentiate(simulation, energy, steps=settings["steps"], dt=settings["dt"])
start = {"fields": {"velocity": simulation.state.fields["velocity"]}}


def run() -> None:
    jax.block_until_ready(of(start) if settings["gradient"] else of.value(start))


run()
name = f"simulator, single, {settings['devices']} threads ({settings['integrator']})"
serve(line, {"name": name, "energy": float(of.value(start))}, lambda: timed(1, run))
