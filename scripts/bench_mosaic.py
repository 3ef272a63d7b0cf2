"""The protocol of Mosaic (pasteurlabs/mosaic, problem navier_stokes_3d_grid) for this program and
for exponax:

python scripts/bench_mosaic.py fd | horizon | recovery | cost | drag [--double] [--peer PYTHON] [--sizes 16,32]

fd: gradients of sum(u^2) after 10 steps at 16^3 against central differences. horizon: the gradient
after 40 ... 10240 steps at 20^3. recovery: a random start at 16^3 from the state after 100 steps,
L-BFGS from zero. cost: 50 steps at --sizes (16^3 to 64^3) and their gradient. PYTHON is an environment's with
exponax and optax, which then runs after this program. Starts, losses and lengths are Mosaic's; its
noise comes from other random numbers.

drag: problem navier_stokes_grid, optimization/drag_opt. 250 steps of Adam on the 32 values of an
inflow that lessen the drag of a cylinder at Re = 20 on 32^2 points. exponax has no obstacles."""

import argparse
import json
import resource
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

TINY = 1e-30


def ours(n, nu, dt, precision, dealias="two_thirds"):
    """(values, number of steps) -> values, (3, x, y, z): RK2, which keeps states as `differentiate`
    does."""
    from simulator import Simulation, differentiate
    from simulator.config.load import parse_config

    text = (
        f"model: {{kind: navier_stokes, viscosity: {nu}}}\ngrid: {{shape: [{n}, {n}, {n}], dealias: {dealias}}}\n"
        f"initial: {{kind: taylor_green}}\ntime: {{stop: 1, dt: {dt}, integrator: rk2}}\nprecision: {precision}\n"
        "devices: {platform: cpu, count: 1}\n"
    )
    simulation = Simulation(parse_config(text, "mosaic.yaml"), report=lambda line: None)

    def run(u, steps):
        gradient = differentiate(simulation, lambda state: jnp.zeros(()), steps=steps, dt=dt)
        (state,) = gradient.states({}, simulation.state_from({"velocity": u}))
        return simulation.transform.inverse(state.fields["velocity"])

    return run


def exponaxs(n, nu, dt, precision, dealias=None):
    """The same with exponax's ETDRK2, which keeps every step, as Mosaic has it."""
    import exponax  # pyright: ignore[reportMissingImports]

    jax.config.update("jax_enable_x64", precision == "double")
    stepper = exponax.stepper.NavierStokesVelocity(3, 2 * np.pi, n, dt, diffusivity=nu, order=2)
    return lambda u, steps: exponax.repeat(stepper, steps)(u)


def taylor_green(n):
    x, y, z = np.meshgrid(*[np.arange(n) * 2 * np.pi / n] * 3, indexing="ij")
    return np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * z])


def ring(n, seed):
    """A random solenoidal velocity with the envelope exp(-(|k| - 2)^2 / 2) of its potential,
    largest speed 1."""
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 3, indexing="ij"))
    real, imaginary = np.random.default_rng(seed).standard_normal((2, 3, n, n, n))
    potential = (real + 1j * imaginary) * np.exp(-0.5 * (np.sqrt((k**2).sum(0)) - 2) ** 2)
    u = np.fft.ifftn(1j * np.cross(k, potential, axis=0), axes=(1, 2, 3)).real
    return u / np.sqrt((u**2).sum(0)).max()


def solenoidal(u):
    n = u.shape[-1]
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 3, indexing="ij"))
    modes = jnp.fft.fftn(u, axes=(1, 2, 3))
    square = np.maximum((k**2).sum(0), 1)
    return jnp.fft.ifftn(modes - k * (k * modes).sum(0) / square, axes=(1, 2, 3)).real.astype(
        u.dtype
    )


def fd(solver, precision):
    run = solver(16, 0.001, 0.05, precision)
    u = taylor_green(16)
    energy = jax.jit(lambda u: jnp.sum(run(u, 10) ** 2))
    slopes = jax.jit(jax.grad(energy))(jnp.asarray(u))
    found = {}
    ways = np.random.default_rng(0).standard_normal((10, *u.shape))
    ways /= np.sqrt((ways**2).sum((1, 2, 3, 4), keepdims=True))
    for relative in (5, 1, 1e-1, 1e-2, 1e-3, 1e-4):
        eps = relative * np.sqrt((u**2).mean())
        central = np.array(
            [float(energy(u + eps * v) - energy(u - eps * v)) / (2 * eps) for v in ways]
        )
        along = np.array([float(jnp.vdot(slopes, v)) for v in ways])
        found[relative] = float(np.median(abs(central - along) / (abs(central) + TINY)))
    return {"median relative error by eps": found, "best": min(found.values())}


