"""One precision: the text of every program that a run compiles, from its start to its last row, is read."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from simulator import Simulation, load_config
from simulator.archive.recorder import Recorder
from simulator.measure import KINDS
from simulator.physics.forcing import FORCINGS
from simulator.physics.initial import INITIALS
from simulator.physics.models import MODELS
from simulator.physics.models.closures import CLOSURES
from simulator.physics.models.composite import COMPONENTS
from simulator.physics.particles import PARTICLES
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.advance import Until
from simulator.simulation.compiling import Compilable

CODE = """
import jax.numpy as jnp

def flow(x, y, z):
    return {"velocity": [jnp.sin(y) + 0 * x + 0 * z, jnp.sin(z) + 0 * x + 0 * y, jnp.sin(x) + 0 * y + 0 * z]}

def force(x, y, z, t):
    return {"velocity": [jnp.sin(y) + 0 * x + 0 * z, 0 * x + 0 * y + 0 * z, 0 * x + 0 * y + 0 * z]}

def stress(velocity, gradient, width):
    strain = -((0.1 * width) ** 2) * (gradient + gradient.swapaxes(0, 1))
    return [strain[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]

def measured(fields, time):
    return {"third": (fields["velocity"] ** 2).mean() / 3}
"""
EQUATIONS = Path(__file__).parents[2] / "configs" / "equations"
HEAD = "grid: {shape: [8, 8, 8]}\noutput: {diagnostics: {every_steps: 1}, snapshots: {every_steps: 2}}\n"
FLOW = "model: {kind: navier_stokes, viscosity: 0.1}\n"
SCALARS = "scalars: [{name: dye, diffusivity: 0.1}]"
MATTER = "profiles: {}, projections: {}, histograms: {}, slices: {}"
CASES = {
    "flow": f"""
model: {{kind: navier_stokes, viscosity: 0.1, rotation: [0, 0, 1], drag: {{coefficient: 0.1, below: 1}}, {SCALARS},
         hyperviscosity: {{order: 2, coefficient: 1e-4}}}}
initial: {{kind: random, peak: 2, scalars: {{dye: {{variance: 1}}}}}}
forcing: {{kind: ornstein_uhlenbeck, rate: 0.1, correlation_time: 0.2}}
time: {{integrator: rk4}}
output: {{spectra: {{axis: z}}, spectral_maps: {{}}, cospectra: {{}}, transfer: {{}}, helicity: {{}}, strain: {{}},
          structure_functions: {{separations: [0.5], mixed: true}}, histograms: {{}}, joint_histograms: {{}},
          probes: {{points: [[1, 2, 3]]}}, slices: {{}}, shell_to_shell: {{}}, statistics: {{}},
          field_statistics: {{}}, render: {{size: [16, 16]}},
          python: {{path: CODE, function: measured}}}}
""",
    "particles": f"""
{FLOW}
initial: {{kind: taylor_green}}
forcing: {{kind: linear, coefficient: 0.1}}
time: {{integrator: rk3}}
particles:
- {{name: cubic, kind: tracer, count: 100}}
- {{name: linear, kind: tracer, count: 64, start: lattice, interpolation: linear}}
- {{name: drops, kind: inertial, count: 64, stokes_number: 1, density_ratio: 3, gravity: [0, 0, -1]}}
output: {{particle_statistics: {{}}, pair_correlation: {{}}, trajectories: {{sample: [velocity, acceleration]}}}}
""",
    "spectral-closure": f"""
model: {{kind: navier_stokes, viscosity: 0.1, subgrid: {{kind: spectral}}, {SCALARS}}}
initial: {{kind: abc}}
forcing: {{kind: abc}}
time: {{integrator: etdrk4}}
output: {{transfer: {{}}}}
""",
    "python-closure": """
model: {kind: navier_stokes, viscosity: 0.1, subgrid: {kind: python, path: CODE, function: stress}}
initial: {kind: python, path: CODE, function: flow}
forcing: {kind: python, path: CODE, function: force}
time: {integrator: rk2}
""",
    "boussinesq": """
model: {kind: boussinesq, viscosity: 0.1, diffusivity: 0.1, stratification: 2,
        subgrid: {kind: smagorinsky}}
initial: {kind: random, peak: 2}
forcing: {kind: kolmogorov}
output: {cospectra: {}, transfer: {}, spectral_maps: {}}
""",
    "mhd": """
model: {kind: mhd, viscosity: 0.1, resistivity: 0.1, subgrid: {kind: smagorinsky, resistive_coefficient: 0.1}}
initial: {kind: orszag_tang}
forcing: {kind: constant_power, rate: 0.1}
output: {cospectra: {}, transfer: {}, helicity: {}, structure_functions: {separations: [0.5], mixed: true}}
""",
    "plane": f"""
{FLOW}
grid: {{shape: [8, 8]}}
initial: {{kind: random, peak: 2}}
forcing: {{kind: taylor_green}}
output: {{slices: {{}}, transfer: {{}}}}
""",
    "gas": f"""
model: {{kind: self_gravitating_gas, sound_speed: 1, viscosity: 0.1, bulk_viscosity: 0.1, green: finite_difference}}
initial: {{kind: jeans_wave, amplitude: 0.01}}
forcing: {{kind: ornstein_uhlenbeck, rate: 0.1, correlation_time: 0.2, solenoidal_weight: 0.5}}
output: {{{MATTER}, cospectra: {{}}, transfer: {{}}, structure_functions: {{separations: [0.5]}}}}
""",
    "pancake-of-gas": f"""
model: {{kind: self_gravitating_gas, sound_speed: 0.5, polytropic_exponent: 1.5}}
initial: {{kind: zeldovich_wave}}
output: {{{MATTER}}}
""",
    "waves": f"""
model: {{kind: schrodinger_poisson, self_interaction: 0.1,
         external_potential: {{kind: harmonic, frequency: [1, 1, 1]}}}}
grid: {{shape: [16, 16, 16], box: [10, 10, 10]}}
initial: {{kind: soliton, core_radius: 1, relax: true}}
time: {{integrator: composition4}}
output: {{{MATTER}, cospectra: {{}}}}
""",
    "merger": """
model: {kind: schrodinger_poisson, absorber: {width: 1, rate: 1}}
initial: {kind: soliton_merger, count: 2}
time: {integrator: composition6}
""",
    "cosmological-waves": """
model: {kind: schrodinger_poisson, cosmology: {start: 0.02}}
initial: {kind: cosmological, amplitude: 0.1}
time: {integrator: drift_kick_drift}
""",
    "composite": f"""
model: {{kind: composite, cosmology: {{start: 0.1}}, components: [
  {{kind: self_gravitating_gas, sound_speed: 0}}, {{kind: schrodinger_poisson}},
  {{kind: particles, name: dark, count: 64, assignment: tsc, interlacing: true, reproducible: true}},
  {{kind: particles, name: stars, count: 20, assignment: cic, softening: 3, arrangement: glass}}]}}
initial: {{kind: composite, components: {{gas: {{kind: uniform}}, waves: {{kind: uniform}},
          dark: {{kind: zeldovich_wave}}, stars: {{kind: jeans_wave, mode: [1, 0, 0]}}}}}}
time: {{integrator: drift_kick_drift}}
output: {{{MATTER}, trajectories: {{}}, particle_statistics: {{}}}}
""",
    "cold-dark-matter": f"""
model: {{kind: composite, cosmology: {{start: 0.02}}, components: [
  {{kind: particles, name: dark, count: 216, interlacing: true}}]}}
initial: {{kind: composite, components: {{dark: {{kind: cosmological, amplitude: 0.1}}}}}}
time: {{integrator: kick_drift_kick}}
output: {{{MATTER}, trajectories: {{}}, particle_statistics: {{}}, pair_correlation: {{}}}}
""",
    "equation": f"model: {{kind: python, path: {EQUATIONS}/hall_mhd.py, equation: HallMhd, "
    "parameters: {viscosity: 0.1, resistivity: 0.1, ion_length: 0.1}}\n"
    f"initial: {{kind: python, path: {EQUATIONS}/hall_mhd.py, function: orszag_tang}}\n",
    "split-equation": f"model: {{kind: python, path: {EQUATIONS}/nonlinear_schrodinger.py, "
    "equation: NonlinearSchrodinger, parameters: {interaction: 1}}\n"
    "grid: {shape: [8, 8], dealias: none}\n"
    "initial: {kind: random, fields: {psi: {variance: 1}}}\ntime: {integrator: composition4}\n",
}
QUICK = ("cold-dark-matter", "particles")
"""Windows and phases of the first were computed in single precision."""


def test_the_cases_name_every_part():
    words = set(re.findall(r"[a-z_0-9]+", " ".join([*CASES.values(), "snapshot", "rk4", "smagorinsky"])))
    for parts in (MODELS, COMPONENTS, INITIALS, FORCINGS, CLOSURES, PARTICLES, INTEGRATORS, KINDS):
        assert set(parts) <= words, set(parts) - words


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_compiled_yet():
    jax.clear_caches()


def configuration(folder: Path, text: str, precision: str):
    """Every series has a row at every step."""
    import yaml

    (folder / "code.py").write_text(CODE)
    merged: dict = {"name": "run", "time": {}, "output": {}}
    for part in (HEAD, text.replace("CODE", "code.py")):
        for key, value in yaml.safe_load(part).items():
            if isinstance(merged.get(key), dict) and key != "grid":
                merged[key].update(value)
            else:
                merged[key] = value
    merged["time"] |= {"stop": 1.0, "dt": 0.001, "max_steps": 2}
    merged["output"] = {name: {"every_steps": 1, **block} for name, block in merged["output"].items()} | {
        "directory": str(folder / precision)
    }
    merged |= {"precision": precision, "devices": {"platform": "cpu", "count": 1}}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(merged))
    return load_config(path)


def lowered(simulation: Simulation, folder: Path) -> dict[str, str]:
    """What a run compiles before its first step. On one device the text holds the bodies of all programs."""
    until = Until(np.float64(0), np.float64(0), np.int64(0))
    found = {
        "advance": Compilable(simulation.advance, (simulation.placed_template, until)),
        "diagnostics": Compilable(simulation.diagnostics, (simulation.placed_template,)),
        **Recorder(simulation, folder, lambda write: None).programs(),
        **{n: Compilable(simulation.values(n), (simulation.placed_template,)) for n in simulation.field_names},
    }
    return {name: function.lower(*arguments).as_text() for name, (function, arguments) in found.items()}


def of_the_start(simulation: Simulation, folder: Path) -> dict[str, str]:
    """What is compiled to make the first state, which is made."""
    jax.config.update("jax_dump_ir_to", str(folder / "start"))
    try:
        simulation.check_start()
    finally:
        jax.config.update("jax_dump_ir_to", "")
    return {path.name: path.read_text() for path in sorted((folder / "start").glob("*.mlir"))}


def narrow(texts: dict[str, str]) -> dict[str, list[str]]:
    """The lines with single-precision values, by program."""
    found = {
        name: [line.strip() for line in text.splitlines() if re.search(r"\bf32\b|xf32[,>]", line)]
        for name, text in texts.items()
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_a_double_run_has_no_single_precision_value(tmp_path, name):
    simulation = Simulation(configuration(tmp_path, CASES[name], "double"))
    texts = lowered(simulation, tmp_path)
    assert "xf64>" in texts["advance"]
    assert not narrow(texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nor_has_its_start(tmp_path, name):
    texts = of_the_start(Simulation(configuration(tmp_path, CASES[name], "double")), tmp_path)
    assert texts and not narrow(texts)
