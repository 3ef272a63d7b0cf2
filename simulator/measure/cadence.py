"""The schedule of a part of a run's output."""

from typing import Self

from pydantic import model_validator

from simulator.errors import shortened
from simulator.settings import Count, Duration, Flag, Seconds, Settings, wrong


class Cadence(Settings):
    """The schedule of an output. If several keys are set, it is due by each of them."""

    every: Duration | None = None
    """Interval in simulation time."""
    every_steps: Count | None = None
    """Interval in steps."""
    every_wall: Seconds | None = None
    """Interval in wall-clock time: seconds, or 10min, 2h."""

    @property
    def given(self) -> bool:
        """Whether any interval is set."""
        return not (self.every is None and self.every_steps is None and self.every_wall is None)


class SeriesCadence(Cadence):
    """The schedule of a series, whose rows are taken after the first step at or beyond their time."""

    align: Flag = False
    """Shorten steps so that rows due by simulation time are taken at exactly that time."""

    @model_validator(mode="after")
    def _some_cadence(self) -> Self:
        if not self.given:
            raise wrong("", "has no interval; give every, every_steps or every_wall")
        if self.align and self.every is None:
            raise wrong("align", "applies to rows due by simulation time; give every too, or leave it out")
        return self


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Validator of a list of fields: refuses an empty list, and names that occur twice."""
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{shortened(name)} is given twice; keep one of them")
    if not names:
        raise ValueError("an empty list; name a field, or leave the key out for the model's fields")
    return names


def check_rises(key: str, ends: tuple[float, float] | None) -> None:
    """Refuses an interval whose first end is not the smaller one; for validators of settings."""
    if ends is not None and ends[0] >= ends[1]:
        raise wrong(key, f"[{ends[0]:g}, {ends[1]:g}] is not increasing; the smaller end comes first")
