"""JaxPM: a kick and a drift of its particle mesh (cloud in cell) in single precision, its default."""

from turns import Line, problem, serve, timed

line, settings = Line(), problem()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jaxpm.pm import pm_forces  # noqa: E402

n, dt = settings["shape"][0], settings["dt"]
lattice = jnp.stack(jnp.meshgrid(*[jnp.arange(n, dtype=jnp.float32)] * 3, indexing="ij"), -1)
wave = jnp.sin(2 * jnp.pi * lattice / n)


def step(_, state):
    position, momentum = state
    momentum = momentum + dt * pm_forces(position, mesh_shape=(n, n, n), paint_absolute_pos=True)
    return position + dt * momentum, momentum


advance = jax.jit(lambda state: jax.lax.fori_loop(0, settings["steps"], step, state), donate_argnums=0)
state = (lattice + 1.5 * wave, 0.1 * wave)
state = jax.block_until_ready(advance(state))


def run() -> None:
    global state
    state = jax.block_until_ready(advance(state))


serve(line, {"name": f"JaxPM, single, cic (jax {jax.__version__})"}, lambda: timed(settings["steps"], run))
