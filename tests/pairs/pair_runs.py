"""Commands of one case in processes of their own, and what two runs have in common."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fault_support import start
from table import ERROR

from simulator.archive.manifest import committed
from simulator.archive.open_run import open_run
from simulator.archive.snapshot_reader import open_snapshot
from simulator.cli import main
from simulator.errors import UserError

SECONDS = 400.0
"""Time limit of one command, on a machine that has other work too."""


def in_one_process(command: list[str], place: Path) -> tuple[int, str]:
    """Exit code and messages of a command in `place`. Raises TimeoutError with the messages so
    far."""
    return start(command, place, run=partial(_done, place)).ended(SECONDS)


def _done(place: Path, command: list[str]) -> int:
    os.chdir(place)
    if command[0] != "gradient":
        return main(command)
    try:
        return _gradient(*command[1:])
    except UserError as error:
        print(error, flush=True)
        return 2


def _gradient(config: str, count: str, out: str) -> int:
    """The loss after three steps, its slope along the fields, by reverse mode and by differences;
    and its norm."""
    import jax.numpy as jnp

    from simulator import Simulation, differentiate, load_config

    simulation = Simulation(
        load_config(config, [f"devices.count={count}"]), report=lambda line: None
    )
    layout = simulation.transform.layout
    fields = simulation.state.fields

    def loss(state: Any) -> Any:
        parts = (u for u in state.fields.values() if jnp.iscomplexobj(u))
        return sum(
            layout.sum((u.real**2 + u.imag**2) * jnp.cos(layout.k_squared())).sum() for u in parts
        )

    gradient = differentiate(simulation, loss, steps=3, dt=0.01)
    value, slopes = gradient({"fields": fields})
    along = sum(float(jnp.sum((slopes["fields"][n].conj() * fields[n]).real)) for n in fields)

    def central(h: float) -> float:
        higher, lower = (
            gradient.value({"fields": {n: (1 + s) * u for n, u in fields.items()}}) for s in (h, -h)
        )
        return float(higher - lower) / (2 * h)

    wanted = (4 * central(5e-3) - central(1e-2)) / 3
    Path(out).write_text(json.dumps([float(value), along, wanted]))
    return 0


def observe(run: Path, fields: Sequence[str], table: Path) -> float:
    """Writes the values of `fields` at every third point along each axis, with noise of twice their
    error, in all snapshots of `run`; returns the mean square of noise over error."""
    random = np.random.default_rng(0)
    snapshots = [open_snapshot(folder) for folder in committed(run / "snapshots")]
    arrays = {"time": np.array([snapshot.time for snapshot in snapshots])}
    axes = snapshots[0][fields[0]].axes
    for number, axis in enumerate(axes):
        arrays[axis.name] = axis.coordinates[::3].reshape(-1, *(1,) * (len(axes) - 1 - number))
    noises = []
    for name in fields:
        values = np.stack([np.asarray(snapshot[name][...], float) for snapshot in snapshots])
        values = values[(..., *(slice(None, None, 3),) * len(axes))]
        noise = 2 * ERROR * random.standard_normal(values.shape)
        arrays[name] = values + noise
        noises.append(noise.ravel())
    np.savez(table, **arrays)  # pyright: ignore[reportArgumentType] - names of fields
    return float((np.concatenate(noises) ** 2).mean()) / ERROR**2


def assimilated(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The columns of an assimilation's history, and the fields of the recovered flow."""
    names, *rows = (folder / "history.csv").read_text().splitlines()
    numbers = np.array([row.split(",") for row in rows], float)
    (snapshot,) = committed(folder / "snapshots")
    return dict(zip(names.split(","), numbers.T, strict=True)), _of_snapshot(snapshot)


def tolerance(config: Mapping[str, Any]) -> float:
    """How much two layouts may differ, relative to a variable's largest value. Sums in another
    order differ by some units in the last place, which four steps of these smooth fields hardly
    amplify: 1e-12 in double precision, and as many units of the last place (4500) in single
    precision. An exchange of fewer bits rounds what is sent between devices, which a single device
    does not do."""
    double = 2.0**-52
    units = 1e-12 / 2.0**-52
    kept = {"single": 2.0**-24 * 64, "half_scaled": 2.0**-11 * 4}.get(
        config["fft"]["exchange"], 0.0
    )
    return max(
        kept, units / 64 * 2.0**-23 if config.get("precision") == "single" else units * double
    )


MEASURED = 8
"""How much more than fields measured values may differ: they are products of up to four fields and
their quotients, whose relative errors add up."""


VARIANCES = {"^variance/": "mean/", "_variance$": "_mean", "statistics_squares": "statistics_mean"}
"""How a variance is called, and its mean."""


THIRD = "^transfer|^flux|_3$"
"""Averages of three factors, which vanish in symmetric flows; they are held against u_rms^3."""


