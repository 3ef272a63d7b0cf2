#!/usr/bin/env python3
"""Compares the cost of a `schrodinger_poisson` step with the cost of the step that other codes
take, in one run.

    .venv/bin/python scripts/bench_gravity.py [--shape 128] [--devices 2] [--precision single] [--rounds 9]

The other codes' step is kick-drift-kick on the values of the wave function with four of jaxdecomp's
complex transforms, two for psi and two for the potential, as in Jaxion. Both steps run in a loop on
the device and alternate; the result is the ratio of the medians. The parts of a step are timed
separately, and their shares printed."""

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.cluster import discover
from simulator.cluster.start import start
from simulator.physics.models import StateMemory
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping.splitting import DriftKickDrift
from simulator.plugins.gravity.schrodinger_poisson import (
    SchrodingerPoisson,
    SchrodingerPoissonSettings,
)
from simulator.simulation.advance import beginning
from simulator.simulation.steps import step_of
from simulator.simulation.system import System
from simulator.spectral import Grid, make_transform

DT = 1e-4


def peers_step(grid: Grid, devices: Any, dtype: Any) -> tuple[Callable, Callable]:
    """The step (psi, potential) -> (psi, potential) on values, and a function that places initial
    values."""
    t = make_transform(grid, devices, dtype, backend="jaxdecomp", real=False, every=True)
    complex_type = np.result_type(dtype, np.complex64)

    def potential(psi):
        k2 = t.layout.k_squared(dtype)
        source = t.forward(4 * math.pi * abs(psi) ** 2 + 0j)
        return t.inverse(jnp.where(k2 == 0, 0, -source / jnp.where(k2 == 0, 1, k2))).real

    def step(psi, v):
        psi = jnp.exp(-0.5j * DT * v).astype(complex_type) * psi
        hat = jnp.exp(-0.5j * DT * t.layout.k_squared(dtype)).astype(complex_type) * t.forward(psi)
        psi = t.inverse(hat)
        v = potential(psi)
        return jnp.exp(-0.5j * DT * v).astype(complex_type) * psi, v

    return step, lambda values: (
        jax.device_put(values.astype(complex_type), t.physical.sharding()),
        jax.device_put(np.zeros(values.shape, dtype), t.physical.sharding()),
    )


def timed(calls: dict[str, tuple[Callable, tuple]], rounds: int) -> dict[str, float]:
    """Executes the calls in turns; returns the median duration of each in seconds."""
    durations: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 2):
        for name, (call, arguments) in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call(*arguments))
            if i >= 2:  # the first two rounds compile and warm up
                durations[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in durations.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", type=int, default=128)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="steps in each timed call")
    options = parser.parse_args()
    cluster = start(discover(os.environ), platform="cpu", count=options.devices)
    grid = Grid((options.shape,) * 3, dealias="none")
    dtype = np.dtype(np.float32 if options.precision == "single" else np.float64)

    complex_, real = (
        make_transform(grid, cluster.devices, dtype, real=r, every=True) for r in (False, True)
    )
    model = SchrodingerPoisson(SchrodingerPoissonSettings(), complex_, real)
    rng = np.random.default_rng(0)
    values = 1 + 0.1 * (rng.standard_normal(grid.shape) + 1j * rng.standard_normal(grid.shape))
    placed = jax.device_put(
        values.astype(np.result_type(dtype, np.complex64)), complex_.physical.sharding()
    )
    psi = jax.jit(complex_.forward)(placed)
    state = jax.jit(lambda f: beginning(f, StateMemory.of_model(model.memory(f, jnp.float64(0)))))(
        {"psi": psi}
    )
    ours = step_of(System(model, None, Swarm((), model)), DriftKickDrift())
    theirs, place = peers_step(grid, cluster.devices, dtype)

    def loop(step: Callable) -> Callable:
        return jax.jit(lambda *carry: lax.fori_loop(0, options.steps, lambda i, c: step(*c), carry))

    density = jax.device_put(abs(values).astype(dtype) ** 2, real.physical.sharding())
    duration = jnp.float64(DT)
    calls = {
        "ours": (loop(lambda s: (ours(s, DT),)), (state,)),
        "theirs": (loop(theirs), place(values)),
        "psi transforms": (jax.jit(lambda p: complex_.forward(complex_.inverse(p))), (psi,)),
        "Poisson solve": (
            jax.jit(lambda d: real.inverse(model.potential(real.forward(d)))),
            (density,),
        ),
        "drifts": (
            jax.jit(lambda p: model.drift(model.drift({"psi": p}, duration), duration)),
            (psi,),
        ),
    }
    medians = timed(calls, options.rounds)
    step = medians["ours"] / options.steps
    other = medians["theirs"] / options.steps
    print(
        f"{options.shape}^3, {options.precision} precision, {options.devices} devices, {os.cpu_count()} cores"
    )
    print(f"schrodinger_poisson, drift_kick_drift       {1e3 * step:8.1f} ms per step")
    print(f"the same with jaxdecomp's complex transforms {1e3 * other:7.1f} ms per step")
    print(f"ratio {step / other:.2f}")
    rest = step
    for name in ("psi transforms", "Poisson solve", "drifts"):
        rest -= medians[name]
        print(f"  {name:16} {1e3 * medians[name]:8.1f} ms  {medians[name] / step:5.0%}")
    print(f"  {'kick and rest':16} {1e3 * rest:8.1f} ms  {rest / step:5.0%}")


if __name__ == "__main__":
    main()
