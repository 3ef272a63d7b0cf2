"""JaxPM displaces particles by a given density contrast, and moves them to another scale factor by
its particle mesh.

`compare_jaxpm.py` calls this script with a Python that has jaxpm (0.1.6): jaxpm_particles.py
GIVEN.npz FOUND.npz. So that both programs solve the same equations, the script replaces three
things in JaxPM: gradients are spectral, not differences; the window of the assignment is divided
out; and the second-order growth factor is 3/7 D^2 early. JaxPM's factor, normalised at a = 1, is
0.8 % smaller for Omega_m = 0.3."""

import sys
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import jax_cosmo as jc  # noqa: E402
import jaxpm.pm as pm  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental.ode import odeint  # noqa: E402

given = np.load(sys.argv[1])
contrast = jnp.asarray(given["contrast"])
n = given["contrast"].shape[0]
start = float(given["start"])
stop = float(given["stop"])
matter = float(given["matter"])


def derivative(kvec, direction, order=1):
    k = kvec[direction]
    return 1j * jnp.where(abs(abs(k) - jnp.pi) < 1e-9, 0, k)


pm.gradient_kernel = derivative
cosmo = jc.Cosmology(
    Omega_c=matter - 0.05, Omega_b=0.05, h=0.7, n_s=0.96, sigma8=0.8, Omega_k=0.0, w0=-1.0, wa=0.0
)
pm.growth_factor_second = lambda cosmo, a: jnp.atleast_1d(jnp.asarray(given["second"]))
displacement, momentum, _ = pm.lpt(cosmo, contrast, a=start, order=2)
lattice = jnp.stack(jnp.meshgrid(*[jnp.arange(n, dtype=jnp.float64)] * 3, indexing="ij"), -1)
position = lattice + 0.5 + displacement

plain = pm.invlaplace_kernel


def sharp(kvec, fd=False):
    window = 1.0
    for k in kvec:
        window = window * jnp.sinc(k / (2 * jnp.pi)) ** 2
    return plain(kvec, fd) / window**2


pm.invlaplace_kernel = sharp
moved = pm.make_ode_fn((n, n, n))
times = jnp.array([start, stop])
final = odeint(moved, (position, momentum), times, cosmo, rtol=1e-6, atol=1e-6)[0][-1]

# The timed step: one evaluation of the rates of positions and momenta, with one force.
force = jax.jit(lambda x, v: moved((x, v), stop, cosmo))
jax.block_until_ready(force(final, momentum))
begun = time.perf_counter()
jax.block_until_ready(force(final, momentum))
np.savez(
    sys.argv[2],
    displaced=np.asarray(position),
    moved=np.asarray(final),
    seconds=time.perf_counter() - begun,
)
