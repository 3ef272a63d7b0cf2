"""The schedule of a run: events due by simulation time, by step, and by wall clock.

The n-th event of `every` lies at the time n * every, by multiplication, because a sum would drift,
also in a run whose time goes on from an earlier one. The first state is governed by `Event.first`. A
time counts as reached if it
is at most EVENT_TOLERANCE * dt ahead, so that round-off neither causes a tiny step nor delays an
event by a step.

A `Schedule` is a value: its decisions depend on step, time and dt alone, which are the same on
every process, and `Schedule.state` and `Schedule.restored` carry it through a checkpoint without
changing a decision. The wall clock, which differs between processes, is left to `WallTimer`, on
whose answers the processes agree before acting."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from simulator.config.blocks import EVENT_TOLERANCE, OutputSettings
from simulator.measure import Cadence, requested


class Moment(NamedTuple):
    """The position of a run: the values of the state's clock, on the host."""

    step: int
    time: float
    dt: float
    steps_per_second: float = 0.0

    @property
    def limit(self) -> float:
        """Times up to this one count as reached."""
        return self.time + EVENT_TOLERANCE * self.dt


@dataclass(frozen=True)
class Event:
    """One kind of event with all its conditions.

    `every` is simulation time or rising times, `every_steps` counts steps from the first state,
    `every_wall` is in seconds; they may be combined. With `align` steps are shortened so that a
    step ends exactly at each time of `every`; otherwise the event comes after the first step at or
    beyond that time. `first` and `last`: the event is due at the first state, at the run's end."""

    name: str
    every: float | tuple[float, ...] | None = None
    every_steps: int | None = None
    every_wall: float | None = None
    align: bool = False
    first: bool = False
    last: bool = False


def events(settings: OutputSettings) -> tuple[Event, ...]:
    """The events of a run, in the order in which they are taken."""

    def event(name: str, cadence: Cadence, *, first: bool = True, align: bool = False) -> Event:
        align = align or getattr(cadence, "align", False)
        every, steps, wall = cadence.every, cadence.every_steps, cadence.every_wall
        return Event(name, every, steps, wall, align, first, last=True)

    series = [
        event(name, cadence) for name, _, cadence in requested(settings) if cadence is not None
    ]
    return (
        event("diagnostics", settings.diagnostics),
        *series,
        event("snapshots", settings.snapshots, align=True),
        event("checkpoints", settings.checkpoints, first=False, align=True),
    )


