"""Settings of the time integration and its end."""

from typing import Any, Self

from pydantic import model_validator

from simulator.settings import Count, Duration, Ratio, Settings, wrong

USUAL_CFL = 0.5
"""The default CFL number, if integrator and dealiasing allow it."""

EVENT_TOLERANCE = 1e-6
"""An event that is within this fraction of dt from the end of a step is due there."""


class TimeSettings(Settings):
    integrator: str = "rk4"
    """The time integrator."""
    stop: Duration
    """The simulation time at which the run ends, exactly; it starts at 0."""
    cfl: Ratio | None = None
    """CFL number: dt = cfl / max_x sum_i |v_i| / dx_i. If neither cfl nor dt is given, 0.5 or the limit of the
    integrator with this dealiasing, whichever is less."""
    dt: Duration | None = None
    """A fixed time step, instead of cfl."""
    max_dt: Duration | None = None
    """Upper limit of the time step chosen by cfl; required if the initial flow is at rest."""
    max_steps: Count | None = None
    """The run ends after this many steps even if stop is not reached."""

    @model_validator(mode="before")
    @classmethod
    def _default_cfl(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("cfl") is None and data.get("dt") is None:
            return {**data, "cfl": USUAL_CFL}
        return data

    @model_validator(mode="after")
    def _one_way_to_choose_dt(self) -> Self:
        if self.dt is not None and self.cfl is not None:
            raise wrong("dt", "excludes time.cfl; keep one of the two")
        if self.dt is not None and self.max_dt is not None and self.dt > self.max_dt:
            raise wrong("dt", f"must be at most time.max_dt = {self.max_dt}, not {self.dt}")
        return self
