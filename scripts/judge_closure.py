#!/usr/bin/env python
"""Compare a closure of `train_closure.py` with the test runs of its data set, and draw
training.png.

    python scripts/judge_closure.py CONFIG DATASET OUTPUT [--skip N] [key.path=value ...]

Runs without a closure, with Smagorinsky's (in three dimensions), and with the untrained and the
trained arrays begin at frame N of every test run. Printed for each: the error |u - target| /
|target| of the velocity, averaged over all frames and at the last one; the factor by which it is
below the error without a closure, as the ratio of these means and as the geometric mean over frames
and runs; the mean over the shells of |log(E / E_target)|; and the error of the third-order
longitudinal structure function S_3(r), relative to its largest value; spectra and S_3 are averaged
over frames and runs."""

import argparse
from pathlib import Path

import jax
import numpy as np
from train_closure import KEY, fixed_step, read, spectrum_of, unrolled

from simulator import Simulation, load_config


def structure(simulation, frames):
    """S_3 = <((u(x + r) - u(x)) . r / |r|)^3> at r = 1, 2, ... spacings along the axes, of all
    frames."""
    shape = simulation.config.grid.shape
    cut = (..., *(slice(n) for n in shape))
    axes = range(len(shape))
    decode = jax.jit(simulation.transform.inverse)
    total = 0.0
    for modes in frames.reshape(-1, *frames.shape[-4:]):
        u = np.asarray(decode(modes), np.float64)[cut].reshape(-1, *shape)
        jumps = [[np.roll(u[i], -r, i) - u[i] for i in axes] for r in range(1, shape[0] // 2 + 1)]
        total = total + np.array([np.mean([(d**3).mean() for d in jump]) for jump in jumps])
    return total / np.prod(frames.shape[:-4])


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config")
    parser.add_argument("dataset")
    parser.add_argument("output", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--skip", type=int, default=0)
    given = parser.parse_args()

    def simulation(*more):
        return Simulation(
            load_config(given.config, [*given.overrides, *more]), report=lambda _: None
        )

    own = simulation()
    trained = simulation(f"{KEY}={given.output / 'arrays.npz'}")
    cases = {"no closure": simulation("model.subgrid=null"), "untrained": own, "trained": trained}
    if len(own.config.grid.shape) == 3:
        cases["Smagorinsky"] = simulation("model.subgrid=null", "model.subgrid={kind: smagorinsky}")
    apart, windows = read(own, given.dataset, "test", given.skip)
    spectrum = jax.jit(jax.vmap(jax.vmap(spectrum_of(own))))
    dt = fixed_step(own)
    target = np.asarray(spectrum(windows[:, 1:])).mean((0, 1)), structure(own, windows[:, 1:])
    found = {}
    for name, case in cases.items():
        squares, u = jax.jit(jax.vmap(unrolled(case, round(apart / dt), dt), (None, 0)))(
            None, windows
        )
        errors = np.sqrt(np.asarray(squares))
        found[name] = errors, np.asarray(spectrum(u)).mean((0, 1)), structure(own, u)
        none = found["no closure"][0]
        gains = (
            none.mean() / errors.mean(),
            np.exp(np.log(none / errors).mean()),
            none[:, -1].mean() / errors[:, -1].mean(),
        )
        in_spectrum = abs(np.log(found[name][1] / target[0])).mean()
        in_structure = abs(found[name][2] - target[1]).mean() / abs(target[1]).max()
        print(
            f"{name:12} error {errors.mean():.4f}, last {errors[:, -1].mean():.4f}; "
            f"below none by {gains[0]:.2f} (means), {gains[1]:.2f} (geometric), "
            f"{gains[2]:.2f} (last); E(k) {in_spectrum:.4f}; S_3 {in_structure:.4f}"
        )
    draw(given.output, np.load(given.output / "checkpoint.npz")["losses"], apart, target, found)


def draw(folder, losses, apart, target, found):
    import matplotlib

    from simulator.plugins.pictures.style import figure, rc

    with matplotlib.rc_context(rc()):
        result = figure(9.6, 6.4)
        axes = result.subplots(2, 2, gridspec_kw={"wspace": 0.25, "hspace": 0.45}).ravel()
        axes[0].semilogy(losses, linewidth=0.5)
        axes[0].set(title="loss", xlabel="update")
        k, r = (1 + np.arange(len(curve)) for curve in target)
        for name, (errors, energies, s3) in found.items():
            axes[1].plot(apart * (1 + np.arange(errors.shape[1])), errors.mean(0), label=name)
            axes[2].loglog(k, energies)
            axes[3].plot(r, s3)
        axes[2].loglog(k, target[0], "k.", markersize=4, label="reference")
        axes[3].plot(r, target[1], "k.", markersize=4)
        axes[1].set(title="error of the velocity", xlabel="time")
        axes[2].set(title="energy spectrum", xlabel="wavenumber")
        axes[3].set(title="structure function $S_3$", xlabel="distance / spacing")
        axes[0].yaxis.set_minor_formatter("")
        axes[1].legend()
        axes[2].legend(loc="lower left")
        result.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.1)
        result.savefig(folder / "training.png", dpi=144)


if __name__ == "__main__":
    main()
