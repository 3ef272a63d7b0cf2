"""Gradients by the numbers of every start, forcing, model and closure: finite and those of finite
differences, or refused with one line."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import on_devices
from plugin_parts import absent_plugin
from run_support import ROOT
from tiers import slow_but

from simulator import Simulation, load_config
from simulator.config.reference import reference_keys
from simulator.config.yaml12 import parse_yaml
from simulator.errors import UserError
from simulator.physics.forcing import FORCINGS
from simulator.physics.initial import INITIALS
from simulator.physics.models import MODELS
from simulator.physics.terms import TERMS
from simulator.settings import walk

FLOW = "model: {kind: navier_stokes, viscosity: 0.02}"
PLANE = "grid: {shape: [8, 8]}"
SPACE = "grid: {shape: [6, 6, 6]}"
GAS = "model: {kind: self_gravitating_gas, sound_speed: 1.1, gravitational_constant: 0.3}"
WAVES = "model: {kind: schrodinger_poisson, hbar_over_m: 0.9}"
GROWING = (
    "model: {kind: schrodinger_poisson, hbar_over_m: 0.9, cosmology: {start: 0.1, matter: 0.3}}"
)
DUST = "model: {kind: composite, components: [{kind: particles, name: dust, count: 64}]}"
GROWN_DUST = DUST.replace("components", "cosmology: {start: 0.1, matter: 0.3}, components")
UNITS = "mpc_h_km_s_msun_h"
RANDOM = "initial: {kind: random, peak: 1.2, energy: 0.4}"
TABLE = "0.5 1.0\n1 2.5\n4 0.3\n9 0.1\n"
PYTHON = """\
import jax.numpy as jnp

def start(x, y, size=0.5):
    return {"velocity": [size * jnp.sin(y) + 0 * x, 0.3 * jnp.cos(x) + 0 * y]}

def push(x, y, t, size=0.5):
    return {"velocity": [size * jnp.sin(y) + 0 * x, 0.3 * jnp.cos(x + t) + 0 * y]}

def potential(x, y, depth=0.5):
    return depth * jnp.cos(x) * jnp.cos(y)

def rub(values, points, time, size=0.5):
    return {"velocity": -size * (1 + jnp.cos(points[0])) * values["velocity"]}

def hill(x, y, t, size=0.5):
    return size * jnp.sin(x) ** 2 + 0 * y