def horizon(solver, precision):
    run = solver(20, 0.001, 0.05, precision)
    found = {}
    for steps in (40, 640, 10240):
        compiled = jax.jit(jax.grad(lambda u, n=steps: jnp.sum(run(u, n) ** 2))).lower(
            jnp.asarray(taylor_green(20))
        )
        compiled = compiled.compile()
        began = time.perf_counter()
        slopes = jax.block_until_ready(compiled(jnp.asarray(taylor_green(20))))
        found[steps] = {
            "finite": bool(jnp.isfinite(slopes).all()),
            "norm": float(jnp.linalg.norm(slopes)),
            "seconds": time.perf_counter() - began,
            "program MB": cast(Any, compiled.memory_analysis()).temp_size_in_bytes / 1e6,
            "process MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }
        print(steps, found[steps], flush=True)
    return found


def recovery(solver, precision):
    run = solver(16, 0.01, 0.02, precision, "spherical")
    errors = []
    for seed in range(3):
        true = jnp.asarray(ring(16, seed))
        target = jax.jit(lambda u: run(u, 100))(true)
        method = optax.lbfgs()

        def loss(u, target=target):
            return jnp.mean((run(u, 100) - target) ** 2)

        @jax.jit
        def moved(u, memory, loss=loss, method=method):
            value, slopes = jax.value_and_grad(loss)(u)
            slopes = solenoidal(slopes)
            step, memory = method.update(slopes, memory, u, value=value, grad=slopes, value_fn=loss)
            return optax.apply_updates(u, step), memory

        u = jnp.zeros_like(true)
        memory = method.init(u)
        for _ in range(100):
            u, memory = moved(u, memory)
        errors.append(float(jnp.linalg.norm(u - true) / jnp.linalg.norm(true)))
        print(seed, errors[-1], flush=True)
    return {"relative error of the start": errors, "mean": float(np.mean(errors))}


def cost(solver, precision, sizes):
    found = {}
    for n in sizes:
        run = solver(n, 0.01, 0.01, precision)
        u = jnp.asarray(taylor_green(n))
        forward = jax.jit(lambda u, run=run: run(u, 50))
        backward = jax.jit(jax.grad(lambda u, run=run: jnp.sum(run(u, 50) ** 2)))
        seconds = []
        for call in (forward, backward):
            jax.block_until_ready(call(u))
            times = []
            for _ in range(3):
                began = time.perf_counter()
                jax.block_until_ready(call(u))
                times.append(time.perf_counter() - began)
            seconds.append(min(times))
        found[n] = {"forward s": seconds[0], "gradient s": seconds[1]}
    return found


SPEED = 0.5  # Of the drag task: the mean inflow.
INFLOW = """
import jax.numpy as jnp

def inflow(x, y, t, profile):
    cell = jnp.round(y * len(profile)).astype(int) % len(profile)
    return sum(jnp.where(cell == i, value, 0) for i, value in enumerate(profile)), 0
"""
TUNNEL = """
model: {{kind: navier_stokes, viscosity: 0.0025}}
grid: {{shape: [32, 32], box: [1, 1]}}
initial: {{kind: uniform, velocity: [{speed}, 0]}}
terms:
  - name: cylinder
    kind: relax
    target: {{velocity: body}}
    mask: {{kind: cylinder, center: [0.5, 0.5], radius: 0.05}}
    forces: true
  - name: inflow
    kind: relax
    target: {{velocity: {{path: {path}, function: inflow, parameters: {{profile: {profile}}}}}}}
    relaxation_time: 0.02
    mask: {{kind: box, center: [0, 0.5], size: [0.0625, null]}}
time: {{stop: 4, dt: 0.02}}
precision: {precision}
devices: {{platform: cpu, count: 1}}
"""


def drag_after(precision):
    """profile (32) -> the drag of the cylinder, a mean over the last 100 of 200 steps."""
    from simulator import Simulation
    from simulator.config.load import parse_config

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inflow.py"
        path.write_text(INFLOW)
        text = TUNNEL.format(speed=SPEED, path=path, profile=[SPEED] * 32, precision=precision)
        simulation = Simulation(parse_config(text, "mosaic.yaml"), report=lambda line: None)

    def drag(profile):
        varied = simulation.varied({"terms.1.target.velocity.parameters.profile": profile})

        @jax.checkpoint
        def step(state, _):
            state = varied.step(state, 0.02)
            return state, varied.diagnostics(state)["force_cylinder_x"]

        _, forces = jax.lax.scan(step, simulation.state, None, 200)
        return forces[100:].mean()

    return drag


def drag(solver, precision):
    """Adam as in Mosaic: the rate 5e-4, at most 250 steps, clipped to [0, 3 U]."""
    if solver is exponaxs:
        return "exponax has no obstacles"
    force = drag_after(precision)

    def loss(profile):
        value = force(profile)
        return abs(value) + 50 * (profile.mean() - SPEED) ** 2, value

    method = optax.adam(5e-4)

    @jax.jit
    def moved(profile, memory):
        (_, value), slopes = jax.value_and_grad(loss, has_aux=True)(profile)
        step, memory = method.update(slopes, memory)
        return jnp.clip(cast(Any, optax.apply_updates(profile, step)), 0, 3 * SPEED), memory, value

    profile = jnp.full(32, SPEED, jnp.float64 if precision == "double" else jnp.float32)
    memory = method.init(profile)
    began = time.perf_counter()
    drags = []
    for _ in range(250):
        profile, memory, value = moved(profile, memory)
        drags.append(float(value))
    reduced = 100 * (1 - drags[-1] / drags[0])
    seconds = time.perf_counter() - began
    ends = {"first drag": drags[0], "last drag": drags[-1], "reduced by %": reduced}
    return {**ends, "mean inflow": float(profile.mean()), "seconds with compilation": seconds}


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=("fd", "horizon", "recovery", "cost", "drag"))
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--sizes", default="16,32,48,64", help="of cost: points along an axis")
    parser.add_argument("--exponax", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    sizes = [int(n) for n in given.sizes.split(",")]
    tasks = {"fd": fd, "horizon": horizon, "recovery": recovery, "drag": drag}
    tasks["cost"] = partial(cost, sizes=sizes)
    solver = exponaxs if given.exponax else ours
    precision = "double" if given.double else "single"
    result = tasks[given.task](solver, precision)
    print("exponax" if given.exponax else "simulator", json.dumps(result, indent=1))
    if given.peer:
        subprocess.run(
            [
                *[given.peer, __file__, given.task, "--exponax", "--sizes", given.sizes],
                *["--double"] * given.double,
            ],
            check=True,
        )


if __name__ == "__main__":
    main()
