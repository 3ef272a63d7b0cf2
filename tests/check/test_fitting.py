"""What does not fit in memory is refused, with a shape that does."""

import re

import pytest

from simulator import Simulation
from simulator.check import fitting
from simulator.config import run_config_class
from simulator.errors import UserError
from simulator.simulation.memory import Memory, words


def simulation(n):
    return Simulation(
        run_config_class().model_validate(
            {
                "model": {"kind": "navier_stokes", "viscosity": 0.1},
                "grid": {"shape": n},
                "initial": {"kind": "abc"},
                "time": {"stop": 1, "integrator": "rk2"},
                "devices": {"platform": "cpu", "count": 1},
            }
        )
    )


def test_the_shape_that_is_named_fits_and_the_one_asked_for_does_not(monkeypatch):
    asked = simulation((32, 32, 16))
    compiled = asked.compiled_loop()
    need = Memory.of(compiled).total
    fitting.check_fits(asked, compiled, lambda shape: simulation(shape))  # this machine has so much
    monkeypatch.setattr(fitting, "free_everywhere", lambda cluster: need // 3)
    with pytest.raises(UserError) as refused:
        fitting.check_fits(asked, compiled, lambda shape: simulation(shape))
    message = str(refused.value)
    assert message.startswith("grid.shape: a step on 32 x 32 x 16 needs ") and "\n" not in message
    found = re.search(r"; (\d+),(\d+),(\d+) fits$", message)
    assert found is not None
    named = [int(n) for n in found.groups()]
    assert Memory.of(simulation(named).compiled_loop()).total <= need // 3
    assert named[0] == named[1] > named[2]


def test_words_are_numbers_of_the_runs_precision_for_each_point():
    config = simulation((8, 8, 8)).config
    assert words(8 * 100, config, 50, 1) == 2
    assert words(8 * 100, config, 50, 2) == 4
