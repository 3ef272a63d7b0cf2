"""No program that a run compiles has a collective in a conditional, or in a loop whose trip count differs between
processes (`simulator.spectral.collectives` says why).

Every case is a run of a few steps, in a process of its own, in which XLA writes down each program that it compiles.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from collective_order import Compiled

ROOT = Path(__file__).parents[2]
FLOW = """\
model: {kind: navier_stokes, viscosity: 0.05}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 100, max_steps: 3, cfl: 0.3}
"""
EVERY = "{every_steps: 1}"
RUNS = {
    "tracers": FLOW.replace("cfl: 0.3", "dt: 0.01")
    + f"particles: [{{name: tracers, kind: tracer, count: 200}}]\noutput: {{diagnostics: {EVERY}}}\n",
    "matter": f"""\
model:
  kind: composite
  cosmology: {{start: 0.02, matter: 0.3, hubble: 1.0}}
  components: [{{kind: particles, name: dark_matter, count: 512}}]
initial:
  kind: composite
  components: {{dark_matter: {{kind: cosmological, amplitude: 158, index: -1.5, seed: 1}}}}
time: {{stop: 21, max_steps: 3, cfl: 0.5, max_dt: 0.1}}
output: {{projections: {EVERY}, pair_correlation: {EVERY}}}
""",
    "species": FLOW.replace("cfl", "integrator: rk2, cfl")
    + f"""\
particles:
  - {{name: tracers, kind: tracer, count: 200}}
  - {{name: drops, kind: inertial, count: 64, start: lattice, stokes_number: 1.0, density_ratio: 800}}
output:
  particle_statistics: {EVERY}
  trajectories: {{every_steps: 1, count: 20, sample: [velocity, acceleration]}}
""",
    "outputs": FLOW.replace("cfl", "integrator: rk3, cfl")
    + "output:\n"
    + "".join(f"  {kind}: {EVERY}\n" for kind in ("spectra", "transfer", "structure_functions", "histograms"))
    + f"  strain: {EVERY}\n  render: {{field: speed, every_steps: 1}}\n  statistics: {EVERY}\n",
    "mhd": FLOW.replace("navier_stokes", "mhd")
    .replace("0.05}", "0.05, resistivity: 0.05}")
    .replace("cfl", "integrator: etdrk4, cfl")
    + "forcing: {kind: ornstein_uhlenbeck, rate: 0.05, band: [1, 2], correlation_time: 1.0, seed: 3}\n",
    "boussinesq": FLOW.replace("navier_stokes", "boussinesq").replace(
        "0.05}", "0.05, diffusivity: 0.05, stratification: 1.0}"
    )
    + "forcing: {kind: constant_power, rate: 0.1, band: [1, 2]}\n",
    "gas": f"""\
model: {{kind: self_gravitating_gas, sound_speed: 1.0, gravitational_constant: 0.05, viscosity: 0.05}}
initial: {{kind: random, peak: 2.0, energy: 0.02, seed: 1}}
time: {{stop: 3.0, max_steps: 3, cfl: 0.5}}
output: {{histograms: {EVERY}, projections: {EVERY}, profiles: {EVERY}}}
""",
    "waves": f"""\
