#!/usr/bin/env python
"""Bytes, time and accuracy of snapshots that are rounded in shells (output.snapshots.error).

    python scripts/smaller_files.py PICTURE.png [--points 64] [--rounds 5] [--numbers FILE.csv]
        [--cases turbulence mhd waves]

Each flow is written once exactly, and in turns in single precision with gzip and rounded; the files
are read back. A row for each error: bytes relative to gzip, bits of a number beside log2(1 / error),
the least for Gaussian fields with the same spectrum (numbers are those of the modes in the shells
that are stored); for waves also bytes relative to the files of a run, which hold |psi|, too, for
other programs; the ratio of the times to write, of the fastest rounds; the smallest and the largest
error of a shell, of coefficients or energy, as computed from the values in the files; and the errors
of quantities. All errors are relative to the one asked."""

import argparse
import contextlib
import csv
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from simulator import Simulation, load_config
from simulator.archive.rounded_field import Rounder
from simulator.archive.run_writer import modulus_of
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import Snapshot, open_snapshot
from simulator.archive.snapshot_writer import Options, Writer
from simulator.archive.stored_state import component_labels, physical_axes
from simulator.plugins.cosmology.halos import cores
from simulator.simulation.advance import Until

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ERRORS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
FLOW = """\
model: {{kind: {model}}}
grid: {{shape: [{n}, {n}, {n}]}}
initial: {{kind: random, peak: 3, energy: 0.5, seed: 1{start}}}
time: {{stop: 1.5, cfl: 0.5}}
devices: {{platform: cpu, count: 1}}
"""
WAVES = """\
model: {{kind: schrodinger_poisson, hbar_over_m: 0.02, cosmology: {{start: 0.01, matter: 1, hubble: 1}}}}
grid: {{shape: [{n}, {n}, {n}]}}
initial: {{kind: cosmological, amplitude: 100.0, index: -2, cutoff: 6.0, seed: 1}}
time: {{stop: {{scale_factor: 0.2}}, cfl: 0.5}}
devices: {{platform: cpu, count: 1}}
"""
CASES = {
    "turbulence": ("decaying turbulence", FLOW, "navier_stokes, viscosity: 0.01", ""),
    "mhd": ("MHD", FLOW, "mhd, viscosity: 0.01, resistivity: 0.01", ", magnetic: {energy: 0.3}"),
    "waves": ("fuzzy dark matter", WAVES, "", ""),
}
ROUND_OFF = 1e4 * np.finfo(float).eps
"""Amplitudes per mode, relative to the round-off of values at the points, from which on the errors
of shells can be computed from these values to 1e-4 of an error of 1e-6."""


