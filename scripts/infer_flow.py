#!/usr/bin/env python3
"""The viscosity, the force and the initial field of a flow, inferred from noisy spectra and noisy
velocities at points by NUTS (NumPyro) and MCLMC (BlackJAX), around one log posterior.

    python scripts/infer_flow.py [--devices 2] [--data-sets 40] [--out FOLDER]

First the posterior of one data set, with every state laid over the devices: a table, and
FOLDER/posterior.png. Then many data sets, which share the devices, each with parameters drawn from
the prior: their ranks among the draws of their posterior have to be uniform (Talts et al. 2018,
arXiv:1804.06788). Prints p-values, draws FOLDER/ranks.png. `--noise 2` makes data twice as
noisy as the likelihood assumes, which the ranks show."""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom, chisquare

from simulator import Simulation, differentiate, load_config
from simulator.physics.models import outputs

CASE = """\
model: {kind: navier_stokes, viscosity: 0.04}
grid: {shape: [32, 32]}
forcing: {kind: kolmogorov, amplitude: 0.5, wavenumber: 3}
initial: {kind: random, peak: 2}
time: {stop: 1.5, dt: 0.125, integrator: rk2}
"""
WAVES = ((1, 0), (0, 1), (1, 1), (1, -1))
NAMES = ("viscosity", "amplitude", *(f"{f} {a},{b}" for a, b in WAVES for f in ("cos", "sin")))
BINS = 5


class Flow:
    """Observables of a flow as functions of `theta`, ten numbers with the prior N(0, 1)."""

    def __init__(self, run: Simulation):
        x, y = 2 * np.pi * np.indices(run.config.grid.shape) / run.config.grid.shape[0]
        waves = [
            np.multiply.outer((b, -a), function(a * x + b * y)) / np.hypot(a, b)
            for a, b in WAVES
            for function in (np.cos, np.sin)
        ]
        self.run = run
        self.waves = run.transform.forward(jnp.stack(waves))
        self.gradient = differentiate(run, self.observed, steps=(6, 12), dt=0.125)

    def values(self, theta):
        """Viscosity and amplitude, log-normal; coefficients of the initial waves, normal."""
        positive = jnp.array([0.04, 0.5]) * jnp.exp(0.5 * theta[..., :2])
        return jnp.concatenate([positive, 0.3 * theta[..., 2:]], -1)

    def predicted(self, theta):
        values = self.values(theta)
        velocity = jnp.tensordot(values[2:], self.waves, 1)
        variables = {"model.viscosity": values[0], "forcing.amplitude": values[1]}
        return self.gradient.value({**variables, "fields": {"velocity": velocity}})

    def observed(self, *states):
        """ln E(k), k = 1 to 4, and the velocity at 16 points, in units of their errors, 0.1."""
        data = []
        for state in states:
            energies = outputs.spectra(self.run.model, state.fields)["kinetic_energy"]
            velocity = self.run.transform.inverse(state.fields["velocity"])
            data += [jnp.log(energies[1:5]) / 0.1, velocity[:, ::8, ::8].ravel() / 0.1]
        return jnp.concatenate(data)

    def log_likelihood(self, theta, data):
        return -0.5 * ((self.predicted(theta) - data) ** 2).sum()

    def log_posterior(self, theta, data):
        return self.log_likelihood(theta, data) - 0.5 * (theta**2).sum()


def nuts(density, key, start, warmup, draws):
    """Draws (draws, parameters), the number of gradients, and how many transitions diverged."""
    from numpyro.infer import NUTS

    kernel = NUTS(potential_fn=lambda theta: -density(theta), dense_mass=True, max_tree_depth=6)

    def step(state, _):
        state = kernel.sample(state, (), {})
        return state, (state.z, state.num_steps, state.diverging)

    state = kernel.init(key, warmup, start, (), {})
    _, (theta, gradients, diverged) = jax.lax.scan(step, state, None, warmup + draws)
    return theta[warmup:], gradients.sum(), diverged[warmup:].sum()


def mclmc(density, key, start, warmup, draws, thin=6):
    """The same of steps of two gradients, of which every sixth is a draw; `warmup * thin` steps tune
    the step size, the metric and the decoherence length."""
    import blackjax  # starts JAX with one device, unless a simulation has started it

    kernel = blackjax.mclmc.build_kernel()
    first, second, last = jax.random.split(key, 3)
    state = blackjax.mclmc.init(start, density, first)
    third = 1 / 3  # of the steps for each phase of the tuning
    state, tuned, tuning = blackjax.mclmc_find_L_and_step_size(
        kernel,
        warmup * thin,
        state,
        second,
        density,
        frac_tune1=third,
        frac_tune2=third,
        frac_tune3=third,
    )

    def step(state, key):
        metric = tuned.inverse_mass_matrix
        state, info = kernel(key, state, density, metric, tuned.L, tuned.step_size)
        return state, (state.position, ~info.nonans)

    _, (theta, diverged) = jax.lax.scan(step, state, jax.random.split(last, draws * thin))
    return theta[thin - 1 :: thin], 2 * (tuning + draws * thin), diverged.sum()


SAMPLERS = {"nuts": nuts, "mclmc": mclmc}


