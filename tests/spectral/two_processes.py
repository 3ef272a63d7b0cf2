"""One of two processes that transform together over loopback; prints what it finds as JSON.

Arguments: process id, port.
"""

import json
import sys

import jax

process, port = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, initialization_timeout=60)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from simulator.spectral import Grid, Local, make_transform  # noqa: E402
from simulator.spectral.collectives import collectives  # noqa: E402
from simulator.spectral.random import gaussian  # noqa: E402


def cross(values, points, parameters):
    a, b = values["a"], values["b"]
    return Local({"c": jnp.cross(a, b, axis=0)}, {"largest": a[0]}, {"mean": (a * b).sum(0)})


found = {}
for backend, decomposition in (("custom_partitioning", "z_y_x"), ("jaxdecomp", "slab")):
    t = make_transform(Grid((8, 12, 16)), jax.devices(), backend=backend, decomposition=decomposition)

    def term(seed, t=t):
        u = gaussian(t.layout, seed, 3)
        back = t.forward(t.inverse(u))
        result = t.evaluate({"a": u, "b": back}, cross)
        energy = t.layout.inner(result.products["c"], u).sum()
        difference = jnp.abs(back - u).max()
        return energy, result.maxima["largest"], result.means["mean"], difference

    replicated = jax.sharding.NamedSharding(t.layout.mesh, jax.sharding.PartitionSpec())
    program = jax.jit(term, out_shardings=replicated).lower(np.int64(1)).compile()
    counts = {kind: c.count for kind, c in collectives(program).items() if c.count and kind != "all-reduce"}
    values = [float(v) for v in program(np.int64(1))]
    found[t.name.removesuffix("_native")] = {"values": values, "collectives": counts}
print(json.dumps(found), flush=True)
jax.distributed.shutdown()
