"""Runs over MPI whose processes a real srun starts."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from run_support import CASE, write_case

from simulator.cluster import mpi

pytestmark = pytest.mark.slurm

PACKAGES = {"openmpi": "libopenmpi-dev openmpi-bin", "mpich": "libmpich-dev mpich"}


@pytest.mark.parametrize(
    "name, options",
    # Slurm's pmix does not start two nodes on one host.
    [("openmpi", "--mpi=pmix -N1 -n2"), ("mpich", "--mpi=pmi2 -N2 -n2")],
)
def test_srun_starts_a_run_over_mpi(slurm, tmp_path: Path, name: str, options: str) -> None:
    if shutil.which(f"mpicc.{name}") is None:
        if os.environ.get("CI") is None:
            pytest.skip(f"{name} is missing: apt-get install {PACKAGES[name]}")
        slurm.run("apt-get", "-y", "--no-install-recommends", "install", *PACKAGES[name].split())
    library = mpi.build_library(os.environ | {"MPICC": f"mpicc.{name}"}, tmp_path / "library.so")
    case = write_case(tmp_path, CASE.replace("count: 2", "count: auto"))
    tables = []
    for transport, words in (("auto", "over MPI ("), ("gloo", "over gloo")):
        folder = tmp_path / transport
        done = slurm.srun(
            f"--kill-on-bad-exit=1 {options}",
            *(sys.executable, "-m", "simulator", "run", str(case)),
            *(f"run.transport={transport}", "--output", str(folder)),
            timeout=300,
            **{mpi.LIBRARY: str(library)},
        )
        assert done.returncode == 0, done.stderr
        assert f"2 processes {words}" in done.stdout, done.stdout
        tables.append((folder / "diagnostics.csv").read_text())
    assert tables[0] == tables[1]
