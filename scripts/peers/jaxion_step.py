"""Jaxion: a kick-drift-kick step of the Schrodinger-Poisson equations in single precision, its
default."""

import os

from turns import Line, problem, serve, timed

line = Line()
settings = problem()
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={settings['devices']}"

import jax  # noqa: E402

jax.config.update("jax_platforms", "cpu")

import jaxion  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

n = settings["shape"][0]
steps = settings["steps"]
devices = settings["devices"]
mesh = jax.make_mesh((1, devices), ("x", "y"))
sharding = NamedSharding(mesh, PartitionSpec("x", "y"))
parameters = {
    "physics": {"quantum": True, "gravity": True},
    "domain": {"box_size": 10.0, "resolution_base": n},
    "time": {"start": 0.0, "end": 1.0},
    "output": {"save": False, "num_checkpoints": 1},
}


def made(end: float):
    parameters["time"]["end"] = end
    return jaxion.Simulation(parameters, sharding=sharding)


LONG = 1e6
simulation = made(
    LONG * steps / made(LONG).nt
)  # its number of steps follows from the time to the end
assert simulation.nt == steps, (simulation.nt, steps)


def start():
    re, im = jax.random.normal(jax.random.key(0), (2, n, n, n))
    return (1e4 * (1 + 0.1 * (re + 1j * im))).astype("complex64")


psi = jax.jit(start, out_shardings=sharding)()
advance = jax.jit(simulation._evolve)
state = {**simulation.state, "psi": psi}
state = jax.block_until_ready(advance(state))


def run() -> None:
    global state
    state = jax.block_until_ready(advance(state))


name = f"Jaxion, {state['psi'].dtype}, {devices} devices (jax {jax.__version__}, jaxdecomp)"
serve(line, {"name": name}, lambda: timed(steps, run))
