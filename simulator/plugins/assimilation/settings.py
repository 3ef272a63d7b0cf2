"""The file of `simulator assimilate`."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.archive.manifest import NAME, committed
from simulator.config.load import FileKind, FileSettings
from simulator.settings import (
    Count,
    Few,
    InputPath,
    OutputPath,
    Positive,
    PythonFile,
    Settings,
    wrong,
)

KEYS_OF_METHOD = {
    "variational": ("windows", "iterations", "tolerance", "hessian_products"),
    "ensemble": ("members", "inflation", "radius"),
}
"""The keys of each method."""


class BackgroundSettings(Settings):
    """The prior, from spectra or from snapshots. Other fields keep their initial condition."""

    spectrum: dict[str, InputPath] | None = None
    """Text files with two columns, k and E(k), by field: E dk adds up to the box mean of the square
    over 2."""
    snapshots: tuple[InputPath, ...] | None = None
    """Samples of the flow at other times or with other seeds: snapshots, or runs, whose snapshots
    are all taken."""
    mean: Literal["zero", "initial", "snapshots"] = "zero"
    """The mean: zero, the initial condition of the base, or the mean of the snapshots."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.spectrum) == bool(self.snapshots):
            raise wrong(
                "", "needs either spectrum or snapshots, e.g. {snapshots: [outputs/earlier]}"
            )
        if self.mean == "snapshots" and len(self.folders()) < 2:
            raise wrong("mean", "of snapshots needs two snapshots or more")
        return self

    def folders(self) -> list[Path]:
        """The folders of the snapshots."""
        paths = self.snapshots or ()
        return [
            one
            for path in paths
            for one in ([path] if (path / NAME).exists() else committed(path / "snapshots"))
        ]


class FunctionSettings(Settings):
    path: PythonFile
    """A Python file."""
    function: str = "observe"
    """function(fields, **parameters) -> array, with jax.numpy; `fields["velocity"]` are values on
    the grid."""
    parameters: dict[str, Any] = Field(default_factory=dict)


class ObservationSettings(Settings):
    table: InputPath
    """CSV, npz or HDF5."""
    error: Positive | None = None
    """Standard deviation of every value; by default the table's `error`."""
    python: FunctionSettings | None = None
    """The function of the state whose values the table holds."""


def _some(observations: tuple[ObservationSettings, ...]) -> tuple[ObservationSettings, ...]:
    if not observations:
        raise ValueError("an empty list; give a table, e.g. [{table: observed.csv, error: 0.01}]")
    return observations


class AssimilationSettings(FileSettings):
    """Observations of a flow, and the way to recover the flow from them."""

    file_kind = FileKind(
        "observations",
        "an assimilation needs base, observations and background",
        "an assimilation: simulator assimilate FILE",
    )

    base: InputPath
    """The configuration of the run that the observations belong to, with a fixed time.dt; relative
    to this file."""
    output: OutputPath
    """The folder of the result; by default outputs/NAME."""
    method: Literal["variational", "ensemble"] = "variational"
    """variational: the initial state whose run fits all observations (4D-Var). ensemble: the flow at
    the last observation (ensemble transform Kalman filter)."""
    observations: Annotated[tuple[ObservationSettings, ...], AfterValidator(_some)]
    background: BackgroundSettings
    """The prior of the start."""
    members: Annotated[Count, Field(ge=2)] = 40
    """Number of members of the ensemble, which are drawn from the background."""
    inflation: Positive | None = None
    """The factor of the ensemble's variance before each analysis; by default chosen from the
    misfit, at least 1."""
    radius: Positive | None = None
    """Localization radius of the ensemble filter: observations at larger distances have no influence.
    By default a third of the box's shortest side. Spectra and values of functions count
    everywhere."""
    windows: Few = 4
    """4D-Var: number of assimilation windows, each twice as long as the one before; the last one has
    all observations."""
    iterations: Count = 30
    """Largest number of iterations in a window."""
    tolerance: Positive = 2e-3
    """A window ends when an iteration lowers the cost by less than this part. All but the last one
    also end when the misfit is that of noise."""
    hessian_products: Count = 200
    """4D-Var: largest number of products with the Hessian, from which the expected error is estimated
    at the end. Each takes at most as long as two iterations. More products are needed if the
    observations determine more of the initial state."""

    @model_validator(mode="after")
    def _of_the_method(self) -> Self:
        for key in self.model_fields_set.intersection(
            *(v for k, v in KEYS_OF_METHOD.items() if k != self.method)
        ):
            raise wrong(
                key,
                f"is no key of method: {self.method}; its keys are {', '.join(KEYS_OF_METHOD[self.method])}",
            )
        return self
