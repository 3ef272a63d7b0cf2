"""A throwaway Slurm cluster of four nodes, started once for all tests here and ended after them."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from run_support import tool

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "slurm-cluster"
SBIN = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Slurm:
    """The cluster as tests use it. `environ` is a user's environment on it."""

    def __init__(self, folder: Path, conf: str) -> None:
        self.folder = folder
        self.environ = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
        } | {
            "SLURM_CONF": conf,
            "SLURM_CLUSTER_DIR": str(folder),
            "PYTHONPATH": str(ROOT),
            "SIMULATOR_CACHE": os.environ["SIMULATOR_CACHE"],
        }

    def run(self, *command: str, timeout: float = 120, cwd: Path | None = None, **environ: str):
        """A command of the user's."""
        return subprocess.run(
            command,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
        )

    def srun(self, options: str, *command: str, timeout: float = 120, **environ: str):
        return self.run("srun", *options.split(), *command, timeout=timeout, **environ)

    def python(
        self, options: str, script: Path, *arguments: str, timeout: float = 120, **environ: str
    ):
        """`srun` of a Python script, as job scripts do it."""
        options = f"--kill-on-bad-exit=1 {options}"
        return self.srun(
            options, sys.executable, str(script), *arguments, timeout=timeout, **environ
        )

    def popen(self, *command: str, output: Path, **environ: str) -> subprocess.Popen[bytes]:
        with output.open("wb") as file:
            return subprocess.Popen(
                command,
                env=self.environ | environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def sbatch(
        self, options: Sequence[str], script: Path | str, *arguments: str, cwd: Path, **environ
    ) -> str:
        """Submits a job; returns its id."""
        done = self.run(
            "sbatch", "--parsable", *options, str(script), *arguments, cwd=cwd, **environ
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job: str) -> dict[str, str]:
        """The fields of `scontrol show job`."""
        text = self.run("scontrol", "show", "job", "-o", job).stdout.splitlines()[0]
        return dict(field.split("=", 1) for field in text.split() if "=" in field)

    def wait(self, job: str, timeout: float = 120) -> dict[str, str]:
        """Waits until the job has ended for good."""
        running = {
            "PENDING",
            "RUNNING",
            "COMPLETING",
            "CONFIGURING",
            "REQUEUED",
            "SUSPENDED",
            "STOPPED",
            "SIGNALING",
        }
        end = time.monotonic() + timeout
        while (found := self.job(job))["JobState"] in running:
            assert time.monotonic() < end, f"job {job} is {found['JobState']} after {timeout} s"
            time.sleep(0.2)
        return found


def why_not() -> str | None:
    """Why there can be no cluster here, and how there can."""
    if os.getuid() != 0:
        return "the throwaway Slurm cluster needs root: run ./scripts/test --slurm as root, in a container for one"
    if not shutil.which("slurmctld", path=SBIN) and not shutil.which("apt-get"):
        return "Slurm is missing and this is no Debian: install munge, slurmctld, slurmd and slurm-client"
    return None


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    if reason := why_not():
        pytest.skip(reason)
    folder = Path(
        tempfile.mkdtemp(prefix="slurm-cluster-", dir="/tmp")
    )  # munge wants root's parents
    folder.chmod(0o755)
    environ = os.environ | {"SLURM_CLUSTER_DIR": str(folder), "SLURM_CLUSTER_GPUS": "4"}
    environ.pop("SLURM_CONF", None)
    started = subprocess.run(
        [SCRIPT, "up", "4"], env=environ, capture_output=True, text=True, timeout=600
    )
    try:
        assert started.returncode == 0, started.stderr
        exports = dict(
            line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines()
        )
        yield Slurm(folder, exports["SLURM_CONF"])
    finally:
        subprocess.run([SCRIPT, "down"], env=environ, timeout=120)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment whose `simulator` is this one."""
    (folder := tmp_path / "checkout").mkdir()
    tool(folder / "scripts", "run", "")
    tool(folder / "bin", "simulator", f'exec {sys.executable} -m simulator "$@"')
    return folder