def drawn(flow: Flow, name: str, data: jax.Array, given: argparse.Namespace) -> np.ndarray:
    """Draws (data sets, draws, parameters) of the posterior of each data set, from a chain that
    begins with a draw from the prior."""

    def chain(key, data):
        start, key = jax.random.split(key)
        theta = jax.random.normal(start, (len(NAMES),))
        density = partial(flow.log_posterior, data=data)
        return SAMPLERS[name](density, key, theta, given.warmup, given.draws)

    keys = jax.random.split(jax.random.key(1), len(data))
    program = jax.jit(flow.run.together(chain)).lower(keys, data).compile()
    clocks = time.perf_counter, time.process_time
    begun = [clock() for clock in clocks]
    theta, gradients, diverged = jax.tree.map(np.asarray, program(keys, data))
    wall, cores = (clock() - start for clock, start in zip(clocks, begun, strict=True))
    print(
        f"{name}: {len(data)} chains, {gradients.sum()} gradients, {diverged.sum()} transitions "
        f"diverged; {wall:.0f} s, {cores:.0f} s of processors",
        flush=True,
    )
    return theta


def data_sets(flow: Flow, number: int, noise: float) -> tuple[np.ndarray, jax.Array]:
    """Parameters from the prior, and data with these parameters."""
    first, second = jax.random.split(jax.random.key(0))
    theta = jax.random.normal(first, (number, len(NAMES)))
    exact = flow.run.together(flow.predicted)(theta)
    return np.asarray(theta), exact + noise * jax.random.normal(second, exact.shape)


def posterior(flow: Flow, given: argparse.Namespace) -> None:
    """The table and the picture of one posterior."""
    from numpyro.diagnostics import summary

    theta, data = data_sets(flow, 1, given.noise)
    truth = np.asarray(flow.values(theta[0]))
    chains = jnp.tile(data, (given.chains, 1))
    draws = {name: np.asarray(flow.values(drawn(flow, name, chains, given))) for name in SAMPLERS}
    tables = {name: summary({"": values})[""] for name, values in draws.items()}
    print("parameter   truth ", *(f"{name:>6}: mean    sd  ESS R-hat" for name in SAMPLERS))
    for i, parameter in enumerate(NAMES):
        cells = [
            f"{t['mean'][i]:12.4f} {t['std'][i]:6.4f} {t['n_eff'][i]:4.0f} {t['r_hat'][i]:5.3f}"
            for t in tables.values()
        ]
        print(f"{parameter:9} {truth[i]:8.4f}", *cells)
    figure, (trace, plane, rest) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    trace.plot(draws["nuts"][..., 0].T, lw=0.8)
    trace.axhline(truth[0], color="k", ls="--")
    trace.set(xlabel="draw", ylabel="viscosity", title="chains of NUTS")
    for shift, (name, values) in zip((-0.15, 0.15), draws.items(), strict=True):
        plane.plot(*values[..., :2].reshape(-1, 2).T, ".", ms=3, alpha=0.5, label=name)
        off = values[..., 2:] - truth[2:]
        places = np.arange(off.shape[-1]) + shift
        rest.errorbar(places, off.mean((0, 1)), 2 * off.std((0, 1)), fmt="o", ms=4, label=name)
    plane.plot(*truth[:2], "k+", ms=14, mew=2, label="truth")
    plane.set(xlabel="viscosity", ylabel="amplitude of the force")
    plane.legend()
    rest.axhline(0, color="k", ls="--")
    rest.set_xticks(range(len(NAMES) - 2), NAMES[2:], rotation=60)
    rest.set(ylabel="coefficient - truth", title="means, and two standard deviations")
    figure.savefig(given.out / "posterior.png", dpi=110)


def ranks(flow: Flow, name: str, given: argparse.Namespace) -> np.ndarray:
    """The ranks (data sets, quantities), 0 to `draws`, of the true parameters and of their
    likelihood among those of the draws."""
    theta, data = data_sets(flow, given.data_sets, given.noise)
    every = np.concatenate([theta[:, None], drawn(flow, name, data, given)], 1)

    def likelihoods(every, data):
        return jax.lax.map(lambda theta: flow.log_likelihood(theta, data), every)

    every = np.dstack([every, flow.run.together(likelihoods)(every, data)])
    return (every[:, 1:] < every[:, :1]).sum(1)


def check(flow: Flow, given: argparse.Namespace) -> None:
    """The p-values and the picture of the ranks."""
    figure, axes = plt.subplots(2, 6, figsize=(13, 4), sharey=True, layout="constrained")
    quantities = (*NAMES, "likelihood")
    low, high = binom.interval(0.95, given.data_sets, 1 / BINS)
    for axis, quantity in zip(axes.flat, quantities, strict=False):
        axis.axhspan(low, high, color="0.85", label="95 % of uniform ranks")
        axis.set(title=quantity, xticks=[])
    for shift, name in zip((-0.2, 0.2), SAMPLERS, strict=True):
        columns = ranks(flow, name, given).T
        for axis, quantity, column in zip(axes.flat, quantities, columns, strict=False):
            counts = np.histogram(column, BINS, (-0.5, given.draws + 0.5))[0]
            print(f"{quantity:10} {counts}, p = {chisquare(counts).pvalue:.3f}")
            axis.bar(np.arange(BINS) + shift, counts, 0.4, label=name)
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center")
    figure.savefig(given.out / "ranks.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    numbers = {"devices": 2, "chains": 4, "warmup": 150, "draws": 99, "data-sets": 40, "noise": 1.0}
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=type(number), default=number)
    parser.add_argument("--out", type=Path, default=Path("outputs/infer_flow"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "flow.yaml"
    path.write_text(CASE)
    config = load_config(path, [f"devices={{platform: cpu, count: {given.devices}}}"])
    posterior(Flow(Simulation(config)), given)
    if given.data_sets:
        check(Flow(Simulation(config, members=given.devices)), given)


if __name__ == "__main__":
    main()
