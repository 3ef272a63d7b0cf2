#!/usr/bin/env python3
"""A finished run of configs/cold_dark_matter.yaml beside what is known of it.

    simulator run configs/cold_dark_matter.yaml 'output.spectra={every: {redshift: [9, 4, 2, 1, 0.5, 0]}}'
    simulator halos outputs/cold_dark_matter
    python scripts/cosmology_check.py outputs/cold_dark_matter PICTURE.png

P(k) of the start over its input; its growth over linear theory; P(k) over halofit (Smith et al.,
Mon. Not. R. Astron. Soc. 341, 1311 (2003), appendix C: flat, k < 10 h/Mpc, about 7 %); halos over
the fit of Watson et al. (2013)."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter

from simulator import load_config, open_run
from simulator.plugins.cosmology.halo_catalogue import catalogues
from simulator.plugins.gravity.cosmology import Background, expansion


def halofit(k: np.ndarray, linear, matter: float) -> np.ndarray:
    """P(k) from the linear spectrum `linear(k)`, with Omega_m(a) = `matter`."""
    q = np.geomspace(1e-4, 1e3, 20000)
    d = q**3 * linear(q) / (2 * np.pi**2)
    r = np.geomspace(0.01, 50, 600)
    log = np.log([np.trapezoid(d * np.exp(-((q * x) ** 2)), np.log(q)) for x in r])
    slope = np.gradient(log, np.log(r))
    at = np.interp(0, -log, np.arange(len(r)))
    scale, n, c = (
        np.interp(at, np.arange(len(r)), v) for v in (r, -3 - slope, -np.gradient(slope, np.log(r)))
    )
    a = 10 ** (1.4861 + 1.8369 * n + 1.6762 * n**2 + 0.7940 * n**3 + 0.1670 * n**4 - 0.6206 * c)
    b = 10 ** (0.9463 + 0.9466 * n + 0.3084 * n**2 - 0.9400 * c)
    g = 0.8649 + 0.2989 * n + 0.1631 * c
    h = 10 ** (-0.2807 + 0.6669 * n + 0.3214 * n**2 - 0.0793 * c)
    alpha = 1.3884 + 0.3700 * n - 0.1452 * n**2
    beta = 0.8291 + 0.9854 * n + 0.3401 * n**2
    mu, nu, f = (
        10 ** (-3.5442 + 0.1908 * n),
        10 ** (0.9589 + 1.2857 * n),
        matter ** (1e-4 * np.array([-307, -585, 743])),
    )
    y = k * scale
    own = k**3 * linear(k) / (2 * np.pi**2)
    quasi = own * (1 + own) ** beta / (1 + alpha * own) * np.exp(-y / 4 - y**2 / 8)
    halo = (
        a
        * y ** (3 * f[0])
        / (1 + b * y ** f[1] + (h * f[2] * y) ** (3 - g))
        / (1 + mu / y + nu / y**2)
    )
    return (quasi + halo) * 2 * np.pi**2 / k**3


SUNS = 2.325e12  # the unit of mass, H0^2 (Mpc/h)^3 / G, in solar masses / h
folder = Path(sys.argv[1])
run = open_run(folder)
config = load_config(folder / "config.yaml", check_files=False)
series = run.series("spectra")
background = Background(config.model.cosmology)
start = next(iter(config.initial.components.values()))
s = background.settings
k = series.coordinates["k"]
modes = series.coordinates["modes"]
power = series["density_power"]
# shells within the cube of modes
held = (k > 0) & (k < np.pi * config.grid.shape[0] / config.grid.box[0])
k = k[held]
modes = modes[held]
power = power[:, held]
a = np.array([background.scale_factor_at(t) for t in series.time])
growth = np.array([background.growth(x) / background.growth(1.0) for x in a]) ** 2
figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
realised = power[0] / (growth[0] * start.amplitude * k**start.index)
spread = np.sqrt(2 / modes)
off = ((realised - 1) / spread)[k < k[-1] / 2]  # particles of a lattice have fewer small waves
print(
    f"start: chi^2 / shells = {(off**2).mean():.3f} of {len(off)}, largest {abs(off).max():.2f} deviations"
)
axes[0, 0].fill_between(k, 1 - spread, 1 + spread, alpha=0.3, label="cosmic variance")
axes[0, 0].plot(k, realised, label=f"start, z = {1 / a[0] - 1:.3g}")
for x, d, p in zip(a[1:], growth[1:], power[1:], strict=True):
    fit = halofit(
        k, lambda q, d=d: d * start.amplitude * q**start.index, s.matter / x**3 / expansion(s, x)
    )
    grown = p / power[0] * growth[0] / d
    over = p / fit / realised
    z = f"z = {abs(round(1 / x - 1, 3)):g}"
    axes[0, 1].plot(k, grown, label=z)
    axes[1, 0].plot(k, over, label=z)
    for low, high in ((0, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 0.8)):
        part = (k > low) & (k <= high)
        print(
            f"{z}, k to {high}: growth / linear {grown[part].mean():.3f}, P / halofit {over[part].mean():.3f}"
        )
found = catalogues(folder)[-1]
mass, count, density = (
    found.tables["mass_function"][name] for name in ("mass", "count", "dn_dlnm")
)
ratio = density / np.interp(mass, found.tables["fits"]["mass"], found.tables["fits"]["watson"])
axes[1, 1].errorbar(
    SUNS * mass, ratio, ratio / np.sqrt(np.maximum(count, 1)), fmt="o", label=found.summary()
)
print(
    "halos / Watson:",
    *(f"{r:.2f} ({n} of {m:.3g})" for m, r, n in zip(mass, ratio, count, strict=True)),
)
words = (
    "P(k) of the start / its input",
    "growth of P(k) / linear growth",
    "P(k) / halofit, without the variance of the start",
    "halos, dn/dlnM / fit of Watson et al.",
)
below = ("k (h/Mpc)",) * 3 + (r"mass of a halo ($M_\odot$/h)",)
for axis, word, x in zip(axes.flat, words, below, strict=True):
    axis.set(xscale="log", title=word, xlabel=x, ylim=(0, 2))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.axhline(1, color="k", lw=0.5)
    axis.legend(fontsize=8)
figure.savefig(sys.argv[2], dpi=80)
