#!/usr/bin/env python
"""Train the arrays of a python closure through the solver, on the velocities of a data set of
`simulator dataset`.

    python scripts/train_closure.py CONFIG DATASET OUTPUT [--frames 1,2,4,8] [--updates 100] ... [key.path=value ...]

CONFIG is the coarse run with its closure. The start and the targets are frames of the data set,
restricted to the modes of the coarse grid. The loss is the mean over the frames of |u - target|^2 /
|target|^2, plus `--spectrum` times the mean over the shells of the squared logarithm of the ratio
of the energies, averaged over the batch. The stages of the curriculum unroll more and more frames.
OUTPUT/arrays.npz are the trained arrays for `model.subgrid.arrays`; `judge_closure.py` draws them.
A training that was stopped (Ctrl-C, SIGTERM; exit code 3) or killed continues with the same numbers
by the same command."""

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax

from simulator import Simulation, load_config
from simulator.errors import UserError
from simulator.files import ending, remove_temporaries, replace_file
from simulator.physics.models import outputs
from simulator.physics.models.closures import named, varied_arrays
from simulator.run.signals import SignalFlags

KEY = "model.subgrid.arrays"


def coarse(values, shape):
    """Values (..., x, y, z) on the points of a coarser grid, by their Fourier modes."""
    axes = tuple(range(-len(shape), 0))
    fine = values.shape[-len(shape) :]
    modes = np.fft.fftshift(np.fft.fftn(values, axes=axes), axes)
    kept = modes[
        (..., *(slice((m - n) // 2, (m - n) // 2 + n) for m, n in zip(fine, shape, strict=True)))
    ]
    return (
        np.fft.ifftn(np.fft.ifftshift(kept, axes), axes=axes).real * np.prod(shape) / np.prod(fine)
    )


def read(simulation, dataset, split, skip=0):
    """The time between frames, and the velocity's coefficients (trajectory, frame, ...) on the
    coarse grid."""
    encode = jax.jit(lambda u: simulation.state_from({"velocity": u}).fields["velocity"])
    runs: list[jax.Array] = []
    times = np.zeros(2)
    for path in sorted((Path(dataset) / "data" / split).glob("*.hdf5")):
        with h5py.File(path) as file:
            times = cast(h5py.Dataset, file["dimensions/time"])[...]
            stored = cast(h5py.Dataset, file["t1_fields/velocity"])
            frames = (
                (np.moveaxis(stored[i, j], -1, 0) for j in range(skip, len(times)))
                for i in range(len(stored))
            )
            runs += [
                jnp.stack([encode(coarse(u, simulation.config.grid.shape)) for u in run])
                for run in frames
            ]
    return float(times[1] - times[0]), jnp.stack(runs)


def unrolled(simulation, steps, dt):
    """(arrays or None, frames) -> the errors |u - target|^2 / |target|^2 and u after the first of
    `frames`."""
    square = lambda u: simulation.transform.layout.inner(u, u).sum()  # noqa: E731

    def run(arrays, frames):
        step = (simulation if arrays is None else simulation.varied({KEY: arrays})).step
        once = jax.checkpoint(lambda state, _: (step(state, dt), None))

        def frame(state, target):
            state = jax.lax.scan(once, state, None, steps)[0]
            u = state.fields["velocity"]
            return state, (square(u - target) / square(target), u)

        return jax.lax.scan(frame, simulation.begin({"velocity": frames[0]}), frames[1:])[1]

    return run


def fixed_step(simulation):
    """The run's `time.dt`. Raises UserError if the file gives none."""
    if simulation.config.time.dt is None:
        raise UserError("time.dt: missing; a training takes equal steps between its frames")
    return simulation.config.time.dt


def spectrum_of(simulation):
    """The velocity's coefficients -> the energies of the whole shells k = 1, 2, ... that the grid
    keeps."""
    shells = slice(1, int(simulation.grid.largest_wavenumber) + 1)
    return lambda u: outputs.spectra(simulation.model, {"velocity": u})["kinetic_energy"][shells]


def options(doc, **more):
    """The command line: CONFIG, DATASET, OUTPUT, overrides of keys, and the training's numbers."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("config")
    parser.add_argument("dataset")
    parser.add_argument("output", type=Path)
    parser.add_argument("overrides", nargs="*")
    defaults = {"frames": "1,2,4,8", "updates": "100", "batch": 8, "rate": 3e-3, "skip": 0}
    for name, value in (defaults | more).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_intermixed_args()


def stages_of(given):
    """The number of unrolled frames of every update."""
    frames, updates = ([int(n) for n in text.split(",")] for text in (given.frames, given.updates))
    updates = updates * len(frames) if len(updates) == 1 else updates
    return [n for n, count in zip(frames, updates, strict=True) for _ in range(count)]


def fit(given, loss, arrays, data, rate):
    """Lowers loss(arrays, windows) of random windows (batch, frames + 1, ...) of the trajectories
    in `data`."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))

    @jax.jit
    def updated(arrays, memory, windows):
        value, slopes = jax.value_and_grad(loss)(arrays, windows)
        changes, memory = optimiser.update(slopes, memory)
        return optax.apply_updates(arrays, changes), memory, value

    leaves, tree = jax.tree.flatten((arrays, optimiser.init(arrays)))
    losses = []
    checkpoint = given.output / "checkpoint.npz"
    lengths = stages_of(given)
    given.output.mkdir(parents=True, exist_ok=True)
    remove_temporaries(given.output)  # of a training that was killed
    if checkpoint.exists():
        with np.load(checkpoint) as stored:
            losses = list(stored["losses"])
            leaves = [jnp.asarray(stored[f"leaf{i}"]) for i in range(len(leaves))]
    arrays, memory = jax.tree.unflatten(tree, leaves)
    with SignalFlags(name="the training") as signals:
        for update in range(len(losses), len(lengths)):
            length = lengths[update]
            windows = drawn(data, np.random.default_rng(update), given.batch, length)
            arrays, memory, value = updated(arrays, memory, windows)
            losses.append(float(value))
            done = len(losses)
            if done % max(10, len(lengths) // 100) == 0 or done == len(lengths) or signals.received:
                loss_now = np.mean(losses[-10:])
                print(f"update {done}, {length} frames: loss {loss_now:.4g}", flush=True)
                leaves = enumerate(jax.tree.leaves((arrays, memory)))
                stored = {f"leaf{i}": leaf for i, leaf in leaves}
                replace_file(checkpoint, npz({"losses": losses, **stored}))
                replace_file(given.output / "arrays.npz", npz(named(arrays)))
            if signals.received and done < len(lengths):
                print("stopped; the same command continues", flush=True)
                raise SystemExit(3)
    # Again, because a training that was killed here may have only its last checkpoint.
    replace_file(given.output / "arrays.npz", npz(named(arrays)))
    return arrays, losses


def drawn(data, random, batch, length):
    """Random windows (batch, length + 1, ...) of the trajectories in `data`."""
    runs = random.integers(len(data), size=batch)
    first = random.integers(data.shape[1] - length, size=batch)
    return jnp.stack([data[r, f : f + length + 1] for r, f in zip(runs, first, strict=True)])


def npz(arrays):
    """The bytes of an .npz file."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def ended(main: Callable[[], None]) -> int:
    """The exit code of a training; a mistake or Ctrl-C outside of the updates is said in a line."""
    try:
        main()
    except SystemExit:
        raise
    except BaseException as error:
        if (known := ending(error)) is None:
            raise
        code, line = known
        print(line, file=sys.stderr)
        return code
    return 0


def main():
    given = options(__doc__, spectrum=0.0)
    simulation = Simulation(load_config(given.config, given.overrides), report=lambda _: None)
    apart, data = read(simulation, given.dataset, "train", given.skip)
    dt = fixed_step(simulation)
    run = unrolled(simulation, round(apart / dt), dt)
    spectrum = spectrum_of(simulation)

    def loss(arrays, windows):
        errors, found = jax.vmap(run, (None, 0))(arrays, windows)
        spectra = [jax.vmap(jax.vmap(spectrum))(u).mean(0) for u in (found, windows[:, 1:])]
        return errors.mean() + given.spectrum * (jnp.log(spectra[0] / spectra[1]) ** 2).mean()

    fit(given, loss, varied_arrays(simulation.model)[KEY], data, given.rate)


if __name__ == "__main__":
    sys.exit(ended(main))
