"""The certificate of a data set, and the solver itself on coarser grids as a baseline."""

import csv
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_study import base_of, study_of

from simulator.archive.series_file import read_columns
from simulator.cli import main
from simulator.config import read_yaml
from simulator.errors import UserError
from simulator.plugins.datasets.baseline import Point, Trial, comparison, floor_of, measure
from simulator.plugins.datasets.certificate import resolution_of
from simulator.plugins.datasets.other_grid import Starts, distance, resampled
from simulator.study.batch import groups
from simulator.study.sweep import Sweep, open_sweep

BASE = base_of((16, 16), stop=0.4, pace="cfl: 0.5")
STUDY = study_of(2, "split: [0.5, 0.0, 0.5]")


def wave(points: int, number: int) -> np.ndarray:
    x = 2 * np.pi * np.arange(points) / points
    return np.cos(number * x)[:, None] + np.sin(x)[None, :]


def test_values_are_interpolated_by_their_fourier_series():
    """A mode that both grids hold is exact on both, 1e-14 for sums of 16^2 numbers; one that the
    coarser grid lacks is left out, which costs its variance."""
    assert_allclose(resampled(wave(8, 3), (16, 16)), wave(16, 3), atol=1e-14)
    assert_allclose(resampled(wave(16, 3), (8, 8)), wave(8, 3), atol=1e-14)
    frames = {"u": np.stack([wave(16, 6)] * 2)}
    coarse = {"u": resampled(frames["u"], (8, 8))}
    assert distance(coarse, frames, (16, 16)) == pytest.approx(0.5**0.5, rel=1e-12)
    assert distance(frames, frames, (16, 16)) < 1e-14
    assert resampled(wave(16, 3) + 1j, (8, 8)).dtype == complex


def test_a_certificate_counts_scalars(tmp_path):
    """The flow is resolved, with k_max eta = 1.97, and the dye is not."""
    columns = {"k_max_eta": 1.97, "edge_enstrophy": 1e-6, "budget_residual": 1e-5}
    columns |= {"dye_k_max_batchelor": 0.028, "dye_edge_gradient": 0.9}
    lines = (",".join(map(str, values)) for values in (columns, columns.values()))
    (tmp_path / "diagnostics.csv").write_text("\n".join(lines) + "\n")
    numbers = resolution_of(cast(Any, SimpleNamespace(folder=tmp_path)))
    assert numbers == {"k_max_eta": 0.028, "edge_share": 0.9, "budget_residual": 1e-5}


def test_a_data_set_has_a_certificate_of_each_run(computed: Sweep, capsys):
    """The distance to the finer grid is that of a flow whose spectrum ends before the grid does:
    small, not zero."""
    assert main(["dataset", "study.yaml"]) == 0
    assert re.search(r"run \d on 32 x 32: distance", capsys.readouterr().out)
    folder = computed.folder / "dataset"
    found = open_sweep("study.yaml").certificates
    for run, k_max_eta, share, rows in zip(
        computed.runs, found["k_max_eta"], found["edge_share"], found["rows"], strict=True
    ):
        columns = read_columns(run.folder / "diagnostics.csv")
        assert rows == len(columns["step"]) == 5
        assert k_max_eta == np.nanmin(columns["k_max_eta"])
        assert share == columns["edge_enstrophy"].max()
    known = np.isfinite(found["distance_to_finer"])
    assert known.sum() == 1 and 0 < found["distance_to_finer"][known][0] < 0.1
    worst = read_yaml(folder / "stats.yaml").value["certificate"]
    assert worst["k_max_eta"] == found["k_max_eta"].min()
    assert worst["distance_to_finer"] == np.nanmax(found["distance_to_finer"])
    with h5py.File(folder / "data/train/study_0000.hdf5") as file:
        stored = file["certificate/k_max_eta"][...]
        index = [run.hash for run in computed.runs].index(file.attrs["runs"][0])
    assert stored == np.float32(found["k_max_eta"][index])
    assert "smallest k_max_eta" in repr(open_sweep("study.yaml"))


