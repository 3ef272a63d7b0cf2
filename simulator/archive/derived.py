"""Files that are derived from snapshots: the index and further files beside each of them, and the
results of plugins' commands, `RUN/COMMAND/NAME_STEP.h5`.

Each ends with a checksum that also covers the manifest of its snapshot, so that a file that was
altered, or that belongs to another snapshot, is noticed and made again."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from simulator.archive.hdf5_image import SEAL, Fill, write_sealed
from simulator.archive.manifest import INDEX, SIDECAR, Manifest, committed, read_manifest
from simulator.archive.snapshot_index import fill_index, fill_sidecar, sidecar_fields
from simulator.archive.snapshot_reader import Snapshot, configuration_of
from simulator.errors import RunFailure, UserError
from simulator.measure import snapshot_files
from simulator.registry import PLUGIN_COMMANDS

RESULT = re.compile(r".*_(\d{8,})(\.\w+)?\.h5")


def derived_from(folder: Path, manifest: Manifest, unpacked: bool = False) -> dict[Path, Fill]:
    """The files that a committed folder has to have beside it, and the functions that fill them;
    with `unpacked`, index and sidecar with the values of rounded fields."""
    if not manifest.index and not unpacked:
        return {}
    shown = manifest if unpacked else manifest.plain
    fills: dict[str, Fill] = {INDEX: partial(fill_index, folder=folder, manifest=shown)}
    if shown is manifest or sidecar_fields(shown):
        fills[SIDECAR] = partial(fill_sidecar, folder=folder, manifest=shown)
    configuration = configuration_of(manifest)
    snapshot = Snapshot(folder, manifest)
    for kind in snapshot_files(configuration.get("output") or {}).values():
        fills[kind.ending] = partial(kind.fill, snapshot=snapshot, configuration=configuration)
    return {folder.with_name(folder.name + ending): fill for ending, fill in fills.items()}


def make_derived(folder: Path, manifest: Manifest) -> dict[Path, str]:
    """Write the files beside a committed folder that are missing or altered; returns the problem of
    each written file. Raises OSError."""
    problems: dict[Path, str] = {}
    for path, fill in derived_from(folder, manifest).items():
        if (problem := derived_problem(path, folder, manifest)) is not None:
            write_derived(path, fill, folder, manifest)
            problems[path] = problem
    return problems


def unpack(folder: Path) -> list[Path]:
    """Write the index and the sidecar of a committed folder with the values of its rounded fields,
    if it has any; returns the files. Raises OSError, and the errors of `read_manifest`."""
    manifest = read_manifest(folder)
    if manifest.plain is manifest:
        return []
    paths = derived_from(folder, manifest, unpacked=True)
    for path, fill in paths.items():
        write_derived(path, fill, folder, manifest)
    return list(paths)


def write_derived(path: Path, fill: Fill, folder: Path, manifest: Manifest) -> None:
    """Write an HDF5 file that is derived from a committed folder. Raises OSError."""
    write_sealed(path, fill, _origin(folder, manifest))


def derived_problem(path: Path, folder: Path, manifest: Manifest) -> str | None:
    """Why a derived file does not belong to its folder (it is missing, unreadable or altered); None
    if it does."""
    return SEAL.problem(path, _origin(folder, manifest))


def _origin(folder: Path, manifest: Manifest) -> bytes:
    """The bytes of a committed folder that the seal of a derived file covers."""
    return folder.name.encode() + manifest.encode()


def result_problems(run: Path) -> Iterator[tuple[Path, str | None]]:
    """Every result of a plugin's command in a run, and why it does not belong to a snapshot; None
    if it does."""
    snapshots = {folder.name: folder for folder in committed(run / "snapshots")}
    for command in sorted(PLUGIN_COMMANDS.names):
        for path in sorted((run / command).glob("*.h5")):
            if (named := RESULT.fullmatch(path.name)) is not None:
                problem = _result_problem(path, snapshots.get(named[1]))
                cure = f"simulator {command} {run} makes it again"
                yield path, problem and f"{problem}; {cure}"


def _result_problem(path: Path, folder: Path | None) -> str | None:
    if folder is None:
        return "its snapshot is gone"
    try:
        return derived_problem(path, folder, read_manifest(folder))
    except (RunFailure, UserError):
        return "its snapshot is damaged"
