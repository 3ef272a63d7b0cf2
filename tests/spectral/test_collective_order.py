"""No program that a run compiles has a collective in a conditional, or in a loop whose trip count differs between
processes (`simulator.spectral.collectives` says why).

Every case is a run of a few steps, in a process of its own, in which XLA writes down each program that it compiles.
"""

import os
import subprocess
from pathlib import Path

import pytest
from collective_order import Compiled
from cover import write
from run_support import ROOT, command
from table import Case


def outputs(*kinds: str) -> Case:
    return {f"output.{kind}": "on" for kind in kinds}


MEASURED = outputs("transfer", "structure_functions", "histograms", "strain", "render", "statistics")
RUNS: dict[str, Case] = {
    "tracers": {"model": "navier_stokes", "species": "tracer", **outputs("pair_correlation")},
    "matter": {"model": "particles", "initial": "cosmological", **outputs("projections", "pair_correlation")},
    "species": {"model": "navier_stokes", "species": "both", **outputs("particle_statistics", "trajectories")},
    "outputs": {"model": "navier_stokes", "integrator": "rk3", "step": "chosen", **MEASURED},
    "low memory": {"model": "navier_stokes", "memory": "low", "species": "tracer"},
    "mhd": {"model": "mhd", "integrator": "etdrk4", "forcing": "ornstein_uhlenbeck"},
    "boussinesq": {"model": "boussinesq", "forcing": "constant_power", "step": "chosen"},
    "gas": {"model": "self_gravitating_gas", "step": "chosen", **outputs("histograms", "projections", "profiles")},
    "waves": {"model": "schrodinger_poisson", "initial": "soliton", "integrator": "composition4"},
}
"""Cases in the words of tests/pairs."""
LAYOUTS = {
    "slabs": ("grid.shape=16,16,16", "devices.count=2"),
    "uneven slabs": ("grid.shape=16,18,16", "devices.count=4"),
    "pencils": ("grid.shape=16,16,16", "devices.count=4", "fft.mesh=2,2"),
    "xla": ("grid.shape=16,16,16", "devices.count=2", "fft.kernels=xla"),
}
DEFAULT = ("low memory", "slabs")
CASES = [
    *(("tracers", layout) for layout in LAYOUTS),
    ("matter", "slabs"),
    *zip(
        list(RUNS)[2:], ("pencils", "xla", "slabs", "uneven slabs", "slabs", "uneven slabs", "pencils"), strict=True
    ),
]


def programs(run: str, layout: str, folder: Path) -> dict[str, str]:
    """The text of every program that a run compiles, by name."""
    case = write(folder, RUNS[run])
    dump = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=NONE --xla_dump_to="
    flags = {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"{dump}{folder / 'programs'}",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    given = command("run", case, "--output", "run", *LAYOUTS[layout])
    ended = subprocess.run(given, cwd=folder, env=os.environ | flags, capture_output=True, text=True, timeout=500)
    assert ended.returncode in (0, 3), ended.stderr + ended.stdout
    found = (folder / "programs").glob("*after_optimizations.txt")
    return {path.name: path.read_text() for path in found}


@pytest.mark.spmd
@pytest.mark.parametrize(
    ("run", "layout"), [pytest.param(*case, marks=[] if case == DEFAULT else pytest.mark.slow) for case in CASES]
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
