"""`RUN/provenance.json`: versions, commit, host and devices of a run, so that it can be identified
and repeated."""

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.cluster.variables import recorded_variables
from simulator.files import UNRECORDED, Journal, read_json, replace_json
from simulator.words import version_of

NAME = "provenance.json"
_PACKAGES = ("simulator", "jax", "jaxlib", "jaxdecomp", "numpy", "h5py")


def collect(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    devices: Mapping[str, Any],
    mesh: Mapping[str, Any],
    environment_set: Mapping[str, str],
) -> dict[str, Any]:
    """Versions, commit, host, devices and environment of this start. `devices` and `mesh` hold
    plain values.

    `environment_set`: variables that this program set itself before JAX started. Of the environment
    only the variables in a list of names are recorded."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "versions": {"python": platform.python_version(), **{p: version_of(p) for p in _PACKAGES}},
        "git": git_state(Path(__file__).parent),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "processor": processor(),
            "interpreter": sys.executable,
        },
        "devices": dict(devices),
        "mesh": dict(mesh),
        "environment": recorded_variables(environ),
        "environment_set": dict(environment_set),
    }


def record_start(folder: Path, now: Mapping[str, Any], journal: Journal = UNRECORDED) -> None:
    """Write `now` to `provenance.json`; the records of earlier starts are kept under `earlier`."""
    before = read(folder)
    earlier = [*before.pop("earlier", []), before] if before else []
    replace_json(folder / NAME, {**now, "earlier": earlier}, journal)


def read(folder: Path) -> dict[str, Any]:
    """The recorded provenance; empty if there is none."""
    return read_json(folder / NAME)


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and changed files of the checkout that `folder` belongs to (`dirty` and `changed` are
    None if git does not answer in time); None if the package is an installed copy."""

    def git(*arguments: str) -> str | None:
        try:
            answer = subprocess.run(
                # Without locks: a run killed here would leave one behind, and nobody could commit
                # any more.
                ["git", "--no-optional-locks", "-C", str(folder), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return answer.stdout.rstrip("\n") if answer.returncode == 0 else None

    # A package installed inside another project's checkout (.venv) does not belong to that
    # checkout.
    if (
        git("ls-files", "--error-unmatch", "__init__.py") is None
        or (commit := git("rev-parse", "HEAD")) is None
    ):
        return None
    status = git("status", "--porcelain", "--untracked-files=no")
    if status is None:  # a slow disk: unknown is not clean
        return {"commit": commit, "dirty": None, "changed": None}
    changed = [line[3:] for line in status.splitlines()]
    return {"commit": commit, "dirty": bool(changed), "changed": changed}


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