@dataclass(frozen=True)
class Schedule:
    """Decides which events are due at the end of a step and how far the next steps may go.

    `counts` has the number n of the next event by time, by the name of the event. The run ends at
    `stop_time`, or when `max_steps` steps were taken after `start_step`."""

    events: tuple[Event, ...]
    stop_time: float
    start_time: float = 0.0
    start_step: int = 0
    max_steps: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.counts:
            start = self.start_time
            counts = {e.name: self._count_beyond(e, -math.inf, start) for e in self.events}
            object.__setattr__(self, "counts", counts)

    def finished(self, moment: Moment) -> bool:
        """Whether the run ends with this state."""
        taken = moment.step - self.start_step
        out_of_steps = self.max_steps is not None and taken >= self.max_steps
        return out_of_steps or self.stop_time <= moment.limit

    def due(self, moment: Moment) -> tuple[str, ...]:
        """Names of the events due by step or simulation time at the end of a step.

        Take the events in this order, then continue with the schedule `passed`."""
        planned = self.planned(moment)
        last = self.finished(moment)
        return tuple(
            event.name for event in self.events if event.name in planned or (event.last and last)
        )

    def planned(self, moment: Moment) -> tuple[str, ...]:
        """The events `due` without those that are due only because the run ends here."""
        taken = moment.step - self.start_step
        if taken == 0:
            return tuple(event.name for event in self.events if event.first)
        return tuple(
            event.name
            for event in self.events
            if self._next(event) <= moment.limit
            or (event.every_steps and taken % event.every_steps == 0)
        )

    def met(self, moment: Moment) -> tuple[str, ...]:
        """The events that a run with this schedule from its first state on plans at the end of the
        step that led to `moment`."""
        before = Moment(moment.step - 1, moment.time - moment.dt, moment.dt)
        return replace(self, counts={}).passed(before).planned(moment)

    def passed(self, moment: Moment) -> Self:
        """The schedule after the events due at this state: the next time of each event lies beyond
        the state."""
        limit, counts = moment.limit, self.counts
        beyond = {e.name: self._count_beyond(e, counts[e.name], limit) for e in self.events}
        return replace(self, counts=beyond)

    def next_aligned(self, dt: float) -> float:
        """The time at which a step has to end exactly: the time of the next aligned event, or the
        run's end."""
        target = min((self._next(event) for event in self.events if event.align), default=math.inf)
        return target if target < self.stop_time - EVENT_TOLERANCE * dt else self.stop_time

    def next_soft(self) -> float:
        """The time of the next event that is not aligned: the device loop pauses after the first
        step at or beyond this time; inf if there is none."""
        return min(
            (self._next(event) for event in self.events if not event.align), default=math.inf
        )

    def steps_until_due(self, step: int) -> int | None:
        """Number of steps until the next event by `every_steps` or the end by `max_steps`; None
        without both."""
        taken = step - self.start_step
        waits = [
            event.every_steps - taken % event.every_steps
            for event in self.events
            if event.every_steps
        ]
        if self.max_steps is not None:
            waits.append(max(self.max_steps - taken, 0))
        return min(waits, default=None)

    def state(self) -> dict[str, Any]:
        """The part of the schedule that a checkpoint stores; JSON preserves every bit of the
        numbers."""
        counts = {
            event.name: [_plain(event.every), self.counts[event.name]]
            for event in self.events
            if event.every
        }
        return {"start_time": self.start_time, "start_step": self.start_step, "due": counts}

    @classmethod
    def restored(
        cls,
        events: Sequence[Event],
        stop_time: float,
        state: Mapping[str, Any],
        moment: Moment,
        max_steps: int | None = None,
    ) -> Self:
        """The schedule of a run that continues at `moment`, after the events of that state.

        An event whose `every` equals the stored value is due exactly as in the uninterrupted run; a
        new or changed event is next due beyond `moment`."""
        fresh = cls(
            tuple(events),
            stop_time,
            float(state["start_time"]),
            int(state["start_step"]),
            max_steps,
        )
        fresh = fresh.passed(moment)
        planned = {event.name: _plain(event.every) for event in events}
        stored = {
            name: int(count)
            for name, (every, count) in state.get("due", {}).items()
            if planned.get(name) == every
        }
        return replace(fresh, counts={**fresh.counts, **stored})

    def _next(self, event: Event) -> float:
        return math.inf if event.every is None else self._nth(event.every, self.counts[event.name])

    @staticmethod
    def _nth(every: float | tuple[float, ...], count: int) -> float:
        if isinstance(every, tuple):
            return every[count - 1] if count <= len(every) else math.inf
        return count * every

    def _count_beyond(self, event: Event, least: float, limit: float) -> int:
        """The number, from `least` on, of the first event later than `limit`."""
        every = event.every
        # The division is only approximate; the comparison that `due` makes decides.
        near = math.floor(limit / every) - 1 if isinstance(every, float) else 1
        count = int(max(least, near))
        while every is not None and self._nth(every, count) <= limit:
            count += 1
        return count


def _plain(every: float | tuple[float, ...] | None) -> float | list[float] | None:
    return list(every) if isinstance(every, tuple) else every


class WallTimer:
    """Events by wall clock. Every process reads its clock, and the processes agree on the answer
    before they act.

    A restarted run counts from its restart. Wall-clock events never change a step."""

    def __init__(self, events: Sequence[Event], clock: Callable[[], float]) -> None:
        self._every = {
            event.name: event.every_wall for event in events if event.every_wall is not None
        }
        self._clock = clock
        self._last = dict.fromkeys(self._every, clock())

    @property
    def names(self) -> tuple[str, ...]:
        """The events by wall clock, in the order of `due`."""
        return tuple(self._every)

    def due(self) -> tuple[bool, ...]:
        """Which of `names` are due now."""
        now = self._clock()
        return tuple(now - self._last[name] >= every for name, every in self._every.items())

    def reset(self, name: str) -> None:
        """Count from now on, because the event was just taken, for any reason."""
        if name in self._last:
            self._last[name] = self._clock()