def evolved(text: str, n: int, **more: str) -> Simulation:
    """The simulation at the end of its run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_text(text.format(n=n, **more))
        simulation = Simulation(load_config(path), report=lambda _: None)
    state = simulation.state
    end = Until(simulation.config.time.stop, simulation.config.time.stop, 10**6)
    simulation.state = simulation.advance(state, end)
    return simulation


class Saved(NamedTuple):
    snapshot: Snapshot
    bytes: int
    seconds: float


class Files:
    """Writes the fields of a simulation."""

    def __init__(self, simulation: Simulation, folder: Path):
        self.simulation = simulation
        self.folder = folder
        self.number = 0
        state = simulation.state
        axes = physical_axes(simulation.transform)
        self.fields = []
        for name in simulation.model.fields:
            values = simulation.field_program(name)(state)
            lead = component_labels(values.shape[:-3])
            self.fields.append(Dataset(name, values, axes, lead))

    def save(
        self, options: Options, rounder: Rounder | None = None, modulus: bool = False
    ) -> Saved:
        self.number += 1
        with contextlib.closing(Writer(self.simulation.cluster)) as writer:
            began = time.perf_counter()
            fields = self.fields if rounder is None else list(map(rounder.rounded, self.fields))
            fields = [*fields, *(map(modulus_of, self.fields) if modulus else ())]
            writer.submit(self.folder, self.number, fields, {"time": 0.0}, options=options)
            folder = writer.wait()
            seconds = time.perf_counter() - began
        assert folder is not None
        size = sum(file.stat().st_size for file in folder.rglob("*.h5"))
        return Saved(open_snapshot(folder), size, seconds)


def coefficients(values: np.ndarray) -> np.ndarray:
    return np.fft.fftn(values, axes=(-3, -2, -1), norm="forward")


class Shells:
    """Errors of the shells of a rounded field, from its values and those of the exact field."""

    def __init__(self, exact: np.ndarray, snapshot: Snapshot, name: str):
        record = snapshot[name].entry.rounded
        assert record is not None
        self.is_complex = np.iscomplexobj(exact)
        n = exact.shape[-1]
        lengths = [a.size * (a.spacing or 0) for a in snapshot[name].axes]
        k = [np.fft.fftfreq(n, 1 / n) * 2 * np.pi / length for length in lengths]
        self.k_squared = sum(np.square(np.meshgrid(*k, indexing="ij")))
        number = np.sqrt(self.k_squared) / record.shell_width + 0.5 + 1e-9
        self.number = np.where(self.k_squared == 0, 0, number // 1 + 1).astype(int)
        self.before, self.after = coefficients(exact), coefficients(snapshot[name][...])
        self.stored = np.array(record.steps) > 0
        self.energy = self.total(self.before)
        modes = np.bincount(self.number.ravel())
        round_off = ROUND_OFF**2 * self.energy.sum() / self.number.size
        self.clear = self.stored & (self.energy > modes * round_off)

    def total(self, modes: np.ndarray, weight: np.ndarray | float = 1.0) -> np.ndarray:
        squares = (abs(modes) ** 2).reshape(-1, *self.number.shape).sum(0) * weight
        return np.bincount(self.number.ravel(), squares.ravel())

    def errors(self) -> np.ndarray:
        """The larger error of each shell whose error is not round-off of the values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            field = np.sqrt(self.total(self.after - self.before) / self.energy)
            energy = abs(self.total(self.after) / self.energy - 1)
        return np.maximum(field, energy)[self.clear]

    def numbers(self) -> int:
        """Real numbers of the modes in the stored shells that dealiasing keeps."""
        squares = (abs(self.before) ** 2).reshape(-1, *self.number.shape).sum(0)
        floor = (64 * np.finfo(float).eps) ** 2 * self.energy.sum() / self.number.size
        modes = int((self.stored[self.number] & (squares > floor)).sum())
        parts = 2 if self.is_complex else 1  # the modes k and -k of a real field are one
        return parts * modes * self.before[..., 0, 0, 0].size


def structure_functions(velocity: np.ndarray) -> np.ndarray:
    """Longitudinal ones of order 2 and 3 along x at separations of 1, 2, 4, ... points."""
    steps = 2 ** np.arange(int(np.log2(velocity.shape[-1])))
    apart = (np.roll(velocity[0], -s, 0) - velocity[0] for s in steps)
    return np.array([[(d**2).mean(), (abs(d) ** 3).mean()] for d in apart])


def halo_masses(exact: np.ndarray, rounded: np.ndarray, box: np.ndarray) -> list[np.ndarray]:
    """Masses of both fields in the spheres of the halos, or of their cores, of the exact one. (The
    radii that a finder takes are on a grid of their own, which a change by any error may cross.)"""
    found = cores(abs(exact) ** 2, box, overdensity=8)
    axes = (np.arange(n) * length / n for n, length in zip(exact.shape, box, strict=True))
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    masses = []
    for i, radius in enumerate(np.fmax(found["radius"], found["core_radius"])):
        centre = [found[f"position_{axis}"][i] for axis in "xyz"]
        apart = points - centre
        inside = ((apart - box * np.rint(apart / box)) ** 2).sum(-1) < radius**2
        masses.append([(abs(psi[inside]) ** 2).sum() for psi in (exact, rounded)])
    return list(np.reshape(masses, (-1, 2)).T)


