"""JaxPM: a kick and a drift of its particle mesh (cloud in cell) in single precision, its default,
or in double."""

from turns import Line, problem, serve, timed

line = Line()
settings = problem()

import jax  # noqa: E402

double = settings["precision"] == "double"
jax.config.update("jax_enable_x64", double)

import jax.numpy as jnp  # noqa: E402
from jaxpm.pm import pm_forces  # noqa: E402

n = settings["shape"][0]
dt = settings["dt"]
along = jnp.arange(n, dtype=jnp.float64 if double else jnp.float32)
lattice = jnp.stack(jnp.meshgrid(along, along, along, indexing="ij"), -1)
wave = jnp.sin(2 * jnp.pi * lattice / n)


def step(_, state):
    position, momentum = state
    momentum = momentum + dt * pm_forces(position, mesh_shape=(n, n, n), paint_absolute_pos=True)
    return position + dt * momentum, momentum


advance = jax.jit(
    lambda state: jax.lax.fori_loop(0, settings["steps"], step, state), donate_argnums=0
)
state = (lattice + 1.5 * wave, 0.1 * wave)
state = jax.block_until_ready(advance(state))


def run() -> None:
    global state
    state = jax.block_until_ready(advance(state))


name = f"JaxPM, {settings['precision']}, cic (jax {jax.__version__})"
serve(line, {"name": name}, lambda: timed(settings["steps"], run))
