"""Navier-Stokes RK4 by the method published for JAX: complex transforms of whole fields, back to
the input layout.

Fields are complex, sharded as slabs along y; a transform is z (local), all-to-all, x and y (local),
all-to-all back (P. Mocz's distributed FFT in JAX, and the solvers that use it). Velocity and
vorticity are transformed to physical space, and their product is transformed back, dealiased and
projected; viscosity is part of the right-hand side."""

import os

from turns import Line, problem, serve, timed

line = Line()
settings = problem()

import jax  # noqa: E402

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", settings["devices"])
jax.config.update("jax_enable_x64", settings["precision"] == "double")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402
from published_transform import published_transform  # noqa: E402

n = settings["shape"][0]
steps = settings["steps"]
nu = settings["viscosity"]
dt = settings["dt"]
mesh = Mesh(np.asarray(jax.devices()), ("slab",), axis_types=(AxisType.Auto,))
forward, inverse, sharding = published_transform(mesh)

k = np.fft.fftfreq(n, 1 / n)
kx, ky, kz = (k.reshape([-1 if i == axis else 1 for i in range(3)]) for axis in range(3))


def wavenumbers(dtype):
    k_vector = jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(a, dtype) for a in (kx, ky, kz))))
    k2 = (k_vector**2).sum(0)
    keep = (abs(k_vector) <= (n - 1) // 3).all(0)
    return k_vector, k2, keep


def tendency(u, k_vector, k2, keep):
    velocity = inverse(u).real
    vorticity = inverse(1j * jnp.cross(k_vector, u, axis=0)).real
    force = forward(jnp.cross(velocity, vorticity, axis=0).astype(u.dtype)) * keep
    force = force - k_vector * (k_vector * force).sum(0) / jnp.where(k2 == 0, 1, k2)
    return force - nu * k2 * u


def step(u, *waves):
    a = tendency(u, *waves)
    b = tendency(u + dt / 2 * a, *waves)
    c = tendency(u + dt / 2 * b, *waves)
    d = tendency(u + dt * c, *waves)
    return u + dt / 6 * (a + 2 * b + 2 * c + d)


@jax.jit
def advance(u, waves):
    return lax.fori_loop(0, steps, lambda _, v: step(v, *waves), u)


dtype = jnp.float64 if settings["precision"] == "double" else jnp.float32
kind = jnp.result_type(dtype, jnp.complex64)


def start():
    x = jnp.arange(n, dtype=dtype) * (2 * np.pi / n)
    x, y, z = (x.reshape([-1 if i == axis else 1 for i in range(3)]) for axis in range(3))
    u = jnp.sin(x) * jnp.cos(y) * jnp.cos(z), -jnp.cos(x) * jnp.sin(y) * jnp.cos(z), 0 * (x + y + z)
    return jnp.stack(u).astype(kind)


u = jax.jit(lambda: forward(start()), out_shardings=sharding)()
scalar = NamedSharding(mesh, PartitionSpec(None, "slab", None))
waves = jax.jit(lambda: wavenumbers(dtype), out_shardings=(sharding, scalar, scalar))()
u = advance(u, waves)
energy = float(jax.jit(lambda u: 0.5 * (inverse(u).real ** 2).sum(0).mean())(u))


def run() -> None:
    global u
    u = jax.block_until_ready(advance(u, waves))


name = f"the published JAX way, {settings['precision']}, {settings['devices']} devices (jax {jax.__version__})"
serve(line, {"name": name, "energy": energy, "pid": os.getpid()}, lambda: timed(steps, run))