def worst(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest relative change."""
    if found.shape != wanted.shape:
        return np.inf
    known = np.isfinite(wanted)
    return float(np.max(abs(found[known] / wanted[known] - 1), initial=0.0))


def quantities(
    exact: Snapshot, rounded: Snapshot, shells: Mapping[str, Shells]
) -> dict[str, float]:
    """Relative errors of what is computed from the files."""
    first, of_first = next(iter(shells.items()))
    changes = {
        "spectrum": max(
            worst(s.total(s.after)[s.clear], s.energy[s.clear]) for s in shells.values()
        )
    }
    if first == "psi":
        box = np.array([axis.size * (axis.spacing or 0) for axis in exact["psi"].axes])
        wanted, found = halo_masses(exact["psi"][...], rounded["psi"][...], box)
        return {**changes, "halo masses": worst(found, wanted)}
    dissipation = [
        of_first.total(m, of_first.k_squared).sum() for m in (of_first.after, of_first.before)
    ]
    found, wanted = (structure_functions(s[first][...]) for s in (rounded, exact))
    return {
        **changes,
        "dissipation": worst(*np.array(dissipation).reshape(2, 1)),
        "structure functions": worst(found, wanted),
    }


def rows(case: str, points: int, rounds: int, folder: Path) -> Iterator[dict[str, Any]]:
    _, text, model, start = CASES[case]
    simulation = evolved(text, points, model=model, start=start)
    files = Files(simulation, folder)
    exact = files.save(Options(index=False)).snapshot
    packed = Options("gzip", single=True, index=False)
    for error in ERRORS:
        rounder = Rounder(simulation.placement, error)
        files.save(Options(index=False), rounder)  # compiles
        pairs = [
            (files.save(packed), files.save(Options(index=False), rounder)) for _ in range(rounds)
        ]
        one, other = pairs[0]
        beside = files.save(packed, modulus=True).bytes if "psi" in exact else one.bytes
        shells = {name: Shells(exact[name][...], other.snapshot, name) for name in exact}
        errors = np.concatenate([s.errors() for s in shells.values()]) / error
        bits = 8 * other.bytes / sum(s.numbers() for s in shells.values())
        changes = quantities(exact, other.snapshot, shells)
        yield {
            "case": case,
            "points": points,
            "asked": error,
            "bytes": round(other.bytes / one.bytes, 4),
            "of a run": round(other.bytes / beside, 4),
            "bits": round(bits, 2),
            "limit": round(np.log2(1 / error), 2),
            "time": round(min(b.seconds for _, b in pairs) / min(a.seconds for a, _ in pairs), 2),
            "smallest": round(errors.min(), 3),
            "largest": round(errors.max(), 4),
            **{name: round(change / error, 4) for name, change in changes.items()},
        }


def draw(table: list[dict[str, Any]], path: Path) -> None:
    """Bytes against the error, with the least for Gaussian fields."""
    figure, axes = plt.subplots(figsize=(6.4, 4), constrained_layout=True)
    for case, marker in zip(dict.fromkeys(row["case"] for row in table), "o+s", strict=False):
        asked, bytes_, bits, limit = (
            np.array([float(row[name]) for row in table if row["case"] == case])
            for name in ("asked", "bytes", "bits", "limit")
        )
        size = 11 if marker == "+" else 6
        (line,) = axes.plot(asked, bytes_, marker, ms=size, fillstyle="none", label=CASES[case][0])
        axes.plot(asked, bytes_ * limit / bits, "--", lw=1, color=line.get_color())
    axes.plot([], [], "k--", lw=1, label="least for Gaussian fields")
    axes.axhline(1, color="0.6", lw=1)
    axes.text(ERRORS[-1], 1.01, "single precision, gzip", ha="right", va="bottom", color="0.4")
    axes.set(xscale="log", xlabel="relative error of every shell", ylim=(0, 1.1))
    axes.set_ylabel("bytes / bytes of single precision")
    axes.invert_xaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.9))
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path)
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--numbers", type=Path, help="a table of the rows, as CSV")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    table = []
    for case in arguments.cases:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(case, arguments.points, arguments.rounds, Path(folder)):
                print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
                table.append(row)
    if arguments.numbers:
        with arguments.numbers.open("w", newline="") as file:
            names = dict.fromkeys(name for row in table for name in row)
            writer = csv.DictWriter(file, list(names), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    draw(table, arguments.picture)


if __name__ == "__main__":
    main()
