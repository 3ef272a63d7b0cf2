"""A flow with a closure of arrays, which a training varies."""

from pathlib import Path

from run_support import simulation

from simulator import Simulation

CLOSURE = """
import numpy as np
def weights():
    return {"layers": [{"w": np.full((3, 1), 0.5)}, {"w": np.full((1, 3), 0.1)}]}
def stress(velocity, gradient, width, layers):
    import jax.numpy as jnp
    axes, x = range(len(velocity)), (gradient**2).sum((0, 1))[None]
    for layer in layers:
        x = jnp.tanh(jnp.tensordot(layer["w"], x, 1))
    pairs = [*((i, i) for i in axes), *((i, j) for i in axes for j in axes if i < j)]
    return [-x[0] * (gradient[i, j] + gradient[j, i]) for i, j in pairs]
"""
KEY = "model.subgrid.arrays"


def closed(folder: Path, shape: str, count: int, *overrides: str) -> Simulation:
    (folder / "closure.py").write_text(CLOSURE)
    own = f"path: {folder / 'closure.py'}, function: stress, arrays_function: weights"
    (folder / "run.yaml").write_text(
        f"{{model: {{kind: navier_stokes, viscosity: 0.01, subgrid: {{kind: python, {own}}}}},"
        f" grid: {{shape: {shape}}}, initial: {{kind: random, peak: 2, energy: 1}},"
        f" time: {{stop: 1, integrator: rk2}}, devices: {{platform: cpu}}}}"
    )
    return simulation(folder / "run.yaml", f"devices.count={count}", *overrides)
