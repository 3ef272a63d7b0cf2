"""`RUN/provenance.json`: versions, commit, host and devices of a run, so that it can be identified
and repeated; and the installation that a record describes, as a list for pip."""

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.cluster.hardware import processor
from simulator.cluster.variables import recorded_variables
from simulator.config import RunConfig
from simulator.files import UNRECORDED, Journal, read_json, replace_json
from simulator.words import counted, version_of

NAME = "provenance.json"
_TOOLS = {"test", "docs", "dev", "readers"}  # Extras that no run uses.


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
        "versions": {
            "python": platform.python_version(),
            "simulator": version_of(),
            **required_packages(),
        },
        "git": git_state(Path(__file__).parent),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "processor": processor(),
            "interpreter": sys.executable,
        },
        "devices": devices,
        "mesh": mesh,
        "environment": recorded_variables(environ),
        "environment_set": environment_set,
    }


def record_start(folder: Path, now: Mapping[str, Any], journal: Journal = UNRECORDED) -> None:
    """Write `now` to `provenance.json`; the records of earlier starts are kept under `earlier`."""
    before = read(folder)
    earlier = [*before.pop("earlier", []), before] if before else []
    replace_json(folder / NAME, {**now, "earlier": earlier}, journal)


def read(folder: Path) -> dict[str, Any]:
    """The recorded provenance; empty if there is none."""
    return read_json(folder / NAME)


def earlier_choice(config: RunConfig) -> dict[str, Any] | None:
    """With `fft.backend: auto` the transform that an earlier start of the run has chosen, if any."""
    if config.fft.backend != "auto":
        return None
    mesh = read(config.output.directory).get("mesh")
    return mesh.get("choice") if isinstance(mesh, dict) else None


def required_packages() -> dict[str, str]:
    """Versions of this package and of all installed packages that it requires, directly or through
    others, sorted by name; without tools for tests and documentation. Empty if this package is not
    installed."""
    from importlib.metadata import PackageNotFoundError, metadata, requires, version

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    versions: dict[str, str] = {}
    visited: set[tuple[str, frozenset[str]]] = set()

    def visit(name: str, extras: frozenset[str]) -> None:
        if (name, extras) in visited:
            return
        visited.add((name, extras))
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # of an extra that is not installed
            return
        for requirement in map(Requirement, requires(name) or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras)):
                visit(canonicalize_name(requirement.name), frozenset(requirement.extras))

    try:
        extras = metadata("simulator").get_all("Provides-Extra") or ()
    except PackageNotFoundError:
        return {}
    visit("simulator", frozenset(extras) - _TOOLS)
    return dict(sorted(versions.items()))


def installation(start: Mapping[str, Any]) -> list[str]:
    """The installation of a start as lines of a requirements file for pip. Comments name Python, the
    commit of the checkout and the commands that install the same again."""
    packages = {name: v for name, v in start["versions"].items() if v != "unknown"}
    python = packages.pop("python")
    version = packages.pop("simulator", "unknown")
    git = start.get("git")
    devices = start.get("devices", {})
    words = counted(devices.get("count", 0), f"{devices.get('platform')} device")
    lines = [
        f"# start of {start['started']} on {words}",
        f"# Python {python}, {start['host']['system']}",
        f"# simulator {version}",
    ]
    if git and git["dirty"] is None:
        lines.append("# git did not answer at that start: files may differ from the commit")
    if git and git["dirty"]:
        lines.append(f"# files that differed from the commit: {', '.join(git['changed'])}")
    if "pydantic" not in packages:
        lines.append("# recorded by a version that listed only these packages; pip picks others")
    checkout = (
        [f"git checkout {git['commit']}", "pip install --no-deps --editable ."]
        if git
        else [f"pip install --no-deps WHEEL_OF_SIMULATOR_{version}"]
    )
    commands = [
        f"python{'.'.join(python.split('.')[:2])} -m venv .venv",
        ". .venv/bin/activate",
        "pip install -r THIS_FILE",
        *checkout,
    ]
    lines += ["# to install it again:", *(f"#   {command}" for command in commands)]
    return [*lines, *(f"{name}=={version}" for name, version in packages.items())]


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