model: {{kind: schrodinger_poisson}}
initial: {{kind: soliton, core_radius: 1.0, relax: true}}
time: {{integrator: composition4, stop: 6.0, max_steps: 3, cfl: 0.5}}
output: {{profiles: {EVERY}}}
""",
}
LAYOUTS = {
    "slabs": ("grid.shape=16,16,16", "devices.count=2"),
    "uneven slabs": ("grid.shape=16,18,16", "devices.count=4"),
    "pencils": ("grid.shape=16,16,16", "devices.count=4", "fft.mesh=2,2"),
    "xla": ("grid.shape=16,16,16", "devices.count=2", "fft.kernels=xla"),
}
DEFAULT = [("tracers", "slabs"), ("matter", "slabs")]
CASES = [
    *DEFAULT,
    *(("tracers", layout) for layout in ("pencils", "uneven slabs", "xla")),
    *zip(list(RUNS)[2:], ("pencils", "xla", "uneven slabs", "slabs", "uneven slabs", "pencils"), strict=True),
]


def programs(run: str, layout: str, folder: Path) -> dict[str, str]:
    """The text of every program that a run compiles, by name."""
    (folder / "case.yaml").write_text(RUNS[run])
    dump = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=NONE --xla_dump_to="
    box = ("grid.box=14,14,14",) if run in ("waves", "matter") else ()
    flags = {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"{dump}{folder / 'programs'}",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    command = [
        sys.executable,
        "-m",
        "simulator",
        "run",
        "case.yaml",
        "--output",
        "run",
        *LAYOUTS[layout],
        *box,
    ]
    ended = subprocess.run(command, cwd=folder, env=os.environ | flags, capture_output=True, text=True, timeout=500)
    assert ended.returncode in (0, 3), ended.stderr + ended.stdout
    found = (folder / "programs").glob("*after_optimizations.txt")
    return {path.name: path.read_text() for path in found}


@pytest.mark.spmd
@pytest.mark.parametrize(
    ("run", "layout"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case not in DEFAULT else []) for case in CASES],
)
def test_all_processes_issue_the_same_collectives(run, layout, tmp_path):
    found = {name: Compiled(text) for name, text in programs(run, layout, tmp_path).items()}
    assert any("advance" in name and program.communicating for name, program in found.items())
    wrong = {name: lines for name, program in found.items() if (lines := program.violations())}
    assert not wrong, "\n".join(f"{name}:\n  " + "\n  ".join(lines[:5]) for name, lines in wrong.items())


PROGRAM = """\
HloModule written, num_partitions=2

add (a: f64[], b: f64[]) -> f64[] {
  %a = f64[] parameter(0)
  %b = f64[] parameter(1)
  ROOT %c = f64[] add(%a, %b)
}

body (q: (f64[], f64[])) -> (f64[], f64[]) {
  %q = (f64[], f64[]) parameter(0)
  %mine = f64[] get-tuple-element(%q), index=0
  %sum = f64[] get-tuple-element(%q), index=1
  %more = f64[] all-reduce(%sum), replica_groups={{0,1}}, to_apply=%add
  ROOT %next = (f64[], f64[]) tuple(%mine, %more)
}

condition (q: (f64[], f64[])) -> pred[] {
  %q = (f64[], f64[]) parameter(0)
  %mine = f64[] get-tuple-element(%q), index=WHOSE
  ROOT %going = pred[] compare(%mine, %mine), direction=LT
}

branch (z: f64[]) -> f64[] {
  %z = f64[] parameter(0)
  ROOT %y = f64[] BRANCH(%z), replica_groups={{0,1}}, to_apply=%add
}

ENTRY main (p: f64[]) -> f64[] {
  %p = f64[] parameter(0), sharding={devices=[2]<=[2]}
  %s = f64[] all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
  %start = (f64[], f64[]) tuple(%p, %s)
  %loop = (f64[], f64[]) while(%start), condition=%condition, body=%body
  %t = f64[] get-tuple-element(%loop), index=1
  %u = f64[] all-reduce(%t), replica_groups={{0,1}}, to_apply=%add
  %v = f64[] conditional(%u, %u, %u), branch_computations={%branch, %branch}
  ROOT %w = f64[] add(%v, %t)
}
"""


@pytest.mark.parametrize(
    ("whose", "branch", "expected"),
    [
        ("1", "negate", []),
        ("0", "negate", ["a loop with collectives goes on by one device's data"]),
        ("1", "all-reduce", ["a collective inside the conditional v "]),
    ],
)
def test_the_reader_finds_each_violation(whose, branch, expected):
    text = PROGRAM.replace("WHOSE", whose).replace("BRANCH", branch)
    found = Compiled(text).violations()
    assert len(found) == len(expected), found
    assert all(part in line for part, line in zip(expected, found, strict=True)), found
