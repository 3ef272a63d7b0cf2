"""Recovers the mass of the boson of wave dark matter from a noisy power spectrum, by gradients
through the run.

    python scripts/boson_mass.py [PICTURE.png] [--points 64]

64^3 waves from a = 0.02 to z = 3. The data are the P(k) of a run with the true mass, with the noise
of the number of modes of each shell; the start has the same phases. Every step of the fit is one
gradient (secant method)."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import cast

import jax.numpy as jnp
import numpy as np

from simulator import Simulation, differentiate, load_config
from simulator.physics.models import outputs
from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoisson

# masses in 1e-22 eV; beyond, P(k) is 1e-6 of the largest
TRUE, GUESS, STEPS, SHELLS = (0.1, 0.095, 80, 9)
CASE = f"""
model:
  kind: schrodinger_poisson
  units: kpc_km_s_msun
  boson_mass: {TRUE}
  background: {{start: 0.02, hubble: 0.07, matter: 0.3}}
grid: {{box: [4000, 4000, 4000]}}
initial: {{kind: cosmological, transfer: eisenstein_hu, boson_mass: {TRUE}, sigma8: 0.8, seed: 5}}
time: {{stop: {{redshift: 3}}, cfl: 1.0}}
precision: single
"""


def both(mass):
    return {"model.boson_mass": mass, "initial.boson_mass": mass}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", nargs="?", metavar="PICTURE.png")
    parser.add_argument("--points", type=int, default=64)
    given = parser.parse_args()
    path = Path(tempfile.mkdtemp()) / "boson_mass.yaml"
    path.write_text(CASE)
    n = given.points
    config = load_config(path, [f"grid.shape={n},{n},{n}"])
    run = Simulation(config)
    measured = {}
    before = None
    model = cast(SchrodingerPoisson, run.model)
    modes, k = (
        np.asarray(a)[1:SHELLS] for a in run.transform.layout.once(model.real.layout.shell_modes)
    )
    begun = time.perf_counter(), time.process_time()

    def spectrum(state):
        return jnp.log(outputs.spectra(run.model, state.fields)["density_power"][1:SHELLS])

    def misfit(state):
        return (modes / 4 * (spectrum(state) - measured["data"]) ** 2).sum()

    gradient = differentiate(run, misfit, steps=STEPS, dt=config.time.stop / STEPS)

    def computed(mass):
        return np.asarray(spectrum(gradient.states(both(jnp.float32(mass)), run.state)[0]))

    measured["data"] = computed(TRUE) + np.sqrt(2 / modes) * np.random.default_rng(
        1
    ).standard_normal(modes.shape)
    mass = GUESS
    for number in range(12):
        value, slopes = gradient(both(mass))
        # by ln m
        x = np.log(mass)
        slope = float(sum(slopes.values())) * mass
        print(f"{number}: m = {mass:.6f}, misfit {float(value):.4f}, slope {slope:.4g}", flush=True)
        change = (
            -0.05 * np.sign(slope)
            if before is None
            else -slope * (x - before[0]) / (slope - before[1])
        )
        before = (x, slope)
        mass = mass * np.exp(np.clip(change, -0.2, 0.2))
        if abs(change) < 1e-5:
            break
    wall = time.perf_counter() - begun[0]
    cpu = time.process_time() - begun[1]
    print(
        f"recovered {mass:.6f} of {TRUE}: {100 * (mass / TRUE - 1):+.3f} %, {wall:.0f} s, {cpu:.0f} s of processors"
    )
    if given.picture is not None:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(layout="constrained")
        for name, m in {f"first guess, {GUESS}": GUESS, f"recovered, {mass:.5f}": mass}.items():
            axes.loglog(k * 1e3, np.exp(computed(m)) / 1e9, label=name)
        axes.loglog(k * 1e3, np.exp(measured["data"]) / 1e9, "ko", ms=4, label=f"data, {TRUE}")
        axes.set(xlabel="comoving k (1/Mpc)", ylabel="P(k) at redshift 3 (Mpc$^3$)")
        axes.legend(title="mass of the boson (10$^{-22}$ eV)")
        figure.savefig(given.picture, dpi=110)


if __name__ == "__main__":
    main()
