"""GADGET files that were changed at random: refused with one line, or sensible."""

import shutil
from pathlib import Path
from typing import Any

import h5py
import hypothesis
import numpy as np
import pytest
from gravity_cases import MATTER, by_id, simulation
from hypothesis import strategies as st
from tiers import slow

from simulator.archive.stored_state import RunInputs
from simulator.errors import UserError
from simulator.plugins.cosmology.gadget_start import GadgetStart, GadgetStartSettings

SIDE = 1000.0
COUNT = 512
MASS = 1.0
HEADER = {
    "BoxSize": SIDE,
    "Time": 0.1,
    "Omega0": 0.3,
    "OmegaLambda": 0.7,
    "HubbleParam": 0.7,
    "NumFilesPerSnapshot": 1,
    "NumPart_ThisFile": np.array([0, COUNT, 0, 0, 0, 0], np.uint32),
    "NumPart_Total": np.array([0, COUNT, 0, 0, 0, 0], np.uint32),
    "UnitLength_in_cm": 3.085678e21,
    "UnitVelocity_in_cm_per_s": 1e5,
    "UnitMass_in_g": 1.989e43,
}


@pytest.fixture(scope="module")
def run():
    text = MATTER.replace(
        "components:",
        "units: mpc_h_km_s_msun_h, cosmology: {start: 0.1, hubble: 100, matter: 0.3}, components:",
        1,
    )
    return simulation(text, "grid.box=1,1,1", "initial.components.dark={kind: uniform}")


def original(run, path: Path) -> Path:
    """A file of GADGET with the particles of the run's box."""
    rng = np.random.default_rng(1)
    part = run.model.parts["dark"]
    total = 3 * 100**2 * 0.3 / (8 * np.pi * part.gravity)
    with h5py.File(path, "w") as file:
        header = {**HEADER, "MassTable": np.array([0, total / COUNT / 1e10, 0, 0, 0, 0])}
        file.create_group("Header").attrs.update(header)
        file["PartType1/Coordinates"] = rng.random((COUNT, 3)) * SIDE
        file["PartType1/Velocities"] = 100 * rng.standard_normal((COUNT, 3))
        file["PartType1/ParticleIDs"] = rng.permutation(COUNT).astype(np.uint64) + 1
    return path


def started(run, path: Path) -> dict[str, np.ndarray]:
    """The records by id of a start from the file."""
    start = GadgetStart(GadgetStartSettings(path=path))
    return by_id(start.place(run.model.parts["dark"], RunInputs()))


def altered_data(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    """Put a data set of another shape, type, range or place in place of `name`."""
    values = file[name][:]
    del file[name]
    some = tuple(rng.integers(n) for n in values.shape)
    match rng.integers(10):
        case 0:
            file[name] = values[..., 0] if values.ndim > 1 else np.stack([values] * 3, 1)
        case 1:
            file[name] = values + 1j
        case 2:
            file[name] = values.T[: rng.integers(1, 3)]
        case 3:
            file[name] = values[: rng.integers(COUNT)]
        case 4:
            file[name] = values.astype(bytes)
        case 5:
            wrong = values.astype(float)
            wrong[some] = rng.choice([np.nan, np.inf, 1e300, -1e300])
            file[name] = wrong
        case 6:
            wrong = values.copy()
            wrong[some] = wrong[tuple(np.roll(i, 1) for i in some)] if values.ndim > 1 else 1 << 40
            file[name] = wrong
        case 7:
            size = values.nbytes
            external = [(file.filename, 0, size)]
            file.create_dataset(name, values.shape, values.dtype, external=external)
        case 8:
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            layout[:] = h5py.VirtualSource("elsewhere.hdf5", "x", values.shape)
            file.create_virtual_dataset(name, layout)
        case _:
            file[name] = h5py.ExternalLink("other.hdf5", name)


def alter(path: Path, rng: np.random.Generator) -> None:
    """Change a data set or a byte."""
    if rng.random() < 0.3:
        content = bytearray(path.read_bytes())
        content[rng.integers(min(len(content), 6000))] ^= 1 << int(rng.integers(8))
        path.write_bytes(
            content[: rng.integers(1, len(content))] if rng.random() < 0.3 else content
        )
        return
    with h5py.File(path, "a") as file:
        name = rng.choice(["Coordinates", "Velocities", "ParticleIDs"])
        altered_data(file, f"PartType1/{name}", rng)


@pytest.mark.parametrize("count", [15, slow(300)])
def test_gadget_files_changed_at_random(run, count: int, tmp_path):
    rng = np.random.default_rng(count)
    refused = 0
    good = original(run, tmp_path / "good.hdf5")
    shutil.copy(good, tmp_path / "other.hdf5")
    wanted = started(run, good)
    path = tmp_path / "bad.hdf5"
    for _ in range(count):
        shutil.copy(good, path)
        alter(path, rng)
        try:
            found = started(run, path)
        except UserError as refusal:
            refused += 1
            assert str(refusal).startswith(str(path)) and len(str(refusal).splitlines()) == 1
            continue
        for name in ("position", "velocity", "mass"):
            assert np.isfinite(found[name]).all()
            assert found[name].shape == wanted[name].shape
        assert ((found["position"] >= 0) & (found["position"] < 1)).all()
        assert abs(found["velocity"]).max() < 3e5 and (found["mass"] > 0).all()
        np.testing.assert_allclose(found["mass"].sum(), wanted["mass"].sum(), rtol=1e-3)
    assert refused > 0.4 * count


TYPES = (
    "i1",
    "u1",
    ">i4",
    "u8",
    "f2",
    "f4",
    ">f8",
    "g",
    "?",
    "c16",
    "S5",
    "f4,i4",
    "O",
    "enum",
    "ref",
)
SHAPES = ((), (1,), (3,), (6,), (7,), (0,), (2, 3))
NUMBERS = (0, 1, -1, 2, COUNT, SIDE, 0.1, 0.3, 1e9, np.nan, np.inf, 1e30, 3e38, 5e-324)


@st.composite
def attributes(draw: st.DrawFn) -> Any:
    """An attribute of HDF5 of any type and shape, or None for one that is not there."""
    kind = draw(st.sampled_from((*TYPES, None, "empty")))
    shape = draw(st.sampled_from(SHAPES))
    number = draw(st.sampled_from(NUMBERS))
    with np.errstate(all="ignore"):
        match kind:
            case None:
                return None
            case "empty":
                return h5py.Empty("f8")
            case "O":
                return np.full(shape, str(number), h5py.string_dtype())
            case "enum":
                return np.ones(shape, h5py.enum_dtype({"A": 1}))
            case "ref":
                return np.full(shape, h5py.Reference(), h5py.ref_dtype)
            case "f4,i4" | "S5":
                return np.zeros(shape, kind)
            case _ if np.isfinite(number) or np.dtype(kind).kind in "fc":
                return np.full(shape, number).astype(kind)
    return np.zeros(shape, kind)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [15, slow(300)])
