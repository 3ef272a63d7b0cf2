"""The model of memory against what XLA reports about compiled steps: within 10 %."""

from itertools import product

import pytest
from planning_cases import config_of, integrators, reported, shipped

from simulator.models import MODELS
from simulator.planning import Step

ALLOWED = 0.10

# Every model, every integrator, one and several devices and both precisions at least once.
FEW = [
    ("navier_stokes", "rk4", 2, "double"),
    ("boussinesq", "rk3", 1, "single"),
    ("mhd", "rk2", 4, "double"),
    ("self_gravitating_gas", "rk2", 2, "single"),
    ("schrodinger_poisson", "kick_drift_kick", 1, "double"),
    ("schrodinger_poisson", "composition4", 2, "single"),
]
ALL = [
    case
    for kind in MODELS
    for case in product([kind], integrators(kind), (1, 2, 4), ("double", "single"))
    if case not in FEW
]

# Where the model is more than 10 % off (by up to 45 %, mostly too low): it does not know what XLA keeps of loops that
# share no zeros. A case that comes within 10 % has to leave this list.
MISSED = [
    "navier_stokes-rk3-4-single",
    "navier_stokes-etdrk4-1-single",
    "navier_stokes-etdrk4-2-double",
    "boussinesq-rk3-2-single",
    "boussinesq-etdrk4-1-double",
    "boussinesq-etdrk4-4-double",
    "self_gravitating_gas-rk4-1-double",
    "self_gravitating_gas-rk4-1-single",
    "self_gravitating_gas-rk4-2-double",
    "self_gravitating_gas-rk4-2-single",
    "self_gravitating_gas-rk4-4-double",
    "self_gravitating_gas-rk4-4-single",
    "self_gravitating_gas-rk3-4-single",
    "self_gravitating_gas-rk2-1-double",
    "self_gravitating_gas-rk2-1-single",
    "self_gravitating_gas-rk2-2-double",
    "self_gravitating_gas-etdrk4-1-double",
    "self_gravitating_gas-etdrk4-1-single",
    "self_gravitating_gas-etdrk4-2-double",
    "self_gravitating_gas-etdrk4-2-single",
    "schrodinger_poisson-drift_kick_drift-1-double",
    "schrodinger_poisson-drift_kick_drift-1-single",
    "schrodinger_poisson-composition4-1-double",
    "schrodinger_poisson-composition4-1-single",
    "schrodinger_poisson-composition6-1-double",
    "schrodinger_poisson-composition6-1-single",
    "composite-kick_drift_kick-1-double",
    "composite-kick_drift_kick-1-single",
    "composite-kick_drift_kick-2-double",
    "composite-kick_drift_kick-2-single",
    "composite-kick_drift_kick-4-double",
    "composite-kick_drift_kick-4-single",
    "composite-drift_kick_drift-1-double",
    "composite-drift_kick_drift-1-single",
    "composite-drift_kick_drift-2-double",
    "composite-drift_kick_drift-2-single",
    "composite-drift_kick_drift-4-double",
    "composite-drift_kick_drift-4-single",
]
MISSED_SHAPES = ("composite", "mhd", "self_gravitating_gas")


def marked(*case: object, missed: bool):
    return pytest.param(*case, marks=pytest.mark.xfail(strict=True) if missed else ())


# So large that every device visits its part in several blocks, in single precision on four devices too.
def held_to(kind: str, integrator: str, devices: int, precision: str, *overrides: str) -> None:
    config = config_of(
        kind, f"time.integrator={integrator}", f"precision={precision}", "grid.shape=96,96,96", *overrides
    )
    expected = Step(config, devices).memory
    assert expected == pytest.approx(reported(config, devices), rel=ALLOWED)


@pytest.mark.parametrize(("kind", "integrator", "devices", "precision"), FEW)
def test_the_memory_of_a_step(kind, integrator, devices, precision) -> None:
    held_to(kind, integrator, devices, precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "integrator", "devices", "precision"),
    [marked(*case, missed="-".join(map(str, case)) in MISSED) for case in ALL],
)
def test_the_memory_of_every_step(kind, integrator, devices, precision) -> None:
    held_to(kind, integrator, devices, precision)


@pytest.mark.slow
@pytest.mark.parametrize("decomposition", ["zx_y", "pencil"])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_the_memory_of_other_decompositions(decomposition, precision) -> None:
    held_to("navier_stokes", "rk4", 4, precision, f"fft.decomposition={decomposition}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [marked(kind, missed=kind in MISSED_SHAPES) for kind in sorted(shipped())])
def test_a_shape_that_divides_nothing(kind) -> None:
    held_to(kind, integrators(kind)[0], 4, "double", "grid.shape=90,100,108")


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_every_model_and_integrator_can_be_planned(kind) -> None:
    """Also those that come later: a model that is registered has a configuration that shows it."""
    for integrator in integrators(kind):
        config = config_of(kind, f"time.integrator={integrator}", "grid.shape=16,16,16")
        for devices, platform in ((1, "cpu"), (2, "gpu")):
            step = Step(config, devices, platform)
            assert step.memory > step.state > 0
            assert step.work.flops > 0 and (step.work.sent > 0) == (devices > 1)
