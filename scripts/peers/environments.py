"""The other programs of `bench_fft.py` and `bench_peers.py`: their environments, which the
benchmarks install, and their processes, which wait for turns."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.jax_versions import FAULTS

HERE = Path(__file__).resolve().parent
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
FOLDER = Path(CACHE) / "simulator-peers"
"""Where the benchmarks install other programs, unless `--folder` names another place."""


class Missing(Exception):
    """A contender cannot run, for the reason in the message."""


@dataclass(frozen=True)
class Environment:
    """The interpreter, variables and MPI ranks of a contender."""

    python: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    ranks: int | None = None


def installed(
    folder: Path, packages: tuple[str, ...], environ: Mapping[str, str], probe: str
) -> Path:
    """The interpreter of an environment with these packages, created if missing. Raises Missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        call([sys.executable, "-m", "venv", str(folder)], {}, "no environment could be made")
    check = [str(python), "-c", probe]
    if subprocess.run(check, capture_output=True, env=os.environ | environ).returncode:
        print(f"installing {', '.join(packages)} in {folder} ...", file=sys.stderr, flush=True)
        call([str(python), "-m", "pip", "install", "-q", *packages], environ, "pip install failed")
        call(check, environ, "the installed packages cannot be imported")
    return python


def installed_with_jax(folder: Path, packages: tuple[str, ...], probe: str) -> Environment:
    """The environment of a program on JAX, in a release that computes rightly. Raises Missing."""
    sound = ",".join(f"!={version}" for version in FAULTS)
    probe = f"{probe}; import jaxlib; assert jaxlib.__version__ not in {list(FAULTS)}"
    return Environment(installed(folder, (*packages, f"jax{sound}", f"jaxlib{sound}"), {}, probe))


def call(command: list[str], environ: Mapping[str, str], problem: str, **options: Any) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environ, **options
    )
    if done.returncode:
        lines = [x for x in (done.stderr + done.stdout).splitlines() if "rror" in x] or [
            done.stderr.strip()
        ]
        raise Missing(f"{problem}: {lines[0].strip()}")


def as_long(most: int, points: int) -> int:
    """The steps of a call that visits about `most` points, 1 to 100."""
    return min(max(1, round(most / points)), 100)


class Peer:
    """A running program of `peers/` that waits for its turns."""

    def __init__(self, program: str, environment: Environment, problem: Mapping[str, Any]):
        command = [str(environment.python), str(HERE / program), json.dumps(problem)]
        if environment.ranks:
            command = ["mpirun", "--oversubscribe", "-n", str(environment.ranks), *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment.environ,
        )
        self.times: list[Any] = []
        self.problem = problem
        self.about = self._answer()
        self.name = self.about["name"]
        self.energy = self.about.get("energy")

    def round(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.times.append(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            last = (
                self._process.stderr.read().strip().splitlines() or ["it ended without a message"]
            )[-1]
            raise Missing(last)
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        self._process.kill()
