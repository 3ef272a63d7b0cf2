"""`simulator bench`: the real commands on small grids; and a step taken apart into its transforms
and exchanges."""

import json
import os
import subprocess
import sys
from math import prod

import jax
import numpy as np
import pytest
from flow_support import flow
from peers.collectives import collectives
from shipped_runs import shipped_runs

from simulator.cli import main
from simulator.config import load_config
from simulator.plan.cost_of_step import exchange_alone, part_alone
from simulator.plan.traffic import anatomy

RUNS = shipped_runs()


def test_the_command_that_is_gone_names_the_script(capsys):
    assert main(["bench", "fft", "--shape", "8,8,8"]) == 2
    assert "scripts/bench_fft.py" in capsys.readouterr().err


def bench_step(tmp_path, *arguments):
    """What `simulator bench step` printed, and its JSON."""
    env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    file = tmp_path / "step.json"
    command = [
        sys.executable,
        "-m",
        "simulator",
        "bench",
        "step",
        "--seconds",
        "0.1",
        "--json",
        str(file),
    ]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=500, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


@pytest.mark.long
@pytest.mark.spmd
def test_a_step_is_measured_with_its_parts(tmp_path):
    # Large enough for transforms to take longer than what they exchange, which at 8^3 is all of a
    # step.
    arguments = ("--shape", "32,32,32", "--devices", "2", "--precision", "single")
    output, found = bench_step(tmp_path, *arguments, "devices.platform=cpu")
    assert (found["model"], found["shape"], found["devices"]) == ("navier_stokes", [32, 32, 32], 2)
    assert found["fastest"] <= found["step"] <= found["slowest"] and len(found["rounds"]) >= 5
    assert found["transforms"] > 0 and found["communication"] > 0
    assert found["points_per_second"] == pytest.approx(32**3 / 2 / found["step"])
    words = found["resident"] + found["temporary"]
    assert found["memory_bytes"] == pytest.approx(words * 4 * 32**3 / 2)
    assert (
        found["resident"] * 32**3 >= 2 * 3 * 21 * 21 * 11
    )  # three components of the modes kept, complex
    assert found["exchanges"]["count"] == 8 and "8 all-to-all" in output
    assert found["compile_cached"] < found["compile_cold"]
    assert found["threads"] == 1
    (part,) = found["limits"]["parts"]  # 3 components in, 5 products out, in each of 4 stages
    assert (part["transforms"], part["bytes"]) == (32, 4 * 4 * 32**3 * 32) and "GB/s" in output


@pytest.mark.slow
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_configuration_can_be_measured(tmp_path, path):
    # What is shipped small is resolved as it is.
    small = load_config(path).grid.shape
    smaller = () if prod(small) <= 32**3 else ("--shape", "32,32,32")
    output, found = bench_step(tmp_path, str(path), *smaller, "--devices", "1")
    assert found["step"] > 0 and found["transforms"] > 0 and "nothing" in output


@pytest.mark.slow
@pytest.mark.spmd
def test_several_processes_measure_one_step(tmp_path):
    output, found = bench_step(tmp_path, "--shape", "8,8,8", "--devices", "2", "--processes", "2")
    assert found["processes"] == 2 and output.count("compilation") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "0"], "devices.count"),
        (["--devices", "3", "--processes", "2"], "3 is not a multiple of 2 processes"),
        (["--processes", "0"], "--processes: must be at least 1, not 0"),
        (["--shape", "16"], "'16' is not a shape; write e.g. 256,256,256 or 1024,1024"),
        (["no_such.yaml"], "no_such.yaml: no such file"),
        (["time.dtt=1"], "time.dtt: unknown key"),
    ],
)
def test_refusals_of_a_step(arguments, message, capsys):
    assert main(["bench", "step", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


@pytest.fixture(scope="module")
def decaying():
    return flow(12, 12, 12, initial={"kind": "abc"}, viscosity=0.1, count=2)


def taken_apart(s):
    return anatomy(s.step, s.placed_template, np.float64(1e-3))


@pytest.mark.spmd
def test_what_is_found_is_what_the_compiled_step_exchanges(decaying):
    found = taken_apart(decaying)
    ((part, count),) = found.parts.items()
    assert (part.direction, part.given, part.made, count) == ("evaluate", 3, 5, 4)
    assert sum(found.exchanges.values()) == 8  # there and back, four times
    compiled = jax.jit(decaying.step).lower(decaying.placed_template, np.float64(1e-3)).compile()
    assert collectives(compiled)["all-to-all"].bytes == found.sent


@pytest.mark.spmd
def test_the_parts_alone_exchange_as_much_as_in_the_step(decaying):
    found = taken_apart(decaying)

    def sent(alone):
        function, arguments = alone
        return collectives(jax.jit(function).lower(*arguments).compile())["all-to-all"].bytes

    in_parts = sum(n * sent(part_alone(part)) for part, n in found.parts.items())
    by_themselves = sum(n * sent(exchange_alone(e)) for e, n in found.exchanges.items())
    assert in_parts == by_themselves > 0


def test_loops_within_a_step_are_counted():
    """composition4: five kicks, each with psi there and back, and the density's Poisson
    equation."""
    time = {"stop": 1, "integrator": "composition4"}
    initial = {"kind": "jeans_wave"}
    found = taken_apart(
        flow(12, 12, 12, initial=initial, model={"kind": "schrodinger_poisson"}, time=time)
    )
    kinds = {(part.direction, part.transform.layout.real): n for part, n in found.parts.items()}
    assert kinds == {(d, real): 5 for d in ("forward", "inverse") for real in (True, False)}
    assert not found.exchanges
