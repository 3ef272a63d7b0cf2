"""Settings of the box and its grid, and of the time integration and its end."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import model_validator

from simulator.settings import (
    TWO_OR_THREE,
    Count,
    Duration,
    Length,
    Moment,
    Points,
    Positive,
    Ratio,
    Settings,
    entries,
    wrong,
)

_PER_AXIS = entries("three values are needed, one for each of x, y and z, or two", 2, 3)


class GridSettings(Settings):
    shape: Annotated[tuple[Points, ...], TWO_OR_THREE, _PER_AXIS] = (64, 64, 64)
    """Number of points along x, y and z or, in a two-dimensional run, along x and y. Any numbers are possible;
    products of powers of small primes are fast."""
    box: Annotated[tuple[Length, ...], TWO_OR_THREE, _PER_AXIS] = (2 * math.pi, 2 * math.pi, 2 * math.pi)
    """Lengths of the periodic box along the axes of the grid, 2 pi by default; entries such as 2*pi are possible."""
    dealias: Literal["two_thirds", "spherical", "rogallo", "none"] = "two_thirds"
    """two_thirds keeps the modes with |k_i| <= (N_i - 1)//3; spherical keeps the modes within 2 sqrt(2)/3 of the
    Nyquist wavenumber, and computes products on two grids half a spacing apart: both are free of aliasing. rogallo
    keeps the modes of spherical and moves the grid between the two stages of rk2, which leaves an aliasing error of
    order dt^2 in every step. none keeps all modes, with aliasing errors."""
    shell_width: Positive | None = None
    """Width dk of the shells n = floor(|k| / dk + 1/2 + 1e-9) of spectra, transfers and random fields; by default the
    largest 2 pi / L_i, which is coarse in a long box."""

    @model_validator(mode="before")
    @classmethod
    def _box_of_a_plane(cls, data: Any) -> Any:
        shape = data.get("shape") if isinstance(data, dict) and "box" not in data else None
        if isinstance(shape, list | tuple) and len(shape) == 2:
            return {**data, "box": (2 * math.pi,) * 2}
        return data

    @model_validator(mode="after")
    def _box_fits(self) -> Self:
        if len(self.box) != len(self.shape):
            axes = ("two axes", "three axes")[len(self.shape) - 2]
            raise wrong("box", f"has {len(self.box)} lengths, but shape has {axes}; give one for each")
        lengths = [length for length, n in zip(self.box, self.shape, strict=True) if n > 1] or self.box
        least = 2 * math.pi / max(lengths)
        if self.shell_width is not None and self.shell_width < least * (1 - 1e-9):
            raise wrong(
                "shell_width",
                f"{self.shell_width:g} is below the smallest wavenumber of the box, 2 pi / L = {least:.6g}, and "
                f"shells would be empty; give at least that",
            )
        return self


EXCLUSIVE = ("cfl", "dt", "steps")
"""The keys of `time` of which one chooses the time step."""
REMOVES = {"cfl": ("dt", "steps", "spacing"), "dt": ("cfl", "steps", "spacing"), "steps": ("cfl", "dt", "max_dt")}
"""The keys of a file's `time` that an override of one of `EXCLUSIVE` removes."""

USUAL_CFL = 0.5
"""The default CFL number, if integrator and dealiasing allow it."""

EVENT_TOLERANCE = 1e-6
"""An event that is within this fraction of dt from the end of a step is due there."""


class TimeSettings(Settings):
    integrator: str = "rk4"
    """The time integrator."""
    stop: Moment
    """The simulation time at which the run ends exactly; time starts at 0. In an expanding box also {scale_factor: A}
    or {redshift: Z}."""
    cfl: Ratio | None = None
    """CFL number: dt = cfl / max_x sum_i |v_i| / dx_i. If neither cfl nor dt is given, cfl is 0.5, or the limit of
    the integrator with this dealiasing if that is smaller."""
    dt: Duration | None = None
    """A fixed time step, instead of cfl."""
    steps: Count | None = None
    """In an expanding box, instead of cfl: the number of steps from the start to stop. Aligned output divides steps
    further."""
    spacing: Literal["growth", "log_scale_factor"] | None = None
    """What the steps divide equally: the linear growth factor D (the default) or ln a."""
    max_dt: Duration | None = None
    """Upper limit of the time step that follows from cfl; required if the initial flow is at rest."""
    max_steps: Count | None = None
    """The run ends after this many steps even if stop is not reached."""

    @model_validator(mode="before")
    @classmethod
    def _default_cfl(cls, data: Any) -> Any:
        if isinstance(data, dict) and all(data.get(key) is None for key in EXCLUSIVE):
            return {**data, "cfl": USUAL_CFL}
        return data

    @model_validator(mode="after")
    def _one_way_to_choose_dt(self) -> Self:
        values = (self.cfl, self.dt, self.steps)
        given = [key for key, value in zip(EXCLUSIVE, values, strict=True) if value is not None]
        if len(given) > 1:
            raise wrong(given[1], f"excludes time.{given[0]}; keep one of the two")
        if self.steps is None and self.spacing is not None:
            raise wrong("spacing", "needs time.steps; leave the key out")
        if self.steps is not None and self.max_dt is not None:
            raise wrong("max_dt", "has no effect with time.steps; leave the key out")
        if self.dt is not None and self.max_dt is not None and self.dt > self.max_dt:
            raise wrong("dt", f"must be at most time.max_dt = {self.max_dt}, not {self.dt}")
        return self
