"""The block `dataset` of a study's file, and the data set's part in a study."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.files import read_json
from simulator.settings import Count, Integer, NonNegative, entries, wrong
from simulator.study.extension import StudyBlock
from simulator.study.planned import PlannedSweep
from simulator.words import brief

if TYPE_CHECKING:
    from simulator.study.sweep import Sweep

SPLITS = ("train", "valid", "test")
FOLDER = "dataset"
CERTIFICATE = "certificate.json"
"""How well the runs of a data set are resolved, in its folder."""

Shares = Annotated[
    tuple[NonNegative, ...], entries("three numbers are needed, e.g. [0.8, 0.1, 0.1]", 3)
]


def certificate_file(study: PlannedSweep) -> Path:
    return study.folder / FOLDER / CERTIFICATE


def certificates(study: PlannedSweep) -> dict[str, np.ndarray]:
    """The numbers that `simulator dataset` recorded about the resolution of each run, in the order
    of `runs`: the smallest `k_max_eta`, the largest `edge_share` and `budget_residual`, the number
    of `rows` of diagnostics behind them, of rounded snapshots `error_asked` and `error_measured`,
    and for some runs `distance_to_finer`; nan where a number is not known. Raises UserError if
    there is no data set yet."""
    stored = read_json(certificate_file(study)).get("runs", {})
    if any(run.hash not in stored for run in study.runs):
        raise UserError(f"{study.folder}: no data set of all runs; simulator dataset writes it")
    names = dict.fromkeys(name for run in study.runs for name in stored[run.hash])
    rows = [stored[run.hash] for run in study.runs]
    return {name: np.array([row.get(name) for row in rows], float) for name in names}


class DatasetSettings(StudyBlock):
    """The data set that `simulator dataset` writes. Unless the base says otherwise, the runs write
    four intervals of diagnostics and one of spectra, no index with their snapshots, and
    `run.sync: false` applies."""

    split: Shares = (0.8, 0.1, 0.1)
    """The shares of the runs in train, valid and test, which add up to 1."""
    trajectories_per_file: Count = 16
    refined_runs: Annotated[Integer, Field(ge=0)] = 1
    """Number of runs of train that are computed again on a grid with twice the points along each
    axis, for the certificate."""

    attributes = {"certificates": certificates}  # noqa: RUF012 - a class variable of the base

    @model_validator(mode="after")
    def _whole_split(self) -> Self:
        if abs(sum(self.split) - 1) > 1e-6 or not self.split[0]:
            raise wrong(
                "split",
                f"train (above 0), valid and test must add up to 1, not {sum(self.split):g}",
            )
        return self

    def configured(self, config: RunConfig) -> RunConfig:
        """The configuration with fewer rows and small files, unless its file says otherwise: its
        snapshots become a data set."""
        output = config.output
        changes: dict[str, Any] = {}
        intervals = {"diagnostics": config.time.stop / 4, "spectra": config.time.stop}
        for name in intervals.keys() - output.model_fields_set:
            rows = {"every": intervals[name], "every_steps": None}
            changes[name] = getattr(output, name).model_copy(update=rows)
        if "index" not in output.snapshots.model_fields_set:
            changes["snapshots"] = output.snapshots.model_copy(update={"index": False})
        config = config.changed(output=changes)
        if "sync" in config.run.model_fields_set:
            return config
        return config.changed(run={"sync": False})

    def parts(self, study: PlannedSweep) -> Mapping[str, Sequence[int]]:
        """The runs in train, valid and test. The runs are dealt in the order of their hashes, which
        is random but the same every time; the shares of valid and test are rounded up. Raises
        UserError if there are too few runs."""
        runs = [run.index for run in sorted(study.runs, key=lambda run: run.hash)]
        valid, test = (math.ceil(share * len(runs) - 1e-6) for share in self.split[1:])
        ends = (0, len(runs) - valid - test, len(runs) - test, len(runs))
        if ends[1] < 1:
            few = f"dataset.split: {len(runs)} runs cannot be divided as {brief(list(self.split))}"
            raise UserError(f"{study.file}: {few}; add runs, or give a share of 0 to valid or test")
        return {split: runs[ends[i] : ends[i + 1]] for i, split in enumerate(SPLITS)}

    def shown(self, study: PlannedSweep) -> Mapping[str, Any]:
        rows = {}
        if certificate_file(study).is_file():
            for name, values in certificates(study).items():
                if name == "k_max_eta":
                    rows[f"smallest {name}"] = np.nanmin(values).item()
                elif name not in ("index", "rows"):
                    rows[f"largest {name}"] = np.nanmax(values).item()
        return rows

    def following(self, study: PlannedSweep) -> Sequence[str]:
        return () if (study.folder / FOLDER).exists() else ("dataset",)


def dataset_of(sweep: "Sweep") -> DatasetSettings:
    """The block `dataset` of a study, with its defaults if the file lacks it."""
    block = sweep.blocks["dataset"]
    assert isinstance(block, DatasetSettings)
    return block
