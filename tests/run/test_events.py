"""The schedule: every event once, at its time, and the same after a restart."""

import itertools
import json
import math

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.config.blocks import EVENT_TOLERANCE
from simulator.run.events import Event, Moment, Schedule, WallTimer
from simulator.simulation.advance import Until, aligned, beginning

pytestmark = pytest.mark.smoke

relaxed = settings(deadline=None, max_examples=60)
POSITIVE = st.floats(0.01, 1.0)
COUNTS = st.lists(st.integers(-9, 40), min_size=1, max_size=5, unique=True)
TIMES = COUNTS.map(lambda counts: tuple(n / 13 for n in sorted(counts)))
STEPS = st.lists(st.floats(0.01, 0.3), min_size=1, max_size=7)


@jax.jit
def _end_of_step(time, dt, target, soft):
    clock = beginning({}, time=time)
    chosen, _, _, end = aligned(clock, dt, Until(target, soft, 1), fixed=False)
    return chosen, end


def next_step(schedule, time, dt):
    """dt and time at the end of the next step, by the function that the device loop of a run
    compiles."""
    found = _end_of_step(time, dt, schedule.next_aligned(dt), schedule.next_soft())
    return tuple(float(value) for value in jax.device_get(found))


def steps_of(schedule, dts, step, time, restart_at=None):
    """All (step, time, due) from this state on; with `restart_at` the schedule passes through a
    checkpoint there."""
    taken = []
    dt = dts[step % len(dts)]
    if step == schedule.start_step:
        taken.append((step, time, schedule.due(Moment(step, time, dt))))
    while not schedule.finished(Moment(step, time, dt)):
        dt, time = next_step(schedule, time, dts[step % len(dts)])
        step += 1
        taken.append((step, time, schedule.due(Moment(step, time, dt))))
        schedule = schedule.passed(Moment(0, time, dt))
        if step == restart_at:
            stored = json.loads(json.dumps(schedule.state()))
            schedule = Schedule.restored(
                schedule.events,
                schedule.stop_time,
                stored,
                Moment(step, time, dt),
                schedule.max_steps,
            )
    return taken


@st.composite
def events(draw):
    kind = st.tuples(st.booleans(), POSITIVE | TIMES, st.none() | st.integers(1, 9))
    kinds = draw(st.lists(kind, min_size=1, max_size=4))
    ends = st.fixed_dictionaries({"first": st.booleans(), "last": st.booleans()})
    return tuple(
        Event(f"event{i}", every=every, every_steps=steps, align=align, **draw(ends))
        for i, (align, every, steps) in enumerate(kinds)
    )


def times_of(event, start, duration):
    """The times of an event from the start to beyond the duration."""
    if isinstance(event.every, tuple):
        return [time for time in event.every if time > start]
    first = math.floor(start / event.every)
    times = [(first + n) * event.every for n in range(3 + math.ceil(duration / event.every))]
    return [time for time in times if time > start]


@relaxed
@given(events(), st.floats(0.1, 3.0), st.floats(-1.0, 1.0), STEPS)
def test_aligned_times_are_hit_exactly_once_and_the_end_too(events, duration, start, dts):
    stop = start + duration
    taken = steps_of(Schedule(events, stop, start), dts, 0, start)
    times = [time for _, time, _ in taken]
    assert times == sorted(set(times)) and times[-1] == stop
    exact = {stop}.union(*(times_of(event, start, duration) for event in events))
    tolerance = EVENT_TOLERANCE * max(dts)
    for event in (event for event in events if event.align):
        for target in times_of(event, start, duration):
            if start + tolerance < target < stop - tolerance:
                hits = [
                    time
                    for _, time, due in taken
                    if event.name in due and abs(time - target) <= tolerance
                ]
                assert len(hits) == 1 and hits[0] in exact


@relaxed
@given(POSITIVE, st.floats(0.1, 3.0), STEPS)
def test_soft_events_come_after_the_first_step_at_or_beyond_and_never_change_a_step(
    every, stop, dts
):
    without = steps_of(Schedule((), stop), dts, 0, 0.0)
    taken = steps_of(Schedule((Event("row", every=every),), stop), dts, 0, 0.0)
    assert len(taken) == len(without)
    assert all(
        abs(a[1] - b[1]) <= EVENT_TOLERANCE * max(dts) for a, b in zip(taken, without, strict=True)
    )
    targets = [n * every for n in range(1, int(stop / every) + 3)]
    tolerance = EVENT_TOLERANCE * max(dts)
    for (_, before, _), (_, after, due) in itertools.pairwise(taken):
        crossed = any(before < target <= after for target in targets)
        near = any(
            abs(target - time) <= tolerance for target in targets for time in (before, after)
        )
        assert near or ("row" in due) == crossed


@relaxed
@given(events(), st.floats(0.1, 3.0), STEPS, st.integers(0, 40), st.none() | st.integers(1, 30))
def test_a_restart_at_any_step_changes_nothing(events, stop, dts, restart_at, max_steps):
    schedule = Schedule(events, stop, max_steps=max_steps)
    assert steps_of(schedule, dts, 0, 0.0, restart_at) == steps_of(schedule, dts, 0, 0.0)


