"""exponax: Navier-Stokes of order 2 (ETDRK2) in single precision, and the gradient of the final
energy.

All cores work on one device. The gradient is JAX's of a loop over the steps, as exponax's own
`repeat` makes it."""

from turns import Line, problem, serve, timed

line = Line()
settings = problem()

import exponax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

n = settings["shape"][0]
steps = settings["steps"]
stepper = exponax.stepper.NavierStokesVelocity(
    3, 2 * jnp.pi, n, settings["dt"], diffusivity=settings["viscosity"], order=2
)
x, y, z = jnp.meshgrid(*[jnp.arange(n, dtype=jnp.float32) * (2 * jnp.pi / n)] * 3, indexing="ij")
start = jnp.stack(
    [jnp.sin(x) * jnp.cos(y) * jnp.cos(z), -jnp.cos(x) * jnp.sin(y) * jnp.cos(z), 0 * x]
)


def energy(start: jax.Array) -> jax.Array:
    return 0.5 * (exponax.repeat(stepper, steps)(start) ** 2).sum(0).mean()


compiled = jax.jit(jax.grad(energy) if settings["gradient"] else energy)


def run() -> None:
    jax.block_until_ready(compiled(start))


run()
about = {
    "name": f"exponax {exponax.__version__}, single (jax {jax.__version__})",
    "energy": float(jax.jit(energy)(start)),
}
serve(line, about, lambda: timed(1, run))
