"""Every script runs at its smallest size. Peers that are not installed are left out by the scripts,
which say so in a line each."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import split

import pytest
from run_support import ROOT

SCRIPTS = ROOT / "scripts"
pytestmark = pytest.mark.slow

PEERS = "fluidsim,jaxion,jaxpm,exponax"  # bench_peers.py would install them
TRAINING = "--frames 1 --updates 1 --batch 2 coarse_2d.yaml"
DATA = "outputs/coarse_2d/reference_2d/dataset"
CLOSURE = """\
import numpy as np

def weights():
    return {"w": np.full(1, 0.01)}

def stress(velocity, gradient, width, w):
    tau = -w[0] * width * (gradient + gradient.swapaxes(0, 1))
    return tau[0, 0], tau[1, 1], tau[0, 1]
"""
SUBGRID = "{kind: python, path: closure.py, function: stress, arrays_function: weights}"
SMALLEST = {
    "assimilate_turbulence": "--size 16 --devices 1 --iterations 1 --output assimilate",
    "bench_dataset": "planes --runs 2 --frames 2",
    "bench_ensemble": "--runs 2 --shape 8 --stop 0.05",
    "bench_fft": "--shape 8,8,8 --seconds 0.1 --without fftw",
    "bench_gravity": "--shape 8 --rounds 1 --steps 1",
    "bench_mosaic": "cost --sizes 8",
    "bench_output": "--size 8 --every 4 --rounds 1",
    "bench_peers": "--shapes 8 --gradients 8 --k-max 4 --stop 0.1 --rounds 1 --without " + PEERS,
    "bench_plan": "--shapes 8 --devices 1 --models navier_stokes",
    "bench_shares": "--shape 8 --steps 1 --only mhd,particles",
    "bench_tracers": "--shape 8 --count 100 --rounds 1 --steps 1",
    "boson_mass": "mass.png --points 16",
    "cosmology_check": "outputs/cold_dark_matter check.png",
    "finite_differences": "picture.png --small",
    "few_steps": "--points 8 --steps 2 --reference 4",
    "gallery": "taylor_green --folder made --destination copy",
    "gpu_day": "--platform cpu --shapes 8 --seconds 0.1 --minutes 0",
    "how_we_know": "--check",
    "infer_flow": "--chains 2 --data-sets 2 --warmup 6 --draws 4",
    "judge_closure": f"coarse_2d.yaml {DATA} closure 'model.subgrid={SUBGRID}'",
    "without_plugins": "core tests/test_files.py -n 0 -q",
    "mutants": f"cover --tests '{ROOT}/tests/test_files.py'",
    "nudged_twins": "--points 12 --spin-up 0.1 --stop 0.2 --below 2 --viscosity 0.1",
    "performance": "--check",
    "release": "metadata .",
    "scaling": f"'{ROOT}/configs/taylor_green.yaml' --device h100 --most 2",
    "smaller_files": "picture.png --points 8 --rounds 1 --cases turbulence waves",
    "softening": "softening.png",
    "taylor_green_curve": "outputs/taylor_green_re1600 --numbers numbers --picture curve.png",
    "train_closure": f"{TRAINING} {DATA} closure 'model.subgrid={SUBGRID}'",
    "train_corrector": f"{TRAINING} {DATA} corrector",
    "steps_by_error": "korteweg_de_vries --asked 1e-3 1e-4 --halvings 2",
    "wave_steps": "rotating --points 8 --steps 20 --reference 40",
}
NO_PROGRAMS = {"docs_hooks"}  # ./scripts/docs runs its functions


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "MUTANTS": str(folder / "mutants")},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def closure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of five runs on 32^2 points, and the coarse run on 16^2 points."""
    folder = tmp_path_factory.mktemp("closure")
    smaller = {"[32, 32]": "[16, 16]", "128, 128": "32, 32", "n: 40": "n: 5", "9.6": "0.4"}
    for name in ("coarse_2d.yaml", "sweep_reference_2d.yaml", "ring.py"):
        text = (ROOT / "configs" / "closures" / name).read_text()
        for old, new in smaller.items():
            text = text.replace(old, new)
        (folder / name).write_text(text)
    (folder / "closure.py").write_text(CLOSURE)
    run(folder, "-m", "simulator", "dataset", "sweep_reference_2d.yaml")
    run(folder, str(SCRIPTS / "train_closure.py"), *split(SMALLEST["train_closure"]))
    return folder


@pytest.fixture(scope="module")
def cosmology(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of configs/cold_dark_matter.yaml with 16^3 particles, and its halos."""
    folder = tmp_path_factory.mktemp("cosmology")
    name = "cold_dark_matter"
    smaller = ["grid.shape=16,16,16", "model.components.0.count=4096"]
    rows = "output.spectra={every: {redshift: [9, 1, 0]}}"
    run(folder, "-m", "simulator", "run", str(ROOT / f"configs/{name}.yaml"), *smaller, rows)
    run(folder, "-m", "simulator", "halos", f"outputs/{name}")
    return folder


@pytest.fixture(scope="module")
def vortex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of configs/taylor_green_re1600.yaml on 16^3 points to t = 0.5."""
    folder = tmp_path_factory.mktemp("vortex")
    smaller = ["grid.shape=16,16,16", "time.stop=0.5", "output.diagnostics.every=0.1"]
    config = str(ROOT / "configs/taylor_green_re1600.yaml")
    run(folder, "-m", "simulator", "run", config, *smaller)
    return folder


def test_every_program_among_the_scripts_is_here():
    assert {file.stem for file in SCRIPTS.glob("*.py")} == SMALLEST.keys() | NO_PROGRAMS


@pytest.mark.parametrize("script", SMALLEST)
def test_a_script_at_its_smallest_size(script: str, tmp_path: Path, request: pytest.FixtureRequest):
    if script == "infer_flow" and not (find_spec("numpyro") and find_spec("blackjax")):
        pytest.skip("needs numpyro and blackjax: pip install 'simulator[inference]'")
    if script in ("judge_closure", "train_closure", "train_corrector"):
        tmp_path = request.getfixturevalue("closure")
    elif script == "cosmology_check":
        tmp_path = request.getfixturevalue("cosmology")
    elif script == "taylor_green_curve":
        tmp_path = request.getfixturevalue("vortex")
    run(tmp_path, str(SCRIPTS / f"{script}.py"), *split(SMALLEST[script]))
