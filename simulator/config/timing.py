"""How a run advances and when it ends."""

from typing import Any, Self

from pydantic import model_validator

from simulator.settings import Count, Positive, Settings, wrong


class TimeSettings(Settings):
    integrator: str = "rk4"
    """The time integrator."""
    stop: Positive
    """The simulation time at which the run ends, exactly; it starts at 0."""
    cfl: Positive | None = None
    """CFL number: dt = cfl / max_x sum_i |v_i| / dx_i. 0.5 where neither cfl nor dt is given."""
    dt: Positive | None = None
    """A fixed time step, instead of cfl."""
    max_dt: Positive | None = None
    """Upper limit of a time step chosen by cfl; required where the start is at rest."""
    max_steps: Count | None = None
    """The run ends after this many steps even if stop is not reached."""

    @model_validator(mode="before")
    @classmethod
    def _default_cfl(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("cfl") is None and data.get("dt") is None:
            return {**data, "cfl": 0.5}
        return data

    @model_validator(mode="after")
    def _one_way_to_choose_dt(self) -> Self:
        if self.dt is not None and self.cfl is not None:
            raise wrong("dt", "excludes time.cfl; keep one of the two")
        if self.dt is not None and self.max_dt is not None and self.dt > self.max_dt:
            raise wrong("dt", f"must be at most time.max_dt = {self.max_dt}, not {self.dt}")
        return self
