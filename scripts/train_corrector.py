#!/usr/bin/env python
"""Train a network that corrects a coarse flow in a plane between steps, judge it on the test runs,
and draw it.

    python scripts/train_corrector.py CONFIG DATASET OUTPUT [--frames 1,4] [--updates 2000,200] ... [key=value ...]

CONFIG is the coarse run, and the data set of `simulator dataset` holds the flow on a finer grid.
From frame to frame the coarse flow takes its steps, then the network adds the curl of a stream
function. The loss is the squared error of the velocity after every frame over that without a
correction, where the latter counts at least as much as its mean over the batch. A training that was
stopped or killed continues with the same numbers. OUTPUT/corrector.png compares runs over all frames of the test
runs, OUTPUT/arrays.npz are the weights."""

import io
import sys
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from train_closure import ended, fit, fixed_step, options, read, stages_of

from simulator import Simulation, load_config
from simulator.files import replace_file

KERNEL = 5
CHANNELS = 24
LAYERS = 5


def weights():
    random = np.random.default_rng(0)
    sizes = [4, *[CHANNELS] * (LAYERS - 1), 2]
    layers = []
    for into, out in pairwise(sizes):
        size = (2.0 if out == CHANNELS else 0.01) / (KERNEL**2 * into)
        w = random.normal(0, size**0.5, (KERNEL, KERNEL, into, out))
        layers.append({"w": jnp.asarray(w, jnp.float32), "b": jnp.zeros(out, jnp.float32)})
    return layers


def convolved(x, kernel):
    """A periodic convolution of x (x, y, channel); Fourier transforms are eight times as fast as
    loops."""
    shape = x.shape[:2]
    reach = KERNEL // 2
    padded = jnp.zeros((*shape, *kernel.shape[2:])).at[:KERNEL, :KERNEL].set(kernel)
    turned = partial(jnp.fft.rfft2, axes=(0, 1))
    modes = jnp.einsum(
        "xyi,xyio->xyo", turned(x), turned(jnp.roll(padded, (-reach, -reach), (0, 1)))
    )
    return jnp.fft.irfft2(modes, shape, (0, 1))


def correction(layers, velocity):
    """The change of a velocity (2, x, y) in a box of 2 pi: the curl of a stream function, from a
    stress."""
    n, m = velocity.shape[1:]
    kx = jnp.fft.fftfreq(n, 1 / n)[:, None]
    ky = jnp.fft.rfftfreq(m, 1 / m)
    square = kx**2 + ky**2
    u, v = jnp.fft.rfft2(velocity)
    vorticity = 1j * (kx * v - ky * u)
    psi = vorticity / jnp.maximum(square, 1)
    parts = [
        vorticity / 3,
        2 * kx * ky * psi / 3,
        (ky**2 - kx**2) * psi / 3,
        square * vorticity / 100,
    ]
    x = jnp.stack([jnp.fft.irfft2(part, (n, m)) for part in parts], -1)
    for layer in layers[:-1]:
        x = jax.nn.silu(convolved(x, layer["w"]) + layer["b"])
    shear, normal = jnp.moveaxis(jnp.fft.rfft2(convolved(x, layers[-1]["w"]), axes=(0, 1)), -1, 0)
    psi = 1e-3 * (kx * ky * shear + (ky**2 - kx**2) * normal) / jnp.maximum(square, 1)
    return jnp.fft.irfft2(jnp.stack([1j * ky * psi, -1j * kx * psi]), (n, m)).astype(velocity.dtype)


def unrolled(simulation, steps, dt):
    """(layers or None, frames) -> the errors |u - target|^2 / |target|^2 and u after the first of
    `frames`."""
    square = lambda u: simulation.transform.layout.inner(u, u).sum()  # noqa: E731

    def interval(layers, u):
        state = simulation.begin({"velocity": u})
        u = jax.lax.scan(lambda state, _: (simulation.step(state, dt), None), state, None, steps)[
            0
        ].fields["velocity"]
        if layers is None:
            return u
        change = correction(
            layers, simulation.transform.inverse(u).reshape(2, *simulation.config.grid.shape)
        )
        return u + simulation.state_from({"velocity": change}).fields["velocity"]

    def run(layers, frames):
        def frame(u, target):
            u = jax.checkpoint(interval)(layers, u)
            return u, (square(u - target) / square(target), u)

        return jax.lax.scan(frame, frames[0], frames[1:])[1]

    return run


