"""Starts from arrays in files: the values of the files, of which each device reads its part."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from flow_support import EPSILON
from plugin_parts import need_plugins_of
from refusals import pairs
from run_support import simulation

from simulator.archive.array_file import ArrayFile
from simulator.archive.stored_state import RunInputs

CASES = {
    "space": ("{kind: navier_stokes, viscosity: 0.1}", (12, 10, 9), {"velocity": (3,)}),
    "plane": (
        "{kind: navier_stokes, viscosity: 0.1, scalars: [{name: dye, diffusivity: 0.1}]}",
        (10, 9),
        {"velocity": (2,), "dye": ()},
    ),
    "waves": ("{kind: schrodinger_poisson}", (10, 9, 8), {"psi": ()}),
}


def written(folder: Path, name: str) -> tuple[Path, dict[str, np.ndarray]]:
    """The configuration of a case, and the values in its files: the first field in a file .npy, the
    second in one of HDF5."""
    model, shape, leads = CASES[name]
    need_plugins_of(model)
    random = np.random.default_rng(1)
    values = {n: random.standard_normal((*lead, *shape)) for n, lead in leads.items()}
    if name == "waves":
        values = {n: 1 + 0.1j * v for n, v in values.items()}
    places = dict(zip(values, ("a.npy", "b.h5:/flow/dye"), strict=False))
    first, *others = values.values()
    np.save(folder / "a.npy", np.asfortranarray(first))
    with h5py.File(folder / "b.h5", "w") as file:
        for other in others:
            file["flow/dye"] = other.astype("f4")
            other[...] = other.astype("f4")
    (folder / "run.yaml").write_text(
        f"{{model: {model}, grid: {{shape: {[*shape]}}}, initial: {{kind: file, fields: {places}}}, "
        "time: {stop: 1, dt: 0.1}, devices: {platform: cpu, count: 2}}".replace("'", "")
    )
    return folder / "run.yaml", values


@pytest.mark.parametrize("name", CASES)
def test_a_start_from_files_is_that_from_their_values(name: str, tmp_path, monkeypatch):
    config, values = written(tmp_path, name)
    sizes: list[int] = []
    read = ArrayFile.read

    def noted(file: ArrayFile, index: tuple[slice, ...]) -> np.ndarray:
        part = read(file, index)
        sizes.append(part.size)
        return part

    monkeypatch.setattr(ArrayFile, "read", noted)
    begun = simulation(config, inputs=RunInputs())
    fields = begun.state.fields
    expected = begun.state_from(values).fields
    for field in values:
        difference = np.abs(np.asarray(fields[field] - expected[field])).max()
        assert difference <= 10 * EPSILON * np.abs(np.asarray(expected[field])).max()
    whole = [value.size for value in values.values()]
    assert sum(sizes) == sum(whole) and max(sizes) <= 0.6 * max(whole)


@pytest.mark.parametrize(
    "change, problem",
    pairs(r"""
fields.velocity=flat.npy
    flat.npy: its shape is \(3, 12, 10\); \(3, 12, 10, 9\) is
fields.velocity=complex.npy
    complex.npy: holds complex values; real ones are needed
fields.velocity=b.h5
    name the data set of an HDF5 file, as in
fields.velocity=b.h5:/u
    b.h5: has no data set 'u'; it has flow/v
fields.velocity=none.npy
    none.npy does not exist
fields.dye=a.npy
    gives dye, which this model does not have; its fields are velocity
"""),
)
def test_files_that_do_not_fit_are_refused_in_a_line(
    change: str, problem: str, tmp_path, monkeypatch, refused_command
):
    monkeypatch.chdir(tmp_path)
    config, values = written(tmp_path, "space")
    velocity = values["velocity"]
    np.save("flat.npy", velocity[..., 0])
    np.save("complex.npy", velocity + 1j)
    with h5py.File("b.h5", "w") as file:
        file["flow/v"] = velocity
    line = refused_command("check", config, f"initial.{change}")
    assert re.search(problem, line), line


def test_values_that_are_not_finite_are_refused(tmp_path, refused_command):
    config, values = written(tmp_path, "space")
    values["velocity"][1, 2, 3, 4] = np.nan
    np.save(tmp_path / "a.npy", values["velocity"])
    assert "initial: velocity has values that are not finite" in refused_command(
        "run", config, "--output", tmp_path / "run"
    )
    assert not (tmp_path / "run").exists()
