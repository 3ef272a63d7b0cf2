#!/usr/bin/env python
"""Inverse problems by gradients through whole runs, on 2 devices: recovers the initial velocity of two-dimensional
turbulence from two later snapshots, and its viscosity from a spectrum.

    python scripts/recover_flow.py [PICTURE.png]

The unknown flow is that of configs/equations/turbulence_2d.yaml on 48 x 48 points. The data are its vorticities after
20 and 40 steps. The search begins at rest and descends along the gradient of the misfit, with the step of Barzilai &
Borwein, IMA J. Numer. Anal. 8, 141 (1988).
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator import Simulation, differentiate, load_config

CONFIG = Path(__file__).parents[1] / "configs" / "equations" / "turbulence_2d.yaml"
STEPS, DT, VISCOSITY = (20, 40), 0.01, 5e-3
DESCENTS = 60


def inner(a: Any, b: Any) -> float:
    """The real inner product of two trees of arrays."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(float(jnp.sum((jnp.conj(x) * y).real)) for x, y in pairs)


def descend(gradient: Callable[[Any], tuple[Any, Any]], at: Any, rate: float, steps: int) -> tuple[Any, list[float]]:
    """The best point of `steps` descent steps from `at`, the first with `rate`, and the loss at each step."""
    value, slope = gradient(at)
    losses, best = [float(value)], (float(value), at)
    for _ in range(steps):
        new = jax.tree.map(lambda x, g, r=rate: x - r * g, at, slope)
        value, new_slope = gradient(new)
        moved, turned = (jax.tree.map(jnp.subtract, a, b) for a, b in ((new, at), (new_slope, slope)))
        rate = inner(moved, moved) / max(abs(inner(moved, turned)), 1e-300)
        at, slope = new, new_slope
        losses.append(float(value))
        best = min(best, (losses[-1], at), key=lambda found: found[0])
    return best[1], losses


def recover(size: int = 48, descents: int = DESCENTS) -> dict[str, Any]:
    """Solve both problems: the true and the recovered vorticity on the grid, the errors, and the losses."""
    overrides = [
        f"grid.shape={size},{size}",
        f"model.parameters={{viscosity: {VISCOSITY}}}",
        "initial.fields.vorticity.peak=3",
    ]
    simulation = Simulation(
        load_config(CONFIG, [*overrides, "devices.platform=cpu", "devices.count=2"]), report=lambda _: None
    )
    layout = simulation.transform.layout
    true = simulation.state.fields
    reference = differentiate(simulation, lambda *states: jnp.zeros(()), steps=STEPS, dt=DT)
    observed = [state.fields["vorticity"] for state in jax.jit(lambda s: reference.states({}, s))(simulation.state)]

    # The misfit of the velocity is the misfit of the vorticity divided by k.
    weight = layout.inverse_k_squared()

    def misfit(*states: Any) -> jax.Array:
        parts = (s.fields["vorticity"] - seen for s, seen in zip(states, observed, strict=True))
        return sum(layout.sum(weight * (p.real**2 + p.imag**2)) for p in parts)  # type: ignore[return-value]

    search = differentiate(simulation, misfit, steps=STEPS, dt=DT)
    rest = {"fields": jax.tree.map(jnp.zeros_like, true)}

    # As a function of the velocity's amplitude, vorticity / k, the misfit is equally steep at every scale.
    root = jnp.sqrt(jnp.where(weight > 0, 1 / jnp.where(weight > 0, weight, 1), 0))

    def scaled(amplitude: Any) -> tuple[Any, Any]:
        value, slope = search({"fields": {"vorticity": root * amplitude["fields"]["vorticity"]}})
        return value, {"fields": {"vorticity": root * slope["fields"]["vorticity"]}}

    found, losses = descend(scaled, rest, 0.25, descents)
    recovered = {"vorticity": root * found["fields"]["vorticity"]}
    difference = recovered["vorticity"] - true["vorticity"]
    energy = layout.sum(weight * abs(true["vorticity"]) ** 2)
    error = float(jnp.sqrt(layout.sum(weight * abs(difference) ** 2) / energy))

    spectrum = simulation.model.spectra({"vorticity": observed[-1]})["kinetic_energy"]
    shells = spectrum > 1e-12 * spectrum.max()

    def distance(*states: Any) -> jax.Array:
        own = simulation.model.spectra(states[-1].fields)["kinetic_energy"]
        ratio = jnp.where(shells, own, 1) / jnp.where(shells, spectrum, 1)
        return (jnp.log(ratio) ** 2).sum()

    by_viscosity = differentiate(simulation, distance, steps=STEPS, dt=DT)

    def of_logarithm(at: Any) -> tuple[Any, Any]:
        value, slope = by_viscosity({"model.parameters.viscosity": jnp.exp(at)})
        return value, slope["model.parameters.viscosity"] * jnp.exp(at)

    logarithm, viscosity_losses = descend(of_logarithm, jnp.log(3 * VISCOSITY), 1e-3, 12)
    value = simulation.values("vorticity")
    images = [np.asarray(value(simulation.begin(dict(f)))) for f in (true, recovered)]
    viscosity = float(jnp.exp(logarithm))
    return {
        "true": images[0],
        "recovered": images[1],
        "error": error,
        "losses": losses,
        "viscosity": viscosity,
        "viscosity_losses": viscosity_losses,
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the true and the recovered vorticity, and the misfit after each gradient."""
    import matplotlib

    from simulator.show.style import RC, figure

    with matplotlib.rc_context(RC):
        result = figure(6.4, 2.3)
        left, middle, right = result.subplots(1, 3, gridspec_kw={"wspace": 0.35, "width_ratios": (1, 1, 1.25)})
        top = abs(found["true"]).max()
        for axes, name in ((left, "true"), (middle, "recovered")):
            axes.imshow(found[name].T, origin="lower", cmap="RdBu_r", vmin=-top, vmax=top, interpolation="bicubic")
            axes.set_title(f"{name} start")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
        right.semilogy(np.array(found["losses"]) / found["losses"][0])
        right.set_title("misfit")
        right.set_xlabel("gradients")
        result.subplots_adjust(left=0.02, right=0.98, top=0.86, bottom=0.2)
        result.savefig(path, dpi=144)


if __name__ == "__main__":
    answer = recover()
    first, least = answer["losses"][0], min(answer["losses"])
    print(f"velocity: relative error {answer['error']:.2e}, misfit {first:.2e} -> {least:.2e}")
    print(f"viscosity: {answer['viscosity']:.6g}, true {VISCOSITY:g}")
    if len(sys.argv) > 1:
        draw(answer, Path(sys.argv[1]))