@relaxed
@given(events(), st.floats(0.1, 3.0), STEPS)
def test_pauses_are_never_later_than_what_is_due(events, stop, dts):
    """Nothing is due before `next_aligned`, beyond `next_soft`, or after `steps_until_due`, where
    the loop stops."""
    schedule = Schedule(events, stop)
    step = 0
    time = 0.0
    while not schedule.finished(Moment(step, time, 0.0)):
        dt = dts[step % len(dts)]
        aligned = schedule.next_aligned(dt)
        soft = schedule.next_soft()
        steps = schedule.steps_until_due(step)
        dt, time = next_step(schedule, time, dt)
        step += 1
        tolerance = EVENT_TOLERANCE * dt
        if schedule.due(Moment(step, time, dt)):
            assert time >= aligned - tolerance or time >= soft - tolerance or steps == 1
        schedule = schedule.passed(Moment(0, time, dt))


def test_times_are_products_not_sums_and_the_end_swallows_one_a_round_off_before_it():
    schedule = Schedule((Event("snapshots", every=0.1, align=True),), stop_time=1000.0)
    for n in range(1, 5000):
        target = schedule.next_aligned(1e-3)
        assert target == n * 0.1
        schedule = schedule.passed(Moment(0, target, 1e-3))
    schedule = Schedule(
        (Event("snapshots", every=0.1, align=True),), stop_time=0.3, counts={"snapshots": 3}
    )
    assert 3 * 0.1 > 0.3  # which is why
    assert schedule.next_aligned(0.01) == 0.3
    assert schedule.due(Moment(30, 0.3, 0.01)) == ("snapshots",)


def test_an_event_within_a_millionth_of_a_step_is_due_and_sets_the_clock():
    schedule = Schedule(
        (Event("rows", every=0.1), Event("snapshots", every=0.2, align=True)), stop_time=1.0
    )
    dt = 0.01
    early = 0.1 - 0.9e-6 * dt
    late = 0.1 + 0.9e-6 * dt
    assert all(next_step(schedule, end - dt, dt)[1] == 0.1 for end in (early, late))
    assert schedule.due(Moment(10, early, dt)) == ("rows",)
    assert schedule.due(Moment(10, 0.1 - 2e-6 * dt, dt)) == ()
    assert schedule.passed(Moment(0, early, dt)).next_soft() == 0.2
    last = schedule.passed(Moment(0, 0.85, dt))
    assert next_step(last, 1.0 - 0.9e-6 * dt - dt, dt)[1] == 1.0


def test_first_and_last_states_also_by_number_of_steps():
    always = Event("snapshots", every=0.4, first=True, last=True)
    others = (Event("spectra", every=0.4, first=True), Event("check", every_steps=2))
    schedule = Schedule((always, *others), stop_time=1.0)
    assert schedule.due(Moment(0, 0.0, 0.1)) == ("snapshots", "spectra")
    assert schedule.passed(Moment(0, 0.8, 0.1)).due(Moment(9, 0.9, 0.1)) == ()
    assert schedule.passed(Moment(0, 0.8, 0.1)).due(Moment(11, 1.0, 0.1)) == ("snapshots",)
    schedule = Schedule(
        (Event("rows", every_steps=4, last=True),), stop_time=math.inf, start_step=100, max_steps=10
    )
    assert [schedule.steps_until_due(step) for step in (100, 103, 104, 108, 109)] == [4, 1, 4, 2, 1]
    assert [step for step in range(101, 111) if schedule.due(Moment(step, 0.0, 0.1))] == [
        104,
        108,
        110,
    ]
    assert schedule.finished(Moment(110, 0.0, 0.1)) and not schedule.finished(Moment(109, 0.0, 0.1))


def test_a_run_that_goes_on_has_the_times_of_a_run_from_zero():
    """From a snapshot between two times, and from one that is at a time but for round-off."""
    event = Event("rows", every=0.1)
    for start, first in ((0.25, 0.3), (3 * 0.1, 0.4), (0.3, 0.4)):
        schedule = Schedule((event,), stop_time=2.0, start_time=start)
        assert schedule.passed(Moment(0, start, 0.01)).next_soft() == pytest.approx(first)


def test_a_changed_cadence_counts_from_the_start_and_goes_on_beyond_the_present():
    old = Schedule((Event("rows", every=0.1),), stop_time=2.0).passed(Moment(0, 0.75, 0.01))
    new = Schedule.restored(
        (Event("rows", every=0.2), Event("more", every=0.5)),
        3.0,
        old.state(),
        Moment(7, 0.75, 0.01),
    )
    assert new.next_soft() == 0.2 * 4
    assert new.counts == {"rows": 4, "more": 2}


def test_wall_clock_events_count_from_the_last_time_they_were_taken():
    now = 0.0
    timer = WallTimer(
        [Event("checkpoints", every_wall=60.0), Event("rows", every=1.0)], lambda: now
    )
    assert timer.names == ("checkpoints",)
    now = 59.0
    assert timer.due() == (False,)
    now = 61.0
    assert timer.due() == (True,)
    timer.reset("checkpoints")
    timer.reset("rows")
    assert timer.due() == (False,)
    now = 121.0
    assert timer.due() == (True,)
