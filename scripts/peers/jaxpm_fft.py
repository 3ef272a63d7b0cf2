"""The forces of JaxPM's particle mesh with its own transforms and with `DistributedFFT`, in turns.

    PYTHONPATH=. PYTHON-WITH-JAXPM scripts/peers/jaxpm_fft.py [POINTS] [ROUNDS]

prints the medians for as many particles as points (128^3) in single precision on one device with
all cores, of the forces and of their part from density to field, the memory that each program
allocates, the largest difference of the forces, and the ratio that a transform would reach that takes
no time. JaxPM 0.1.6 runs on one device only with
versions of JAX that this program supports."""

import sys
import time
from statistics import median

import jax
import jax.numpy as jnp
import jaxpm.pm as pm

from simulator.spectral import DistributedFFT

n = int(sys.argv[1]) if len(sys.argv) > 1 else 128
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
along = jnp.arange(n, dtype=jnp.float32)
lattice = jnp.stack(jnp.meshgrid(along, along, along, indexing="ij"), -1)
position = lattice + 1.5 * jnp.sin(2 * jnp.pi * lattice / n)
density = pm.cic_paint(jnp.zeros((n, n, n)), position)


def forces(position):
    return pm.pm_forces(position, mesh_shape=(n, n, n))


def field(density):
    modes = pm.fft3d(density)
    k = pm.fftk(modes)
    potential = modes * pm.invlaplace_kernel(k)
    return [pm.ifft3d(-pm.gradient_kernel(k, axis) * potential) for axis in range(3)]


def programs():
    return {
        "forces": (jax.jit(lambda x: forces(x)).lower(position).compile(), position),
        "density to field": (jax.jit(lambda x: field(x)).lower(density).compile(), density),
    }


own = programs()
fft = DistributedFFT((n, n, n), box=(n, n, n))
pm.fft3d = fft.forward
pm.ifft3d = fft.inverse
pm.fftk = lambda modes: fft.wavenumbers(nyquist=True)
replaced = programs()
medians = {}
for what, (program, argument) in own.items():
    times = {"own": [], "DistributedFFT": []}
    contenders = {"own": program, "DistributedFFT": replaced[what][0]}
    results = [jnp.stack(list(run(argument))) for run in contenders.values()]
    for _ in range(rounds):
        for name, run in contenders.items():
            begun = time.perf_counter()
            jax.block_until_ready(run(argument))
            times[name].append(time.perf_counter() - begun)
    for name, run in contenders.items():
        memory = run.memory_analysis().temp_size_in_bytes / 2**20
        print(f"{what:18} {name:16} {1e3 * median(times[name]):6.0f} ms {memory:6.0f} MiB")
    medians[what] = median(times["own"])
    ratio = median(times["DistributedFFT"]) / medians[what]
    difference = float(abs(results[0] - results[1]).max() / abs(results[0]).max())
    print(f"{what:18} ratio {ratio:.2f}, difference {difference:.1e}")
free = 1 - medians["density to field"] / medians["forces"]
print(f"forces             ratio {free:.2f} with a transform that takes no time")