def test_any_header_is_read_or_refused_in_a_line(run, count: int, tmp_path):
    """Nothing is printed beside the line; a file that is read has its positions in the box, and the
    mass of the background."""
    good = original(run, tmp_path / "good.hdf5")
    wanted = started(run, good)
    path = tmp_path / "bad.hdf5"
    outcomes = []
    names = st.sampled_from((*HEADER, "MassTable", "Code", "Unit length in cgs (U_L)"))
    changes = st.dictionaries(st.tuples(st.sampled_from(("Header", "Units")), names), attributes())
    masses = st.sampled_from((None, "f2", "f4", ">f8", "i4", "c8"))

    @hypothesis.settings(max_examples=count)
    @hypothesis.given(changes, masses, st.booleans())
    @hypothesis.example({}, None, False)
    @hypothesis.example({}, "f4", True)
    @hypothesis.example({("Header", "MassTable"): np.full(6, np.inf)}, None, False)
    @hypothesis.example({("Header", "NumPart_ThisFile"): np.full(6, -1)}, None, False)
    def held(changes: dict[tuple[str, str], Any], masses: str | None, zero: bool) -> None:
        shutil.copy(good, path)
        with h5py.File(path, "a") as file:
            if masses is not None:
                of_one = file["Header"].attrs.pop("MassTable")[1]
                values = np.full(COUNT, of_one)
                values[:1] *= not zero
                file["PartType1/Masses"] = values.astype(masses)
            for (group, name), value in changes.items():
                where = file.require_group(group).attrs
                where.pop(name, None)
                if value is not None:
                    where[name] = value
        try:
            found = started(run, path)
        except UserError as refusal:
            assert str(refusal).startswith(str(path)) and len(str(refusal).splitlines()) == 1
            outcomes.append(False)
            return
        np.testing.assert_allclose(found["position"], wanted["position"], atol=1e-9)
        np.testing.assert_allclose(found["mass"].sum(), wanted["mass"].sum(), rtol=1e-3)
        assert (found["mass"] > 0).all() and abs(found["velocity"]).max() < 3e5
        outcomes.append(True)

    held()
    print(sum(outcomes), "of", len(outcomes), "files are read")
    assert any(outcomes) and not all(outcomes)


@pytest.mark.parametrize(
    "name, values, line",
    [
        ("Coordinates", np.zeros(COUNT), r"has the shape \(512,\) and the type float64; real"),
        ("Coordinates", np.zeros((COUNT, 3), complex), "type complex128; real numbers of shape"),
        ("Coordinates", np.full((COUNT, 3), 1e300), "others than numbers from -1 to 2 box lengths"),
        ("Velocities", np.full((COUNT, 3), np.nan), "others than velocities below that of light"),
        ("ParticleIDs", np.full(COUNT, 1.0), "whole numbers of shape"),
    ],
)
def test_what_is_wrong_is_said(run, name, values, line, tmp_path):
    path = original(run, tmp_path / "start.hdf5")
    with h5py.File(path, "a") as file:
        del file[f"PartType1/{name}"]
        file[f"PartType1/{name}"] = values
    with pytest.raises(UserError, match=rf"start.hdf5: PartType1/{name} .*{line}"):
        started(run, path)