"""

EQUATIONS = ROOT / "configs" / "equations"
CASES = {
    "taylor_green": (FLOW, PLANE, "initial: {kind: taylor_green, amplitude: 0.7}"),
    "abc": (FLOW, SPACE, "initial: {kind: abc, amplitude: 0.7, A: 0.9, B: 0.4, C: 0.6}"),
    "orszag_tang": (
        "model: {kind: mhd, viscosity: 0.02, resistivity: 0.03}",
        PLANE,
        "initial: {kind: orszag_tang, amplitude: 0.7, magnetic_amplitude: 0.6}",
    ),
    "random": (
        "model: {kind: mhd, viscosity: 0.02, resistivity: 0.03,"
        " scalars: [{name: dye, diffusivity: 0.02, mean_gradient: [0.1, 0.2, 0.3]}]}",
        SPACE,
        "initial: {kind: random, spectrum: power_law, peak: 1.2, slope: -2, energy: 0.4, helicity: 0.3,"
        " magnetic: {spectrum: pao, peak: 1.2, kolmogorov_scale: 0.1, energy: 0.2, helicity: -0.2,"
        " mean_field: [0.1, 0.2, 0.3]}, scalars: {dye: {normalise: total, peak: 0.1, variance: 0.5}}}",
    ),
    "random fields": (
        FLOW,
        PLANE,
        "initial: {kind: random, fields: {velocity: {variance: 0.5, mean: 0.2, spectrum: table,"
        " table: table.txt, normalise: total}}}",
    ),
    "python": (
        FLOW,
        PLANE,
        "initial: {kind: python, path: own.py, function: start, parameters: {size: 0.4}}",
        "forcing: {kind: python, path: own.py, function: push, parameters: {size: 0.4}}",
        "terms: [{name: rub, kind: python, path: own.py, function: rub, parameters: {size: 0.4}}]",
    ),
    "terms": (
        FLOW,
        PLANE,
        "initial: {kind: taylor_green, amplitude: 0.7}",
        "terms: [{name: disc, kind: relax, relaxation_time: 0.3, target: {velocity: body},"
        " mask: {kind: cylinder, center: [2.2, 3.1], radius: 1.3, angle: 0.4, smoothing: 1.5}},"
        " {name: brick, kind: relax, relaxation_time: 0.4, target: {velocity: [0.3, 0.2]},"
        " mask: {kind: union, parts: [{kind: box, center: [2.1, 3.3], size: [2.2, 1.7], angle: 0.3,"
        " smoothing: 1.6}, {kind: half_space, axis: x, above: 4.4, smoothing: 1.4}]}},"
        " {name: hill, kind: relax, relaxation_time: 0.5, target: {velocity: [0.1, 0.4]},"
        " mask: {kind: python, path: own.py, function: hill, parameters: {size: 0.6}}}]",
    ),
    "uniform gas": (GAS, PLANE, "initial: {kind: uniform, density: 1.3, velocity: [0.2, 0.1]}"),
    "uniform waves": (WAVES, SPACE, "initial: {kind: uniform, density: 1.3}"),
    "uniform dust": (
        DUST,
        SPACE,
        "initial: {kind: composite, components: {dust: {kind: uniform, density: 1.3, velocity: [0.2, 0.1, 0.3]}}}",
    ),
    "jeans_wave gas": (GAS, PLANE, "initial: {kind: jeans_wave, amplitude: 0.1, density: 1.3}"),
    "jeans_wave waves": (WAVES, SPACE, "initial: {kind: jeans_wave, amplitude: 0.1, density: 1.3}"),
    "jeans_wave dust": (
        DUST,
        SPACE,
        "initial: {kind: composite, components: {dust: {kind: jeans_wave, amplitude: 0.1, density: 1.3}}}",
    ),
    "zeldovich_wave gas": (
        GAS,
        PLANE,
        "initial: {kind: zeldovich_wave, amplitude: 0.1, density: 1.3}",
    ),
    "zeldovich_wave dust": (
        DUST,
        SPACE,
        "initial: {kind: composite, components: {dust: {kind: zeldovich_wave, amplitude: 0.1, density: 1.3}}}",
    ),
    "cosmological": (
        GROWING,
        SPACE,
        "initial: {kind: cosmological, amplitude: 0.2, index: -1.5, cutoff: 3, share: 0.9}",
    ),
    "cosmological dust": (
        GROWN_DUST,
        SPACE,
        "initial: {kind: composite, components: {dust: {kind: cosmological, amplitude: 0.2, index: -1.5}}}",
    ),
    "transfer": (
        GROWING.replace("0.9", "500").replace(
            "cosmology: {", f"units: {UNITS}, cosmology: {{hubble: 100, "
        ),
        "grid: {shape: [6, 6, 6], box: [100, 100, 100]}",
        "initial: {kind: cosmological, transfer: eisenstein_hu, h: 0.7, baryons: 0.05, spectral_index: 0.96,"
        " sigma8: 0.8, boson_mass: 1e-3}",
    ),
    "soliton": (
        WAVES,
        SPACE,
        "initial: {kind: soliton, core_radius: 0.9, position: [3, 2.9, 3.2], velocity: [0.1, 0.2, 0.3],"
        " phase: 0.4, background: 0.1}",
    ),
    "soliton mass": (WAVES, SPACE, "initial: {kind: soliton, mass: 9}"),
    "soliton_merger": (
        WAVES,
        SPACE,
        "initial: {kind: soliton_merger, count: 2, core_radius: [0.8, 0.9], radius: 1.5}",
    ),
    "linear": (FLOW, PLANE, RANDOM, "forcing: {kind: linear, coefficient: 0.4}"),
    "constant_power": (FLOW, PLANE, RANDOM, "forcing: {kind: constant_power, rate: 0.4}"),
    "ornstein_uhlenbeck": (
        GAS,
        PLANE,
        "initial: {kind: jeans_wave, amplitude: 0.1}",
        "forcing: {kind: ornstein_uhlenbeck, rate: 0.4, correlation_time: 0.3, solenoidal_weight: 0.6}",
    ),
    "helical forces": (
        FLOW,
        "grid: {shape: [1, 8, 8]}",
        "initial: {kind: random, peak: 1.2, energy: 0.4, helicity: 0.2}",
        "forcing: [{kind: ornstein_uhlenbeck, rate: 0.4, correlation_time: 0.3, helicity: 0.6},"
        " {kind: constant_power, rate: 0.3, helicity: -0.4}]",
    ),
    "kolmogorov": (FLOW, PLANE, RANDOM, "forcing: {kind: kolmogorov, amplitude: 0.4}"),
    "taylor_green force": (FLOW, PLANE, RANDOM, "forcing: {kind: taylor_green, amplitude: 0.4}"),
    "abc force": (
        FLOW,
        SPACE,
        RANDOM,
        "forcing: {kind: abc, amplitude: 0.4, A: 0.9, B: 0.4, C: 0.6}",
    ),
    "navier_stokes": (
        "model: {kind: navier_stokes, viscosity: 0.02, hyperviscosity: {order: 2, coefficient: 1e-3},"
        " drag: {coefficient: 0.1, below: 1.5}, rotation: [0.1, 0.2, 0.3],"
        " scalars: [{name: dye, diffusivity: 0.02, mean_gradient: [0.1, 0.2, 0.3]}]}",
        SPACE,
        RANDOM,
    ),
    "boussinesq": (
        "model: {kind: boussinesq, viscosity: 0.02, diffusivity: 0.03, stratification: 0.7, gravity: [0, 0, -1],"
        " hyperviscosity: {order: 2, coefficient: 1e-3}, drag: {coefficient: 0.1, below: 1.5},"
        " rotation: [0.1, 0.2, 0.3]}",
        SPACE,
        RANDOM,
    ),
    "sheared flow": (
        FLOW.replace("0.02", "0.02, shear: 0.6"),
        PLANE,
        "initial: {kind: taylor_green, amplitude: 0.7}",
    ),
    "sheared layers": (
        "model: {kind: boussinesq, viscosity: 0.02, diffusivity: 0.03, stratification: 0.7, shear: 0.6}",
        SPACE,
        RANDOM,
    ),
    "sheared magnetic field": (
        "model: {kind: mhd, viscosity: 0.02, resistivity: 0.03, shear: -0.6}",
        SPACE,
        "initial: {kind: taylor_green, amplitude: 0.7, magnetic: {peak: 1.2, energy: 0.3}}",
    ),
    "mhd": (
        "model: {kind: mhd, viscosity: 0.02, resistivity: 0.03, ion_length: 0.1, rotation: [0.1, 0.2, 0.3]}",
        SPACE,
        "initial: {kind: taylor_green, amplitude: 0.7, magnetic: {peak: 1.2, energy: 0.3, slope: -2,"
        " spectrum: power_law, helicity: 0.1, mean_field: [0.1, 0.2, 0.3]}}",
    ),
    "self_gravitating_gas": (
        "model: {kind: self_gravitating_gas, sound_speed: 1.1, gravitational_constant: 0.3, viscosity: 0.05,"
        " bulk_viscosity: 0.04, polytropic_exponent: 1.4, hyperviscosity: {order: 2, coefficient: 1e-3},"
        " background_density: 1.2, external_acceleration: [0.1, 0.2]}",
        PLANE,
        "initial: {kind: jeans_wave, amplitude: 0.1}",
    ),
    "schrodinger_poisson": (
        "model: {kind: schrodinger_poisson, hbar_over_m: 0.9, self_interaction: 0.2, gravitational_constant: 0.8}",
        SPACE,
        "initial: {kind: jeans_wave, amplitude: 0.1}",
    ),
    "growing waves": (
        "model: {kind: schrodinger_poisson, hbar_over_m: 0.9, cosmology: {start: 0.1, matter: 0.3,"
        " radiation: 1e-3, curvature: 0.01, dark_energy: {w0: -0.9, wa: 0.1}}}",
        SPACE,
        "initial: {kind: jeans_wave, amplitude: 0.1}",
    ),
    "composite": (
        DUST.replace("count: 64", "count: 64, softening: 0.3").replace(
            "components",
            "gravitational_constant: 0.8, cosmology: {start: 0.1, hubble: 1.1, matter: 0.3, radiation: 1e-3,"
            " curvature: 0.01, dark_energy: {w0: -0.9, wa: 0.1}}, components",
        ),
        SPACE,
        "initial: {kind: composite, components: {dust: {kind: jeans_wave, amplitude: 0.1}}}",
    ),
    "mhd closure": (
        "model: {kind: mhd, viscosity: 0.02, resistivity: 0.03, drag: {coefficient: 0.1, below: 1.5},"
        " hyperresistivity: {order: 2, coefficient: 1e-3},"
        " scalars: [{name: dye, diffusivity: 0.02, mean_gradient: [0.1, 0.2, 0.3]}],"
        " subgrid: {kind: smagorinsky, resistive_coefficient: 0.3, turbulent_prandtl: 0.6}}",
        SPACE,
        "initial: {kind: random, peak: 1.2, magnetic: {peak: 1.2}, scalars: {dye: {peak: 1.2}}}",
    ),
    "stratified closure": (
        "model: {kind: boussinesq, viscosity: 0.02, diffusivity: 0.03, stratification: 0.7,"
        " subgrid: {kind: dynamic_smagorinsky, turbulent_prandtl: 0.6}}",
        SPACE,
        RANDOM,
    ),
    "spectral scalars": (
        FLOW.replace(
            "0.02",
            "0.02, scalars: [{name: dye, diffusivity: 0.02}],"
            " subgrid: {kind: spectral, turbulent_prandtl: 0.7}",
        ),
        SPACE,
        "initial: {kind: random, peak: 1.2, scalars: {dye: {peak: 1.2}}}",
    ),
    "trapped waves": (
        "model: {kind: schrodinger_poisson, hbar_over_m: 0.9, absorber: {width: 2, rate: 0.7},"
        " external_potential: {kind: harmonic, frequency: [0.9, 1, 1.1]}}",
        SPACE,
        "initial: {kind: jeans_wave, amplitude: 0.1}",
    ),
    "waves in a potential": (
        "model: {kind: schrodinger_poisson, hbar_over_m: 0.9,"
        " external_potential: {kind: python, path: own.py, function: potential, parameters: {depth: 0.4}}}",
        PLANE,
        "initial: {kind: jeans_wave, amplitude: 0.1}",
    ),
    "soliton density": (
        "model: {kind: schrodinger_poisson, boson_mass: 1e-3, h: 0.7, units: mpc_h_km_s_msun_h}",
        SPACE,
        "initial: {kind: soliton, central_density: 1e8}",
    ),
    "solitons": (
        WAVES,
        SPACE,
        "initial: {kind: soliton, solitons: [{core_radius: 0.8, position: [2, 3, 3], velocity: [0.1, 0.2, 0.3],"
        " phase: 0.4}, {core_radius: 0.9, position: [4, 3, 3.2], velocity: [0.3, 0.2, 0.1], phase: 0.1}]}",
    ),
    "gas and waves": (
        "model: {kind: composite, gravitational_constant: 0.8, components: ["
        "{kind: self_gravitating_gas, sound_speed: 1.1, viscosity: 0.05, bulk_viscosity: 0.04},"
        " {kind: schrodinger_poisson, hbar_over_m: 0.9, self_interaction: 0.2}]}",
        SPACE,
        "initial: {kind: composite, components: {gas: {kind: jeans_wave, amplitude: 0.1},"
        " waves: {kind: jeans_wave, amplitude: 0.1}}}",
    ),
    "a plane of vorticity": (
        f"model: {{kind: python, path: {EQUATIONS}/beta_plane.py, equation: BetaPlane, parameters:"
        " {beta: 3, inverse_deformation_radius: 0.5, viscosity: 0.02, drag: 0.03}}",
        PLANE,
        "initial: {kind: random, fields: {vorticity: {variance: 0.5, peak: 1.2}}}",
    ),
    "shallow water": (
        f"model: {{kind: python, path: {EQUATIONS}/shallow_water.py, equation: ShallowWater, parameters:"
        " {gravity: 2, depth: 1.1, coriolis: 0.8, viscosity: 0.02}}",
        PLANE,
        "initial: {kind: random, fields: {height: {variance: 0.05, peak: 1.2}}}",
    ),
    "a quantum fluid": (
        f"model: {{kind: python, path: {EQUATIONS}/nonlinear_schrodinger.py,"
        " equation: NonlinearSchrodinger, parameters: {interaction: 0.8}}",
        "grid: {shape: [8, 8], dealias: none}",
        "initial: {kind: random, fields: {psi: {variance: 0.5, peak: 1.2}}}",
    ),
    **{
        closure: (
            FLOW.replace("0.02", f"0.02, subgrid: {{kind: {closure}, {keys}}}"),
            SPACE,
            RANDOM,
        )
        for closure, keys in {
            "smagorinsky": "coefficient: 0.2, filter_width: 0.9",
            "dynamic_smagorinsky": "filter_width: 0.9",
            "spectral": "kolmogorov_constant: 1.3",
        }.items()
    },
}

# The starts and terms of plugins, which may be absent.
_ABSENT = {
    f"kind: {kind},"
    for kind in ("cosmological", "soliton", "soliton_merger", "relax")
    if kind not in (*INITIALS, *TERMS)
}
IN_CASES = "\n".join(line for blocks in CASES.values() for line in blocks)
CASES = {
    name: blocks
    for name, blocks in CASES.items()
    if not (absent_plugin(blocks) or any(kind in b for kind in _ABSENT for b in blocks))
}

REFUSED: Mapping[str, Mapping[str, str]] = {
    "boussinesq": {
        "model.gravity": "a direction, which is made a unit vector before a run",
        "model.stratification": "its sign decides what is measured",
    },
    "stratified closure": {"model.stratification": "its sign decides what is measured"},
    "sheared layers": {"model.stratification": "its sign decides what is measured"},
    **{
        case: {"model.cosmology.start": "the clock of a run begins there"}
        for case in ("growing waves", "cosmological", "cosmological dust", "transfer")
    },
    "soliton_merger": {
        "initial.core_radius": "solitons are drawn on the host",
        "initial.radius": "solitons are drawn on the host",
    },
    "composite": {
        "model.cosmology.start": "the clock of a run begins there",
        "model.components.0.softening": "the force of particles is made before a run",
    },
}
"""Numbers that a gradient does not go through, with the reason, by case."""


def numbers(name: str) -> dict[str, float]:
    """The numbers of a case by their keys; whole numbers are written without a point."""
    config = parse_yaml("\n".join(CASES[name]), name).value
    blocks = ("model", "forcing", "terms", "initial")
    items = (i for b in blocks for i in walk(config.get(b, {}), b))
    found = {key: item for key, item, _ in items if isinstance(item, int | float)}
    return {k: float(item) for k, item in found.items() if not k.endswith(("count", "order"))}


def simulated(name: str, folder: Path) -> Simulation:
    (folder / "table.txt").write_text(TABLE)
    (folder / "own.py").write_text(PYTHON)
    split = any(word in CASES[name][0] for word in ("schrodinger", "composite"))
    integrator = "kick_drift_kick" if split else "rk2"
    blocks = (
        *CASES[name],
        f"time: {{stop: 1, dt: 0.02, integrator: {integrator}}}",
        "devices: {platform: cpu}",
    )
    (folder / "run.yaml").write_text("\n".join(blocks))
    return Simulation(load_config(folder / "run.yaml"), cluster=on_devices(1))


def waves(simulation: Simulation, state: Any) -> Any:
    """A loss that weighs every mode, and every particle, differently."""
    total = jnp.zeros(())
    for name, u in state.fields.items():
        layout = simulation.model.transforms[name].layout
        x, y, z = (layout.integers(axis) for axis in "xyz")
        sizes = (1 + u.real) ** 2 + (0.5 + u.imag) ** 2
        total = total + layout.sum(sizes * jnp.cos(x + 2 * y + 3 * z)).sum()
    for p in state.particles.values():
        places = jnp.cos(p.records["position"] + p.id) + jnp.sin(p.records["velocity"])
        total = total + jnp.where(p.valid, p.records["mass"] * places, 0).sum()
    return total


QUICK = ("python", "cosmological", "jeans_wave gas", "smagorinsky")


@pytest.mark.plugins
@pytest.mark.long
@pytest.mark.parametrize("name", slow_but(CASES, QUICK))
def test_slopes_are_finite_and_those_of_differences(name: str, differentiate, tmp_path: Path):
    """Central differences, extrapolated once: their error is of the order h^4 = 1e-12 of the loss,
    and round-off 1e-16 / h = 1e-13."""
    simulation = simulated(name, tmp_path)
    at = numbers(name)
    gradient = differentiate(simulation, lambda state: waves(simulation, state), steps=1, dt=0.02)
    refused = {key for key in at if key.startswith(tuple(REFUSED.get(name, ())))}
    for key in at:
        if key not in refused:
            gradient.lower({key: at[key]})  # alone: another program than that of all together
            continue
        with pytest.raises(UserError, match=rf"^variables: \W?{re.escape(key)}") as refusal:
            gradient.lower({key: at[key]})
        assert len(str(refusal.value).splitlines()) == 1
    at = {key: number for key, number in at.items() if key not in refused}
    zeros = [key for key, number in at.items() if number == 0]
    assert not zeros, f"CASES[{name!r}]: {zeros}: no number may be 0, for steps are relative to it"
    _, slopes = gradient(at)

    def central(key: str, h: float) -> float:
        ends = [float(gradient({**at, key: at[key] + d})[0]) for d in (h, -h)]
        return (ends[0] - ends[1]) / (2 * h)

    for key, number in at.items():
        h = 1e-3 * abs(number)
        expected = (4 * central(key, h / 2) - central(key, h)) / 3
        assert np.isfinite(slopes[key]), key
        assert float(slopes[key]) == pytest.approx(expected, rel=1e-6, abs=1e-8), key


ELSEWHERE: Mapping[str, str] = {
    "snapshot": "no numbers",
    "file": "no numbers",
    "gadget": "only its share, which a file of particles decides",
    "music": "only its share, which a file of particles decides",
}


def test_every_start_forcing_and_model_has_a_case():
    for kind in (*INITIALS, *FORCINGS, *MODELS):
        cure = "add a case to CASES of tests/simulation/test_every_number.py"
        assert f"kind: {kind}" in IN_CASES or kind in ELSEWHERE, f"{kind}: {cure}"


NO_SLOPE = ("band", "max_edge_energy")  # select modes, and end a run


@pytest.mark.skipif(bool(_ABSENT), reason="cases of absent plugins have some of the numbers")
def test_every_number_of_a_block_has_a_case():
    present: dict[str, set[str]] = {}
    for name, lines in CASES.items():
        for kind, last in _named_numbers(parse_yaml("\n".join(lines), name).value):
            present.setdefault(kind, set()).add(last)
    anywhere = set().union(*present.values())
    missing = []
    for key in reference_keys():
        block, _, last = key.path.rpartition(".")
        shared = not key.kind or block.endswith("magnetic")  # the same block in every kind
        is_number = "number" in key.type and "whole" not in key.type and last not in NO_SLOPE
        varies = block.startswith(("model", "initial", "forcing")) and key.kind not in ELSEWHERE
        names = anywhere if shared else present.get(key.kind, set())
        if is_number and varies and last not in names:
            missing.append(key.path)
    assert not missing, f"{missing}: name them in CASES of tests/simulation/test_every_number.py"


def _named_numbers(block: object, kind: str = "") -> Iterator[tuple[str, str]]:
    """The kind of its block, and the last part of the key, of every number."""
    if isinstance(block, dict):
        kind = block.get("kind", kind)
        for name, value in block.items():
            if all(isinstance(each, int | float) for each in np.ravel(value).tolist()):
                yield kind, name
            yield from _named_numbers(value, kind)
    elif isinstance(block, list):
        for each in block:
            yield from _named_numbers(each, kind)
