"""Budgets, dynamos and statistically steady turbulence."""

import jax
import numpy as np

from simulator.stepping import TimeStep, Until, advance_of
from simulator.validation.case import Case, Check, Curve, Result, march, simulation


def budget() -> Result:
    sim = simulation(
        {"kind": "navier_stokes", "viscosity": 0.02},
        {"kind": "random", "peak": 2, "seed": 1},
        (32, 32, 32),
        forcing={"kind": "constant_power", "rate": 0.3, "band": [1, 2]},
    )
    _, rows = march(sim, 0.02, 20, every=1)
    worst = float(abs(rows["budget_residual"][1:]).max())
    power = float(abs(rows["injection"] / 0.3 - 1).max())
    return Result(
        [
            Check(
                "budget residual / dissipation, worst of 20 steps",
                0.0,
                worst,
                1e-3,
                "definition",
                absolute=True,
            ),
            Check("<f . u> / rate - 1", 0.0, power, 1e-12, "definition", absolute=True),
        ]
    )


def dynamo(reynolds: float, stop: float):
    """The growth rate of the magnetic field (half that of its energy), fitted over the last half of the time."""
    sim = simulation(
        {"kind": "mhd", "viscosity": 0.0, "resistivity": 1 / reynolds, "kinematic": True},
        {"kind": "abc", "magnetic": {"peak": 2, "energy": 1e-6, "seed": 7}},
        (32, 32, 32),
    )
    advance, state = advance_of(sim.model, sim.integrator, TimeStep(0.05, None, None)), sim.state
    times, energies = [], []
    for time in np.arange(0.5, stop + 0.1, 0.5):
        state = advance(state, Until(float(time), np.inf, np.int64(10**6)))
        times.append(float(state.time))
        energies.append(float(sim.transform.layout.inner(*(state.fields["magnetic"],) * 2).sum()))
    t, e = np.array(times), np.array(energies)
    late = t > stop / 2
    return 0.5 * np.polyfit(t[late], np.log(e[late]), 1)[0], t, e


def _dynamo(reynolds: float, stop: float, grows: bool) -> Result:
    rate, t, e = dynamo(reynolds, stop)
    source = (
        "Galloway & Frisch, Geophys. Astrophys. Fluid Dyn. 36, 53 (1986): windows 8.9 < Rm < 17.5, Rm > 27"
    )
    sign = 1.0 if grows else -1.0
    fit = np.exp(2 * rate * (t - t[-1])) * e[-1]
    name = f"dynamo_{reynolds:g}"
    return Result(
        [Check(f"sign of the growth rate ({rate:.4f})", sign, float(np.sign(rate)), 0.0, source)],
        [
            Curve(
                name, t, np.log10(e), t[::10], np.log10(fit)[::10], ("time", "log10 <b^2>"), "exponential fit"
            )
        ],
    )


def inertial_range() -> Result:
    """Steady turbulence on 128^3 with k_max eta = 1, averaged over four turnover times."""
    sim = simulation(
        {"kind": "navier_stokes", "viscosity": 0.0054},
        {"kind": "random", "spectrum": "pao", "peak": 2, "energy": 1.0, "seed": 1},
        (128, 128, 128),
        forcing={"kind": "constant_power", "rate": 0.5, "band": [1, 2]},
        precision="single",
    )
    advance = advance_of(sim.model, sim.integrator, TimeStep(None, 0.8, None), sim.forcing)
    state, layout, rows, spectra = sim.state, sim.transform.layout, [], []
    for time in np.arange(0.25, 12.1, 0.25):
        state = advance(state, Until(float(time), np.inf, np.int64(10**6)))
        if time >= 5:
            rows.append(jax.device_get(sim.diagnostics(state)))
            spectra.append(np.asarray(sim.spectra(state)["kinetic_energy"]))
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    k, e = layout.shell_wavenumbers(), np.mean(spectra, 0)
    inside = (k >= 3) & (k <= 8)
    slope = np.polyfit(np.log(k[inside]), np.log(e[inside]), 1)[0]
    shown = (k > 0) & (e > 0)
    labels = ("log10 k eta", "log10 k^(5/3) E / eps^(2/3)")
    eta, compensated = (
        mean["kolmogorov_scale"],
        k[shown] ** (5 / 3) * e[shown] / mean["dissipation"] ** (2 / 3),
    )
    x = np.log10(k[shown] * eta)
    sources = "Sreenivasan, Phys. Fluids 7, 2778 (1995)", "Sreenivasan & Antonia, Annu. Rev. 29, 435 (1997)"
    level = np.full(2, np.log10(1.6))
    return Result(
        [
            Check("slope of E(k), 3 <= k <= 8", -5 / 3, float(slope), 0.15, "Kolmogorov (1941)"),
            Check("gradient skewness", -0.5, mean["gradient_skewness"], 0.08, sources[1], absolute=True),
            Check("dissipation / power", 1.0, mean["dissipation"] / 0.5, 0.15, "statistically steady"),
        ],
        [
            Curve(
                "inertial_range",
                x,
                np.log10(compensated),
                x[[0, -1]],
                level,
                labels,
                f"C = 1.6: {sources[0]}",
            )
        ],
    )


CASES = (
    Case("budget", "energy budget and constant power, 32^3", budget),
    Case("dynamo_12", "kinematic ABC dynamo, Rm = 12: grows", lambda: _dynamo(12, 60, True), full=True),
    Case("dynamo_20", "kinematic ABC dynamo, Rm = 20: decays", lambda: _dynamo(20, 100, False), full=True),
    Case("dynamo_35", "kinematic ABC dynamo, Rm = 35: grows", lambda: _dynamo(35, 100, True), full=True),
    Case("inertial_range", "forced turbulence, 128^3: k^(-5/3) and skewness", inertial_range, full=True),
)
