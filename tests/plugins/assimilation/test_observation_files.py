"""Files of observations: nothing that is not a number of the right shape, kind and range is taken for
one."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
from searches import opened, read
from tiers import slow

from simulator import Simulation
from simulator.errors import UserError
from simulator.plugins.assimilation.observations import Observed
from simulator.plugins.assimilation.settings import FunctionSettings, ObservationSettings

FLOW = """
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [12, 12]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 0.4, dt: 0.1}
devices: {platform: cpu, count: 1}
"""
SPEED = "def observe(fields):\n    return (fields['velocity'] ** 2).sum(0)[:2, :3]\n"
Arrays = dict[str, np.ndarray]
Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    folder = tmp_path_factory.mktemp("observed")
    (folder / "flow.yaml").write_text(FLOW)
    return opened(folder / "flow.yaml")


def good(kind: str) -> Arrays:
    random = np.random.default_rng(100)
    time = np.array([0.0, 0.2, 0.4])
    if kind == "points":
        x = np.arange(0, 12, 3) * 2 * np.pi / 12
        velocity = random.standard_normal((3, 2, 4, 4))
        return {"time": time, "x": x[:, None], "y": x, "velocity": velocity, "error": np.array(0.1)}
    if kind == "spectra":
        spectrum = random.uniform(0, 1, (3, 2))
        return {"time": time, "k": np.array([1.0, 3.0]), "kinetic_energy": spectrum} | {
            "error": np.array([0.1, 0.2])
        }
    return {"time": time, "values": random.uniform(0, 1, (3, 2, 3)), "error": np.array(0.1)}


def observed(simulation: Simulation, path: Path, kind: str) -> Observed:
    python = None
    if kind == "function":
        (speed := path.with_name("speed.py")).write_text(SPEED)
        python = FunctionSettings(path=speed)
    (one,) = read(simulation, ObservationSettings(table=path, python=python))
    return one


def written(path: Path, arrays: Arrays) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".csv":
        names = [name for name in arrays if name != "velocity"] + ["velocity_x", "velocity_y"]
        shape = np.broadcast_shapes(arrays["x"].shape, arrays["y"].shape)
        rows = []
        for number, time in enumerate(arrays["time"]):
            places = [np.broadcast_to(arrays[a], shape).ravel() for a in "xy"]
            values = arrays["velocity"][number].reshape(2, -1)
            for point in zip(*places, *values, strict=True):
                rows.append([time, *point[:2], float(arrays["error"]), *point[2:]])
        np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="")
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return path


def values_of(arrays: Arrays) -> str:
    return next(n for n in ("velocity", "kinetic_energy", "values") if n in arrays)


def _somewhere(array: np.ndarray, random: np.random.Generator, value: float) -> np.ndarray:
    array = np.array(array, float)
    array.flat[random.integers(array.size)] = value
    return array


PLACED = (np.nan, np.inf, -np.inf, -1.0, 1e9, 1e300, -1e-3)
NUMBERS = {
    "time": PLACED,
    "places": PLACED,
    "error": (np.nan, np.inf, 0.0, -0.1, 1e-300),
    "values": (np.inf, -np.inf, 1e300, -1e200),
}
"""Numbers that an array of this name may not hold."""
ANY: tuple[Change, ...] = (
    lambda a, _: a + 0.5j,
    lambda a, _: a.astype("S8"),
    lambda a, _: a > 0,
    lambda a, _: a.ravel()[:0],
    lambda a, _: np.stack([a] * 7),
    lambda a, _: np.zeros(a.shape, [("r", float), ("i", float)]),
)
"""What no array may become."""
OTHERS: tuple[tuple[str, Change], ...] = (
    ("time", lambda a, _: a + 0.03),
    ("time", lambda a, _: np.array([0.0, 0.2, 0.2])),
    ("time", lambda a, _: np.array([0.0, 0.2, 0.2 + 1e-5])),
    ("values", lambda a, _: np.full(a.shape, np.nan)),
    ("values", lambda a, _: a[:, :-1]),
    ("values", lambda a, _: a[:-1]),
    ("values", lambda a, _: np.moveaxis(a, 0, -1)[..., :1]),
)
CHANGES: list[tuple[str, Change]] = [
    *((n, partial(_somewhere, value=v)) for n, values in NUMBERS.items() for v in values),
    *product(NUMBERS, ANY),
    *OTHERS,
]


def change_one(arrays: Arrays, name: str, change: Change, random: np.random.Generator) -> None:
    keys = {"values": [values_of(arrays)], "places": [n for n in arrays if n in "xyk"]}
    key = str(random.choice(keys.get(name, [name])))
    arrays[key] = change(arrays[key], random)


def refused_in_a_line(simulation: Simulation, path: Path, kind: str) -> bool:
    """Any other error propagates."""
    try:
        observed(simulation, path, kind)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
        return True
    return False


KINDS = (("points", ".npz"), ("points", ".csv"), ("spectra", ".h5"), ("function", ".npz"))


@pytest.mark.parametrize("number", [60, slow(300)])
def test_no_nonsense_is_taken_for_observations(simulation: Simulation, tmp_path: Path, number: int):
    accepted = []
    for case in range(number):
        turn, place = divmod(case, len(CHANGES))
        name, change = CHANGES[place]
        kind, suffix = KINDS[(case + turn) % len(KINDS)]
        if kind == "function" and name == "places":
            continue
        arrays = good(kind)
        change_one(arrays, name, change, np.random.default_rng([100, case]))
        # A table in CSV has columns of numbers only.
        path = written(tmp_path / f"table{suffix.replace('csv', 'npz')}", arrays)
        if not refused_in_a_line(simulation, path, kind):
            accepted.append((name, place, kind))
        path.unlink()
    assert accepted == []


@pytest.mark.parametrize("kind", ["points", "spectra", "function"])
def test_arrays_of_other_names_are_refused(simulation: Simulation, tmp_path: Path, kind: str):
    """Without one, with one under another name, and with one more."""
    for name in good(kind):
        for more in ({}, {f"{name}s": good(kind)[name]}):
            others = {n: a for n, a in good(kind).items() if n != name}
            path = written(tmp_path / "table.npz", others | more)
            assert refused_in_a_line(simulation, path, kind), name
    for name in ("z", "pressures"):
        path = written(tmp_path / "table.npz", good(kind) | {name: np.ones(3)})
        assert refused_in_a_line(simulation, path, kind), name


@pytest.mark.parametrize("kind, suffix", KINDS)
def test_good_files_are_read_and_damaged_ones_are_refused(
    simulation: Simulation, tmp_path: Path, kind: str, suffix: str
):
    """Cut at any place, or with a byte changed: refused in a line, or the numbers are still finite."""
    path = written(tmp_path / f"table{suffix}", good(kind))
    first = observed(simulation, path, kind)
    assert (first.weight > 0).all() and first.values.shape == first.weight.shape
    whole = path.read_bytes()
    random = np.random.default_rng(100)
    for _ in range(10):
        path.write_bytes(whole[: random.integers(len(whole) - len(whole) // 20)])
        assert suffix == ".csv" or refused_in_a_line(simulation, path, kind)
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] = random.integers(256)
        path.write_bytes(damaged)
        if not refused_in_a_line(simulation, path, kind):
            one = observed(simulation, path, kind)
            assert np.isfinite(one.values).all() and np.isfinite(one.weight).all()


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "no rows"),
        ("time,x,y,velocity_x\n", "no rows"),
        ("time,x,y,velocity_x\n0,1,1,fast\n", "'fast' is no number"),
        ("time,x,y,velocity_x\n0,1,1,1_0\n", "'1_0' is no number"),
        ("time,x,y,velocity_x\n0,1,1\n", "row 2 has 3 cells"),
        ("time,x,x,velocity_x\n0,1,1,1\n", "two columns have the same name"),
        ("time,x,y,velocity_x\n0,1,1,1\n0,1,1,2\n", "two rows are of the same time and place"),
        ("time,x,y,velocity_x\n0,1,1,nan\n", "every value is missing"),
        ("x,y,velocity_x\n0,1,1\n", "the first line names the columns"),
    ],
)
def test_bad_rows_of_a_csv_are_refused(
    simulation: Simulation, tmp_path: Path, text: str, words: str
):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        observed(simulation, path, "points")


def test_numbers_outside_of_an_hdf5_file_are_refused(simulation: Simulation, tmp_path: Path):
    path = tmp_path / "table.h5"
    arrays = good("points")
    velocity = arrays.pop("velocity")
    (tmp_path / "bytes").write_bytes(velocity.tobytes())
    written(path, arrays)
    with h5py.File(path, "a") as file:
        raw = [(str(tmp_path / "bytes"), 0, velocity.nbytes)]
        file.create_dataset("velocity", velocity.shape, np.float64, external=raw)
    with pytest.raises(UserError, match="velocity is not stored in the file itself"):
        observed(simulation, path, "points")
    written(tmp_path / "other.h5", {"velocity": velocity})
    written(path, arrays)
    with h5py.File(path, "a") as file:
        file["velocity"] = h5py.ExternalLink("other.h5", "velocity")
    with pytest.raises(UserError, match="velocity is a link"):
        observed(simulation, path, "points")