@pytest.mark.long
def test_the_baseline_of_a_data_set(computed: Sweep, capsys, recwarn):
    """The step of a coarse grid is so small that its error is that of the grid, whatever the
    integrator; the data set's own grid has no error but that of the step, which is smaller than the
    distance to the finer grid; the command continues from its trials, and adds points."""
    assert main(["dataset", "study.yaml"]) == 0  # knows the distance to the finer grid
    line = ["baseline", "study.yaml", "--runs", "1"]
    assert main(line) == 0
    capsys.readouterr()
    folder = computed.folder / "baseline"
    kept = (folder / "trials.json").read_bytes()
    assert main([*line, "--point", "net=0.5,1e-9", "--point", "slow=1e-9,1e9"]) == 0
    assert (folder / "trials.json").read_bytes() == kept
    out = capsys.readouterr().out
    assert "net: error 0.5 in 1e-09 s; the solver with at most this error takes" in out
    assert "no grid has so small an error; in this time the solver has an error of" in out
    with (folder / "baseline.csv").open() as file:
        rows = list(csv.DictReader(file))
    trials = [row for row in rows if row["grid"]]
    assert {row["integrator"] for row in rows} == {"rk2", "rk3", "rk4", "etdrk4", "net", "slow"}
    assert Counter(row["grid"] for row in trials) == {"16 x 16": 4, "8 x 8": 16}
    least = {}
    for best in (row for row in trials if row["best"] == "True"):
        grid = best["grid"]
        least[grid] = min(float(row["error"]) for row in trials if row["grid"] == grid)
        assert least[grid] <= float(best["error"]) <= 1.05 * least[grid]
    assert floor_of(computed) == least["16 x 16"] < least["8 x 8"] < 1
    if find_spec("simulator.plugins.pictures") is None:
        assert "no picture: it needs the plugin pictures" in out
    else:
        assert (folder / "baseline.png").read_bytes()[:4] == b"\x89PNG"
        assert not [w for w in recwarn if "layout" in str(w.message)]


REFUSED = {
    "--point net": "--point: 'net' is no point; write NAME=ERROR,SECONDS",
    "--point net=1,-2": "--point: 'net=1,-2' is no point",
    "--runs 0": "--runs: must be at least 1, not 0",
    "": "is not done; simulator dataset computes the runs first",
}


@pytest.mark.parametrize("options, message", REFUSED.items())
def test_baselines_that_are_refused(study, refused_command, options: str, message: str):
    study(STUDY, BASE)
    line = refused_command("baseline", "study.yaml", *options.split())
    assert message in line and not Path("out").exists()


FORCED = "forcing: {kind: ornstein_uhlenbeck, rate: 0.5, band: [1, 2], correlation_time: 0.5}\n"


@pytest.mark.slow
@pytest.mark.spmd
def test_errors_and_certificates_do_not_depend_on_the_number_of_devices(
    done_study: Path, study, monkeypatch
):
    """The solutions agree to 1e-12 of the velocity; the errors and the shares of the certificates
    are above 1e-6. A grid of 8 x 8 keeps 5 x 3 modes, which four devices cannot share."""

    def numbers() -> tuple[list[float], str]:
        assert main(["dataset", "study.yaml"]) == 0
        sweep = open_sweep("study.yaml")
        said: list[str] = []
        errors = [t.error for t in measure(sweep, 1, said.append) if t.grid == "8 x 8"]
        names = ("k_max_eta", "edge_share", "distance_to_finer")
        return [*errors, *(v for name in names for v in sweep.certificates[name])], said[-1]

    with monkeypatch.context() as patched:
        patched.chdir(done_study)
        alone, said = numbers()
    assert said.endswith("8 x 8, etdrk4")
    study(STUDY, BASE.replace("count: 1", "count: 4"))
    divided, said = numbers()
    assert said.endswith("on 3 of 4 devices, the most among which it can be divided")
    assert_allclose(divided, alone, rtol=1e-5)


def test_a_random_force_is_another_one_on_another_grid(study):
    sweep = study(STUDY, BASE + FORCED)
    (group,) = groups(sweep.runs)
    with pytest.raises(UserError, match="a random force differs with the time step"):
        Starts(group)
    with pytest.raises(UserError, match="no data set of all runs"):
        _ = sweep.certificates


def test_a_learned_solver_is_compared_at_equal_error_and_at_equal_time():
    trials = [
        Trial("16 x 16", "rk2", 0.5, 0.1, 1.0, 10),
        Trial("32 x 32", "rk2", 0.5, 0.01, 8.0, 20),
        Trial("16 x 16", "rk4", 0.5, float("inf"), 0.1, 1),
    ]
    said = comparison(Point("net", 0.05, 2.0), trials)
    assert "takes 8 s, 4 times as long; in this time the solver has an error of 0.1" in said
