"""A step taken apart: its transforms and what they exchange."""

import jax
import numpy as np
import pytest

from simulator import Simulation
from simulator.check.step import exchange_alone, part_alone
from simulator.config import run_config_class
from simulator.plan.traffic import anatomy
from simulator.spectral.collectives import collectives


def simulation(model, devices=2, **others):
    data = {"model": model, "grid": {"shape": [12, 12, 12]}, "time": {"stop": 1}, **others}
    return Simulation(run_config_class().model_validate({**data, "devices": {"platform": "cpu", "count": devices}}))


def taken_apart(s):
    return anatomy(s.step, s.placed_template, np.float64(1e-3))


@pytest.mark.spmd
def test_what_is_found_is_what_the_compiled_step_exchanges():
    s = simulation({"kind": "navier_stokes", "viscosity": 0.1}, initial={"kind": "abc"})
    found = taken_apart(s)
    ((part, count),) = found.parts.items()
    assert (part.direction, part.given, part.made, count) == ("evaluate", 3, 5, 4)
    assert sum(found.exchanges.values()) == 8  # there and back, four times
    compiled = jax.jit(s.step).lower(s.placed_template, np.float64(1e-3)).compile()
    itemsize = np.dtype(np.complex128).itemsize
    sent = sum(n * np.prod(e.shape) * itemsize // 2 for e, n in found.exchanges.items())
    assert collectives(compiled)["all-to-all"].bytes == sent


@pytest.mark.spmd
def test_the_parts_alone_exchange_as_much_as_in_the_step():
    s = simulation({"kind": "navier_stokes", "viscosity": 0.1}, initial={"kind": "abc"})
    found = taken_apart(s)

    def sent(alone):
        function, arguments = alone
        return collectives(jax.jit(function).lower(*arguments).compile())["all-to-all"].bytes

    in_parts = sum(n * sent(part_alone(part)) for part, n in found.parts.items())
    by_themselves = sum(n * sent(exchange_alone(e)) for e, n in found.exchanges.items())
    assert in_parts == by_themselves > 0


def test_loops_within_a_step_are_counted():
    """composition4: five kicks, each with psi there and back, and the density's Poisson equation."""
    s = simulation(
        {"kind": "schrodinger_poisson"},
        devices=1,
        initial={"kind": "soliton", "core_radius": 1.0},
        time={"stop": 1, "integrator": "composition4"},
    )
    found = taken_apart(s)
    kinds = {(part.direction, part.transform.layout.real): n for part, n in found.parts.items()}
    assert kinds == {(d, real): 5 for d in ("forward", "inverse") for real in (True, False)}
    assert not found.exchanges