def images(simulation, data):
    """The trajectories and their seven images under reflections of x and y and their exchange."""

    def reflected(u, axis):
        sign = jnp.array([-1.0, 1.0] if axis == -2 else [1.0, -1.0], u.dtype)
        return jnp.roll(jnp.flip(u, axis), 1, axis) * sign[:, None, None]

    def all_of(u):
        u = simulation.transform.inverse(u).reshape(2, *simulation.config.grid.shape)
        found = [u, jnp.swapaxes(u[::-1], -1, -2)]
        for axis in (-2, -1):
            found += [reflected(u, axis) for u in found]
        return jnp.stack([simulation.state_from({"velocity": u}).fields["velocity"] for u in found])

    return jnp.concatenate(
        list(jax.jit(lambda data: jnp.moveaxis(jax.lax.map(jax.vmap(all_of), data), 2, 0))(data))
    )


def main():
    given = options(__doc__, frames="1,4", updates="2000,200", batch=16, rate=2e-3)
    simulation = Simulation(load_config(given.config, given.overrides), report=lambda _: None)
    apart, data = read(simulation, given.dataset, "train", given.skip)
    dt = fixed_step(simulation)
    run = unrolled(simulation, round(apart / dt), dt)

    def loss(layers, windows):
        without = jax.lax.stop_gradient(jax.vmap(run, (None, 0))(None, windows)[0])
        errors, _ = jax.vmap(run, (None, 0))(layers, windows)
        return (errors / (without + without.mean(0))).mean()

    total = len(stages_of(given))
    rate = optax.warmup_cosine_decay_schedule(given.rate / 10, given.rate, total // 20, total)
    layers, losses = fit(given, loss, weights(), images(simulation, data), rate)
    _, tests = read(simulation, given.dataset, "test", given.skip)
    every = jax.jit(jax.vmap(run, (None, 0)))
    found = {"without": every(None, tests), "corrected": every(layers, tests)}
    errors = {name: np.sqrt(np.asarray(squares)) for name, (squares, _) in found.items()}
    for name, error in errors.items():
        print(
            f"{name:10} error of the velocity {error.mean():.4f} in the mean, {error[:, -1].mean():.4f} at the end"
        )
    without, corrected = errors.values()
    geometric = np.exp(np.log(without / corrected).mean())
    print(
        f"reduced by {without.mean() / corrected.mean():.2f} in the mean, {geometric:.2f} geometrically"
    )
    last = {name: u[0, -1] for name, (_, u) in found.items()} | {"reference": tests[0, -1]}
    curl = simulation.field_program("vorticity")
    vorticity = {
        name: np.asarray(curl(simulation.begin({"velocity": u}))) for name, u in last.items()
    }
    draw(given.output, losses, apart, errors, vorticity)


def draw(folder, losses, apart, errors, vorticity):
    import matplotlib

    from simulator.plugins.pictures.style import figure, rc

    with matplotlib.rc_context(rc()):
        result = figure(9.6, 6.4)
        grid = result.add_gridspec(
            2, 6, wspace=0.9, hspace=0.35, left=0.08, right=0.98, top=0.94, bottom=0.06
        )
        left = result.add_subplot(grid[0, :3])
        right = result.add_subplot(grid[0, 3:])
        left.semilogy(losses, linewidth=0.5)
        left.set(title="loss", xlabel="update")
        for name, error in errors.items():
            right.semilogy(apart * np.arange(1, 1 + error.shape[1]), error.mean(0), label=name)
        right.set(title="error of the velocity", xlabel="time")
        right.legend()
        largest = abs(vorticity["reference"]).max()
        for i, (name, values) in enumerate(vorticity.items()):
            axes = result.add_subplot(grid[1, 2 * i : 2 * i + 2])
            axes.imshow(values.T, origin="lower", cmap="RdBu_r", vmin=-largest, vmax=largest)
            axes.set(title=f"vorticity, {name}", xticks=[], yticks=[])
        picture = io.BytesIO()
        result.savefig(picture, dpi=144)
    replace_file(folder / "corrector.png", picture.getvalue())


if __name__ == "__main__":
    sys.exit(ended(main))
