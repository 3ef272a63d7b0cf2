"""What a plan says of memory against what XLA reports about a run's own programs."""

from itertools import product

import pytest
from planning_cases import config_of, integrators, reported, shipped

from simulator.physics.models import MODELS
from simulator.plan import Step, abstract_run
from simulator.plan.fitting import LEAST_SHARE
from simulator.simulation.compiling import ROOM

ALLOWED = 0.10
"""On more devices than programs are compiled for."""

FEW = [
    ("navier_stokes", "rk4", 2, "double"),
    ("boussinesq", "rk3", 1, "single"),
    ("schrodinger_poisson", "kick_drift_kick", 4, "single"),
    ("composite", "kick_drift_kick", 1, "double"),
]
ALL = [
    case
    for kind in MODELS
    for case in product([kind], integrators(kind), (1, 4), ("double", "single"))
    if case not in FEW
]


def config(kind: str, integrator: str, precision: str, *overrides: str):
    return config_of(kind, f"time.integrator={integrator}", f"precision={precision}", *overrides)


def held_to(kind: str, integrator: str, devices: int, precision: str, *overrides: str) -> None:
    """A plan's memory is that of the loop that a run compiles."""
    found = config(kind, integrator, precision, "grid.shape=24,20,18", *overrides)
    assert Step(found, devices).memory == reported(found, devices)


@pytest.mark.parametrize(("kind", "integrator", "devices", "precision"), FEW)
def test_the_memory_of_a_step(kind, integrator, devices, precision) -> None:
    held_to(kind, integrator, devices, precision)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "integrator", "devices", "precision"), ALL)
def test_the_memory_of_every_step(kind, integrator, devices, precision) -> None:
    held_to(kind, integrator, devices, precision)


@pytest.mark.parametrize("backend", ["custom_partitioning", "jaxdecomp"])
def test_the_memory_of_other_transforms(backend) -> None:
    held_to("navier_stokes", "rk4", 4, "double", f"fft.backend={backend}", "grid.shape=24,24,24",
            "fft.decomposition=pencil", "run.memory=fast")  # fmt: skip


def more_devices(monkeypatch, kind: str, *overrides: str) -> None:
    """Eight devices, by a program compiled for four, against the program of eight."""
    found = config(kind, integrators(kind)[0], "double", *overrides)
    exact = Step(found, 8).memory
    monkeypatch.setattr(abstract_run, "COMPILED_FOR", 4)
    assert Step(found, 8).memory == pytest.approx(exact, rel=ALLOWED)


def test_more_devices_than_programs_are_compiled_for(monkeypatch) -> None:
    more_devices(monkeypatch, "navier_stokes", "grid.shape=96,96,96")


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [["grid.shape=96,96,96"], ["grid.shape=90,100,108"], ["grid.shape=96,96,96", "fft.decomposition=pencil"],
     ["grid.shape=96,96,96", "run.memory=low"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("kind", sorted(shipped()))
def test_more_devices_of_every_model(monkeypatch, kind, overrides) -> None:
    more_devices(monkeypatch, kind, *overrides)


def test_a_row_of_diagnostics_and_a_snapshot_hold_the_state_too() -> None:
    step = Step(config_of("navier_stokes", "grid.shape=32,32,32"), 2)
    values = 3 * 32**3 * 8 / 2
    assert step.output_memory >= step.state + values
    assert step.diagnostics_memory > step.state
    assert step.largest == max(step.memory, step.output_memory, step.diagnostics_memory)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_every_model_and_integrator_can_be_planned(kind) -> None:
    """Also those that come later: a model that is registered has a configuration that shows it."""
    for integrator in integrators(kind):
        found = config_of(kind, f"time.integrator={integrator}", "grid.shape=16,16,16")
        low = config_of(kind, f"time.integrator={integrator}", "grid.shape=16,16,16", "run.memory=low")
        pairs = [(Step(c, 1, "cpu"), Step(c, 2, "gpu")) for c in (found, low)]
        for step, lower in zip(*pairs, strict=True):
            assert LEAST_SHARE * step.memory < lower.memory
            assert ROOM * step.state > step.largest > step.state > 0
            assert step.traffic.bytes > 2 * step.state and (step.traffic.sent > 1e3) == (step.devices > 1)