UNEQUAL = {
    "diagnostics": "center_|virial_ratio|max_divergence",
    "histograms": "^(?!.*_(mean|scale)$)",
    "joint_histograms": "^(?!.*_(mean|scale)$)",
    "strain": "(alpha|beta|gamma|s_star)$",
}
"""Measured variables that no two layouts have in common: the phase of a mode, where that vanishes;
a quotient of energies that have columns of their own; what is nothing but round-off; and bins, on
whose edges points may lie."""


def difference(run: Path, other: Path, exact: bool = True) -> Iterator[tuple[str, float]]:
    """By variable: the largest difference of two runs relative to the variable's largest value. A
    variable that is zero but for round-off, such as a residual, is held against the largest one of
    its file; a measured one whose terms cancel, such as the transfer of a Beltrami flow, against
    1e-4 of that, or against all of it if exchanges are not `exact`."""
    mine = _variables(run)
    theirs = _variables(other)
    for name in sorted(mine.keys() ^ theirs.keys()):
        yield f"{name} is in one of them only", np.inf
    for name in sorted(mine.keys() & theirs.keys()):
        one = mine[name]
        two = theirs[name]
        measured = "/" not in name  # a series, no snapshot or checkpoint
        if name == "profiles" and not all(
            np.allclose(one[c], two[c], 1e-12, 0) for c in one if "center" in c
        ):
            continue  # around another one of several maxima, or within a flat one
        if one.keys() != two.keys():
            yield f"{name}: {sorted(one.keys() ^ two.keys())} in one of them only", np.inf
            continue
        largest = max((_largest(v) for v in two.values()), default=0.0)
        for variable, values in two.items():
            if measured and re.search(UNEQUAL.get(name, UNEQUAL["diagnostics"]), variable):
                continue
            found = one[variable]
            if (
                measured
                and (density := variable.replace("speed/", "density/")) != variable
                and density in two
            ):
                # The speed of a wave is a quotient, which round-off dominates where the density
                # vanishes.
                found = found * two[density]
                values = values * two[density]
            if found.shape != values.shape or not (np.isnan(found) == np.isnan(values)).all():
                yield f"{name}/{variable}: shapes or NaN differ", np.inf
                continue
            scale = _largest(values)
            scale = scale if scale > 1e-9 * largest else largest
            if measured:
                scale = max(scale, (1e-4 if exact else 1.0) * largest)
            if "u_rms" in theirs["diagnostics"] and re.search(THIRD, variable):
                scale = max(scale, float(np.max(theirs["diagnostics"]["u_rms"])) ** 3)
            if "skewness" in variable:
                scale = max(scale, 1.0)
            if (
                "residual" in variable
            ):  # a difference of energies over dt, in every file that has one
                scale = max(largest, 1.0) / float(np.min(np.diff(theirs["diagnostics"]["time"])))
            for (
                word,
                of,
            ) in VARIANCES.items():  # d(var q) = 2 <(q - <q>) dq>, and dq is a fraction of q itself
                if (mean := re.sub(word, of, variable)) != variable and mean in two:
                    scale = max(scale, _largest(two[mean]) * np.sqrt(_largest(values)))
            if (unit := variable.replace("_mean", "_scale")) != variable and unit in two:
                scale = _largest(
                    two[unit]
                )  # a mean that may vanish, in units of the variable's size
            apart = _largest(found - values) / (scale or 1.0)
            yield f"{name}/{variable}", apart / MEASURED if measured else apart


def _largest(values: np.ndarray) -> float:
    return float(np.nanmax(np.abs(values))) if values.size and not np.isnan(values).all() else 0.0


def _variables(run: Path) -> dict[str, dict[str, np.ndarray]]:
    """Everything that a run wrote, by file and variable; particles in the order of their ids."""
    opened = open_run(run)
    found = {"diagnostics": dict(opened.diagnostics)}
    for path in sorted(run.glob("*.h5")):
        series = opened.series(path.stem)
        found[path.stem] = {name: np.asarray(series[name]) for name in series} | {
            "time": series.time
        }
    for kind in ("snapshots", "checkpoints"):
        for folder in committed(run / kind):
            found[f"{kind}/{folder.name}"] = _of_snapshot(folder)
    return {
        file: {n: v for n, v in table.items() if v.dtype.kind in "iufc"}
        for file, table in found.items()
    }


def _of_snapshot(folder: Path) -> dict[str, np.ndarray]:
    snapshot = open_snapshot(folder)
    found = {}
    for name in snapshot:
        if snapshot.manifest.fields[
            name
        ].is_mesh:  # layouts differ in the order of wavenumbers' axes
            axes = snapshot[name].axes
            values = np.asarray(snapshot[name][...])
            order = sorted(range(-len(axes), 0), key=lambda n: axes[n].name)
            found[name] = np.moveaxis(values, order, range(-len(axes), 0))
    for species, records in snapshot.particles.items():
        order = np.argsort(records["id"][...])
        found |= {f"{species}/{record}": records[record][...][..., order] for record in records}
    return found


def bits(run: Path) -> dict[str, dict[str, bytes]]:
    """Everything that a run wrote, to the last bit."""
    return {
        file: {n: v.tobytes() for n, v in variables.items()}
        for file, variables in _variables(run).items()
    }
